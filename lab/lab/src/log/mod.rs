//! A load on the log, and its requests to the device.
//!
//! *Owns*: the load, and the options of the logs. *May not touch*: the log's internals: it uses
//! the public interface, as a user's program would.
//!
//! [`load`] appends to the log; [`bill`] counts the requests of each commit.

pub mod bill;
pub mod load;

use std::path::Path;
use std::time::Duration;

use inkstone::{Log, Options};

use crate::stage::WayError;

/// Disk budget of each log.
pub(crate) const BUDGET_BYTES: u64 = 256 << 20;
/// Bytes of records that a log keeps: when it has twice as many, the older half is truncated.
pub(crate) const KEEP_BYTES: u64 = 16 << 20;
/// The least that a record takes in a segment besides its bytes.
const FRAME_BYTES: u64 = 24;

/// The options that all logs under a load share.
pub(crate) fn options(segment_bytes: u64, record_bytes: u64) -> Options {
    Options::new()
        .segment_bytes(segment_bytes)
        .record_bytes_max(record_bytes.max(128) as usize)
        .disk_budget_bytes(BUDGET_BYTES)
}

/// Opens a log, and waits until its next segment is ready: a load measures the steady state.
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
