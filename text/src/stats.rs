//! The counters of a log.
//!
//! *Owns*: the counters and their meaning. *May not touch*: counting.

/// The counters of a log. They are exact, and consistent with each other: taken at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Stats {
    /// Lines (calls of `write_all`) that went into a buffer.
    pub lines: u64,
    /// Their bytes.
    pub bytes: u64,
    /// How many of those lines were written to the file, to their last byte.
    pub written_lines: u64,
    /// Their bytes, without notices.
    pub written_bytes: u64,
    /// Lines dropped by the policy: they got no buffer, or were thrown away with one.
    pub dropped_lines: u64,
    /// Their bytes.
    pub dropped_bytes: u64,
    /// How many of those lines were too long for all buffers together.
    pub too_long_lines: u64,
    /// Their bytes.
    pub too_long_bytes: u64,
    /// How many of the dropped lines a notice in the log has counted.
    pub told_lines: u64,
    /// Their bytes.
    pub told_bytes: u64,
    /// Accepted lines that were not written to their last byte before the writer was closed. With
    /// `Survive::Kill` the next start appends them.
    pub unwritten_lines: u64,
    /// Bytes of written lines that were not in the file any more when its disk, which had been
    /// away, came back.
    pub vanished_bytes: u64,
    /// Calls refused because the writer was closed.
    pub refused_lines: u64,
    /// Calls that had to wait for room.
    pub waits: u64,
    /// Wake-ups of the back thread by writers.
    pub wake_ups: u64,
    /// Attempts to open or write that failed.
    pub write_errors: u64,
    /// Syncs that failed.
    pub sync_errors: u64,
    /// Files rotated.
    pub rotations: u64,
    /// Calls of hooks (events, notice) that panicked.
    pub hook_panics: u64,
}
