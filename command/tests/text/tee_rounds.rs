//! `inkstone tee` beside a service at full speed, killed and told to end again and again: each byte
//! that the service handed over is in the log, or lost as docs/text-log.md, "What tee keeps", says,
//! exactly.
//!
//! A few rounds each way; as many as asked: `INKSTONE_TEE_ROUNDS=300 cargo test --release -p
//! inkstone-cli --test text -- tee_rounds:: --nocapture --test-threads 1`
//!
//! The service is a thread of this program: tee knows of a service no more than what is in the
//! pipe, and its end. It writes at most a page at once, which is atomic in a pipe.

use std::io::{self, PipeReader, PipeWriter, Read as _, Write as _};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::support::{side_by_side, signal, until};
use crate::with_tee::all_text;

const PAGE: usize = 4096;

/// The lines of a service, as one stream: each has its number and a length of its own.
#[derive(Default)]
struct Lines {
    number: u64,
    ready: Vec<u8>,
}

impl Lines {
    /// The next bytes, lines cut or not.
    fn next(&mut self, bytes: usize) -> Vec<u8> {
        while self.ready.len() < bytes {
            let filler = usize::try_from(self.number * 37 % 120).expect("small");
            writeln!(self.ready, "{:09} {:x<filler$}", self.number, "").expect("memory");
            self.number += 1;
        }
        let rest = self.ready.split_off(bytes);
        std::mem::replace(&mut self.ready, rest)
    }
}

/// This many bytes of it from its beginning.
fn stream(bytes: usize) -> Vec<u8> {
    Lines::default().next(bytes)
}

/// Writes until it is to end; gives how much it has handed over.
fn serve(mut out: PipeWriter, is_over: &AtomicBool) -> usize {
    let (mut lines, mut done, mut round) = (Lines::default(), 0, 0);
    let mut write = |bytes: usize| {
        out.write_all(&lines.next(bytes)).expect("the pipe is open");
        done += bytes;
    };
    while !is_over.load(Ordering::Relaxed) {
        // Mostly whole pages, as buffered output is, and sometimes less.
        write(if round % 5 == 0 { 1 + round * 131 % PAGE } else { PAGE });
        round += 1;
    }
    // The last words.
    for step in 0..5 {
        std::thread::sleep(Duration::from_millis(1));
        write(1 + step * 17);
    }
    done
}

/// A service, the tee that writes its lines, and the pipe between them.
struct Pair {
    directory: tempfile::TempDir,
    arguments: Vec<&'static str>,
    tee: Child,
    service: JoinHandle<usize>,
    is_over: Arc<AtomicBool>,
    /// Kept open, so that the next tee can have it.
    pipe: PipeReader,
}

fn a_moment() {
    std::thread::sleep(Duration::from_micros(fastrand::u64(..12_000)));
}

