//! A writer that is killed with SIGKILL at random moments, and an outside witness who knows what it was told.
//!
//! *Owns*: the rounds, and what they add up to. *May not touch*: the insides of the log.
//!
//! The writer is a process of its own. It tells each append's intent before it, and its acknowledgement after it, on a pipe; so
//! what it has told survives it. After each kill the witness opens the log and reads all of it: nothing acknowledged is
//! missing, each thread's records are in its order, whole, none twice, none that was not intended, a batch all or not at all; and
//! what an earlier opening has shown is still there. Then the next writer goes on with the same log.
//!
//! **A kill is no loss of power**: what was written and not synced stays in the page cache, and the next opening finds it. So this
//! shows the order of things inside the process (nothing is acknowledged before it is written, a half-done change of segments or
//! cut or close is taken up again, locks are free), and nothing about syncs: those are for the simulated disk ([`crate::sim`]) and
//! for real file systems.

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
use inkstone_io::Capabilities;
use inkstone_io::host::WorkDir;

pub use self::plan::{Lie, Manner, Round, Trigger};
pub use self::record::Id;
pub use self::told::Told;
pub use self::victim::WriterCommand;
use self::witness::Witness;
pub use self::writer::write;
use crate::certificate::{Certificate, Class, Violation, kernel};
use crate::keep::keep;

/// With more records than this the witness gives up the front itself, so that a round stays short.
const RECORDS_MAX: u64 = 3000;
/// Until a first opening was seen.
const OPENING_AT_FIRST: Duration = Duration::from_millis(5);

/// What is to be done.
#[derive(Debug, Clone)]
pub struct KillOptions {
    /// Where the log is to be: a directory of its own is made in it, and removed.
    pub directory: PathBuf,
    /// How many writers are killed.
    pub rounds: u32,
    /// Decides what each round does; the moments are the machine's too.
    pub seed: u64,
    /// How a writer is started.
    pub writer: WriterCommand,
    /// The command that does the same again.
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

/// What the rounds add up to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Figures {
    /// Writers that were killed; not those that had ended before.
    pub kills: u64,
    /// Of these such as had not yet said that the log was open.
    pub kills_before_open: u64,
    /// Acknowledgements that were told.
    pub acknowledgements: u64,
    /// Records read back after kills.
    pub records: u64,
    /// Of these such as an earlier opening had shown.
    pub records_again: u64,
    /// Of these such as had been acknowledged by LSN, and no opening had shown before.
    pub records_acknowledged: u64,
    /// Openings that found something behind the log's end.
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
/// Something that is no promise of the log: a directory or process that is not to be had, a writer that hangs or fails.
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
    let classes =
        classes.map(|(name, states)| Class { name: (*name).to_owned(), states: *states, ..Class::default() });
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
        certificate.not_run.push(format!("{} of {} rounds: stopped", options.rounds - done, options.rounds));
    }
    Ok(KillOutcome { certificate, figures: run.figures })
}

struct Run<'a> {
    options: &'a KillOptions,
    path: PathBuf,
    witness: Witness,
    /// How long the last opening took that was seen.
    opening: Duration,
    classes: BTreeMap<&'static str, u64>,
    figures: Figures,
}

impl Run<'_> {
    /// The promise that was broken, if one was.
    fn round(&mut self, round: &Round) -> Result<Option<String>, String> {
        let ended = victim::run(&self.options.writer, &self.path, round, self.opening)?;
        self.opening = ended.opening.unwrap_or(self.opening);
        let report = &ended.report;
        self.figures.kills += u64::from(ended.was_killed);
        self.figures.kills_before_open += u64::from(ended.was_killed && !report.is_open);
        self.figures.acknowledgements += report.acknowledgements;
        self.figures.refused += u64::from(ended.was_refused);
        // A plan is met or missed: what happened is what counts.
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

    /// What was broken, with the log as it was found.
    fn violation(&self, round: &Round, what: &str) -> Violation {
        let name = format!("inkstone-kill-broken-seed-{}-round-{}", self.options.seed, round.number);
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
