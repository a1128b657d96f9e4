//! Threads that append, on a quiet machine: that wait for each record, and producers that do not,
//! unsynced with one sync at the end, or durable as soon as can be.
//!
//! *Owns*: who takes part, and the size of the floor's writes. *May not touch*: how a turn runs.

use anyhow::Result;

use super::appending::{Appending, Shape, engines};
use super::plan::{FLOOR, Load, Plan, made};
use crate::engine::{Kind, Purpose, Setup};
use crate::floor::LARGE_BYTES;
use crate::result::LoadResult;
use crate::rounds::{self, Made};
use crate::threads::Manner;

/// A log of which nothing is given up.
const GROWING: &str = "inkstone growing";

/// A log that recycles takes no more room; this only ends a turn that never looks at the clock.
const RECYCLING_BYTES_MAX: u64 = 64 << 30;
/// A log that grows ends its turn here.
const GROWING_BYTES_MAX: u64 = 1 << 30;

const RECYCLING: Manner = Manner::Open { bytes_max: RECYCLING_BYTES_MAX };

fn shape(record_bytes: usize) -> Shape {
    Shape { threads: 1, record_bytes, manner: RECYCLING, is_fresh: false }
}

fn log(plan: &Plan, name: &str, purpose: Purpose, shape: Shape) -> Made {
    let setup = Setup::plain(shape.record_bytes, purpose);
    made(name, Appending::engine(plan, name, Kind::Inkstone, setup, shape))
}

pub fn unsynced(plan: &Plan, load: &Load) -> Result<LoadResult> {
    let shape = shape(128);
    let mut contestants = engines(plan, Purpose::Unsynced, shape);
    contestants.push(made(FLOOR, Appending::floor(plan, LARGE_BYTES, false, shape)));
    let notes =
        vec![format!("{FLOOR}: 1 MiB overwrites of a written file, one fdatasync at the end")];
    Ok(load.result(shape.record_bytes, rounds::run(&plan.pace, contestants), notes))
}

pub fn durable(plan: &Plan, load: &Load, record_bytes: usize) -> Result<LoadResult> {
    let shape = shape(record_bytes);
    let mut contestants = Vec::new();
    if plan.engines.contains(&Kind::Inkstone) {
        let growing = Manner::Open { bytes_max: GROWING_BYTES_MAX };
        let growing = Shape { manner: growing, is_fresh: true, ..shape };
        contestants.push(log(plan, Kind::Inkstone.name(), Purpose::Stream, shape));
        contestants.push(log(plan, GROWING, Purpose::Keep, growing));
    }
    contestants.push(made(FLOOR, Appending::floor(plan, LARGE_BYTES, true, shape)));
    let notes = vec![
        format!("{FLOOR}: 1 MiB overwrites of a written file, each durable before the next"),
        format!(
            "{GROWING}: nothing is given up; a turn begins in a new directory, with segments of \
             full size, and ends after {} MiB of records",
            GROWING_BYTES_MAX >> 20
        ),
    ];
    Ok(load.result(record_bytes, rounds::run(&plan.pace, contestants), notes))
}

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
