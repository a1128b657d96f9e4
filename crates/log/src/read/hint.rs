//! The place of a record in the files of the log, of which a later reader may be told.
//!
//! *Owns*: the numbers of which a place consists. *May not touch*: whether it is right: a search
//! that begins there checks every header (`finder.rs`).

use inkstone_format::{Epoch, Lsn, Mark, SegmentNumber};

/// Where a record lies: a hint for [`Reader::learn`](crate::Reader::learn). One that is wrong costs
/// time and nothing else.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hint {
    pub(crate) lsn: Lsn,
    pub(crate) segment: SegmentNumber,
    epoch: Epoch,
    at: u64,
}

impl Hint {
    pub(crate) fn new(segment: SegmentNumber, mark: &Mark) -> Self {
        Self { lsn: mark.lsn, segment, epoch: mark.epoch, at: mark.at }
    }

    /// The record.
    #[doc(hidden)]
    pub fn lsn(&self) -> Lsn {
        self.lsn
    }

    /// All that it says, as numbers that grow from place to place in the order of the log.
    #[doc(hidden)]
    pub fn numbers(&self) -> [u64; 4] {
        [self.lsn.get(), self.segment.get(), self.epoch.get(), self.at]
    }

    /// The place with these numbers, if there can be one.
    #[doc(hidden)]
    pub fn from_numbers([lsn, segment, epoch, at]: [u64; 4]) -> Option<Self> {
        let (segment, epoch) = (SegmentNumber::new(segment)?, Epoch::new(epoch)?);
        Some(Self { lsn: Lsn::new(lsn), segment, epoch, at })
    }
}
