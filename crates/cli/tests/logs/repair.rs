//! The subcommands that examine logs, truncate them, copy them and save what is left of them.

use std::path::Path;

use crate::support::{damage, directory, good, json, run, segments, snapshot, text};

/// A log of several segments: 2000 records of about 300 bytes.
fn log_in(at: &Path) {
    let lines: String = (1..=2000).map(|number| format!("{}\n", line(number))).collect();
    good(at, &["append", "log", "-q", "--segment-size", "64KiB"], lines.as_bytes());
    assert!(segments(&at.join("log")).len() > 8);
}

fn line(number: u64) -> String {
    format!("record {number:05} {}", "z".repeat(290))
}

#[test]
fn info_verify_and_dump_of_a_log_that_is_well() {
    let directory = directory();
    let at = directory.path();
    log_in(at);
    let before = snapshot(&at.join("log"));
    let info = json(&good(at, &["info", "log", "--json"], b""));
    assert_eq!((info["first"].as_u64(), info["last"].as_u64()), (Some(1), Some(2000)), "{info}");
    assert_eq!((info["clean"].as_bool(), info["writer"].is_null()), (Some(true), true), "{info}");
    let verified = json(&good(at, &["verify", "log", "--json"], b""));
    assert_eq!(
        (verified["records"].as_u64(), verified["intact"].as_bool()),
        (Some(2000), Some(true))
    );
    let bytes: usize = (1..=2000).map(|number| line(number).len()).sum();
    assert_eq!(verified["record_bytes"].as_u64(), Some(bytes as u64));
    let table = text(&good(at, &["info", "log"], b""));
    for word in ["closed cleanly", "nobody", "LSN      1 to 2000", "active", "sealed"] {
        assert!(table.contains(word), "{word}: {table}");
    }
    let dump = text(&good(at, &["dump", "log", "--payload", "text"], b""));
    let entries: Vec<_> = dump.lines().map(|line| json(line.as_bytes())).collect();
    let records: Vec<_> = entries.iter().filter(|entry| entry["kind"] == "record").collect();
    assert_eq!(records.len(), 2000);
    assert!(
        records
            .iter()
            .zip(1..)
            .all(|(entry, lsn)| entry["lsn"] == lsn && entry["payload"] == line(lsn))
    );
    let count = |what: &str| entries.iter().filter(|entry| entry["what"] == what).count();
    assert_eq!(count("segment"), segments(&at.join("log")).len());
    assert_eq!(count("stop"), count("segment"));
    assert!(
        entries.iter().any(|entry| entry["kind"] == "seal" && entry["says"]["next_segment"] == 2)
    );
    let hex = text(&good(at, &["dump", "log"], b""));
    assert!(hex.contains("\"7265636f726420303030303120"), "the first 16 bytes in hex");
    assert!(!hex.contains("7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a"), "and no more");
    assert_eq!(snapshot(&at.join("log")), before, "looking changes nothing");
}

#[test]
fn truncate_cuts_at_both_ends_and_refuses_beside_a_writer() {
    let directory = directory();
    let at = directory.path();
    log_in(at);
    let said = text(&good(at, &["truncate", "log", "--before", "1001"], b""));
    assert_eq!(said, "left: LSN 1001 to 2000 (1000 records); the next is 2001\n");
    let said = json(&good(at, &["truncate", "log", "--after", "1999", "--json"], b""));
    assert_eq!((said["first"].as_u64(), said["last"].as_u64()), (Some(1001), Some(1999)));
    let expected: String = (1001..=1999).map(|number| format!("{}\n", line(number))).collect();
    assert_eq!(text(&good(at, &["cat", "log"], b"")), expected);
    let gone = run(at, &["get", "log", "1000"]);
    assert!(
        gone.status.code() == Some(1) && text(&gone.stderr).contains("truncate_before"),
        "{gone:?}"
    );
    assert!(text(&good(at, &["verify", "log"], b"")).contains("LSN 1001 to 1999"));
    let log = inkstone::Log::open(at.join("log"), inkstone::Options::new()).expect("the log");
    for arguments in [
        &["truncate", "log", "--after", "1500"][..],
        &["append", "log"],
        &["salvage", "log", "new"],
    ] {
        let refused = run(at, arguments);
        let said = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(1), "{arguments:?}");
        assert!(said.contains(&format!("process {}", std::process::id())), "{arguments:?}: {said}");
    }
    let info = text(&good(at, &["info", "log"], b""));
    assert!(info.contains("open for writing") && info.contains("process"), "{info}");
    log.close().expect("closed");
}

