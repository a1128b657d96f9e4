//! What is counted, and the notice in the log that lines were dropped.
//!
//! *Owns*: the counters and their meaning, the notice's text. *May not touch*: counting.

use std::time::SystemTime;

use crate::time;

/// The counters of a log. They are exact, and consistent with each other: taken at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Stats {
    /// Lines (calls of `write_all`) that went into a buffer.
    pub lines: u64,
    /// Their bytes.
    pub bytes: u64,
    /// How many of those lines were written to the file, to their last byte. Lines count when the
    /// whole buffer is written; of one that is given up in part, line ends count.
    pub written_lines: u64,
    /// Bytes that were written, without notices.
    pub written_bytes: u64,
    /// Lines dropped by the policy: they got no buffer, or were thrown away with one.
    pub dropped_lines: u64,
    /// Their bytes.
    pub dropped_bytes: u64,
    /// Accepted lines that were not written to their last byte before the writer was closed. With
    /// `Survive::Kill` the next start appends them.
    pub unwritten_lines: u64,
    /// Calls that had to wait for room.
    pub waits: u64,
    /// Attempts to open or write that failed.
    pub write_errors: u64,
    /// Files rotated.
    pub rotations: u64,
}

/// What was dropped since the last notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Dropped {
    pub(crate) lines: u64,
    pub(crate) bytes: u64,
}

impl Dropped {
    pub(crate) fn plus(self, other: Self) -> Self {
        Self { lines: self.lines + other.lines, bytes: self.bytes + other.bytes }
    }

    pub(crate) fn minus(self, other: Self) -> Self {
        Self { lines: self.lines - other.lines, bytes: self.bytes - other.bytes }
    }
}

/// The line that says so:
/// `2026-11-21T16:05:33Z WARN inkstone_appender: 17 lines dropped (2040 bytes): no room in the buffers`
pub(crate) fn notice(now: SystemTime, dropped: Dropped) -> String {
    let when = time::rfc3339(time::seconds(now));
    let Dropped { lines, bytes } = dropped;
    format!(
        "{when} WARN inkstone_appender: {lines} lines dropped ({bytes} bytes): no room in the \
         buffers\n"
    )
}
