//! The log itself, through its public door only.
//!
//! *Owns*: every call to the `inkstone` crate that is measured. *May not touch*: the log's insides.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use inkstone::{Access, Log, Lsn, Options};

use crate::engine::{Engine, Groups, Purpose, Reading, Setup, Writer};
use crate::record::Checker;

/// What a log keeps of its records, about, where it gives up what is old.
const KEEP_BYTES: u64 = 64 << 20;
/// What a record takes in a segment beside its bytes, at least.
const FRAME_BYTES: u64 = 24;
/// Free segments that a stream's log keeps: what one cut frees is used again.
const STREAM_FREE_SEGMENTS: usize = 4;
/// How long an unsynced record may stay in memory.
const PERIOD: Duration = Duration::from_secs(1);

struct Inkstone {
    log: Arc<Log>,
    /// `None`: all records.
    keep_records: Option<u64>,
}

fn options(setup: Setup) -> Options {
    let options = Options::new().yields(setup.yields);
    match setup.purpose {
        Purpose::Durable | Purpose::Keep => options,
        Purpose::Stream => options.free_segments_max(STREAM_FREE_SEGMENTS),
        Purpose::Unsynced => options.free_segments_max(STREAM_FREE_SEGMENTS).periodic(PERIOD),
    }
}

pub fn open(path: &Path, setup: Setup) -> Result<Box<dyn Engine>> {
    let log = Arc::new(Log::open(path, options(setup))?);
    let keep_records = (setup.purpose != Purpose::Keep).then_some(kept(setup.record_bytes));
    let engine = Inkstone { log, keep_records };
    engine.rest()?;
    Ok(Box::new(engine))
}

impl Engine for Inkstone {
    fn writer(&self, thread: u32) -> Result<Box<dyn Writer + '_>> {
        Ok(Box::new(Appender { engine: self, gives_up: thread == 0 }))
    }

    fn how(&self) -> String {
        self.log.choice().to_string()
    }

    /// Until a file is ready for the next segment, two seconds at most.
    fn rest(&self) -> Result<()> {
        let begin = Instant::now();
        while self.log.stats().ready == 0 && begin.elapsed() < Duration::from_secs(2) {
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    fn notes(&self) -> Option<String> {
        Some(words(&self.log))
    }

    fn groups(&self) -> Option<Groups> {
        let stats = self.log.stats();
        Some(Groups { count: stats.groups, bytes: stats.group_bytes })
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(self.log.close()?)
    }
}

struct Appender<'a> {
    engine: &'a Inkstone,
    /// One of the threads gives up what is old.
    gives_up: bool,
}

impl Writer for Appender<'_> {
    fn append(&mut self, record: &[u8]) -> Result<()> {
        self.engine.log.append_unwaited(record)?;
        Ok(())
    }

    fn append_durable(&mut self, record: &[u8]) -> Result<()> {
        self.engine.log.append_durable(record)?;
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        self.engine.log.sync()?;
        Ok(())
    }

    fn tidy(&mut self) -> Result<()> {
        let (Some(keep), true) = (self.engine.keep_records, self.gives_up) else { return Ok(()) };
        give_up(&self.engine.log, keep)
    }
}

/// What a log has done so far.
pub fn words(log: &Log) -> String {
    let stats = log.stats();
    format!(
        "{} records in {} groups; {} segments: {} recycled, {} prepared, {} only reserved; {} \
         changes found no file ready",
        stats.records,
        stats.groups,
        stats.segments,
        stats.segments_recycled,
        stats.segments_prepared,
        stats.segments_fallocated,
        stats.pool_empty
    )
}

fn kept(record_bytes: usize) -> u64 {
    KEEP_BYTES / (record_bytes as u64 + FRAME_BYTES)
}

/// Keeps so many records when there are twice as many.
fn give_up(log: &Log, keep: u64) -> Result<()> {
    let (first, last) = (log.first().get(), log.last().get());
    if last.saturating_sub(first) > 2 * keep {
        log.truncate_before(Lsn::new(last - keep))?;
    }
    Ok(())
}

/// A log that is opened with its defaults reads past the page cache; [`Reading::Cached`] asks for
/// the page cache.
fn reopen(path: &Path, how: Reading) -> Result<Log> {
    let options = Options::new();
    Ok(Log::open(
        path,
        if how == Reading::Cached { options.access(Access::Buffered) } else { options },
    )?)
}

pub fn read_all(path: &Path, how: Reading, checker: &mut Checker) -> Result<()> {
    let log = reopen(path, how)?;
    let mut cursor = log.reader().from(log.first());
    while let Some(record) = cursor.next()? {
        checker.see(record.bytes);
    }
    Ok(())
}
