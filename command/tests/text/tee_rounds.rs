//! `inkstone tee` beside a service at full speed, killed and told to end again and again: each byte
//! that the service handed over is in the log, or lost as docs/text-log.md, "What tee keeps", says,
//! exactly.
//!
//! A few rounds each way; as many as asked: `INKSTONE_TEE_ROUNDS=300 cargo test --release -p
//! inkstone-cli --test text -- tee_rounds:: --nocapture --test-threads 1`
//!
//! The service is this program again. Before each write of at most a page (which is atomic in a
//! pipe) it stores its position after the write, and after it that it is there: so what it has
//! handed over is known even when it is killed.

use std::fs::File;
use std::io::{self, PipeReader, Read as _, Write as _};
use std::ops::RangeInclusive;
use std::os::fd::AsFd as _;
use std::os::unix::fs::FileExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::support::{side_by_side, signal, until};
use crate::with_tee::all_text;

const PROGRESS: &str = "INKSTONE_TEE_SERVICE";
const PAGE: usize = 4096;
const LINE_BYTES_MAX: usize = 10 + 120 + 1;
/// The service ended in order.
const IN_ORDER: i32 = 40;

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

/// The service, in a process of its own. It writes to stderr, since the test runner prints to
/// stdout.
#[test]
fn service() {
    let Some(path) = std::env::var_os(PROGRESS) else { return };
    let told = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT] {
        signal_hook::flag::register(signal, Arc::clone(&told)).expect("a handler");
    }
    let progress = File::create(path).expect("its place");
    let mut out = File::from(io::stderr().as_fd().try_clone_to_owned().expect("a descriptor"));
    let (mut lines, mut done) = (Lines::default(), 0_u64);
    let mut write = |bytes: usize| {
        let page = lines.next(bytes);
        progress.write_all_at(&(done + bytes as u64).to_le_bytes(), 8).expect("stored");
        out.write_all(&page).expect("the pipe is open");
        done += bytes as u64;
        progress.write_all_at(&done.to_le_bytes(), 0).expect("stored");
    };
    let mut round = 0;
    while !told.load(Ordering::Relaxed) {
        // Mostly whole pages, as buffered output is, and sometimes less.
        write(if round % 5 == 0 { 1 + round * 131 % PAGE } else { PAGE });
        round += 1;
    }
    for step in 0..5 {
        std::thread::sleep(Duration::from_millis(1));
        write(1 + step * 17);
    }
    std::process::exit(IN_ORDER);
}

/// A service, the tee that writes its lines, and the pipe between them.
struct Pair {
    directory: tempfile::TempDir,
    tee: Child,
    service: Child,
    /// Kept open so that unread bytes can be checked, and the service never finds a closed pipe.
    pipe: Option<PipeReader>,
    arguments: Vec<&'static str>,
}

fn tee(directory: &Path, arguments: &[&str], stdin: impl Into<Stdio>) -> Command {
    let mut command = crate::with_tee::tee(&directory.join("logs/s.log"), arguments);
    command.stdin(stdin).stdout(Stdio::null());
    command
}

fn a_moment() {
    std::thread::sleep(Duration::from_micros(fastrand::u64(..12_000)));
}