#[test]
fn a_copy_has_the_same_records_under_the_same_lsns() {
    let directory = directory();
    let at = directory.path();
    log_in(at);
    good(at, &["truncate", "log", "--before", "700"], b"");
    let said = text(&good(at, &["copy", "log", "new"], b""));
    assert_eq!(said, "copied 1301 records to new: LSN 700 to 2000\n");
    assert_eq!(good(at, &["cat", "new"], b""), good(at, &["cat", "log"], b""));
    assert_eq!(text(&good(at, &["get", "new", "1234"], b"")), format!("{}\n", line(1234)));
    assert_eq!(good(at, &["append", "new"], b"more\n"), b"2001\n");
    assert!(text(&good(at, &["verify", "new"], b"")).contains("intact: 1302 records"));
    // An empty log, which begins where the old one would continue.
    good(at, &["truncate", "log", "--before", "2001"], b"");
    good(at, &["copy", "log", "none"], b"");
    assert_eq!(good(at, &["append", "none"], b"more\n"), b"2001\n");
}

#[test]
fn a_damaged_record_is_found_named_and_worked_around() {
    let directory = directory();
    let at = directory.path();
    log_in(at);
    let files = segments(&at.join("log"));
    let info = json(&good(at, &["info", "log", "--json"], b""));
    // One record in the second segment, two in the fourth, whichever they are.
    let first = |index: usize| info["segments"][index]["first"].as_u64().expect("an LSN");
    let bad = [first(1) + 10, first(3) + 5, first(3) + 50];
    let offsets = [(1, bad[0]), (3, bad[1]), (3, bad[2])]
        .map(|(file, lsn)| damage(&files[file], format!("record {lsn:05}").as_bytes()));
    let before = snapshot(&at.join("log"));
    let verified = run(at, &["verify", "log"]);
    let said = text(&verified.stdout);
    assert_eq!(verified.status.code(), Some(1), "{said}");
    // The frame's header begins 24 bytes before its payload.
    for (file, lsn, offset) in [(1, bad[0], offsets[0]), (3, bad[1], offsets[1])] {
        let place = format!(
            "{} byte {}, LSN {lsn}",
            files[file].file_name().expect("a name").to_string_lossy(),
            offset - 24
        );
        assert!(said.contains(&place), "{place}: {said}");
    }
    assert!(
        said.contains("payload checksum: expected") && said.contains("flipping bit 0 of byte"),
        "{said}"
    );
    let json_said = json(&run(at, &["verify", "log", "--json"]).stdout);
    assert!(json_said["damage"].as_array().is_some_and(|damage| damage.len() >= 2), "{json_said}");
    let saved = json(&good(at, &["salvage", "log", "new", "--json"], b""));
    let gaps: Vec<_> = bad.map(|lsn| serde_json::json!({ "first": lsn, "last": lsn })).into();
    assert_eq!(saved["gaps"], serde_json::json!(gaps), "each is one record");
    assert_eq!(saved["records"].as_u64(), Some(1997));
    let kept: String =
        (1..=2000).filter(|lsn| !bad.contains(lsn)).map(|lsn| format!("{}\n", line(lsn))).collect();
    assert!(text(&good(at, &["cat", "new"], b"")) == kept);
    // The mapping holds for every run.
    for run in saved["runs"].as_array().expect("runs") {
        let [first, last, new] =
            ["first", "last", "new_first"].map(|name| run[name].as_u64().expect("an LSN"));
        for (old, new) in [(first, new), (last, new + last - first)] {
            assert_eq!(
                text(&good(at, &["get", "new", &new.to_string()], b"")),
                format!("{}\n", line(old))
            );
        }
    }
    let file = std::fs::read(at.join("new/salvage.json")).expect("salvage.json");
    assert_eq!(json(&file)["gaps"], saved["gaps"]);
    assert_eq!(snapshot(&at.join("log")), before, "the old one is untouched");
    assert!(text(&good(at, &["verify", "new"], b"")).contains("intact: 1997 records"));
    let cat = run(at, &["cat", "log", "--from", &bad[0].to_string()]);
    assert!(
        cat.status.code() == Some(1) && text(&cat.stderr).contains("inkstone salvage"),
        "{cat:?}"
    );
}

