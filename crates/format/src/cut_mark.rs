//! The mark that a cut leaves in older segments: a newer segment has been begun.
//!
//! *Owns*: the block at the end of a segment's file. *May not touch*: groups, which never lie
//! there; when a mark is written.
//!
//! Without it, the loss of the segment that a cut has begun would bring the cut records back: the
//! older segments would be a log without a fault. The block has two copies, which are written in
//! turn, so that a torn write leaves the older mark.

use crate::bytes::{put_u32, put_u64, u32_at, u64_at};
use crate::checksum::{append, crc32c};
use crate::group::Identity;
use crate::limits::{ALIGN, CUT_MARK_COPY_BYTES, CUT_MARK_MARKER, HEADER_BYTES, MARK_BLOCK_BYTES};
use crate::types::{Epoch, SegmentNumber};

const CRC_AT: usize = 4;
const CUTS_AT: usize = 8;
const SUCCESSOR_AT: usize = 16;
const END_AT: usize = 24;
const EPOCH_AT: usize = 32;

/// The words of a cut in a segment that is older than the one it has begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CutMark {
    /// The number of cuts in the log's life, with this one.
    pub cuts: u64,
    /// The segment that the cut has begun. Its header is durable.
    pub successor: SegmentNumber,
    /// The byte after the last frame of this segment that still belongs to the log; where its
    /// first group would be if none does.
    pub end: u64,
    /// The epoch that the cut has begun.
    pub epoch: Epoch,
}

impl CutMark {
    /// The newest mark in the last block of the segment's file; `None` if no cut has left one. What
    /// an earlier use of the file or a torn write has left there is no mark.
    pub fn read(identity: &Identity, block: &[u8]) -> Option<Self> {
        newest(identity, block).map(|(mark, _)| mark)
    }

    /// Writes it into the last block of the segment's file, beside the newest mark that is there.
    ///
    /// # Panics
    /// When the block has another size.
    pub fn write(&self, identity: &Identity, block: &mut [u8]) {
        assert_eq!(block.len(), MARK_BLOCK_BYTES, "a block of another size");
        let place = newest(identity, block).map_or(0, |(_, place)| 1 - place);
        let copy = &mut block[place * CUT_MARK_COPY_BYTES..(place + 1) * CUT_MARK_COPY_BYTES];
        copy.fill(0);
        copy[..CRC_AT].copy_from_slice(&CUT_MARK_MARKER);
        put_u64(copy, CUTS_AT, self.cuts);
        put_u64(copy, SUCCESSOR_AT, self.successor.get());
        put_u64(copy, END_AT, self.end);
        put_u64(copy, EPOCH_AT, self.epoch.get());
        let crc = crc(identity, copy);
        put_u32(copy, CRC_AT, crc);
    }
}

/// The newest mark, and which copy it is.
fn newest(identity: &Identity, block: &[u8]) -> Option<(CutMark, usize)> {
    let copies = block.chunks_exact(CUT_MARK_COPY_BYTES).take(2).enumerate();
    let sound = copies.filter_map(|(place, copy)| Some((decode(identity, copy)?, place)));
    sound.max_by_key(|(mark, _)| mark.cuts)
}

fn decode(identity: &Identity, copy: &[u8]) -> Option<CutMark> {
    if !copy.starts_with(&CUT_MARK_MARKER) || u32_at(copy, CRC_AT) != crc(identity, copy) {
        return None;
    }
    let mark = CutMark {
        cuts: u64_at(copy, CUTS_AT),
        successor: SegmentNumber::new(u64_at(copy, SUCCESSOR_AT))?,
        end: u64_at(copy, END_AT),
        epoch: Epoch::new(u64_at(copy, EPOCH_AT))?,
    };
    let is_sound = mark.successor > identity.segment()
        && (1..mark.epoch.get()).contains(&mark.cuts)
        && mark.end >= HEADER_BYTES as u64
        && mark.end.is_multiple_of(ALIGN as u64);
    is_sound.then_some(mark)
}

fn crc(identity: &Identity, copy: &[u8]) -> u32 {
    let seed = append(crc32c(b"IK1CTMRK"), identity.log().bytes());
    let seed = append(seed, &identity.segment().get().to_le_bytes());
    append(append(seed, &copy[..CRC_AT]), &copy[CUTS_AT..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::LogId;

    fn mark(cuts: u64) -> CutMark {
        CutMark {
            cuts,
            successor: SegmentNumber::new(9).unwrap(),
            end: 5000,
            epoch: Epoch::new(cuts + 1).unwrap(),
        }
    }

    #[test]
    fn the_newest_whole_mark_of_this_segment_counts() {
        let identity = |log, segment| {
            Identity::new(LogId::new([log; 16]), SegmentNumber::new(segment).unwrap())
        };
        let own = identity(1, 3);
        let mut block = [0xff; MARK_BLOCK_BYTES];
        assert_eq!(CutMark::read(&own, &block), None);
        for cuts in 1..6 {
            let before = block;
            mark(cuts).write(&own, &mut block);
            assert_eq!(CutMark::read(&own, &block), Some(mark(cuts)));
            for other in [identity(2, 3), identity(1, 4)] {
                assert_eq!(CutMark::read(&other, &block), None);
            }
            // A torn write leaves the older one.
            for bit in 0..8 * 2 * CUT_MARK_COPY_BYTES {
                let mut torn = block;
                torn[bit / 8] ^= 1 << (bit % 8);
                let read = CutMark::read(&own, &torn);
                let older = CutMark::read(&own, &before);
                assert!(read == Some(mark(cuts)) || read == older, "bit {bit}");
            }
        }
        let bad = [
            CutMark { cuts: 0, ..mark(1) },
            CutMark { cuts: 2, ..mark(1) },
            CutMark { successor: SegmentNumber::new(3).unwrap(), ..mark(1) },
            CutMark { end: 4095, ..mark(1) },
            CutMark { end: 4097, ..mark(1) },
        ];
        for mark in bad {
            let mut block = [0; MARK_BLOCK_BYTES];
            mark.write(&own, &mut block);
            assert_eq!(CutMark::read(&own, &block), None, "{mark:?}");
        }
    }
}
