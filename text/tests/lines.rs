//! Lines are whole, in order, once, and all there at the end.

mod common;

use std::io::Write as _;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use common::{LINE, LONG, Mood, MoodyDisk, all_text, check_lines, line, place};
use inkstone_appender::{LogWriter, Rotation, WhenFull};

#[test]
fn four_threads_lose_nothing_and_mix_nothing() {
    let (_directory, path) = place();
    let builder = LogWriter::builder(&path).buffers_bytes(64 << 10).buffer_bytes(8 << 10);
    let (log, guard) = builder.open().expect("opened");
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let mut log = log.clone();
            scope.spawn(move || {
                for number in 0..5000 {
                    log.write_all(line(thread, number, LINE).as_bytes()).expect("written");
                }
            });
        }
    });
    guard.close().expect("closed");
    let (lines, others) = check_lines(&std::fs::read_to_string(&path).expect("text"), LINE);
    assert!(
        others.is_empty() && lines.len() == 4 && lines.values().all(|lines| lines.len() == 5000)
    );
    let stats = log.stats();
    assert_eq!((stats.lines, stats.written_lines, stats.dropped_lines), (20_000, 20_000, 0));
    assert_eq!(stats.written_bytes, std::fs::metadata(&path).expect("there").len());
}

/// Everything accepted up to the end is in the file, including the buffer that was being filled
/// when the log was closed. Fails if the background thread does not check once more after it saw
/// that the log is closed.
#[test]
fn closing_at_full_speed_loses_no_accepted_line() {
    for round in 0..30 {
        let (_directory, path) = place();
        let builder = LogWriter::builder(&path).buffers_bytes(256 << 10).buffer_bytes(16 << 10);
        let (log, guard) = builder.open().expect("opened");
        let accepted: Vec<AtomicU64> = (0..3).map(|_| AtomicU64::new(0)).collect();
        let start = Barrier::new(4);
        std::thread::scope(|scope| {
            for (thread, accepted) in accepted.iter().enumerate() {
                let (mut log, start) = (log.clone(), &start);
                scope.spawn(move || {
                    start.wait();
                    let mut number = 0;
                    while log.write_all(line(thread, number, LINE).as_bytes()).is_ok() {
                        number += 1;
                        accepted.store(number, Ordering::Relaxed);
                    }
                });
            }
            start.wait();
            while accepted.iter().any(|accepted| accepted.load(Ordering::Relaxed) < 10 + 7 * round)
            {
                std::hint::spin_loop();
            }
            guard.close().expect("closed");
        });
        let (lines, _) = check_lines(&std::fs::read_to_string(&path).expect("text"), LINE);
        for (thread, accepted) in accepted.iter().enumerate() {
            let accepted = accepted.load(Ordering::Relaxed);
            let expected: Vec<u64> = (0..accepted).collect();
            assert_eq!(lines.get(&thread), Some(&expected), "thread {thread}, round {round}");
        }
        assert_eq!(log.stats().refused_lines, 3);
        assert!((&log).write_all(b"late\n").is_err());
    }
}

#[test]
fn dropping_the_guard_drains_too() {
    let (_directory, path) = place();
    let (mut log, guard) = LogWriter::builder(&path).flush_every(LONG).open().expect("opened");
    writeln!(log, "one {}", 1).expect("written");
    drop(guard);
    assert_eq!(std::fs::read_to_string(&path).expect("text"), "one 1\n");
}

#[test]
fn a_flush_returns_when_the_line_is_in_the_file_and_not_before() {
    let (_directory, path) = place();
    let disk = MoodyDisk::new(Mood::Stopped);
    let builder = LogWriter::builder(&path).flush_every(LONG);
    let (mut log, guard) = builder.open_on(disk.clone()).expect("opened");
    log.write_all(b"one\n").expect("written");
    let error = log.flush_within(Duration::from_millis(30)).expect_err("the disk is stopped");
    assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
    disk.set(Mood::Works);
    guard.flush(LONG).expect("flushed");
    assert_eq!(std::fs::read_to_string(&path).expect("text"), "one\n");
    log.write_all(b"two\n").expect("written");
    log.flush().expect("flushed");
    assert_eq!(std::fs::read_to_string(&path).expect("text"), "one\ntwo\n");
    guard.close().expect("closed");
}

#[test]
fn a_line_goes_to_the_file_by_itself_also_after_a_rest() {
    let (_directory, path) = place();
    let builder = LogWriter::builder(&path).flush_every(Duration::from_millis(5));
    let (mut log, guard) = builder.open().expect("opened");
    for round in 1..=3 {
        // Long enough for the background thread to fall asleep for good.
        std::thread::sleep(Duration::from_millis(40));
        log.write_all(b"line\n").expect("written");
        while std::fs::metadata(&path).expect("there").len() < 5 * round {
            std::thread::yield_now();
        }
    }
    assert!(log.stats().wake_ups >= 3);
    guard.close().expect("closed");
}

