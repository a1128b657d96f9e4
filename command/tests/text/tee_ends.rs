//! How `inkstone tee` ends, and what is in the log and in the echo then: a disk that fails,
//! readers that leave or stand still. `tee_rounds.rs` has a service beside it.

use std::io::{Read as _, Write as _};
use std::time::Duration;

use crate::support::{code_and_words, fed, numbers, side_by_side, signal, until};
use crate::with_tee::{place, put, start, tee, text};

#[test]
fn a_second_signal_ends_reading() {
    let (_directory, file) = place();
    let mut tee = start(&file, &["--grace", "60m"]);
    put(&mut tee, "one\ntwo");
    until("what was read", || text(&file) == "one\ntwo");
    until("its end", || {
        signal("-INT", tee.id());
        std::thread::sleep(Duration::from_millis(200));
        tee.try_wait().expect("asked").is_some()
    });
    let output = tee.wait_with_output().expect("its end");
    // Nothing had run out of time: the user wanted it, and was told how.
    let (code, told) = code_and_words(&output);
    let words = "for at most 3600s; a second Ctrl-C ends reading\n";
    assert!(code == Some(130) && told.ends_with(words) && told.lines().count() == 1, "{told}");
    assert_eq!(text(&file), "one\ntwo");
}

/// It may end by the end of its input, or by a signal while it holds lines that there is no room
/// for.
#[test]
fn lines_that_were_read_and_cannot_be_written_are_counted() {
    for is_signalled in [false, true] {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("logs/s.log");
        let mut tee = start(&file, &["--grace", "300ms", "--buffers", "1MiB"]);
        put(&mut tee, "1\n2\n3\n");
        until("three lines", || text(&file) == "1\n2\n3\n");
        std::fs::remove_dir_all(directory.path().join("logs")).expect("removed");
        let lines: String = (0..60_000).map(|line| format!("line {line:08}\n")).collect();
        // There is room for the first of them, and not for all.
        let (before, behind) = lines.split_at(if is_signalled { 400_000 } else { 20_000 });
        put(&mut tee, before);
        let output = if is_signalled {
            signal("-TERM", tee.id());
            let mut stdin = tee.stdin.take().expect("a pipe");
            std::thread::scope(|scope| {
                // It may end before it has read everything; the pipe stays open.
                let writer = scope.spawn(move || {
                    let _ = stdin.write_all(behind.as_bytes());
                    stdin
                });
                let output = tee.wait_with_output().expect("its end");
                drop(writer.join().expect("a thread"));
                output
            })
        } else {
            fed(tee, b"")
        };
        let (code, told) = code_and_words(&output);
        assert_eq!(code, Some(1), "{told}");
        let [read, lost, bytes, ..] = numbers(&told, "were not written")[..] else {
            panic!("{told}")
        };
        assert_eq!((read - lost, bytes.div_ceil(14)), (3, lost), "{told}");
        // Everything that was written, except what may be in the pipe.
        let is_all = if is_signalled { bytes >= 400_000 - 65_536 } else { bytes == 20_000 };
        assert!(is_all, "{told}");
    }
}

#[test]
fn an_idle_tee_sleeps() {
    let ways: [&[&str]; 3] = [
        &[],
        &["--survive", "power-loss", "--rotate-every", "day", "--echo"],
        &["--survive", "kill", "--rotate-size", "1MiB", "--compress", "gzip", "--pid-file", "pid"],
    ];
    side_by_side(&ways, |way| {
        let (directory, file) = place();
        let mut tee = tee(&file, way).current_dir(directory.path()).spawn().expect("inkstone");
        put(&mut tee, "one\n");
        until("a line", || text(&file) == "one\n");
        // Once a second would be three in each; what it does just after a line may be in the first
        // few.
        let window = Duration::from_secs(3);
        let mut seen = Vec::new();
        until(&format!("{way:?} sleeps"), || {
            let before = switches(tee.id());
            std::thread::sleep(window);
            seen.push(switches(tee.id()) - before);
            assert!(seen.len() < 10, "{way:?}: it wakes too often, times in {window:?}: {seen:?}");
            seen.last().is_some_and(|count| *count <= 3)
        });
        assert_eq!(fed(tee, b"").status.code(), Some(0));
    });
}

/// How often all threads of a process have gone to sleep by themselves.
fn switches(process: u32) -> u64 {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).expect("its threads");
    let of = |thread: std::fs::DirEntry| -> u64 {
        let status = text(&thread.path().join("status"));
        let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        count.expect("a count").trim().parse().expect("a number")
    };
    threads.map(|thread| of(thread.expect("a thread"))).sum()
}

/// This many lines of 100 bytes.
fn lines(count: usize) -> String {
    (0..count).map(|line| format!("{line:099}\n")).collect()
}

#[test]
fn a_reader_of_the_echo_that_stands_still_stops_no_line_of_the_log() {
    for full in [&[][..], &["--drop-after", "0s"]] {
        let (_directory, file) = place();
        // With room for all of them, so that no policy drops a line for the disk's sake.
        let mut tee = start(&file, &[&["--echo", "--buffers", "64MiB"], full].concat());
        let all = lines(300_000);
        put(&mut tee, &all);
        // Nobody has read a byte of it so far.
        let mut out = tee.stdout.take().expect("a pipe");
        let (code, told) = code_and_words(&fed(tee, b""));
        assert!(text(&file) == all, "{full:?}: {} of {} bytes", text(&file).len(), all.len());
        let mut echoed = String::new();
        out.read_to_string(&mut echoed).expect("what is in the pipe");
        assert!(code == Some(1) && told.contains("did not keep up"), "{told}");
        // What the pipe took is the beginning; the end of tee may have cut its last line.
        assert!(!echoed.is_empty() && echoed.len() < all.len(), "{told}");
        assert!(all.starts_with(&echoed), "{} bytes of the echo", echoed.len());
    }
}

#[test]
fn a_reader_of_the_echo_that_leaves_ends_nothing() {
    let (_directory, file) = place();
    let mut tee_left = start(&file, &["--echo"]);
    drop(tee_left.stdout.take());
    let all = lines(100_000);
    put(&mut tee_left, &all[..100]);
    until("a line", || text(&file).len() == 100);
    let output = fed(tee_left, &all.as_bytes()[100..]);
    assert!(text(&file) == all);
    // A failing output is reported as such.
    let full = std::fs::File::create("/dev/full").expect("/dev/full");
    let into_full = tee(&file, &["--echo"]).stdout(full).spawn().expect("inkstone");
    let failed = fed(into_full, b"one\ntwo");
    assert!(text(&file) == all + "one\ntwo");
    for (output, why) in [(output, "its reader closed it"), (failed, "No space left")] {
        let (code, told) = code_and_words(&output);
        assert!(code == Some(1) && told.contains(why), "{told}");
    }
}

#[test]
fn a_long_line_is_echoed_to_a_reader_that_reads() {
    let (_directory, file) = place();
    let input = [&b"first\n"[..], &[b'x'; 9 << 20], b"\nlast\n"].concat();
    let output = fed(start(&file, &["--echo"]), &input);
    assert_eq!(code_and_words(&output), (Some(0), String::new()));
    assert!(std::fs::read(&file).expect("the log") == input && output.stdout == input);
}