impl Pair {
    fn start(arguments: &[&'static str]) -> Self {
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
        let (pipe, writer) = io::pipe().expect("a pipe");
        let arguments = arguments.to_vec();
        let file = directory.path().join("logs/s.log");
        let tee = start(&file, &arguments, pipe.try_clone().expect("a descriptor"));
        let is_over = Arc::new(AtomicBool::new(false));
        let theirs = Arc::clone(&is_over);
        let service = std::thread::spawn(move || serve(writer, &theirs));
        until("a line", || std::fs::metadata(&file).is_ok_and(|facts| facts.len() > 0));
        a_moment();
        Self { directory, arguments, tee, service, is_over, pipe }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("logs/s.log")
    }

    fn signal(&self, name: &str) {
        signal(name, self.tee.id());
    }

    fn end_service(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    /// How tee ended, and its output on stderr.
    fn ended(&mut self) -> (Option<i32>, String) {
        let mut told = String::new();
        self.tee.stderr.take().expect("a pipe").read_to_string(&mut told).expect("text");
        (self.tee.wait().expect("its end").code(), told)
    }

    /// Another tee at the same pipe.
    fn start_again(&mut self) {
        let pipe = self.pipe.try_clone().expect("a descriptor");
        self.tee = start(&self.path(), &self.arguments, pipe);
    }

    /// All that is in the log's files, oldest first. No line may be cut by a new one.
    fn log(&self) -> Vec<u8> {
        let texts = all_text(&self.path());
        let (_, before) = texts.split_last().expect("the log");
        let is_whole = |text: &String| text.is_empty() || text.ends_with('\n');
        assert!(before.iter().all(is_whole), "a file ends inside a line");
        texts.concat().into_bytes()
    }

    /// The service ends; what it has handed over, and what of it is still in the pipe.
    fn handed_over(mut self) -> (Vec<u8>, Vec<u8>) {
        self.end_service();
        let mut rest = Vec::new();
        self.pipe.read_to_end(&mut rest).expect("its rest");
        (stream(self.service.join().expect("no panic")), rest)
    }
}

fn start(file: &std::path::Path, arguments: &[&str], stdin: PipeReader) -> Child {
    let mut command = crate::with_tee::tee(file, arguments);
    command.stdin(stdin).stdout(Stdio::null()).spawn().expect("inkstone")
}

/// Runs this as often as asked.
fn rounds(run: impl Fn(u32)) {
    let rounds = std::env::var("INKSTONE_TEE_ROUNDS").ok();
    (0..rounds.map_or(4, |rounds| rounds.parse().expect("a number"))).for_each(run);
}

fn term_or_int(round: u32) -> &'static str {
    if round % 4 == 3 { "-INT" } else { "-TERM" }
}

/// How a pair ends, in a round.
type End = fn(&Pair, u32);

/// The log has everything that was handed over, and nothing else.
#[test]
fn no_end_of_tee_or_of_the_service_loses_anything_that_was_handed_over() {
    let ways: [End; 5] = [
        |pair, _| pair.end_service(),
        // To both, or to tee alone whose service ends within the grace.
        |pair, round| {
            pair.signal(term_or_int(round));
            a_moment();
            pair.end_service();
        },
        // As `timeout` sends it: to the process and to its group.
        |pair, _| {
            pair.signal("-TERM");
            pair.signal("-TERM");
            pair.end_service();
        },
        |pair, _| {
            pair.signal("-HUP");
            pair.end_service();
        },
        |pair, _| {
            let at = pair.path();
            for number in 0..3 {
                let moved = format!("s.log.moved.{number}");
                std::fs::rename(&at, at.with_file_name(moved)).expect("moved");
                pair.signal("-HUP");
                until("the log", || at.exists());
            }
            pair.end_service();
        },
    ];
    let numbered: Vec<_> = ways.into_iter().enumerate().collect();
    side_by_side(&numbered, |(way, end)| {
        rounds(|round| {
            // Several ways to keep lines and to rotate, one after the other.
            let survive: &[&'static str] = match round % 3 {
                0 => &[],
                1 => &["--survive", "kill"],
                _ => &["--survive", "power-loss", "--sync-every", "20ms"],
            };
            let rotates = round.is_multiple_of(2) && *way < 4;
            let rotate: &[&str] = if rotates { &["--rotate-size", "1MiB"] } else { &[] };
            let mut pair = Pair::start(&[&["--grace", "2m"], survive, rotate].concat());
            end(&pair, round);
            // A signal that came only after the end of its input is not in its exit code.
            let (code, told) = pair.ended();
            let is_well =
                told.lines().all(|line| line.starts_with("inkstone: SIGINT: stdin is read"));
            assert!(matches!(code, Some(0 | 130)) && is_well, "{code:?} {told}");
            let log = pair.log();
            let (handed_over, rest) = pair.handed_over();
            assert_eq!((log.len(), rest.len()), (handed_over.len(), 0), "way {way}");
            assert!(log == handed_over, "the log is not what was handed over: way {way}");
        });
    });
}

#[test]
fn term_to_tee_and_a_service_that_does_not_end_loses_nothing_but_what_is_in_the_pipe() {
    rounds(|round| {
        let grace = if round % 2 == 0 { "0s" } else { "20ms" };
        let survive = if round % 4 < 2 { "kill" } else { "nothing" };
        let mut pair = Pair::start(&["--grace", grace, "--survive", survive]);
        pair.signal("-TERM");
        let (code, told) = pair.ended();
        let is_told = told.contains("did not end in time");
        assert_eq!((code, is_told), (Some(130), round % 2 == 1), "{told}");
        let log = pair.log();
        let (handed_over, rest) = pair.handed_over();
        assert!([log, rest].concat() == handed_over, "round {round}");
    });
}

/// The length of a single gap in the stream; `None`: these bytes are not its beginning and its end.
fn gap(all: &[u8], of: &[u8]) -> Option<usize> {
    let gap = of.len().checked_sub(all.len())?;
    let same = all.iter().zip(of).take_while(|(one, other)| one == other).count();
    (all[same..] == of[same + gap..]).then_some(gap)
}

/// The same behind a kill that left half a line, which the next start ends: what follows may belong
/// to another service.
fn gap_behind_half(all: &[u8], of: &[u8]) -> Option<usize> {
    let same = all.iter().zip(of).take_while(|(one, other)| one == other).count();
    let is_half = all.get(same) == Some(&b'\n');
    gap(all, of).or_else(|| is_half.then(|| gap(&[&all[..same], &all[same + 1..]].concat(), of))?)
}

/// Another one is started with its pipe, as a supervisor does that has kept it.
#[test]
fn a_kill_of_tee_loses_nothing_or_what_a_tee_that_survives_nothing_had_in_memory() {
    let ways = [("kill", 0), ("power-loss", 0), ("nothing", (8 << 20) + (64 << 10))];
    side_by_side(&ways, |(survive, lost_most)| {
        rounds(|_| {
            let mut pair = Pair::start(&["--grace", "2m", "--survive", survive]);
            pair.signal("-KILL");
            assert_eq!(pair.ended(), (None, String::new()));
            pair.start_again();
            a_moment();
            pair.end_service();
            let (code, told) = pair.ended();
            assert!(code == Some(0) && !told.contains("not written"), "{code:?} {told}");
            let log = pair.log();
            let lost = gap_behind_half(&log, &pair.handed_over().0);
            let lost = lost.expect("one piece is missing at most");
            assert!(lost <= *lost_most, "{survive}: {lost} bytes are lost");
        });
    });
}

#[test]
fn the_checks_find_what_they_are_for() {
    let all = stream(100_000);
    assert_eq!((gap(&all, &all), gap(&all[..90_000], &all)), (Some(0), Some(10_000)));
    let hole = [&all[..50_000], &all[51_234..]].concat();
    assert_eq!(gap(&hole, &all), Some(1234));
    let two = [&hole[..20_000], &hole[20_100..]].concat();
    assert_eq!(gap(&two, &all), None);
    let ended = [&all[..50_000], b"\n", &all[51_234..]].concat();
    assert_eq!((gap(&ended, &all), gap_behind_half(&ended, &all)), (None, Some(1234)));
    assert_eq!((gap_behind_half(&hole, &all), gap_behind_half(&two, &all)), (Some(1234), None));
    let doubled = [&all[..50_000], &all[40_000..90_000]].concat();
    assert_eq!(gap(&doubled, &all), None);
}
