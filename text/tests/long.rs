//! Lines that come in pieces because they are too long for memory.

mod common;

use std::io::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, UNIX_EPOCH};

use common::{LONG, Mood, MoodyDisk, all_text, line, place, wait_until};
use inkstone_appender::{LogWriter, Rotation, WhenFull};

const PIECE: usize = 300_000;
const PIECES: usize = 12;

#[test]
fn a_line_in_pieces_is_whole_among_others_and_in_one_file() {
    let (directory, path) = place();
    let builder = LogWriter::builder(&path).buffers_bytes(64 << 10).buffer_bytes(4 << 10);
    let (log, guard) = builder.rotate(Rotation::new().at_bytes(16 << 10)).open().expect("opened");
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let mut log = log.clone();
            scope.spawn(move || {
                for number in 0..2000 {
                    log.write_all(line(thread, number, 120).as_bytes()).expect("accepted");
                }
            });
        }
        for _ in 0..5 {
            let mut long = log.begin_line().expect("begun");
            for _ in 0..PIECES {
                long.push(&[b'x'; PIECE]).expect("accepted");
            }
            long.push(b"\n").expect("accepted");
            long.end().expect("ended");
        }
    });
    guard.close().expect("closed");
    let text = all_text(directory.path(), "a.log");
    let (long, short): (Vec<_>, Vec<_>) = text.lines().partition(|line| line.starts_with('x'));
    assert_eq!(long.len(), 5);
    assert!(
        long.iter()
            .all(|line| line.len() == PIECE * PIECES && line.bytes().all(|byte| byte == b'x'))
    );
    assert_eq!(short.len(), 4000);
    for entry in std::fs::read_dir(directory.path()).expect("listed") {
        let text = std::fs::read(entry.expect("an entry").path()).expect("read");
        assert!(text.is_empty() || text.ends_with(b"\n"), "a file ends within a line");
    }
    let stats = log.stats();
    assert_eq!(
        (stats.lines, stats.written_lines, stats.written_bytes),
        (4005, 4005, text.len() as u64)
    );
}

fn files(folder: &Path) -> Vec<String> {
    let entries =
        std::fs::read_dir(folder).expect("listed").map(|entry| entry.expect("an entry").path());
    let mut paths: Vec<_> = entries.collect();
    paths.sort();
    // A file that is just being renamed is found the next time.
    paths.iter().filter_map(|path| std::fs::read_to_string(path).ok()).collect()
}

/// What becomes due within a line is done when the line has ended: a reopening, the end of a
/// period.
#[test]
fn no_file_ends_within_a_line_whatever_is_due_meanwhile() {
    const BUFFER: usize = 4 << 10;
    for (ends_with, is_closed_first) in [("end\n", false), ("\n", true)] {
        for is_by_time in [true, false] {
            let (directory, path) = place();
            let clock = Arc::new(AtomicU64::new(1_795_277_133));
            let theirs = Arc::clone(&clock);
            let builder = LogWriter::builder(&path).buffers_bytes(8 * BUFFER).buffer_bytes(BUFFER);
            let builder = builder.flush_every(Duration::from_millis(1)).rotate(if is_by_time {
                Rotation::new().every(Duration::from_secs(60))
            } else {
                Rotation::new()
            });
            let builder = builder
                .clock(move || UNIX_EPOCH + Duration::from_secs(theirs.load(Ordering::Relaxed)));
            let (mut log, guard) = builder.open().expect("opened");
            log.write_all(b"before\n").expect("accepted");
            let mut long = log.begin_line().expect("begun");
            let mut put = 7;
            for piece in 0..6 {
                // The last of them ends with a buffer.
                long.push(&[b'x'; BUFFER]).expect("accepted");
                put += BUFFER as u64;
                if piece == 2 {
                    clock.fetch_add(60, Ordering::Relaxed);
                    if !is_by_time {
                        std::fs::rename(&path, directory.path().join("a.log.moved"))
                            .expect("moved");
                        log.reopen();
                    }
                }
                let size =
                    || files(directory.path()).iter().map(|text| text.len() as u64).sum::<u64>();
                wait_until("it in the files", || size() == put);
            }
            long.push(ends_with.as_bytes()).expect("accepted");
            put += ends_with.len() as u64;
            wait_until("its end in the files", || {
                put == files(directory.path()).iter().map(|text| text.len() as u64).sum::<u64>()
            });
            let mut guard = Some(guard);
            if is_closed_first {
                guard.take().expect("open").close().expect("closed");
                drop(long);
            } else {
                long.end().expect("ended");
                wait_until("what was due", || files(directory.path()).len() == 2);
                (&log).write_all(b"behind\n").expect("accepted");
                guard.take().expect("open").close().expect("closed");
            }
            let texts = files(directory.path());
            let line = format!("{}{ends_with}", "x".repeat(6 * BUFFER));
            let whole = texts.iter().filter(|text| **text == format!("before\n{line}")).count();
            let lengths: Vec<_> = texts.iter().map(String::len).collect();
            assert_eq!(whole, 1, "by time: {is_by_time}, {lengths:?}");
            assert!(
                texts.len() == 2 && (is_closed_first || texts.contains(&"behind\n".to_owned())),
                "{lengths:?}"
            );
        }
    }
}

