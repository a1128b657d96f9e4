//! The header block of a segment: two copies of the header, and the classification of a block that
//! should hold them.
//!
//! *Owns*: the bytes 0..4096 of a segment. *May not touch*: groups; whether a bad header was left
//! by a crash or is damage (`verdict`).

use crate::bytes::{all_zero, array, put_u32, put_u64, u32_at, u64_at};
use crate::checksum::crc32c;
use crate::cuts::{CUTS_BYTES, Cuts};
use crate::group::Identity;
use crate::limits::{
    BLOCK_BYTES, FORMAT_VERSION, HEADER_BYTES, HEADER_COPIES_AT, HEADER_COPY_BYTES, MAGIC,
    MARK_BLOCK_BYTES, SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN, groups_end,
};
use crate::types::{Epoch, LogId, LogKind, Lsn, Position, SegmentNumber};

const VERSION_AT: usize = 8;
const FLAGS_AT: usize = 12;
const LOG_ID_AT: usize = 16;
const NUMBER_AT: usize = 32;
const SEGMENT_BYTES_AT: usize = 40;
const FIRST_LSN_AT: usize = 48;
const FIRST_LIVE_AT: usize = 56;
const EPOCH_AT: usize = 64;
const PROMISE_AT: usize = 72;
const PREDECESSOR_AT: usize = 80;
const PREDECESSOR_END_AT: usize = 88;
const ROLL_AT: usize = 96;
const COPY_AT: usize = 100;
const KIND_AT: usize = 104;
const NOTHING_AT: usize = 108;
const OWNER_AT: usize = 112;
const CUTS_AT: usize = 128;
const LOST_TO_AT: usize = CUTS_AT + CUTS_BYTES;
const REST_AT: usize = LOST_TO_AT + 8;
const CRC_AT: usize = HEADER_COPY_BYTES - 4;

/// The end of the segment before this one.
pub type Predecessor = Position;

/// Why a segment was begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Roll {
    /// The log begins here: there is no predecessor, and no older segment belongs to the log.
    Begin,
    /// The predecessor was full.
    Full,
    /// `truncate_after`: the log ends inside the predecessor, before its last bytes.
    Cut,
}

/// The header of a segment, but for the history of the log's cuts ([`Cuts`]): a process knows the
/// headers of all segments, and only the newest one's history is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentHeader {
    /// The log it belongs to.
    pub log: LogId,
    /// Its number.
    pub number: SegmentNumber,
    /// The size of its file.
    pub segment_bytes: u64,
    /// The LSN of its first record, which may not exist yet.
    pub first_lsn: Lsn,
    /// The first LSN that `truncate_before` had left when the segment was begun.
    pub first_live: Lsn,
    /// The epoch in which it was begun.
    pub epoch: Epoch,
    /// The highest LSN known to be durable then.
    pub promise: Lsn,
    /// The end of the segment before it; `None` exactly for [`Roll::Begin`].
    pub predecessor: Option<Predecessor>,
    /// Why it was begun.
    pub roll: Roll,
    /// What the log is for; the same in all its segments.
    pub kind: LogKind,
    /// The id of what stands on the log, zeros if nothing does; the same in all its segments.
    pub owner: [u8; 16],
    /// How many cuts the log had until the segment was begun, its own included.
    pub cuts: u64,
    /// No gap of the log ([`crate::Control::Lost`]) has a higher LSN; zero if there is no gap.
    pub lost_to: Lsn,
}

impl SegmentHeader {
    /// Writes the header block, with this history of cuts: the first [`HEADER_BYTES`] bytes of the
    /// segment.
    ///
    /// # Panics
    /// When the fields contradict each other ([`SegmentHeader::contradiction`]).
    pub fn encode(&self, cuts: &Cuts, block: &mut [u8; HEADER_BYTES]) {
        assert_eq!(self.contradiction(cuts), None, "a header that cannot be");
        block.fill(0);
        for (index, at) in HEADER_COPIES_AT.into_iter().enumerate() {
            self.encode_copy(cuts, &mut block[at..at + HEADER_COPY_BYTES], index as u32);
        }
    }

