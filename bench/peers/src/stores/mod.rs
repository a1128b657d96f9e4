//! Which stores there are, and how each is opened.
//!
//! *Owns*: the names. *May not touch*: any engine's calls: each has a file of its own.

mod bare;
mod inkstone;
mod okaywal;
mod raft;
mod raft_engine;
mod raft_engine_calls;
#[cfg(feature = "rocksdb")]
mod rocksdb;
mod streams;

use std::path::Path;

use anyhow::Result;
use clap::ValueEnum;

use crate::store::{Setup, Store};

/// Who can take part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    Inkstone,
    RaftEngine,
    Okaywal,
    Rocksdb,
    /// The floor.
    Bare,
}

impl Kind {
    pub const ALL: [Self; 5] =
        [Self::Inkstone, Self::RaftEngine, Self::Okaywal, Self::Rocksdb, Self::Bare];

    pub fn name(self) -> &'static str {
        match self {
            Self::Inkstone => "inkstone",
            Self::RaftEngine => "raft-engine",
            Self::Okaywal => "okaywal",
            Self::Rocksdb => "rocksdb",
            Self::Bare => "bare",
        }
    }
}

/// What of an engine is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    Log,
    Streams,
    /// A raft log of one raft group.
    Raft,
}

impl Subject {
    /// Opens the store of an engine, or makes it, in this directory.
    pub fn open(self, engine: Kind, path: &Path, setup: Setup) -> Result<Box<dyn Store>> {
        std::fs::create_dir_all(path)?;
        match (engine, self) {
            (Kind::Inkstone, Self::Log) => inkstone::open(path, setup),
            (Kind::Inkstone, Self::Streams) => streams::open(path, setup),
            (Kind::Inkstone, Self::Raft) => raft::open(path, setup),
            (Kind::RaftEngine, Self::Log | Self::Streams) => raft_engine::open(path, setup),
            (Kind::RaftEngine, Self::Raft) => raft_engine_calls::open(path, setup),
            (Kind::Okaywal, _) => okaywal::open(path, setup),
            #[cfg(feature = "rocksdb")]
            (Kind::Rocksdb, _) => rocksdb::open(path, setup),
            #[cfg(not(feature = "rocksdb"))]
            (Kind::Rocksdb, _) => anyhow::bail!(
                "built without the feature `rocksdb`, which needs the system's library (README.md)"
            ),
            (Kind::Bare, _) => bare::open(path, setup),
        }
    }
}