#[test]
fn one_writeln_is_one_line_however_many_pieces_it_has() {
    let (_directory, path) = place();
    let (log, guard) = LogWriter::builder(&path).open().expect("opened");
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let mut log = &log;
            scope.spawn(move || {
                for number in 0..2000 {
                    writeln!(log, "thread {thread} line {number} {}", "x".repeat(9))
                        .expect("written");
                }
            });
        }
    });
    guard.close().expect("closed");
    let text = std::fs::read_to_string(&path).expect("text");
    assert!(
        text.lines()
            .all(|line| line.matches("thread").count() == 1 && line.ends_with(" xxxxxxxxx"))
    );
    assert_eq!((text.lines().count(), log.stats().lines), (8000, 8000));
}

/// A line that is longer than a buffer, and one longer than all of them together, among short ones.
#[test]
fn lines_longer_than_buffers_are_whole_and_in_order() {
    for when_full in [WhenFull::Block, WhenFull::BlockFor(LONG)] {
        let (_directory, path) = place();
        let builder = LogWriter::builder(&path).buffers_bytes(32 << 10).buffer_bytes(4 << 10);
        let (log, guard) = builder.when_full(when_full).open().expect("opened");
        let sizes: &[usize] = if when_full == WhenFull::Block {
            &[120, 9000, 32 << 10, 100_000, 4096, 4097]
        } else {
            &[120, 9000, 32 << 10, 4096, 4097]
        };
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let mut log = log.clone();
                scope.spawn(move || {
                    for number in 0..120_u64 {
                        let bytes = sizes[(number as usize + thread) % sizes.len()];
                        log.write_all(line(thread, number, bytes).as_bytes()).expect("written");
                    }
                });
            }
        });
        guard.close().expect("closed");
        let text = std::fs::read_to_string(&path).expect("text");
        let mut next = [0_u64; 3];
        for found in text.lines() {
            let words: Vec<&str> = found.splitn(5, ' ').collect();
            let (thread, number): (usize, u64) =
                (words[1].parse().expect("a"), words[3].parse().expect("a"));
            assert_eq!(number, next[thread], "in order, thread {thread}");
            next[thread] += 1;
            let bytes = sizes[(number as usize + thread) % sizes.len()];
            assert!(
                format!("{found}\n") == line(thread, number, bytes),
                "thread {thread}, line {number} is torn"
            );
        }
        assert_eq!(next, [120; 3]);
        assert_eq!((log.stats().lines, log.stats().dropped_lines), (360, 0));
    }
}

#[test]
fn rotation_never_cuts_a_line() {
    let (directory, path) = place();
    let builder = LogWriter::builder(&path).buffers_bytes(64 << 10).buffer_bytes(4 << 10);
    let (mut log, guard) = builder.rotate(Rotation::new().at_bytes(20_000)).open().expect("opened");
    for number in 0..2000 {
        let bytes = if number % 50 == 0 { 10_000 } else { LINE };
        log.write_all(line(0, number, bytes).as_bytes()).expect("written");
    }
    guard.close().expect("closed");
    assert!(log.stats().rotations > 20, "{:?}", log.stats());
    for entry in std::fs::read_dir(directory.path()).expect("a directory") {
        let text = std::fs::read_to_string(entry.expect("an entry").path()).expect("text");
        assert!(text.starts_with("thread 0 line") && text.ends_with(" end\n"));
        assert!(text.len() <= 20_000 + 10_000, "{}", text.len());
    }
    let text = all_text(directory.path(), "a.log");
    let numbers: Vec<u64> = text
        .lines()
        .map(|line| line.split(' ').nth(3).expect("four").parse().expect("a"))
        .collect();
    assert_eq!(numbers, (0..2000).collect::<Vec<u64>>());
}

#[test]
fn a_hook_that_logs_does_not_hang_when_every_buffer_is_full() {
    let (_directory, path) = place();
    let disk = MoodyDisk::new(Mood::Fails(28));
    let told = std::sync::Arc::new(AtomicBool::new(false));
    let writer = std::sync::Arc::new(std::sync::OnceLock::<LogWriter>::new());
    let (theirs, seen) = (std::sync::Arc::clone(&writer), std::sync::Arc::clone(&told));
    let builder = LogWriter::builder(&path).buffers_bytes(8 << 10).buffer_bytes(4 << 10).on_event(
        move |_| {
            let mut log = theirs.wait().clone();
            for _ in 0..100 {
                log.write_all(line(9, 0, LINE).as_bytes()).expect("taken or dropped");
            }
            assert!(log.flush_within(LONG).is_err(), "a flush here would wait for itself");
            seen.store(true, Ordering::Release);
        },
    );
    let (mut log, guard) = builder.open_on(disk.clone()).expect("opened");
    writer.set(log.clone()).expect("once");
    log.write_all(b"first\n").expect("written");
    while !told.load(Ordering::Acquire) {
        std::thread::yield_now();
    }
    disk.set(Mood::Works);
    log.flush_within(LONG).expect("flushed");
    guard.close().expect("closed");
    assert!(log.stats().dropped_lines > 0);
}
