//! A load beside company: processes that spin, followers in the same process, other processes that
//! tail the log.
//!
//! *Owns*: the company of each round, and that its followers saw everything. *May not touch*: the
//! load (`load`), a follower's loop (`follow`), the comparison (`crate::stats`).

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::sync::mpsc::channel;
use std::thread;

use inkstone_host::Helper;

use crate::histogram::Recorder;
use crate::pass::Limits;
use crate::result::Round;
use crate::stage::CellError;
use crate::stats::relative;

use super::follow::{self, Seen, Until, follow};
use super::load::{Slice, Task, Worker};
use super::result::{Beside, Followed, LogCounts};
use super::rows::counts;
use super::{BenchPlan, FRAME_BYTES, KEEP_BYTES, Load, refused};

/// What runs beside a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Company {
    /// This many processes that spin.
    Busy(u32),
    /// This many followers, each a thread of the same process.
    Followers(u32),
    /// This many other processes that tail the log.
    Tail(u32),
}

/// More show nothing more.
pub const COUNT_MAX: u32 = 64;

impl Company {
    /// The name of its kind: the option of the command line.
    pub fn kind(self) -> &'static str {
        match self {
            Self::Busy(_) => "busy",
            Self::Followers(_) => "followers",
            Self::Tail(_) => "tail",
        }
    }

    /// How many.
    pub fn count(self) -> u32 {
        match self {
            Self::Busy(count) | Self::Followers(count) | Self::Tail(count) => count,
        }
    }
}

impl fmt::Display for Company {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Busy(1) => f.write_str("1 process that spins"),
            Self::Busy(count) => write!(f, "{count} processes that spin"),
            Self::Followers(1) => f.write_str("1 follower in the same process"),
            Self::Followers(count) => write!(f, "{count} followers in the same process"),
            Self::Tail(1) => f.write_str("1 other process that tails the log"),
            Self::Tail(count) => write!(f, "{count} other processes that tail the log"),
        }
    }
}

/// The program that spins or tails: `PROGRAM ARGUMENTS spin PARENT`, `PROGRAM ARGUMENTS tail PARENT
/// DIR FROM EVERY`.
#[derive(Debug, Clone, Default)]
pub struct Program {
    /// The file.
    pub path: PathBuf,
    /// The first arguments.
    pub arguments: Vec<String>,
}

impl Program {
    /// Starts it. Its parent is the thread that calls this, and it ends with that.
    fn start(&self, verb: &str, arguments: &[OsString]) -> Result<Helper, CellError> {
        let first = self.arguments.iter().map(OsString::from);
        let own = [OsString::from(verb), OsString::from(std::process::id().to_string())];
        Ok(Helper::start(&self.path, first.chain(own).chain(arguments.iter().cloned()))?)
    }
}

/// Records before a load that a follower must see before the clock starts. The group of the second
/// promises the first one, so that another process may read that.
const FIRST_RECORDS: u64 = 2;
/// Where there is company no round truncates anything, so that no follower loses what it has not
/// read. So a round ends after this many bytes.
const ROUND_BYTES: u64 = 64 << 20;

/// All company of one load, through all rounds of a row.
pub(super) struct Arms {
    arms: Vec<Arm>,
    program: Program,
    record_bytes: u64,
    seed: u64,
    random: fastrand::Rng,
}

impl Arms {
    /// Starts the processes that spin; they pause until a round.
    pub(super) fn new(plan: &BenchPlan, load: Load, record_bytes: u64) -> Self {
        let arm = |&company| Arm::new(company, &plan.program, load, record_bytes, plan.seed);
        Self {
            arms: plan.company.iter().map(arm).collect(),
            program: plan.program.clone(),
            record_bytes,
            seed: plan.seed,
            random: fastrand::Rng::with_seed(plan.seed),
        }
    }

