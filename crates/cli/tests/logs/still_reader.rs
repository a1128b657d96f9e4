//! A reader that does not read (a pager, a stopped terminal): the first signal ends every command
//! all the same.

use std::io::{PipeReader, Read as _, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Stdio};

use crate::support::{damage, directory, good, inkstone, run, segments, signal, text, until};

/// A full pipe; its reader is open and does not read.
fn full_pipe() -> (PipeReader, Stdio) {
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    writer.write_all(&vec![b'x'; 64 << 10]).expect("a pipe holds that");
    (reader, writer.into())
}

/// SIGTERM is number 15: bit 14 of the signals that it catches.
fn listens(process: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap_or("0");
    u64::from_str_radix(caught.trim(), 16).is_ok_and(|caught| caught & 1 << 14 != 0)
}

/// Sends one SIGTERM, and returns the exit code.
fn ended_by_one_signal(mut child: Child, what: &[&str]) -> i32 {
    until(|| listens(child.id()) || child.try_wait().expect("asked").is_some());
    assert!(
        child.try_wait().expect("asked").is_none(),
        "{what:?} has ended, and nobody has read what it wrote"
    );
    signal(&child, "-TERM");
    let begun = std::time::Instant::now();
    loop {
        if let Some(status) = child.try_wait().expect("asked") {
            return status.code().expect("it ends by itself");
        }
        if begun.elapsed().as_secs() > 60 {
            child.kill().and_then(|()| child.wait()).expect("killed");
            panic!("{what:?} does not hear the signal");
        }
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
}

fn start(at: &Path, arguments: &[&str], out: Stdio, told: Stdio) -> (Child, ChildStdin) {
    let mut command = inkstone();
    command.current_dir(at).args(arguments).stdin(Stdio::piped()).stdout(out).stderr(told);
    let mut child = command.spawn().expect("the command runs");
    let stdin = child.stdin.take().expect("a pipe");
    (child, stdin)
}

fn lines(count: u64) -> Vec<u8> {
    (1..=count).flat_map(|number| format!("record {number:06}\n").into_bytes()).collect()
}

/// A log, a corrupt one, and results of the lab.
fn made(at: &Path) {
    good(at, &["append", "log", "-q", "--segment-size", "64KiB"], &lines(5000));
    good(at, &["copy", "log", "corrupt"], b"");
    damage(&segments(&at.join("corrupt"))[0], b"record 000010");
    let measure = "lab write --size 64KiB --rounds 1 --bill-commits 0 --quiet --json result.json";
    let measure: Vec<&str> = measure.split(' ').collect();
    assert!(run(at, &measure).status.success());
}

#[test]
fn the_first_signal_ends_every_command_whose_output_is_not_taken() {
    let directory = directory();
    let at = directory.path();
    made(at);
    good(at, &["copy", "log", "cut"], b"");
    let lines = [
        "cat log",
        "cat log --follow",
        "get log 1",
        "verify log",
        "verify corrupt --json",
        "info log",
        "dump log",
        "dump corrupt",
        "append other",
        "truncate cut --before 2",
        "truncate log --before 3 --dry-run",
        "copy log copied",
        "salvage corrupt salvaged --json",
        "tune log --dry-run",
        "lab",
        "lab write --size 64KiB --rounds 1 --bill-commits 0",
        "lab compare result.json result.json",
        "lab report result.json -o -",
        "bench --threads 1 --size 128B --seconds 1 --bill-commits 0",
        "powerloss sim --seeds 1 --class names --all-of 4",
        "powerloss sim --list",
        "powerloss kill --rounds 2",
        "completions bash",
        "man",
    ];
    // A few at a time: each is waited for, for a second.
    for some in lines.chunks(7) {
        std::thread::scope(|scope| {
            for line in some {
                scope.spawn(move || {
                    let arguments: Vec<&str> = line.split(' ').collect();
                    let (_reader, out) = full_pipe();
                    let (child, mut stdin) = start(at, &arguments, out, Stdio::null());
                    // `append` has something to print, and waits for more.
                    let _ = stdin.write_all(b"one\n");
                    assert_eq!(ended_by_one_signal(child, &arguments), 130, "{line}");
                });
            }
        });
    }
    // The changes were made, and are whole.
    for name in ["log", "cut", "other", "copied", "salvaged"] {
        if at.join(name).join("inkstone.lock").exists() {
            let verified = run(at, &["verify", name]);
            assert!(verified.status.code() == Some(0) || segments_of(at, name) == 0, "{name}");
        }
    }
}

fn segments_of(at: &Path, name: &str) -> usize {
    segments(&at.join(name)).len()
}

#[test]
fn a_reader_that_stands_still_in_the_middle_is_left_too() {
    let directory = directory();
    let at = directory.path();
    made(at);
    let all = lines(100_000);
    for line in ["cat log", "dump log --payload hex", "append more"] {
        let arguments: Vec<&str> = line.split(' ').collect();
        let (mut child, mut stdin) = start(at, &arguments, Stdio::piped(), Stdio::null());
        let mut out = child.stdout.take().expect("a pipe");
        let theirs = all.clone();
        let feeding = std::thread::spawn(move || {
            // It ends before it has read all, or waits for more.
            let _ = stdin.write_all(&theirs);
            stdin
        });
        // It has begun, and has more than a pipe takes.
        out.read_exact(&mut [0; 100]).expect("its beginning");
        assert_eq!(ended_by_one_signal(child, &arguments), 130, "{line}");
        drop(feeding.join().expect("a thread"));
    }
    // Everything that `append` had read by then is durable and undamaged.
    assert!(text(&good(at, &["verify", "more"], b"")).contains("intact"));
}

/// A terminal is ready for poll when it accepts one byte, but a longer write waits for the rest.
#[test]
fn a_raw_terminal_that_nobody_reads_makes_no_command_deaf() {
    let directory = directory();
    let at = directory.path();
    made(at);
    let names =
        ["cat log", "cat log --follow", "dump log", "dump log --payload hex", "append more"];
    good(at, &["append", "log", "-q"], &lines(20_000));
    // Its room at the end depends on what was in it before.
    let jobs: Vec<_> = (0..4_usize)
        .flat_map(|before| names.iter().map(move |line| (*line, before * 1111)))
        .collect();
    for some in jobs.chunks(5) {
        std::thread::scope(|scope| {
            for &(line, before) in some {
                scope.spawn(move || {
                    let arguments: Vec<&str> = line.split(' ').collect();
                    let (_own, mut terminal) = inkstone_host::raw_terminal().expect("a terminal");
                    terminal.write_all(&vec![b'x'; before]).expect("it holds that");
                    let full = Stdio::from(terminal.try_clone().expect("a descriptor"));
                    let (child, mut stdin) = start(at, &arguments, terminal.into(), full);
                    let feeding = std::thread::spawn(move || {
                        // `append` ends before it has read all.
                        let _ = stdin.write_all(&lines(100_000));
                        stdin
                    });
                    until_it_waits(child.id());
                    assert_eq!(ended_by_one_signal(child, &arguments), 130, "{line}, {before}");
                    drop(feeding.join().expect("a thread"));
                });
            }
        });
    }
}

/// How many bytes it has written, if none of its threads runs.
fn written_asleep(process: u32) -> Option<u64> {
    let io = std::fs::read_to_string(format!("/proc/{process}/io")).ok()?;
    let written = io.lines().find_map(|line| line.strip_prefix("wchar: "))?.parse().ok()?;
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).ok()?.flatten();
    let mut states = threads.map(|thread| std::fs::read_to_string(thread.path().join("stat")));
    states.all(|state| state.is_ok_and(|state| state.contains(") S "))).then_some(written)
}

