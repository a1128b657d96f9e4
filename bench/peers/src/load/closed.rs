//! Threads that each wait for their record before they append the next, beside as many that
//! overwrite blocks.
//!
//! *Owns*: who takes part, and the size of the floor's writes. *May not touch*: how a turn runs.

use anyhow::Result;

use super::appending::{Appending, Shape, engines};
use super::plan::{FLOOR, Load, Plan, made};
use crate::engine::{Kind, Purpose, Setup};
use crate::result::LoadResult;
use crate::rounds;
use crate::threads::Manner;

pub fn closed(plan: &Plan, load: &Load, threads: u32, record_bytes: usize) -> Result<LoadResult> {
    let shape = Shape { threads, record_bytes, manner: Manner::Closed, is_fresh: false };
    let mut contestants = engines(plan, Purpose::Durable, shape);
    let blocks = record_bytes.next_multiple_of(inkstone_io::BLOCK_BYTES);
    let mut write_bytes = blocks;
    if threads == 1 && plan.engines.contains(&Kind::Inkstone) {
        write_bytes = log_write_bytes(plan, shape)?.unwrap_or(blocks);
    }
    contestants.push(made(FLOOR, Appending::floor(plan, write_bytes, true, shape)));
    let what = if threads == 1 {
        "a written file overwritten with as many bytes per write as the log's commits have"
    } else {
        "as many threads, each of which overwrites blocks of its own: nobody shares a write"
    };
    let notes = vec![format!("{}: {what} ({write_bytes})", FLOOR)];
    Ok(load.result(record_bytes, rounds::run(&plan.pace, contestants), notes))
}

/// What a lone writer's commits write: a frame is larger than its record, and the last block is
/// written again.
fn log_write_bytes(plan: &Plan, shape: Shape) -> Result<Option<usize>> {
    let setup = Setup::plain(shape.record_bytes, Purpose::Durable);
    let mut log = Appending::engine(plan, "inkstone for its writes", Kind::Inkstone, setup, shape)?;
    let write_bytes = log.write_bytes()?;
    rounds::Contestant::finish(Box::new(log))?;
    Ok(write_bytes)
}
