//! The messages of `inkstone tee` with different readers, and its exit codes.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, PipeReader, PipeWriter, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::{Child, Output};
use std::time::{Duration, Instant};

use crate::with_tee::{LONG, said, signal, tee, text, wait_until};

/// Its exit code; one that does not end is killed, so that it does not outlive the test.
fn ends(tee: &mut Child) -> Option<i32> {
    let since = Instant::now();
    loop {
        if let Some(status) = tee.try_wait().expect("asked") {
            return status.code();
        }
        if since.elapsed() > LONG {
            tee.kill().and_then(|()| tee.wait()).expect("killed");
            panic!("it does not end");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A full pipe: writes into it wait until it is read.
fn full_pipe() -> (PipeReader, PipeWriter) {
    const O_NONBLOCK: i32 = 0o4000;
    let (reader, writer) = std::io::pipe().expect("a pipe");
    // Reopened, so that tee gets a descriptor that blocks.
    let path = format!("/proc/self/fd/{}", writer.as_raw_fd());
    let mut filler: File =
        OpenOptions::new().write(true).custom_flags(O_NONBLOCK).open(path).expect("opened");
    for piece in [&[b' '; 4096][..], b" "] {
        let refused = loop {
            if let Err(error) = filler.write_all(piece) {
                break error;
            }
        };
        assert_eq!(refused.kind(), ErrorKind::WouldBlock);
    }
    (reader, writer)
}

#[test]
fn a_stderr_that_is_full_stops_no_line_of_the_log_and_hears_of_everything_later() {
    let directory = tempfile::tempdir().expect("a directory");
    let logs = directory.path().join("logs");
    let file = logs.join("s.log");
    let (mut reader, writer) = full_pipe();
    let mut tee = tee(&file, &["--flush-every", "1ms"]).stderr(writer).spawn().expect("inkstone");
    let mut stdin = tee.stdin.take().expect("a pipe");
    stdin.write_all(b"one\n").expect("written");
    wait_until("a line", || text(&file) == "one\n");
    std::fs::remove_dir_all(&logs).expect("removed");
    stdin.write_all(b"two\n").expect("written");
    // Time to fail at writing it, and to report so. If it were too short, this would only show
    // less.
    std::thread::sleep(Duration::from_secs(1));
    std::fs::create_dir(&logs).expect("made");
    wait_until("the log goes on", || text(&file) == "two\n");
    let told = std::thread::spawn(move || {
        let mut told = String::new();
        reader.read_to_string(&mut told).map(|_| told)
    });
    stdin.write_all(b"three\n").expect("written");
    drop(stdin);
    assert_eq!(ends(&mut tee), Some(0));
    assert_eq!(text(&file), "two\nthree\n");
    let told = told.join().expect("a thread").expect("text");
    assert!(
        told.contains("cannot be written") && told.contains("written again"),
        "{}",
        told.trim()
    );
}

#[test]
fn a_stderr_that_is_full_holds_no_end_up() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("s.log");
    // A signal, and messages at the end.
    let (_reader, writer) = full_pipe();
    let another = writer.try_clone().expect("a descriptor");
    let mut signalled = tee(&file, &["--grace", "10ms"]).stderr(writer).spawn().expect("inkstone");
    let mut stdin = signalled.stdin.take().expect("a pipe");
    stdin.write_all(b"one\n").expect("written");
    wait_until("a line", || text(&file) == "one\n");
    signal("-TERM", signalled.id());
    assert_eq!(ends(&mut signalled), Some(130));
    drop(stdin);
    // An error.
    let not_there = Path::new("/dev/null/s.log");
    let mut failed = tee(not_there, &[]).stderr(another).spawn().expect("inkstone");
    assert_eq!(ends(&mut failed), Some(1));
}

#[test]
fn an_error_says_its_cause_once() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("s.log");
    let not_there = tee(Path::new("/dev/null/s.log"), &[]).output().expect("inkstone");
    let stdin = File::open(directory.path()).expect("opened");
    let no_input = tee(&file, &[]).stdin(stdin).output().expect("inkstone");
    for (output, cause) in [(not_there, "not a directory"), (no_input, "os error 21")] {
        let told = said(&output);
        assert_eq!((output.status.code(), told.matches(cause).count()), (Some(1), 1), "{told}");
    }
}

#[test]
fn a_log_is_not_its_own_input() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("s.log");
    // Less would be read to its end before any of it is written.
    let lines = b"a line\n".repeat(4 << 20);
    std::fs::write(&file, &lines).expect("written");
    let mut tee =
        tee(&file, &[]).stdin(File::open(&file).expect("opened")).spawn().expect("inkstone");
    assert_eq!(ends(&mut tee), Some(1));
    let told = said(&tee.wait_with_output().expect("its end"));
    assert!(told.contains("stdin is the log"), "{told}");
    assert_eq!(std::fs::metadata(&file).expect("there").len(), lines.len() as u64);
}