    fn encode_copy(&self, cuts: &Cuts, copy: &mut [u8], index: u32) {
        copy[..MAGIC.len()].copy_from_slice(&MAGIC);
        put_u32(copy, VERSION_AT, FORMAT_VERSION);
        put_u32(copy, FLAGS_AT, 0);
        copy[LOG_ID_AT..LOG_ID_AT + 16].copy_from_slice(self.log.bytes());
        put_u64(copy, NUMBER_AT, self.number.get());
        put_u64(copy, SEGMENT_BYTES_AT, self.segment_bytes);
        put_u64(copy, FIRST_LSN_AT, self.first_lsn.get());
        put_u64(copy, FIRST_LIVE_AT, self.first_live.get());
        put_u64(copy, EPOCH_AT, self.epoch.get());
        put_u64(copy, PROMISE_AT, self.promise.get());
        put_u64(copy, PREDECESSOR_AT, self.predecessor.map_or(0, |end| end.segment.get()));
        put_u64(copy, PREDECESSOR_END_AT, self.predecessor.map_or(0, |end| end.byte));
        put_u32(copy, ROLL_AT, self.roll.code());
        put_u32(copy, COPY_AT, index);
        copy[KIND_AT..KIND_AT + 4].copy_from_slice(self.kind.bytes());
        copy[OWNER_AT..OWNER_AT + 16].copy_from_slice(&self.owner);
        cuts.encode(&mut copy[CUTS_AT..CUTS_AT + CUTS_BYTES]);
        put_u64(copy, LOST_TO_AT, self.lost_to.get());
        let crc = crc32c(&copy[..CRC_AT]);
        put_u32(copy, CRC_AT, crc);
    }

    /// What is impossible in it with this history of cuts; `None` if it is sound.
    pub fn contradiction(&self, cuts: &Cuts) -> Option<&'static str> {
        if self.cuts != cuts.count() {
            return Some("another number of cuts than in the history");
        }
        if !segment_bytes_fit(self.segment_bytes) {
            return Some("the segment size is out of bounds");
        }
        if self.first_lsn < Lsn::FIRST || self.first_live < Lsn::FIRST {
            return Some("an LSN below 1");
        }
        if self.first_live > self.first_lsn {
            return Some("the first live LSN is above the first LSN of the segment");
        }
        if self.promise >= self.first_lsn {
            return Some("a promise of records that belong to this segment");
        }
        // Each cut begins an epoch, and the first one is that of the new log.
        if self.cuts >= self.epoch.get() {
            return Some("more cuts than epochs");
        }
        // A salvage gives the new log the history of the old one, wherever that was cut.
        let kept = cuts.last_kept();
        if self.roll == Roll::Cut && kept.and_then(Lsn::next) != Some(self.first_lsn) {
            return Some("a cut that is not in the history");
        }
        match (self.roll, self.predecessor) {
            (Roll::Begin, None) if self.first_live == self.first_lsn => None,
            (Roll::Begin, _) => Some("the log begins here, and yet something comes before it"),
            (_, None) => Some("a roll without a predecessor"),
            (_, Some(end)) if end.segment >= self.number => {
                Some("a predecessor whose number is not lower")
            }
            (_, Some(end)) if !segment_end_fits(end.byte) => {
                Some("the predecessor's end is out of bounds")
            }
            _ => None,
        }
    }

    /// The byte at which its groups end at the latest: the room of its index begins there.
    pub fn groups_end(&self) -> u64 {
        groups_end(self.segment_bytes)
    }

    /// The byte at which the block of the marks begins.
    pub fn marks_at(&self) -> u64 {
        self.segment_bytes.saturating_sub(MARK_BLOCK_BYTES as u64)
    }

    /// The identity with which the groups and frames of the segment are read and written.
    pub fn identity(&self) -> Identity {
        Identity::new(self.log, self.number)
    }
}

fn segment_bytes_fit(bytes: u64) -> bool {
    (SEGMENT_BYTES_MIN..=SEGMENT_BYTES_MAX).contains(&bytes)
        && bytes.is_multiple_of(BLOCK_BYTES as u64)
}

fn segment_end_fits(byte: u64) -> bool {
    (HEADER_BYTES as u64..=SEGMENT_BYTES_MAX).contains(&byte)
        && byte.is_multiple_of(crate::limits::ALIGN as u64)
}

impl Roll {
    const fn code(self) -> u32 {
        match self {
            Self::Begin => 1,
            Self::Full => 2,
            Self::Cut => 3,
        }
    }

    const fn of(code: u32) -> Option<Self> {
        match code {
            1 => Some(Self::Begin),
            2 => Some(Self::Full),
            3 => Some(Self::Cut),
            _ => None,
        }
    }
}

/// Which copies of a valid header are good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Copies {
    /// Both, and they are equal.
    Both,
    /// Only this one (0 or 1); the other is damaged.
    Only(usize),
    /// Both are good and differ, because the write of this header was torn. This one (0 or 1) is
    /// newer.
    Newer(usize),
}

