//! Lines are whole, in order, once, and all there at the end.

use std::io::Write as _;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::common::{
    LINE, LONG, MS, Mood, MoodyDisk, line, place, quick, read, say, threads_of, wait_until,
};
use inkstone_appender::{LogWriter, WhenFull};

/// Short lines, and lines longer than a buffer. One longer than all of them is dropped (`full.rs`).
#[test]
fn lines_of_several_threads_are_whole_and_in_order_whatever_their_length() {
    let lengths = [LINE, 9000, LINE, 32 << 10, LINE, LINE, 4096, 4097, LINE];
    for when_full in [WhenFull::Block, WhenFull::DropAfter(LONG)] {
        let length =
            |thread: usize, number: u64| lengths[(number as usize + thread) % lengths.len()];
        let (_directory, path) = place();
        let builder = LogWriter::builder(&path).buffers_bytes(32 << 10);
        let (log, guard) = builder.when_full(when_full).open().expect("opened");
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (log, length) = (&log, &length);
                let put = move |number| say(log, line(thread, number, length(thread, number)));
                scope.spawn(move || (0..600).for_each(put));
            }
        });
        guard.close().expect("closed");
        let text = read(&path);
        let (found, others) = threads_of(&text, length);
        assert!(others.is_empty() && found.iter().all(|lines| lines.len() == 600));
        let stats = log.stats();
        assert_eq!((stats.lines, stats.written_lines, stats.dropped_lines), (2400, 2400, 0));
        assert_eq!(stats.written_bytes, text.len() as u64);
    }
}

/// Everything accepted up to the end is in the file, including the buffer that was being filled
/// when the log was closed. Fails if the output thread does not check once more after it saw that
/// the log is closed.
#[test]
fn closing_at_full_speed_loses_no_accepted_line() {
    for round in 0..30 {
        let (_directory, path) = place();
        let builder = LogWriter::builder(&path).buffers_bytes(256 << 10);
        let (log, guard) = builder.open().expect("opened");
        let accepted: [AtomicU64; 3] = Default::default();
        let start = Barrier::new(4);
        std::thread::scope(|scope| {
            for (thread, accepted) in accepted.iter().enumerate() {
                let (mut log, start) = (log.clone(), &start);
                scope.spawn(move || {
                    start.wait();
                    let mut put = |number| log.write_all(line(thread, number, LINE).as_bytes());
                    for number in 0.. {
                        accepted.store(number, Ordering::Relaxed);
                        if put(number).is_err() {
                            return;
                        }
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
        let (lines, _) = threads_of(&read(&path), |_, _| LINE);
        for (lines, accepted) in lines.iter().zip(accepted) {
            assert!(lines.iter().copied().eq(0..accepted.into_inner()), "round {round}");
        }
        assert!((&log).write_all(b"late\n").is_err());
    }
}

#[test]
fn a_flush_returns_when_the_line_is_in_the_file_and_not_before() {
    let (_directory, path) = place();
    let disk = MoodyDisk::new(Mood::Stopped);
    let builder = LogWriter::builder(&path).flush_every(LONG);
    let (mut log, guard) = builder.open_on(disk.clone()).expect("opened");
    say(&log, "one\n");
    let error = log.flush_within(30 * MS).expect_err("the disk is stopped");
    assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
    disk.set(Mood::Works);
    guard.flush(LONG).expect("flushed");
    assert_eq!(read(&path), "one\n");
    say(&log, "two\n");
    log.flush().expect("flushed");
    assert_eq!(read(&path), "one\ntwo\n");
    // Dropping the guard drains, too.
    writeln!(log, "three {}", 3).expect("written");
    drop(guard);
    assert_eq!(read(&path), "one\ntwo\nthree 3\n");
    assert_eq!(log.stats().lines, 3, "one `writeln` is one line");
}

#[test]
fn a_line_goes_to_the_file_by_itself_also_after_a_rest() {
    let (_directory, path) = place();
    let builder = LogWriter::builder(&path).flush_every(Duration::from_millis(5));
    let (log, guard) = builder.open().expect("opened");
    for lines in 1..=3 {
        // Mostly long enough for the output thread to fall asleep for good.
        std::thread::sleep(Duration::from_millis(40));
        say(&log, "line\n");
        wait_until("the line", || read(&path).lines().count() == lines);
    }
    guard.close().expect("closed");
}

#[test]
fn a_hook_that_logs_does_not_hang_when_every_buffer_is_full() {
    let (_directory, path) = place();
    let disk = MoodyDisk::new(Mood::Fails(28));
    let writer = std::sync::Arc::new(std::sync::OnceLock::<LogWriter>::new());
    let (told, is_told) = std::sync::mpsc::channel();
    let theirs = std::sync::Arc::clone(&writer);
    let builder = quick(&path).0.buffers_bytes(8 << 10);
    let builder = builder.on_event(move |_| {
        let log = theirs.wait();
        (0..100).for_each(|_| say(log, line(3, 0, LINE)));
        assert!(log.flush_within(LONG).is_err(), "a flush here would wait for itself");
        let _ = told.send(());
    });
    let (log, guard) = builder.open_on(disk.clone()).expect("opened");
    writer.set(log.clone()).expect("once");
    say(&log, "first\n");
    is_told.recv_timeout(LONG).expect("the hook ends");
    disk.set(Mood::Works);
    log.flush_within(LONG).expect("flushed");
    guard.close().expect("closed");
    assert!(log.stats().dropped_lines > 0);
}
