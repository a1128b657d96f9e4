//! What an engine is to this program.
//!
//! *Owns*: the trait, the names. *May not touch*: any engine's calls (`engines`).

use anyhow::Result;

use crate::record::Record;

/// An engine, open in a directory of its own.
pub trait Engine: Send + Sync {
    /// One thread's way in.
    fn writer(&self, thread: u32) -> Result<Box<dyn Writer + '_>>;

    /// How it is made durable and fast here, in a few words.
    fn how(&self) -> String;

    /// Between two turns, outside the clock: what is still in the background comes to an end.
    fn rest(&self) -> Result<()> {
        Ok(())
    }

    /// What it did so far that explains its figures.
    fn notes(&self) -> Option<String> {
        None
    }

    /// Bytes and writes of its groups so far, if it tells.
    fn groups(&self) -> Option<Groups> {
        None
    }

    /// Ends it in order: what was acknowledged is there for whoever opens it next.
    fn close(self: Box<Self>) -> Result<()>;
}

/// What an engine wrote for commits.
#[derive(Debug, Clone, Copy)]
pub struct Groups {
    pub count: u64,
    pub bytes: u64,
}

/// One thread's way into an engine.
pub trait Writer {
    /// Appends one record; nothing is promised until [`Writer::sync`] returns.
    fn append(&mut self, record: &[u8]) -> Result<()>;

    /// Appends one record; on `Ok` it is on stable storage.
    fn append_durable(&mut self, record: &[u8]) -> Result<()>;

    /// On `Ok` everything that this writer appended is on stable storage.
    fn sync(&mut self) -> Result<()>;

    /// Called now and then, inside the clock: gives up what is old, for engines that have to be
    /// asked.
    fn tidy(&mut self) -> Result<()> {
        Ok(())
    }

    /// Many appends: compiled for each engine, so that what is timed calls nothing through a
    /// pointer but this.
    fn append_burst(&mut self, record: &mut Record, count: u64) -> Result<()> {
        for _ in 0..count {
            self.append(record.advance())?;
        }
        Ok(())
    }
}

/// Which engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Inkstone,
    RaftEngine,
    Okaywal,
    Rocksdb,
}

impl Kind {
    pub const ALL: [Self; 4] = [Self::Inkstone, Self::RaftEngine, Self::Okaywal, Self::Rocksdb];

    pub fn name(self) -> &'static str {
        match self {
            Self::Inkstone => "inkstone",
            Self::RaftEngine => "raft-engine",
            Self::Okaywal => "okaywal",
            Self::Rocksdb => "rocksdb",
        }
    }

    /// Why it cannot be measured by this build.
    pub fn missing(self) -> Option<&'static str> {
        let is_missing = self == Self::Rocksdb && !cfg!(feature = "rocksdb");
        is_missing.then_some(
            "built without the feature `rocksdb`, which needs the system's library (README.md)",
        )
    }
}

/// What an engine is opened for.
#[derive(Debug, Clone, Copy)]
pub struct Setup {
    pub record_bytes: usize,
    pub purpose: Purpose,
    /// For inkstone: so many yields before it sleeps, fixed; `None`: its default, which adapts.
    pub yields: Option<u32>,
}

impl Setup {
    /// Without what only one engine has.
    pub fn plain(record_bytes: usize, purpose: Purpose) -> Self {
        Self { record_bytes, purpose, yields: None }
    }
}

/// What is to be done with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Each append is waited for. What is old is given up.
    Durable,
    /// Appends without waiting, one sync at the end. What is old is given up.
    Unsynced,
    /// Appends without waiting, and everything becomes durable as soon as it can. What is old is
    /// given up.
    Stream,
    /// Nothing is given up.
    Keep,
}

/// How an engine's files are read; only inkstone has more than one way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reading {
    /// As it reads by itself.
    Default,
    /// Through the page cache.
    Cached,
}
