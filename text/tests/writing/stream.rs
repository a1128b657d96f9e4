//! Text that comes as a stream.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, UNIX_EPOCH};

use crate::common::{
    Mood, MoodyDisk, all_text, files, has_lines, lines, names, place, quick, read, rotating, say,
    small, wait_until,
};
use inkstone_appender::{LogWriter, Rotation, Stream, WhenFull};

/// Puts text that was read elsewhere.
fn put(stream: &mut Stream<'_>, text: &str) {
    assert!(!stream.put(text.as_bytes(), 0).expect("accepted"), "cut: {text}");
}

#[test]
fn what_was_put_is_in_the_file_soon_also_while_its_line_has_not_ended() {
    let (_directory, path) = place();
    let (log, guard) = quick(&path).0.open().expect("opened");
    let mut stream = log.begin_stream().expect("begun");
    assert!(log.begin_stream().is_err(), "one at a time");
    let mut all = String::new();
    for text in ["login: ", "me\n", "10%\r", "20%\r", "done\nnext"] {
        put(&mut stream, text);
        all += text;
        wait_until("it in the file", || read(&path) == all);
    }
    drop(stream);
    say(&log, " one\n");
    guard.close().expect("closed");
    assert_eq!(read(&path), all + " one\n");
    let stats = log.stats();
    assert_eq!((stats.lines, stats.written_lines, stats.written_bytes), (4, 4, 32));
}

/// Each text ends within a line, so that each buffer may begin within one.
#[test]
fn files_of_a_stream_end_with_lines_at_their_size_and_on_request() {
    for is_moved in [false, true] {
        let (directory, path) = place();
        let builder = if is_moved { small(quick(&path).0) } else { rotating(&path) };
        let (log, guard) = builder.open().expect("opened");
        let text = lines(0..2000);
        let mut stream = log.begin_stream().expect("begun");
        let mut pieces = text.as_bytes().chunks(4000);
        if is_moved {
            let first = pieces.next().expect("a piece");
            stream.put(first, 0).expect("accepted");
            wait_until("it in the file", || read(&path).len() == first.len());
            std::fs::rename(&path, directory.path().join("a.log.moved.0")).expect("moved");
            log.reopen();
        }
        for piece in pieces {
            stream.put(piece, 0).expect("accepted");
        }
        drop(stream);
        guard.close().expect("closed");
        let files = files(directory.path(), "a.log");
        for (name, text) in &files {
            let most = if is_moved { text.len() } else { 16 << 10 };
            assert!(text.ends_with('\n') && text.len() <= most, "{name}: {}", text.len());
        }
        assert_eq!(files.len() > 10, !is_moved);
        assert!(files.len() > 1);
        has_lines(&all_text(directory.path(), "a.log"), 0..2000);
    }
}

/// A line of which the beginning is in the file gets an end there.
#[test]
fn what_a_stream_drops_is_counted_and_leaves_no_half_line_without_an_end() {
    let (_directory, path) = place();
    let disk = MoodyDisk::new(Mood::Stopped);
    let builder = small(quick(&path).0).buffers_bytes(8 << 10);
    let dropping = builder.when_full(WhenFull::DropAfter(Duration::ZERO));
    let (log, guard) = dropping.open_on(disk.clone()).expect("opened");
    let mut stream = log.begin_stream().expect("begun");
    let text = "x".repeat(2000);
    let (mut cuts, mut bytes, mut begun) = (0, 0, 0);
    // The output thread has one buffer, the other fills up.
    for piece in ["whole\n", &text, &text, &text, &text, &text, "its end\nbehind\n", "half ", "\n"]
    {
        cuts += u64::from(stream.put(piece.as_bytes(), 0).expect("accepted"));
        bytes += piece.len() as u64;
        if piece == "whole\n" {
            disk.wait_for_calls(1);
        }
    }
    begun += 4;
    let stats = log.stats();
    assert_eq!((cuts, stats.lines + stats.dropped_lines), (1, begun + cuts));
    assert_eq!(stats.bytes + stats.dropped_bytes, bytes + cuts);
    disk.set(Mood::Works);
    wait_until("a notice", || read(&path).contains("lines dropped"));
    put(&mut stream, "later\n");
    drop(stream);
    guard.close().expect("closed");
    let found = read(&path);
    let kept = found.split_inclusive('\n').filter(|line| !line.contains("lines dropped"));
    let kept: Vec<_> = kept.collect();
    assert!(kept[0] == "whole\n" && kept.last() == Some(&"later\n"), "{kept:?}");
    assert!(kept[1].trim_end().bytes().all(|byte| byte == b'x'), "{kept:?}");
    assert!(kept.len() >= 3 && !found.contains("its end"), "{kept:?}");
}

/// What becomes due within a line is done when the line has ended: a reopening, the end of a
/// period.
#[test]
fn no_file_ends_within_a_line_whatever_is_due_meanwhile() {
    const PIECE: usize = 4000;
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
        let builder = small(quick(&path).0).rotate(rotation).clock(clock_of_log);
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
        let mut stream = log.begin_stream().expect("begun");
        for piece in 0..6 {
            put(&mut stream, &"x".repeat(PIECE));
            if piece == 2 {
                clock.fetch_add(60, Ordering::Relaxed);
                if !is_by_time {
                    std::fs::rename(&path, directory.path().join("a.log.moved")).expect("moved");
                    log.reopen();
                }
            }
            is_written(7 + (piece + 1) * PIECE);
        }
        put(&mut stream, ends_with);
        is_written(7 + 6 * PIECE + ends_with.len());
        if is_closed_first {
            guard.close().expect("closed");
            drop(stream);
        } else {
            wait_until("what was due", || texts().len() == 2);
            put(&mut stream, "behind\n");
            guard.close().expect("closed");
        }
        let mut found = texts();
        found.sort();
        let whole = format!("before\n{}{ends_with}", "x".repeat(6 * PIECE));
        let behind = if is_closed_first { "" } else { "behind\n" };
        let lengths: Vec<_> = found.iter().map(String::len).collect();
        let is_so = found == [behind, &whole] || found == [&whole, behind];
        assert!(is_so, "{is_by_time} {lengths:?}");
    }
}

/// The rest of the line may never come: what there is of it is the line, and is written.
#[test]
fn closing_ends_a_line_whose_rest_does_not_come() {
    let (_directory, path) = place();
    let (log, guard) = LogWriter::builder(&path).open().expect("opened");
    say(&log, "before\n");
    let (begun, closed) = (Barrier::new(2), Barrier::new(2));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut stream = log.begin_stream().expect("begun");
            put(&mut stream, "its beginning");
            begun.wait();
            closed.wait();
            assert!(stream.put(b"its end\n", 0).is_err());
        });
        begun.wait();
        guard.close().expect("closed");
        closed.wait();
    });
    assert_eq!(read(&path), "before\nits beginning");
    assert_eq!((log.stats().lines, log.stats().written_lines), (2, 2));
}
