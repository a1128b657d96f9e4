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

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};

use self::content::{Left, look};
use self::plain::{Plain, Trial};
use self::row::Row;
use crate::campaign::Campaign;
use crate::medium::{Choice, Medium as _, PowerCut, RunError, State};
use crate::result::{RunResult, Violation};
use crate::runner::replay;

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
        let mut medium = PowerCut::new(machine, kind);
        let mut rows = Vec::new();
        for &strategy in strategies {
            let mut row = Row::new(kind, strategy);
            let mut left = states;
            for seed in campaign.seed.. {
                let states = left.min(STATES_OF_A_RUN);
                left -= states;
                if states == 0 || stop.load(Ordering::Relaxed) {
                    break;
                }
                let trial = Trial { kind, strategy, seed, steps: STEPS };
                one(campaign, &mut medium, trial, &mut row, states, stop)?;
            }
            if stop.load(Ordering::Relaxed) {
                break;
            }
            conclude(&row, result);
            progress(&row.to_string());
            rows.push(row);
        }
        Ok(rows)
    })
}

/// Records a run of a strategy, and looks at states of the recording.
fn one(
    campaign: &Campaign,
    medium: &mut PowerCut<'_>,
    trial: Trial,
    row: &mut Row,
    states: usize,
    stop: &AtomicBool,
) -> Result<(), RunError> {
    let recorded = medium.record(&campaign.program, &trial.to_string(), stop);
    if let Some(why) = recorded.unwrap_or_else(Some) {
        row.not_run = Some(format!("the writer: {why}"));
        return Ok(());
    }
    // What a kill of the process left, while the machine kept running.
    let left_by_kill = look(&trial, &medium.directory(), trial.steps)?.missing();
    row.lost_at_kill = row.lost_at_kill.max(left_by_kill);
    let from = medium.recording.lines().first().copied().unwrap_or(0);
    let plainest = states.div_ceil(2).min(STEPS + 1);
    let (sampled, seed) = (states - plainest, trial.seed);
    let choice = Choice { plainest, sampled, from, seed, ..Choice::default() };
    medium.states(&choice, &mut |state| {
        row.add(seed, state.place, left(&trial, state));
        let is_over = stop.load(Ordering::Relaxed);
        Ok(if is_over { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })?;
    if let Some(seen) = row.seen.as_ref().filter(|seen| seen.seed == seed) {
        let Trial { kind, strategy, .. } = trial;
        let again = format!(
            "inkstone powerloss strategies --fs {kind} --strategy {strategy} --seed {seed}"
        );
        let place = seen.place.as_ref().map(ToString::to_string);
        let name = format!("strategy-{kind}-{strategy}-{seed}");
        // The kernel's timing does not follow from the seed.
        let kept = campaign.keep_in.as_ref().map(|parent| medium.recording.save_in(parent, &name));
        row.is_kept = kept.is_some();
        row.command = Some(match kept {
            Some(Ok(path)) => replay(&path, place.as_deref()),
            Some(Err(why)) => format!("{again} (the recording could not be kept: {why})"),
            None => again,
        });
    }
    Ok(())
}

/// Tells a row in the result.
fn conclude(row: &Row, result: &mut RunResult) {
    result.count(&row.short(), row.states);
    let why = row.not_run.as_ref().map(|why| format!("{}: {why}", row.strategy));
    result.not_run.extend(why);
    let command = row.command.clone().unwrap_or_else(|| result.command.clone());
    if !row.is_as_claimed() {
        result.violations.push(Violation { what: format!("not as claimed: {row}"), command });
    } else if row.is_kept {
        result.kept.push(Violation { what: row.to_string(), command });
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
