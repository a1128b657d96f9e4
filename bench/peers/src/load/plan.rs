//! What each load needs to know: the run, and its own name and words.
//!
//! *Owns*: these. *May not touch*: how a load is run.

use std::path::PathBuf;

use anyhow::{Context, Result};
use inkstone_host::Helper;
use inkstone_io::Strategy;

use crate::engine::Kind;
use crate::result::{Arm, LoadResult, Unit};
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
    /// Loads of streams that are filled have so many times fewer streams, records or segments.
    pub divide: u64,
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
    /// 64 threads over one stream and over many.
    Streams,
    /// Beside streams that are idle.
    Idle,
    /// The memory of many streams, or of long ones.
    Memory {
        is_long: bool,
    },
    /// Opening streams.
    Opening(Cache),
    /// Reading a stream that is spread over a long log.
    Thin(Cache),
}

/// What is done before a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cache {
    Warm,
    Cold,
}

impl Cache {
    fn words(self) -> &'static str {
        match self {
            Self::Warm => "from the page cache",
            Self::Cold => "nothing cached",
        }
    }
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
                format!("reopen and read 256 B records, checksums verified, {}", cache.words())
            }
            What::Busy(threads) => closed(threads, 128),
            What::Streams => closed(64, 128),
            What::Idle => closed(16, 4_000),
            What::Memory { .. } => "memory of streams".into(),
            What::Opening(cache) => format!("opening streams, {}", cache.words()),
            What::Thin(cache) => format!("reading one stream of many, 128 B, {}", cache.words()),
            What::Raft(in_flight, entry_bytes) => {
                format!("raft logs, {in_flight} in flight, {}", size(entry_bytes))
            }
        }
    }

    pub fn result(&self, record_bytes: usize, arms: Vec<Arm>, notes: Vec<String>) -> LoadResult {
        let (name, title) = (self.name.into(), self.title());
        let (unit, record_bytes) = (Unit::RecordsPerS, record_bytes as u64);
        LoadResult { name, title, unit, record_bytes, arms, notes }
    }
}

/// This program again, as a process beside the measurement, and its first line. `words` say what it
/// does.
pub fn helper(words: &[&str]) -> Result<(Helper, String)> {
    let program = std::env::current_exe().context("this program, to start it again")?;
    let parent = std::process::id().to_string();
    let (what, more) = words.split_first().context("what it does")?;
    let mut one = Helper::start(&program, [*what, &parent].iter().chain(more))?;
    let answer = one.answer()?;
    let said = answer.strip_prefix("ready").with_context(|| answer.clone())?;
    let said = said.trim().to_owned();
    Ok((one, said))
}

/// For the list of a load's contestants.
pub fn made<C: Contestant + 'static>(name: &str, made: Result<C>) -> Made {
    match made {
        Ok(one) => Ok(Box::new(one)),
        Err(error) => Err((name.into(), error)),
    }
}
