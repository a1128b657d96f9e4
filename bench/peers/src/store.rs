//! Raft logs behind one trait: one raft group, entries that call back, votes, purges, readers of
//! recent entries.
//!
//! *Owns*: the trait, the names. *May not touch*: any store's calls (`raft`).

use std::sync::mpsc::channel;

use anyhow::{Context, Result};

use crate::engine::Kind;

/// Called once: the entries are durable, or will not be.
pub type Done = Box<dyn FnOnce(Result<()>) + Send>;

/// A raft log of one raft group, open in a directory of its own. One thread writes.
pub trait Store: Send + Sync {
    /// Appends entries, of which the first has this index. `done` is called when they are durable.
    fn append(&self, term: u64, first: u64, payloads: &[Vec<u8>], done: Done) -> Result<()>;

    /// Whether entries can be read when `append` returns; else when they are durable.
    fn is_readable_at_once(&self) -> bool {
        true
    }

    /// On `Ok` the vote is on stable storage.
    fn save_vote(&self, term: u64) -> Result<()>;

    /// A snapshot has everything up to this entry, which is committed: it is given up.
    fn purge(&self, term: u64, upto: u64) -> Result<()>;

    /// For one thread.
    fn reader(&self) -> Result<Box<dyn Reader + '_>>;

    /// The first index and the one after the last.
    fn bounds(&self) -> Result<(u64, u64)>;

    /// How it is made durable and fast here, in a few words.
    fn how(&self) -> String;

    /// Ends it in order.
    fn close(self: Box<Self>) -> Result<()>;
}

/// Reads entries beside the thread that writes.
pub trait Reader {
    /// Shows entries from `first` on, below `end`; all of these are there. It may stop early. Gives
    /// how many.
    fn read(&mut self, first: u64, end: u64, show: &mut dyn FnMut(&[u8])) -> Result<u64>;
}

/// Which raft log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RaftKind {
    Inkstone,
    RaftEngine,
}

impl RaftKind {
    pub fn name(self) -> &'static str {
        match self {
            Self::Inkstone => "inkstone-raft",
            Self::RaftEngine => "raft-engine",
        }
    }

    /// The raft log of an engine, if it has one.
    pub fn of(engine: Kind) -> Option<Self> {
        match engine {
            Kind::Inkstone => Some(Self::Inkstone),
            Kind::RaftEngine => Some(Self::RaftEngine),
            Kind::Okaywal | Kind::Rocksdb => None,
        }
    }
}

/// Waits for what calls back.
pub fn waited(start: impl FnOnce(Done) -> Result<()>) -> Result<()> {
    let (tell, told) = channel();
    start(Box::new(move |outcome| {
        // The receiver has left if the start has failed.
        let _ = tell.send(outcome);
    }))?;
    told.recv().context("nothing called back")?
}
