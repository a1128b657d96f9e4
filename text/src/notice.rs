//! What is counted, and the notice in the log that lines were dropped.
//!
//! *Owns*: the counters and their meaning, the notice's text. *May not touch*: counting.

use std::fmt;
use std::sync::Arc;
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
    /// Wake-ups of the output thread by writers.
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

/// What was dropped since the last notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Dropped {
    /// Lines (calls of `write_all`).
    pub lines: u64,
    /// Their bytes.
    pub bytes: u64,
    /// How many of those lines were too long for all buffers together: no disk is fast enough for
    /// them.
    pub too_long_lines: u64,
    /// Their bytes.
    pub too_long_bytes: u64,
}

impl Dropped {
    fn with(self, other: Self, each: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            lines: each(self.lines, other.lines),
            bytes: each(self.bytes, other.bytes),
            too_long_lines: each(self.too_long_lines, other.too_long_lines),
            too_long_bytes: each(self.too_long_bytes, other.too_long_bytes),
        }
    }

    pub(crate) fn plus(self, other: Self) -> Self {
        self.with(other, |one, two| one + two)
    }

    pub(crate) fn minus(self, other: Self) -> Self {
        self.with(other, |one, two| one - two)
    }

    fn why(self) -> String {
        let Self { lines, too_long_lines, too_long_bytes, .. } = self;
        match too_long_lines {
            0 => "the disk did not keep up".into(),
            all if all == lines => "too long for the buffers".into(),
            some => format!(
                "the disk did not keep up; {some} ({too_long_bytes} bytes) were too long for the \
                 buffers"
            ),
        }
    }
}

type Formatter = dyn Fn(Dropped, &mut Vec<u8>) + Send + Sync;

/// The form of the notice.
#[derive(Clone, Default)]
#[non_exhaustive]
pub enum Notice {
    /// `2026-11-21T16:05:33Z WARN inkstone_appender: 17 lines dropped (2040 bytes): the disk did
    /// not keep up`
    #[default]
    Text,
    /// One JSON object with `timestamp`, `level`, `target`, `message`, `too_long_lines`,
    /// `dropped_lines`, `dropped_bytes`.
    Json,
    /// A function writes it into the empty vector, line end included. It runs in the output thread.
    By(Arc<Formatter>),
}

impl fmt::Debug for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Notice::Text => "Text",
            Notice::Json => "Json",
            Notice::By(_) => "By",
        })
    }
}

impl Notice {
    /// Empties `line` and writes the notice into it.
    pub(crate) fn format(&self, now: SystemTime, dropped: Dropped, line: &mut Vec<u8>) {
        line.clear();
        let when = time::rfc3339(time::seconds(now));
        let Dropped { lines, bytes, too_long_lines, .. } = dropped;
        let why = dropped.why();
        let text = match self {
            Notice::By(format) => return format(dropped, line),
            Notice::Text => format!(
                "{when} WARN inkstone_appender: {lines} lines dropped ({bytes} bytes): {why}\n"
            ),
            Notice::Json => format!(
                "{{\"timestamp\":\"{when}\",\"level\":\"WARN\",\"target\":\"inkstone_appender\",\
                 \"message\":\"lines dropped: {why}\",\"too_long_lines\":{too_long_lines},\
                 \"dropped_lines\":{lines},\"dropped_bytes\":{bytes}}}\n"
            ),
        };
        line.extend_from_slice(text.as_bytes());
    }
}
