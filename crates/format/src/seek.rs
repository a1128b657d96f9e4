//! One record found by its LSN, from a known place before it, without reading what lies between but for headers.
//!
//! *Owns*: the steps from frame to frame over payloads that nobody asked for. *May not touch*: what it means that a step is
//! not sound: whoever wants to know reads the segment with a [`crate::Decoder`].
//!
//! The header of a frame is summed with its log, segment, position, epoch and LSN, so a sound header at the place and with
//! the LSN that the step before named *is* that record's, also when the group around it was not looked at. This holds only
//! for records that are known to be part of the log: where it ends cannot be told in this way.

use crate::checksum::crc32c;
use crate::frame::{FrameHeader, Kind};
use crate::group::{GroupHeader, Identity};
use crate::limits::{GROUP_BYTES_MAX, RECORD_BYTES_MAX};
use crate::types::{Epoch, Lsn};
use crate::version::Version;

/// A place where a frame or a group begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// The byte of the segment.
    pub at: u64,
    /// The LSN of the next record.
    pub lsn: Lsn,
    /// The epoch of the group around it.
    pub epoch: Epoch,
    /// Where that group ends; `at` if the next one begins there.
    pub group_end: u64,
}

/// What begins at a mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Skim {
    /// The window must have at least this many bytes from the mark on.
    NeedBytes(usize),
    /// A group's header, or a control frame.
    Passed(Mark),
    /// A record. Its payload was not looked at.
    Record(Skimmed),
    /// Neither. A decoder can tell why.
    Unsound,
}

/// A header at a mark, and the mark behind what it heads.
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
    /// What comes after it.
    pub next: Mark,
    payload_crc: u32,
    version: Version,
}

impl Mark {
    /// The end of a group.
    pub fn between(at: u64, lsn: Lsn, epoch: Epoch) -> Self {
        Self { at, lsn, epoch, group_end: at }
    }

    /// What begins here. `window` holds the bytes of the segment from `window_at` on, which is not above the mark.
    #[inline]
    pub fn skim(&self, identity: &Identity, window: &[u8], window_at: u64) -> Skim {
        let from = self.at.checked_sub(window_at).and_then(|from| usize::try_from(from).ok());
        let bytes = from.and_then(|from| window.get(from..)).unwrap_or_default();
        match self.begins::<true>(identity, bytes) {
            Begins::NeedBytes(bytes) => Skim::NeedBytes(bytes),
            Begins::Frame(header, next) if header.kind == Kind::Record as u8 => Skim::Record(Skimmed {
                at: self.at,
                payload_bytes: header.payload_bytes as usize,
                next,
                payload_crc: header.payload_crc,
                version: identity.version(),
            }),
            Begins::Group(next) | Begins::Frame(_, next) => Skim::Passed(next),
            Begins::Neither => Skim::Unsound,
        }
    }

    /// What `bytes`, which begin here, begin with. Headers that are not summed are believed, as far as they can be meant.
    /// Always inlined: what it gives, taken from memory again, was half of the time between two sums.
    #[inline(always)]
    pub(crate) fn begins<const IS_SUMMED: bool>(&self, identity: &Identity, bytes: &[u8]) -> Begins {
        if self.at == self.group_end {
            let needed = identity.version().group_header_bytes();
            if bytes.len() < needed {
                return Begins::NeedBytes(needed);
            }
            return self.enter::<IS_SUMMED>(identity, bytes).map_or(Begins::Neither, Begins::Group);
        }
        let needed = identity.version().frame_header_bytes();
        if bytes.len() < needed {
            return Begins::NeedBytes(needed);
        }
        self.pass::<IS_SUMMED>(identity, bytes)
            .map_or(Begins::Neither, |(header, next)| Begins::Frame(header, next))
    }

    fn enter<const IS_SUMMED: bool>(&self, identity: &Identity, bytes: &[u8]) -> Option<Self> {
        let header = if IS_SUMMED {
            GroupHeader::decode(identity, self.at, bytes)
        } else {
            GroupHeader::fields(identity.version(), bytes)
        }?;
        let length = header.length as usize;
        let header_bytes = identity.version().group_header_bytes();
        let fits = (header_bytes..=GROUP_BYTES_MAX).contains(&length);
        let is_next = fits && header.first_lsn == self.lsn && header.epoch >= self.epoch;
        is_next.then(|| Self {
            at: self.at + header_bytes as u64,
            lsn: self.lsn,
            epoch: header.epoch,
            group_end: self.at + length as u64,
        })
    }

    /// A frame. Inlined for the same reason.
    #[inline(always)]
    fn pass<const IS_SUMMED: bool>(&self, identity: &Identity, bytes: &[u8]) -> Option<(FrameHeader, Self)> {
        let header = if IS_SUMMED {
            FrameHeader::decode(identity, self.at, self.epoch, bytes)?
        } else {
            FrameHeader::fields(identity.version(), bytes)
        };
        let kind = Kind::of(header.kind)?;
        let payload = header.payload_bytes as usize;
        if header.lsn != self.lsn || payload > RECORD_BYTES_MAX {
            return None;
        }
        let at = self.at + identity.version().frame_bytes(payload) as u64;
        let lsn = if kind == Kind::Record { self.lsn.next()? } else { self.lsn };
        (at <= self.group_end).then_some((header, Self { at, lsn, ..*self }))
    }
}

impl Skimmed {
    /// The byte after its frame.
    #[inline]
    pub fn end(&self) -> u64 {
        self.next.at
    }

    /// Its payload, if it is whole and its checksum fits.
    #[inline]
    pub fn payload<'a>(&self, window: &'a [u8], window_at: u64) -> Option<&'a [u8]> {
        self.payload_unsummed(window, window_at).filter(|payload| crc32c(payload) == self.payload_crc)
    }

    /// Its payload as it stands there. For those who show that a missing sum would be noticed.
    pub fn payload_unsummed<'a>(&self, window: &'a [u8], window_at: u64) -> Option<&'a [u8]> {
        let from = usize::try_from(self.at.checked_sub(window_at)?).ok()? + self.version.frame_header_bytes();
        window.get(from..from + self.payload_bytes)
    }
}
