//! A lone writer at full speed on segments that are all made ready beside it, and on segments that
//! are all recycled.
//!
//! *Owns*: the two arms. *May not touch*: how a turn runs.

use anyhow::{Result, ensure};

use super::appending::{Appending, Shape};
use super::{FLOOR, Load, Plan, made};
use crate::engine::{Kind, Purpose, Setup};
use crate::result::LoadResult;
use crate::rounds::{self, Pace};
use crate::threads::Manner;

/// Nothing is given up: each new segment is a new file, written before it is used.
pub const PREPARING: &str = "inkstone preparing";
/// What is old is given up: each new segment is an old file.
pub const RECYCLING: &str = "inkstone recycling";

/// A turn is longer than in other loads: there are to be several segment changes in it.
const TURN_FACTOR: u32 = 3;
const RECORD_BYTES: usize = 4096;
/// A frame of such a record, and the block that it begins in.
const FLOOR_BYTES: usize = 2 * RECORD_BYTES;

pub fn run(plan: &Plan, load: &Load) -> Result<LoadResult> {
    ensure!(
        plan.engines.contains(&Kind::Inkstone),
        "this load is about inkstone, which was not asked for"
    );
    let shape =
        Shape { threads: 1, record_bytes: RECORD_BYTES, manner: Manner::Closed, is_fresh: false };
    let arm = |name: &str, purpose, is_fresh| {
        let setup = Setup { record_bytes: RECORD_BYTES, purpose, batches: false, yields: None };
        made(
            name,
            Appending::engine(plan, name, Kind::Inkstone, setup, Shape { is_fresh, ..shape }),
        )
    };
    let contestants = vec![
        arm(RECYCLING, Purpose::Durable, false),
        arm(PREPARING, Purpose::Keep, true),
        made(FLOOR, Appending::floor(plan, FLOOR_BYTES, true, shape)),
    ];
    let pace = Pace { time: plan.pace.time * TURN_FACTOR, ..plan.pace };
    let notes = vec![
        format!(
            "turns of {:?}; each turn of {PREPARING} begins in a new directory, with segments of full size",
            pace.time
        ),
        format!("{FLOOR}: {} KiB overwrites of a written file", FLOOR_BYTES >> 10),
    ];
    Ok(load.result(RECORD_BYTES, rounds::run(&pace, contestants), notes))
}
