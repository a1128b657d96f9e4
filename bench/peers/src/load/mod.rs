//! The loads by name.
//!
//! *Owns*: the list of loads. *May not touch*: the timed loops (`crate::threads`), the rounds (`crate::rounds`).

mod appending;
mod closed;
pub mod preparation;
pub mod reading;
pub mod stream;

use std::path::PathBuf;

use anyhow::Result;
use inkstone_io::Strategy;

use crate::engine::{Kind, Purpose, Setup};
use crate::result::{Arm, LoadResult};
use crate::rounds::{Contestant, Made, Pace};
use appending::{Appending, Shape};

/// The floor's name in every load.
pub const FLOOR: &str = "bare";

/// What a load needs to know of the run.
#[derive(Debug)]
pub struct Plan {
    pub directory: PathBuf,
    pub engines: Vec<Kind>,
    pub pace: Pace,
    /// Access and durability of the floor: the log's own.
    pub strategy: Strategy,
    /// Of the loads that read.
    pub read_bytes: u64,
}

/// A load: its name, what it is, and who runs it.
pub struct Load {
    pub name: &'static str,
    pub title: &'static str,
    run: fn(&Plan, &Load) -> Result<LoadResult>,
}

/// All loads, in the order of a run.
pub const ALL: &[Load] = &[
    Load {
        name: "1x4k",
        title: "1 thread, 4 KiB, each append durable before it returns",
        run: closed::one_4k,
    },
    Load { name: "1x128", title: "1 thread, 128 B, each append durable before it returns", run: closed::one },
    Load {
        name: "8x128",
        title: "8 threads, 128 B, each append durable before it returns",
        run: closed::eight,
    },
    Load {
        name: "64x128",
        title: "64 threads, 128 B, each append durable before it returns",
        run: closed::many,
    },
    Load {
        name: "unsynced",
        title: "128 B without waiting, one sync at the end, inside the clock",
        run: stream::unsynced,
    },
    Load {
        name: "async128",
        title: "one producer that does not wait, 128 B, durable as soon as can be",
        run: stream::durable_128,
    },
    Load {
        name: "async4k",
        title: "one producer that does not wait, 4 KiB, durable as soon as can be",
        run: stream::durable_4k,
    },
    Load {
        name: "prepare",
        title: "1 thread, 4 KiB, durable: every segment made ready beside it, or recycled",
        run: preparation::run,
    },
    Load {
        name: "read-warm",
        title: "reopen and read 256 B records, checksums verified, from the page cache",
        run: reading::warm,
    },
    Load {
        name: "read-cold",
        title: "reopen and read 256 B records, checksums verified, nothing cached",
        run: reading::cold,
    },
    Load {
        name: "get",
        title: "records of 256 B by random LSN, 1 thread, from the page cache",
        run: reading::get,
    },
];

impl Load {
    /// Runs it; what cannot be run at all is a load without arms, and says why.
    pub fn run(&self, plan: &Plan) -> LoadResult {
        (self.run)(plan, self).unwrap_or_else(|error| self.result(0, Vec::new(), vec![format!("{error:#}")]))
    }

    fn result(&self, record_bytes: usize, arms: Vec<Arm>, notes: Vec<String>) -> LoadResult {
        let (name, title) = (self.name.into(), self.title.into());
        LoadResult { name, title, record_bytes: record_bytes as u64, arms, notes }
    }
}

/// For the list of a load's contestants.
fn made<C: Contestant + 'static>(name: &str, made: Result<C>) -> Made {
    match made {
        Ok(one) => Ok(Box::new(one)),
        Err(error) => Err((name.into(), error)),
    }
}

/// The engines of the run for such a load, each aged.
fn engines(plan: &Plan, purpose: Purpose, shape: Shape) -> Vec<Made> {
    let setup = Setup { record_bytes: shape.record_bytes, purpose, batches: false };
    let one = |&kind: &Kind| made(kind.name(), Appending::engine(plan, kind.name(), kind, setup, shape));
    plan.engines.iter().map(one).collect()
}
