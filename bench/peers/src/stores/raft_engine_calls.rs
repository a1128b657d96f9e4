//! raft-engine 0.4 as a raft log that calls back: one thread writes what has come meanwhile as one
//! batch, and syncs it. TiKV does the same.
//!
//! *Owns*: that thread, the calls to that crate for raft. *May not touch*: what is measured.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use anyhow::{Result, anyhow};
use protobuf::well_known_types::BytesValue;
use raft_engine::{Engine, LogBatch};

use super::raft_engine::{Entries, entry, group, how, opened, read};
use crate::record::Checker;
use crate::store::{Done, Setup, Store, Writer, waited};

/// What the thread is to write: an entry, or a vote.
type Write = (Option<BytesValue>, Done);

struct Log {
    engine: Arc<Engine>,
    queue: Sender<Write>,
    writer: JoinHandle<()>,
    keep: Option<u64>,
}

pub fn open(path: &Path, setup: Setup) -> Result<Box<dyn Store>> {
    let engine = Arc::new(opened(path, setup)?);
    let (queue, writes) = channel();
    let writer = std::thread::spawn({
        let engine = Arc::clone(&engine);
        move || write_all(&engine, &writes)
    });
    Ok(Box::new(Log { engine, queue, writer, keep: setup.keep() }))
}

/// Until nobody can send any more.
fn write_all(engine: &Engine, writes: &Receiver<Write>) {
    while let Ok(first) = writes.recv() {
        let (mut batch, mut entries, mut all) = (LogBatch::default(), Vec::new(), Vec::new());
        let mut added = Ok(());
        for (entry, done) in std::iter::once(first).chain(writes.try_iter()) {
            match entry {
                Some(entry) => entries.push(entry),
                None => added = added.and(batch.put(group(0), b"vote".to_vec(), vec![1])),
            }
            all.push(done);
        }
        // Terms stand in an entry's bytes elsewhere; here they would only be more of them.
        let added = added.and_then(|()| batch.add_entries::<Entries>(group(0), &entries));
        let written = added.and_then(|()| engine.write(&mut batch, true));
        for done in all {
            done(written.as_ref().map(|_| ()).map_err(|error| anyhow!("{error}")));
        }
    }
}

impl Store for Log {
    fn writer(&self, _: u32) -> Result<Box<dyn Writer + '_>> {
        Ok(Box::new(Leading { log: self }))
    }

    /// What is not written it does not know.
    fn read(&self, lane: u32, from: u64, seen: &mut Checker) -> Result<()> {
        read(&self.engine, lane, from, seen)
    }

    fn how(&self) -> String {
        format!("a thread of ours: {}", how())
    }

    fn close(self: Box<Self>) -> Result<()> {
        drop(self.queue);
        self.writer.join().map_err(|_| anyhow!("its writer panicked"))
    }
}

struct Leading<'a> {
    log: &'a Log,
}

impl Leading<'_> {
    fn send(&self, entry: Option<BytesValue>, done: Done) -> Result<()> {
        self.log.queue.send((entry, done)).map_err(|_| anyhow!("its writer has ended"))
    }
}

impl Writer for Leading<'_> {
    fn append(&mut self, lane: u32, record: &[u8]) -> Result<()> {
        self.start(lane, record, Box::new(|_| ()))
    }

    fn append_durable(&mut self, lane: u32, record: &[u8]) -> Result<()> {
        waited(|done| self.start(lane, record, done))
    }

    fn sync(&mut self) -> Result<()> {
        waited(|done| self.send(None, done))
    }

    fn start(&mut self, _: u32, record: &[u8], done: Done) -> Result<()> {
        self.send(Some(entry(record)), done)
    }

    fn tidy(&mut self, written: &[(u32, u64)]) -> Result<()> {
        let last = written.last().map_or(0, |(_, next)| *next);
        if let Some(upto) = self.log.keep.and_then(|keep| last.checked_sub(keep)) {
            self.log.engine.compact_to(group(0), upto + 1);
            self.log.engine.purge_expired_files()?;
        }
        Ok(())
    }
}
