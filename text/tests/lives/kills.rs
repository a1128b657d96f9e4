//! Kills at random moments, with `Survive::Kill`: after the next start no line is lost, doubled or
//! torn. A few; as many as asked: `INKSTONE_KILLS=300 cargo test --release -p inkstone-appender
//! --test lives -- kills:: --nocapture`
//!
//! This program starts itself as the victim. Its four threads write lines as fast as they can.
//! After each accepted line its number is stored in a word of memory that outlives the process
//! ([`StageFile`]), without a system call. Lines up to that number were accepted and must be in the
//! log after the next start. One more line may be there, whose number was not stored yet.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::{LINE, SHM, files, line, place, threads_of, turn};
use inkstone_appender::{Guard, LogWriter, Rotation, Survive};
use inkstone_io::{StageFile, StageLayout};

const PATH: &str = "INKSTONE_TEST_VICTIM";
const FIRST: &str = "INKSTONE_TEST_VICTIM_FIRST";
const THREADS: usize = 4;
const BOARD: StageLayout = StageLayout { head_bytes: 4096, buffer_bytes: 4096, buffers: THREADS };
/// The word of the board that says how many lines were accepted.
const ACCEPTED: usize = 7;

fn open(path: &Path) -> (LogWriter, Guard) {
    let builder = LogWriter::builder(path).buffers_bytes(512 << 10).buffer_bytes(32 << 10);
    let builder = builder.survive(Survive::Kill).flush_every(Duration::from_millis(2));
    builder.rotate(Rotation::new().at_bytes(4 << 20)).open().expect("opened")
}

/// Every thousandth is longer than two buffers.
fn bytes_of(_: usize, number: u64) -> usize {
    if number % 1000 == 999 { 70_000 } else { LINE }
}

fn board(path: &Path) -> PathBuf {
    let directory = path.parent().and_then(Path::file_name).expect("a directory");
    let name = directory.to_string_lossy();
    PathBuf::from(format!("{SHM}/inkstone-kills-{}", name.trim_start_matches('.')))
}

/// Not a test by itself: the process that is started and killed. It gets the number of each
/// thread's first line.
#[test]
fn victim() {
    let Some(path) = std::env::var_os(PATH).map(PathBuf::from) else { return };
    let first = std::env::var(FIRST).expect("its first numbers");
    let first = first.split(',').map(|number| number.parse().expect("a number"));
    let mut board = StageFile::create(&board(&path)).expect("a board");
    let words = board.make_buffers(BOARD, b"").expect("memory");
    let (log, _guard) = open(&path);
    std::thread::scope(|scope| {
        for ((thread, mut word), first) in words.into_iter().enumerate().zip(first) {
            let mut log = &log;
            scope.spawn(move || {
                for number in first.. {
                    let line = line(thread, number, bytes_of(thread, number));
                    log.write_all(line.as_bytes()).expect("accepted");
                    word.set_word(ACCEPTED, number + 1);
                    if number == first && thread == 0 {
                        println!("ready");
                    }
                }
            });
        }
    });
}

#[test]
fn kills_lose_double_and_tear_nothing() {
    let Some(_turn) = turn("kills") else { return };
    let kills: u64 =
        std::env::var("INKSTONE_KILLS").map_or(20, |kills| kills.parse().expect("a number"));
    let (directory, path) = place();
    let (mut first, mut recovered, mut recovered_bytes, mut rotations) = ([0; THREADS], 0, 0, 0);
    for round in 0..kills {
        kill_one(&path, first);
        let (_log, guard) = open(&path);
        let bytes = guard.recovery().map_or(0, |recovery| recovery.bytes);
        guard.close().expect("closed");
        (recovered, recovered_bytes) = (recovered + u64::from(bytes > 0), recovered_bytes + bytes);
        let mut next = first;
        let files = files(directory.path(), "a.log");
        rotations += files.len() - 1;
        let text: String = files.iter().map(|(_, text)| text.as_str()).collect();
        let (found, others) = threads_of(&text, bytes_of);
        assert!(others.is_empty(), "round {round}: {others:?}");
        for (next, found) in next.iter_mut().zip(found) {
            let behind = *next + found.len() as u64;
            assert!(found.into_iter().eq(*next..behind), "round {round}: lines are missing");
            *next = behind;
        }
        for (name, _) in files {
            std::fs::remove_file(directory.path().join(name)).expect("removed");
        }
        let accepted = accepted(&path);
        for (thread, next) in next.into_iter().enumerate() {
            let accepted = accepted[thread].max(first[thread]);
            let is_all = next == accepted || next == accepted + 1;
            assert!(is_all, "round {round}, thread {thread}: {accepted} accepted, {next} there");
        }
        first = next;
    }
    std::fs::remove_file(board(&path)).expect("the board");
    println!(
        "{kills} kills of 4 threads at full speed: {} lines, 0 lost, 0 doubled, 0 torn; \
         {recovered} starts appended {recovered_bytes} bytes; {rotations} rotations",
        first.iter().sum::<u64>()
    );
    assert!(recovered > 0, "no kill left anything: the test does not test");
}

fn kill_one(path: &Path, first: [u64; THREADS]) {
    let _ = std::fs::remove_file(board(path));
    let mut victim = Command::new(std::env::current_exe().expect("this program"));
    victim.args(["--exact", "kills::victim", "--nocapture"]).env(PATH, path);
    victim.env(FIRST, first.map(|number| number.to_string()).join(","));
    let mut victim = victim.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("a victim");
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

fn accepted(path: &Path) -> [u64; THREADS] {
    let bytes = std::fs::read(board(path)).expect("a board");
    std::array::from_fn(|thread| {
        let at = BOARD.words_at(thread) + ACCEPTED * 8;
        u64::from_ne_bytes(*bytes[at..].first_chunk::<8>().expect("a word"))
    })
}
