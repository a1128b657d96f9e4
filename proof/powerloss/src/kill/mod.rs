//! A writer that is killed with SIGKILL at random moments, and an outside witness that knows what
//! the writer reported.
//!
//! *Owns*: the rounds and their sums. *May not touch*: the insides of the log.
//!
//! The writer is a process of its own. It announces each append on a pipe before it, and reports
//! its acknowledgement after it; so what it has reported survives it. After each kill the witness
//! opens the log and reads all of it: nothing acknowledged is missing; each thread's records are in
//! order, whole, none twice, none that was not announced; a batch is there whole or not at all; and
//! what an earlier opening has shown is still there. Then the next writer continues with the same
//! log.
//!
//! **A kill is not a power loss**: unsynced writes stay in the page cache, and the next opening
//! finds them. So this lab tests the order of steps inside the process (nothing is acknowledged
//! before it is written; an interrupted roll, truncation or close is completed; locks are free),
//! and nothing about syncs: those are tested on the simulated disk ([`crate::sim`]) and on real
//! file systems.

mod plan;
mod record;
mod told;
mod victim;
mod witness;
mod writer;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use inkstone::{Log, Lsn, Verdict};
use inkstone_host::WorkDir;
use inkstone_io::Capabilities;

pub use self::plan::{Lie, Manner, Round, Trigger};
pub use self::record::Id;
pub use self::told::Told;
pub use self::victim::WriterCommand;
use self::witness::Witness;
pub use self::writer::write;
use crate::certificate::{Certificate, Class, Violation, kernel};
use crate::keep::keep;

/// With more records than this the witness truncates the log itself, so that a round stays short.
const RECORDS_MAX: u64 = 3000;
/// Assumed until a first opening was seen.
const OPENING_AT_FIRST: Duration = Duration::from_millis(5);

/// What to run.
#[derive(Debug, Clone)]
pub struct KillOptions {
    /// Where the log's own directory is created, and removed again.
    pub directory: PathBuf,
    /// How many writers are killed.
    pub rounds: u32,
    /// Decides what each round does; the exact moments also depend on the machine.
    pub seed: u64,
    /// How a writer is started.
    pub writer: WriterCommand,
    /// The command that repeats the run.
    pub command: String,
}

/// What was seen.
#[derive(Debug, Clone)]
pub struct KillOutcome {
    /// For machines and people.
    pub certificate: Certificate,
    /// In numbers.
    pub figures: Figures,
}

/// The sums of all rounds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Figures {
    /// Writers that were killed, without those that had ended before.
    pub kills: u64,
    /// Of these, writers that had not yet opened the log.
    pub kills_before_open: u64,
    /// Acknowledgements that writers reported.
    pub acknowledgements: u64,
    /// Records read back after kills.
    pub records: u64,
    /// Of these, records that an earlier opening had shown.
    pub records_again: u64,
    /// Of these, records that were acknowledged by LSN and that no opening had shown before.
    pub records_acknowledged: u64,
    /// Openings that found bytes after the log's end.
    pub torn: u64,
    /// Second openings that were refused while a writer was stopped.
    pub refused: u64,
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} kills ({} before the log was open), {} acknowledgements, {} records read back ({} newly acknowledged, {} shown before), {} torn tails, {} second writers refused",
            self.kills,
            self.kills_before_open,
            self.acknowledgements,
            self.records,
            self.records_acknowledged,
            self.records_again,
            self.torn,
            self.refused
        )
    }
}

