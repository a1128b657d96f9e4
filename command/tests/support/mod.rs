//! Starting the command, feeding it, sending it signals, waiting for it, and reading what it said.
//!
//! *Owns*: the process, its directories and its surroundings. *May not touch*: what must be in a
//! log.

#![allow(dead_code, unused_imports, reason = "each test program uses some of it")]

use std::fmt::Display;
use std::io::{PipeReader, PipeWriter, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

pub(crate) use inkstone_host::not_run;

/// Longer than any wait here, also on a busy machine.
pub(crate) const LONG: Duration = Duration::from_secs(120);

/// A way of measuring that takes no time.
pub(crate) const WRITE: &str = "lab write --size 64KiB --rounds 1 --bill-commits 0 --quiet";

/// A line of arguments: one text whose words are separated by blanks, or a list, whose words may
/// have blanks in them.
pub(crate) trait Words {
    fn words(&self) -> Vec<String>;
}

impl Words for &str {
    fn words(&self) -> Vec<String> {
        self.split_whitespace().map(str::to_owned).collect()
    }
}

impl Words for String {
    fn words(&self) -> Vec<String> {
        self.as_str().words()
    }
}

impl Words for &[&str] {
    fn words(&self) -> Vec<String> {
        self.iter().map(|word| (*word).to_owned()).collect()
    }
}

impl<const COUNT: usize> Words for &[&str; COUNT] {
    fn words(&self) -> Vec<String> {
        self.as_slice().words()
    }
}

/// The command, with the signals as a shell leaves them: the tests themselves may run under
/// `nohup`, and ignored signals stay ignored.
pub(crate) fn inkstone() -> Command {
    behind("env --default-signal=HUP,INT,QUIT,TERM", &[])
}

/// The command started by another, which becomes it: `nohup`, `strace`, a shell. `more`: words of
/// that other which have blanks in them.
pub(crate) fn behind(starter: &str, more: &[&str]) -> Command {
    let mut words = starter.words().into_iter();
    let mut command = Command::new(words.next().expect("a program"));
    command.args(words).args(more).arg(env!("CARGO_BIN_EXE_inkstone"));
    command.env_remove("NO_COLOR").env_remove("COLUMNS").env("LC_ALL", "C.UTF-8");
    piped(command)
}

/// The command as the last words of a line of bash, which may set limits before.
pub(crate) fn in_bash(line: &str) -> Command {
    let line = format!("{line}; exec \"$@\"");
    behind("env --default-signal=HUP,INT,QUIT,TERM bash -c", &[&line, "bash"])
}

fn piped(mut command: Command) -> Command {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// The command with these arguments, in `directory`.
pub(crate) fn command(directory: &Path, arguments: impl Words) -> Command {
    let mut command = inkstone();
    command.current_dir(directory).args(arguments.words());
    command
}

pub(crate) fn spawn(directory: &Path, arguments: impl Words) -> Child {
    command(directory, arguments).spawn().expect("the command runs")
}

/// Gives it the input, which ends then; returns how it ended.
pub(crate) fn fed(mut child: Child, input: &[u8]) -> Output {
    let stdin = child.stdin.take();
    std::thread::scope(|scope| {
        // A thread of its own: the command prints while it reads, and may end before it has read
        // everything.
        scope.spawn(move || stdin.map(|mut stdin| stdin.write_all(input)));
        child.wait_with_output().expect("an end")
    })
}

/// Runs the command in `directory` with `input` on its stdin.
pub(crate) fn run_with(directory: &Path, arguments: impl Words, input: &[u8]) -> Output {
    fed(spawn(directory, arguments), input)
}

pub(crate) fn run(directory: &Path, arguments: impl Words) -> Output {
    run_with(directory, arguments, b"")
}

/// Runs it; it must succeed with nothing on stderr. Returns what it printed.
pub(crate) fn good(directory: &Path, arguments: impl Words, input: &[u8]) -> Vec<u8> {
    let words = arguments.words();
    let output = run_with(directory, arguments, input);
    assert_eq!(code_and_words(&output), (Some(0), String::new()), "{words:?}");
    output.stdout
}

/// The same as JSON.
pub(crate) fn good_json(directory: &Path, arguments: impl Words) -> serde_json::Value {
    json(&good(directory, arguments, b""))
}

/// Runs it; it must end with this code, and its stderr must have these words. Returns its stderr.
pub(crate) fn refused(directory: &Path, arguments: impl Words, code: i32, say: &str) -> String {
    let words = arguments.words();
    let output = run(directory, arguments);
    let told = said(&output);
    assert!(output.status.code() == Some(code) && told.contains(say), "{words:?}, {say:?}: {told}");
    told
}

pub(crate) fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory")
}

/// The names in a directory, in order.
pub(crate) fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).expect("the directory").flatten();
    let mut names: Vec<_> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Copies the command for a user who cannot reach it where it is. Another process does it: if this
