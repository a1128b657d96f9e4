//! `inkstone truncate --keep-bytes`, `--keep-records`, `--keep-for`: they keep what the option
//! says, and remove the rest.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::support::{directory, good, json, run, segments, snapshot, text};
use inkstone::inspect::{self, Keep};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// 2000 records in segments of 64 KiB; the first LSN and the used bytes of each.
fn log_in(at: &Path) -> Vec<(u64, u64)> {
    let lines: String =
        (1..=2000).map(|number| format!("record {number:05} {}\n", "z".repeat(290))).collect();
    good(at, &["append", "log", "-q", "--segment-size", "64KiB"], lines.as_bytes());
    let info = json(&good(at, &["info", "log", "--json"], b""));
    let segments = info["segments"].as_array().expect("segments").iter();
    let number =
        |segment: &serde_json::Value, name: &str| segment[name].as_u64().expect("a number");
    segments.map(|segment| (number(segment, "first"), number(segment, "end"))).collect()
}

/// The first LSN that is left, as the command prints it and as it is found. Nothing is on stderr.
fn truncate(at: &Path, arguments: &[&str]) -> u64 {
    let (first, said) = truncate_and_say(at, arguments);
    assert_eq!(said, "", "{arguments:?}");
    first
}

/// The same, with the text on stderr.
fn truncate_and_say(at: &Path, arguments: &[&str]) -> (u64, String) {
    let with = |more: &[&'static str]| -> Vec<&str> {
        ["truncate", "log", "--json"]
            .into_iter()
            .chain(arguments.iter().copied())
            .chain(more.iter().copied())
            .collect()
    };
    let before = snapshot(&at.join("log"));
    let would = json(&run(at, &with(&["--dry-run"])).stdout);
    assert!(snapshot(&at.join("log")) == before, "{arguments:?}: a dry run changes nothing");
    let output = run(at, &with(&[]));
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    let said = json(&output.stdout);
    assert_eq!((&would["first"], &would["last"]), (&said["first"], &said["last"]), "{arguments:?}");
    let verified = json(&good(at, &["verify", "log", "--json"], b""));
    assert_eq!(
        (&verified["first"], &verified["last"]),
        (&said["first"], &said["last"]),
        "{arguments:?}"
    );
    (said["first"].as_u64().expect("an LSN"), text(&output.stderr))
}

#[test]
fn so_many_bytes_are_kept_and_not_a_segment_more() {
    let directory = directory();
    let at = directory.path();
    let all = log_in(at);
    assert!(all.len() > 8);
    assert_eq!(truncate(at, &["--keep-bytes", "1GiB"]), 1, "there are not so many");
    for bytes in [300_000, 150_000, 1, 0] {
        let first = truncate(at, &["--keep-bytes", &bytes.to_string()]);
        let kept: Vec<_> = all.iter().filter(|(begin, _)| *begin >= first).collect();
        assert!(all.iter().any(|(begin, _)| *begin == first), "{first} begins a segment");
        let sum: u64 = kept.iter().map(|(_, bytes)| bytes).sum();
        assert!(sum >= bytes && (kept.len() == 1 || sum - kept[0].1 < bytes), "{bytes}: {kept:?}");
        assert_eq!(
            segments(&at.join("log")).len(),
            kept.len(),
            "the files of the others are truncated"
        );
    }
    assert_eq!(good(at, &["append", "log"], b"more\n"), b"2001\n");
}

#[test]
fn so_many_records_are_kept_exactly() {
    let directory = directory();
    let at = directory.path();
    log_in(at);
    for (keep, first) in
        [("5000", 1), ("2000", 1), ("700", 1301), ("1000", 1301), ("1", 2000), ("0", 2001)]
    {
        assert_eq!(truncate(at, &["--keep-records", keep]), first, "{keep}");
    }
}

/// Sets the time of a segment's last change.
fn set_age(file: &Path, days: i32) {
    let span = DAY * days.unsigned_abs();
    let now = SystemTime::now();
    let time = if days < 0 { now + span } else { now - span };
    let file = std::fs::File::options().write(true).open(file).expect("a segment");
    file.set_modified(time).expect("a time");
}

/// The log of [`log_in`] whose last segment was changed `last_days` days ago, the one before it a
/// day earlier, and so on; and its files.
fn one_a_day(at: &Path, last_days: i32) -> (Vec<(u64, u64)>, Vec<PathBuf>) {
    let all = log_in(at);
    let files = segments(&at.join("log"));
    for (days, file) in (last_days..).zip(files.iter().rev()) {
        set_age(file, days);
    }
    (all, files)
}

