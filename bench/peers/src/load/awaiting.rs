//! Tasks that await their records and records that call back, beside threads that wait.
//!
//! *Owns*: who takes part. *May not touch*: the timed loops (`crate::tasks`, `crate::threads`).

use anyhow::{Result, ensure};

use super::appending::{Appending, Shape};
use super::{Load, Plan, made};
use crate::engine::{Kind, Purpose, Setup};
use crate::result::LoadResult;
use crate::rounds;
use crate::threads::Manner;

/// Tasks.
pub const AWAITS: &str = "inkstone awaits";
/// One thread that appends, and callbacks.
pub const CALLS_BACK: &str = "inkstone calls back";

const RECORD_BYTES: usize = 128;
/// Threads of the runtime, where there is more than one task.
const WORKERS: usize = 2;
/// Beside a crowd of tasks.
const THREADS_MAX: u32 = 64;

pub fn one(plan: &Plan, load: &Load) -> Result<LoadResult> {
    awaiting(plan, load, 1)
}

pub fn eight(plan: &Plan, load: &Load) -> Result<LoadResult> {
    awaiting(plan, load, 8)
}

pub fn many(plan: &Plan, load: &Load) -> Result<LoadResult> {
    awaiting(plan, load, 64)
}

pub fn crowd(plan: &Plan, load: &Load) -> Result<LoadResult> {
    awaiting(plan, load, 10_000)
}

fn awaiting(plan: &Plan, load: &Load, tasks: u32) -> Result<LoadResult> {
    ensure!(
        plan.engines.contains(&Kind::Inkstone),
        "this load is about inkstone, which was not asked for"
    );
    let setup = Setup {
        record_bytes: RECORD_BYTES,
        purpose: Purpose::Durable,
        batches: false,
        yields: None,
    };
    let arm = |name: &str, threads, manner| {
        let shape = Shape { threads, record_bytes: RECORD_BYTES, manner, is_fresh: false };
        made(name, Appending::engine(plan, name, Kind::Inkstone, setup, shape))
    };
    let workers = WORKERS.min(tasks as usize);
    let contestants = vec![
        arm(Kind::Inkstone.name(), tasks.min(THREADS_MAX), Manner::Closed),
        arm(AWAITS, tasks, Manner::Awaited { workers }),
        arm(CALLS_BACK, tasks, Manner::CalledBack),
    ];
    let mut result = load.result(RECORD_BYTES, rounds::run(&plan.pace, contestants), Vec::new());
    for arm in &result.arms {
        if let Some(records) = arm.records_per_group() {
            result.notes.push(format!("{}: {records:.2} records a group", arm.name));
        }
    }
    result.notes.push(format!(
        "{}: {} threads; {AWAITS}: {tasks} tasks on {workers} of tokio; {CALLS_BACK}: {tasks} in flight, one thread appends",
        Kind::Inkstone.name(),
        tasks.min(THREADS_MAX)
    ));
    result.notes.push(
        "no other engine here has futures or callbacks; those of raft logs stand in the loads raft-*".into(),
    );
    Ok(result)
}