#[test]
fn a_missing_segment_and_a_lost_header_cost_no_more_than_they_must() {
    let directory = directory();
    let at = directory.path();
    log_in(at);
    let info = json(&good(at, &["info", "log", "--json"], b""));
    let range = |index: usize| {
        ["first", "last"].map(|name| info["segments"][index][name].as_u64().expect("an LSN"))
    };
    let files = segments(&at.join("log"));
    std::fs::remove_file(&files[2]).expect("removed");
    let mut bytes = std::fs::read(&files[5]).expect("a segment");
    bytes[..4096].fill(0);
    std::fs::write(&files[5], bytes).expect("written");
    let verified = run(at, &["verify", "log"]);
    let said = text(&verified.stdout);
    assert_eq!(verified.status.code(), Some(1), "{said}");
    for word in
        ["found: no such file", "found: zeros", "which segment 4 names", "which segment 7 names"]
    {
        assert!(said.contains(word), "{word}: {said}");
    }
    let [first, last] = range(2);
    let said = text(&good(at, &["salvage", "log", "new"], b""));
    assert!(said.contains(&format!("{first} to {last}")) && said.contains("lost"), "{said}");
    let kept: String = (1..=2000)
        .filter(|lsn| !(first..=last).contains(lsn))
        .map(|lsn| format!("{}\n", line(lsn)))
        .collect();
    assert!(
        text(&good(at, &["cat", "new"], b"")) == kept,
        "all but the missing segment, the headerless one too"
    );
}

#[test]
fn the_end_that_was_promised_is_missed_and_a_torn_tail_is_not() {
    let directory = directory();
    let at = directory.path();
    log_in(at);
    let head = segments(&at.join("log")).pop().expect("a segment");
    let end = json(&good(at, &["info", "log", "--json"], b""))["end"]["byte"]
        .as_u64()
        .expect("a byte") as usize;
    // After the end: what a crash may leave.
    let mut bytes = std::fs::read(&head).expect("the head");
    let torn: Vec<u8> = (0..64_u8).map(|byte| byte | 1).collect();
    bytes[end + 48..end + 48 + torn.len()].copy_from_slice(&torn);
    std::fs::write(&head, &bytes).expect("written");
    good(at, &["verify", "log"], b"");
    // Before it: the last record's header, zeroed.
    let last = b"record 02000";
    let payload =
        bytes.windows(last.len()).position(|window| window == last).expect("the last record");
    bytes[payload - 24..payload].fill(0);
    std::fs::write(&head, &bytes).expect("written");
    let verified = run(at, &["verify", "log", "--json"]);
    assert_eq!(verified.status.code(), Some(1));
    let damage = &json(&verified.stdout)["damage"][0];
    assert_eq!(damage["offset"].as_u64(), Some(payload as u64 - 24), "{damage}");
    let saved = json(&good(at, &["salvage", "log", "new", "--json"], b""));
    assert_eq!(saved["gaps"], serde_json::json!([{ "first": 2000, "last": 2000 }]));
}

