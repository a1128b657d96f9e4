//! The plain ways in which programs write files, without any log: what each loses when the power is
//! cut, on which file system.
//!
//! *Owns*: these ways, what each claims, and the verdict, which comes from judging crash states and
//! from nothing else. *May not touch*: how file systems and crash states are made
//! ([`crate::medium`]).
//!
//! | module | |
//! |---|---|
//! | [`plain`] | the strategies: what each does, step by step, and what it may claim |
//! | `writer` | the process that does one run of a strategy |
//! | `content` | the bytes of each step, and what is left of them |
//! | [`row`] | what was seen of a strategy on a file system |
//!
//! The plainest power loss comes first: right behind an acknowledgement, and nothing unflushed is
//! there. The newest acknowledgements show most, since the older ones may have been written back
//! meanwhile.

pub(crate) mod content;
pub mod plain;
pub mod row;
pub(crate) mod writer;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use self::content::{Left, look};
use self::plain::{Plain, Trial};
use self::row::Row;
use self::writer::DIRECTORY;
use crate::campaign::Campaign;
use crate::certificate::{Certificate, Violation};
use crate::kernel::recording::Recording;
use crate::medium::{Choice, Medium, PowerCut, RunError, State};
use crate::process::Process;
use crate::runner::{self, Lab, Plan, Verdict, Written, replay};
use crate::words::FAILED;

/// States that are taken from one recording; more come from recordings of the next seeds.
const STATES_OF_A_RUN: usize = 60;
pub const STEPS: usize = 8;

/// Runs these strategies, with so many states of each, on each file system. A strategy that is not
/// as claimed is a violation.
pub fn run(
    campaign: &Campaign,
    strategies: &[Plain],
    states: usize,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(&str),
) -> Result<Vec<(Certificate, Vec<Row>)>, RunError> {
    let count = strategies.len();
    let subject = format!("{count} plain strategies, each verdict compared with its claim");
    campaign.on_each("strategies", &subject, stop, |machine, kind, certificate| {
        let mut lab = Strategies {
            campaign,
            states,
            trial: Trial { kind, strategy: strategies[0], seed: campaign.seed, steps: STEPS },
            rows: strategies.iter().map(|strategy| Row::new(kind, *strategy)).collect(),
            at: 0,
            telling: None,
            has_news: false,
        };
        let rounds = lab.runs() * strategies.len() as u64;
        let plan = Plan { rounds, violations_max: usize::MAX, keep_in: None };
        let mut medium = PowerCut::new(machine, kind);
        runner::run(&plan, &mut medium, &mut lab, certificate, stop, progress)?;
        let is_stopped = stop.load(Ordering::Relaxed);
        lab.rows.retain(|row| row.states > 0 || row.not_run.is_some() || !is_stopped);
        certificate.classes.clear();
        lab.rows.iter().for_each(|row| conclude(row, certificate));
        Ok(lab.rows)
    })
}

/// Tells a row in the certificate.
fn conclude(row: &Row, certificate: &mut Certificate) {
    certificate.count(&row.short(), row.states);
    let why = row.not_run.as_ref().map(|why| format!("{}: {why}", row.strategy));
    certificate.not_run.extend(why);
    if !row.is_as_claimed() {
        let what = format!("not as claimed: {row}");
        let command = row.command.clone().unwrap_or_default();
        certificate.violations.push(Violation { what, command });
    }
}

/// Judges a state of a run.
pub(crate) fn left(trial: &Trial, state: &State<'_>) -> Result<Left, String> {
    let acked = acked(trial, state.heard);
    let mut left = look(trial, &state.directory.join(DIRECTORY), acked)?;
    // What e2fsck found without a name.
    let strays = std::fs::read_dir(state.directory.join("lost+found")).map_or(0, Iterator::count);
    if strays > 0 && left.missing() > 0 {
        left.words.push_str(&format!("; {strays} files in lost+found"));
    }
    Ok(left)
}

/// How many steps were acknowledged when so many lines were heard: the first line says that the
/// writer is ready.
fn acked(trial: &Trial, heard: usize) -> usize {
    heard.saturating_sub(1).min(trial.steps)
}

struct Strategies<'a> {
    campaign: &'a Campaign,
    /// Of each strategy.
    states: usize,
    trial: Trial,
    rows: Vec<Row>,
    /// The row that is filled.
    at: usize,
    /// The recording that shows most of the row, and its seed.
    telling: Option<(u64, Recording)>,
    /// Another state of the row shows most since the last recording.
    has_news: bool,
}

