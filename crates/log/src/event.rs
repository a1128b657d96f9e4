//! What a log tells whoever listens, as it happens.
//!
//! *Owns*: the events. *May not touch*: what a listener does; it is called without any lock held, on the thread to which
//! it happened, so that it should be quick.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use inkstone_format::{Lsn, SegmentNumber};

use crate::error::Poison;
use crate::report::Recovery;

/// Something that happened in a log.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Event {
    /// The log was opened.
    Recovered(Recovery),
    /// Something could not be had, or is not safe here; what is done instead.
    Fallback {
        /// As a sentence.
        what: String,
    },
    /// A segment is full and durable; the next is in use.
    SegmentSealed(SealedSegment),
    /// A segment change found no file ready, and did without: what was used instead.
    PoolEmpty {
        /// The size of the segment in bytes.
        segment_bytes: u64,
        /// Blocks that are only reserved were used; otherwise those of an old segment, or zeros were written where the file
        /// system cannot reserve blocks.
        fallocated: bool,
    },
    /// No file could be made ready in the background, for want of room or of budget, or because something failed. The next
    /// segment change tries again.
    PreparationFailed {
        /// Why.
        why: String,
    },
    /// A commit took longer than `Options::slow_commit`.
    SlowCommit {
        /// How long.
        took: Duration,
        /// Bytes of the group.
        bytes: u64,
    },
    /// A write or sync failed; the log takes no more.
    Poisoned(Poison),
}

/// A segment that is full. As long as this is held (or a clone of it), and the log is open, its file is not used for anything
/// else, also when `truncate_before` has given its records up: an archiver can copy it in its own time. The disk budget counts it.
///
/// When the log was closed, or dropped, the next opening may use the file for other records: it may be another process's. Whoever
/// asks [`SealedSegment::is_kept`] *after* reading the file knows whether all of that was the segment.
#[derive(Clone)]
pub struct SealedSegment {
    /// Its number.
    pub number: SegmentNumber,
    /// Its file.
    pub path: PathBuf,
    /// Its first record.
    pub first: Lsn,
    /// Its last.
    pub last: Lsn,
    /// Holding it keeps the file.
    pub(crate) pin: Arc<dyn Pin>,
}

impl SealedSegment {
    /// Whether the file was kept until now: the log that told of it has not been closed or dropped. In a forked child it is
    /// false: there nothing is known of the parent's log.
    pub fn is_kept(&self) -> bool {
        self.pin.is_kept()
    }
}

/// What keeps a segment's file while its log is open.
pub(crate) trait Pin: Send + Sync {
    fn is_kept(&self) -> bool;
}

impl fmt::Debug for SealedSegment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SealedSegment")
            .field("number", &self.number)
            .field("path", &self.path)
            .field("first", &self.first)
            .field("last", &self.last)
            .finish_non_exhaustive()
    }
}

/// The user's listener.
#[derive(Clone)]
pub(crate) struct Listener(pub(crate) Arc<dyn Fn(&Event) + Send + Sync>);

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Listener")
    }
}
