//! The index of a segment: where some of its records lie, so that one is found by its LSN with one
//! read.
//!
//! *Owns*: which records get an entry, the entries around an LSN, the bytes of an index. *May not
//! touch*: when one is written, and what a reader without one does.
//!
//! A record gets an entry if it begins [`INDEX_STEP_BYTES`] or more behind the last record that has
//! one. So every record without an entry begins less than that behind the entry before it. An
//! entry also says where its record ends: the next one begins there, and a small record between
//! large ones is read alone.
//!
//! An index is a hint: whoever begins to read at an entry checks the frame's sum, which covers log,
//! segment, byte, epoch and LSN. It may be missing, torn, or left from an earlier use of the file.
//! Its own sum tells.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::bytes::{put_u32, put_u64, u32_at, u64_at};
use crate::checksum::{append, crc32c};
use crate::frame::frame_bytes;
use crate::header::SegmentHeader;
use crate::limits::{
    ALIGN, HEADER_BYTES, INDEX_ENTRY_BYTES, INDEX_HEADER_BYTES, INDEX_MARKER, INDEX_STEP_BYTES,
    index_room_bytes,
};
use crate::seek::Mark;
use crate::types::{Epoch, Lsn};

const CRC_AT: usize = 4;
const COUNT_AT: usize = 8;
const LSN_AT: usize = 0;
const BYTE_AT: usize = 8;
const MORE_AT: usize = 12;
/// The low bits of the last number of an entry have the epoch, the others the length.
const EPOCH_BITS: u32 = 20;
const LENGTH_MAX: u64 = (u32::MAX >> EPOCH_BITS) as u64;

/// Where some records of a segment lie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentIndex {
    /// The epoch in which the segment was begun.
    epoch: Epoch,
    entries: Vec<Entry>,
}

/// The place of a record's frame, as it is stored. A segment has at most 4 GiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    lsn: Lsn,
    at: u32,
    /// The epoch of the frame's group, less that of the segment, and the length of the frame in
    /// units of [`ALIGN`]: 0 if that is more than fits here.
    more: u32,
}

impl Entry {
    fn epoch_above(&self) -> u64 {
        u64::from(self.more & ((1 << EPOCH_BITS) - 1))
    }

    fn bytes(&self) -> u64 {
        u64::from(self.more >> EPOCH_BITS) * ALIGN as u64
    }
}

/// The place of a record's frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FramePlace {
    /// The frame begins here.
    pub mark: Mark,
    /// The byte of the segment behind it.
    pub end: u64,
}

/// Places of records that get an entry once they are durable, in the order of the log.
#[derive(Debug, Default)]
pub struct NewPlaces {
    places: VecDeque<FramePlace>,
    next_at: u64,
}

impl NewPlaces {
    /// Those of records from byte `next_at` on ([`SegmentIndex::next_at`]).
    pub fn from(next_at: u64) -> Self {
        Self { places: VecDeque::new(), next_at }
    }

    /// Notes a record of so many bytes, whose frame begins at byte `at`, in a group of this epoch,
    /// if it gets an entry.
    #[inline]
    pub fn note(&mut self, at: u64, lsn: Lsn, epoch: Epoch, payload_bytes: usize) {
        if at >= self.next_at {
            let mark = Mark { at, lsn, epoch, group_end: Mark::UNKNOWN_END };
            self.places.push_back(FramePlace { mark, end: at + frame_bytes(payload_bytes) as u64 });
            self.next_at = at + INDEX_STEP_BYTES;
        }
    }

    /// Takes out the first ones, of which this is so.
    pub fn take(
        &mut self,
        mut are_durable: impl FnMut(&Mark) -> bool,
    ) -> impl Iterator<Item = FramePlace> + '_ {
        let count = self.places.partition_point(|place| are_durable(&place.mark));
        self.places.drain(..count)
    }
}

impl SegmentIndex {
    /// The index of a segment, without an entry.
    pub fn new(segment: &SegmentHeader) -> Self {
        Self { epoch: segment.epoch, entries: Vec::new() }
    }

