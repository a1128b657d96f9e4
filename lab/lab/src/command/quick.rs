//! `inkstone lab`: without arguments, root or configuration: an answer within seconds, the whole
//! tier within a minute.
//!
//! *Owns*: the time budget. *May not touch*: which cells there are (`presets`).

use std::path::Path;
use std::time::Duration;

use inkstone_io::{Durability, Reuse};

use crate::cell::Cell;
use crate::finding::finding;
use crate::pass::Limits;
use crate::presets::Preset;
use crate::result::{LabResult, Run, Verdict};
use crate::run::{Order, Plan, room_needed_bytes, run, steps_of};
use crate::site::{OpenSite, Site};
use crate::stage::Leftover;
use crate::stats;

use super::{Context, LabError, Started, directory_or_here};

/// 1,024 commits of 4 KiB in each pass at most.
const FILE_BYTES: u64 = 4 << 20;
/// Rounds for intervals that hold for all 15 cells at once: with 12, a ratio of 1.7 is
/// distinguished from 1 in 59% of the cells at a noise of 15% with spikes, with 24 in 89%
/// (simulated).
const ROUNDS: u32 = 24;
/// The longest timed pass: 15 cells x 24 rounds x 60 ms are under 22 s.
const PASS: Duration = Duration::from_millis(60);
/// No round begins after this; on a slow disk there are fewer rounds, but never fewer than five.
const DEADLINE: Duration = Duration::from_secs(38);
/// Rounds of the first answer.
const FIRST_ROUNDS: u32 = 5;
const BILL_COMMITS: u64 = 128;
/// More than 128 commits take on all but the slowest disks: a bill is about counts.
const BILL_TIME: Duration = Duration::from_secs(2);

/// Runs the quick tier in `directory` (the current one if `None`).
///
/// # Errors
/// When nothing can be measured there at all.
pub fn quick(directory: Option<&Path>, context: &mut Context<'_>) -> Result<LabResult, LabError> {
    let directory = directory_or_here(directory);
    let mut started = Started::new(context);
    let plan = plan();
    let open =
        OpenSite::open(&directory, &directory.display().to_string(), room_needed_bytes(&plan))?;
    started.swept(&open.swept);
    started.advise_on(&plan.name);
    let outcome = measure(&open.site, &plan, context, &mut started);
    open.close()?;
    outcome?;
    Ok(started.finish(context))
}

fn measure(
    site: &Site,
    plan: &Plan,
    context: &mut Context<'_>,
    started: &mut Started,
) -> Result<(), LabError> {
    let first = first_plan(plan);
    let steps = steps_of(site, &first) + steps_of(site, plan);
    context.progress.start(steps, "measuring", 25.0);
    started.look_around(site, context)?;
    let answer = run(site, &first, context.stop, context.progress);
    if !context.interrupted() {
        context.progress.announce(&match &site.memory {
            Some(memory) => not_here(memory),
            None => first_answer(&answer),
        });
        let mut full = run(site, plan, context.stop, context.progress);
        full.finding = finding(&full);
        started.result.runs.push(full);
    }
    context.progress.finish();
    Ok(())
}

pub(super) fn plan() -> Plan {
    let cells =
        Preset::Quick.cells().into_iter().map(|cell| Cell { file_bytes: FILE_BYTES, ..cell });
    Plan {
        name: Preset::Quick.to_string(),
        title: "Durable 4 KiB commits, one after the other".into(),
        cells: cells.collect(),
        baseline: Preset::Quick.baseline(),
        rounds: ROUNDS,
        order: Order::Random,
        leftover: Leftover::Kept,
        limits: Limits { commits: u64::MAX, time: PASS },
        deadline: Some(DEADLINE),
        bill_commits: BILL_COMMITS,
        bill_time: BILL_TIME,
        timeline_commits: 0,
        seed: fastrand::u64(..),
    }
}

/// Only the naive way and the plainest overwrite.
fn first_plan(plan: &Plan) -> Plan {
    let plain = |cell: &&Cell| {
        let strategy = cell.strategy;
        let overwrite = strategy.reuse == Reuse::Reuse
            && strategy.durability == Durability::Fdatasync
            && strategy.access == inkstone_io::Access::Buffered;
        overwrite || **cell == plan.cells[plan.baseline]
    };
    let cells: Vec<Cell> = plan.cells.iter().filter(plain).copied().collect();
    Plan {
        name: "first".into(),
        cells,
        baseline: 0,
        rounds: FIRST_ROUNDS,
        bill_commits: 0,
        bill_time: BILL_TIME,
        deadline: None,
        ..plan.clone()
    }
}

fn not_here(memory: &str) -> String {
    format!(
        "First answer: {memory} is memory, so nothing written here is durable. Measuring anyway ..."
    )
}

fn first_answer(run: &Run) -> String {
    let both: Option<Vec<_>> =
        run.cells.iter().map(|cell| Some((cell, cell.outcome.measured()?))).collect();
    let Some([(naive, base), (overwrite, other)]) = both.as_deref() else {
        return "First answer: these ways could not be measured here; the table says why.".into();
    };
    let found = stats::relative(&base.rounds, &other.rounds, run.seed);
    let said = match found.map(|found| (found.verdict, found.speedup)) {
        Some((Verdict::Faster, speedup)) => format!("{speedup:.1} times as fast"),
        Some((Verdict::Slower, speedup)) => format!("{speedup:.2} of the speed"),
        _ => "no difference is shown yet".into(),
    };
    let us = |m: &crate::result::Measured| stats::per_commit_ns(m).unwrap_or(0.0) / 1000.0;
    format!(
        "First answer: a durable 4 KiB commit takes {:.0} us appended to a new file (`{}`), {:.0} us over blocks \
         already written (`{}`): {said}. Measuring the rest ...",
        us(base),
        naive.name,
        us(other),
        overwrite.name,
    )
}
