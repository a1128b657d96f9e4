//! A frame: a record, or a control frame of the log itself, with its header.
//!
//! *Owns*: the 24 bytes with which a frame begins, the kinds, the payloads of control frames. *May
//! not touch*: groups.

use crate::bytes::{all_zero, put_u32, put_u64, u32_at, u64_at};
use crate::group::{Identity, Summed};
use crate::limits::{ALIGN, FRAME_HEADER_BYTES};
use crate::types::{Epoch, Lsn, SegmentNumber};

/// Where the kind, the place in a batch and the zeros are, in the word that begins with the
/// payload's length.
pub(crate) const KIND_AT: usize = 4;
const FLAGS_AT: usize = 5;
const RESERVED_AT: usize = 6;
const LSN_AT: usize = 8;
const PAYLOAD_CRC_AT: usize = 16;
/// Where the header's checksum is; it covers the bytes before it, and the identity.
const HEADER_CRC_AT: usize = 20;

/// The size of a frame with a payload of `payload_bytes`: header, payload, zeros up to a multiple
/// of 8. For a payload that is too large for a frame ([`crate::limits::RECORD_BYTES_MAX`]) the
/// result is larger than any frame.
#[inline]
pub const fn frame_bytes(payload_bytes: usize) -> usize {
    payload_bytes.saturating_add(FRAME_HEADER_BYTES + ALIGN - 1) / ALIGN * ALIGN
}

/// The kind of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Kind {
    /// The user's bytes. Takes an LSN.
    Record = 1,
    /// An opening for writing, or a cut.
    Epoch = 2,
    /// Has no content but the promise of its group.
    Promise = 3,
    /// Records before an LSN are truncated.
    TruncateBefore = 4,
    /// The segment ends; the next one's header is durable.
    Seal = 5,
    /// Zeros up to a block boundary.
    Padding = 6,
    /// Records are lost: a gap. Takes their LSNs, so that every other record keeps its own.
    Lost = 7,
}

impl Kind {
    /// The kind with this code.
    pub const fn of(code: u8) -> Option<Self> {
        Some(match code {
            1 => Self::Record,
            2 => Self::Epoch,
            3 => Self::Promise,
            4 => Self::TruncateBefore,
            5 => Self::Seal,
            6 => Self::Padding,
            7 => Self::Lost,
            _ => return None,
        })
    }
}

/// The place of a record in its all-or-none batch. A batch never spans groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Batch {
    /// Not in a batch.
    Alone = 0,
    /// The first of several records.
    First = 1,
    /// Between the first and the last.
    Middle = 2,
    /// The last record.
    Last = 3,
}

impl Batch {
    /// The place with this code.
    pub const fn of(code: u8) -> Option<Self> {
        Some(match code {
            0 => Self::Alone,
            1 => Self::First,
            2 => Self::Middle,
            3 => Self::Last,
            _ => return None,
        })
    }

    /// Whether a batch is open after this place, given whether one is open before; `None` if the
    /// place is not allowed here.
    pub(crate) const fn follows(self, open: bool) -> Option<bool> {
        match (self, open) {
            (Self::Alone, false) | (Self::Last, true) => Some(false),
            (Self::First, false) | (Self::Middle, true) => Some(true),
            _ => None,
        }
    }
}

/// The header of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameHeader {
    /// The length of the payload.
    pub payload_bytes: u32,
    /// The code of its kind.
    pub kind: u8,
    /// The code of its place in a batch.
    pub flags: u8,
    /// Zero.
    pub reserved: u16,
    /// The LSN of the record, or of the first one that is lost; for all other kinds, that of the
    /// next record.
    pub lsn: Lsn,
    /// The CRC-32C of the payload.
    pub payload_crc: u32,
    /// The CRC-32C of identity and header.
    pub header_crc: u32,
}

impl FrameHeader {
    /// Reads the header of a frame at byte `at` of the segment, in a group of `epoch`; `None` if
    /// its checksum does not match. Finds frames that no sound group leads to.
    #[inline]
    pub fn decode(identity: &Identity, at: u64, epoch: Epoch, bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.get(..FRAME_HEADER_BYTES)?;
        let fields = Self::fields(bytes);
        fields.is_sound(identity, at, epoch, bytes).then_some(fields)
    }

    /// Writes it for byte `at` of the segment, with its checksum; ignores `header_crc`.
    #[inline]
    pub(crate) fn encode(&self, identity: &Identity, at: u64, epoch: Epoch, bytes: &mut [u8]) {
        let codes = u64::from(self.kind) << (8 * KIND_AT)
            | u64::from(self.flags) << (8 * FLAGS_AT)
            | u64::from(self.reserved) << (8 * RESERVED_AT);
        let (shape, lsn) = (u64::from(self.payload_bytes) | codes, self.lsn.get());
        let crc = identity.frame_crc(at, epoch, Summed(shape, lsn, self.payload_crc));
        put_u64(bytes, 0, shape);
        put_u64(bytes, LSN_AT, lsn);
        put_u32(bytes, PAYLOAD_CRC_AT, self.payload_crc);
        put_u32(bytes, HEADER_CRC_AT, crc);
    }

    /// Whether the checksum of the header in `bytes`, which has these fields, matches.
    #[inline]
    pub(crate) fn is_sound(
        &self,
        identity: &Identity,
        at: u64,
        epoch: Epoch,
        bytes: &[u8],
    ) -> bool {
        self.header_crc == identity.frame_crc(at, epoch, summed(bytes))
    }

