//! Clocks that were wrong for a time, and periods that never end.

mod common;

use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use common::{LONG, all_text, names, wait_until};
use inkstone_appender::{Builder, Keep, LogWriter, Rotation, Survive, WhenFull};

const NOW: u64 = 1_795_277_133;
const IN_2099: u64 = 4_070_908_900;

/// A log with a clock that the test sets.
fn builder(path: &Path, clock: &Arc<AtomicU64>) -> Builder {
    let clock = Arc::clone(clock);
    LogWriter::builder(path)
        .flush_every(Duration::from_millis(1))
        .clock(move || UNIX_EPOCH + Duration::from_secs(clock.load(Ordering::Relaxed)))
}

#[test]
fn a_clock_that_was_ahead_does_not_stop_rotation_by_time_nor_mix_up_the_order() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("a.log");
    let clock = Arc::new(AtomicU64::new(IN_2099));
    let every = Rotation::new().every(Duration::from_secs(60));
    let (mut log, guard) = builder(&path, &clock).rotate(every).open().expect("opened");
    let mut put = |line: &str| {
        log.write_all(line.as_bytes()).expect("accepted");
        guard.flush(LONG).expect("flushed");
    };
    put("in 2099\n");
    clock.store(IN_2099 + 60, Ordering::Relaxed);
    put("a minute later\n");
    // Corrected.
    clock.store(NOW, Ordering::Relaxed);
    put("today\n");
    assert_eq!(names(directory.path()).len(), 2, "a clock that goes back is no reason to rotate");
    clock.store(NOW + 60, Ordering::Relaxed);
    put("today, a minute later\n");
    clock.store(NOW + 120, Ordering::Relaxed);
    put("today, two minutes later\n");
    guard.close().expect("closed");
    assert_eq!(names(directory.path()).len(), 4, "{:?}", names(directory.path()));
    let expected =
        "in 2099\na minute later\ntoday\ntoday, a minute later\ntoday, two minutes later\n";
    assert_eq!(all_text(directory.path(), "a.log"), expected);
}

#[test]
fn an_idle_log_too_rotates_after_its_clock_was_put_right() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("a.log");
    let clock = Arc::new(AtomicU64::new(NOW));
    let every = Rotation::new().every(Duration::from_secs(1));
    let (mut log, guard) = builder(&path, &clock).rotate(every).open().expect("opened");
    log.write_all(b"one\n").expect("accepted");
    guard.flush(LONG).expect("flushed");
    clock.store(NOW + 2, Ordering::Relaxed);
    wait_until("a rotation", || names(directory.path()).len() == 2);
    guard.close().expect("closed");
}

#[test]
fn files_of_a_clock_that_was_ahead_do_not_stay_for_ever() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("a.log");
    let clock = Arc::new(AtomicU64::new(NOW));
    std::fs::write(directory.path().join("a.log.20990101T000000Z.0"), "in 2099\n")
        .expect("written");
    let rotation = Rotation::new().every(Duration::from_secs(86_400));
    let keep = Keep::new().days(7);
    let (mut log, guard) =
        builder(&path, &clock).rotate(rotation).keep(keep).open().expect("opened");
    for day in 0..20 {
        clock.store(NOW + day * 86_400, Ordering::Relaxed);
        log.write_all(format!("day {day}\n").as_bytes()).expect("accepted");
        guard.flush(LONG).expect("flushed");
        // It was written by the system's clock; what is tested is the log's.
        let file = std::fs::File::options().write(true).open(&path).expect("open");
        file.set_modified(UNIX_EPOCH + Duration::from_secs(NOW + day * 86_400)).expect("dated");
    }
    guard.close().expect("closed");
    let text = all_text(directory.path(), "a.log");
    let first: u64 = text
        .lines()
        .next()
        .and_then(|line| line.strip_prefix("day "))
        .expect("a day")
        .parse()
        .expect("a");
    // The last rotation was on day 19, and each is of the day before: those of more than seven days
    // ago are gone.
    assert_eq!(first, 12, "{:?}", names(directory.path()));
}

#[test]
fn periods_without_an_end_are_never_over() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("a.log");
    let for_ever = Duration::from_secs(u64::MAX);
    let builder = LogWriter::builder(&path)
        .rotate(Rotation::new().every(for_ever))
        .flush_every(for_ever)
        .survive(Survive::PowerLoss(for_ever))
        .when_full(WhenFull::BlockFor(for_ever))
        .drain_timeout(for_ever)
        .buffers_bytes(16 << 10)
        .buffer_bytes(4 << 10);
    let (mut log, guard) = builder.open().expect("opened");
    for number in 0..1000 {
        log.write_all(common::line(0, number, 120).as_bytes()).expect("accepted");
    }
    guard.flush(for_ever).expect("flushed");
    guard.close().expect("closed");
    let (lines, _) = common::check_lines(&std::fs::read_to_string(&path).expect("text"), 120);
    assert_eq!(lines[&0].len(), 1000);
}
