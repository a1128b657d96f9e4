//! Builds a group in a buffer, frame by frame.
//!
//! *Owns*: what is written into the caller's buffer, and that it can be read back. *May not touch*:
//! where the buffer comes from and when it is written. The encoder does not hold the buffer, so
//! that both can be fields of one struct; each call takes the bytes of the group from its
//! beginning.
//!
//! The position and the epoch of the group are known when it begins; length, count and promise when
//! it ends.

use core::fmt;

use crate::bytes::round_up;
use crate::checksum::PayloadSum;
use crate::frame::{Batch, Control, FrameHeader, Kind, frame_bytes};
use crate::group::{GroupHeader, Identity, Promise};
use crate::header::SegmentHeader;
use crate::limits::{
    ALIGN, BLOCK_BYTES, CONTROL_RESERVE_BYTES, FRAME_HEADER_BYTES, GROUP_BYTES_MAX,
    GROUP_HEADER_BYTES, HEADER_BYTES, RECORD_BYTES_MAX,
};
use crate::types::{Epoch, Lsn};

/// Why a frame was not added. The group is unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum EncodeError {
    /// The buffer (or the largest group) has no room for it: commit the group first.
    BufferFull {
        /// Bytes that the frame needs.
        needed: usize,
        /// Bytes that are left.
        room: usize,
    },
    /// The segment has no room for it: continue in the next segment.
    SegmentFull {
        /// Bytes that the frame needs.
        needed: usize,
        /// Bytes that are left for frames of this kind.
        room: u64,
    },
    /// It is too large for any group.
    TooLarge {
        /// Bytes of the payload.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// There is no LSN left.
    LsnsUsedUp,
}

impl fmt::Display for EncodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BufferFull { needed, room } => {
                write!(f, "a frame of {needed} bytes does not fit: the group has {room} bytes left")
            }
            Self::SegmentFull { needed, room } => {
                write!(
                    f,
                    "a frame of {needed} bytes does not fit: the segment has {room} bytes left"
                )
            }
            Self::TooLarge { bytes, max } => {
                write!(f, "a record of {bytes} bytes is too large: the limit is {max} bytes")
            }
            Self::LsnsUsedUp => write!(f, "the LSNs are used up"),
        }
    }
}

impl core::error::Error for EncodeError {}

/// A group that is being filled.
#[derive(Debug, Clone)]
pub struct GroupEncoder {
    identity: Identity,
    /// No gap may have a higher LSN.
    lost_to: Lsn,
    /// Where the groups of the segment end at the latest.
    groups_end: u64,
    at: u64,
    epoch: Epoch,
    first_lsn: Lsn,
    next_lsn: Lsn,
    used: usize,
    count: u32,
    batch_open: bool,
    sealed: bool,
}

/// A finished group, ready to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Finished {
    /// The byte of the segment at which it starts.
    pub at: u64,
    /// Its length: write this many bytes of the buffer.
    pub bytes: usize,
    /// The LSN of the next record.
    pub next_lsn: Lsn,
}

impl Finished {
    /// The byte after it, where the next group starts.
    pub fn end(&self) -> u64 {
        self.at + self.bytes as u64
    }
}

impl GroupEncoder {
    /// Begins a group at byte `at` of the segment.
    ///
    /// # Panics
    /// When no group can start there, or the epoch is lower than that of the segment.
    pub fn begin(segment: &SegmentHeader, at: u64, epoch: Epoch, next_lsn: Lsn) -> Self {
        assert!(at >= HEADER_BYTES as u64, "a group in the header block");
        assert!(at <= segment.groups_end(), "a group behind the segment");
        assert!(at.is_multiple_of(ALIGN as u64), "a group that is not aligned");
        assert!(epoch >= segment.epoch, "an epoch that goes down");
        assert!(next_lsn >= segment.first_lsn, "an LSN of an older segment");
        Self {
            identity: segment.identity(),
            lost_to: segment.lost_to,
            groups_end: segment.groups_end(),
            at,
            epoch,
            first_lsn: next_lsn,
            next_lsn,
            used: GROUP_HEADER_BYTES,
            count: 0,
            batch_open: false,
            sealed: false,
        }
    }

