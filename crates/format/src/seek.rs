//! Finds a record by its LSN from a known place before it, reading only the headers in between.
//!
//! *Owns*: the steps from frame to frame, past payloads. *May not touch*: what an unsound step
//! means; a [`crate::Decoder`] finds that out.
//!
//! The checksum of a frame's header covers log, segment, position, epoch and LSN. So a sound header
//! at the place and with the LSN that the step before named *is* that of the record, even if the
//! group around it was not checked. This is true only for records that are known to be part of the
//! log; the end of the log cannot be found in this way.

use crate::checksum::crc32c;
use crate::frame::{Control, FrameHeader, KIND_AT, Kind, frame_bytes};
use crate::group::{GroupHeader, Identity};
use crate::limits::{FRAME_HEADER_BYTES, GROUP_BYTES_MAX, GROUP_HEADER_BYTES, RECORD_BYTES_MAX};
use crate::types::{Epoch, Lsn};

/// A place where a frame or a group begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// The byte of the segment.
    pub at: u64,
    /// The LSN of the next record.
    pub lsn: Lsn,
    /// The epoch of the group around it.
    pub epoch: Epoch,
    /// The end of that group; equal to `at` if the next group begins there, and
    /// [`Mark::UNKNOWN_END`] if a frame or a group begins there.
    pub group_end: u64,
}

/// What begins at a mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Skim {
    /// The window must have at least this many bytes from the mark on.
    NeedBytes(usize),
    /// A group's header, or a control frame; the mark is after it.
    Passed(Mark),
    /// A record. Its payload was not checked.
    Record(Skimmed),
    /// Neither. A decoder finds out why.
    Unsound,
}

/// A header at a mark, and the mark after its group header or frame.
pub(crate) enum Begins {
    NeedBytes(usize),
    Group(Mark),
    Frame(FrameHeader, Mark),
    Neither,
}

/// A record whose header is sound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Skimmed {
    /// Where its header begins.
    pub at: u64,
    /// The length of its payload.
    pub payload_bytes: usize,
    /// The mark after it.
    pub next: Mark,
    payload_crc: u32,
}

impl Mark {
    /// For the end of a group whose header was not read.
    pub const UNKNOWN_END: u64 = u64::MAX;

    /// A mark between two groups.
    pub fn between(at: u64, lsn: Lsn, epoch: Epoch) -> Self {
        Self { at, lsn, epoch, group_end: at }
    }

    /// What begins here. `window` holds the bytes of the segment from `window_at` on, which is not
    /// above the mark.
    #[inline]
    pub fn skim(&self, identity: &Identity, window: &[u8], window_at: u64) -> Skim {
        self.skim_with::<true>(identity, window, window_at)
    }

    /// The same for bytes that this process has encoded and kept in its memory since: their
    /// checksums are not computed again. They prove what a disk returned, and these bytes come from
    /// none.
    #[inline]
    pub fn skim_own(&self, identity: &Identity, window: &[u8], window_at: u64) -> Skim {
        self.skim_with::<false>(identity, window, window_at)
    }

    #[inline(always)]
    fn skim_with<const IS_SUMMED: bool>(
        &self,
        identity: &Identity,
        window: &[u8],
        window_at: u64,
    ) -> Skim {
        let from = self.at.checked_sub(window_at).and_then(|from| usize::try_from(from).ok());
        let bytes = from.and_then(|from| window.get(from..)).unwrap_or_default();
        match self.begins::<IS_SUMMED>(identity, bytes) {
            Begins::NeedBytes(bytes) => Skim::NeedBytes(bytes),
            Begins::Frame(header, next) if header.kind == Kind::Record as u8 => {
                Skim::Record(Skimmed {
                    at: self.at,
                    payload_bytes: header.payload_bytes as usize,
                    next,
                    payload_crc: header.payload_crc,
                })
            }
            Begins::Group(next) | Begins::Frame(_, next) => Skim::Passed(next),
            Begins::Neither => Skim::Unsound,
        }
    }