impl Strategies<'_> {
    /// Recordings of each strategy.
    fn runs(&self) -> u64 {
        self.states.div_ceil(STATES_OF_A_RUN) as u64
    }

    /// Records a run of the strategy; returns after how many requests the writer was ready.
    fn record(&mut self, medium: &mut PowerCut<'_>, stop: &AtomicBool) -> Result<usize, String> {
        let trial = self.trial;
        let words = trial.to_string();
        let directory = medium.ground(&words)?.directory.join(DIRECTORY);
        let mut process = Process::of(&self.campaign.program, &directory, &words)?;
        let (mut ready, mut failed) = (None, None);
        medium.hear_all(&mut process, stop, |line, medium| {
            ready.get_or_insert_with(|| medium.requests());
            failed = line.strip_prefix(FAILED).map(|why| format!("the writer:{why}"));
        })?;
        medium.stop_recording();
        drop(process);
        // What a kill of the process left, while the machine kept running.
        let after_kill = look(&trial, &directory, trial.steps);
        medium.crash()?;
        if let Some(why) = failed {
            return Err(why);
        }
        let row = &mut self.rows[self.at];
        row.lost_at_kill = row.lost_at_kill.max(after_kill?.missing());
        Ok(ready.unwrap_or(0))
    }

    fn command(&self, seed: u64, recording: &Recording, state: Option<&str>) -> String {
        let Trial { kind, strategy, .. } = self.trial;
        let again = format!(
            "inkstone powerloss strategies --fs {kind} --strategy {strategy} --seed {seed}"
        );
        let Some(parent) = &self.campaign.keep_in else { return again };
        // The kernel's timing does not follow from the seed.
        match recording.save_in(parent, &format!("strategy-{kind}-{strategy}-{seed}")) {
            Ok(path) => replay(&path, state),
            Err(why) => format!("{again} (the recording could not be kept: {why})"),
        }
    }

    fn add(&mut self, state: &State<'_>, found: Result<Left, String>) -> Verdict {
        let place = state.place.as_ref();
        let place = place.map(|(entry, subset)| format!("--entry {entry} --subset {subset}"));
        let acked = acked(&self.trial, state.heard);
        let row = &mut self.rows[self.at];
        let before = row.telling_state().map(str::to_owned);
        row.add(place.unwrap_or_default(), state.is_plainest, acked, found);
        self.has_news |= row.telling_state() != before.as_deref();
        Verdict::Held
    }
}

impl Lab<PowerCut<'_>> for Strategies<'_> {
    fn write(
        &mut self,
        round: u64,
        medium: &mut PowerCut<'_>,
        stop: &AtomicBool,
    ) -> Result<Written, RunError> {
        self.at = (round / self.runs()) as usize;
        let run = round % self.runs();
        self.trial.strategy = self.rows[self.at].strategy;
        self.trial.seed = self.campaign.seed + run;
        let states = (self.states - run as usize * STATES_OF_A_RUN).min(STATES_OF_A_RUN);
        let choice = match self.record(medium, stop) {
            Ok(from) => {
                let plainest = states.div_ceil(2).min(STEPS + 1);
                let (sampled, seed) = (states - plainest, self.trial.seed);
                Some(Choice { plainest, sampled, from, again_every: 0, seed })
            }
            Err(why) => {
                self.rows[self.at].not_run = Some(why);
                None
            }
        };
        Ok(Written { choice, broken: Vec::new() })
    }

    fn judge(&mut self, state: &State<'_>) -> Result<Verdict, RunError> {
        Ok(self.add(state, left(&self.trial, state)))
    }

    fn is_dead(&mut self, state: &State<'_>, why: String) -> Verdict {
        self.add(state, Err(why))
    }

    fn words(&self) -> String {
        self.trial.to_string()
    }

    fn again(&self, _: Option<&Path>, _: Option<&str>) -> String {
        self.campaign.command.clone()
    }

    fn is_over(&mut self, medium: &mut PowerCut<'_>) -> Option<String> {
        let has_news = std::mem::take(&mut self.has_news);
        if has_news || self.telling.is_none() {
            self.telling = Some((self.trial.seed, medium.recording.clone()));
        }
        if self.trial.seed + 1 < self.campaign.seed + self.runs() {
            return None;
        }
        let row = &self.rows[self.at];
        if let (Some((seed, recording)), true) = (self.telling.take(), row.has_news()) {
            let command = self.command(seed, &recording, row.telling_state());
            self.rows[self.at].command = Some(command);
        }
        Some(self.rows[self.at].to_string())
    }
}