/// The traces of a header in a block without a valid one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HeaderTraces {
    /// A copy begins with the magic number.
    pub magic: bool,
    /// The log id in a copy with the magic number.
    pub log: Option<LogId>,
    /// The segment number in that copy.
    pub number: Option<u64>,
    /// A copy has a good checksum, and yet this in it is impossible.
    pub contradiction: Option<&'static str>,
}

/// The contents of the first block of a segment's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeaderBlock {
    /// A header.
    Valid {
        /// The header.
        header: SegmentHeader,
        /// Which of its copies are good.
        copies: Copies,
        /// There are bytes other than zero outside of the copies: harmless, but not written by a
        /// log.
        stray: bool,
    },
    /// Only zeros: the file was never used.
    Zero,
    /// A header with a good checksum, but with a version or a flag that this code does not know.
    Unknown {
        /// The version it names.
        version: u32,
        /// The flags it names.
        flags: u32,
    },
    /// The file ends before the block does.
    Short,
    /// Anything else.
    Damaged(HeaderTraces),
}

#[allow(clippy::large_enum_variant, reason = "it lives for one call")]
enum Copy {
    Good(SegmentHeader, Cuts),
    Unknown { version: u32, flags: u32 },
    Bad(Option<&'static str>),
}

impl HeaderBlock {
    /// Classifies `block`, the beginning of a file; fewer than [`HEADER_BYTES`] bytes mean that the
    /// file ends there.
    pub fn classify(block: &[u8]) -> Self {
        Self::with_cuts(block).0
    }

    /// As [`HeaderBlock::classify`]; and, if the header is valid, the log's history of cuts.
    pub fn with_cuts(block: &[u8]) -> (Self, Option<Cuts>) {
        let Some(block) = block.get(..HEADER_BYTES) else { return (Self::Short, None) };
        if all_zero(block) {
            return (Self::Zero, None);
        }
        let [first, second] = HEADER_COPIES_AT;
        let read = |at: usize, index| decode_copy(&block[at..at + HEADER_COPY_BYTES], index);
        let valid = |(header, cuts), copies| {
            (Self::Valid { header, copies, stray: stray(block) }, Some(cuts))
        };
        match (read(first, 0), read(second, 1)) {
            // An unknown version decides: another program uses the file.
            (Copy::Unknown { version, flags }, _) | (_, Copy::Unknown { version, flags }) => {
                (Self::Unknown { version, flags }, None)
            }
            (Copy::Good(a, cuts), Copy::Good(b, others)) if (a, cuts) == (b, others) => {
                valid((a, cuts), Copies::Both)
            }
            (Copy::Good(a, cuts), Copy::Good(b, others)) => {
                let newer = usize::from((b.number, b.epoch) > (a.number, a.epoch));
                valid([(a, cuts), (b, others)][newer], Copies::Newer(newer))
            }
            (Copy::Good(a, cuts), Copy::Bad(_)) => valid((a, cuts), Copies::Only(0)),
            (Copy::Bad(_), Copy::Good(b, cuts)) => valid((b, cuts), Copies::Only(1)),
            (Copy::Bad(a), Copy::Bad(b)) => (Self::Damaged(traces(block, a.or(b))), None),
        }
    }

