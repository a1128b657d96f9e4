//! `inkstone-raft`, through its public door only.
//!
//! *Owns*: every call to that crate. *May not touch*: what is measured.

use std::path::Path;

use anyhow::Result;
use inkstone_raft::{EntryId, Leader, NewEntry, Options, RaftLog, RaftReader, Vote};

use crate::store::{Done, Reader, Store};

struct Log {
    raft: RaftLog,
}

/// Of one read.
const READ_BYTES: usize = 1 << 20;

pub fn open(path: &Path) -> Result<Box<dyn Store>> {
    Ok(Box::new(Log { raft: RaftLog::open(path, Options::new())? }))
}

impl Store for Log {
    fn append(&self, term: u64, first: u64, payloads: &[Vec<u8>], done: Done) -> Result<()> {
        let leader = Leader::of_term(term);
        let done = |outcome: inkstone_raft::Result<()>| done(outcome.map_err(Into::into));
        if let [payload] = payloads {
            return Ok(self
                .raft
                .append(&[NewEntry { leader: &leader, index: first, payload }], done)?);
        }
        let entry = |(index, payload)| NewEntry { leader: &leader, index, payload };
        let entries: Vec<_> =
            (first..).zip(payloads.iter().map(Vec::as_slice)).map(entry).collect();
        Ok(self.raft.append(&entries, done)?)
    }

    fn save_vote(&self, term: u64) -> Result<()> {
        Ok(self.raft.save_vote(&Vote::new(Leader::of_term(term)))?)
    }

    fn purge(&self, term: u64, upto: u64) -> Result<()> {
        self.raft.save_committed(upto)?;
        Ok(self.raft.purge(&EntryId::new(Leader::of_term(term), upto))?)
    }

    fn reader(&self) -> Result<Box<dyn Reader + '_>> {
        Ok(Box::new(Behind(self.raft.reader())))
    }

    fn bounds(&self) -> Result<(u64, u64)> {
        let bounds = self.raft.bounds()?;
        Ok((bounds.first, bounds.next))
    }

    fn how(&self) -> String {
        "defaults; a callback comes when the log below is durable, a vote is durable on return"
            .into()
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(self.raft.close()?)
    }
}

struct Behind(RaftReader);

impl Reader for Behind {
    fn read(&mut self, first: u64, end: u64, show: &mut dyn FnMut(&[u8])) -> Result<u64> {
        let entries = self.0.entries(first..end, READ_BYTES)?;
        entries.iter().for_each(|entry| show(&entry.payload));
        Ok(entries.len() as u64)
    }
}