/// one had the copy open for writing, a child that another test starts at that moment would have it
/// open too, and until it becomes another program nobody could execute the copy.
pub(crate) fn copy_the_command(to: &Path) {
    let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_inkstone")).arg(to).status();
    assert!(copied.expect("cp").success());
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub(crate) fn json(bytes: &[u8]) -> serde_json::Value {
    serde_json::from_slice(bytes).expect("JSON and nothing else")
}

/// Its output on stderr.
pub(crate) fn said(output: &Output) -> String {
    text(&output.stderr)
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

/// `to`: a process, or with a minus before it a group.
pub(crate) fn signal(name: &str, to: impl Display) {
    let status = Command::new("kill").args([name, "--", &to.to_string()]).status();
    assert!(status.expect("kill").success());
}

/// Waits until the condition holds.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let since = Instant::now();
    while !is_so() {
        assert!(since.elapsed() < LONG, "{what}: not within {LONG:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Waits for its end, and returns how long that took. One that does not end is killed, so that it
/// does not outlive the test.
pub(crate) fn ends(child: &mut Child) -> Duration {
    let since = Instant::now();
    while child.try_wait().expect("asked").is_none() {
        if since.elapsed() > LONG {
            child.kill().and_then(|()| child.wait()).expect("killed");
            panic!("it does not end");
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    since.elapsed()
}

/// A mask of signals of a process (`SigCgt`, `SigIgn`), as the kernel has it.
fn mask(process: u32, name: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

/// Whether a process ignores a signal, by its number.
pub(crate) fn ignores(process: u32, number: u32) -> bool {
    mask(process, "SigIgn") >> (number - 1) & 1 == 1
}

/// Whether the process has become the command, and its handlers for signals are set.
pub(crate) fn listens(process: u32) -> bool {
    const SIGTERM: u32 = 15;
    let name = std::fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
    name.trim() == "inkstone" && mask(process, "SigCgt") >> (SIGTERM - 1) & 1 == 1
}

/// The files that a process has open.
pub(crate) fn open_files(process: u32) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten();
    entries.filter_map(|entry| std::fs::read_link(entry.path()).ok()).collect()
}

/// Its end after this signal, which is sent once its handlers are set.
pub(crate) fn signalled(child: Child, name: &str) -> Output {
    until("it listens", || listens(child.id()));
    signal(name, child.id());
    child.wait_with_output().expect("an end")
}

/// Both ends of a pipe. Nobody can write into it without waiting until it is read.
pub(crate) fn full_pipe() -> (PipeReader, PipeWriter) {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    // Opened again, so that the command gets a descriptor that blocks.
    let path = format!("/proc/self/fd/{}", writer.as_raw_fd());
    let mut filler = not_waiting(Path::new(&path), std::fs::File::options().write(true));
    for piece in [&[b' '; 4096][..], b" "] {
        while filler.write_all(piece).is_ok() {}
    }
    (reader, writer)
}

/// A file whose descriptor does not wait.
pub(crate) fn not_waiting(at: &Path, options: &mut std::fs::OpenOptions) -> std::fs::File {
    // O_NONBLOCK of Linux on the machines that this is built for.
    const O_NONBLOCK: i32 = 0o4000;
    options.custom_flags(O_NONBLOCK).open(at).expect("opened")
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

/// So many records as lines: `record 000001`, and so on, each with a filler behind it.
pub(crate) fn lines(numbers: std::ops::RangeInclusive<u64>, filler: &str) -> Vec<u8> {
    numbers.flat_map(|number| (line(number, filler) + "\n").into_bytes()).collect()
}

pub(crate) fn line(number: u64, filler: &str) -> String {
    format!("record {number:06}{filler}")
}

/// Files of segments, lowest first.
pub(crate) fn segments(log: &Path) -> Vec<PathBuf> {
    let files = names(log).into_iter().filter(|name| name.ends_with(".ink"));
    files.map(|name| log.join(name)).collect()
}

/// Every byte of a directory's files, by name.
pub(crate) fn snapshot(directory: &Path) -> Vec<(String, Vec<u8>)> {
    let read = |name: String| {
        let bytes = std::fs::read(directory.join(&name)).expect("a file");
        (name, bytes)
    };
    names(directory).into_iter().map(read).collect()
}

/// Flips a bit of the first byte of `what` in the file, and says where.
pub(crate) fn damage(file: &Path, what: &str) -> u64 {
    let mut bytes = std::fs::read(file).expect("the file");
    let at = bytes.windows(what.len()).position(|window| window == what.as_bytes());
    let at = at.expect("it is in there");
    bytes[at] ^= 1;
    std::fs::write(file, bytes).expect("written");
    at as u64
}
