//! The events that a log sends to its listener.
//!
//! *Owns*: the events. *May not touch*: what a listener does. The listener runs on the thread where
//! the event happened, while no lock is held, so it should be quick.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use inkstone_format::{Lsn, SegmentNumber};

use crate::choice::Tried;
use crate::error::Poison;
use crate::report::Recovery;

/// Something that happened in a log.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Event {
    /// The log was opened.
    Recovered(Recovery),
    /// Something is not available or not safe here, and the log does something else instead.
    Fallback {
        /// What, as a sentence.
        what: String,
    },
    /// The log has tried which of two durable ways of writing is faster here
    /// ([`Trial`](crate::Trial)).
    Tried(Tried),
    /// A segment is full and durable; the next is in use.
    SegmentSealed(SealedSegment),
    /// A segment change found no prepared file and used something else.
    PoolEmpty {
        /// The size of the segment in bytes.
        segment_bytes: u64,
        /// Whether the blocks of the segment are only reserved. Otherwise they are those of an old
        /// segment, or were filled with zeros because the file system cannot reserve blocks.
        fallocated: bool,
    },
    /// The log could not prepare a file in the background: there is no room, the disk budget is
    /// used up, or a call failed. It tries again.
    PreparationFailed {
        /// The reason.
        why: String,
    },
    /// A commit took longer than `Options::slow_commit`.
    SlowCommit {
        /// How long the commit took.
        took: Duration,
        /// Bytes of the group.
        bytes: u64,
    },
    /// A write or sync failed; the log is poisoned.
    Poisoned(Poison),
}

/// A segment that is full. While this value (or a clone of it) exists and the log is open, its file
/// is not used for anything else, even after `truncate_before` has truncated its records: an
/// archiver can take its time to copy it. The disk budget counts the file. A later `truncate_after`
/// may leave a mark in the last block of the file, behind the records, and changes nothing else.
///
/// Once the log is closed or dropped, the next opening, perhaps of another process, may use the
/// file for other records. Call [`SealedSegment::is_kept`] *after* reading the file: if it is true,
/// everything that was read belongs to the segment.
#[derive(Clone)]
#[non_exhaustive]
pub struct SealedSegment {
    /// Its number.
    pub number: SegmentNumber,
    /// Its file.
    pub path: PathBuf,
    /// The LSN of its first record.
    pub first: Lsn,
    /// The LSN of its last record.
    pub last: Lsn,
    /// Keeps the file while it exists.
    pub(crate) pin: Arc<dyn Pin>,
}

impl SealedSegment {
    /// Whether the file was kept until now: the log that sent the event has not been closed or
    /// dropped. False in a forked child, which knows nothing of the parent's log.
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