    /// Whether it has no frame yet. An empty group cannot be finished, only dropped.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The bytes that are used so far, including its header.
    #[inline]
    pub fn used(&self) -> usize {
        self.used
    }

    /// The LSN of the next record.
    #[inline]
    pub fn next_lsn(&self) -> Lsn {
        self.next_lsn
    }

    /// The byte of the segment at which the group starts.
    #[inline]
    pub fn at(&self) -> u64 {
        self.at
    }

    /// Bytes that records with their headers may still use in this segment.
    #[inline]
    pub fn record_room(&self) -> u64 {
        (self.groups_end - CONTROL_RESERVE_BYTES).saturating_sub(self.end())
    }

    #[inline]
    fn end(&self) -> u64 {
        self.at + self.used as u64
    }

    /// Adds a record: copies `payload` once, and returns its LSN.
    ///
    /// # Errors
    /// When it does not fit; then nothing is changed.
    ///
    /// # Panics
    /// When `sum` has another length than `payload`, or `batch` is not allowed here.
    #[inline]
    pub fn record(
        &mut self,
        group: &mut [u8],
        payload: &[u8],
        sum: PayloadSum,
        batch: Batch,
    ) -> Result<Lsn, EncodeError> {
        self.record_of_parts(group, [payload], sum, batch)
    }