/// Not a half of it.
#[test]
fn a_policy_that_drops_drops_it_whole_and_it_is_told() {
    for when_full in [WhenFull::DropNewest, WhenFull::DropOldest, WhenFull::BlockFor(LONG)] {
        let (_directory, path) = place();
        let (mut log, guard) =
            LogWriter::builder(&path).when_full(when_full).open().expect("opened");
        log.write_all(b"before\n").expect("accepted");
        let mut long = log.begin_line().expect("begun");
        for _ in 0..PIECES {
            long.push(&[b'x'; PIECE]).expect("counted");
        }
        long.push(b"its end\n").expect("counted");
        drop(long);
        log.write_all(b"behind\n").expect("accepted");
        guard.close().expect("closed");
        let text = std::fs::read_to_string(&path).expect("text");
        assert!(!text.contains("its end") && !text.contains('x'.to_string().repeat(9).as_str()));
        let bytes = PIECE * PIECES + 8;
        let notice = format!("1 lines dropped ({bytes} bytes): too long for the buffers\n");
        assert!(
            text.contains(&notice) && text.contains("before\n") && text.contains("behind\n"),
            "{text}"
        );
        assert_eq!(log.stats().too_long_bytes, bytes as u64);
    }
}

/// The next piece may never come: the pieces so far are the line, and are written.
#[test]
fn closing_ends_a_line_whose_next_piece_does_not_come() {
    let (_directory, path) = place();
    let (mut log, guard) = LogWriter::builder(&path).open().expect("opened");
    log.write_all(b"before\n").expect("accepted");
    let (begun, closed) = (Barrier::new(2), Barrier::new(2));
    std::thread::scope(|scope| {
        let log = log.clone();
        let (begun, closed) = (&begun, &closed);
        scope.spawn(move || {
            let mut long = log.begin_line().expect("begun");
            long.push(b"its beginning").expect("accepted");
            begun.wait();
            closed.wait();
            assert!(long.push(b"its end\n").is_err() && long.end().is_err());
        });
        begun.wait();
        guard.close().expect("closed");
        closed.wait();
    });
    assert_eq!(std::fs::read_to_string(&path).expect("text"), "before\nits beginning");
    assert_eq!((log.stats().lines, log.stats().written_lines), (2, 2));
}

/// A writer waits for room, and the log is closed on a disk that fails.
#[test]
fn nobody_waits_for_ever_for_a_disk_that_fails() {
    let (_directory, path) = place();
    let builder =
        LogWriter::builder(&path).buffers_bytes(8 << 10).buffer_bytes(4 << 10).on_event(|_| {});
    let builder = builder.drain_timeout(Duration::from_millis(1));
    let (log, guard) = builder.open_on(MoodyDisk::new(Mood::Fails(28))).expect("opened");
    std::thread::scope(|scope| {
        let writer = log.clone();
        scope.spawn(move || {
            let mut long = writer.begin_line().expect("begun");
            assert!(long.push(&[b'x'; PIECE]).is_err());
        });
        while log.stats().waits == 0 {
            std::thread::yield_now();
        }
        assert!(
            guard
                .close()
                .expect_err("it fails")
                .to_string()
                .starts_with("1 lines were not written")
        );
    });
    assert_eq!((log.stats().lines, log.stats().unwritten_lines), (1, 1));
}
