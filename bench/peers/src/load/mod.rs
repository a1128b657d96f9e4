//! The loads by name.
//!
//! *Owns*: the list of loads. *May not touch*: the timed loops (`crate::threads`), the rounds
//! (`crate::rounds`).

mod appending;
mod busy;
pub mod plan;
mod raft;
mod reading;
mod writing;

use anyhow::Result;

use crate::result::LoadResult;
use plan::{Cache, Load, Plan, What};

const fn load(name: &'static str, what: What) -> Load {
    Load { name, what }
}

/// All loads, in the order of a run.
pub const ALL: &[Load] = &[
    load("1x4k", What::Closed(1, 4096)),
    load("1x128", What::Closed(1, 128)),
    load("8x128", What::Closed(8, 128)),
    load("64x128", What::Closed(64, 128)),
    load("unsynced", What::Unsynced),
    load("async128", What::Stream(128)),
    load("async4k", What::Stream(4096)),
    load("read-warm", What::Read(Cache::Warm)),
    load("read-cold", What::Read(Cache::Cold)),
    load("busy-1", What::Busy(1)),
    load("busy-8", What::Busy(8)),
    load("busy-64", What::Busy(64)),
    load("raft-1x128", What::Raft(1, 128)),
    load("raft-64x128", What::Raft(64, 128)),
    load("raft-1x4k", What::Raft(1, 4096)),
    load("raft-64x4k", What::Raft(64, 4096)),
];

impl Load {
    /// Runs it; what cannot be run at all is a load without arms, and says why.
    pub fn run(&self, plan: &Plan) -> Vec<LoadResult> {
        let one = |done: Result<LoadResult>| done.map(|one| vec![one]);
        let done = match self.what {
            What::Closed(threads, record_bytes) => {
                one(writing::closed(plan, self, threads, record_bytes))
            }
            What::Unsynced => one(writing::unsynced(plan, self)),
            What::Stream(record_bytes) => one(writing::durable(plan, self, record_bytes)),
            What::Read(cache) => one(reading::read(plan, self, cache)),
            What::Busy(threads) => busy::busy(plan, self, threads),
            What::Raft(in_flight, entry_bytes) => {
                one(Ok(raft::raft(plan, self, entry_bytes, in_flight)))
            }
        };
        done.unwrap_or_else(|error| vec![self.result(0, Vec::new(), vec![format!("{error:#}")])])
    }
}
