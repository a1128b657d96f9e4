//! `verify`, `info`, `dump`, `truncate` and `salvage` of logs that are well and of damaged ones:
//! what they say. That every damage is found, and costs no more than it must, is shown in
//! `crates/log/tests/simulated/inspect.rs`.

use std::path::Path;

use crate::support::{
    damage, directory, good, good_json, json, line, lines, refused, run, segments, snapshot, text,
};

/// A log of several segments: 2000 records of about 300 bytes.
fn log_in(at: &Path) {
    good(at, "append log -q --segment-size 64KiB", &lines(1..=2000, &filler()));
    assert!(segments(&at.join("log")).len() > 8);
}

fn filler() -> String {
    format!(" {}", "z".repeat(290))
}

/// These records as `cat` shows them.
fn shown(numbers: impl Iterator<Item = u64>) -> String {
    numbers.map(|number| line(number, &filler()) + "\n").collect()
}

/// The LSNs of a segment, by its place in the list.
fn range(info: &serde_json::Value, index: usize) -> [u64; 2] {
    ["first", "last"].map(|name| info["segments"][index][name].as_u64().expect("an LSN"))
}

#[test]
fn info_verify_and_dump_of_a_log_that_is_well() {
    let directory = directory();
    let at = directory.path();
    log_in(at);
    let before = snapshot(&at.join("log"));
    let info = good_json(at, "info log --json");
    assert_eq!((info["first"].as_u64(), info["last"].as_u64()), (Some(1), Some(2000)), "{info}");
    assert_eq!((info["clean"].as_bool(), info["writer"].is_null()), (Some(true), true), "{info}");
    let verified = good_json(at, "verify log --json");
    assert_eq!((&verified["records"], &verified["intact"]), (&2000.into(), &true.into()));
    let bytes = shown(1..=2000).len() - 2000;
    assert_eq!(verified["record_bytes"].as_u64(), Some(bytes as u64));
    let table = text(&good(at, "info log", b""));
    for word in ["closed cleanly", "nobody", "LSN      1 to 2000", "active", "sealed"] {
        assert!(table.contains(word), "{word}: {table}");
    }
    let dump = text(&good(at, "dump log --payload text", b""));
    let entries: Vec<_> = dump.lines().map(|line| json(line.as_bytes())).collect();
    let records: Vec<_> = entries.iter().filter(|entry| entry["kind"] == "record").collect();
    assert_eq!(records.len(), 2000);
    for (entry, lsn) in records.iter().zip(1..) {
        assert!(entry["lsn"] == lsn && entry["payload"] == line(lsn, &filler()), "{entry}");
    }
    let count = |what: &str| entries.iter().filter(|entry| entry["what"] == what).count();
    assert_eq!(count("segment"), segments(&at.join("log")).len());
    assert_eq!(count("stop"), count("segment"));
    assert!(
        entries.iter().any(|entry| entry["kind"] == "seal" && entry["says"]["next_segment"] == 2)
    );
    let hex = text(&good(at, "dump log", b""));
    assert!(hex.contains("\"7265636f7264203030303030"), "the first 16 bytes in hex");
    assert!(!hex.contains("7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a"), "and no more");
    assert_eq!(snapshot(&at.join("log")), before, "looking changes nothing");
}

#[test]
fn truncate_cuts_at_both_ends_and_verify_counts_what_is_left() {
    let directory = directory();
    let at = directory.path();
    log_in(at);
    // At the first record of a segment, behind it, and in the middle of another.
    let third = range(&good_json(at, "info log --json"), 2)[0];
    for before in [third, third + 1, 1001] {
        let told = text(&good(at, format!("truncate log --before {before}"), b""));
        let (count, bytes) = (2001 - before, shown(before..=2000).len() as u64);
        let left = format!("LSN {before} to 2000 ({count} records); the next is 2001");
        assert_eq!(told, format!("left: {left}\n"));
        let verified = good_json(at, "verify log --json");
        let counts = ["records", "record_bytes"].map(|name| verified[name].as_u64());
        assert_eq!(counts, [Some(count), Some(bytes - count)], "{before}");
    }
    let said = good_json(at, "truncate log --after 1999 --json");
    assert_eq!((said["first"].as_u64(), said["last"].as_u64()), (Some(1001), Some(1999)));
    assert_eq!(text(&good(at, "cat log", b"")), shown(1001..=1999));
    refused(at, "get log 1000", 1, "LSN 1000 was truncated: the log begins at LSN 1001");
}