/// The echoed lines and the output, with a reader that reads at once.
fn echo_of(input: &[u8], arguments: &[&str]) -> (Vec<usize>, Output) {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("s.log");
    let mut tee = tee(&file, arguments).arg("--echo").spawn().expect("inkstone");
    let mut stdin = tee.stdin.take().expect("a pipe");
    let theirs = input.to_vec();
    let writer = std::thread::spawn(move || stdin.write_all(&theirs));
    let output = tee.wait_with_output().expect("its end");
    writer.join().expect("a thread").expect("written");
    assert!(std::fs::read(&file).expect("the log") == input);
    (output.stdout.split(|byte| *byte == b'\n').map(<[u8]>::len).collect(), output)
}

#[test]
fn a_line_longer_than_what_waits_for_the_echo_is_echoed_to_a_reader_that_reads() {
    for buffers in ["8MiB", "64MiB"] {
        let lines = [&b"first\n"[..], &[b'x'; 9 << 20], b"\nlast\n"].concat();
        let (echoed, output) = echo_of(&lines, &["--buffers", buffers]);
        assert_eq!((echoed, said(&output).as_str()), (vec![5, 9 << 20, 4, 0], ""));
        assert_eq!(output.status.code(), Some(0));
    }
}

#[test]
fn a_line_that_is_too_long_for_the_echo_is_left_out_for_that_and_no_other_is() {
    let long = b"x".repeat(33 << 20);
    let (echoed, output) = echo_of(&[&b"first\n"[..], &long, b"\nlast\n"].concat(), &[]);
    let told = said(&output);
    assert_eq!((echoed, output.status.code()), (vec![5, 4, 0], Some(1)), "{told}");
    let amount = format!("1 lines were not echoed to stdout ({} bytes)", long.len() + 1);
    assert!(told.contains(&amount) && told.contains("longer than 32 MiB"), "{told}");
}

#[test]
fn a_signal_does_not_hide_that_something_was_not_echoed() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("s.log");
    let mut tee = tee(&file, &["--echo", "--grace", "60m"]).spawn().expect("inkstone");
    drop(tee.stdout.take());
    let mut stdin = tee.stdin.take().expect("a pipe");
    stdin.write_all(b"one\n").expect("written");
    wait_until("a line", || text(&file) == "one\n");
    signal("-TERM", tee.id());
    // After it has handled the signal, by which it would have ended with 130.
    wait_until("the signal is taken", || pending_signals(&tee) == 0);
    drop(stdin);
    let output = tee.wait_with_output().expect("its end");
    assert!(said(&output).contains("1 lines were not echoed"), "{}", said(&output));
    assert_eq!(output.status.code(), Some(1));
}

/// The signals that a process has not taken yet.
fn pending_signals(tee: &Child) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", tee.id())).expect("its status");
    let mask = status.lines().find_map(|line| line.strip_prefix("ShdPnd:")).expect("a mask");
    u64::from_str_radix(mask.trim(), 16).expect("a number")
}