/// Waits until it seems to wait for its output. If it did not wait, the test would only show less.
fn until_it_waits(process: u32) {
    let (mut seen, mut same) = (None, 0);
    until(|| {
        let written = written_asleep(process).filter(|written| *written > 4000);
        same = if written.is_some() && written == seen { same + 1 } else { 0 };
        seen = written;
        same > 50
    });
}

/// Each piece comes in time, and all of it would take minutes.
#[test]
fn what_is_left_for_a_slow_reader_after_a_signal_has_an_end() {
    let directory = directory();
    let at = directory.path();
    made(at);
    let (mut child, mut stdin) = start(at, &["append", "more"], Stdio::piped(), Stdio::null());
    let mut out = child.stdout.take().expect("a pipe");
    // Its reader begins when all has been taken: 3.4 MB of numbers.
    stdin.write_all(&lines(500_000)).expect("it reads");
    let (over, is_over) = std::sync::mpsc::channel::<()>();
    let reading = std::thread::spawn(move || {
        let pace = std::time::Duration::from_millis(300);
        while is_over.recv_timeout(pace).is_err() && out.read(&mut [0; 4096]).expect("read") > 0 {}
        out
    });
    assert_eq!(ended_by_one_signal(child, &["append", "more"]), 130);
    over.send(()).expect("it reads still");
    drop(reading.join().expect("a thread"));
    assert!(text(&good(at, &["verify", "more"], b"")).contains("intact"));
}

#[test]
fn a_stderr_that_nobody_reads_does_not_make_a_command_deaf() {
    let directory = directory();
    let at = directory.path();
    let (_reader, told) = full_pipe();
    let arguments = ["cat", "missing"];
    let (child, _stdin) = start(at, &arguments, Stdio::null(), told);
    assert_eq!(ended_by_one_signal(child, &arguments), 1);
    // The lab's messages while the data goes to stdout.
    let (_reader, told) = full_pipe();
    let measure = "lab --json -";
    let arguments: Vec<&str> = measure.split(' ').collect();
    let (child, _stdin) = start(at, &arguments, Stdio::null(), told);
    assert_eq!(ended_by_one_signal(child, &arguments), 130);
}

#[test]
fn a_slow_reader_gets_everything() {
    let directory = directory();
    let at = directory.path();
    made(at);
    let (mut child, _stdin) = start(at, &["cat", "log"], Stdio::piped(), Stdio::piped());
    let mut out = child.stdout.take().expect("a pipe");
    let (mut read, mut piece) = (Vec::new(), [0; 7000]);
    loop {
        let count = out.read(&mut piece).expect("read");
        if count == 0 {
            break;
        }
        read.extend_from_slice(&piece[..count]);
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    assert!(read == lines(5000));
    assert_eq!(child.wait_with_output().expect("its end").status.code(), Some(0));
}
