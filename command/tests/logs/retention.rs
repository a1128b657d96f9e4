//! `inkstone truncate --keep-bytes`, `--keep-records`, `--keep-for`: they keep what the option
//! says, and remove the rest.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::support::{directory, good, good_json, json, lines, run, said, segments, snapshot};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// 2000 records in segments of 64 KiB; the first LSN and the used bytes of each.
fn log_in(at: &Path) -> Vec<(u64, u64)> {
    good(at, "append log -q --segment-size 64KiB", &lines(1..=2000, &"z".repeat(290)));
    let info = good_json(at, "info log --json");
    let segments = info["segments"].as_array().expect("segments").iter();
    let number =
        |segment: &serde_json::Value, name: &str| segment[name].as_u64().expect("a number");
    segments.map(|segment| (number(segment, "first"), number(segment, "end"))).collect()
}

/// The first LSN that is left, as the command prints it and as it is found, and its stderr. A dry
/// run says the same and changes nothing.
fn truncate(at: &Path, arguments: &str) -> (u64, String) {
    let before = snapshot(&at.join("log"));
    let would = json(&run(at, format!("truncate log --json {arguments} --dry-run")).stdout);
    assert!(snapshot(&at.join("log")) == before, "{arguments}: a dry run changes nothing");
    let output = run(at, format!("truncate log --json {arguments}"));
    let told = said(&output);
    assert!(output.status.success(), "{arguments}: {told}");
    let left = json(&output.stdout);
    let verified = good_json(at, "verify log --json");
    for other in [would, verified] {
        assert_eq!((&other["first"], &other["last"]), (&left["first"], &left["last"]));
    }
    (left["first"].as_u64().expect("an LSN"), told)
}

/// The same, with nothing on stderr.
fn kept_from(at: &Path, arguments: &str) -> u64 {
    let (first, told) = truncate(at, arguments);
    assert_eq!(told, "", "{arguments}");
    first
}

#[test]
fn so_many_bytes_are_kept_and_not_a_segment_more() {
    let directory = directory();
    let at = directory.path();
    let all = log_in(at);
    assert!(all.len() > 8);
    assert_eq!(kept_from(at, "--keep-bytes 1GiB"), 1, "there are not so many");
    for bytes in [300_000, 150_000, 1, 0] {
        let first = kept_from(at, &format!("--keep-bytes {bytes}B"));
        let kept: Vec<_> = all.iter().filter(|(begin, _)| *begin >= first).collect();
        assert!(all.iter().any(|(begin, _)| *begin == first), "{first} begins a segment");
        let sum: u64 = kept.iter().map(|(_, bytes)| bytes).sum();
        assert!(sum >= bytes && (kept.len() == 1 || sum - kept[0].1 < bytes), "{bytes}: {kept:?}");
        // The files of the others are truncated.
        assert_eq!(segments(&at.join("log")).len(), kept.len());
    }
    assert_eq!(good(at, "append log", b"more\n"), b"2001\n");
}

#[test]
fn so_many_records_are_kept_exactly() {
    let directory = directory();
    let at = directory.path();
    log_in(at);
    for (keep, first) in [(5000, 1), (2000, 1), (700, 1301), (1000, 1301), (1, 2000), (0, 2001)] {
        assert_eq!(kept_from(at, &format!("--keep-records {keep}")), first, "{keep}");
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
    let (all, files) = one_a_day(at, 0);
    let count = files.len();
    // A clock was ahead during one segment; the later ones have the right time.
    set_age(&files[2], -30_000);
    let hours = format!("{}h", 24 * (count - 2) - 12);
    // An opening has changed the last segment: it is of today in any case.
    for (keep, first) in [("365d", 1), (&hours, all[2].0), ("60h", all[count - 3].0)] {
        let (left, said) = truncate(at, &format!("--keep-for {keep}"));
        assert_eq!(left, first, "{keep}");
        let name = files[2].file_name().expect("a name").to_string_lossy();
        assert!(said.contains(&*name) && said.contains("in the future"), "{keep}: {said}");
    }
    assert_eq!(kept_from(at, "--keep-for 12h"), all[count - 1].0, "the last stays");
    assert_eq!(kept_from(at, "--keep-for 0s"), all[count - 1].0);
    assert_eq!(good(at, "append log", b"more\n"), b"2001\n");
}
