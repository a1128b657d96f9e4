//! `inkstone-raft`, through its public door only. Its one group's entries are the records.
//!
//! *Owns*: every call to that crate. *May not touch*: what is measured.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result};
use inkstone_raft::{Leader, NewEntry, Options, RaftLog, Vote};

use super::inkstone;
use crate::record::{Checker, head};
use crate::store::{Done, Setup, Store, Writer, waited};

/// Of one read.
const READ_BYTES: usize = 1 << 20;

struct Log {
    raft: RaftLog,
    term: AtomicU64,
    keep: Option<u64>,
}

pub fn open(path: &Path, setup: Setup) -> Result<Box<dyn Store>> {
    let raft = RaftLog::open(path, Options::new())?;
    Ok(Box::new(Log { raft, term: AtomicU64::new(1), keep: setup.keep() }))
}

impl Store for Log {
    fn writer(&self, _: u32) -> Result<Box<dyn Writer + '_>> {
        Ok(Box::new(Leading {
            log: self,
            leader: Leader::of_term(self.term.load(Ordering::SeqCst)),
        }))
    }

    /// An index is a number plus one.
    fn read(&self, _: u32, from: u64, seen: &mut Checker) -> Result<()> {
        let bounds = self.raft.bounds()?;
        let mut first = bounds.first.max(from + 1);
        while first < bounds.next {
            let entries = self.raft.entries(first..bounds.next, READ_BYTES)?;
            entries.iter().for_each(|entry| seen.see(&entry.payload));
            first = entries.last().context("nothing comes of entries that are there")?.id.index + 1;
        }
        Ok(())
    }

    fn how(&self) -> String {
        inkstone::words(&self.raft.choice(), &self.raft.stats())
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(self.raft.close()?)
    }
}

struct Leading<'a> {
    log: &'a Log,
    leader: Leader,
}

impl Writer for Leading<'_> {
    fn append(&mut self, lane: u32, record: &[u8]) -> Result<()> {
        self.start(lane, record, Box::new(|_| ()))
    }

    fn append_durable(&mut self, lane: u32, record: &[u8]) -> Result<()> {
        waited(|done| self.start(lane, record, done))
    }

    fn sync(&mut self) -> Result<()> {
        self.leader = Leader::of_term(self.log.term.fetch_add(1, Ordering::SeqCst) + 1);
        Ok(self.log.raft.save_vote(&Vote::new(self.leader.clone()))?)
    }

    fn start(&mut self, _: u32, record: &[u8], done: Done) -> Result<()> {
        let (_, number) = head(record).context("a record without a head")?;
        let entry = NewEntry { leader: &self.leader, index: number + 1, payload: record };
        let done = |outcome: inkstone_raft::Result<()>| done(outcome.map_err(Into::into));
        Ok(self.log.raft.append(&[entry], done)?)
    }

    fn tidy(&mut self, written: &[(u32, u64)]) -> Result<()> {
        let last = written.last().map_or(0, |(_, next)| *next);
        let Some(upto) = self.log.keep.and_then(|keep| last.checked_sub(keep)) else {
            return Ok(());
        };
        if let Some(entry) = self.log.raft.entry(upto)? {
            self.log.raft.save_committed(upto)?;
            self.log.raft.purge(&entry.id)?;
        }
        Ok(())
    }
}
