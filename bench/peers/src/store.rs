//! What a store is to this program: an engine's log, its streams, or a raft log on it.
//!
//! *Owns*: the two traits, and what a store is opened for. *May not touch*: any engine's calls
//! (`stores/`).

use std::sync::mpsc::channel;

use anyhow::{Context, Result};

use crate::record::{Checker, Source};

/// Called once: the record is durable, or will not be.
pub type Done = Box<dyn FnOnce(Result<()>) + Send>;

/// A store, open in a directory of its own.
pub trait Store: Send + Sync {
    /// One thread's way in.
    fn writer(&self, thread: u32) -> Result<Box<dyn Writer + '_>>;

    /// How many lanes it keeps apart: as streams, as raft groups.
    fn lanes(&self) -> u32 {
        1
    }

    /// Shows the checker the records of a lane in order, from this number on or the first that is
    /// there. Where lanes are not kept apart, number 0 is everything, and is read from its
    /// beginning.
    fn read(&self, lane: u32, from: u64, seen: &mut Checker) -> Result<()>;

    /// Outside the clock: what is still in the background comes to an end.
    fn rest(&self) {}

    /// How it is made durable and fast here, and what it did so far that explains its figures.
    fn how(&self) -> String;

    /// Ends it in order: what was acknowledged is there for whoever opens it next.
    fn close(self: Box<Self>) -> Result<()>;
}

/// One thread's way into a store. To each lane one thread writes.
pub trait Writer {
    /// Appends one record; nothing is promised until [`Writer::sync`] returns.
    fn append(&mut self, lane: u32, record: &[u8]) -> Result<()>;

    /// Appends one record; on `Ok` it is on stable storage.
    fn append_durable(&mut self, lane: u32, record: &[u8]) -> Result<()>;

    /// On `Ok` everything that this writer appended is on stable storage. In a raft log it is a
    /// vote of a new term.
    fn sync(&mut self) -> Result<()>;

    /// Appends one record and calls back: raft logs.
    fn start(&mut self, lane: u32, record: &[u8], done: Done) -> Result<()> {
        done(self.append_durable(lane, record));
        Ok(())
    }

    /// Now and then, inside the clock: gives up what is old. `written` has what this writer has
    /// appended to since, with the number after the last record of each.
    fn tidy(&mut self, _written: &[(u32, u64)]) -> Result<()> {
        Ok(())
    }

    /// Many appends: compiled for each engine, so that what is timed calls nothing through a
    /// pointer but this.
    fn append_burst(&mut self, source: &mut Source, count: u64) -> Result<()> {
        for _ in 0..count {
            let (lane, record) = source.advance();
            self.append(lane, record)?;
        }
        Ok(())
    }
}

/// Waits for what calls back.
pub fn waited(start: impl FnOnce(Done) -> Result<()>) -> Result<()> {
    let (tell, told) = channel();
    start(Box::new(move |outcome| {
        // The receiver has left if the start has failed.
        let _ = tell.send(outcome);
    }))?;
    told.recv().context("nothing called back")?
}

/// What a store is opened for.
#[derive(Debug, Clone, Copy)]
pub struct Setup {
    pub work: Work,
    pub record_bytes: usize,
    /// Each lane has numbers of its own: threads, or streams where those are more.
    pub lanes: u32,
}

/// What is done with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// Each append is waited for. What is old is given up.
    Waited,
    /// So many records are in flight, which call back. What is old is given up.
    InFlight(u64),
    /// Nobody waits, and everything is durable as soon as it can be. What is old is given up.
    Unwaited,
    /// Nobody waits, and there is one sync at the end. What is old is given up.
    Unsynced,
    /// Nobody waits, and nothing is given up.
    Growing,
    /// It is there, and is read.
    Read,
}

/// What all lanes together keep of their records, about, where old ones are given up.
pub const KEEP_BYTES: u64 = 64 << 20;
/// What a record takes in a store beside its bytes, about.
const FRAME_BYTES: u64 = 24;
/// Each lane keeps so many records at least.
const KEEP_MIN: u64 = 10;

impl Setup {
    /// How many records a lane keeps; `None`: all.
    pub fn keep(&self) -> Option<u64> {
        let of_all = KEEP_BYTES / (self.record_bytes as u64 + FRAME_BYTES);
        let of_each = (of_all / u64::from(self.lanes)).max(KEEP_MIN);
        (!matches!(self.work, Work::Growing | Work::Read)).then_some(of_each)
    }
}
