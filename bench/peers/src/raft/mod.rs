//! How each raft log is opened.
//!
//! *Owns*: which there are. *May not touch*: any store's calls: each has a file of its own.

mod inkstone;
mod raft_engine;

use std::path::Path;

use anyhow::Result;

use crate::store::{RaftKind, Store};

/// Opens a raft log, or makes it.
pub fn open(kind: RaftKind, path: &Path) -> Result<Box<dyn Store>> {
    std::fs::create_dir_all(path)?;
    match kind {
        RaftKind::Inkstone => inkstone::open(path),
        RaftKind::RaftEngine => raft_engine::open(path),
    }
}
