//! A reader that does not read (a pager, a stopped terminal): the first signal ends every command
//! all the same.

use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Stdio};
use std::time::Duration;

use crate::support::{
    WRITE, Words, command, damage, directory, ends, full_pipe, good, line, lines, listens, not_run,
    run, segments, signal, text, until,
};

/// Sends one SIGTERM, and returns the exit code.
fn ended_by_one_signal(mut child: Child, what: &str) -> i32 {
    until("it listens", || listens(child.id()) || child.try_wait().expect("asked").is_some());
    let has_ended = child.try_wait().expect("asked").is_some();
    assert!(!has_ended, "{what:?} has ended, and nobody has read what it wrote");
    signal("-TERM", child.id());
    ends(&mut child);
    child.wait().expect("an end").code().expect("it ends by itself")
}

fn start(
    at: &Path,
    arguments: impl Words,
    out: impl Into<Stdio>,
    told: impl Into<Stdio>,
) -> (Child, ChildStdin) {
    let mut command = command(at, arguments);
    let mut child = command.stdout(out).stderr(told).spawn().expect("the command runs");
    let stdin = child.stdin.take().expect("a pipe");
    (child, stdin)
}

/// A log, a corrupt one, and results of the lab.
fn made(at: &Path) {
    good(at, "append log -q --segment-size 64KiB", &lines(1..=5000, ""));
    good(at, "copy log corrupt", b"");
    damage(&segments(&at.join("corrupt"))[0], &line(10, ""));
    assert!(run(at, format!("{WRITE} --json result.json")).status.success());
}

#[test]
fn the_first_signal_ends_every_command_whose_output_is_not_taken() {
    let directory = directory();
    let at = directory.path();
    made(at);
    good(at, "copy log cut", b"");
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
        "lab",
        "lab write --size 64KiB --rounds 1 --bill-commits 0",
        "lab compare result.json result.json",
        "lab report result.json -o -",
        "powerloss sim --seeds 1 --class names --all-of 4",
        "powerloss sim --list",
        "powerloss kill --rounds 2",
    ];
    // Each is waited for, for a second.
    std::thread::scope(|scope| {
        for line in lines {
            scope.spawn(move || {
                let (_reader, out) = full_pipe();
                let (child, mut stdin) = start(at, line, out, Stdio::null());
                // `append` has something to print, and waits for more.
                let _ = stdin.write_all(b"one\n");
                assert_eq!(ended_by_one_signal(child, line), 130, "{line}");
            });
        }
    });
    // The changes were made, and are whole.
    for name in ["log", "cut", "other", "copied", "salvaged"] {
        if at.join(name).exists() && !segments(&at.join(name)).is_empty() {
            good(at, &["verify", name], b"");
        }
    }
}

/// A terminal is ready for poll when it accepts one byte, but a longer write waits for the rest.
#[test]
fn a_raw_terminal_that_nobody_reads_makes_no_command_deaf() {
    let directory = directory();
    let at = directory.path();
    good(at, "append log -q --segment-size 64KiB", &lines(1..=25_000, ""));
    let lines_of = ["cat log", "cat log --follow", "dump log --payload hex", "append more"];
    // Its room at the end depends on what was in it before.
    for before in [0, 1111, 2222] {
        std::thread::scope(|scope| {
            for line in lines_of {
                scope.spawn(move || {
                    let (_own, mut terminal) = inkstone_host::raw_terminal().expect("a terminal");
                    terminal.write_all(&vec![b'x'; before]).expect("it holds that");
                    let full = terminal.try_clone().expect("a descriptor");
                    let (child, mut stdin) = start(at, line, terminal, full);
                    let feeding = std::thread::spawn(move || {
                        // `append` ends before it has read all.
                        let _ = stdin.write_all(&lines(1..=100_000, ""));
                        stdin
                    });
                    until_it_waits(child.id());
                    assert_eq!(ended_by_one_signal(child, line), 130, "{line}, {before}");
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
    until("it waits", || {
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
    let (mut child, mut stdin) = start(at, "append more", Stdio::piped(), Stdio::null());
    let mut out = child.stdout.take().expect("a pipe");
    // Its reader begins when all has been taken: 1.3 MB of numbers.
    stdin.write_all(&lines(1..=200_000, "")).expect("it reads");
    let (over, is_over) = std::sync::mpsc::channel::<()>();
    let reading = std::thread::spawn(move || {
        let pace = Duration::from_millis(300);
        while is_over.recv_timeout(pace).is_err() && out.read(&mut [0; 4096]).expect("read") > 0 {}
        out
    });
    assert_eq!(ended_by_one_signal(child, "append more"), 130);
    over.send(()).expect("it reads still");
    drop(reading.join().expect("a thread"));
    assert!(text(&good(at, "verify more", b"")).contains("intact"));
}

#[test]
fn a_stderr_that_nobody_reads_does_not_make_a_command_deaf() {
    let directory = directory();
    let at = directory.path();
    // The lab's messages while the data goes to stdout.
    for (arguments, code) in [("cat missing", 1), ("lab --json -", 130)] {
        let (_reader, told) = full_pipe();
        let (child, _stdin) = start(at, arguments, Stdio::null(), told);
        assert_eq!(ended_by_one_signal(child, arguments), code, "{arguments}");
    }
}

/// The kernel's log accepts every write, but poll never reports it as ready.
#[test]
#[ignore = "needs root, for /dev/kmsg"]
fn a_device_that_is_no_terminal_is_written_to_without_waiting() {
    let Ok(kernel_log) = std::fs::File::options().write(true).open("/dev/kmsg") else {
        let name = "a_device_that_is_no_terminal_is_written_to_without_waiting";
        return not_run(name, "/dev/kmsg cannot be opened for writing here");
    };
    let directory = directory();
    let (mut child, _stdin) = start(directory.path(), "verify nowhere", Stdio::null(), kernel_log);
    ends(&mut child);
    assert_eq!(child.wait().expect("an end").code(), Some(2));
}