#[test]
fn a_damaged_record_is_found_named_and_worked_around() {
    let directory = directory();
    let at = directory.path();
    log_in(at);
    let files = segments(&at.join("log"));
    let info = good_json(at, "info log --json");
    // One record in the second segment, two in the fourth, whichever they are.
    let bad = [range(&info, 1)[0] + 10, range(&info, 3)[0] + 5, range(&info, 3)[0] + 50];
    let offsets = [(1, bad[0]), (3, bad[1]), (3, bad[2])]
        .map(|(file, lsn)| damage(&files[file], &line(lsn, "")));
    let before = snapshot(&at.join("log"));
    let verified = run(at, "verify log");
    let said = text(&verified.stdout);
    assert_eq!(verified.status.code(), Some(1), "{said}");
    // The frame's header begins 24 bytes before its payload.
    for (file, lsn, offset) in [(1, bad[0], offsets[0]), (3, bad[1], offsets[1])] {
        let name = files[file].file_name().expect("a name").to_string_lossy();
        let place = format!("{name} byte {}, LSN {lsn}", offset - 24);
        assert!(said.contains(&place), "{place}: {said}");
    }
    for words in ["payload checksum: expected", "flipping bit 0 of byte"] {
        assert!(said.contains(words), "{words}: {said}");
    }
    // Half of a group whose other half is damaged can be saved.
    assert!(said.contains("`inkstone salvage log NEW` saves 1997 records"), "{said}");
    let damaged = json(&run(at, "verify log --json").stdout);
    assert!(damaged["damage"].as_array().is_some_and(|damage| damage.len() >= 2), "{damaged}");
    // What can be read is shown all the same.
    let dumped = run(at, "dump log");
    assert_eq!(dumped.status.code(), Some(1));
    assert!(text(&dumped.stderr).contains("inkstone verify log"), "{dumped:?}");
    assert!(text(&dumped.stdout).contains("\"lsn\":2000,"));

    let saved = good_json(at, "salvage log new --json");
    let gaps: Vec<_> = bad.map(|lsn| serde_json::json!({ "first": lsn, "last": lsn })).into();
    assert_eq!(saved["gaps"], serde_json::json!(gaps), "each is one record");
    assert!(saved["records"] == 1997 && saved["unknown_behind"].is_null(), "{saved}");
    assert!(text(&good(at, "cat new", b"")) == shown((1..=2000).filter(|lsn| !bad.contains(lsn))));
    // The mapping holds for every run.
    for run in saved["runs"].as_array().expect("runs") {
        let [first, last, new] =
            ["first", "last", "new_first"].map(|name| run[name].as_u64().expect("an LSN"));
        for (old, new) in [(first, new), (last, new + last - first)] {
            assert_eq!(text(&good(at, format!("get new {new}"), b"")), shown(old..=old));
        }
    }
    let file = std::fs::read(at.join("new/salvage.json")).expect("salvage.json");
    assert_eq!(json(&file)["gaps"], saved["gaps"]);
    assert_eq!(snapshot(&at.join("log")), before, "the old one is untouched");
    assert!(text(&good(at, "verify new", b"")).contains("intact: 1997 records"));
    refused(at, format!("cat log --from {}", bad[0]), 1, "inkstone salvage");
    // A damaged log is not made smaller.
    damage(files.last().expect("a segment"), &line(1990, ""));
    for arguments in ["truncate log --keep-records 1", "truncate log --keep-records 1 --dry-run"] {
        refused(at, arguments, 1, "inkstone salvage");
    }
}

#[test]
fn what_no_file_tells_of_is_unknown_and_not_nothing() {
    let directory = directory();
    let at = directory.path();
    log_in(at);
    let files = segments(&at.join("log"));
    let kept = range(&good_json(at, "info log --json"), files.len() - 1)[0] - 1;
    std::fs::remove_file(files.last().expect("a segment")).expect("removed");
    assert_eq!(run(at, "verify log").status.code(), Some(1));
    let said = text(&good(at, "salvage log new", b""));
    let words = format!("lost: 0 records, and an unknown number after LSN {kept}");
    assert!(said.contains(&words), "{said}");
    let map = json(&std::fs::read(at.join("new/salvage.json")).expect("the map"));
    assert_eq!((map["unknown_behind"].as_u64(), map["records"].as_u64()), (Some(kept), Some(kept)));
}
