//! How each engine is opened and read.
//!
//! *Owns*: which engines are built in. *May not touch*: any engine's calls: each has a file of its
//! own.

pub mod inkstone;
mod okaywal;
pub mod raft_engine;
#[cfg(feature = "rocksdb")]
mod rocksdb;

use std::path::Path;

use anyhow::Result;

use crate::engine::{Engine, Kind, Reading, Setup};
use crate::record::Checker;

/// Opens an engine, or makes it, in this directory.
pub fn open(kind: Kind, path: &Path, setup: Setup) -> Result<Box<dyn Engine>> {
    std::fs::create_dir_all(path)?;
    match kind {
        Kind::Inkstone => inkstone::open(path, setup),
        Kind::RaftEngine => raft_engine::open(path, setup),
        Kind::Okaywal => okaywal::open(path, setup),
        #[cfg(feature = "rocksdb")]
        Kind::Rocksdb => rocksdb::open(path, setup),
        #[cfg(not(feature = "rocksdb"))]
        Kind::Rocksdb => anyhow::bail!("{}", kind.missing().unwrap_or_default()),
    }
}

/// Opens an engine that was closed, and shows every record that it has, checksums verified.
pub fn read_all(kind: Kind, path: &Path, how: Reading, checker: &mut Checker) -> Result<()> {
    match kind {
        Kind::Inkstone => inkstone::read_all(path, how, checker),
        Kind::RaftEngine => raft_engine::read_all(path, checker),
        Kind::Okaywal => okaywal::read_all(path, checker),
        #[cfg(feature = "rocksdb")]
        Kind::Rocksdb => rocksdb::read_all(path, checker),
        #[cfg(not(feature = "rocksdb"))]
        Kind::Rocksdb => anyhow::bail!("{}", kind.missing().unwrap_or_default()),
    }
}
