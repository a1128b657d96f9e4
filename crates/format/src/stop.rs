//! Where reading stops, and the facts there.
//!
//! *Owns*: the types for what a decoder could not read. *May not touch*: what the facts mean
//! (`verdict`), how they are found (`decode`).

use crate::types::{Epoch, Lsn, SegmentNumber};

/// The state after the whole groups so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tail {
    /// The byte after the last whole group: where the next is expected.
    pub end: u64,
    /// The LSN of the next record.
    pub next_lsn: Lsn,
    /// The epoch of the last group; before the first group, that of the segment's header.
    pub epoch: Epoch,
    /// The highest promise so far, the segment's header included.
    pub promise: Lsn,
    /// The first LSN that is not truncated.
    pub first_live: Lsn,
    /// The number of groups.
    pub groups: u64,
    /// The log was closed cleanly, and nothing follows.
    pub closed: bool,
    /// The segment was sealed, and this is the next one.
    pub sealed: Option<SegmentNumber>,
}

/// Where a stop is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// Between groups: a group should begin there.
    Between,
    /// Inside a group whose header is sound.
    Inside,
}

/// What the bytes at a stop look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Found {
    /// There are no more bytes: the segment, its named end or the file ends.
    SegmentEnd,
    /// There are only zeros where a header should be.
    Zeros,
    /// Between groups: bytes that do not look like the next group at all. Mostly old bytes of a
    /// recycled file.
    Remains,
    /// A header whose checksum does not match; between groups, with the marker and the LSN of the
    /// next group.
    Garbage,
    /// A header with a good checksum.
    Sound,
}

/// How the epoch of a sound group compares with the last good one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EpochIs {
    /// Lower: old bytes of this segment.
    Lower,
    /// The same epoch.
    Equal,
    /// A later epoch.
    Higher,
}

/// The first check that failed, for people; the verdict does not use it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Fault {
    /// No room for another group.
    SegmentEnd,
    /// The file is shorter than the segment.
    FileEnds,
    /// Zeros instead of a header.
    Zeros,
    /// The checksum of a group header.
    GroupChecksum,
    /// The checksum of a frame header.
    FrameChecksum,
    /// The checksum of a payload.
    PayloadChecksum,
    /// Bytes other than zero between a payload and the next frame.
    Gap,
    /// A group of an older epoch.
    EpochLower,
    /// A new epoch that does not begin with an epoch frame, or an epoch frame elsewhere.
    EpochOrder,
    /// An impossible length.
    Length,
    /// Not the next LSN.
    Lsn,
    /// An impossible promise.
    Promise,
    /// A kind or a value of a reserved field that the format does not have.
    Kind,
    /// A batch that does not end, or was never begun.
    Batch,
    /// A control frame with an impossible payload, or a frame after the seal.
    Control,
    /// More or fewer frames than the group's header counts.
    Count,
    /// The segment was sealed.
    Sealed,
}

/// The facts of a stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stop {
    /// The byte of the group header or frame header at which reading failed.
    pub at: u64,
    /// Between groups, or inside one.
    pub place: Place,
    /// What the bytes look like.
    pub found: Found,
    /// The epoch found against the last good one (`Equal` where there is none to compare).
    pub epoch: EpochIs,
    /// Whether the length is possible.
    pub length_fits: bool,
    /// Whether the LSN is the expected one.
    pub lsn_fits: bool,
    /// Whether everything else in the header is allowed there.
    pub grammar_fits: bool,
    /// Whether the payload is whole.
    pub body_fits: bool,
    /// Whether the file is shorter than the part of it that should be read.
    pub file_short: bool,
    /// The check that failed first.
    pub fault: Fault,
    /// The state after the whole groups before it.
    pub tail: Tail,
    /// The LSN found in a sound header.
    pub lsn_found: Option<Lsn>,
    /// The LSN expected there.
    pub lsn_expected: Lsn,
    /// The epoch of a frame there: that of its group.
    pub epoch_here: Epoch,
}

impl Fault {
    /// Whether it is a sound header that is not allowed there.
    pub(crate) fn is_grammar(self) -> bool {
        matches!(
            self,
            Self::EpochOrder
                | Self::Promise
                | Self::Kind
                | Self::Batch
                | Self::Control
                | Self::Count
        )
    }
}
