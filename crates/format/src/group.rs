//! The header of a group, and the identity that every checksum in a segment covers without storing
//! it.
//!
//! *Owns*: the header of a group. *May not touch*: frames; whether a group is allowed at its place.

use crate::bytes::{array, put_u32, put_u64, u32_at, u64_at};
use crate::checksum::{append, crc32c};
use crate::limits::{GROUP_HEADER_BYTES, GROUP_MARKER};
use crate::types::{Epoch, LogId, Lsn, SegmentNumber};

const CRC_AT: usize = 4;
const LENGTH_AT: usize = 8;
const COUNT_AT: usize = 12;
const FIRST_LSN_AT: usize = 16;
const EPOCH_AT: usize = 24;
const PROMISE_AT: usize = 32;
const PROMISED_END_AT: usize = 40;

/// What is needed to read and write the bytes of a segment: the log id and the segment number, with
/// which its checksums begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    log: LogId,
    segment: SegmentNumber,
    group_seed: u32,
    frame_seed: u32,
}

/// The 20 bytes of a frame's header before its checksum, held in registers to be written and
/// summed: reading bytes in larger pieces than they were just written in makes the processor wait.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Summed(pub(crate) u64, pub(crate) u64, pub(crate) u32);

impl Identity {
    /// The identity of a segment.
    pub fn new(log: LogId, segment: SegmentNumber) -> Self {
        let seed =
            |tag: &[u8; 8]| append(append(crc32c(tag), log.bytes()), &segment.get().to_le_bytes());
        Self { log, segment, group_seed: seed(b"IK1GROUP"), frame_seed: seed(b"IK1FRAME") }
    }

    /// The id of the log.
    pub fn log(&self) -> LogId {
        self.log
    }

    /// The number of the segment.
    pub fn segment(&self) -> SegmentNumber {
        self.segment
    }

    /// The checksum of a group header at byte `at`.
    pub(crate) fn group_crc(&self, at: u64, header: &[u8]) -> u32 {
        let mut covered = [0; 8 + GROUP_HEADER_BYTES - 4];
        covered[..8].copy_from_slice(&at.to_le_bytes());
        covered[8..12].copy_from_slice(&header[..4]);
        covered[12..].copy_from_slice(&header[LENGTH_AT..GROUP_HEADER_BYTES]);
        append(self.group_seed, &covered)
    }

    /// The checksum of a frame header at byte `at`.
    #[inline]
    pub(crate) fn frame_crc(&self, at: u64, epoch: Epoch, header: Summed) -> u32 {
        let mut covered = [0; 36];
        put_u64(&mut covered, 0, at);
        put_u64(&mut covered, 8, epoch.get());
        put_u64(&mut covered, 16, header.0);
        put_u64(&mut covered, 24, header.1);
        put_u32(&mut covered, 32, header.2);
        append(self.frame_seed, &covered)
    }
}

/// What was known to be durable when a group was built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Promise {
    /// The highest LSN on stable storage.
    pub lsn: Lsn,
    /// The byte of this segment before which everything is on stable storage.
    pub end: u64,
}

/// The fields of a group's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupHeader {
    /// Bytes from the start of this header to the end of the group's last frame.
    pub length: u32,
    /// The number of frames.
    pub count: u32,
    /// The LSN of its first record; that of the next record if it has none.
    pub first_lsn: Lsn,
    /// The epoch of its writer.
    pub epoch: Epoch,
    /// What was durable when it was built.
    pub promise: Promise,
}

impl GroupHeader {
    /// Writes it for byte `at` of the segment.
    pub(crate) fn encode(&self, identity: &Identity, at: u64, bytes: &mut [u8]) {
        bytes[..4].copy_from_slice(&GROUP_MARKER);
        put_u32(bytes, LENGTH_AT, self.length);
        put_u32(bytes, COUNT_AT, self.count);
        put_u64(bytes, FIRST_LSN_AT, self.first_lsn.get());
        put_u64(bytes, EPOCH_AT, self.epoch.get());
        put_u64(bytes, PROMISE_AT, self.promise.lsn.get());
        put_u64(bytes, PROMISED_END_AT, self.promise.end);
        let crc = identity.group_crc(at, bytes);
        put_u32(bytes, CRC_AT, crc);
    }

    /// Reads the header at byte `at` of the segment; `None` if the marker or the checksum does not
    /// match.
    pub fn decode(identity: &Identity, at: u64, bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.get(..GROUP_HEADER_BYTES)?;
        if !bytes.starts_with(&GROUP_MARKER)
            || u32_at(bytes, CRC_AT) != identity.group_crc(at, bytes)
        {
            return None;
        }
        Self::fields(bytes)
    }

    /// Reads the fields without checking the checksum; `None` for epoch 0, which does not exist.
    pub(crate) fn fields(bytes: &[u8]) -> Option<Self> {
        Some(Self {
            length: u32_at(bytes, LENGTH_AT),
            count: u32_at(bytes, COUNT_AT),
            first_lsn: Lsn::new(u64_at(bytes, FIRST_LSN_AT)),
            epoch: Epoch::new(u64::from_le_bytes(array(bytes, EPOCH_AT)))?,
            promise: Promise {
                lsn: Lsn::new(u64_at(bytes, PROMISE_AT)),
                end: u64_at(bytes, PROMISED_END_AT),
            },
        })
    }

    /// Whether its promise is possible: it covers only records and bytes before the group.
    pub(crate) fn promise_is_sound(&self, at: u64) -> bool {
        let promise = self.promise;
        promise.lsn < self.first_lsn
            && (crate::limits::HEADER_BYTES as u64..=at).contains(&promise.end)
            && promise.end.is_multiple_of(crate::limits::ALIGN as u64)
    }
}