    /// The header, if it is valid.
    pub fn header(&self) -> Option<&SegmentHeader> {
        match self {
            Self::Valid { header, .. } => Some(header),
            _ => None,
        }
    }
}

fn decode_copy(copy: &[u8], index: u32) -> Copy {
    if copy[..MAGIC.len()] != MAGIC || u32_at(copy, CRC_AT) != crc32c(&copy[..CRC_AT]) {
        return Copy::Bad(None);
    }
    let (version, flags) = (u32_at(copy, VERSION_AT), u32_at(copy, FLAGS_AT));
    if (version, flags) != (FORMAT_VERSION, 0) {
        return Copy::Unknown { version, flags };
    }
    match fields(copy, index) {
        Ok((header, cuts)) => match header.contradiction(&cuts) {
            None => Copy::Good(header, cuts),
            contradiction => Copy::Bad(contradiction),
        },
        Err(contradiction) => Copy::Bad(Some(contradiction)),
    }
}

fn fields(copy: &[u8], index: u32) -> Result<(SegmentHeader, Cuts), &'static str> {
    if u32_at(copy, COPY_AT) != index {
        return Err("a copy in the place of the other copy");
    }
    if !all_zero(&copy[NOTHING_AT..OWNER_AT]) || !all_zero(&copy[REST_AT..CRC_AT]) {
        return Err("bytes other than zero where a header has none");
    }
    let end = u64_at(copy, PREDECESSOR_END_AT);
    let predecessor = match SegmentNumber::new(u64_at(copy, PREDECESSOR_AT)) {
        Some(segment) => Some(Position { segment, byte: end }),
        None if end != 0 => return Err("an end without a predecessor"),
        None => None,
    };
    let cuts = Cuts::decode(&copy[CUTS_AT..CUTS_AT + CUTS_BYTES])?;
    let header = SegmentHeader {
        log: LogId::new(array(copy, LOG_ID_AT)),
        number: SegmentNumber::new(u64_at(copy, NUMBER_AT)).ok_or("segment number 0")?,
        segment_bytes: u64_at(copy, SEGMENT_BYTES_AT),
        first_lsn: Lsn::new(u64_at(copy, FIRST_LSN_AT)),
        first_live: Lsn::new(u64_at(copy, FIRST_LIVE_AT)),
        epoch: Epoch::new(u64_at(copy, EPOCH_AT)).ok_or("epoch 0")?,
        promise: Lsn::new(u64_at(copy, PROMISE_AT)),
        predecessor,
        roll: Roll::of(u32_at(copy, ROLL_AT)).ok_or("an unknown kind of roll")?,
        kind: LogKind::new(array(copy, KIND_AT)),
        owner: array(copy, OWNER_AT),
        cuts: cuts.count(),
        lost_to: Lsn::new(u64_at(copy, LOST_TO_AT)),
    };
    Ok((header, cuts))
}

fn stray(block: &[u8]) -> bool {
    let [first, second] = HEADER_COPIES_AT;
    !all_zero(&block[first + HEADER_COPY_BYTES..second])
        || !all_zero(&block[second + HEADER_COPY_BYTES..])
}

