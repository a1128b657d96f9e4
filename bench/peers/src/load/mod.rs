//! The loads by name.
//!
//! *Owns*: the list of loads. *May not touch*: the timed loops (`crate::threads`), the rounds
//! (`crate::rounds`).

mod appending;
pub mod busy;
mod closed;
mod follow;
pub mod raft;
pub mod reading;
mod shared;
pub mod stream;
pub mod tail;

use std::path::PathBuf;

use anyhow::Result;
use inkstone_io::Strategy;

use crate::engine::{Kind, Purpose, Setup};
use crate::raft::RaftKind;
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
    pub raft_logs: Vec<RaftKind>,
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
    run: Run,
}

/// How a load is run.
#[derive(Clone, Copy)]
enum Run {
    One(fn(&Plan, &Load) -> Result<LoadResult>),
    /// Under several conditions, each of which is a result of its own.
    Several(fn(&Plan, &Load) -> Result<Vec<LoadResult>>),
}
use Run::{One, Several};

/// All loads, in the order of a run.
pub const ALL: &[Load] = &[
    Load {
        name: "1x4k",
        title: "1 thread, 4 KiB, each append durable before it returns",
        run: One(closed::one_4k),
    },
    Load {
        name: "1x128",
        title: "1 thread, 128 B, each append durable before it returns",
        run: One(closed::one),
    },
    Load {
        name: "1x64k",
        title: "1 thread, 64 KiB, each append durable before it returns",
        run: One(closed::one_64k),
    },
    Load {
        name: "1x1m",
        title: "1 thread, 1 MiB, each append durable before it returns",
        run: One(closed::one_1m),
    },
    Load {
        name: "8x128",
        title: "8 threads, 128 B, each append durable before it returns",
        run: One(closed::eight),
    },
    Load {
        name: "64x128",
        title: "64 threads, 128 B, each append durable before it returns",
        run: One(closed::many),
    },
    Load {
        name: "unsynced",
        title: "128 B without waiting, one sync at the end, inside the clock",
        run: One(stream::unsynced),
    },
    Load {
        name: "async128",
        title: "one producer that does not wait, 128 B, durable as soon as can be",
        run: One(stream::durable_128),
    },
    Load {
        name: "async4k",
        title: "one producer that does not wait, 4 KiB, durable as soon as can be",
        run: One(stream::durable_4k),
    },
    Load {
        name: "read-warm",
        title: "reopen and read 256 B records, checksums verified, from the page cache",
        run: One(reading::warm),
    },
    Load {
        name: "read-cold",
        title: "reopen and read 256 B records, checksums verified, nothing cached",
        run: One(reading::cold),
    },
    Load {
        name: "get",
        title: "records of 256 B by random LSN, 1 thread, from the page cache",
        run: One(reading::get),
    },
    Load {
        name: "busy-1",
        title: "1 thread, 128 B, each append durable before it returns",
        run: Several(busy::one),
    },
    Load {
        name: "busy-8",
        title: "8 threads, 128 B, each append durable before it returns",
        run: Several(busy::eight),
    },
    Load {
        name: "busy-64",
        title: "64 threads, 128 B, each append durable before it returns",
        run: Several(busy::many),
    },
    Load {
        name: "follow-1",
        title: "1 thread, 128 B, each append durable before it returns; followers in the process",
        run: One(follow::one),
    },
    Load {
        name: "follow-8",
        title: "8 threads, 128 B, each append durable before it returns; followers in the process",
        run: One(follow::eight),
    },
    Load {
        name: "follow-64",
        title: "64 threads, 128 B, each append durable before it returns; followers in the process",
        run: One(follow::many),
    },
    Load {
        name: "follow-producer",
        title: "one producer that does not wait, 128 B; a follower in the process",
        run: One(follow::producer),
    },
    Load {
        name: "tail-process-1",
        title: "1 thread, 128 B, each append durable before it returns; a follower in another process",
        run: One(tail::one),
    },
    Load {
        name: "tail-process-8",
        title: "8 threads, 128 B, each append durable before it returns; a follower in another process",
        run: One(tail::eight),
    },
    Load { name: "raft-1x128", title: "raft logs, 1 entry in flight, 128 B", run: One(raft::one) },
    Load {
        name: "raft-64x128",
        title: "raft logs, 64 entries in flight, 128 B",
        run: One(raft::many),
    },
    Load {
        name: "raft-1x4k",
        title: "raft logs, 1 entry in flight, 4 KiB",
        run: One(raft::one_4k),
    },
    Load {
        name: "raft-64x4k",
        title: "raft logs, 64 entries in flight, 4 KiB",
        run: One(raft::many_4k),
    },
];

impl Load {
    /// Runs it; what cannot be run at all is a load without arms, and says why.
    pub fn run(&self, plan: &Plan) -> Vec<LoadResult> {
        let done = match self.run {
            One(run) => run(plan, self).map(|one| vec![one]),
            Several(run) => run(plan, self),
        };
        done.unwrap_or_else(|error| vec![self.result(0, Vec::new(), vec![format!("{error:#}")])])
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
    let setup = Setup { record_bytes: shape.record_bytes, purpose, batches: false, yields: None };
    let one =
        |&kind: &Kind| made(kind.name(), Appending::engine(plan, kind.name(), kind, setup, shape));
    plan.engines.iter().map(one).collect()
}
