//! The loads by name.
//!
//! *Owns*: the list of loads. *May not touch*: the timed loops (`crate::threads`), the rounds
//! (`crate::rounds`).

mod appending;
mod busy;
mod closed;
mod follow;
mod raft;
mod reading;
mod shared;
mod stream;

use std::path::PathBuf;

use anyhow::Result;
use inkstone_io::Strategy;

use crate::engine::{Kind, Purpose, Setup};
use crate::result::{Arm, LoadResult};
use crate::rounds::{Contestant, Made, Pace};
use appending::{Appending, Shape};
use reading::Cache;

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

/// A load by its name on the command line.
pub struct Load {
    pub name: &'static str,
    what: What,
}

/// What is asked of whom.
#[derive(Debug, Clone, Copy)]
enum What {
    /// So many threads that each wait for their record of so many bytes.
    Closed(u32, usize),
    Unsynced,
    /// One producer that does not wait, with records of so many bytes.
    Stream(usize),
    Read(Cache),
    /// So many threads, as `Closed`, under each condition, which is a result of its own.
    Busy(u32),
    /// So many threads, as `Closed`, with followers.
    Follow(u32),
    FollowProducer,
    /// So many entries in flight of so many bytes.
    Raft(u64, usize),
}

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
    load("follow-1", What::Follow(1)),
    load("follow-8", What::Follow(8)),
    load("follow-64", What::Follow(64)),
    load("follow-producer", What::FollowProducer),
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
                one(closed::closed(plan, self, threads, record_bytes))
            }
            What::Unsynced => one(stream::unsynced(plan, self)),
            What::Stream(record_bytes) => one(stream::durable(plan, self, record_bytes)),
            What::Read(cache) => one(reading::read(plan, self, cache)),
            What::Busy(threads) => busy::busy(plan, self, threads),
            What::Follow(threads) => one(Ok(follow::waiting(plan, self, threads))),
            What::FollowProducer => one(Ok(follow::producer(plan, self))),
            What::Raft(in_flight, entry_bytes) => {
                one(Ok(raft::raft(plan, self, entry_bytes, in_flight)))
            }
        };
        done.unwrap_or_else(|error| vec![self.result(0, Vec::new(), vec![format!("{error:#}")])])
    }

    /// What it is, for people.
    fn title(&self) -> String {
        let size = |bytes: usize| match bytes {
            0..4096 => format!("{bytes} B"),
            _ => format!("{} KiB", bytes >> 10),
        };
        let closed = |threads: u32, bytes: usize| {
            let s = if threads == 1 { "" } else { "s" };
            format!("{threads} thread{s}, {}, each append durable before it returns", size(bytes))
        };
        match self.what {
            What::Closed(threads, record_bytes) => closed(threads, record_bytes),
            What::Unsynced => "128 B without waiting, one sync at the end, inside the clock".into(),
            What::Stream(record_bytes) => {
                let size = size(record_bytes);
                format!("one producer that does not wait, {size}, durable as soon as can be")
            }
            What::Read(cache) => {
                let from = match cache {
                    Cache::Warm => "from the page cache",
                    Cache::Cold => "nothing cached",
                };
                format!("reopen and read 256 B records, checksums verified, {from}")
            }
            What::Busy(threads) => closed(threads, 128),
            What::Follow(threads) => closed(threads, 128) + "; followers in the process",
            What::FollowProducer => {
                "one producer that does not wait, 128 B; a follower in the process".into()
            }
            What::Raft(in_flight, entry_bytes) => {
                format!("raft logs, {in_flight} in flight, {}", size(entry_bytes))
            }
        }
    }

    fn result(&self, record_bytes: usize, arms: Vec<Arm>, notes: Vec<String>) -> LoadResult {
        let (name, title) = (self.name.into(), self.title());
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
    let setup = Setup::plain(shape.record_bytes, purpose);
    let one =
        |&kind: &Kind| made(kind.name(), Appending::engine(plan, kind.name(), kind, setup, shape));
    plan.engines.iter().map(one).collect()
}
