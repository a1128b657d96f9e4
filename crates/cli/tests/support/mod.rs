//! The command and its directories, for the tests of logs.

#![allow(dead_code, reason = "each test file uses some of it")]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The command, with the signals as a shell leaves them: the tests themselves may run under
/// `nohup`, and ignored signals stay ignored.
pub(crate) fn inkstone() -> Command {
    let mut command = Command::new("env");
    command.args(["--default-signal=HUP,INT,TERM", env!("CARGO_BIN_EXE_inkstone")]);
    command.env_remove("NO_COLOR").env_remove("COLUMNS").env("LC_ALL", "C.UTF-8");
    command
}

/// Copies the command for a user who cannot reach it where it is. Another process does it: if this
/// one had the copy open for writing, a child that another test starts at that moment would have it
/// open too, and until it becomes another program nobody could execute the copy.
pub(crate) fn copy_the_command(to: &Path) {
    let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_inkstone")).arg(to).status();
    assert!(copied.expect("cp").success());
}

pub(crate) fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory")
}

/// Runs the command in `directory` with `input` on its stdin.
pub(crate) fn run_with(directory: &Path, arguments: &[&str], input: &[u8]) -> Output {
    let mut child = spawn(directory, arguments);
    let mut stdin = child.stdin.take().expect("a pipe");
    std::thread::scope(|scope| {
        // A thread of its own: the command prints while it reads.
        scope.spawn(move || {
            // It may end before it has read everything.
            let _ = stdin.write_all(input);
        });
        child.wait_with_output().expect("an end")
    })
}

pub(crate) fn run(directory: &Path, arguments: &[&str]) -> Output {
    run_with(directory, arguments, b"")
}

pub(crate) fn spawn(directory: &Path, arguments: &[&str]) -> Child {
    inkstone()
        .current_dir(directory)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command runs")
}

/// Runs it; it must succeed with nothing on stderr. Returns what it printed.
pub(crate) fn good(directory: &Path, arguments: &[&str], input: &[u8]) -> Vec<u8> {
    let output = run_with(directory, arguments, input);
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    assert_eq!(text(&output.stderr), "", "{arguments:?}");
    output.stdout
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub(crate) fn json(bytes: &[u8]) -> serde_json::Value {
    serde_json::from_slice(bytes).expect("JSON and nothing else")
}

pub(crate) fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill").args([name, &child.id().to_string()]).status().expect("kill");
    assert!(sent.success());
}

/// Waits until the condition holds.
pub(crate) fn until(mut is_so: impl FnMut() -> bool) {
    let begun = std::time::Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < std::time::Duration::from_secs(600), "it does not come");
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
}

/// Runs `jobs`, a few of them at a time, since they mostly wait for a disk. Returns their results,
/// in order.
///
/// # Panics
/// If one of them does.
pub(crate) fn side_by_side<T: Sync, R: Send>(jobs: &[T], run: impl Fn(&T) -> R + Sync) -> Vec<R> {
    const AT_ONCE: usize = 6;
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(job) = jobs.get(number) else { return done };
            done.push((number, run(job)));
        }
    };
    let mut done: Vec<(usize, R)> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..AT_ONCE.min(jobs.len())).map(|_| scope.spawn(work)).collect();
        let ended = workers.into_iter().map(std::thread::ScopedJoinHandle::join);
        ended
            .flat_map(|done| done.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    });
    done.sort_unstable_by_key(|(number, _)| *number);
    done.into_iter().map(|(_, result)| result).collect()
}

/// Files of segments, lowest first.
pub(crate) fn segments(log: &Path) -> Vec<PathBuf> {
    let entries =
        std::fs::read_dir(log).expect("the log").map(|entry| entry.expect("an entry").path());
    let mut files: Vec<_> =
        entries.filter(|path| path.extension().is_some_and(|name| name == "ink")).collect();
    files.sort();
    files
}

/// Every byte of a directory's files, by name.
pub(crate) fn snapshot(directory: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let entries = std::fs::read_dir(directory)
        .expect("the directory")
        .map(|entry| entry.expect("an entry").path());
    let mut files: Vec<_> =
        entries.map(|path| (path.clone(), std::fs::read(path).expect("a file"))).collect();
    files.sort();
    files
}

/// Flips a bit of the first byte of `what` in the file.
pub(crate) fn damage(file: &Path, what: &[u8]) -> u64 {
    let mut bytes = std::fs::read(file).expect("the file");
    let at = bytes.windows(what.len()).position(|window| window == what).expect("it is in there");
    bytes[at] ^= 1;
    std::fs::write(file, bytes).expect("written");
    at as u64
}

/// A real result with made-up times, so that nothing depends on this machine's noise: every way
/// takes the same time, except one that takes ten times as long, if `slowed` names it.
pub(crate) fn with_times(mut result: serde_json::Value, slowed: Option<&str>) -> String {
    for way in result["tables"][0]["ways"].as_array_mut().expect("ways") {
        if !way["missing"].is_null() {
            continue;
        }
        let slow = if slowed.is_some_and(|name| way["name"] == name) { 10 } else { 1 };
        let one = way["rounds"][0].clone();
        let rounds = (0..10_u64).map(|number| {
            let mut round = one.clone();
            round["number"] = number.into();
            round["commits"] = 100.into();
            round["total_ns"] = (slow * (10_000_000 + number % 3 * 100_000)).into();
            round
        });
        way["rounds"] = rounds.collect();
    }
    result.to_string()
}