#[test]
fn verify_counts_what_is_left_and_not_what_was_given_up() {
    let directory = directory();
    let at = directory.path();
    log_in(at);
    // In the last segment, in the middle of another, and at the first record of one.
    let info = json(&good(at, &["info", "log", "--json"], b""));
    let third = info["segments"][2]["first"].as_u64().expect("an LSN");
    for before in [third - 20, third, third + 1, 1990] {
        good(at, &["truncate", "log", "--before", &before.to_string()], b"");
        let verified = json(&good(at, &["verify", "log", "--json"], b""));
        let bytes: usize = (before..=2000).map(|number| line(number).len()).sum();
        assert_eq!(verified["records"].as_u64(), Some(2001 - before), "{before}: {verified}");
        assert_eq!(verified["record_bytes"].as_u64(), Some(bytes as u64), "{before}");
        let said = text(&good(at, &["verify", "log"], b""));
        assert!(said.contains(&format!("intact: {} records", 2001 - before)), "{said}");
        assert!(said.contains(&format!("{before} to ")), "{said}");
    }
    assert!(
        text(&good(at, &["verify", "log"], b"")).contains("1990 to 2000       11"),
        "the row too"
    );
}

#[test]
fn dump_answers_as_verify_does() {
    let directory = directory();
    let at = directory.path();
    log_in(at);
    good(at, &["dump", "log"], b"");
    let files = segments(&at.join("log"));
    let sound = std::fs::read(&files[1]).expect("a segment");
    damage(&files[1], b"record 00");
    let dumped = run(at, &["dump", "log"]);
    assert_eq!(dumped.status.code(), Some(1));
    assert!(text(&dumped.stderr).contains("inkstone verify log"), "{}", text(&dumped.stderr));
    assert!(
        text(&dumped.stdout).contains("\"lsn\":2000,"),
        "what can be read is shown all the same"
    );
    std::fs::write(&files[1], sound).expect("put back");
    std::fs::remove_file(&files[2]).expect("removed");
    assert_eq!(run(at, &["dump", "log"]).status.code(), Some(1), "a missing segment");
}

#[test]
fn what_no_file_tells_of_is_unknown_and_not_nothing() {
    let directory = directory();
    let at = directory.path();
    log_in(at);
    let info = json(&good(at, &["info", "log", "--json"], b""));
    let last_segment = info["segments"].as_array().and_then(|all| all.last()).expect("a segment");
    let kept = last_segment["first"].as_u64().expect("an LSN") - 1;
    std::fs::remove_file(segments(&at.join("log")).pop().expect("a segment")).expect("removed");
    assert_eq!(run(at, &["verify", "log"]).status.code(), Some(1));
    let said = text(&good(at, &["salvage", "log", "new"], b""));
    assert!(said.contains(&format!("after {kept}")) && said.contains("unknown"), "{said}");
    let words = format!("lost: 0 records, and an unknown number after LSN {kept}");
    assert!(said.contains(&words), "{said}");
    let map = json(&std::fs::read(at.join("new/salvage.json")).expect("the map"));
    assert_eq!((map["unknown_behind"].as_u64(), map["records"].as_u64()), (Some(kept), Some(kept)));
    // A damaged record in the middle leaves nothing unknown.
    let other = crate::support::directory();
    log_in(other.path());
    damage(&segments(&other.path().join("log"))[0], b"record 00010");
    let said = json(&good(other.path(), &["salvage", "log", "new", "--json"], b""));
    assert!(said["unknown_behind"].is_null(), "{said}");
}

