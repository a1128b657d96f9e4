//! The notice in the log that lines were dropped.
//!
//! *Owns*: the notice's text. *May not touch*: counting.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use crate::time;

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
    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            lines: self.lines + other.lines,
            bytes: self.bytes + other.bytes,
            too_long_lines: self.too_long_lines + other.too_long_lines,
            too_long_bytes: self.too_long_bytes + other.too_long_bytes,
        }
    }

    pub(crate) fn minus(self, other: Self) -> Self {
        Self {
            lines: self.lines - other.lines,
            bytes: self.bytes - other.bytes,
            too_long_lines: self.too_long_lines - other.too_long_lines,
            too_long_bytes: self.too_long_bytes - other.too_long_bytes,
        }
    }

    fn why(self) -> String {
        let Self { lines, too_long_lines, too_long_bytes, .. } = self;
        if too_long_lines == 0 {
            return "the disk did not keep up".into();
        }
        if too_long_lines == lines {
            return "too long for the buffers".into();
        }
        format!(
            "the disk did not keep up; {too_long_lines} ({too_long_bytes} bytes) were too long for the buffers"
        )
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
    /// A function writes it into the empty vector, line end included. It runs in the back thread.
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
        match self {
            Notice::Text => line.extend_from_slice(
                format!("{when} WARN inkstone_appender: {lines} lines dropped ({bytes} bytes): {why}\n").as_bytes(),
            ),
            Notice::Json => line.extend_from_slice(
                format!(
                    "{{\"timestamp\":\"{when}\",\"level\":\"WARN\",\"target\":\"inkstone_appender\",\"message\":\
                     \"lines dropped: {why}\",\"too_long_lines\":{too_long_lines},\"dropped_lines\":{lines},\"dropped_bytes\":{bytes}}}\n"
                )
                .as_bytes(),
            ),
            Notice::By(format) => format(dropped, line),
        }
    }
}
