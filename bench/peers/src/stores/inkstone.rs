//! The log itself, through its public door only.
//!
//! *Owns*: every call to the `inkstone` crate that is measured. *May not touch*: the log's insides.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use inkstone::{Log, Lsn, Options};

use crate::record::Checker;
use crate::store::{Setup, Store, Work, Writer};

/// Free segments that a log keeps for producers that do not wait: what one cut frees is used again.
const FREE_SEGMENTS: usize = 4;
/// How long an unsynced record may stay in memory.
const PERIOD: Duration = Duration::from_secs(1);

struct Inkstone {
    log: Log,
    /// `None`: all records.
    keep_records: Option<u64>,
}

pub fn open(path: &Path, setup: Setup) -> Result<Box<dyn Store>> {
    let options = match setup.work {
        Work::Waited | Work::InFlight(_) | Work::Growing | Work::Read => Options::new(),
        Work::Unwaited => Options::new().free_segments_max(FREE_SEGMENTS),
        Work::Unsynced => Options::new().free_segments_max(FREE_SEGMENTS).periodic(PERIOD),
    };
    let keep_records = setup.keep().map(|of_each| of_each * u64::from(setup.lanes));
    Ok(Box::new(Inkstone { log: Log::open(path, options)?, keep_records }))
}

/// Until a file is ready for the next segment, two seconds at most.
pub fn rest(log: &Log) {
    let begin = Instant::now();
    while log.stats().ready == 0 && begin.elapsed() < Duration::from_secs(2) {
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Its way of writing, and what it has done so far.
pub fn words(choice: &inkstone::Choice, stats: &inkstone::Stats) -> String {
    format!(
        "{choice}; {} records in {} groups; {} segments: {} recycled, {} prepared, {} only \
         reserved; {} changes found no file ready",
        stats.records,
        stats.groups,
        stats.segments,
        stats.segments_recycled,
        stats.segments_prepared,
        stats.segments_fallocated,
        stats.pool_empty
    )
}

impl Store for Inkstone {
    fn writer(&self, thread: u32) -> Result<Box<dyn Writer + '_>> {
        Ok(Box::new(Appender { store: self, gives_up: thread == 0 }))
    }

    fn read(&self, _: u32, _: u64, seen: &mut Checker) -> Result<()> {
        let mut cursor = self.log.reader().from(self.log.first());
        while let Some(record) = cursor.next()? {
            seen.see(record.bytes);
        }
        Ok(())
    }

    fn rest(&self) {
        rest(&self.log);
    }

    fn how(&self) -> String {
        words(&self.log.choice(), &self.log.stats())
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(self.log.close()?)
    }
}

struct Appender<'a> {
    store: &'a Inkstone,
    /// One of the threads gives up what is old.
    gives_up: bool,
}

impl Writer for Appender<'_> {
    fn append(&mut self, _: u32, record: &[u8]) -> Result<()> {
        drop(self.store.log.append(record)?);
        Ok(())
    }

    fn append_durable(&mut self, _: u32, record: &[u8]) -> Result<()> {
        self.store.log.append_durable(record)?;
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        self.store.log.sync()?;
        Ok(())
    }

    /// Keeps so many records when there are twice as many.
    fn tidy(&mut self, _: &[(u32, u64)]) -> Result<()> {
        let log = &self.store.log;
        let (Some(keep), true) = (self.store.keep_records, self.gives_up) else { return Ok(()) };
        let (first, last) = (log.first().get(), log.last().get());
        if last.saturating_sub(first) > 2 * keep {
            log.truncate_before(Lsn::new(last - keep))?;
        }
        Ok(())
    }
}
