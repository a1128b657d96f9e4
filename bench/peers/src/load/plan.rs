//! What each load needs to know: the run, and its own name and words.
//!
//! *Owns*: these. *May not touch*: how a load is run.

use std::path::PathBuf;

use anyhow::Result;
use inkstone_io::Strategy;

use crate::engine::Kind;
use crate::result::{Arm, LoadResult};
use crate::rounds::{Contestant, Made, Pace};

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
    pub what: What,
}

/// What is asked of whom.
#[derive(Debug, Clone, Copy)]
pub enum What {
    /// So many threads that each wait for their record of so many bytes.
    Closed(u32, usize),
    Unsynced,
    /// One producer that does not wait, with records of so many bytes.
    Stream(usize),
    Read(Cache),
    /// So many threads, as `Closed`, under each condition, which is a result of its own.
    Busy(u32),
    /// So many entries in flight of so many bytes.
    Raft(u64, usize),
}

/// What is done before a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cache {
    Warm,
    Cold,
}

impl Load {
    /// What it is, for people.
    pub fn title(&self) -> String {
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
            What::Raft(in_flight, entry_bytes) => {
                format!("raft logs, {in_flight} in flight, {}", size(entry_bytes))
            }
        }
    }

    pub fn result(&self, record_bytes: usize, arms: Vec<Arm>, notes: Vec<String>) -> LoadResult {
        let (name, title) = (self.name.into(), self.title());
        LoadResult { name, title, record_bytes: record_bytes as u64, arms, notes }
    }
}

/// For the list of a load's contestants.
pub fn made<C: Contestant + 'static>(name: &str, made: Result<C>) -> Made {
    match made {
        Ok(one) => Ok(Box::new(one)),
        Err(error) => Err((name.into(), error)),
    }
}