    /// What begins with `bytes`, which begin here. Without `IS_SUMMED` a header is believed unless
    /// it is impossible. Always inlined: reloading its result from memory took half of the time
    /// between two sums.
    #[inline(always)]
    pub(crate) fn begins<const IS_SUMMED: bool>(
        &self,
        identity: &Identity,
        bytes: &[u8],
    ) -> Begins {
        if self.at == self.group_end {
            return self.begins_group::<IS_SUMMED>(identity, bytes);
        }
        let needed = FRAME_HEADER_BYTES;
        // A gap's last LSN is in its payload.
        let needed = needed + if bytes.get(KIND_AT) == Some(&(Kind::Lost as u8)) { 8 } else { 0 };
        if bytes.len() < needed {
            return Begins::NeedBytes(needed);
        }
        match self.pass::<IS_SUMMED>(identity, bytes) {
            Some((header, next)) => Begins::Frame(header, next),
            None if self.group_end == Self::UNKNOWN_END => {
                self.begins_group::<IS_SUMMED>(identity, bytes)
            }
            None => Begins::Neither,
        }
    }

    #[inline(always)]
    fn begins_group<const IS_SUMMED: bool>(&self, identity: &Identity, bytes: &[u8]) -> Begins {
        let needed = GROUP_HEADER_BYTES;
        if bytes.len() < needed {
            return Begins::NeedBytes(needed);
        }
        self.enter::<IS_SUMMED>(identity, bytes).map_or(Begins::Neither, Begins::Group)
    }

    fn enter<const IS_SUMMED: bool>(&self, identity: &Identity, bytes: &[u8]) -> Option<Self> {
        let header = if IS_SUMMED {
            GroupHeader::decode(identity, self.at, bytes)
        } else {
            GroupHeader::fields(bytes)
        }?;
        let length = header.length as usize;
        let header_bytes = GROUP_HEADER_BYTES;
        let fits = (header_bytes..=GROUP_BYTES_MAX).contains(&length);
        let is_next = fits && header.first_lsn == self.lsn && header.epoch >= self.epoch;
        is_next.then(|| Self {
            at: self.at + header_bytes as u64,
            lsn: self.lsn,
            epoch: header.epoch,
            group_end: self.at + length as u64,
        })
    }

    /// The frame here. Inlined for the same reason.
    #[inline(always)]
    fn pass<const IS_SUMMED: bool>(
        &self,
        identity: &Identity,
        bytes: &[u8],
    ) -> Option<(FrameHeader, Self)> {
        let header = if IS_SUMMED {
            FrameHeader::decode(identity, self.at, self.epoch, bytes)?
        } else {
            FrameHeader::fields(bytes)
        };
        let kind = Kind::of(header.kind)?;
        let payload = header.payload_bytes as usize;
        if header.lsn != self.lsn || payload > RECORD_BYTES_MAX {
            return None;
        }
        let at = self.at + frame_bytes(payload) as u64;
        let lsn = match kind {
            Kind::Record => self.lsn.next()?,
            Kind::Lost => lost::<IS_SUMMED>(&header, bytes)?.next()?,
            _ => self.lsn,
        };
        (at <= self.group_end).then_some((header, Self { at, lsn, ..*self }))
    }
}

/// The last LSN of the gap whose frame begins with `bytes`. Without `IS_SUMMED` the bytes are this
/// process's own.
fn lost<const IS_SUMMED: bool>(header: &FrameHeader, bytes: &[u8]) -> Option<Lsn> {
    let payload = bytes.get(FRAME_HEADER_BYTES..)?.get(..header.payload_bytes as usize)?;
    let is_sound = !IS_SUMMED || crc32c(payload) == header.payload_crc;
    match Control::decode(Kind::Lost, payload).filter(|_| is_sound)? {
        Control::Lost(last) if last >= header.lsn => Some(last),
        _ => None,
    }
}

impl Skimmed {
    /// The byte after its frame.
    #[inline]
    pub fn end(&self) -> u64 {
        self.next.at
    }

    /// Its payload, if it is complete and its checksum matches.
    #[inline]
    pub fn payload<'a>(&self, window: &'a [u8], window_at: u64) -> Option<&'a [u8]> {
        self.payload_unsummed(window, window_at)
            .filter(|payload| crc32c(payload) == self.payload_crc)
    }

    /// Its payload, if it is complete: only for bytes that this process has encoded
    /// ([`Mark::skim_own`]).
    #[inline]
    pub fn payload_unsummed<'a>(&self, window: &'a [u8], window_at: u64) -> Option<&'a [u8]> {
        let from = usize::try_from(self.at.checked_sub(window_at)?).ok()? + FRAME_HEADER_BYTES;
        window.get(from..from + self.payload_bytes)
    }
}
