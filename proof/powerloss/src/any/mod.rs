//! Any log, database or file format: a program that writes, a program that reads, and crashes in
//! between.
//!
//! *Owns*: what the two programs must do, the judgement, the rounds. *May not touch*: where a
//! writer runs and how it crashes ([`Place`]).
//!
//! **The writer** gets a directory. It makes one item after the other durable there. For each it
//! prints one line on stdout when, and only when, the item is durable, and flushes stdout. No two
//! lines are the same. It continues until it is killed, or ends with exit code 0. Started in a
//! directory that an earlier writer has left, it continues after the items that are there.
//!
//! **The reader** gets a directory. It prints the items that it finds, one line each, the same as
//! the writer's, in order, and ends with exit code 0. In an empty directory it prints nothing.
//!
//! **The rule**: after a crash the reader's lines begin with all lines that an earlier reading has
//! shown, followed by all that were acknowledged since: in order, whole, none twice. After those
//! there may be lines that were not acknowledged: items that were in flight.

mod judge;
mod kernel;
mod kill;
mod place;
mod program;

use std::collections::BTreeMap;
use std::fmt;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

pub use self::kernel::{PowerCut, States};
pub use self::kill::Killed;
pub use self::place::{CrashState, Ground, Place};
use self::program::{Lines, Program, Written};
use crate::certificate::{Certificate, Class, Violation, kernel};
use crate::keep::keep;

/// Why a run was not possible. It says nothing about the log under test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AnyError {
    /// One of the two commands cannot be used: it does not start, or prints nothing.
    Command(String),
    /// The lab lacks something else that it needs.
    Other(String),
}

impl fmt::Display for AnyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Command(words) | Self::Other(words)) = self;
        f.write_str(words)
    }
}

impl std::error::Error for AnyError {}

/// What is to be done.
#[derive(Debug, Clone)]
pub struct AnyOptions {
    /// The writer, as the shell takes it; `{dir}` is the directory.
    pub writer: String,
    /// The reader likewise.
    pub reader: String,
    /// How many writers are started.
    pub rounds: u32,
    /// Decides when each is killed; the exact moments depend on the machine.
    pub seed: u64,
    /// A writer is killed after at most this many lines.
    pub lines_max: u32,
    /// How long a writer may be silent, and how long a reader may take.
    pub limit: Duration,
    /// Where broken states are kept.
    pub keep_in: PathBuf,
    /// The command that repeats the run.
    pub command: String,
}

/// What was seen.
#[derive(Debug, Clone)]
pub struct AnyOutcome {
    /// For machines and people.
    pub certificate: Certificate,
    /// Writers that were killed.
    pub kills: u64,
    /// Lines that were acknowledged.
    pub acknowledged: u64,
    /// Lines that had to be there and were read back from crash states.
    pub confirmed: u64,
    /// Lines that were read back although they were not acknowledged.
    pub in_flight: u64,
}

/// Crashes writers until there were enough, a state broke the rule, or `stop` is set.
///
/// # Errors
/// A command that cannot be used, or an error of the place.
pub fn run(
    options: &AnyOptions,
    place: &mut dyn Place,
    stop: &AtomicBool,
) -> Result<AnyOutcome, AnyError> {
    let began = Instant::now();
    let mut run = Run {
        options,
        writer: Program::new("--writer", &options.writer)?,
        reader: Program::new("--reader", &options.reader)?,
        certain: Vec::new(),
        states: BTreeMap::new(),
        broken: Vec::new(),
        kills: 0,
        acknowledged: 0,
        confirmed: 0,
        in_flight: 0,
        first_line: None,
    };
    let mut done = 0;
    while done < options.rounds && run.broken.is_empty() && !stop.load(Ordering::Relaxed) {
        done += 1;
        run.round(done, place)?;
    }
    // A run that was stopped may have ended before the first line.
    if run.acknowledged == 0 && run.broken.is_empty() && !stop.load(Ordering::Relaxed) {
        return Err(AnyError::Command(format!(
            "--writer acknowledged no line in {done} rounds, so nothing was tested: {}",
            options.writer
        )));
    }
    Ok(run.conclude(place, done, began))
}

struct Run<'a> {
    options: &'a AnyOptions,
    writer: Program,
    reader: Program,
    /// What the last reading has shown of the log that the next writer continues.
    certain: Vec<Vec<u8>>,
    /// How many were checked, by name.
    states: BTreeMap<String, u64>,
    broken: Vec<Violation>,
    kills: u64,
    acknowledged: u64,
    confirmed: u64,
    in_flight: u64,
    /// The time from a writer's start to its first line, as seen last.
    first_line: Option<Duration>,
}