impl Pair {
    fn start(arguments: &[&'static str], holds_pipe: bool) -> Self {
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
        let (reader, writer) = io::pipe().expect("a pipe");
        let pipe = holds_pipe.then(|| reader.try_clone().expect("a descriptor"));
        let mut tee = tee(directory.path(), arguments, reader);
        let tee = tee.process_group(0).spawn().expect("inkstone");
        // As for tee: where the tests run under `nohup`, no hangup would end it.
        let mut service = Command::new("env");
        service.arg("--default-signal=HUP,INT,TERM");
        service.arg(std::env::current_exe().expect("this program"));
        service.args(["--exact", "tee_rounds::service", "--nocapture"]);
        service.env(PROGRESS, directory.path().join("progress"));
        service.process_group(i32::try_from(tee.id()).expect("a number"));
        service.stdin(Stdio::null()).stdout(Stdio::null()).stderr(writer);
        let service = service.spawn().expect("a service");
        let pair = Self { directory, tee, service, pipe, arguments: arguments.to_vec() };
        until("a line", || std::fs::metadata(pair.path()).is_ok_and(|facts| facts.len() > 0));
        a_moment();
        pair
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("logs/s.log")
    }

    fn signal_tee(&self, name: &str) {
        signal(name, self.tee.id());
    }

    fn signal_service(&self, name: &str) {
        signal(name, self.service.id());
    }

    fn signal_both(&self, name: &str) {
        signal(name, -i64::from(self.tee.id()));
    }

    /// Whether the service ended in order, and between which positions is the end of what it handed
    /// over.
    fn handed_over(&mut self) -> (bool, RangeInclusive<usize>) {
        let ended = self.service.wait().expect("its end");
        let mut progress = [0; 16];
        let file = File::open(self.directory.path().join("progress")).expect("its place");
        let _ = file.read_at(&mut progress, 0).expect("its progress");
        let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
        let [done, intended] = [&progress[..8], &progress[8..]]
            .map(|bytes| usize::try_from(number(bytes)).expect("small"));
        let in_order = ended.code() == Some(IN_ORDER);
        assert!(in_order || ended.code().is_none(), "the service met a closed pipe: {ended}");
        assert!(!in_order || done == intended);
        (in_order, done..=intended)
    }

    /// How tee ended, and its output on stderr.
    fn ended(&mut self) -> (Option<i32>, String) {
        let mut told = String::new();
        self.tee.stderr.take().expect("a pipe").read_to_string(&mut told).expect("text");
        (self.tee.wait().expect("its end").code(), told)
    }

    /// Tee ended without a message but that for who pressed Ctrl-C. A signal that came only after
    /// the end of its input is not in its exit code.
    fn ended_well(&mut self) {
        let (code, told) = self.ended();
        let is_well = told.lines().all(|line| line.starts_with("inkstone: SIGINT: stdin is read"));
        assert!(matches!(code, Some(0 | 130)) && is_well, "{code:?} {told}");
    }

    /// Another tee at the same pipe, or at an empty one.
    fn start_again(&mut self, stdin: impl Into<Stdio>) {
        let mut tee = tee(self.directory.path(), &self.arguments, stdin);
        self.tee = tee.spawn().expect("inkstone");
    }

    /// All that is in the log's files, oldest first. No line may be cut by a new one.
    fn log(&self) -> Vec<u8> {
        let texts = all_text(&self.path());
        let (_, before) = texts.split_last().expect("the log");
        let is_whole = |text: &&String| text.is_empty() || text.ends_with('\n');
        assert!(before.iter().all(|text| is_whole(&text)), "a file ends inside a line");
        texts.concat().into_bytes()
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        for child in [&mut self.tee, &mut self.service] {
            let _ = child.kill().and_then(|()| child.wait());
        }
    }
}

/// Runs this as often as asked; it gives the bytes that are in the log, those lost outside the
/// pipe, and those left in the pipe.
fn rounds(way: &str, run: impl Fn(u32) -> [usize; 3]) {
    let rounds: u32 =
        std::env::var("INKSTONE_TEE_ROUNDS").map_or(4, |rounds| rounds.parse().expect("a number"));
    let (mut all, mut most, mut lossy) = (0, [0, 0], 0);
    for round in 0..rounds {
        let [bytes, lost, in_pipe] = run(round);
        (all, lossy) = (all + bytes, lossy + u32::from(lost > 0));
        most = [most[0].max(lost), most[1].max(in_pipe)];
    }
    eprintln!(
        "{way}: {rounds} rounds, {all} bytes in the log; lost outside the pipe: in {lossy} rounds, \
         at most {}; left in the pipe: at most {}",
        most[0], most[1]
    );
}

/// Ends a pair in some way: the log has everything that was handed over, and nothing else.
fn loses_nothing(rotate: &[&'static str], way: &str, end: impl Fn(&Pair, u32)) {
    rounds(way, |round| {
        // Several ways to keep lines and to rotate, one after the other.
        let survive: &[&'static str] = match round % 3 {
            0 => &[],
            1 => &["--survive", "kill"],
            _ => &["--survive", "power-loss", "--sync-every", "20ms"],
        };
        let rotate = if round.is_multiple_of(2) { rotate } else { &[] };
        let mut pair = Pair::start(&[&["--grace", "2m"], survive, rotate].concat(), false);
        end(&pair, round);
        let (_, handed_over) = pair.handed_over();
        pair.ended_well();
        let log = pair.log();
        assert!(handed_over.contains(&log.len()), "{} of {handed_over:?}", log.len());
        assert!(log == stream(log.len()), "the log is not what was handed over");
        [log.len(), 0, 0]
    });
}

fn term_or_int(round: u32) -> &'static str {
    if round % 4 == 3 { "-INT" } else { "-TERM" }
}

/// How a pair ends, in a round.
type End = fn(&Pair, u32);

#[test]
fn no_end_of_tee_or_of_the_service_loses_anything_that_was_handed_over() {
    let ways: [(&str, End); 6] = [
        ("TERM or INT to both", |pair, round| pair.signal_both(term_or_int(round))),
        // As `timeout` sends it: to the process and to its group.
        ("TERM to tee and to both", |pair, _| {
            let mut twice = Command::new("sh");
            twice.args(["-c", "kill -TERM $1; kill -TERM -$1", "sh", &pair.tee.id().to_string()]);
            assert!(twice.status().expect("sh").success());
        }),
        ("TERM or INT to the service", |pair, round| pair.signal_service(term_or_int(round))),
        ("TERM or INT to tee, the service ends within the grace", |pair, round| {
            pair.signal_tee(term_or_int(round));
            a_moment();
            pair.signal_service("-TERM");
        }),
        ("KILL of the service", |pair, _| pair.signal_service("-KILL")),
        // It ends the service, which has no handler for it, and makes tee reopen the log.
        ("HUP to both, or to the service", |pair, round| {
            if round % 2 == 0 { pair.signal_both("-HUP") } else { pair.signal_service("-HUP") }
        }),
    ];
    side_by_side(&ways, |(way, end)| loses_nothing(&["--rotate-size", "1MiB"], way, end));
}

#[test]
fn hangups_of_tee_lose_nothing() {
    loses_nothing(&[], "HUP to tee, three times", |pair, _| {
        let at = pair.path();
        for number in 0..3 {
            let moved = format!("s.log.moved.{number}");
            std::fs::rename(&at, at.with_file_name(moved)).expect("moved");
            pair.signal_tee("-HUP");
            until("the log", || at.exists());
        }
        pair.signal_both("-TERM");
    });
}

#[test]
fn term_to_tee_and_a_service_that_does_not_end_loses_nothing_but_what_is_in_the_pipe() {
    rounds("TERM to tee, the service goes on", |round| {
        let grace = if round % 2 == 0 { "0s" } else { "20ms" };
        let survive = if round % 4 < 2 { "kill" } else { "nothing" };
        let mut pair = Pair::start(&["--grace", grace, "--survive", survive], true);
        pair.signal_tee("-TERM");
        let (code, told) = pair.ended();
        let is_told = told.contains("did not end in time");
        assert_eq!((code, is_told), (Some(130), round % 2 == 1), "{told}");
        pair.signal_service("-KILL");
        let (_, handed_over) = pair.handed_over();
        let (log, rest) = (pair.log(), rest_of(pair.pipe.take()));
        let all = [log.as_slice(), &rest].concat();
        assert!(handed_over.contains(&all.len()), "{} of {handed_over:?} bytes", all.len());
        assert!(all == stream(all.len()), "the log and the pipe are not what was handed over");
        [log.len(), 0, rest.len()]
    });
}

/// The unread bytes, when no writer is left.
fn rest_of(pipe: Option<PipeReader>) -> Vec<u8> {
    let mut rest = Vec::new();
    pipe.expect("it was held").read_to_end(&mut rest).expect("its rest");
    rest
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

/// Kills tee, and starts another with its pipe, as a supervisor does that has kept the pipe.
fn kill_of_tee(survive: &'static str, lost_most: usize) -> [usize; 3] {
    let mut pair = Pair::start(&["--grace", "2m", "--survive", survive], true);
    pair.signal_tee("-KILL");
    assert_eq!(pair.ended(), (None, String::new()));
    let pipe = pair.pipe.take().expect("it is held");
    pair.start_again(pipe);
    a_moment();
    pair.signal_service("-TERM");
    let (in_order, handed_over) = pair.handed_over();
    let (code, told) = pair.ended();
    assert!(in_order && code == Some(0) && !told.contains("not written"), "{code:?} {told}");
    let log = pair.log();
    let lost = gap_behind_half(&log, &stream(*handed_over.end()));
    let lost = lost.expect("one piece is missing at most");
    assert!(lost <= lost_most, "{lost} bytes are lost");
    [log.len(), lost, 0]
}

fn kill_or_power_loss(round: u32) -> &'static str {
    if round.is_multiple_of(2) { "kill" } else { "power-loss" }
}

#[test]
fn a_kill_of_tee_loses_nothing() {
    rounds("KILL of tee, another takes over the pipe", |round| {
        kill_of_tee(kill_or_power_loss(round), 0)
    });
}

#[test]
fn a_kill_of_a_tee_that_survives_nothing_loses_its_buffers_and_one_read() {
    rounds("KILL of tee, --survive nothing, another takes over the pipe", |_| {
        kill_of_tee("nothing", (8 << 20) + (64 << 10))
    });
}

#[test]
fn a_kill_of_both_loses_no_more_than_the_pipe() {
    rounds("KILL of both", |round| {
        let mut pair = Pair::start(&["--survive", kill_or_power_loss(round)], true);
        pair.signal_both("-KILL");
        let (_, handed_over) = pair.handed_over();
        assert_eq!(pair.ended(), (None, String::new()));
        pair.start_again(Stdio::null());
        let (code, told) = pair.ended();
        assert!(code == Some(0) && !told.contains("not written"), "{code:?} {told}");
        let (log, rest) = (pair.log(), rest_of(pair.pipe.take()));
        let all = [log.as_slice(), &rest].concat();
        // The service's last write was done or not: a page of the pipe is there, or it is not.
        let ends = [*handed_over.start(), *handed_over.end()];
        let gaps = ends.iter().filter_map(|bytes| gap(&all, &stream(*bytes)));
        assert_eq!(gaps.min(), Some(0), "{} of {ends:?} bytes", all.len());
        [log.len(), 0, rest.len()]
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
    assert!(all.split(|byte| *byte == b'\n').all(|line| line.len() < LINE_BYTES_MAX));
}
