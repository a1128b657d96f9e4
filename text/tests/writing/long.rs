//! Lines that come in pieces because they are too long for memory.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, UNIX_EPOCH};

use crate::common::{LINE, all_text, line, names, place, quick, read, say, small, wait_until};
use inkstone_appender::{LogWriter, Rotation};

static PIECE: [u8; 300_000] = [b'x'; 300_000];
const PIECES: usize = 12;

#[test]
fn a_line_in_pieces_is_whole_among_others_and_in_one_file() {
    let (directory, path) = place();
    let builder = small(LogWriter::builder(&path)).rotate(Rotation::new().at_bytes(16 << 10));
    let (log, guard) = builder.open().expect("opened");
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let log = &log;
            // Some are longer than a buffer.
            let bytes = |number| if number % 50 == 0 { 10_000 } else { LINE };
            let put = move |number| say(log, line(thread, number, bytes(number)));
            scope.spawn(move || (0..2000).for_each(put));
        }
        for _ in 0..5 {
            let mut long = log.begin_line().expect("begun");
            (0..PIECES).for_each(|_| long.push(&PIECE).expect("accepted"));
            long.push(b"\n").expect("accepted");
            long.end().expect("ended");
        }
    });
    guard.close().expect("closed");
    let text = all_text(directory.path(), "a.log");
    let (long, short): (Vec<_>, Vec<_>) = text.lines().partition(|line| line.starts_with('x'));
    assert_eq!((long.len(), short.len()), (5, 4000));
    let is_whole =
        |line: &&str| line.len() == PIECE.len() * PIECES && line.bytes().all(|byte| byte == b'x');
    assert!(long.iter().all(is_whole));
    for name in names(directory.path()) {
        let text = read(&directory.path().join(name));
        assert!(text.is_empty() || text.ends_with('\n'), "a file ends within a line");
    }
    let stats = log.stats();
    let counted = (stats.lines, stats.written_lines, stats.written_bytes);
    assert_eq!(counted, (4005, 4005, text.len() as u64));
}

/// What becomes due within a line is done when the line has ended: a reopening, the end of a
/// period.
#[test]
fn no_file_ends_within_a_line_whatever_is_due_meanwhile() {
    const BUFFER: usize = 4 << 10;
    let cases = [("end\n", false), ("\n", true)];
    for ((ends_with, is_closed_first), is_by_time) in
        cases.into_iter().flat_map(|case| [(case, true), (case, false)])
    {
        let (directory, path) = place();
        let clock = Arc::new(AtomicU64::new(1_795_277_133));
        let theirs = Arc::clone(&clock);
        let clock_of_log = move || UNIX_EPOCH + Duration::from_secs(theirs.load(Ordering::Relaxed));
        let minute = Rotation::new().every(Duration::from_secs(60));
        let rotation = if is_by_time { minute } else { Rotation::new() };
        let builder = quick(&path).0.buffers_bytes(8 * BUFFER).buffer_bytes(BUFFER);
        let builder = builder.rotate(rotation).clock(clock_of_log);
        let (log, guard) = builder.open().expect("opened");
        // A file that is just being renamed is found the next time.
        let texts = || -> Vec<String> {
            let paths = names(directory.path()).into_iter().map(|name| directory.path().join(name));
            paths.filter_map(|path| std::fs::read_to_string(path).ok()).collect()
        };
        let is_written = |bytes: usize| {
            wait_until("it in the files", || {
                texts().iter().map(String::len).sum::<usize>() == bytes
            })
        };
        say(&log, "before\n");
        let mut long = log.begin_line().expect("begun");
        for piece in 0..6 {
            // The last of them ends with a buffer.
            long.push(&[b'x'; BUFFER]).expect("accepted");
            if piece == 2 {
                clock.fetch_add(60, Ordering::Relaxed);
                if !is_by_time {
                    std::fs::rename(&path, directory.path().join("a.log.moved")).expect("moved");
                    log.reopen();
                }
            }
            is_written(7 + (piece + 1) * BUFFER);
        }
        long.push(ends_with.as_bytes()).expect("accepted");
        is_written(7 + 6 * BUFFER + ends_with.len());
        if is_closed_first {
            guard.close().expect("closed");
            drop(long);
        } else {
            long.end().expect("ended");
            wait_until("what was due", || texts().len() == 2);
            say(&log, "behind\n");
            guard.close().expect("closed");
        }
        let mut found = texts();
        found.sort();
        let whole = format!("before\n{}{ends_with}", "x".repeat(6 * BUFFER));
        let behind = if is_closed_first { "" } else { "behind\n" };
        let lengths: Vec<_> = found.iter().map(String::len).collect();
        assert!(found == [behind, &whole] || found == [&whole, behind], "{is_by_time} {lengths:?}");
    }
}

/// The next piece may never come: the pieces so far are the line, and are written.
#[test]
fn closing_ends_a_line_whose_next_piece_does_not_come() {
    let (_directory, path) = place();
    let (log, guard) = LogWriter::builder(&path).open().expect("opened");
    say(&log, "before\n");
    let (begun, closed) = (Barrier::new(2), Barrier::new(2));
    std::thread::scope(|scope| {
        scope.spawn(|| {
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
    assert_eq!(read(&path), "before\nits beginning");
    assert_eq!((log.stats().lines, log.stats().written_lines), (2, 2));
}
