//! `inkstone-streams`, through its public door and its log's numbers. A lane is a stream.
//!
//! *Owns*: every call to that crate. *May not touch*: what is measured.

use std::path::Path;

use anyhow::Result;
use inkstone_streams::{Batch, Options, Streams};

use super::inkstone;
use crate::record::Checker;
use crate::store::{Setup, Store, Writer};

/// Streams that one batch creates.
const CREATE: usize = 1000;

struct Log {
    streams: Streams,
    setup: Setup,
}

pub fn open(path: &Path, setup: Setup) -> Result<Box<dyn Store>> {
    let streams = Streams::open(path, Options::new())?;
    let missing: Vec<u64> = (streams.stats().streams..u64::from(setup.lanes)).collect();
    for some in missing.chunks(CREATE) {
        let mut batch = Batch::new();
        some.iter().for_each(|&stream| {
            batch.create(stream, 0);
        });
        streams.apply(&batch)?.wait()?;
    }
    Ok(Box::new(Log { streams, setup }))
}

impl Store for Log {
    fn writer(&self, _: u32) -> Result<Box<dyn Writer + '_>> {
        Ok(Box::new(Appender { log: self }))
    }

    fn lanes(&self) -> u32 {
        self.setup.lanes
    }

    fn read(&self, lane: u32, from: u64, seen: &mut Checker) -> Result<()> {
        let first = self.streams.bounds(lane.into())?.first;
        let mut cursor = self.streams.reader().read(lane.into(), first.max(from));
        while let Some(record) = cursor.next()? {
            seen.see(&record.bytes);
        }
        Ok(())
    }

    fn rest(&self) {
        inkstone::rest(self.streams.log());
    }

    fn how(&self) -> String {
        let log = self.streams.log();
        let moved = self.streams.stats().moved_bytes >> 20;
        format!("{}; moved {moved} MiB", inkstone::words(&log.choice(), &log.stats()))
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(self.streams.close()?)
    }
}

struct Appender<'a> {
    log: &'a Log,
}

impl Writer for Appender<'_> {
    fn append(&mut self, lane: u32, record: &[u8]) -> Result<()> {
        drop(self.log.streams.append(lane.into(), record)?);
        Ok(())
    }

    fn append_durable(&mut self, lane: u32, record: &[u8]) -> Result<()> {
        Ok(self.log.streams.append(lane.into(), record)?.wait()?)
    }

    fn sync(&mut self) -> Result<()> {
        Ok(self.log.streams.sync()?)
    }

    /// One batch truncates all streams that were written since the last time; nobody waits for it.
    fn tidy(&mut self, written: &[(u32, u64)]) -> Result<()> {
        let Some(keep) = self.log.setup.keep() else { return Ok(()) };
        let mut batch = Batch::new();
        for &(lane, next) in written.iter().filter(|(_, next)| *next > keep) {
            batch.truncate_before(lane.into(), next - keep);
        }
        if !batch.is_empty() {
            drop(self.log.streams.apply(&batch)?);
        }
        Ok(())
    }
}
