//! The options, as plain values.
//!
//! *Owns*: the options and their defaults. *May not touch*: their effects.

use std::time::Duration;

/// What a writer does when every buffer is full because the disk is too slow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum WhenFull {
    /// It waits until there is room. Nothing is lost but a line longer than all buffers together:
    /// that is dropped, as below.
    #[default]
    Block,
    /// It waits this long, then its line is dropped; with no time at all, at once. Dropped lines
    /// are counted, and a notice in the log says how many.
    DropAfter(Duration),
}

/// What accepted lines survive before they are in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Survive {
    /// Nothing: a killed process loses what is in its buffers.
    #[default]
    Nothing,
    /// A kill of the process (SIGKILL, abort, out of memory): the buffers are in a file in memory,
    /// and the next start appends the lines that were not written. Where the log's directory has no
    /// identity that lasts, an event says that a kill would lose lines
    /// ([`Builder::must_survive`](crate::Builder::must_survive)).
    Kill,
    /// As `Kill`; and a power loss takes the lines of about this long at most: the output thread
    /// syncs the file at this interval, and so does each flush and rotation.
    PowerLoss(Duration),
}

/// When a new file is started. Several conditions may be set; without any, never.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rotation {
    pub(crate) bytes: Option<u64>,
    pub(crate) every: Option<Duration>,
}

impl Rotation {
    /// Never.
    pub fn new() -> Self {
        Self::default()
    }

    /// The smallest size that can be kept: four of the smallest buffers.
    pub(crate) const BYTES_MIN: u64 = 16 << 10;

    /// Before a file would become larger than this, which is at least 16 KiB: opening
    /// refuses less. Files end between buffers, so each may be a buffer smaller; a buffer
    /// is at most a quarter of this. Only a line longer than a buffer can make a file larger.
    #[must_use]
    pub fn at_bytes(self, bytes: u64) -> Self {
        Self { bytes: Some(bytes), ..self }
    }

    /// At each multiple of this since 1970 (a day: at midnight) in UTC, also if nothing is written then; an empty file is not rotated. A line written within
    /// the flush interval before may be in the later file.
    #[must_use]
    pub fn every(self, every: Duration) -> Self {
        Self { every: Some(every.max(Duration::from_secs(1))), ..self }
    }
}

/// Which rotated files are kept. Every limit that is set applies; without any, all files are kept.
/// Files that this crate did not name are never touched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Keep {
    pub(crate) files: Option<usize>,
    pub(crate) age: Option<Duration>,
}

impl Keep {
    /// Keeps all of them.
    pub fn new() -> Self {
        Self::default()
    }

    /// Keeps this many of the newest, besides the current file.
    #[must_use]
    pub fn files(self, files: usize) -> Self {
        Self { files: Some(files), ..self }
    }

    /// Keeps those rotated within this many days.
    #[must_use]
    pub fn days(self, days: u32) -> Self {
        Self { age: Some(Duration::from_secs(u64::from(days) * 86_400)), ..self }
    }
}

/// How rotated files are compressed, in the background.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Compression {
    /// Not at all.
    #[default]
    None,
    /// gzip, level 6: `.gz`.
    #[cfg(feature = "gzip")]
    Gzip,
}

impl Compression {
    /// The extension of the name.
    pub(crate) fn extension(self) -> Option<&'static str> {
        match self {
            Compression::None => None,
            #[cfg(feature = "gzip")]
            Compression::Gzip => Some("gz"),
        }
    }
}
