//! raft-engine 0.4 as a raft log that calls back: one thread writes what has come meanwhile as one
//! batch, and syncs it.
//!
//! *Owns*: every call to that crate for raft, and that thread. *May not touch*: what is measured.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use anyhow::{Result, anyhow};
use protobuf::well_known_types::BytesValue;
use raft_engine::{Engine, LogBatch};

use crate::engines::raft_engine::{Entries, FILE_MIB, Files, PURGE_MIB, config};
use crate::store::{Done, Reader, Store, waited};

/// The one raft group.
const GROUP: u64 = 1;
/// Bytes of one read.
const READ_BYTES: usize = 1 << 20;
const VOTE: &[u8] = b"vote";

/// What the thread is to write.
enum Write {
    Entries(Vec<BytesValue>, Done),
    Vote(u64, Done),
}

struct Log {
    engine: Arc<Engine>,
    queue: Sender<Write>,
    writer: JoinHandle<()>,
}

pub fn open(path: &Path) -> Result<Box<dyn Store>> {
    let engine = Arc::new(Engine::open(config(path, Files::recycled(PURGE_MIB))?)?);
    let (queue, writes) = channel();
    let writer = std::thread::spawn({
        let engine = Arc::clone(&engine);
        move || write_all(&engine, &writes)
    });
    Ok(Box::new(Log { engine, queue, writer }))
}

/// Until nobody can send any more.
fn write_all(engine: &Engine, writes: &Receiver<Write>) {
    while let Ok(first) = writes.recv() {
        let mut batch = LogBatch::default();
        let mut all = Vec::new();
        let mut added = Ok(());
        for write in std::iter::once(first).chain(writes.try_iter()) {
            match write {
                Write::Entries(entries, done) => {
                    added = added.and(batch.add_entries::<Entries>(GROUP, &entries));
                    all.push(done);
                }
                Write::Vote(term, done) => {
                    added = added.and(batch.put(GROUP, VOTE.to_vec(), term.to_be_bytes().to_vec()));
                    all.push(done);
                }
            }
        }
        let written = added.and_then(|()| engine.write(&mut batch, true));
        for done in all {
            done(written.as_ref().map(|_| ()).map_err(|error| anyhow!("{error}")));
        }
    }
}

impl Log {
    fn send(&self, write: Write) -> Result<()> {
        self.queue.send(write).map_err(|_| anyhow!("its writer has ended"))
    }
}

impl Store for Log {
    /// Terms stand in an entry's bytes elsewhere; here they would only be more of them.
    fn append(&self, _: u64, _: u64, payloads: &[Vec<u8>], done: Done) -> Result<()> {
        let entry = |payload: &Vec<u8>| {
            let mut entry = BytesValue::new();
            entry.value = payload.clone();
            entry
        };
        self.send(Write::Entries(payloads.iter().map(entry).collect(), done))
    }

    /// What is not written it does not know.
    fn is_readable_at_once(&self) -> bool {
        false
    }

    fn save_vote(&self, term: u64) -> Result<()> {
        waited(|done| self.send(Write::Vote(term, done)))
    }

    fn purge(&self, _: u64, upto: u64) -> Result<()> {
        self.engine.compact_to(GROUP, upto + 1);
        self.engine.purge_expired_files()?;
        Ok(())
    }

    fn reader(&self) -> Result<Box<dyn Reader + '_>> {
        Ok(Box::new(Behind { engine: &self.engine, entries: Vec::new() }))
    }

    fn bounds(&self) -> Result<(u64, u64)> {
        let first = self.engine.first_index(GROUP).unwrap_or(1);
        Ok((first, self.engine.last_index(GROUP).map_or(first, |last| last + 1)))
    }

    fn how(&self) -> String {
        format!(
            "a thread of ours: write(.., sync = true) of all that has come meanwhile; {FILE_MIB} \
             MiB files, recycled and prefilled"
        )
    }

    fn close(self: Box<Self>) -> Result<()> {
        drop(self.queue);
        self.writer.join().map_err(|_| anyhow!("its writer panicked"))
    }
}

struct Behind<'a> {
    engine: &'a Engine,
    entries: Vec<BytesValue>,
}

impl Reader for Behind<'_> {
    fn read(&mut self, first: u64, end: u64, show: &mut dyn FnMut(&[u8])) -> Result<u64> {
        self.entries.clear();
        self.engine.fetch_entries_to::<Entries>(
            GROUP,
            first,
            end,
            Some(READ_BYTES),
            &mut self.entries,
        )?;
        self.entries.iter().for_each(|entry| show(&entry.value));
        Ok(self.entries.len() as u64)
    }
}
