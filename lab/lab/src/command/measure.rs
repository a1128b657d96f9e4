//! `inkstone lab write` and `inkstone lab bill`: any cells in one directory, and in several states
//! of its device.
//!
//! *Owns*: the order of steps, and the questions about several states. The plan comes from the
//! caller.

use std::path::PathBuf;

use crate::asked::{Asked, Effect, Pair, answer};
use crate::finding::finding;
use crate::precondition::{Condition, Precondition};
use crate::result::{LabResult, Run, Warning};
use crate::run::{Plan, room_needed_bytes, run, run_conditioned, steps_of};
use crate::site::OpenSite;

use super::{Context, LabError, Started, directory_or_here};

/// What to measure where.
#[derive(Debug, Clone)]
pub struct MeasureOptions {
    /// The directory; `None` = the current one.
    pub directory: Option<PathBuf>,
    /// What to run there.
    pub plan: Plan,
    /// Whether to draw a conclusion: for runs with the naive way and others.
    pub conclude: bool,
    /// What is done to the device before each round. Each of several has rounds of its own, in
    /// turns. Empty: nothing is done.
    pub preconditions: Vec<Precondition>,
    /// For [`Precondition::Fill`]: bytes; `None` = all free space except what the cells and others
    /// need.
    pub fill_bytes: Option<u64>,
}

impl MeasureOptions {
    /// With the device as it is.
    pub fn of(directory: Option<PathBuf>, plan: Plan, conclude: bool) -> Self {
        Self { directory, plan, conclude, preconditions: Vec::new(), fill_bytes: None }
    }
}

/// Runs the plan in its directory.
///
/// # Errors
/// When nothing can be measured there at all.
pub fn measure(options: &MeasureOptions, context: &mut Context<'_>) -> Result<LabResult, LabError> {
    let MeasureOptions { plan, conclude, .. } = options;
    let directory = directory_or_here(options.directory.as_deref());
    let mut started = Started::new(context);
    let states = options.preconditions.len().max(1) as u64;
    let room_bytes = room_needed_bytes(plan) * states;
    let open = OpenSite::open(&directory, &directory.display().to_string(), room_bytes)?;
    started.swept(&open.swept);
    let steps = steps_of(&open.site, plan) * states
        + u64::from(plan.rounds) * options.preconditions.len() as u64;
    context.progress.start(steps, &plan.name, 30.0);
    let looked = started.look_around(&open.site, context);
    if looked.is_ok() {
        let mut runs = match options.preconditions.as_slice() {
            [] => vec![run(&open.site, plan, context.stop, context.progress)],
            kinds => {
                let mut conditions: Vec<Condition> = Vec::new();
                for &kind in kinds {
                    if conditions.iter().all(|known| known.kind != kind) {
                        conditions.push(Condition::new(kind, options.fill_bytes, room_bytes));
                    }
                }
                run_conditioned(&open.site, plan, &conditions, context.stop, context.progress)
            }
        };
        for run in &mut runs {
            if let (Some(done), 2..) = (&run.precondition, states) {
                run.name = format!("{}-{}", run.name, done.kind);
            }
            run.finding = if *conclude { finding(run) } else { None };
            if *conclude {
                started.advise_on(&run.name);
            }
        }
        started.result.runs.extend(runs);
    }
    context.progress.finish();
    open.close()?;
    looked?;
    let mut result = started.finish(context);
    result.asked = what_it_changes(&result.runs, &result.warnings);
    Ok(result)
}

/// Asks for each cell in each further state of the device whether it differs from the first state.
fn what_it_changes(runs: &[Run], warnings: &[Warning]) -> Vec<Asked> {
    let states: Vec<(&Run, &str)> = runs
        .iter()
        .filter_map(|run| Some((run, run.precondition.as_ref()?.kind.as_str())))
        .collect();
    let Some((&(first, as_it_was), others)) = states.split_first() else { return Vec::new() };
    let questions = others.len() * first.cells.len();
    let ask = |&(run, kind): &(&Run, &str)| {
        let one = |cell: &crate::result::CellResult| {
            let question = format!(
                "Does the speed of `{}` differ between precondition {kind} and {as_it_was}?",
                cell.name
            );
            let pair = Pair {
                base: (first, cell.name.as_str()),
                other: (run, cell.name.as_str()),
                effect: Effect::Differs,
            };
            answer(question, &pair, questions, warnings)
        };
        first.cells.iter().map(one).collect::<Vec<_>>()
    };
    others.iter().flat_map(ask).collect()
}
