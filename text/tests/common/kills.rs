//! Kills at random moments, and checking what they left: for a test, and for the example that makes
//! more kills.
//!
//! The victim's four threads write lines as fast as they can. After each accepted line its number
//! is stored in a word of memory that outlives the process ([`StageFile`]), without a system call.
//! Lines up to that number were accepted and must be in the log after the next start. One more line
//! may be there, whose number was not stored yet.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use inkstone_appender::{Guard, LogWriter, Rotation, Survive};
use inkstone_io::{StageFile, StageLayout};

const THREADS: usize = 4;
const BOARD: StageLayout = StageLayout { head_bytes: 4096, buffer_bytes: 4096, buffers: THREADS };
/// The word of the board that says how many lines were accepted.
const ACCEPTED: usize = 7;

/// The counts of some rounds.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Seen {
    pub(crate) kills: u64,
    pub(crate) lines: u64,
    /// Kills after which the next start had something to append.
    pub(crate) recovered: u64,
    pub(crate) recovered_bytes: u64,
    pub(crate) rotations: u64,
}

fn open(path: &Path) -> (LogWriter, Guard) {
    LogWriter::builder(path)
        .survive(Survive::Kill)
        .buffers_bytes(512 << 10)
        .buffer_bytes(32 << 10)
        .flush_every(Duration::from_millis(2))
        .rotate(Rotation::new().at_bytes(4 << 20))
        .open()
        .expect("opened")
}

/// 120 bytes; every thousandth is longer than two buffers.
fn line(thread: usize, number: u64, text: &mut Vec<u8>) {
    let bytes = if number % 1000 == 999 { 70_000 } else { 120 };
    text.clear();
    write!(text, "thread {thread} line {number} ").expect("memory");
    text.resize(bytes - 5, b'a' + (number % 26) as u8);
    text.extend_from_slice(b" end\n");
}

fn board(path: &Path) -> PathBuf {
    let name = path
        .parent()
        .and_then(Path::file_name)
        .expect("a directory")
        .to_string_lossy()
        .into_owned();
    PathBuf::from(format!("/dev/shm/inkstone-kills-{}", name.trim_start_matches('.')))
}

/// Writes until it is killed. `first` has the number of each thread's first line.
pub(crate) fn victim(path: &Path, first: [u64; THREADS]) {
    let board = StageFile::open(&board(path)).expect("a board").expect("free");
    let (_board, words) = board.into_buffers(BOARD, b"").expect("memory");
    let (log, _guard) = open(path);
    std::thread::scope(|scope| {
        for (thread, mut word) in words.into_iter().enumerate() {
            let mut log = log.clone();
            scope.spawn(move || {
                let mut text = Vec::new();
                for number in first[thread].. {
                    line(thread, number, &mut text);
                    log.write_all(&text).expect("accepted");
                    word.set_word(ACCEPTED, number + 1);
                    if number == first[thread] && thread == 0 {
                        println!("ready");
                    }
                }
            });
        }
    });
}

/// Starts victims with `command`, which gets the path and the first numbers after its own
/// arguments; kills them, reopens the log and checks it.
pub(crate) fn rounds(
    directory: &Path,
    kills: u64,
    command: impl Fn(&str, &str) -> Command,
) -> Seen {
    let path = directory.join("a.log");
    let mut seen = Seen::default();
    let mut first = [0; THREADS];
    for round in 0..kills {
        kill_one(&path, first, &command);
        let (_log, guard) = open(&path);
        let bytes = guard.recovery().map_or(0, |recovery| recovery.bytes);
        guard.close().expect("closed");
        seen.kills += 1;
        seen.recovered += u64::from(bytes > 0);
        seen.recovered_bytes += bytes;
        let files = files(directory);
        seen.rotations += files.len() as u64 - 1;
        let accepted = accepted(&path);
        let mut next = first;
        for file in &files {
            judge(&std::fs::read(file).expect("text"), &mut next, round);
            std::fs::remove_file(file).expect("removed");
        }
        for thread in 0..THREADS {
            let accepted = accepted[thread].max(first[thread]);
            let is_all = next[thread] == accepted || next[thread] == accepted + 1;
            assert!(
                is_all,
                "round {round}, thread {thread}: {accepted} accepted, {} in the log",
                next[thread]
            );
            seen.lines += next[thread] - first[thread];
        }
        first = next;
    }
    std::fs::remove_file(board(&path)).expect("the board");
    seen
}

fn kill_one(path: &Path, first: [u64; THREADS], command: &impl Fn(&str, &str) -> Command) {
    let first = first.map(|number| number.to_string()).join(",");
    let path = path.to_str().expect("text");
    let mut victim = command(path, &first)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("a victim");
    let mut out = BufReader::new(victim.stdout.take().expect("its output"));
    let mut said = String::new();
    while !said.contains("ready") {
        said.clear();
        assert!(out.read_line(&mut said).expect("its output") > 0, "the victim ended by itself");
    }
    let wait = Duration::from_micros(fastrand::u64(0..20_000));
    let since = Instant::now();
    while since.elapsed() < wait {
        std::thread::yield_now();
    }
    victim.kill().expect("killed");
    victim.wait().expect("its end");
}

/// The log's files, oldest first.
fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).expect("a directory").flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().into_string().expect("text")).collect();
    names.sort_by_key(|name| {
        let mut parts = name.split('.').skip(2);
        let stamp = parts.next().map(str::to_owned);
        (
            stamp.is_none(),
            stamp,
            parts.next().map(|number| number.parse::<u64>().expect("a number")),
        )
    });
    names.into_iter().map(|name| directory.join(name)).collect()
}

fn accepted(path: &Path) -> [u64; THREADS] {
    let board = StageFile::open(&board(path)).expect("a board").expect("free");
    let bytes = board.read().expect("read");
    std::array::from_fn(|thread| {
        let at = BOARD.words_at(thread) + ACCEPTED * 8;
        u64::from_ne_bytes(*bytes[at..].first_chunk::<8>().expect("a word"))
    })
}

/// Checks that each line is whole, and the next of its thread.
fn judge(text: &[u8], next: &mut [u64; THREADS], round: u64) {
    let mut wanted = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let thread = usize::from(rest.get(7).copied().unwrap_or_default().wrapping_sub(b'0'));
        assert!(
            thread < THREADS,
            "round {round}: no line: {:?}",
            String::from_utf8_lossy(&rest[..rest.len().min(80)])
        );
        line(thread, next[thread], &mut wanted);
        let Some(behind) = rest.strip_prefix(wanted.as_slice()) else {
            let found = String::from_utf8_lossy(&rest[..rest.len().min(200)]);
            panic!(
                "round {round}, thread {thread}: line {} was expected, found {found:?}",
                next[thread]
            );
        };
        next[thread] += 1;
        rest = behind;
    }
}

/// The numbers that [`rounds`] gives a victim.
pub(crate) fn numbers(text: &str) -> [u64; THREADS] {
    let mut numbers = text.split(',').map(|number| number.parse().expect("a number"));
    std::array::from_fn(|_| numbers.next().expect("one for each thread"))
}
