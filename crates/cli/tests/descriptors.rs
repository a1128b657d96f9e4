//! How a command ends with hardly any descriptors, and with an output that is never ready for poll.
//!
//! *Owns*: such surroundings. *May not touch*: what is in a log.

mod support;

use std::fs::File;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use support::{directory, good};

#[test]
fn verify_calls_no_log_damaged_for_want_of_descriptors() {
    let directory = directory();
    good(directory.path(), &["append", "log"], b"one\ntwo\n");
    let mut answers = Vec::new();
    for most in 4..=12 {
        let limited = format!("ulimit -n {most}; exec \"$0\" verify log");
        let mut command = Command::new("bash");
        command
            .args(["-c", &limited, env!("CARGO_BIN_EXE_inkstone")])
            .current_dir(directory.path());
        let code =
            command.stdout(Stdio::null()).stderr(Stdio::null()).status().expect("bash").code();
        // 127: the loader itself had none. 1 would say that the log is damaged.
        assert!(matches!(code, Some(0 | 2 | 127)), "{most}: {code:?}");
        answers.push(code);
    }
    assert_eq!(answers.last(), Some(&Some(0)), "{answers:?}");
}

/// The kernel's log accepts every write, but poll never reports it as ready.
#[test]
fn a_device_that_is_no_terminal_is_written_to_without_waiting() {
    let Ok(kernel_log) = File::options().write(true).open("/dev/kmsg") else {
        let said = "\nNOT RUN: an output that is /dev/kmsg: it cannot be opened for writing here\n";
        return std::io::stderr().write_all(said.as_bytes()).expect("stderr");
    };
    let directory = directory();
    let mut command = Command::new(env!("CARGO_BIN_EXE_inkstone"));
    command
        .args(["verify", "nowhere"])
        .current_dir(directory.path())
        .stdout(Stdio::null())
        .stderr(kernel_log);
    let mut child = command.spawn().expect("inkstone");
    let since = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().expect("a child") {
            break status;
        }
        if since.elapsed() > Duration::from_secs(60) {
            child.kill().expect("killed");
            panic!("it waits for the kernel's log");
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    assert_eq!(status.code(), Some(2));
}
