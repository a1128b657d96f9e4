//! raft-engine 0.4 with many regions: a stream is a region, which one thread writes.
//!
//! *Owns*: every call to that crate for many streams. *May not touch*: what is measured.

use std::path::Path;

use anyhow::Result;
use protobuf::well_known_types::BytesValue;
use raft_engine::{Command, Engine, LogBatch};

use super::store::{Many, ManyWriter, Wait};
use crate::engines::raft_engine::{Entries, Files, config};

struct Regions {
    engine: Engine,
    files: Files,
}

/// Regions are numbered from one.
fn region(stream: u32) -> u64 {
    u64::from(stream) + 1
}

/// `live_bytes`: files are recycled, and purged when they hold four times as much.
pub fn open(path: &Path, live_bytes: Option<u64>) -> Result<Box<dyn Many>> {
    let files = match live_bytes {
        None => Files::Default,
        Some(bytes) => Files::recycled((4 * bytes) >> 20),
    };
    Ok(Box::new(Regions { engine: Engine::open(config(path, files)?)?, files }))
}

impl Many for Regions {
    fn writer(&self) -> Box<dyn ManyWriter + '_> {
        let (batch, entry) = (LogBatch::with_capacity(1), [BytesValue::new()]);
        Box::new(Appender { engine: &self.engine, batch, entry })
    }

    fn purge(&self) -> Result<()> {
        self.engine.purge_expired_files()?;
        Ok(())
    }

    /// An index is a number plus one.
    fn bounds(&self, stream: u32) -> Result<(u64, u64)> {
        let last = self.engine.last_index(region(stream)).unwrap_or(0);
        Ok((self.engine.first_index(region(stream)).map_or(last, |first| first - 1), last))
    }

    fn read(&self, stream: u32, show: &mut dyn FnMut(&[u8])) -> Result<()> {
        let (first, next) = self.bounds(stream)?;
        let mut entries = Vec::with_capacity((next - first) as usize);
        let range = (first + 1, next + 1);
        self.engine.fetch_entries_to::<Entries>(
            region(stream),
            range.0,
            range.1,
            None,
            &mut entries,
        )?;
        entries.iter().for_each(|entry| show(&entry.value));
        Ok(())
    }

    fn how(&self) -> String {
        format!("write(.., sync = true); {}; no compression", self.files.words())
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

struct Appender<'a> {
    engine: &'a Engine,
    batch: LogBatch,
    entry: [BytesValue; 1],
}

impl ManyWriter for Appender<'_> {
    fn append(&mut self, records: &[(u32, &[u8])], wait: Wait) -> Result<()> {
        for &(stream, record) in records {
            let value = &mut self.entry[0].value;
            value.clear();
            value.extend_from_slice(record);
            self.batch.add_entries::<Entries>(region(stream), &self.entry)?;
        }
        self.engine.write(&mut self.batch, wait == Wait::Durable)?;
        Ok(())
    }

    fn truncate(&mut self, before: &[(u32, u64)]) -> Result<()> {
        for &(stream, first) in before {
            self.batch.add_command(region(stream), Command::Compact { index: first + 1 });
        }
        self.engine.write(&mut self.batch, false)?;
        Ok(())
    }

    /// `Engine::sync` of 0.4.2 returns before it syncs: a batch with something in it does not.
    fn sync(&mut self) -> Result<()> {
        self.batch.put(region(0), b"synced".to_vec(), vec![1])?;
        self.engine.write(&mut self.batch, true)?;
        Ok(())
    }
}