impl Run<'_> {
    fn round(&mut self, number: u32, place: &mut dyn Place) -> Result<(), AnyError> {
        let Ground { directory, is_new } = place.ground().map_err(AnyError::Other)?;
        if is_new {
            self.certain.clear();
        }
        let mut rng = fastrand::Rng::with_seed(
            self.options.seed ^ u64::from(number).wrapping_mul(0xA24B_AED4_963E_E407),
        );
        let moment = self.moment(&mut rng);
        let mut told = |lines| place.acknowledged(lines);
        let written = self.writer.write(&directory, &moment, self.options.limit, &mut told)?;
        self.kills += u64::from(written.was_killed);
        self.acknowledged += written.lines.len() as u64;
        self.first_line = written.first_line.or(self.first_line);
        if let Some(why) = &written.failed {
            if is_new && written.lines.is_empty() {
                return Err(AnyError::Command(format!("{why}; it had acknowledged nothing")));
            }
            self.violation(number, &directory, &format!("the writer could not continue: {why}"));
            return Ok(());
        }
        let mut failure = None;
        // Every state of this round is compared with the same lines.
        let certain = std::mem::take(&mut self.certain);
        let mut look = |state: &CrashState| match self.look(number, state, &certain, &written) {
            Ok(()) if self.broken.is_empty() => ControlFlow::Continue(()),
            Ok(()) => ControlFlow::Break(()),
            Err(error) => {
                failure = Some(error);
                ControlFlow::Break(())
            }
        };
        place.states(&mut look).map_err(AnyError::Other)?;
        failure.map_or(Ok(()), Err)
    }

    /// One in four is killed before its first line or soon after.
    fn moment(&self, rng: &mut fastrand::Rng) -> Moment {
        match (rng.u8(..4), self.first_line) {
            (0, Some(first_line)) => {
                Moment { lines: 0, delay: first_line.mul_f64(f64::from(rng.u32(..1500)) / 1000.0) }
            }
            _ => {
                let lines = 1 + rng.u32(..self.options.lines_max);
                Moment { lines, delay: Duration::from_micros(rng.u64(..2000)) }
            }
        }
    }

    fn look(
        &mut self,
        number: u32,
        state: &CrashState,
        certain: &[Vec<u8>],
        written: &Written,
    ) -> Result<(), AnyError> {
        *self.states.entry(state.name.clone()).or_default() += 1;
        let shown = match self.reader.read(&state.directory, self.options.limit)? {
            Lines::Read(lines) => lines,
            Lines::Failed(why) => {
                self.violation(number, &state.directory, &format!("the reader failed: {why}"));
                return Ok(());
            }
        };
        match judge::judge(certain, &written.lines, state.acknowledged, &shown) {
            Ok(judged) => {
                self.confirmed += judged.confirmed;
                self.in_flight += judged.in_flight;
                self.certain = shown;
            }
            Err(what) => self.violation(number, &state.directory, &what),
        }
        Ok(())
    }

    fn violation(&mut self, number: u32, directory: &Path, what: &str) {
        let name = format!("inkstone-any-broken-seed-{}-round-{number}", self.options.seed);
        let kept = match keep(directory, &self.options.keep_in, &name) {
            Ok(kept) => format!("a copy of the directory is in {}", kept.display()),
            Err(error) => format!("the directory could not be copied: {error}"),
        };
        self.broken.push(Violation {
            what: format!("round {number}: {what}; {kept}"),
            command: self.options.command.clone(),
        });
    }

    fn conclude(self, place: &dyn Place, done: u32, began: Instant) -> AnyOutcome {
        let classes = self.states.into_iter();
        let classes = classes.map(|(name, states)| Class { name, states, ..Class::default() });
        let mut not_run = place.not_shown();
        if done < self.options.rounds && self.broken.is_empty() {
            let left = self.options.rounds - done;
            not_run.push(format!("{left} of {} rounds: stopped", self.options.rounds));
        }
        let certificate = Certificate {
            lab: "any".into(),
            inkstone: env!("CARGO_PKG_VERSION").into(),
            kernel: kernel(),
            command: self.options.command.clone(),
            subject: format!(
                "what `{}` writes and `{}` reads",
                self.options.writer, self.options.reader
            ),
            file_system: place.file_system(),
            seed: self.options.seed,
            seeds: 1,
            classes: classes.collect(),
            seconds: began.elapsed().as_secs_f64(),
            violations: self.broken,
            not_run,
        };
        AnyOutcome {
            certificate,
            kills: self.kills,
            acknowledged: self.acknowledged,
            confirmed: self.confirmed,
            in_flight: self.in_flight,
        }
    }
}

/// When a writer is killed: after this many lines, and this long after them.
#[derive(Debug, Clone, Copy)]
struct Moment {
    lines: u32,
    delay: Duration,
}
