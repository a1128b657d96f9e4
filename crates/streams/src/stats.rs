//! What is counted of a log with streams.
//!
//! *Owns*: plain data that callers get. *May not touch*: anything else.

use crate::error::Error;

/// A log with streams as it is now.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Stats {
    /// Streams that exist.
    pub streams: u64,
    /// Bytes that the records that live take in the log.
    pub live_bytes: u64,
    /// Bytes that all records take in the log, those of the housekeeping too.
    pub log_bytes: u64,
    /// Sections of the log.
    pub sections: u64,
    /// Records that were moved to the end of the log since it was opened.
    pub moved_records: u64,
    /// Their bytes.
    pub moved_bytes: u64,
    /// Bytes of directories and of the table of streams, written since it was opened.
    pub housekeeping_bytes: u64,
    /// Bytes that live in the oldest section: what the front of the log waits for.
    pub front_live_bytes: u64,
    /// Why the front of the log could not be moved or given back when that was tried last, or why
    /// the directory or the table that must come before cannot be written; `None` if that
    /// succeeded, or was not due yet. It is tried again with the next change. Records are as safe
    /// as before, but the log grows.
    pub not_moved: Option<Error>,
}
