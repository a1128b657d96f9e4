//! Starting `inkstone tee` for its tests, sending it signals, and waiting for it.
//!
//! *Owns*: the process and its signals, what it says. *May not touch*: what must be in its log.

#![allow(dead_code, reason = "each test file uses some of it")]

use std::fmt::Display;
use std::io::{PipeReader, PipeWriter, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Longer than any wait here, also on a busy machine.
pub(crate) const LONG: Duration = Duration::from_secs(120);

/// A directory, and the path of a log in it.
pub(crate) fn place() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("s.log");
    (directory, file)
}

/// Prints loudly that a test did not run, past the test harness, which hides what a passing test
/// prints.
pub(crate) fn not_run(test: &str, why: impl Display) {
    let _ = std::io::stderr().write_all(format!("\nNOT RUN: {test}: {why}\n").as_bytes());
}

pub(crate) fn tee(file: &Path, arguments: &[&str]) -> Command {
    // The tests themselves may run under `nohup`, and ignored signals stay ignored.
    let mut command = Command::new("env");
    command.args(["--default-signal=HUP,INT,TERM", env!("CARGO_BIN_EXE_inkstone")]);
    command.arg("tee").arg(file).args(arguments);
    piped(command)
}

/// The same, with files of at most 100 KiB: a disk that is full then. The limit can be raised.
pub(crate) fn limited_tee(file: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new("bash");
    command.args(["-c", "trap '' XFSZ; ulimit -S -f 100; exec \"$@\"", "bash", "env"]);
    command.args(["--default-signal=HUP,INT,TERM", env!("CARGO_BIN_EXE_inkstone")]);
    command.arg("tee").arg(file).args(arguments);
    piped(command)
}

fn piped(mut command: Command) -> Command {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

pub(crate) fn start(file: &Path, arguments: &[&str]) -> Child {
    tee(file, arguments).spawn().expect("inkstone")
}

/// Gives it the input, which ends then; returns how it ended.
pub(crate) fn fed(mut tee: Child, input: &[u8]) -> Output {
    let mut stdin = tee.stdin.take().expect("a pipe");
    std::thread::scope(|scope| {
        // It may end before it has read everything.
        scope.spawn(move || drop(stdin.write_all(input)));
        tee.wait_with_output().expect("its end")
    })
}

/// Writes lines to it.
pub(crate) fn put(tee: &mut Child, bytes: impl AsRef<[u8]>) {
    tee.stdin.as_mut().expect("a pipe").write_all(bytes.as_ref()).expect("it reads");
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

/// Waits for its end, and returns how long that took. One that does not end is killed, so that it
/// does not outlive the test.
pub(crate) fn ends(tee: &mut Child) -> Duration {
    let since = Instant::now();
    while tee.try_wait().expect("asked").is_none() {
        if since.elapsed() > LONG {
            tee.kill().and_then(|()| tee.wait()).expect("killed");
            panic!("it does not end");
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    since.elapsed()
}

/// The content of a file; empty while there is none.
pub(crate) fn text(file: &Path) -> String {
    std::fs::read_to_string(file).unwrap_or_default()
}

pub(crate) fn len(file: &Path) -> u64 {
    std::fs::metadata(file).map_or(0, |facts| facts.len())
}

/// The texts of a log's files, compressed or not, oldest first; the last is the log's own. A link
/// to it does not count.
pub(crate) fn all_text(file: &Path) -> Vec<String> {
    let folder = file.parent().expect("a directory");
    let entries = std::fs::read_dir(folder).expect("listed").flatten();
    let files = entries.map(|entry| entry.path()).filter(|path| !path.is_symlink());
    let mut files: Vec<PathBuf> = files.collect();
    // As text the tenth of a second would come before the second.
    files.sort_by_key(|path| {
        let name = path.file_name().expect("a name").to_string_lossy();
        let mut parts = name.split('.').skip(2).map(str::to_owned);
        let stamp = parts.next().unwrap_or("~".to_owned());
        (stamp, parts.next().and_then(|number| number.parse::<u32>().ok()))
    });
    let read = |path: &PathBuf| {
        if path.extension().is_none_or(|extension| extension != "gz") {
            return std::fs::read_to_string(path).expect("text");
        }
        // The compressed form counts only once its plain one is gone.
        if path.with_extension("").exists() {
            return String::new();
        }
        let output = Command::new("gzip").arg("-dc").arg(path).output().expect("gzip");
        assert!(output.status.success(), "{}: {}", path.display(), said(&output));
        String::from_utf8(output.stdout).expect("text")
    };
    files.iter().map(read).collect()
}

/// Its output on stderr.
pub(crate) fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// How it ended, and its output on stderr.
pub(crate) fn code_and_words(output: &Output) -> (Option<i32>, String) {
    (output.status.code(), said(output))
}

/// The numbers in the message on stderr that has these words.
pub(crate) fn numbers(told: &str, words: &str) -> Vec<u64> {
    let line = told.lines().find(|line| line.contains(words)).unwrap_or_else(|| panic!("{told}"));
    line.split(|other: char| !other.is_ascii_digit()).filter_map(|word| word.parse().ok()).collect()
}

/// A full pipe: writes into it wait until it is read.
pub(crate) fn full_pipe() -> (PipeReader, PipeWriter) {
    const O_NONBLOCK: i32 = 0o4000;
    let (reader, writer) = std::io::pipe().expect("a pipe");
    // Reopened, so that tee gets a descriptor that blocks.
    let path = format!("/proc/self/fd/{}", writer.as_raw_fd());
    let filler = std::fs::OpenOptions::new().write(true).custom_flags(O_NONBLOCK).open(path);
    let mut filler = filler.expect("opened");
    for piece in [&[b' '; 4096][..], b" "] {
        while filler.write_all(piece).is_ok() {}
    }
    (reader, writer)
}
