//! databend's `raft-log` 0.4. It writes to files that grow; each flush calls back after an
//! fdatasync.
//!
//! *Owns*: every call to that crate. *May not touch*: what is measured.

use std::io;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use anyhow::{Context, Result};
use raft_log::api::raft_log_writer::RaftLogWriter as _;
use raft_log::{Callback, Config, RaftLog, Types, chunked_wal};

use super::{Done, Reader, Store, waited};

/// What is purged goes chunk by chunk.
const CHUNK_BYTES: usize = 64 << 20;
/// Entries of one read: meanwhile the writer waits.
const READ: u64 = 256;

/// Term and index, bytes, term and node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Words;

impl Types for Words {
    type LogId = (u64, u64);
    type LogPayload = Vec<u8>;
    type Vote = (u64, u64);
    type Callback = Flushed;
    type UserData = String;

    fn log_index(log_id: &(u64, u64)) -> u64 {
        log_id.1
    }

    fn payload_size(payload: &Vec<u8>) -> u64 {
        payload.len() as u64
    }
}

struct Flushed(Done);

impl Callback for Flushed {
    fn send(self, outcome: Result<(), io::Error>) {
        self.0(outcome.map_err(Into::into));
    }
}

/// It takes `&mut` to write, and readers beside that: a lock, as databend has it.
struct Log {
    raft: RwLock<RaftLog<Words>>,
    batch: usize,
}

pub fn open(path: &Path, appends_in_flight: usize) -> Result<Box<dyn Store>> {
    let mut wal = chunked_wal::Config::new(
        path.to_str().context("raft-log takes only a path that is UTF-8")?,
    );
    wal.chunk_max_size = Some(CHUNK_BYTES);
    // It waits a millisecond for more before each sync, unless it has so many: at its best all that
    // can come have come.
    wal.flush_batch_max_items = Some(appends_in_flight);
    let config = Config { wal, ..Config::default() };
    Ok(Box::new(Log {
        raft: RwLock::new(RaftLog::open(Arc::new(config))?),
        batch: appends_in_flight,
    }))
}

impl Log {
    fn write(&self) -> RwLockWriteGuard<'_, RaftLog<Words>> {
        self.raft.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self) -> RwLockReadGuard<'_, RaftLog<Words>> {
        self.raft.read().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store for Log {
    fn append(&self, term: u64, first: u64, payloads: &[Vec<u8>], done: Done) -> Result<()> {
        let mut raft = self.write();
        raft.append(
            (first..).zip(payloads).map(|(index, payload)| ((term, index), payload.clone())),
        )?;
        Ok(raft.flush(true, Some(Flushed(done)))?)
    }

    fn save_vote(&self, term: u64) -> Result<()> {
        waited(|done| {
            let mut raft = self.write();
            raft.save_vote((term, 1))?;
            Ok(raft.flush(true, Some(Flushed(done)))?)
        })
    }

    fn purge(&self, term: u64, upto: u64) -> Result<()> {
        let mut raft = self.write();
        raft.commit((term, upto))?;
        // The next flush takes the chunks away.
        raft.purge((term, upto))?;
        Ok(())
    }

    fn reader(&self) -> Result<Box<dyn Reader + '_>> {
        Ok(Box::new(Behind(self)))
    }

    fn bounds(&self) -> Result<(u64, u64)> {
        let raft = self.read();
        let state = raft.log_state();
        Ok((state.purged().map_or(1, |id| id.1 + 1), state.last().map_or(1, |id| id.1 + 1)))
    }

    fn how(&self) -> String {
        format!(
            "flush(true, ..): fdatasync of a file that grows; it waits up to 1 ms for {} flushes",
            self.batch
        )
    }

    fn close(self: Box<Self>) -> Result<()> {
        waited(|done| Ok(self.write().flush(true, Some(Flushed(done)))?))?;
        Ok(self.read().wait_worker_idle()?)
    }
}

struct Behind<'a>(&'a Log);

impl Reader for Behind<'_> {
    fn read(&mut self, first: u64, end: u64, show: &mut dyn FnMut(&[u8])) -> Result<u64> {
        let raft = self.0.read();
        let mut count = 0;
        for entry in raft.read(first, end.min(first + READ)) {
            show(&entry?.1);
            count += 1;
        }
        Ok(count)
    }
}
