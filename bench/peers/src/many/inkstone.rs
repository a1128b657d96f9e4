//! `inkstone-streams`, through its public door and its log's numbers.
//!
//! *Owns*: every call to that crate. *May not touch*: what is measured.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use inkstone_streams::{Batch, Options, Streams};

use super::store::{Many, ManyWriter, Wait};
use crate::engine::Groups;
use crate::engines::inkstone::words;

/// Streams that one batch creates.
const CREATE: u64 = 1000;

struct Log(Streams);

pub fn open(path: &Path, streams: u32) -> Result<Box<dyn Many>> {
    let log = Streams::open(path, Options::new())?;
    let all: Vec<u64> = (log.reader().count()? as u64..u64::from(streams)).collect();
    for some in all.chunks(CREATE as usize) {
        let mut batch = Batch::new();
        some.iter().for_each(|&stream| {
            batch.create(stream, 0);
        });
        log.apply(&batch)?.wait()?;
    }
    Ok(Box::new(Log(log)))
}

impl Many for Log {
    fn writer(&self) -> Box<dyn ManyWriter + '_> {
        Box::new(Appender(&self.0))
    }

    fn bounds(&self, stream: u32) -> Result<(u64, u64)> {
        let bounds = self.0.bounds(stream.into())?;
        Ok((bounds.first, bounds.next))
    }

    fn read(&self, stream: u32, show: &mut dyn FnMut(&[u8])) -> Result<()> {
        let (first, _) = self.bounds(stream)?;
        let mut cursor = self.0.reader().read(stream.into(), first);
        while let Some(record) = cursor.next()? {
            show(&record.bytes);
        }
        Ok(())
    }

    /// Until a file is ready for the next segment, two seconds at most.
    fn rest(&self) {
        let begin = Instant::now();
        while self.0.log().stats().ready == 0 && begin.elapsed() < Duration::from_secs(2) {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn groups(&self) -> Option<Groups> {
        let stats = self.0.log().stats();
        Some(Groups { count: stats.groups, bytes: stats.group_bytes })
    }

    fn moved(&self) -> Option<(u64, String)> {
        Some((self.0.stats().moved_bytes, words(self.0.log())))
    }

    fn how(&self) -> String {
        format!("defaults; {}", self.0.log().choice())
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(self.0.close()?)
    }
}

struct Appender<'a>(&'a Streams);

impl ManyWriter for Appender<'_> {
    fn append(&mut self, records: &[(u32, &[u8])], wait: Wait) -> Result<()> {
        let mut batch = Batch::new();
        for &(stream, record) in records {
            batch.append(stream.into(), record);
        }
        let written = self.0.apply(&batch)?;
        if wait == Wait::Durable {
            written.wait()?;
        }
        Ok(())
    }

    fn truncate(&mut self, before: &[(u32, u64)]) -> Result<()> {
        let mut batch = Batch::new();
        for &(stream, first) in before {
            batch.truncate_before(stream.into(), first);
        }
        drop(self.0.apply(&batch)?);
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        Ok(self.0.sync()?)
    }
}