    /// Reads the fields without checking the checksum.
    #[inline]
    pub(crate) fn fields(bytes: &[u8]) -> Self {
        Self {
            payload_bytes: u32_at(bytes, 0),
            kind: bytes[KIND_AT],
            flags: bytes[FLAGS_AT],
            reserved: u16::from_le_bytes([bytes[RESERVED_AT], bytes[RESERVED_AT + 1]]),
            lsn: Lsn::new(u64_at(bytes, LSN_AT)),
            payload_crc: u32_at(bytes, PAYLOAD_CRC_AT),
            header_crc: u32_at(bytes, HEADER_CRC_AT),
        }
    }
}

/// Those of a header that was read.
#[inline]
pub(crate) fn summed(header: &[u8]) -> Summed {
    Summed(u64_at(header, 0), u64_at(header, LSN_AT), u32_at(header, PAYLOAD_CRC_AT))
}

/// A frame that passed every check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The byte of the segment at which its header starts.
    pub at: u64,
    /// The LSN of the record, or of the first one that is lost; for other control frames, that of
    /// the next record.
    pub lsn: Lsn,
    /// Its kind.
    pub kind: Kind,
    /// A record's place in its batch.
    pub batch: Batch,
    /// The user's bytes, or the control frame's.
    pub payload: &'a [u8],
}

impl Frame<'_> {
    /// The contents of a control frame; `None` for a record.
    pub fn control(&self) -> Option<Control> {
        Control::decode(self.kind, self.payload)
    }

    /// The byte after it.
    #[inline]
    pub fn end(&self) -> u64 {
        self.at + frame_bytes(self.payload.len()) as u64
    }
}

/// Why a separate promise was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum PromiseReason {
    /// Nothing was appended for a moment.
    Idle = 1,
    /// The log was closed cleanly.
    Close = 2,
}

/// The contents of a control frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Control {
    /// A new epoch: always the first frame of its group.
    Epoch {
        /// The epoch before.
        previous: Option<Epoch>,
        /// The last LSN that recovery (or the cut) has left.
        recovered: Lsn,
    },
    /// Only the promise of its group.
    Promise(PromiseReason),
    /// Records before this LSN are truncated.
    TruncateBefore(Lsn),
    /// The segment ends here; the header of the segment with this number is durable. Always the
    /// last frame of its segment, except for padding.
    Seal(SegmentNumber),
    /// This many zeros.
    Padding(usize),
    /// The records from the frame's LSN to this one, which is not lower, are lost.
    Lost(Lsn),
}

impl Control {
    /// The kind of its frame.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Epoch { .. } => Kind::Epoch,
            Self::Promise(_) => Kind::Promise,
            Self::TruncateBefore(_) => Kind::TruncateBefore,
            Self::Seal(_) => Kind::Seal,
            Self::Padding(_) => Kind::Padding,
            Self::Lost(_) => Kind::Lost,
        }
    }

    /// The length of its payload.
    pub fn payload_bytes(&self) -> usize {
        match self {
            Self::Epoch { .. } => 16,
            Self::Padding(bytes) => *bytes,
            _ => 8,
        }
    }

    /// Writes its payload.
    pub(crate) fn encode(&self, payload: &mut [u8]) {
        payload.fill(0);
        match self {
            Self::Epoch { previous, recovered } => {
                put_u64(payload, 0, previous.map_or(0, Epoch::get));
                put_u64(payload, 8, recovered.get());
            }
            Self::Promise(reason) => put_u64(payload, 0, *reason as u64),
            Self::TruncateBefore(lsn) | Self::Lost(lsn) => put_u64(payload, 0, lsn.get()),
            Self::Seal(next) => put_u64(payload, 0, next.get()),
            Self::Padding(_) => {}
        }
    }

    /// Reads a payload; `None` for a record, and for a payload that is impossible for the kind.
    pub fn decode(kind: Kind, payload: &[u8]) -> Option<Self> {
        let number = || (payload.len() == 8).then(|| u64_at(payload, 0));
        Some(match kind {
            Kind::Record => return None,
            Kind::Epoch if payload.len() == 16 => Self::Epoch {
                previous: Epoch::new(u64_at(payload, 0)),
                recovered: Lsn::new(u64_at(payload, 8)),
            },
            Kind::Epoch => return None,
            Kind::Promise => match number()? {
                1 => Self::Promise(PromiseReason::Idle),
                2 => Self::Promise(PromiseReason::Close),
                _ => return None,
            },
            Kind::TruncateBefore => Self::TruncateBefore(Lsn::new(number()?)),
            Kind::Seal => Self::Seal(SegmentNumber::new(number()?)?),
            Kind::Padding if all_zero(payload) => Self::Padding(payload.len()),
            Kind::Padding => return None,
            Kind::Lost => Self::Lost(Lsn::new(number()?)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_known_ahead() {
        assert_eq!([0, 1, 8, 9].map(frame_bytes), [24, 32, 32, 40]);
        // A payload that is too large for a frame has a size too: limits are checked with it.
        let most = crate::limits::RECORD_BYTES_MAX;
        assert_eq!((frame_bytes(most), frame_bytes(most + 1)), (most + 24, most + 32));
        assert!(frame_bytes(usize::MAX) > usize::MAX - 8);
    }
}
