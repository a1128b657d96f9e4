//! `hiqlite-wal` 0.15, with `LogSync::Immediate`: each append is an msync of a mapped file before
//! it calls back.
//!
//! *Owns*: every call to that crate, and to openraft and tokio for it. *May not touch*: what is
//! measured.

use std::fmt;
// The macro below names it.
use std::io::Cursor;
use std::path::Path;
use std::sync::Mutex;

use anyhow::{Context, Result, anyhow};
use bincode_next::config::legacy;
use bincode_next::serde::encode_to_vec;
use hiqlite_wal::{Action, LogStore, LogStoreReader, LogSync};
use openraft::storage::RaftLogStorage as _;
use openraft::{CommittedLeaderId, Entry, EntryPayload, LogId, RaftLogReader as _, Vote};
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tokio::runtime::{Handle, Runtime};
use tokio::sync::oneshot;

use super::{Done, Reader, Store};

/// Its files are as large as the segments of the others; the default of 2 MiB would change them all
/// the time.
const FILE_BYTES: u32 = 64 << 20;
/// As openraft reads.
const READ: u64 = 64;
const NODE: u64 = 1;

/// A payload that serde does not take apart byte by byte.
#[derive(Debug, Clone)]
pub struct Payload(Vec<u8>);

impl Serialize for Payload {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for Payload {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Bytes;
        impl Visitor<'_> for Bytes {
            type Value = Payload;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("bytes")
            }

            fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Payload, E> {
                Ok(Payload(bytes.to_vec()))
            }

            fn visit_byte_buf<E: Error>(self, bytes: Vec<u8>) -> Result<Payload, E> {
                Ok(Payload(bytes))
            }
        }
        deserializer.deserialize_byte_buf(Bytes)
    }
}

openraft::declare_raft_types!(
    /// One raft group of payloads.
    pub Words:
        D = Payload,
        R = (),
);

struct Log {
    /// In a lock only because its methods take `&mut`; appends do not go through it.
    store: Mutex<LogStore<Words>>,
    writer: flume::Sender<Action>,
    runtime: Runtime,
}

pub fn open(path: &Path) -> Result<Box<dyn Store>> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build()?;
    let path = path.to_str().context("hiqlite-wal takes only a path that is UTF-8")?.to_owned();
    let store = runtime.block_on(LogStore::start(path, LogSync::Immediate, FILE_BYTES));
    let store: LogStore<Words> = store.map_err(|error| anyhow!("{error}"))?;
    Ok(Box::new(Log { writer: store.writer.clone(), store: Mutex::new(store), runtime }))
}

fn log_id(term: u64, index: u64) -> LogId<u64> {
    LogId::new(CommittedLeaderId::new(term, NODE), index)
}

impl Log {
    /// Sends an action and waits for its answer, as its own openraft store does.
    fn asked(
        &self,
        action: impl FnOnce(oneshot::Sender<Result<(), hiqlite_wal::error::Error>>) -> Action,
    ) -> Result<()> {
        let (ack, answer) = oneshot::channel();
        self.writer.send(action(ack)).map_err(|_| anyhow!("its writer has ended"))?;
        answer.blocking_recv().context("its writer has ended")?.map_err(|error| anyhow!("{error}"))
    }
}

impl Store for Log {
    fn append(&self, term: u64, first: u64, payloads: &[Vec<u8>], done: Done) -> Result<()> {
        // All are in the channel before the writer looks: it waits for none of them.
        let (tell, rx) = flume::bounded(payloads.len() + 1);
        for (index, payload) in (first..).zip(payloads) {
            let payload = EntryPayload::Normal(Payload(payload.clone()));
            let entry: Entry<Words> = Entry { log_id: log_id(term, index), payload };
            tell.send(Some((index, encode_to_vec(&entry, legacy())?)))?;
        }
        tell.send(None)?;
        let callback =
            Box::new(|outcome: Result<(), std::io::Error>| done(outcome.map_err(Into::into)));
        self.asked(|ack| Action::Append { rx, callback, ack })
    }

    fn save_vote(&self, term: u64) -> Result<()> {
        let value = encode_to_vec(Vote::<u64>::new(term, NODE), legacy())?;
        self.asked(|ack| Action::Vote { value, ack })
    }

    fn purge(&self, term: u64, upto: u64) -> Result<()> {
        let last_log = Some(encode_to_vec(log_id(term, upto), legacy())?);
        self.asked(|ack| Action::Remove { from: 0, until: upto, last_log, ack })
    }

    fn reader(&self) -> Result<Box<dyn Reader + '_>> {
        let mut store = self.store.lock().map_err(|_| anyhow!("a thread of the load panicked"))?;
        let reader = self.runtime.block_on(store.get_log_reader());
        Ok(Box::new(Behind { reader, runtime: self.runtime.handle().clone() }))
    }

    fn bounds(&self) -> Result<(u64, u64)> {
        let mut store = self.store.lock().map_err(|_| anyhow!("a thread of the load panicked"))?;
        let state = self.runtime.block_on(store.get_log_state())?;
        let after = |id: Option<LogId<u64>>| id.map_or(1, |id| id.index + 1);
        Ok((after(state.last_purged_log_id), after(state.last_log_id)))
    }

    fn how(&self) -> String {
        format!(
            "LogSync::Immediate: msync for each append; {} MiB files with holes, mapped",
            FILE_BYTES >> 20
        )
    }

    fn close(self: Box<Self>) -> Result<()> {
        let store =
            self.store.into_inner().map_err(|_| anyhow!("a thread of the load panicked"))?;
        drop(self.writer);
        self.runtime.block_on(store.stop()).map_err(|error| anyhow!("{error}"))
    }
}

struct Behind {
    reader: LogStoreReader<Words>,
    runtime: Handle,
}

impl Reader for Behind {
    fn read(&mut self, first: u64, end: u64, show: &mut dyn FnMut(&[u8])) -> Result<u64> {
        let asked = self.reader.try_get_log_entries(first..end.min(first + READ));
        let entries = self.runtime.block_on(asked)?;
        for entry in &entries {
            if let EntryPayload::Normal(Payload(bytes)) = &entry.payload {
                show(bytes);
            }
        }
        Ok(entries.len() as u64)
    }
}
