//! The loads by name.
//!
//! *Owns*: the list of loads. *May not touch*: the timed loops (`crate::threads`), the rounds
//! (`crate::rounds`).

mod appending;
mod busy;
mod kept;
pub mod plan;
mod raft;
mod reading;
mod streams;
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
    load("streams-rates", What::Streams),
    load("streams-idle", What::Idle),
    load("streams-memory-many", What::Memory { is_long: false }),
    load("streams-memory-long", What::Memory { is_long: true }),
    load("streams-open-warm", What::Opening(Cache::Warm)),
    load("streams-open-cold", What::Opening(Cache::Cold)),
    load("streams-read-warm", What::Thin(Cache::Warm)),
    load("streams-read-cold", What::Thin(Cache::Cold)),
];

impl Load {
    /// Whether a run has it that names no loads: those of many streams take long, and much room.
    pub fn is_default(&self) -> bool {
        !self.name.starts_with("streams")
    }

    /// Whether it fills a long log.
    pub fn is_long(&self) -> bool {
        matches!(self.what, What::Memory { .. } | What::Thin(_))
    }

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
            What::Streams => Ok(streams::rates(plan, self)),
            What::Idle => one(Ok(streams::idle(plan, self))),
            What::Memory { is_long } => one(Ok(kept::memory(plan, self, is_long))),
            What::Opening(cache) => one(Ok(kept::opening(plan, self, cache))),
            What::Thin(cache) => one(Ok(kept::thin(plan, self, cache))),
        };
        done.unwrap_or_else(|error| vec![self.result(0, Vec::new(), vec![format!("{error:#}")])])
    }
}
