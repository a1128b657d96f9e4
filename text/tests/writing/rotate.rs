//! Rotation, retention, compression, reopening; and clocks that were wrong for a time.

use std::fs;
#[cfg(feature = "gzip")]
use std::io::Read;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::common::{
    DAY, LONG, MS, Told, all_text, has_lines, names, next_start, numbers_of, place, put, quick,
    read, rotating, say, set_modified, wait_until,
};
#[cfg(feature = "gzip")]
use inkstone_appender::Compression;
use inkstone_appender::{Builder, Keep, LogWriter, Rotation, Survive, WhenFull};

const NOW: u64 = 1_795_277_133;
const IN_2099: u64 = 4_070_908_900;

#[test]
fn only_the_newest_files_stay_and_others_are_not_touched() {
    let (directory, path) = place();
    fs::write(directory.path().join("a.log.1"), "logrotate's\n").expect("written");
    let (log, guard) = rotating(&path).keep(Keep::new().files(3)).open().expect("opened");
    put(&log, 0..3000);
    guard.flush(LONG).expect("flushed");
    // Three, the current one and logrotate's.
    wait_until("five files", || names(directory.path()).len() == 5);
    guard.close().expect("closed");
    assert!(log.stats().rotations >= 20);
    let bytes = |name: &String| fs::metadata(directory.path().join(name)).expect("there").len();
    assert!(names(directory.path()).iter().all(|name| bytes(name) <= 16 << 10));
    fs::remove_file(directory.path().join("a.log.1")).expect("still there");
    let (kept, _) = numbers_of(&all_text(directory.path(), "a.log"));
    assert!(kept.iter().copied().eq(kept[0]..3000), "the newest, without a hole");
}

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

#[test]
fn the_log_is_opened_again_on_request() {
    let (directory, path) = place();
    let (log, guard) = LogWriter::builder(&path).open().expect("opened");
    say(&log, "one\n");
    guard.flush(LONG).expect("flushed");
    let moved = directory.path().join("moved");
    fs::rename(&path, &moved).expect("moved");
    log.reopen();
    wait_until("the file", || path.exists());
    assert_eq!(read(&moved), "one\n");
    say(&log, "last\n");
    guard.close().expect("closed");
    assert_eq!(read(&path), "last\n");
}

#[cfg(feature = "gzip")]
#[test]
fn rotated_files_are_compressed() {
    let (directory, path) = place();
    let builder = LogWriter::builder(&path).buffers_bytes(256 << 10).buffer_bytes(16 << 10);
    let builder = builder.rotate(Rotation::new().at_bytes(64 << 10)).compress(Compression::Gzip);
    let (log, guard) = builder.open().expect("opened");
    put(&log, 0..3000);
    guard.flush(LONG).expect("flushed");
    let rotations = log.stats().rotations;
    assert!(rotations >= 4);
    wait_until("compressed files", || {
        let names = names(directory.path());
        let is_done = |name: &String| name == "a.log" || name.ends_with(".gz");
        names.iter().all(is_done) && names.len() as u64 == rotations + 1
    });
    guard.close().expect("closed");
    for name in names(directory.path()).iter().filter(|name| *name != "a.log") {
        let packed = directory.path().join(name);
        let mut text = String::new();
        let file = fs::File::open(&packed).expect("there");
        let mut file = flate2::read::GzDecoder::new(file);
        file.read_to_string(&mut text).expect("compressed text");
        fs::write(packed.with_extension(""), text).expect("unpacked");
        fs::remove_file(packed).expect("removed");
    }
    has_lines(&all_text(directory.path(), "a.log"), 0..3000);
}

/// However often it is tried, by any thread.
#[test]
#[ignore = "needs root and chattr"]
fn a_file_that_cannot_be_removed_is_told_once() {
    let (directory, path) = place();
    let fixed = directory.path().join("a.log.20200101T000000Z.0");
    fs::write(&fixed, "old\n").expect("written");
    let change = |how: &str| {
        let done = Command::new("chattr").arg(how).arg(&fixed).output();
        done.is_ok_and(|done| done.status.success())
    };
    if !change("+i") {
        let why = "chattr +i needs root and a file system that has it";
        eprintln!("NOT RUN: a file that cannot be removed: {why}");
        return;
    }
    let told = Told::default();
    let builder = rotating(&path).keep(Keep::new().files(2)).on_event(told.hook());
    let (log, guard) = builder.open().expect("opened");
    put(&log, 0..2000);
    guard.close().expect("closed");
    assert!(change("-i") && log.stats().rotations > 5);
    assert!(told.all().len() == 1 && told.count("20200101T000000Z") == 1, "{told:?}");
    assert_eq!(names(directory.path()).len(), 4, "the others are removed");
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
fn files_of_a_clock_that_was_ahead_do_not_stay_for_ever() {
    let (directory, path, builder, set) = clocked(NOW);
    fs::write(directory.path().join("a.log.20990101T000000Z.0"), "in 2099\n").expect("written");
    let builder = builder.rotate(Rotation::new().every(DAY)).keep(Keep::new().days(7));
    let (log, guard) = builder.open().expect("opened");
    for day in 0..20 {
        let now = NOW + day * DAY.as_secs();
        set(now);
        say(&log, format!("day {day}\n"));
        guard.flush(LONG).expect("flushed");
        // It was written by the system's clock; what is tested is the log's.
        set_modified(&path, UNIX_EPOCH + Duration::from_secs(now));
    }
    guard.close().expect("closed");
    // The last rotation was on day 19, and each is of the day before: those of more than seven days
    // ago are gone.
    let text = all_text(directory.path(), "a.log");
    assert!(text.starts_with("day 12\n"), "{text}: {:?}", names(directory.path()));
}

#[test]
fn periods_without_an_end_are_never_over() {
    let (_directory, path) = place();
    let for_ever = Duration::from_secs(u64::MAX);
    let builder = LogWriter::builder(&path).buffers_bytes(16 << 10).buffer_bytes(4 << 10);
    let builder = builder.rotate(Rotation::new().every(for_ever)).flush_every(for_ever);
    let builder = builder.survive(Survive::PowerLoss(for_ever)).drain_timeout(for_ever);
    let builder = builder.when_full(WhenFull::DropAfter(for_ever));
    let (log, guard) = builder.open().expect("opened");
    put(&log, 0..1000);
    guard.flush(for_ever).expect("flushed");
    guard.close().expect("closed");
    has_lines(&read(&path), 0..1000);
}