#[test]
fn a_segment_goes_when_its_last_record_is_too_old() {
    let directory = directory();
    let at = directory.path();
    // The last was changed today, the one before it a day ago, and so on.
    let (all, files) = one_a_day(at, 0);
    let count = files.len();
    // A clock was ahead during one segment; the later ones have the right time.
    set_age(&files[2], -30_000);
    let hours = format!("{}h", 24 * (count - 2) - 12);
    // An opening has changed the last segment: it is of today in any case.
    for (keep, first) in [("365d", 1), (&hours, all[2].0), ("60h", all[count - 3].0)] {
        let (left, said) = truncate_and_say(at, &["--keep-for", keep]);
        assert_eq!(left, first, "{keep}");
        let name = files[2].file_name().expect("a name").to_string_lossy();
        assert!(said.contains(&*name) && said.contains("in the future"), "{keep}: {said}");
    }
    assert_eq!(truncate(at, &["--keep-for", "12h"]), all[count - 1].0, "the last stays");
    assert_eq!(truncate(at, &["--keep-for", "0s"]), all[count - 1].0);
    assert_eq!(good(at, &["append", "log"], b"more\n"), b"2001\n");
}

#[test]
fn a_clock_that_was_behind_gives_up_nothing_that_is_younger_than_asked() {
    let directory = directory();
    let at = directory.path();
    let all = log_in(at);
    let files = segments(&at.join("log"));
    // All except the first were written today, some of them with a clock that had begun at zero.
    set_age(&files[0], 5);
    set_age(&files[3], 20_000);
    set_age(&files[4], 19_999);
    assert_eq!(truncate(at, &["--keep-for", "1d"]), all[1].0);
}

#[test]
fn a_clock_that_is_behind_now_gives_up_nothing() {
    let directory = directory();
    let at = directory.path();
    log_in(at);
    for file in segments(&at.join("log")) {
        set_age(&file, -100);
    }
    let (left, said) = truncate_and_say(at, &["--keep-for", "1d"]);
    assert_eq!(left, 1);
    assert!(said.contains("in the future"), "{said}");
}

#[test]
fn a_clock_that_was_ahead_keeps_more_and_not_for_ever() {
    let directory = directory();
    let at = directory.path();
    // Until yesterday; one was written with a clock that was ahead, by so much that it is past by
    // now.
    let (all, files) = one_a_day(at, 1);
    let count = files.len();
    set_age(&files[2], 3);
    // A later segment that claims to be older counts as young as the next one that does not.
    for (keep, first) in [("80h", all[2].0), ("60h", all[3].0), ("36h", all[count - 1].0)] {
        assert_eq!(truncate(at, &["--keep-for", keep]), first, "{keep}");
    }
}

#[test]
fn beside_a_writer_it_is_refused_with_the_reason_and_the_writer_can_do_it() {
    let directory = directory();
    let at = directory.path();
    let all = log_in(at);
    let log = inkstone::Log::open(at.join("log"), inkstone::Options::new()).expect("the log");
    for what in
        [["--keep-bytes", "1"], ["--keep-records", "1"], ["--keep-for", "1d"], ["--before", "5"]]
    {
        let refused = run(at, &[&["truncate", "log"][..], &what].concat());
        let said = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(1), "{said}");
        let process = format!("process {}", std::process::id());
        assert!(said.contains(&process) && said.contains("Log::truncate_before"), "{said}");
        // A dry run is allowed.
        let looked = good(at, &[&["truncate", "log", "--dry-run"][..], &what].concat(), b"");
        assert!(text(&looked).starts_with("would be left: LSN "), "{}", text(&looked));
    }
    assert_eq!(log.first().get(), 1, "nothing was changed");
    let first = inspect::first_to_keep(at.join("log"), Keep::Bytes(100_000)).expect("an LSN");
    assert!(first.get() > 1 && all.iter().any(|(begin, _)| *begin == first.get()));
    log.truncate_before(first).expect("truncated");
    log.close().expect("closed");
    assert_eq!(
        json(&good(at, &["verify", "log", "--json"], b""))["first"].as_u64(),
        Some(first.get())
    );
}

#[test]
fn what_cannot_be_meant_is_refused_before_anything_is_changed() {
    let directory = directory();
    let at = directory.path();
    log_in(at);
    let before = snapshot(&at.join("log"));
    for (arguments, code, word) in [
        (&["--keep-for", "7d", "--keep-bytes", "1"][..], 2, "cannot be used"),
        (&["--keep-records", "1", "--after", "3"], 2, "cannot be used"),
        (&["--keep-for", "soon"], 2, "duration"),
        (&["--dry-run"], 2, "--keep-bytes"),
        (&["--dry-run", "--before", "2002"], 1, "LSN 2002"),
        (&["--dry-run", "--after", "2001"], 1, "LSN 2001"),
    ] {
        let refused = run(at, &[&["truncate", "log"][..], arguments].concat());
        let said = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(code), "{arguments:?}: {said}");
        assert!(said.contains(word), "{arguments:?}: {said}");
    }
    assert!(snapshot(&at.join("log")) == before);
    // A damaged log is not made smaller.
    crate::support::damage(segments(&at.join("log")).last().expect("a segment"), b"record 01990");
    for more in [&[][..], &["--dry-run"]] {
        let refused = run(at, &[&["truncate", "log", "--keep-records", "1"][..], more].concat());
        assert_eq!(refused.status.code(), Some(1), "{}", text(&refused.stderr));
        assert!(text(&refused.stderr).contains("inkstone salvage"));
    }
}