/// Kills writers until there were enough, a promise was broken, or `stop` is set.
///
/// # Errors
/// A failure that is not a broken promise: a directory or process that cannot be created, a writer
/// that hangs or fails.
pub fn run(options: &KillOptions, stop: &AtomicBool) -> Result<KillOutcome, String> {
    let began = Instant::now();
    let workdir = WorkDir::create(&options.directory).map_err(|error| error.to_string())?;
    let capabilities = Capabilities::of(workdir.path()).map_err(|error| error.to_string())?;
    let mut run = Run {
        options,
        path: workdir.path().join("log"),
        witness: Witness::new(),
        opening: OPENING_AT_FIRST,
        classes: BTreeMap::new(),
        figures: Figures::default(),
    };
    let mut violations = Vec::new();
    let mut done = 0;
    while done < options.rounds && violations.is_empty() && !stop.load(Ordering::Relaxed) {
        done += 1;
        let round = Round::new(options.seed, done);
        let broken = run.round(&round)?;
        violations.extend(broken.map(|what| run.violation(&round, &what)));
    }
    let classes = run.classes.iter();
    let classes = classes.map(|(name, states)| Class {
        name: (*name).to_owned(),
        states: *states,
        ..Class::default()
    });
    let mut certificate = Certificate {
        lab: "kill".into(),
        inkstone: env!("CARGO_PKG_VERSION").into(),
        kernel: kernel(),
        command: options.command.clone(),
        subject: "the log with 1, 2 and 8 threads, segments of 64 and 256 KiB, padded and not, written by rule and buffered; the page cache survives a kill".into(),
        file_system: capabilities.mount.file_system,
        seed: options.seed,
        seeds: 1,
        classes: classes.collect(),
        seconds: began.elapsed().as_secs_f64(),
        violations,
        not_run: Vec::new(),
    };
    if done < options.rounds && certificate.is_clean() {
        certificate.not_run.push(format!(
            "{} of {} rounds: stopped",
            options.rounds - done,
            options.rounds
        ));
    }
    Ok(KillOutcome { certificate, figures: run.figures })
}

struct Run<'a> {
    options: &'a KillOptions,
    path: PathBuf,
    witness: Witness,
    /// How long the last observed opening took.
    opening: Duration,
    classes: BTreeMap<&'static str, u64>,
    figures: Figures,
}

impl Run<'_> {
    /// Runs a round; returns the broken promise, if there is one.
    fn round(&mut self, round: &Round) -> Result<Option<String>, String> {
        let ended = victim::run(&self.options.writer, &self.path, round, self.opening)?;
        self.opening = ended.opening.unwrap_or(self.opening);
        let report = &ended.report;
        self.figures.kills += u64::from(ended.was_killed);
        self.figures.kills_before_open += u64::from(ended.was_killed && !report.is_open);
        self.figures.acknowledgements += report.acknowledgements;
        self.figures.refused += u64::from(ended.was_refused);
        // The kill may miss its planned moment: what happened counts.
        let class = match round.trigger {
            _ if !ended.was_killed => "ended in order before the kill",
            Trigger::Start if report.is_open => "killed after a time",
            _ => round.class(),
        };
        *self.classes.entry(class).or_default() += 1;
        if ended.broken.is_some() {
            return Ok(ended.broken);
        }
        let log = match Log::open(&self.path, round.options(None)) {
            Ok(log) => log,
            Err(error) => return Ok(Some(format!("the log cannot be opened: {error}"))),
        };
        let looked = match self.witness.look(&log, round.number, report) {
            Ok(looked) => looked,
            Err(what) => {
                log.abandon();
                return Ok(Some(what));
            }
        };
        self.figures.records += looked.records;
        self.figures.records_again += looked.again;
        self.figures.records_acknowledged += looked.acknowledged;
        self.figures.torn += u64::from(log.recovery().verdict == Verdict::Torn);
        self.let_go(log, round)
    }

    /// Mostly the next writer finds what the kill left.
    fn let_go(&mut self, log: Log, round: &Round) -> Result<Option<String>, String> {
        let (first, last) = (log.first().get(), log.last().get());
        if last + 1 - first > RECORDS_MAX {
            let first = last - RECORDS_MAX / 4;
            if let Err(error) = log.truncate_before(Lsn::new(first)) {
                return Ok(Some(format!(
                    "the witness could not truncate the log before LSN {first}: {error}"
                )));
            }
            self.witness.gave_up(first);
        }
        if round.number.is_multiple_of(4) {
            return Ok(log
                .close()
                .err()
                .map(|error| format!("the witness could not close the log: {error}")));
        }
        log.abandon();
        Ok(None)
    }

    /// A violation, with a copy of the log as it was found.
    fn violation(&self, round: &Round, what: &str) -> Violation {
        let name =
            format!("inkstone-kill-broken-seed-{}-round-{}", self.options.seed, round.number);
        let kept = match keep(&self.path, &self.options.directory, &name) {
            Ok(kept) => format!("a copy of the log is in {}", kept.display()),
            Err(error) => format!("the log could not be copied: {error}"),
        };
        Violation {
            what: format!("round {}, {}: {what}; {kept}", round.number, round.class()),
            command: self.options.command.clone(),
        }
    }
}
