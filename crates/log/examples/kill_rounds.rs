//! Kills a writer at random moments and looks at what is left: `cargo run --release --example kill_rounds -- 300`.
//!
//! The program starts itself as a child. The child opens the log and appends from four threads; each record that it was
//! told to be durable it reports to the parent, over a pipe. The parent, the witness, kills it with SIGKILL at a random
//! moment, opens the log, and checks: every reported record is there, with its content, under its LSN; every record that
//! is there is one that some child appended, whole, once, and in its thread's order. Then it goes on with the same log.
//!
//! A kill leaves the page cache alone, so this proves the log's own order of things; power loss is the simulated disk's.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use inkstone::{Log, Lsn, Options, Verdict};

/// Set for the child: the log's directory and the round.
const CHILD: &str = "INKSTONE_KILL_CHILD";
const THREADS: u8 = 4;
/// A record's first bytes: round, thread, number of the record in that thread. What follows is made from them.
const HEAD_BYTES: usize = 4 + 1 + 4;

fn main() {
    let rounds = std::env::args().nth(1).and_then(|rounds| rounds.parse().ok()).unwrap_or(100);
    run(rounds);
}

/// Runs the rounds and prints what was seen; or is the child.
pub(crate) fn run(rounds: u32) {
    if let Ok(told) = std::env::var(CHILD) {
        let (round, path) = told.split_once(' ').expect("round and path");
        child(Path::new(path), round.parse().expect("a round"));
    }
    let seed = std::env::var("INKSTONE_KILL_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| fastrand::u64(..));
    println!("seed {seed} (again: INKSTONE_KILL_SEED={seed}; the moments are the machine's)");
    let directory = tempfile::tempdir_in(place()).expect("a directory");
    let mut witness = Witness::new(directory.path().join("log"), seed);
    for round in 1..=rounds {
        witness.round(round);
    }
    witness.say();
    assert!(witness.checked > 0, "not one record was acknowledged in {rounds} rounds: nothing was tested");
}

/// On a disk: a temporary directory may be memory.
fn place() -> PathBuf {
    let exe = std::env::current_exe().expect("this program");
    exe.parent().expect("its directory").to_path_buf()
}

fn options() -> Options {
    // Small segments, so that many a kill hits a change of segments.
    Options::new().segment_bytes(256 << 10).record_bytes_max(32 << 10).idle(Duration::from_millis(5))
}

/// The record that a thread appends as its `number`th.
fn record(round: u32, thread: u8, number: u32) -> Vec<u8> {
    let mut random =
        fastrand::Rng::with_seed(u64::from(round) << 40 | u64::from(thread) << 32 | u64::from(number));
    let len = if random.u8(..) < 8 { random.usize(0..20_000) } else { random.usize(0..300) };
    let mut record = Vec::with_capacity(HEAD_BYTES + len);
    record.extend(round.to_le_bytes());
    record.push(thread);
    record.extend(number.to_le_bytes());
    record.extend(std::iter::repeat_with(|| random.u8(..)).take(len));
    record
}

/// What a record says of itself, if it is whole.
fn read_back(bytes: &[u8]) -> Option<(u32, u8, u32)> {
    let round = u32::from_le_bytes(bytes.get(..4)?.try_into().ok()?);
    let thread = *bytes.get(4)?;
    let number = u32::from_le_bytes(bytes.get(5..HEAD_BYTES)?.try_into().ok()?);
    (bytes == record(round, thread, number)).then_some((round, thread, number))
}

/// Appends until it is killed.
fn child(path: &Path, round: u32) -> ! {
    let log = Log::open(path, options()).expect("the child opens the log");
    let out = Mutex::new(std::io::stdout());
    writeln!(out.lock().expect("stdout"), "open").expect("the parent listens");
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (log, out) = (&log, &out);
            scope.spawn(move || {
                for number in 0.. {
                    let record = record(round, thread, number);
                    let lsn = log.append_durable(&record).expect("durable");
                    // One line, one write: a kill leaves whole lines and at most one half.
                    let line = format!("{lsn} {}\n", hex(&record));
                    out.lock().expect("stdout").write_all(line.as_bytes()).expect("the parent listens");
                    if thread == 0 && number % 64 == 63 {
                        let _ = log.truncate_before(Lsn::new(lsn.get().saturating_sub(500)));
                    }
                }
            });
        }
    });
    unreachable!("the threads never end")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Knows what was acknowledged.
