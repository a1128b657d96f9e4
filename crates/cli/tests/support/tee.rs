//! Starting `inkstone tee` for its tests, sending it signals, and waiting for it.
//!
//! *Owns*: the process and its signals. *May not touch*: what must be in its log.

#![allow(dead_code, reason = "each test file uses some of it")]

use std::fmt::Display;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Longer than any wait here, also on a busy machine.
pub(crate) const LONG: Duration = Duration::from_secs(120);

pub(crate) fn tee(file: &Path, arguments: &[&str]) -> Command {
    // The tests themselves may run under `nohup`, and ignored signals stay ignored.
    let mut command = Command::new("env");
    command.args(["--default-signal=HUP,INT,TERM", env!("CARGO_BIN_EXE_inkstone")]);
    command.arg("tee").arg(file).args(arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

pub(crate) fn start(file: &Path, arguments: &[&str]) -> Child {
    tee(file, arguments).spawn().expect("inkstone")
}

/// `to`: a process, or with a minus before it a group.
pub(crate) fn signal(name: &str, to: impl Display) {
    let status = Command::new("kill").args([name, "--", &to.to_string()]).status();
    assert!(status.expect("kill").success());
}

/// Waits until the condition holds.
pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let since = Instant::now();
    while !is_so() {
        assert!(since.elapsed() < LONG, "{what}: not within {LONG:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The content of a file; empty while there is none.
pub(crate) fn text(file: &Path) -> String {
    std::fs::read_to_string(file).unwrap_or_default()
}

/// Its output on stderr.
pub(crate) fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
