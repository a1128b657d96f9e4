//! Statistics of a log with streams.
//!
//! *Owns*: plain data that callers get. *May not touch*: anything else.

use crate::error::Error;

/// Statistics of a log with streams. Sizes are approximate: they count what records take in the
/// log.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Stats {
    /// Streams that exist.
    pub streams: u64,
    /// Bytes that the live records take in the log.
    pub live_bytes: u64,
    /// Bytes that a table of all streams takes in the log, with their notes.
    pub table_bytes: u64,
    /// Bytes that all records take in the log, with those of the housekeeping.
    pub log_bytes: u64,
    /// Sections of the log.
    pub sections: u64,
    /// Records that were moved to the end of the log since the log was opened.
    pub moved_records: u64,
    /// Their bytes.
    pub moved_bytes: u64,
    /// Records that could not be read when they were to be moved, since the log was opened: they
    /// are damaged, and lost. [`StreamUsage::lost`](crate::StreamUsage::lost) names them.
    pub lost_records: u64,
    /// Bytes of directories and tables that were written since the log was opened.
    pub housekeeping_bytes: u64,
    /// Bytes of the live records of the oldest section: the front is not freed before they are 0.
    pub front_live_bytes: u64,
    /// Why the last attempt to move records, to free the front of the log, or to write a directory
    /// or a table failed; `None` if it succeeded or was not due. The next change tries again.
    /// Records are as safe as before, but the log grows.
    pub not_moved: Option<Error>,
}