    /// As [`GroupEncoder::record`], for a payload in several parts: copies each once, behind the
    /// one before it.
    ///
    /// # Errors
    /// As [`GroupEncoder::record`].
    ///
    /// # Panics
    /// When `sum` has another length than all parts, or `batch` is not allowed here. The group is
    /// unusable after that.
    #[inline]
    pub fn record_of_parts<'a>(
        &mut self,
        group: &mut [u8],
        parts: impl IntoIterator<Item = &'a [u8]>,
        sum: PayloadSum,
        batch: Batch,
    ) -> Result<Lsn, EncodeError> {
        let lsn = self.next_lsn;
        let next = lsn.next().ok_or(EncodeError::LsnsUsedUp)?;
        if sum.len() > RECORD_BYTES_MAX {
            return Err(EncodeError::TooLarge { bytes: sum.len(), max: RECORD_BYTES_MAX });
        }
        let open = batch.follows(self.batch_open);
        assert!(open.is_some(), "a place in a batch that may not follow");
        let bytes = frame_bytes(sum.len());
        self.check_room(group, bytes, self.record_room())?;
        let from = self.used + FRAME_HEADER_BYTES;
        let mut to = from;
        for part in parts {
            group[to..to + part.len()].copy_from_slice(part);
            to += part.len();
        }
        assert_eq!(sum.len(), to - from, "a sum of other bytes");
        group[to..self.used + bytes].fill(0);
        self.put_header(group, Kind::Record, batch, sum);
        self.used += bytes;
        self.next_lsn = next;
        self.batch_open = open == Some(true);
        Ok(lsn)
    }

    /// Adds a control frame. It may use the room that is reserved for control frames.
    ///
    /// # Errors
    /// When it does not fit; then nothing is changed.
    ///
    /// # Panics
    /// When it is not allowed here: inside a batch, after a seal, an epoch frame that is not the
    /// first frame, or one that contradicts the group or the segment's header.
    pub fn control(&mut self, group: &mut [u8], control: &Control) -> Result<(), EncodeError> {
        assert!(!self.batch_open, "a control frame inside a batch");
        let mut next_lsn = self.next_lsn;
        match control {
            Control::Epoch { previous, recovered } => {
                assert_eq!(self.count, 0, "an epoch that is not the first frame");
                assert!(
                    previous.is_none_or(|previous| previous < self.epoch),
                    "an epoch that does not rise"
                );
                assert_eq!(recovered.next(), Some(self.next_lsn), "another end than the group's");
            }
            Control::TruncateBefore(first) => {
                assert!(*first <= self.next_lsn, "more truncated than there is")
            }
            Control::Seal(next) => {
                assert!(*next > self.identity.segment(), "a next segment that is older")
            }
            Control::Lost(last) => {
                assert!(*last >= self.next_lsn, "a gap that ends before it begins");
                assert!(*last <= self.lost_to, "a gap of which the header does not know");
                next_lsn = last.next().ok_or(EncodeError::LsnsUsedUp)?;
            }
            Control::Promise(_) | Control::Padding(_) => {}
        }
        let bytes = frame_bytes(control.payload_bytes());
        self.check_room(group, bytes, self.groups_end.saturating_sub(self.end()))?;
        let from = self.used + FRAME_HEADER_BYTES;
        let to = from + control.payload_bytes();
        group[from..self.used + bytes].fill(0);
        control.encode(&mut group[from..to]);
        let sum = PayloadSum::of(&group[from..to]);
        self.put_header(group, control.kind(), Batch::Alone, sum);
        self.used += bytes;
        self.sealed |= control.kind() == Kind::Seal;
        self.next_lsn = next_lsn;
        Ok(())
    }

    /// Adds a padding frame, so that the next group starts on a new block. Adds none if the group
    /// ends on a block boundary already, or if the segment has no room for it: then the next group
    /// starts where this one ends.
    ///
    /// # Errors
    /// When the buffer has no room for it.
    ///
    /// # Panics
    /// As [`GroupEncoder::control`].
    pub fn pad_to_block(&mut self, group: &mut [u8]) -> Result<(), EncodeError> {
        let end = self.at as usize % BLOCK_BYTES + self.used;
        let mut gap = round_up(end, BLOCK_BYTES) - end;
        if gap == 0 {
            return Ok(());
        }
        if gap < FRAME_HEADER_BYTES {
            gap += BLOCK_BYTES;
        }
        if self.end() + gap as u64 > self.groups_end {
            return Ok(());
        }
        self.control(group, &Control::Padding(gap - FRAME_HEADER_BYTES))
    }

    /// Writes the header with length, count and promise. After that the group can be written to the
    /// file.
    ///
    /// # Panics
    /// When it has no frame, a batch is open, or the promise covers the group itself.
    pub fn finish(self, group: &mut [u8], promise: Promise) -> Finished {
        assert!(self.count > 0, "an empty group");
        assert!(!self.batch_open, "a group that ends inside a batch");
        let header = GroupHeader {
            length: self.used as u32,
            count: self.count,
            first_lsn: self.first_lsn,
            epoch: self.epoch,
            promise,
        };
        assert!(header.promise_is_sound(self.at), "a promise that cannot be meant");
        header.encode(&self.identity, self.at, &mut group[..GROUP_HEADER_BYTES]);
        Finished { at: self.at, bytes: self.used, next_lsn: self.next_lsn }
    }

    #[inline]
    fn check_room(
        &self,
        group: &[u8],
        needed: usize,
        segment_room: u64,
    ) -> Result<(), EncodeError> {
        if needed as u64 > segment_room {
            return Err(EncodeError::SegmentFull { needed, room: segment_room });
        }
        let room = group.len().min(GROUP_BYTES_MAX).saturating_sub(self.used);
        if needed > room {
            return Err(EncodeError::BufferFull { needed, room });
        }
        Ok(())
    }

    #[inline]
    fn put_header(&mut self, group: &mut [u8], kind: Kind, batch: Batch, sum: PayloadSum) {
        assert!(!self.sealed || kind == Kind::Padding, "a frame after the seal");
        let header = FrameHeader {
            payload_bytes: sum.len() as u32,
            kind: kind as u8,
            flags: batch as u8,
            reserved: 0,
            lsn: self.next_lsn,
            payload_crc: sum.crc(),
            header_crc: 0,
        };
        let at = self.end();
        let bytes = &mut group[self.used..self.used + FRAME_HEADER_BYTES];
        header.encode(&self.identity, at, self.epoch, bytes);
        self.count += 1;
    }
}