    /// The byte from which on a record gets an entry.
    pub fn next_at(&self) -> u64 {
        self.entries.last().map_or(0, |last| u64::from(last.at) + INDEX_STEP_BYTES)
    }

    /// Notes a record, if it gets an entry.
    pub fn note(&mut self, FramePlace { mark, end }: &FramePlace) {
        let epoch_above = mark.epoch.get().checked_sub(self.epoch.get());
        let epoch_above = epoch_above.filter(|above| *above < 1 << EPOCH_BITS);
        let is_behind = self.entries.last().is_none_or(|last| last.lsn < mark.lsn);
        if let (true, Ok(at), Some(epoch_above)) =
            (is_behind && mark.at >= self.next_at(), u32::try_from(mark.at), epoch_above)
        {
            let length = end.saturating_sub(mark.at) / ALIGN as u64;
            let length = if length > LENGTH_MAX { 0 } else { length as u32 };
            let more = length << EPOCH_BITS | epoch_above as u32;
            self.entries.push(Entry { lsn: mark.lsn, at, more });
        }
    }

    /// Makes room for all the entries that a segment of this size can have.
    pub fn reserve(&mut self, segment_bytes: u64) {
        let most = segment_bytes.div_ceil(INDEX_STEP_BYTES) as usize;
        self.entries.reserve_exact(most.saturating_sub(self.entries.len()));
    }

    /// Whether no record has an entry.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Bytes of memory that it uses.
    pub fn memory_bytes(&self) -> usize {
        self.entries.capacity() * size_of::<Entry>()
    }

    /// The last known place at or before the record, and the first one behind it.
    pub fn around(&self, lsn: Lsn) -> (Option<Mark>, Option<Mark>) {
        let after = self.entries.partition_point(|entry| entry.lsn <= lsn);
        let next = self.entries.get(after).and_then(|entry| self.mark(entry));
        let Some(entry) = after.checked_sub(1).and_then(|place| self.entries.get(place)) else {
            return (None, next);
        };
        let (mark, behind) = (self.mark(entry), self.mark_behind(entry));
        if entry.lsn == lsn { (mark, behind.or(next)) } else { (behind.or(mark), next) }
    }

    fn mark(&self, entry: &Entry) -> Option<Mark> {
        let epoch = Epoch::new(self.epoch.get().checked_add(entry.epoch_above())?)?;
        let group_end = Mark::UNKNOWN_END;
        Some(Mark { at: u64::from(entry.at), lsn: entry.lsn, epoch, group_end })
    }

    /// The place behind the record of an entry, if it is known.
    fn mark_behind(&self, entry: &Entry) -> Option<Mark> {
        let mark = self.mark(entry).filter(|_| entry.bytes() > 0)?;
        Some(Mark { at: mark.at + entry.bytes(), lsn: mark.lsn.next()?, ..mark })
    }

    /// Bytes of the room for the index of a segment, which begins where its groups end at the
    /// latest; 0 for a segment so small that it has none.
    pub fn room_bytes(segment: &SegmentHeader) -> usize {
        index_room_bytes(segment.segment_bytes) as usize
    }

    /// The bytes of the index, to be written where the groups of the segment end at the latest.
    pub fn encode(&self, segment: &SegmentHeader) -> Vec<u8> {
        let mut bytes = alloc::vec![0; INDEX_HEADER_BYTES];
        bytes[..CRC_AT].copy_from_slice(&INDEX_MARKER);
        put_u64(&mut bytes, COUNT_AT, self.entries.len() as u64);
        for entry in &self.entries {
            let mut stored = [0; INDEX_ENTRY_BYTES];
            put_u64(&mut stored, LSN_AT, entry.lsn.get());
            put_u32(&mut stored, BYTE_AT, entry.at);
            put_u32(&mut stored, MORE_AT, entry.more);
            bytes.extend_from_slice(&stored);
        }
        let crc = crc(segment, &bytes);
        put_u32(&mut bytes, CRC_AT, crc);
        bytes
    }

