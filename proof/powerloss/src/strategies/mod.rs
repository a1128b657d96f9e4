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

use std::sync::atomic::{AtomicBool, Ordering};

use self::content::{Left, look};
use self::plain::{Plain, Trial};
use self::row::Row;
use crate::campaign::Campaign;
use crate::kernel::recording::Recording;
use crate::medium::{Choice, PowerCut, RunError, State};
use crate::result::{RunResult, Violation};
use crate::runner::{self, Lab, Plan, Written, replay};

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
) -> Result<Vec<(RunResult, Vec<Row>)>, RunError> {
    let count = strategies.len();
    let subject = format!("{count} plain strategies, each verdict compared with its claim");
    campaign.on_each("strategies", &subject, stop, |machine, kind, result| {
        let mut lab = Strategies {
            campaign,
            states,
            trial: Trial { kind, strategy: strategies[0], seed: campaign.seed, steps: STEPS },
            rows: strategies.iter().map(|strategy| Row::new(kind, *strategy)).collect(),
            at: 0,
            telling: None,
        };
        let rounds = lab.runs() * strategies.len() as u64;
        let plan = Plan { rounds, violations_max: usize::MAX, keep_in: None };
        let mut medium = PowerCut::new(machine, kind);
        runner::run(&plan, &mut medium, &mut lab, result, stop, progress)?;
        let is_stopped = stop.load(Ordering::Relaxed);
        lab.rows.retain(|row| row.states > 0 || row.not_run.is_some() || !is_stopped);
        result.classes.clear();
        lab.rows.iter().for_each(|row| conclude(row, result));
        Ok(lab.rows)
    })
}

/// Tells a row in the result.
fn conclude(row: &Row, result: &mut RunResult) {
    result.count(&row.short(), row.states);
    let why = row.not_run.as_ref().map(|why| format!("{}: {why}", row.strategy));
    result.not_run.extend(why);
    if !row.is_as_claimed() {
        let what = format!("not as claimed: {row}");
        let command = row.command.clone().unwrap_or_default();
        result.violations.push(Violation { what, command });
    }
}

/// Judges a state of a run.
pub(crate) fn left(trial: &Trial, state: &State<'_>) -> Result<Left, String> {
    let directory = state.up()?;
    let mut left = look(trial, directory, acked(trial, state.heard))?;
    // What e2fsck found without a name.
    let strays = std::fs::read_dir(directory.with_file_name("lost+found"));
    let strays = strays.map_or(0, Iterator::count);
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
    /// The recording that shows most of the row.
    telling: Option<Recording>,
}

impl Strategies<'_> {
    /// Recordings of each strategy.
    fn runs(&self) -> u64 {
        self.states.div_ceil(STATES_OF_A_RUN) as u64
    }

    /// Records a run of the strategy; returns after how many requests the writer was ready.
    fn record(&mut self, medium: &mut PowerCut<'_>, stop: &AtomicBool) -> Result<usize, String> {
        let trial = self.trial;
        let failed = medium.record(&self.campaign.program, &trial.to_string(), stop)?;
        if let Some(why) = failed {
            return Err(format!("the writer: {why}"));
        }
        // What a kill of the process left, while the machine kept running.
        let left = look(&trial, &medium.directory(), trial.steps)?.missing();
        let row = &mut self.rows[self.at];
        row.lost_at_kill = row.lost_at_kill.max(left);
        Ok(medium.recording.lines().first().copied().unwrap_or(0))
    }

    fn command(&self, row: &Row) -> Option<String> {
        let (telling, recording) = (row.telling(), self.telling.as_ref()?);
        let Trial { kind, strategy, .. } = self.trial;
        let seed = telling.map_or(self.trial.seed, |telling| telling.seed);
        let again = format!(
            "inkstone powerloss strategies --fs {kind} --strategy {strategy} --seed {seed}"
        );
        let Some(parent) = &self.campaign.keep_in else { return Some(again) };
        let place = telling.and_then(|telling| telling.place.as_ref()).map(ToString::to_string);
        // The kernel's timing does not follow from the seed.
        Some(match recording.save_in(parent, &format!("strategy-{kind}-{strategy}-{seed}")) {
            Ok(path) => replay(&path, place.as_deref()),
            Err(why) => format!("{again} (the recording could not be kept: {why})"),
        })
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
                Some(Choice { plainest, sampled, from, seed, ..Choice::default() })
            }
            Err(why) => {
                self.rows[self.at].not_run = Some(why);
                None
            }
        };
        Ok(Written { choice, broken: Vec::new() })
    }

    fn judge(&mut self, state: &State<'_>) -> Result<Result<(), String>, RunError> {
        let (trial, acked) = (&self.trial, acked(&self.trial, state.heard));
        let found = left(trial, state);
        self.rows[self.at].add(trial, state.place.clone(), state.is_plainest, acked, found);
        Ok(Ok(()))
    }

    fn words(&self) -> String {
        self.trial.to_string()
    }

    fn again(&self) -> String {
        self.campaign.command.clone()
    }

    fn is_over(&mut self, medium: &mut PowerCut<'_>) -> Option<String> {
        let (row, seed) = (&self.rows[self.at], self.trial.seed);
        let is_telling = row.telling().is_some_and(|telling| telling.seed == seed);
        if is_telling || self.telling.is_none() {
            self.telling = Some(medium.recording.clone());
        }
        if seed + 1 < self.campaign.seed + self.runs() {
            return None;
        }
        let is_told = row.telling().is_some() || !row.is_as_claimed();
        let command = self.command(row).filter(|_| is_told);
        self.telling = None;
        self.rows[self.at].command = command;
        Some(self.rows[self.at].to_string())
    }
}
