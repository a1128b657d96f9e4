//! Where reading stops, and the facts there.
//!
//! *Owns*: the words for what a decoder could not read. *May not touch*: what the facts mean (`verdict`), how they are found
//! (`decode`).

use crate::decode::Tail;
use crate::scan::Evidence;
use crate::types::{Epoch, Lsn};
use crate::verdict::Facts;

/// Where a stop is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// A group should begin there.
    Between,
    /// Inside a group whose header is good.
    Inside,
}

/// What the bytes at a stop look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Found {
    /// There are no more: the segment, its named end or the file ends.
    SegmentEnd,
    /// The header that should stand there is all zeros.
    Zeros,
    /// Between groups: bytes that do not even look like the next group. Mostly old bytes of a recycled file.
    Remains,
    /// A header whose checksum does not fit; between groups, one with marker and LSN of the next group.
    Garbage,
    /// A header with a good checksum.
    Sound,
}

/// How the epoch of a sound group compares with the last good one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EpochIs {
    /// Old bytes of this segment.
    Lower,
    /// The same.
    Equal,
    /// A later one.
    Higher,
}

/// The first check that failed, for people; the verdict does not look at it.
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
    /// Bytes other than zero between payload and next frame.
    Gap,
    /// A group of an older epoch.
    EpochLower,
    /// A new epoch that does not begin with an epoch frame, or an epoch frame elsewhere.
    EpochOrder,
    /// A length that does not fit.
    Length,
    /// Another LSN than the next.
    Lsn,
    /// A promise that cannot be meant.
    Promise,
    /// A kind or reserved field that the segment's version does not have.
    Kind,
    /// A batch that is left open, or continued and never begun.
    Batch,
    /// A control frame with a payload that it cannot have.
    Control,
    /// More or fewer frames than counted.
    Count,
    /// The segment was sealed.
    Sealed,
}

/// The facts of a stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stop {
    /// The byte of what could not be read: a group header or a frame header.
    pub at: u64,
    /// Between groups, or inside one.
    pub place: Place,
    /// What the bytes look like.
    pub found: Found,
    /// The epoch found against the last good one (`Equal` where there is none to compare).
    pub epoch: EpochIs,
    /// Whether the length fits.
    pub length_fits: bool,
    /// Whether the LSN is the expected one.
    pub lsn_fits: bool,
    /// Whether everything else that the header says may stand there.
    pub grammar_fits: bool,
    /// Whether the payload is whole.
    pub body_fits: bool,
    /// Whether the file is shorter than what should be read of it.
    pub file_short: bool,
    /// Which check failed first.
    pub fault: Fault,
    /// What the whole groups before amount to.
    pub tail: Tail,
    /// The LSN found in a sound header.
    pub lsn_found: Option<Lsn>,
    /// The LSN expected there.
    pub lsn_expected: Lsn,
    /// The epoch that a frame there would have: that of its group.
    pub epoch_here: Epoch,
}

impl Stop {
    /// The facts that the verdict is made of.
    pub fn facts(&self, evidence: &Evidence) -> Facts {
        Facts {
            below: evidence.covers(self.tail.end, self.tail.next_lsn),
            later: evidence.later,
            short: self.file_short,
            sealed: self.tail.sealed.is_some(),
            found: self.found,
            place: self.place,
            epoch: self.epoch,
            length: self.length_fits,
            lsn: self.lsn_fits,
            grammar: self.grammar_fits,
            body: self.body_fits,
        }
    }
}

impl Fault {
    /// Whether it is a sound header that says what may not be said there.
    pub(crate) fn is_grammar(self) -> bool {
        matches!(
            self,
            Self::EpochOrder | Self::Promise | Self::Kind | Self::Batch | Self::Control | Self::Count
        )
    }
}