    /// The task and the limits of a round, the same for the load alone: nothing is truncated, and
    /// the log does not become too large.
    pub(super) fn fitted<'a>(&self, task: &Task<'a>, limits: Limits) -> (Task<'a>, Limits) {
        if self.arms.is_empty() {
            return (*task, limits);
        }
        let records = ROUND_BYTES / (self.record_bytes + FRAME_BYTES);
        let limits = Limits { commits: limits.commits.min(records), ..limits };
        (Task { keep_bytes: u64::MAX, ..*task }, limits)
    }

    /// Truncates between rounds what the rounds leave.
    ///
    /// # Errors
    /// Those of the log.
    pub(super) fn make_room(&self, task: &Task<'_>) -> Result<(), CellError> {
        if self.arms.is_empty() { Ok(()) } else { task.truncate_to(self.record_bytes, KEEP_BYTES) }
    }

    /// Whether the next round begins with the company, by chance.
    pub(super) fn come_first(&mut self) -> bool {
        self.random.bool()
    }

    /// Runs a round of each, in random order. A failure of company becomes its reason, and it runs
    /// no more.
    ///
    /// # Errors
    /// Ctrl-C; the log does not truncate.
    pub(super) fn round(
        &mut self,
        number: u32,
        task: &Task<'_>,
        limits: Limits,
    ) -> Result<(), CellError> {
        let mut order: Vec<usize> = (0..self.arms.len()).collect();
        self.random.shuffle(&mut order);
        for (turn, index) in order.into_iter().enumerate() {
            self.make_room(task)?;
            if let Some(arm) = self.arms.get_mut(index) {
                // Log and floor have the turns 0 and 1.
                arm.round(number, 2 + turn as u32, task, limits, &self.program)?;
            }
        }
        Ok(())
    }

    /// The figures, compared with the same load alone.
    pub(super) fn finish(self, alone: &[Round]) -> Vec<Beside> {
        let seed = self.seed;
        self.arms.into_iter().map(|arm| arm.finish(alone, seed)).collect()
    }
}

/// One kind of company.
struct Arm {
    company: Company,
    workers: Vec<Worker>,
    spinners: Vec<Helper>,
    rounds: Vec<Round>,
    /// For each follower, everything that it saw.
    followed: Option<Followed>,
    latency: Recorder,
    counts: LogCounts,
    failed: Option<String>,
}

impl Arm {
    fn new(company: Company, program: &Program, load: Load, record_bytes: u64, seed: u64) -> Self {
        let mut arm = Self {
            company,
            workers: Worker::all(load, record_bytes, seed),
            spinners: Vec::new(),
            rounds: Vec::new(),
            followed: (!matches!(company, Company::Busy(_))).then(Followed::default),
            latency: Recorder::new(),
            counts: LogCounts::default(),
            failed: None,
        };
        if let Company::Busy(count) = company {
            match (0..count).map(|_| spinner(program)).collect() {
                Ok(spinners) => arm.spinners = spinners,
                Err(error) => arm.failed = Some(error.reason()),
            }
        }
        arm
    }

    fn round(
        &mut self,
        number: u32,
        turn: u32,
        task: &Task<'_>,
        limits: Limits,
        program: &Program,
    ) -> Result<(), CellError> {
        if self.failed.is_some() {
            return Ok(());
        }
        let before = counts(task.log);
        let done = match self.company {
            Company::Busy(_) => self.beside_spinners(task, limits),
            Company::Followers(count) => self.beside_followers(count, task, limits),
            Company::Tail(count) => self.beside_tails(count, task, limits, program),
        };
        match done {
            Ok(slice) => {
                self.rounds.push(super::rows::round(number, turn, &slice));
                self.counts.add(&counts(task.log).since(&before));
            }
            Err(CellError::Interrupted) => return Err(CellError::Interrupted),
            Err(error) => {
                self.failed = Some(error.reason());
                // None of them spins beside other rounds.
                self.spinners.clear();
            }
        }
        Ok(())
    }

    fn beside_spinners(&mut self, task: &Task<'_>, limits: Limits) -> Result<Slice, CellError> {
        self.spinners.iter().try_for_each(Helper::resume)?;
        let slice = task.run(&mut self.workers, limits);
        self.spinners.iter().try_for_each(Helper::pause)?;
        slice
    }

