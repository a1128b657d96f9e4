//! Many streams in one log, and how each store of them is opened.
//!
//! *Owns*: the names, how a store is filled. *May not touch*: any store's calls: each
//! has a file of its own.

mod in_turn;
mod inkstone;
mod raft_engine;
mod store;

use std::path::Path;

use anyhow::Result;

pub use in_turn::{Spread, open_in_turn, read_back};
pub use store::{Many, ManyWriter, Wait};

use crate::engine::Kind;
use crate::record::{Record, set_head};

/// Streams that one commit of [`fill`] has records of.
const FILL_STREAMS: u64 = 256;
/// Of so many commits of [`fill`] one is waited for.
const FILL_WAIT_EVERY: u64 = 16;

/// Which store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ManyKind {
    Inkstone,
    /// Its defaults.
    RaftEngine,
    /// Files that are recycled and filled beforehand, purged when they hold four times as much as
    /// these bytes.
    RaftEngineRecycled(u64),
}

impl ManyKind {
    pub fn name(self) -> &'static str {
        match self {
            Self::Inkstone => "inkstone",
            Self::RaftEngine => "raft-engine",
            Self::RaftEngineRecycled(_) => "raft-engine recycled",
        }
    }

    /// That of an engine, with its defaults.
    pub fn of(engine: Kind) -> Option<Self> {
        match engine {
            Kind::Inkstone => Some(Self::Inkstone),
            Kind::RaftEngine => Some(Self::RaftEngine),
            Kind::Okaywal | Kind::Rocksdb => None,
        }
    }
}

/// Opens a store, or makes it with so many streams.
pub fn open(kind: ManyKind, path: &Path, streams: u32) -> Result<Box<dyn Many>> {
    std::fs::create_dir_all(path)?;
    match kind {
        ManyKind::Inkstone => inkstone::open(path, streams),
        ManyKind::RaftEngine => raft_engine::open(path, None),
        ManyKind::RaftEngineRecycled(live_bytes) => raft_engine::open(path, Some(live_bytes)),
    }
}

/// Appends so many records to each of these streams, in turn; all are durable on return.
pub fn fill(many: &dyn Many, streams: u32, records: u64, record_bytes: usize) -> Result<()> {
    let mut writer = many.writer();
    let mut buffers: Vec<Vec<u8>> =
        (0..FILL_STREAMS).map(|_| Record::new(0, record_bytes).advance().to_vec()).collect();
    let all: Vec<u32> = (0..streams).collect();
    let mut commits = 0;
    for number in 0..records {
        for chunk in all.chunks(buffers.len()) {
            let mut batch = Vec::with_capacity(chunk.len());
            for (&stream, buffer) in chunk.iter().zip(&mut buffers) {
                set_head(buffer, stream, number);
                batch.push((stream, buffer.as_slice()));
            }
            commits += 1;
            let is_waited = commits % FILL_WAIT_EVERY == 0;
            writer.append(&batch, if is_waited { Wait::Durable } else { Wait::Nothing })?;
        }
    }
    writer.sync()
}
