//! `inkstone tee` beside a service at full speed, killed and told to end again and again: each byte
//! that the service handed over is in the log, or lost as the table "What is kept" in docs/tee.md
//! says, exactly.
//!
//! A few rounds each way; as many as asked: `INKSTONE_TEE_ROUNDS=300 cargo test --release -p
//! inkstone-cli --test text -- tee_rounds:: --nocapture --test-threads 1`
//!
//! The service is this program again. Before each write of at most a page (which is atomic in a
//! pipe) it stores its position after the write, and after it that it is there: so what it has
//! handed over is known even when it is killed.

use std::fs::File;
use std::io::{self, PipeReader, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::FileExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const PROGRESS: &str = "INKSTONE_TEE_SERVICE";
const ROUNDS: &str = "INKSTONE_TEE_ROUNDS";
const PAGE: usize = 4096;
const LONG: Duration = Duration::from_secs(120);
/// The service ended in order.
const IN_ORDER: i32 = 40;

fn rounds() -> u32 {
    std::env::var(ROUNDS).map_or(4, |rounds| rounds.parse().expect("a number of rounds"))
}

/// The lines of a service, as one stream: each has its number and a length of its own.
#[derive(Default)]
struct Lines {
    number: u64,
    ready: Vec<u8>,
}

const LINE_BYTES_MAX: usize = 10 + 120 + 1;

impl Lines {
    fn fill(&mut self, bytes: usize) {
        while self.ready.len() < bytes {
            let filler = usize::try_from(self.number * 37 % 120).expect("small");
            writeln!(self.ready, "{:09} {:x<filler$}", self.number, "").expect("memory");
            self.number += 1;
        }
    }

    /// The next bytes, lines cut or not.
    fn next(&mut self, bytes: usize) -> Vec<u8> {
        self.fill(bytes);
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
    arguments: Vec<String>,
}

fn log(directory: &Path) -> PathBuf {
    directory.join("logs/s.log")
}

fn tee(directory: &Path, arguments: &[String], stdin: impl Into<Stdio>) -> Command {
    // The tests themselves may run under `nohup`, and ignored signals stay ignored.
    let mut command = Command::new("env");
    command.args(["--default-signal=HUP,INT,TERM", env!("CARGO_BIN_EXE_inkstone")]);
    command.arg("tee").arg(log(directory)).args(arguments).stdin(stdin);
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    command
}

impl Pair {
    fn start(arguments: &[&str], holds_pipe: bool) -> Self {
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
        let arguments: Vec<String> =
            arguments.iter().map(|&argument| argument.to_owned()).collect();
        let (reader, writer) = io::pipe().expect("a pipe");
        let pipe = holds_pipe.then(|| reader.try_clone().expect("a descriptor"));
        let tee =
            tee(directory.path(), &arguments, reader).process_group(0).spawn().expect("inkstone");
        // As for tee: where the tests run under `nohup`, no hangup would end it.
        let mut service = Command::new("env");
        service
            .arg("--default-signal=HUP,INT,TERM")
            .arg(std::env::current_exe().expect("this program"));
        service
            .args(["--exact", "tee_rounds::service", "--nocapture"])
            .env(PROGRESS, directory.path().join("progress"));
        service.process_group(i32::try_from(tee.id()).expect("a number"));
        let service = service
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(writer)
            .spawn()
            .expect("a service");
        let pair = Self { directory, tee, service, pipe, arguments };
        let since = Instant::now();
        while std::fs::metadata(log(pair.directory.path())).map_or(0, |facts| facts.len()) == 0 {
            assert!(since.elapsed() < LONG, "no line has come");
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_micros(fastrand::u64(..12_000)));
        pair
    }

    fn signal(&self, name: &str, to: i64) {
        let sent = Command::new("kill").args([name, "--", &to.to_string()]).status().expect("kill");
        assert!(sent.success(), "{name} {to}");
    }

    fn signal_tee(&self, name: &str) {
        self.signal(name, i64::from(self.tee.id()));
    }

    fn signal_service(&self, name: &str) {
        self.signal(name, i64::from(self.service.id()));
    }

    fn signal_both(&self, name: &str) {
        self.signal(name, -i64::from(self.tee.id()));
    }

    /// Whether the service ended in order, and between which positions is the end of what it handed
    /// over.
    fn handed_over(&mut self) -> (bool, usize, usize) {
        let ended = self.service.wait().expect("its end");
        let mut progress = [0; 16];
        let file = File::open(self.directory.path().join("progress")).expect("its place");
        let _ = file.read_at(&mut progress, 0).expect("its progress");
        let number =
            |at: usize| u64::from_le_bytes(progress[at..at + 8].try_into().expect("eight bytes"));
        let number = |at| usize::try_from(number(at)).expect("small");
        let in_order = ended.code() == Some(IN_ORDER);
        assert!(in_order || ended.code().is_none(), "the service met a closed pipe: {ended}");
        (in_order, number(0), number(8))
    }

    /// How tee ended, and its output on stderr.
    fn ended(&mut self) -> (Option<i32>, String) {
        let mut told = String::new();
        self.tee.stderr.take().expect("a pipe").read_to_string(&mut told).expect("text");
        (self.tee.wait().expect("its end").code(), told)
    }

    /// Another tee at the same pipe, or at an empty one.
    fn start_again(&mut self, stdin: impl Into<Stdio>) {
        self.tee = tee(self.directory.path(), &self.arguments, stdin).spawn().expect("inkstone");
    }

    /// All that is in the log's files, oldest first. No line may be cut by a new one.
    fn log(&self) -> Vec<u8> {
        let directory = self.directory.path().join("logs");
        let names = std::fs::read_dir(&directory).expect("the directory");
        let names =
            names.map(|entry| entry.expect("an entry").file_name().into_string().expect("text"));
        let order = |name: &String| {
            let mut parts = name.split('.').skip(2);
            let stamp = parts.next().unwrap_or("~").to_owned();
            (stamp, parts.next().map_or(0, |number| number.parse::<u32>().expect("a number")))
        };
        let mut names: Vec<String> = names.collect();
        names.sort_by_key(order);
        let mut all = Vec::new();
        let last = names.len() - 1;
        for (at, name) in names.iter().enumerate() {
            let bytes = std::fs::read(directory.join(name)).expect("a file");
            assert!(
                at == last || bytes.last().is_none_or(|byte| *byte == b'\n'),
                "{name} ends inside a line"
            );
            all.extend(bytes);
        }
        all
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        for child in [&mut self.tee, &mut self.service] {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The results of one way of ending.
#[derive(Default)]
struct Seen {
    rounds: u32,
    bytes: u64,
    lines: u64,
    /// The most bytes that one round lost, and in how many any were.
    lost_most: usize,
    lost_rounds: u32,
    in_pipe_most: usize,
}

impl Seen {
    fn round(&mut self, bytes: &[u8]) {
        self.rounds += 1;
        self.bytes += bytes.len() as u64;
        self.lines += bytes.iter().filter(|byte| **byte == b'\n').count() as u64;
    }

    fn lost(&mut self, bytes: usize) {
        self.lost_most = self.lost_most.max(bytes);
        self.lost_rounds += u32::from(bytes > 0);
    }

    fn tell(&self, way: &str) {
        eprintln!(
            "{way}: {} rounds, {} lines, {} bytes in the log; bytes lost outside the pipe: in {} rounds, at most {}; left in the \
             pipe: at most {}",
            self.rounds,
            self.lines,
            self.bytes,
            self.lost_rounds,
            self.lost_most,
            self.in_pipe_most
        );
    }
}

/// Several ways to keep lines and to rotate, one after the other.
fn options(round: u32) -> Vec<&'static str> {
    let mut options = vec!["--grace", "2m"];
    match round % 3 {
        0 => {}
        1 => options.extend(["--survive", "kill"]),
        _ => options.extend(["--survive", "power-loss", "--sync-every", "20ms"]),
    }
    if round.is_multiple_of(2) {
        options.extend(["--rotate-size", "1MiB"]);
    }
    options
}

/// Tee ended without a message. A signal that came only after the end of its input is not in its
/// exit code.
fn ended_well(pair: &mut Pair) {
    let (code, told) = pair.ended();
    assert!(matches!(code, Some(0 | 130)) && told.is_empty(), "{code:?} {told}");
}

/// The log has everything that was handed over, and nothing else.
fn check_all(pair: &mut Pair, seen: &mut Seen) {
    let (in_order, done, intended) = pair.handed_over();
    ended_well(pair);
    let log = pair.log();
    assert!((done..=intended).contains(&log.len()), "{} in the log, {done} handed over", log.len());
    assert!(!in_order || done == intended);
    assert!(log == stream(log.len()), "the log is not what was handed over");
    seen.round(&log);
}

#[test]
fn term_or_int_to_the_group_loses_nothing() {
    let mut seen = Seen::default();
    for round in 0..rounds() {
        let mut pair = Pair::start(&options(round), false);
        pair.signal_both(if round % 4 == 3 { "-INT" } else { "-TERM" });
        check_all(&mut pair, &mut seen);
    }
    seen.tell("TERM or INT to both");
}

#[test]
fn term_or_int_to_the_service_loses_nothing() {
    let mut seen = Seen::default();
    for round in 0..rounds() {
        let mut pair = Pair::start(&options(round), false);
        pair.signal_service(if round % 4 == 3 { "-INT" } else { "-TERM" });
        check_all(&mut pair, &mut seen);
    }
    seen.tell("TERM or INT to the service");
}

#[test]
fn term_or_int_to_tee_while_the_service_goes_on_loses_nothing() {
    let mut seen = Seen::default();
    for round in 0..rounds() {
        let mut pair = Pair::start(&options(round), false);
        pair.signal_tee(if round % 4 == 3 { "-INT" } else { "-TERM" });
        std::thread::sleep(Duration::from_micros(fastrand::u64(..12_000)));
        pair.signal_service("-TERM");
        check_all(&mut pair, &mut seen);
    }
    seen.tell("TERM or INT to tee, the service ends within the grace");
}

#[test]
fn term_to_tee_and_a_service_that_does_not_end_loses_nothing_but_what_is_in_the_pipe() {
    let mut seen = Seen::default();
    for round in 0..rounds() {
        let grace = if round % 2 == 0 { "0s" } else { "20ms" };
        let survive = if round % 4 < 2 { "kill" } else { "nothing" };
        let mut pair = Pair::start(&["--grace", grace, "--survive", survive], true);
        pair.signal_tee("-TERM");
        let (code, told) = pair.ended();
        assert_eq!(
            (code, told.contains("did not end in time")),
            (Some(130), round % 2 == 1),
            "{told}"
        );
        pair.signal_service("-KILL");
        let (_, done, intended) = pair.handed_over();
        let log = pair.log();
        let rest = rest_of(pair.pipe.take());
        let all = [log.as_slice(), &rest].concat();
        assert!((done..=intended).contains(&all.len()), "{} of {done} bytes", all.len());
        assert!(all == stream(all.len()), "the log and the pipe are not what was handed over");
        seen.in_pipe_most = seen.in_pipe_most.max(rest.len());
        seen.round(&log);
    }
    seen.tell("TERM to tee, the service goes on");
}

#[test]
fn a_kill_of_the_service_loses_nothing() {
    let mut seen = Seen::default();
    for round in 0..rounds() {
        let mut pair = Pair::start(&options(round), false);
        pair.signal_service("-KILL");
        check_all(&mut pair, &mut seen);
    }
    seen.tell("KILL of the service");
}

#[test]
fn a_hangup_of_both_or_of_the_service_loses_nothing() {
    let mut seen = Seen::default();
    for round in 0..rounds() {
        // A hangup ends the service, which has no handler for it, and makes tee reopen the log.
        let mut pair = Pair::start(&options(round), false);
        if round % 2 == 0 {
            pair.signal_both("-HUP")
        } else {
            pair.signal_service("-HUP")
        }
        check_all(&mut pair, &mut seen);
    }
    seen.tell("HUP to both, or to the service");
}

#[test]
fn hangups_of_tee_lose_nothing() {
    let mut seen = Seen::default();
    for round in 0..rounds() {
        let survive = if round % 2 == 0 { "kill" } else { "nothing" };
        let mut pair = Pair::start(&["--grace", "2m", "--survive", survive], false);
        let at = log(pair.directory.path());
        for number in 0..3 {
            std::fs::rename(&at, at.with_file_name(format!("s.log.moved.{number}")))
                .expect("moved");
            pair.signal_tee("-HUP");
            let since = Instant::now();
            while !at.exists() {
                assert!(since.elapsed() < LONG, "the log was not opened again");
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        pair.signal_both("-TERM");
        let (_, done, intended) = pair.handed_over();
        ended_well(&mut pair);
        assert_eq!(done, intended);
        let log = pair.log();
        assert!(
            log.len() == done && log == stream(done),
            "{} of {done} bytes, in some order",
            log.len()
        );
        seen.round(&log);
    }
    seen.tell("HUP to tee, three times");
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

/// The same of a log that keeps nothing through a kill: a kill within a write leaves half a line
/// there, and the next start ends it.
fn gap_behind_half(all: &[u8], of: &[u8]) -> Option<usize> {
    let same = all.iter().zip(of).take_while(|(one, other)| one == other).count();
    let is_half = same > 0 && all[same - 1] != b'\n' && all.get(same) == Some(&b'\n');
    gap(all, of).or_else(|| is_half.then(|| gap(&[&all[..same], &all[same + 1..]].concat(), of))?)
}

/// The page that was read last, of which not all lines may have been handed to the log, and the
/// beginning of a line before it.
const LOST_MOST: usize = PAGE + LINE_BYTES_MAX;

/// Kills tee, and starts another with its pipe, as a supervisor does that has kept the pipe.
fn kill_of_tee(survive: &str, lost_most: usize, seen: &mut Seen) {
    let mut pair = Pair::start(&["--grace", "2m", "--survive", survive], true);
    pair.signal_tee("-KILL");
    assert_eq!(pair.ended(), (None, String::new()));
    let pipe = pair.pipe.take().expect("it is held");
    pair.start_again(pipe);
    std::thread::sleep(Duration::from_micros(fastrand::u64(..12_000)));
    pair.signal_service("-TERM");
    let (in_order, done, _) = pair.handed_over();
    let (code, told) = pair.ended();
    assert!(in_order && code == Some(0) && !told.contains("not written"), "{code:?} {told}");
    let log = pair.log();
    let missing = if survive == "nothing" { gap_behind_half } else { gap };
    let lost = missing(&log, &stream(done)).expect("one piece is missing at most");
    assert!(lost <= lost_most, "{lost} bytes are lost");
    seen.lost(lost);
    seen.round(&log);
}

#[test]
fn a_kill_of_tee_loses_no_more_than_one_page_that_it_had_read() {
    let mut seen = Seen::default();
    for round in 0..rounds() {
        kill_of_tee(if round % 2 == 0 { "kill" } else { "power-loss" }, LOST_MOST, &mut seen);
    }
    seen.tell("KILL of tee, another takes over the pipe");
}

#[test]
fn a_kill_of_a_tee_that_survives_nothing_loses_its_buffers_and_one_read() {
    let mut seen = Seen::default();
    for _ in 0..rounds() {
        kill_of_tee("nothing", (8 << 20) + (256 << 10) + LINE_BYTES_MAX, &mut seen);
    }
    seen.tell("KILL of tee, --survive nothing, another takes over the pipe");
}

#[test]
fn a_kill_of_both_loses_no_more_than_that_and_the_pipe() {
    let mut seen = Seen::default();
    for round in 0..rounds() {
        let survive = if round % 2 == 0 { "kill" } else { "power-loss" };
        let mut pair = Pair::start(&["--survive", survive], true);
        pair.signal_both("-KILL");
        let (_, done, intended) = pair.handed_over();
        assert_eq!(pair.ended(), (None, String::new()));
        pair.start_again(Stdio::null());
        let (code, told) = pair.ended();
        assert!(code == Some(0) && !told.contains("not written"), "{code:?} {told}");
        let rest = rest_of(pair.pipe.take());
        let log = pair.log();
        let all = [log.as_slice(), &rest].concat();
        // The service's last write was done or not: a page of the pipe is there, or it is not.
        let lost = [done, intended]
            .iter()
            .find_map(|bytes| gap(&all, &stream(*bytes)).filter(|gap| *gap <= LOST_MOST));
        let lost =
            lost.unwrap_or_else(|| panic!("{} and {} of {done} bytes", log.len(), rest.len()));
        seen.lost(lost);
        seen.in_pipe_most = seen.in_pipe_most.max(rest.len());
        seen.round(&log);
    }
    seen.tell("KILL of both");
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
    let mut lines = Lines::default();
    let pieces: Vec<u8> = (0..1000).flat_map(|piece| lines.next(piece % 200)).collect();
    assert!(pieces == stream(pieces.len()));
    assert!(pieces.split(|byte| *byte == b'\n').all(|line| line.len() < LINE_BYTES_MAX));
}
