//! What can be chosen, as plain values.
//!
//! *Owns*: the choices and their defaults. *May not touch*: carrying them out.

use std::time::Duration;

/// What a writer does when every buffer is full, because the disk does not keep up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WhenFull {
    /// It waits until there is room. Nothing is lost.
    #[default]
    Block,
    /// It waits this long, then its line is dropped.
    BlockFor(Duration),
    /// Its line is dropped.
    DropNewest,
    /// The oldest buffer that is not being written is dropped, with every line in it.
    DropOldest,
}

/// What lines that were accepted, and are not in the file yet, survive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Survive {
    /// Nothing: a killed process loses what is in its buffers.
    #[default]
    Nothing,
    /// A kill of the process (SIGKILL, abort, out of memory): the buffers are in a file in memory, and the next start
    /// appends what had not been written.
    Kill,
    /// As `Kill`; and a power loss takes at most the lines of about this long: the file is synced by the back thread
    /// every so often, and by each flush and rotation.
    PowerLoss(Duration),
}

/// When a new file is begun. Several may be chosen; without any, never.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rotation {
    pub(crate) bytes: Option<u64>,
    pub(crate) every: Option<Duration>,
    pub(crate) at_start: bool,
    pub(crate) ahead: bool,
}

impl Rotation {
    /// Never.
    pub fn new() -> Self {
        Self::default()
    }

    /// Before a file would become larger than this. Files end between buffers, so each may be a buffer smaller; buffers are
    /// made no larger than a quarter of this. Only a line longer than a buffer can make a file larger. A file that may grow no more
    /// (`ulimit -f`) is full before that, with any rotation.
    #[must_use]
    pub fn at_bytes(self, bytes: u64) -> Self {
        Self { bytes: Some(bytes.max(1)), ..self }
    }

    /// At each multiple of this since 1970 in UTC (a day: at midnight), also when nothing is written then; an empty file
    /// stays. A line written within the flush interval before may be in the later file.
    #[must_use]
    pub fn every(self, every: Duration) -> Self {
        Self { every: Some(every.max(Duration::from_secs(1))), ..self }
    }

    /// When the log is opened.
    #[must_use]
    pub fn at_start(self) -> Self {
        Self { at_start: true, ..self }
    }

    /// With [`Rotation::at_bytes`]: the next file is created, and its blocks reserved, before it is needed. What a file did not
    /// use is given back when it is rotated. No gain was seen (docs/text-log.md), but a disk that fills up shows a file earlier.
    #[must_use]
    pub fn allocate_ahead(self) -> Self {
        Self { ahead: true, ..self }
    }

    /// How much is reserved for each file.
    pub(crate) fn ahead_bytes(self) -> Option<u64> {
        self.bytes.filter(|_| self.ahead)
    }
}

/// Which rotated files stay. Each limit that is set holds; without any, all stay. A file that this crate did not name is never
/// touched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Keep {
    pub(crate) files: Option<usize>,
    pub(crate) age: Option<Duration>,
    pub(crate) bytes: Option<u64>,
}

impl Keep {
    /// All of them.
    pub fn new() -> Self {
        Self::default()
    }

    /// The newest so many, the current file not counted.
    #[must_use]
    pub fn files(self, files: usize) -> Self {
        Self { files: Some(files), ..self }
    }

    /// Those rotated in the last so many days.
    #[must_use]
    pub fn days(self, days: u32) -> Self {
        Self { age: Some(Duration::from_secs(u64::from(days) * 86_400)), ..self }
    }

    /// The newest that have so many bytes together, the current file not counted.
    #[must_use]
    pub fn bytes(self, bytes: u64) -> Self {
        Self { bytes: Some(bytes), ..self }
    }
}

/// How rotated files are compressed, in the background.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Compression {
    /// Not.
    #[default]
    None,
    /// gzip, level 6: `.gz`.
    #[cfg(feature = "gzip")]
    Gzip,
    /// zstd, level 3: `.zst`.
    #[cfg(feature = "zstd")]
    Zstd,
}

impl Compression {
    /// What is put behind the name.
    pub(crate) fn extension(self) -> Option<&'static str> {
        match self {
            Compression::None => None,
            #[cfg(feature = "gzip")]
            Compression::Gzip => Some("gz"),
            #[cfg(feature = "zstd")]
            Compression::Zstd => Some("zst"),
        }
    }
}