#[test]
fn every_whole_record_of_a_file_that_was_cut_short_is_saved() {
    let directory = directory();
    let at = directory.path();
    // In one group: nothing after a record promises it.
    let log = inkstone::Log::open(at.join("log"), inkstone::Options::new()).expect("a log");
    let batch: Vec<String> = (1..=1000).map(line).collect();
    log.append_batch(&batch).expect("room").wait().expect("durable");
    log.close().expect("closed");
    let head = segments(&at.join("log")).pop().expect("a segment");
    let bytes = std::fs::read(&head).expect("the segment");
    let place = |number| {
        let what = line(number);
        bytes.windows(what.len()).position(|window| window == what.as_bytes()).expect("it is there")
            as u64
    };
    let cuts = [(place(484), 483), (place(484) + 5, 483), (place(485) - 24, 484), (place(1), 0)];
    for (round, (len, whole)) in cuts.into_iter().enumerate() {
        std::fs::OpenOptions::new()
            .write(true)
            .open(&head)
            .and_then(|file| file.set_len(len))
            .expect("cut");
        assert_eq!(run(at, &["verify", "log"]).status.code(), Some(1));
        let new = format!("new {round}");
        let salvaged = run(at, &["salvage", "log", &new, "--json"]);
        if whole == 0 {
            assert_eq!(salvaged.status.code(), Some(1), "not one record");
            assert!(!at.join(new).exists());
        } else {
            assert!(salvaged.status.success(), "{}", text(&salvaged.stderr));
            let salvaged = json(&salvaged.stdout);
            assert_eq!(salvaged["records"].as_u64(), Some(whole), "{salvaged}");
            assert_eq!(salvaged["unknown_behind"].as_u64(), Some(whole));
            let kept: String = (1..=whole).map(|number| line(number) + "\n").collect();
            assert!(good(at, &["cat", &new], b"") == kept.into_bytes());
        }
        std::fs::write(&head, &bytes).expect("put back");
    }
}

/// Appends records, and truncates old ones now and then, until `stop` is set; returns the last LSN.
fn keep_writing(at: &Path, keep: u64, stop: &std::sync::atomic::AtomicBool) -> u64 {
    let options = inkstone::Options::new().segment_bytes(64 << 10).record_bytes_max(4 << 10);
    let log = inkstone::Log::open(at.join("log"), options).expect("the log");
    while !stop.load(std::sync::atomic::Ordering::Relaxed) {
        let next = log.last().get() + 1;
        drop(log.append(line(next).as_bytes()).expect("room"));
        if next.is_multiple_of(7) {
            log.sync().expect("durable");
        }
        if next.is_multiple_of(500) && next > keep {
            log.truncate_before(inkstone::Lsn::new(next - keep)).expect("truncated");
        }
    }
    let last = log.sync().expect("durable").get();
    log.close().expect("closed");
    last
}

#[test]
fn a_log_that_is_being_written_is_never_called_corrupt() {
    let directory = directory();
    let at = directory.path();
    log_in(at);
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| keep_writing(at, 1000, &stop));
        for _ in 0..10 {
            let verified = run(at, &["verify", "log"]);
            let info = run(at, &["info", "log", "--json"]);
            // A failed check must not leave the writer running.
            stop.store(
                !verified.status.success() || !info.status.success(),
                std::sync::atomic::Ordering::Relaxed,
            );
            assert!(
                verified.status.success(),
                "{}{}",
                text(&verified.stdout),
                text(&verified.stderr)
            );
            assert!(info.status.success(), "{}{}", text(&info.stdout), text(&info.stderr));
            assert!(json(&info.stdout)["last"].as_u64() >= Some(2000));
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    assert!(text(&good(at, &["verify", "log"], b"")).contains("closed cleanly"));
}

#[test]
fn a_copy_beside_a_living_writer_is_a_prefix() {
    let directory = directory();
    let at = directory.path();
    log_in(at);
    let stop = std::sync::atomic::AtomicBool::new(false);
    let (first, last, written) = std::thread::scope(|scope| {
        let writer = scope.spawn(|| keep_writing(at, u64::MAX, &stop));
        while json(&run(at, &["info", "log", "--json"]).stdout)["writer"].is_null() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let copied = run(at, &["copy", "log", "new", "--json"]);
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(copied.status.success(), "{}", text(&copied.stderr));
        let copied = json(&copied.stdout);
        let number = |name: &str| copied[name].as_u64().expect("an LSN");
        (number("first"), number("last"), writer.join().expect("the writer"))
    });
    assert!(first == 1 && (2000..=written).contains(&last), "LSN {first} to {last} of {written}");
    let expected: String = (1..=last).map(|number| format!("{}\n", line(number))).collect();
    assert!(text(&good(at, &["cat", "new"], b"")) == expected);
}