    fn beside_followers(
        &mut self,
        count: u32,
        task: &Task<'_>,
        limits: Limits,
    ) -> Result<Slice, CellError> {
        let follow_task = follow_task(task);
        let until = Until::open();
        let workers = &mut self.workers;
        let (slice, seen) = thread::scope(|scope| {
            let (tell, told) = channel();
            let start = || {
                let (tell, until, reader) = (tell.clone(), &until, task.log.reader());
                thread::Builder::new().spawn_scoped(scope, move || {
                    // The receiver has left if the load has failed.
                    follow(&reader, &follow_task, until, inkstone_host::thread_usage, || {
                        _ = tell.send(())
                    })
                })
            };
            let started: Result<Vec<_>, _> = (0..count).map(|_| start()).collect();
            drop(tell);
            let mut run = || {
                append_first(task, workers)?;
                // A follower that has failed has dropped its sender; its own error says why.
                (0..count).for_each(|_| _ = told.recv());
                task.run(workers, limits)
            };
            let slice = started.as_ref().map_err(thread_refused).and_then(|_| run());
            until.set(if slice.is_ok() { task.log.last().get() } else { 0 });
            let seen: Vec<_> =
                started.unwrap_or_default().into_iter().map(|thread| thread.join()).collect();
            (slice, seen)
        });
        let slice = slice?;
        for seen in seen {
            let seen = seen.map_err(|_| CellError::Invalid("a follower panicked".into()))?;
            self.note(task, follow_task.from, seen.map_err(CellError::Invalid)?)?;
        }
        Ok(slice)
    }

    fn beside_tails(
        &mut self,
        count: u32,
        task: &Task<'_>,
        limits: Limits,
        program: &Program,
    ) -> Result<Slice, CellError> {
        let follow::Task { from, every } = follow_task(task);
        let arguments = [task.path.into(), from.to_string().into(), every.to_string().into()];
        let tails: Result<Vec<_>, _> =
            (0..count).map(|_| program.start("tail", &arguments)).collect();
        let mut tails = tails?;
        append_first(task, &self.workers)?;
        for tail in &mut tails {
            match tail.answer()?.as_str() {
                "ready" => {}
                why => return Err(CellError::Invalid(format!("a process that tails: {why}"))),
            }
        }
        let slice = task.run(&mut self.workers, limits)?;
        let last = task.log.last().to_string();
        tails.iter_mut().try_for_each(|tail| tail.tell(&last))?;
        for tail in &mut tails {
            let answer = tail.answer()?;
            let seen = serde_json::from_str(&answer)
                .map_err(|_| CellError::Invalid(format!("a process that tails: {answer}")))?;
            self.note(task, from, seen)?;
        }
        Ok(slice)
    }

    /// Adds what one follower saw in a round, which must be everything.
    fn note(&mut self, task: &Task<'_>, from: u64, seen: Seen) -> Result<(), CellError> {
        let appended = task.log.last().get() + 1 - from;
        if seen.records != appended {
            let text = format!("a follower saw {} records of {appended}", seen.records);
            return Err(CellError::Invalid(text));
        }
        let Some(followed) = &mut self.followed else { return Ok(()) };
        followed.records += seen.records - FIRST_RECORDS;
        followed.cpu_ns += seen.cpu_ns;
        self.latency.add(&seen.latency);
        Ok(())
    }

    fn finish(self, alone: &[Round], seed: u64) -> Beside {
        let mut latency = Recorder::new();
        self.workers.iter().for_each(|worker| latency.merge(&worker.latency));
        let seen = self.latency.finish();
        let spun: Option<Vec<u64>> = self.spinners.iter().map(Helper::cpu_ns).collect();
        Beside {
            company: self.company.kind().into(),
            count: self.company.count(),
            failed: self.failed,
            ratio: relative(alone, &self.rounds, seed),
            rounds: self.rounds,
            latency: latency.finish(),
            log: self.counts,
            spun_ns: spun.filter(|spun| !spun.is_empty()).map(|spun| spun.iter().sum()),
            followed: self.followed.map(|followed| Followed { latency: seen, ..followed }),
        }
    }
}

fn spinner(program: &Program) -> Result<Helper, CellError> {
    let mut spinner = program.start("spin", &[])?;
    match spinner.answer()?.as_str() {
        "ready" => spinner.pause()?,
        why => return Err(CellError::Invalid(format!("a process that spins: {why}"))),
    }
    Ok(spinner)
}

/// A follower that does not wait for its records takes the time of some of them: a clock costs as
/// much as a record.
fn follow_task(task: &Task<'_>) -> follow::Task {
    let every = if task.load == Load::Async { 64 } else { 1 };
    follow::Task { from: task.log.last().get() + 1, every }
}

fn append_first(task: &Task<'_>, workers: &[Worker]) -> Result<(), CellError> {
    let record = vec![0; workers.first().map_or(0, Worker::record_bytes)];
    for _ in 0..FIRST_RECORDS {
        task.log.append_durable(&record).map_err(refused)?;
    }
    Ok(())
}

fn thread_refused(error: &std::io::Error) -> CellError {
    CellError::Invalid(format!("a follower's thread: {error}"))
}