struct Witness {
    path: PathBuf,
    random: fastrand::Rng,
    /// Everything reported to be durable, by LSN.
    reported: BTreeMap<u64, String>,
    rounds: u32,
    acknowledged: u64,
    checked: u64,
    read: u64,
    torn: u32,
    not_reported: u64,
    last: u64,
    began: Instant,
}

impl Witness {
    fn new(path: PathBuf, seed: u64) -> Self {
        Self {
            path,
            random: fastrand::Rng::with_seed(seed),
            reported: BTreeMap::new(),
            rounds: 0,
            acknowledged: 0,
            checked: 0,
            read: 0,
            torn: 0,
            not_reported: 0,
            last: 0,
            began: Instant::now(),
        }
    }

    fn round(&mut self, round: u32) {
        let mut child = self.start(round);
        let mut out = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut line = String::new();
        // One in eight is killed while it opens the log.
        if self.random.u8(..) >= 32 {
            out.read_line(&mut line).expect("the child's word");
            assert_eq!(line, "open\n", "round {round}: the child did not open the log");
        }
        // It reports meanwhile: a full pipe would hold it up.
        let reports = std::thread::spawn(move || {
            let mut text = String::new();
            out.read_to_string(&mut text).expect("the child's reports");
            text
        });
        std::thread::sleep(Duration::from_micros(self.random.u64(0..60_000)));
        child.kill().expect("a kill");
        child.wait().expect("its end");
        let reports = reports.join().expect("the reports");
        for report in reports.split_inclusive('\n').filter(|report| report.ends_with('\n')) {
            let Some((lsn, record)) = report.trim_end().split_once(' ') else { continue };
            self.reported.insert(lsn.parse().expect("an LSN"), record.to_owned());
            self.acknowledged += 1;
        }
        self.check(round);
    }

    fn start(&self, round: u32) -> Child {
        Command::new(std::env::current_exe().expect("this program"))
            .env(CHILD, format!("{round} {}", self.path.display()))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the child starts")
    }

    /// Opens the log and holds it against what was reported.
    fn check(&mut self, round: u32) {
        let log = Log::open(&self.path, options()).unwrap_or_else(|error| panic!("round {round}: {error}"));
        self.rounds += 1;
        self.torn += u32::from(log.recovery().verdict == Verdict::Torn);
        let (first, last) = (log.first().get(), log.last().get());
        assert!(last >= self.last, "round {round}: LSN {} was there, and the log ends at {last}", self.last);
        self.last = last;
        // What was given up needs no witness.
        self.reported = self.reported.split_off(&first);
        if let Some((lsn, _)) = self.reported.last_key_value() {
            assert!(*lsn <= last, "round {round}: LSN {lsn} was acknowledged, and the log ends at {last}");
        }
        let mut next = first;
        let mut numbers: BTreeMap<(u32, u8), u32> = BTreeMap::new();
        for shown in log.reader().records(Lsn::new(first)) {
            let shown = shown.unwrap_or_else(|error| panic!("round {round}: {error}"));
            assert_eq!(shown.lsn.get(), next, "round {round}: LSNs are dense");
            let read = read_back(&shown.bytes);
            let (of_round, thread, number) =
                read.unwrap_or_else(|| panic!("round {round}: LSN {next} is no record that was appended"));
            if let Some(before) = numbers.insert((of_round, thread), number) {
                assert_eq!(number, before + 1, "round {round}: LSN {next} is out of its thread's order");
            }
            match self.reported.get(&next) {
                Some(reported) => {
                    assert_eq!(*reported, hex(&shown.bytes), "round {round}: LSN {next} has another content");
                    self.checked += 1;
                }
                None => self.not_reported += 1,
            }
            self.read += 1;
            next += 1;
        }
        assert_eq!(next, last + 1, "round {round}: the log shows its last record");
        // A clean end now and then; mostly the next child finds what a kill left.
        if self.random.u8(..) < 64 { log.close().expect("closed") } else { log.abandon() }
    }

    fn say(&self) {
        println!(
            "{} rounds in {:.1} s: {} acknowledged, {} records read back ({} checked against the witness, {} that the kill kept from being reported), {} torn tails; nothing lost, nothing wrong",
            self.rounds,
            self.began.elapsed().as_secs_f64(),
            self.acknowledged,
            self.read,
            self.checked,
            self.not_reported,
            self.torn
        );
    }
}