    /// The index of this segment that begins with `bytes`; `None` if there is none.
    pub fn decode(segment: &SegmentHeader, bytes: &[u8]) -> Option<Self> {
        if bytes.len() < INDEX_HEADER_BYTES || !bytes.starts_with(&INDEX_MARKER) {
            return None;
        }
        let count = usize::try_from(u64_at(bytes, COUNT_AT)).ok()?;
        let len = count.checked_mul(INDEX_ENTRY_BYTES)?.checked_add(INDEX_HEADER_BYTES)?;
        let bytes = bytes.get(..len)?;
        if u32_at(bytes, CRC_AT) != crc(segment, bytes) {
            return None;
        }
        let stored = bytes[INDEX_HEADER_BYTES..].chunks_exact(INDEX_ENTRY_BYTES);
        let entry = |stored: &[u8]| Entry {
            lsn: Lsn::new(u64_at(stored, LSN_AT)),
            at: u32_at(stored, BYTE_AT),
            more: u32_at(stored, MORE_AT),
        };
        let index = Self { epoch: segment.epoch, entries: stored.map(entry).collect() };
        index.is_sound(segment).then_some(index)
    }

    fn is_sound(&self, segment: &SegmentHeader) -> bool {
        let in_groups = HEADER_BYTES as u64..segment.groups_end();
        let may_be = |entry: &Entry| {
            in_groups.contains(&u64::from(entry.at))
                && entry.at.is_multiple_of(ALIGN as u32)
                && entry.lsn >= segment.first_lsn
                && self.mark(entry).is_some()
        };
        let ascends = |(one, next): (&Entry, &Entry)| {
            one.lsn < next.lsn
                && u64::from(next.at) >= u64::from(one.at) + INDEX_STEP_BYTES.max(one.bytes())
                && one.epoch_above() <= next.epoch_above()
        };
        self.entries.iter().all(may_be)
            && self.entries.iter().zip(self.entries.iter().skip(1)).all(ascends)
    }
}

