//! raft-engine 0.4, recycled and prefilled. A thread is a raft group, a record an entry.
//!
//! *Owns*: every call to that crate. *May not touch*: what is measured.

use std::path::Path;

use anyhow::{Context, Result};
use protobuf::well_known_types::BytesValue;
use raft_engine::{Config, Engine as RaftEngine, LogBatch, MessageExt, ReadableSize};

use crate::engine::{Engine, Purpose, Setup, Writer};
use crate::record::{Checker, head};

pub const FILE_MIB: u64 = 32;
/// Files beyond this are purged; half as many again are made and filled with zeros at the start.
pub const PURGE_MIB: u64 = 128;
/// What each thread keeps when it gives up what is old. raft-engine rewrites what keeps an old file
/// alive.
const KEEP_BYTES: u64 = 32 << 20;
/// Entries that are fetched at a time.
const FETCH: u64 = 4096;

/// An entry is a record, and its index the record's number plus one.
pub struct Entries;

impl MessageExt for Entries {
    type Entry = BytesValue;

    fn index(entry: &BytesValue) -> u64 {
        head(&entry.value).map_or(0, |(_, number)| number + 1)
    }
}

struct Peer {
    engine: RaftEngine,
    keep_records: Option<u64>,
}

/// Groups are numbered from one.
fn group(thread: u32) -> u64 {
    u64::from(thread) + 1
}

/// How its files come to be.
#[derive(Debug, Clone, Copy)]
pub enum Files {
    /// As it makes them by itself: only reserved, and purged beyond 10 GB.
    Default,
    /// Recycled and prefilled; beyond so many MiB they are purged.
    Recycled { purge_mib: u64 },
}

impl Files {
    /// Purged beyond so many MiB, at least those that every load has.
    pub fn recycled(purge_mib: u64) -> Self {
        Self::Recycled { purge_mib: purge_mib.max(PURGE_MIB) }
    }

    fn of(keeps_all: bool) -> Self {
        if keeps_all { Self::Default } else { Self::recycled(PURGE_MIB) }
    }

    pub fn words(self) -> String {
        match self {
            Self::Default => "files as by default, only reserved".into(),
            Self::Recycled { purge_mib } => format!(
                "{FILE_MIB} MiB files, recycled and prefilled, purged beyond {purge_mib} MiB"
            ),
        }
    }
}

pub fn config(path: &Path, files: Files) -> Result<Config> {
    let common = Config {
        dir: path.to_str().context("raft-engine takes only a path that is UTF-8")?.to_owned(),
        // Records do not compress.
        batch_compression_threshold: ReadableSize(0),
        ..Config::default()
    };
    Ok(match files {
        Files::Default => common,
        Files::Recycled { purge_mib } => Config {
            target_file_size: ReadableSize::mb(FILE_MIB),
            purge_threshold: ReadableSize::mb(purge_mib),
            enable_log_recycle: true,
            prefill_for_recycle: true,
            ..common
        },
    })
}

pub fn open(path: &Path, setup: Setup) -> Result<Box<dyn Engine>> {
    let keeps_all = setup.purpose == Purpose::Keep;
    let engine = RaftEngine::open(config(path, Files::of(keeps_all))?)?;
    let keep_records = (!keeps_all).then_some(KEEP_BYTES / setup.record_bytes as u64);
    Ok(Box::new(Peer { engine, keep_records }))
}

impl Engine for Peer {
    fn writer(&self, thread: u32) -> Result<Box<dyn Writer + '_>> {
        let (batch, entry) = (LogBatch::with_capacity(1), [BytesValue::new()]);
        Ok(Box::new(Appender { peer: self, thread, batch, entry }))
    }

    fn how(&self) -> String {
        format!(
            "write(.., sync = true); {FILE_MIB} MiB files, recycled and prefilled; no compression"
        )
    }

    fn close(self: Box<Self>) -> Result<()> {
        drop(self.engine);
        Ok(())
    }
}

struct Appender<'a> {
    peer: &'a Peer,
    thread: u32,
    batch: LogBatch,
    entry: [BytesValue; 1],
}

impl Appender<'_> {
    fn write(&mut self, record: &[u8], sync: bool) -> Result<()> {
        let value = &mut self.entry[0].value;
        value.clear();
        value.extend_from_slice(record);
        self.batch.add_entries::<Entries>(group(self.thread), &self.entry)?;
        self.peer.engine.write(&mut self.batch, sync)?;
        Ok(())
    }
}

impl Writer for Appender<'_> {
    fn append(&mut self, record: &[u8]) -> Result<()> {
        self.write(record, false)
    }

    fn append_durable(&mut self, record: &[u8]) -> Result<()> {
        self.write(record, true)
    }

    /// `Engine::sync` of 0.4.2 writes an empty batch, which returns before it syncs: a batch with
    /// something in it does not.
    fn sync(&mut self) -> Result<()> {
        self.batch.put(group(self.thread), b"synced".to_vec(), vec![1])?;
        self.peer.engine.write(&mut self.batch, true)?;
        Ok(())
    }

    fn tidy(&mut self) -> Result<()> {
        let Some(keep) = self.peer.keep_records else { return Ok(()) };
        let last = self.peer.engine.last_index(group(self.thread)).unwrap_or(0);
        self.peer.engine.compact_to(group(self.thread), last.saturating_sub(keep));
        if self.thread == 0 {
            self.peer.engine.purge_expired_files()?;
        }
        Ok(())
    }
}

pub fn read_all(path: &Path, checker: &mut Checker) -> Result<()> {
    let engine = RaftEngine::open(config(path, Files::Default)?)?;
    let mut entries = Vec::new();
    for group in engine.raft_groups() {
        let (Some(mut next), Some(last)) = (engine.first_index(group), engine.last_index(group))
        else {
            continue;
        };
        while next <= last {
            let end = (next + FETCH).min(last + 1);
            entries.clear();
            engine.fetch_entries_to::<Entries>(group, next, end, None, &mut entries)?;
            entries.iter().for_each(|entry| checker.see(&entry.value));
            next = end;
        }
    }
    Ok(())
}