fn traces(block: &[u8], contradiction: Option<&'static str>) -> HeaderTraces {
    let mut traces = HeaderTraces { contradiction, ..HeaderTraces::default() };
    for at in HEADER_COPIES_AT {
        let copy = &block[at..at + HEADER_COPY_BYTES];
        if copy[..MAGIC.len()] == MAGIC && !traces.magic {
            traces.magic = true;
            traces.log = Some(LogId::new(array(copy, LOG_ID_AT)));
            traces.number = Some(u64_at(copy, NUMBER_AT));
        }
    }
    traces
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> SegmentHeader {
        SegmentHeader {
            log: LogId::new([7; 16]),
            number: SegmentNumber::new(3).unwrap(),
            segment_bytes: 65536,
            first_lsn: Lsn::new(12),
            first_live: Lsn::new(4),
            epoch: Epoch::new(2).unwrap(),
            promise: Lsn::new(11),
            predecessor: Some(Position { segment: SegmentNumber::new(2).unwrap(), byte: 5000 }),
            roll: Roll::Full,
            kind: LogKind::RAFT,
            owner: [9; 16],
            cuts: 1,
            lost_to: Lsn::new(10),
        }
    }

    fn history() -> Cuts {
        Cuts::NONE.with(Lsn::new(7))
    }

    /// A process knows the header of each segment: of 100,000 they take 12 MB.
    #[test]
    fn a_known_header_takes_no_room_for_the_history_of_cuts() {
        assert_eq!(size_of::<SegmentHeader>(), 120);
        assert!(size_of::<HeaderBlock>() <= 144);
    }

    fn block(header: &SegmentHeader) -> [u8; HEADER_BYTES] {
        let mut block = [0xff; HEADER_BYTES];
        header.encode(&history(), &mut block);
        block
    }

    #[test]
    fn one_copy_is_enough_and_every_flipped_bit_is_noticed() {
        let good = block(&sample());
        for bit in 0..HEADER_BYTES * 8 {
            let mut bad = good;
            bad[bit / 8] ^= 1 << (bit % 8);
            let HeaderBlock::Valid { header, copies, stray } = HeaderBlock::classify(&bad) else {
                panic!("bit {bit} lost the header");
            };
            assert_eq!((header, HeaderBlock::with_cuts(&bad).1), (sample(), Some(history())));
            assert!(stray || copies != Copies::Both, "bit {bit} went unnoticed");
        }
    }

    #[test]
    fn a_torn_write_over_an_old_header_gives_the_newer_one() {
        let old = block(&sample());
        let newer = SegmentHeader { number: SegmentNumber::new(9).unwrap(), ..sample() };
        let new = block(&newer);
        for keep in 0..8 {
            let mut mixed = old;
            mixed[..keep * 512].copy_from_slice(&new[..keep * 512]);
            let expected = if keep * 512 < HEADER_COPY_BYTES { sample() } else { newer };
            assert_eq!(
                HeaderBlock::classify(&mixed).header(),
                Some(&expected),
                "{keep} sectors of the new one"
            );
        }
        let mut second_only = old;
        second_only[2048..].copy_from_slice(&new[2048..]);
        assert_eq!(HeaderBlock::classify(&second_only).header(), Some(&newer));
    }

    #[test]
    fn another_version_is_told_from_damage() {
        let mut other = block(&sample());
        for at in HEADER_COPIES_AT {
            put_u32(&mut other[at..], VERSION_AT, 77);
        }
        // Without a matching checksum it is damage ...
        let HeaderBlock::Damaged(traces) = HeaderBlock::classify(&other) else {
            panic!("believed without checksum")
        };
        assert!(traces.magic);
        assert_eq!(traces.log, Some(sample().log));
        // ... with it, it is another version.
        let crc = crc32c(&other[..CRC_AT]);
        put_u32(&mut other, CRC_AT, crc);
        assert_eq!(HeaderBlock::classify(&other), HeaderBlock::Unknown { version: 77, flags: 0 });
    }

    #[test]
    fn what_cannot_be_is_no_header() {
        let bad = [
            SegmentHeader { segment_bytes: 65537, ..sample() },
            SegmentHeader { first_live: Lsn::new(13), ..sample() },
            SegmentHeader { promise: Lsn::new(12), ..sample() },
            SegmentHeader { predecessor: None, ..sample() },
            SegmentHeader { roll: Roll::Begin, ..sample() },
            SegmentHeader { number: SegmentNumber::FIRST, ..sample() },
            SegmentHeader { number: SegmentNumber::new(2).unwrap(), ..sample() },
            SegmentHeader { roll: Roll::Begin, predecessor: None, ..sample() },
            SegmentHeader { roll: Roll::Cut, ..sample() },
            SegmentHeader {
                predecessor: sample().predecessor.map(|end| Position { byte: 5001, ..end }),
                ..sample()
            },
        ];
        let none = SegmentHeader { roll: Roll::Cut, cuts: 0, ..sample() };
        let two = history().with(Lsn::new(7));
        let as_many_as_epochs = SegmentHeader { cuts: 2, ..sample() };
        let with_cuts = [(none, Cuts::NONE), (as_many_as_epochs, two)];
        for (header, cuts) in bad.map(|header| (header, history())).into_iter().chain(with_cuts) {
            assert!(header.contradiction(&cuts).is_some());
            let mut block = [0; HEADER_BYTES];
            header.encode_copy(&cuts, &mut block[..HEADER_COPY_BYTES], 0);
            assert!(matches!(HeaderBlock::classify(&block), HeaderBlock::Damaged(_)), "{header:?}");
        }
    }

    #[test]
    fn a_matching_checksum_excuses_nothing_that_no_log_writes() {
        let first = SegmentHeader {
            first_live: sample().first_lsn,
            predecessor: None,
            roll: Roll::Begin,
            cuts: 0,
            ..sample()
        };
        let summed = |header: &SegmentHeader, at: usize, byte: u8| {
            let mut block = [0; HEADER_BYTES];
            header.encode_copy(&Cuts::NONE, &mut block[..HEADER_COPY_BYTES], 0);
            block[at] = byte;
            let crc = crc32c(&block[..CRC_AT]);
            put_u32(&mut block, CRC_AT, crc);
            HeaderBlock::classify(&block)
        };
        assert!(matches!(summed(&first, ROLL_AT, 1), HeaderBlock::Valid { .. }));
        for at in
            [COPY_AT, NOTHING_AT, CUTS_AT, LOST_TO_AT - 1, REST_AT, CRC_AT - 1, PREDECESSOR_END_AT]
        {
            let found = summed(&first, at, 8);
            assert!(matches!(found, HeaderBlock::Damaged(_)), "byte {at}: {found:?}");
        }
        let unknown = |version, flags| HeaderBlock::Unknown { version, flags };
        assert_eq!(summed(&first, VERSION_AT, 0), unknown(0, 0));
        assert_eq!(summed(&first, FLAGS_AT, 1), unknown(FORMAT_VERSION, 1));
    }
}
