//! Measures the log beside the bare overwrite that it cannot beat, and counts its requests to the
//! device.
//!
//! *Owns*: the loads, and the options of the logs. *May not touch*: the log's internals: it uses
//! the public interface, as a user's program would.
//!
//! [`load`] appends to the log; `beside` alternates it with the floor, round by round; [`bill`]
//! counts the requests of each commit.

pub(crate) mod beside;
pub mod bill;
pub mod load;

use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use inkstone::{Log, Options};

use crate::stage::WayError;

/// The load on a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Load {
    /// This many threads, each of which waits for its record before it appends the next.
    Closed(u32),
    /// One thread that appends without waiting, and syncs at the end.
    Async,
}

/// More threads show nothing more about a log.
pub const THREADS_MAX: u32 = 1024;

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed(1) => f.pad("1 thread"),
            Self::Closed(threads) => f.pad(&format!("{threads} threads")),
            Self::Async => f.pad("async"),
        }
    }
}

impl FromStr for Load {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "async" {
            return Ok(Self::Async);
        }
        match text.parse() {
            Ok(threads) if (1..=THREADS_MAX).contains(&threads) => Ok(Self::Closed(threads)),
            _ => {
                Err(format!("{text:?}: take a number of threads from 1 to {THREADS_MAX}, or async"))
            }
        }
    }
}

/// What a bench is to do.
#[derive(Debug, Clone)]
pub struct BenchPlan {
    /// The loads.
    pub loads: Vec<Load>,
    /// Record sizes in bytes; each is measured with each load.
    pub record_bytes: Vec<u64>,
    /// How long to measure the log with each; its floor takes the same time again.
    pub time: Duration,
    /// Commits in each bill; 0 = no bills by trace.
    pub bill_commits: u64,
    /// Seed of the orders and of the intervals.
    pub seed: u64,
}

/// The largest record: several fit into a segment of the bench.
pub const RECORD_BYTES_MAX: u64 = 256 << 10;
/// Full segment size: large enough that changes are rare, small enough for any
/// disk.
const SEGMENT_BYTES: u64 = 32 << 20;
/// Disk budget of each log.
const BUDGET_BYTES: u64 = 256 << 20;
/// Size of the floor's file.
const FLOOR_BYTES: u64 = 16 << 20;
/// Bytes of records that a log keeps: when it has twice as many, the older half is truncated.
pub(crate) const KEEP_BYTES: u64 = 16 << 20;
/// The least that a record takes in a segment besides its bytes.
const FRAME_BYTES: u64 = 24;

/// The most disk space in use at a time.
pub const ROOM_NEEDED_BYTES: u64 = BUDGET_BYTES + FLOOR_BYTES;

/// The options that all logs of the bench share.
pub(crate) fn options(segment_bytes: u64, record_bytes: u64) -> Options {
    Options::new()
        .segment_bytes(segment_bytes)
        .record_bytes_max(record_bytes.max(128) as usize)
        .disk_budget_bytes(BUDGET_BYTES)
}

/// Opens a log, and waits until its next segment is ready: the bench measures the steady state.
pub(crate) fn open(path: &Path, options: Options) -> Result<Log, WayError> {
    let log = Log::open(path, options).map_err(refused)?;
    await_ready(&log);
    Ok(log)
}

/// Waits up to two seconds until a file is ready for the next segment.
fn await_ready(log: &Log) {
    for _ in 0..400 {
        if log.stats().ready > 0 {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn refused(error: inkstone::Error) -> WayError {
    WayError::Invalid(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_have_names() {
        assert_eq!("8".parse(), Ok(Load::Closed(8)));
        assert_eq!("async".parse(), Ok(Load::Async));
        for bad in ["0", "-1", "1025", "many", ""] {
            assert!(bad.parse::<Load>().is_err(), "{bad}");
        }
        let names = [Load::Closed(1), Load::Closed(64), Load::Async].map(|load| load.to_string());
        assert_eq!(names, ["1 thread", "64 threads", "async"]);
    }
}
