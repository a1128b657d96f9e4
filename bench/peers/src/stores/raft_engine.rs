//! raft-engine 0.4. A lane is a raft group, which one thread writes; a record is an entry.
//!
//! *Owns*: every call to that crate but those of `raft_engine_calls.rs`. *May not touch*: what is
//! measured.

use std::path::Path;

use anyhow::{Context, Result};
use protobuf::well_known_types::BytesValue;
use raft_engine::{Command, Config, Engine, LogBatch, MessageExt, ReadableSize};

use crate::record::{Checker, head};
use crate::store::{KEEP_BYTES, Setup, Store, Writer};

const FILE_MIB: u64 = 32;
/// Files beyond this are purged: four times what is kept. Half as many again are made and filled
/// with zeros at the start.
const PURGE_MIB: u64 = (4 * KEEP_BYTES) >> 20;
/// Of one read.
const READ_BYTES: usize = 1 << 20;

/// An entry is a record, and its index the record's number plus one.
pub struct Entries;

impl MessageExt for Entries {
    type Entry = BytesValue;

    fn index(entry: &BytesValue) -> u64 {
        head(&entry.value).map_or(0, |(_, number)| number + 1)
    }
}

/// Groups are numbered from one.
pub fn group(lane: u32) -> u64 {
    u64::from(lane) + 1
}

/// An entry of these bytes.
pub fn entry(record: &[u8]) -> BytesValue {
    let mut entry = BytesValue::new();
    entry.value = record.to_vec();
    entry
}

struct Groups {
    engine: Engine,
    setup: Setup,
}

/// Recycled and prefilled where old records are given up; else files are only reserved, as by
/// default.
pub fn opened(path: &Path, setup: Setup) -> Result<Engine> {
    let common = Config {
        dir: path.to_str().context("raft-engine takes only a path that is UTF-8")?.to_owned(),
        // Records do not compress.
        batch_compression_threshold: ReadableSize(0),
        ..Config::default()
    };
    Ok(Engine::open(match setup.keep() {
        None => common,
        Some(_) => Config {
            target_file_size: ReadableSize::mb(FILE_MIB),
            purge_threshold: ReadableSize::mb(PURGE_MIB),
            enable_log_recycle: true,
            prefill_for_recycle: true,
            ..common
        },
    })?)
}

pub fn how() -> String {
    format!(
        "write(.., sync = true); {FILE_MIB} MiB files, recycled and prefilled, purged beyond \
         {PURGE_MIB} MiB; no compression"
    )
}

/// Shows the entries of a lane from this number on.
pub fn read(engine: &Engine, lane: u32, from: u64, seen: &mut Checker) -> Result<()> {
    let (Some(first), Some(last)) =
        (engine.first_index(group(lane)), engine.last_index(group(lane)))
    else {
        return Ok(());
    };
    let (mut next, mut entries) = (first.max(from + 1), Vec::new());
    while next <= last {
        entries.clear();
        let most = Some(READ_BYTES);
        engine.fetch_entries_to::<Entries>(group(lane), next, last + 1, most, &mut entries)?;
        entries.iter().for_each(|entry: &BytesValue| seen.see(&entry.value));
        next =
            Entries::index(entries.last().context("nothing comes of entries that are there")?) + 1;
    }
    Ok(())
}

pub fn open(path: &Path, setup: Setup) -> Result<Box<dyn Store>> {
    Ok(Box::new(Groups { engine: opened(path, setup)?, setup }))
}

impl Store for Groups {
    fn writer(&self, thread: u32) -> Result<Box<dyn Writer + '_>> {
        let (batch, entry) = (LogBatch::with_capacity(1), [BytesValue::new()]);
        Ok(Box::new(Appender { groups: self, is_first: thread == 0, batch, entry }))
    }

    fn lanes(&self) -> u32 {
        self.setup.lanes
    }

    fn read(&self, lane: u32, from: u64, seen: &mut Checker) -> Result<()> {
        read(&self.engine, lane, from, seen)
    }

    fn how(&self) -> String {
        how()
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

struct Appender<'a> {
    groups: &'a Groups,
    /// It purges.
    is_first: bool,
    batch: LogBatch,
    entry: [BytesValue; 1],
}

impl Appender<'_> {
    fn write(&mut self, lane: u32, record: &[u8], sync: bool) -> Result<()> {
        let value = &mut self.entry[0].value;
        value.clear();
        value.extend_from_slice(record);
        self.batch.add_entries::<Entries>(group(lane), &self.entry)?;
        self.groups.engine.write(&mut self.batch, sync)?;
        Ok(())
    }
}

impl Writer for Appender<'_> {
    fn append(&mut self, lane: u32, record: &[u8]) -> Result<()> {
        self.write(lane, record, false)
    }

    fn append_durable(&mut self, lane: u32, record: &[u8]) -> Result<()> {
        self.write(lane, record, true)
    }

    /// `Engine::sync` of 0.4.2 writes an empty batch, which returns before it syncs: a batch with
    /// something in it does not.
    fn sync(&mut self) -> Result<()> {
        self.batch.put(group(0), b"synced".to_vec(), vec![1])?;
        self.groups.engine.write(&mut self.batch, true)?;
        Ok(())
    }

    fn tidy(&mut self, written: &[(u32, u64)]) -> Result<()> {
        let Some(keep) = self.groups.setup.keep() else { return Ok(()) };
        for &(lane, next) in written.iter().filter(|(_, next)| *next > keep) {
            self.batch.add_command(group(lane), Command::Compact { index: next - keep + 1 });
        }
        self.groups.engine.write(&mut self.batch, false)?;
        if self.is_first {
            self.groups.engine.purge_expired_files()?;
        }
        Ok(())
    }
}
