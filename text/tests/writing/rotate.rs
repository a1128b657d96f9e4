//! Rotation, retention, compression, reopening; and clocks that were wrong for a time.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::common::{
    DAY, LONG, MS, all_text, has_lines, names, next_start, place, put, quick, read, say,
    set_modified, wait_until,
};
use inkstone_appender::{Builder, LogWriter, Rotation, Survive, WhenFull};

const NOW: u64 = 1_795_277_133;
const IN_2099: u64 = 4_070_908_900;

#[test]
fn a_size_that_could_not_be_kept_is_refused_before_anything_is_made() {
    let (directory, path) = place();
    for (bytes, is_taken) in [(0, false), (1024, false), ((16 << 10) - 1, false), (16 << 10, true)]
    {
        let opened = LogWriter::builder(&path).rotate(Rotation::new().at_bytes(bytes)).open();
        let told = opened.as_ref().err().map(ToString::to_string);
        assert_eq!(told.is_none_or(|told| !told.contains("16 KiB or more")), is_taken, "{bytes}");
        assert_eq!(names(directory.path()).is_empty(), !is_taken, "{bytes}");
    }
}

#[test]
fn time_rotates_an_idle_log_and_an_empty_file_stays() {
    let (directory, path) = place();
    let builder = quick(&path).0.rotate(Rotation::new().every(Duration::from_secs(1)));
    let (log, guard) = builder.open().expect("opened");
    say(&log, "one\n");
    wait_until("a rotation", || names(directory.path()).len() == 2);
    // Nobody writes: no file after it.
    std::thread::sleep(1100 * MS);
    assert_eq!(names(directory.path()).len(), 2);
    assert_eq!(fs::metadata(&path).expect("there").len(), 0);
    guard.close().expect("closed");
    assert_eq!(all_text(directory.path(), "a.log"), "one\n");
}

#[test]
fn a_start_rotates_when_the_file_is_of_an_earlier_day() {
    let (directory, path) = place();
    let files_after = |rotation| {
        next_start(LogWriter::builder(&path).rotate(rotation));
        names(directory.path()).len()
    };
    let day = Rotation::new().every(DAY);
    // A kill may have left a line without its end, which it gets in its own file.
    fs::write(&path, "one").expect("written");
    set_modified(&path, SystemTime::now() - 2 * DAY);
    assert_eq!(files_after(Rotation::new()), 1);
    assert_eq!(files_after(day), 2);
    assert_eq!(files_after(day), 2, "the current one is empty: nothing to rotate");
    assert_eq!(all_text(directory.path(), "a.log"), "one\n");
}

/// A log with a clock that the test sets.
fn clocked(now: u64) -> (tempfile::TempDir, PathBuf, Builder, impl Fn(u64)) {
    let (directory, path) = place();
    let clock = Arc::new(AtomicU64::new(now));
    let theirs = Arc::clone(&clock);
    let now = move || UNIX_EPOCH + Duration::from_secs(theirs.load(Ordering::Relaxed));
    let builder = quick(&path).0.clock(now);
    (directory, path, builder, move |now| clock.store(now, Ordering::Relaxed))
}

#[test]
fn a_clock_that_was_ahead_does_not_stop_rotation_by_time_nor_mix_up_the_order() {
    let (directory, _, builder, set) = clocked(IN_2099);
    let every = Rotation::new().every(Duration::from_secs(60));
    let (log, guard) = builder.rotate(every).open().expect("opened");
    let files_at = |now: u64, line: &str| {
        set(now);
        say(&log, line);
        guard.flush(LONG).expect("flushed");
        names(directory.path()).len()
    };
    files_at(IN_2099, "in 2099\n");
    files_at(IN_2099 + 60, "a minute later\n");
    // Corrected. A clock that goes back is no reason to rotate.
    assert_eq!(files_at(NOW, "today\n"), 2);
    files_at(NOW + 60, "today, a minute later\n");
    files_at(NOW + 120, "today, two minutes later\n");
    // An idle log, too.
    set(NOW + 180);
    wait_until("a rotation", || names(directory.path()).len() == 5);
    guard.close().expect("closed");
    let expected =
        "in 2099\na minute later\ntoday\ntoday, a minute later\ntoday, two minutes later\n";
    assert_eq!(all_text(directory.path(), "a.log"), expected);
}

#[test]
fn periods_without_an_end_are_never_over() {
    let (_directory, path) = place();
    let for_ever = Duration::from_secs(u64::MAX);
    let builder = LogWriter::builder(&path).buffers_bytes(16 << 10);
    let builder = builder.rotate(Rotation::new().every(for_ever)).flush_every(for_ever);
    let builder = builder.survive(Survive::PowerLoss(for_ever)).drain_timeout(for_ever);
    let builder = builder.when_full(WhenFull::DropAfter(for_ever));
    let (log, guard) = builder.open().expect("opened");
    put(&log, 0..1000);
    guard.flush(for_ever).expect("flushed");
    guard.close().expect("closed");
    has_lines(&read(&path), 0..1000);
}