fn crc(segment: &SegmentHeader, bytes: &[u8]) -> u32 {
    let seed = append(crc32c(b"IK1INDEX"), segment.log.bytes());
    let seed = append(seed, &segment.number.get().to_le_bytes());
    let seed = append(seed, &segment.epoch.get().to_le_bytes());
    append(append(seed, &bytes[..CRC_AT]), &bytes[COUNT_AT..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::header::Roll;
    use crate::limits::{INDEX_SEGMENT_BYTES_MIN, MARK_BLOCK_BYTES, SEGMENT_BYTES_MAX};
    use crate::types::{LogId, LogKind, SegmentNumber};

    fn segment(segment_bytes: u64) -> SegmentHeader {
        SegmentHeader {
            log: LogId::new([7; 16]),
            number: SegmentNumber::new(3).unwrap(),
            segment_bytes,
            first_lsn: Lsn::new(100),
            first_live: Lsn::FIRST,
            epoch: Epoch::new(5).unwrap(),
            promise: Lsn::ZERO,
            predecessor: None,
            roll: Roll::Begin,
            kind: LogKind::PLAIN,
            owner: [0; 16],
            cuts: 0,
            lost_to: Lsn::ZERO,
        }
    }

    /// Frames of this size from the front to the end of the groups, of an epoch that rises.
    fn filled(segment: &SegmentHeader, frame_bytes: u64) -> SegmentIndex {
        let mut index = SegmentIndex::new(segment);
        for count in 0..(segment.groups_end() - HEADER_BYTES as u64) / frame_bytes {
            let mark = frame(segment, frame_bytes, count);
            index.note(&FramePlace { mark, end: mark.at + frame_bytes });
        }
        index
    }

    fn frame(segment: &SegmentHeader, frame_bytes: u64, count: u64) -> Mark {
        Mark {
            at: HEADER_BYTES as u64 + count * frame_bytes,
            lsn: Lsn::new(segment.first_lsn.get() + count),
            epoch: Epoch::new(segment.epoch.get() + count / 1000).unwrap(),
            group_end: Mark::UNKNOWN_END,
        }
    }

    #[test]
    fn every_record_begins_less_than_a_step_behind_the_entry_before_it() {
        let segment = segment(1 << 20);
        for frame_bytes in [24, 80, 4096, 8184, 8192, 8200, 65560] {
            let index = filled(&segment, frame_bytes);
            let count = (segment.groups_end() - HEADER_BYTES as u64) / frame_bytes;
            for count in 0..count {
                let wanted = frame(&segment, frame_bytes, count);
                let (before, after) = index.around(wanted.lsn);
                let before = before.unwrap();
                assert!(before.at <= wanted.at && wanted.at < before.at + INDEX_STEP_BYTES);
                // The epoch is that of the entry.
                let is = frame(&segment, frame_bytes, before.lsn.get() - 100);
                assert_eq!((before.at, before.lsn), (is.at, is.lsn));
                assert!(before.epoch <= is.epoch);
                assert!(after.is_none_or(|after| after.at > wanted.at));
                let is_known = index.entries.iter().any(|entry| entry.lsn == wanted.lsn);
                if is_known && frame_bytes <= LENGTH_MAX * ALIGN as u64 {
                    assert_eq!(after.unwrap().at, wanted.at + frame_bytes);
                }
            }
            assert_eq!(index.around(Lsn::new(99)).0, None);
        }
    }

    #[test]
    fn a_segment_of_any_size_has_room_for_its_index() {
        let mib = 1 << 20;
        let sizes = [INDEX_SEGMENT_BYTES_MIN, 300 << 10, mib, 8 * mib, 64 * mib];
        for bytes in sizes {
            let segment = segment(bytes);
            let room = bytes - MARK_BLOCK_BYTES as u64 - segment.groups_end();
            let stored = filled(&segment, INDEX_STEP_BYTES).encode(&segment);
            assert!(stored.len() as u64 <= room, "{} of {room} bytes", stored.len());
            assert!(room <= 4096 + bytes / 400, "{room} bytes");
            assert_eq!(room, SegmentIndex::room_bytes(&segment) as u64);
        }
        let small = segment(INDEX_SEGMENT_BYTES_MIN - 4096);
        assert_eq!(small.groups_end(), small.marks_at());
        assert!(segment(SEGMENT_BYTES_MAX).groups_end() > SEGMENT_BYTES_MAX - (9 << 20));
    }

    #[test]
    fn what_is_not_the_index_of_this_segment_in_this_life_is_none() {
        let own = segment(INDEX_SEGMENT_BYTES_MIN);
        let index = filled(&own, 4000);
        assert!(index.entries.len() > 3);
        let mut bytes = index.encode(&own);
        bytes.resize(4096, 0xee);
        assert_eq!(SegmentIndex::decode(&own, &bytes), Some(index.clone()));
        let others = [
            SegmentHeader { log: LogId::new([8; 16]), ..own },
            SegmentHeader { number: SegmentNumber::new(4).unwrap(), ..own },
            SegmentHeader { epoch: Epoch::new(6).unwrap(), ..own },
        ];
        for other in others {
            assert_eq!(SegmentIndex::decode(&other, &bytes), None);
        }
        let len = index.encode(&own).len();
        for bit in 0..8 * len {
            let mut torn = bytes.clone();
            torn[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(SegmentIndex::decode(&own, &torn), None, "bit {bit}");
        }
        for cut in 0..len {
            assert_eq!(SegmentIndex::decode(&own, &bytes[..cut]), None, "{cut} bytes");
        }
        // With a right sum, too.
        let entry = index.entries[1];
        let wrong = [
            Entry { lsn: Lsn::new(99), ..entry },
            Entry { lsn: index.entries[2].lsn, ..entry },
            Entry { at: 0, ..entry },
            Entry { at: entry.at + 4, ..entry },
            Entry { at: own.groups_end() as u32, ..entry },
            Entry { more: entry.more + 9, ..entry },
            Entry { more: u32::MAX << EPOCH_BITS, ..entry },
        ];
        for wrong in wrong {
            let mut index = index.clone();
            index.entries[1] = wrong;
            assert_eq!(SegmentIndex::decode(&own, &index.encode(&own)), None, "{wrong:?}");
        }
    }
}
