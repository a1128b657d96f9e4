//! The open group: records are added to it, in the buffer from which it will be written.
//!
//! *Owns*: one buffer: the start of the block in which the log ends (rewritten with the same
//! bytes), then the group. *May not touch*: files, locks, waiters.

use inkstone_format::limits::{BLOCK_BYTES, GROUP_BYTES_MAX, GROUP_HEADER_BYTES, HEADER_BYTES};
use inkstone_format::{
    Batch, Control, EncodeError, Epoch, FramePlace, GroupEncoder, Identity, Lsn, NewPlaces,
    PayloadSum, Promise, SegmentHeader, frame_bytes,
};
use inkstone_io::AlignedBuf;

use crate::error::Error;
use crate::payload::sealed::Payload;
use crate::sync::Instant;
use crate::tail::Placed;

/// The largest buffer that is kept after it has grown. There are two.
const GROWN_BYTES_MAX: usize = 20 << 20;

/// Bytes kept free at the end of a buffer, for control frames and padding that close a group.
const CLOSING_BYTES: usize = 2 * BLOCK_BYTES;

/// A buffer for a large record grows in steps of this size, so that the next one, which may be a
/// little larger, finds it large enough.
const GROWTH_BYTES: usize = 64 << 10;

/// How far ahead of the records memory is prefetched: half a microsecond of small records. 512 was
/// too near, 4 KiB no better.
const PREFETCH_BYTES: usize = 2048;

/// Why no record is added now.
#[derive(Debug)]
pub(crate) enum Refused {
    /// It will never be: the log has ended, is poisoned, or has no LSN left.
    Ended(Error),
    /// Another thread changes the log, and wakes the threads that wait for room.
    Changing,
    /// The group must be committed first.
    BufferFull,
    /// The log must continue in its next segment first.
    SegmentFull,
}

/// The group to which records are added.
#[derive(Debug)]
pub(crate) struct OpenGroup {
    memory: AlignedBuf,
    /// The size of the memory that it began with. Only a record that is larger uses more.
    usual_bytes: usize,
    /// Bytes in the block before the group.
    prefix: usize,
    encoder: GroupEncoder,
    /// The segment, as the checksums cover it.
    coded: SegmentHeader,
    identity: Identity,
    epoch: Epoch,
    first_lsn: Lsn,
    /// Places of records for the segment's index, of this group and of one that is being written.
    places: NewPlaces,
    /// It accepts no records.
    is_held: bool,
    /// What the group has as long as no record is added.
    control: Content,
    /// The block after this group is cleared with it.
    clears_behind: bool,
}

/// What a group has, for a disk without room for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Content {
    /// A failure poisons the log, as any other does.
    Records,
    /// Control frames that must be written: room is released for them. If that does not help, the
    /// group is withdrawn.
    Needed,
    /// Control frames that may be left out: the group is withdrawn.
    Optional,
}

/// A group that is ready to be written, whole blocks around it.
#[derive(Debug)]
pub(crate) struct Encoded {
    pub(crate) content: Content,
    pub(crate) memory: AlignedBuf,
    /// Bytes to write, from the front of the memory.
    pub(crate) len: usize,
    /// Where in the file.
    pub(crate) offset: u64,
    pub(crate) identity: Identity,
    /// The LSN of its first record, or of the next one if it has none.
    pub(crate) first_lsn: Lsn,
    /// Where the group begins.
    pub(crate) at: u64,
    /// The byte after the group.
    pub(crate) end: u64,
    /// The LSN of the next record.
    pub(crate) next_lsn: Lsn,
    /// The place of a block after the group that is to be cleared.
    pub(crate) clears: Option<u64>,
    /// It needs more than a buffer of the usual size.
    pub(crate) is_large: bool,
}

impl Encoded {
    /// Where it lies in its buffer.
    pub(crate) fn placed(&self) -> Placed {
        let Self { identity, at, first_lsn, next_lsn, .. } = *self;
        Placed {
            identity,
            at,
            first_lsn,
            next_lsn,
            from: (at - self.offset) as usize,
            bytes: (self.end - at) as usize,
        }
    }

    /// The LSN of its last record; of the last record before it if it has none.
    pub(crate) fn last(&self) -> Lsn {
        self.next_lsn.before().unwrap_or(Lsn::ZERO)
    }
}

/// A closed group on its way to the disk: nothing is added to it any more.
pub(crate) struct Group {
    pub(crate) number: u64,
    pub(crate) encoded: Encoded,
    /// The number of its waiters.
    pub(crate) waiters: usize,
    /// When its first record was appended.
    pub(crate) since: Option<Instant>,
}

/// A buffer for groups of up to `bytes` bytes.
pub(crate) fn memory_for(bytes: usize) -> AlignedBuf {
    AlignedBuf::zeroed(memory_bytes(bytes))
}

/// How large such a buffer is.
fn memory_bytes(bytes: usize) -> usize {
    bytes.next_multiple_of(BLOCK_BYTES) + CLOSING_BYTES
}

/// The second of the two buffers: of the next group, unless a group that is being written has it.
#[derive(Debug)]
pub(crate) struct SpareBuffer {
    memory: Option<AlignedBuf>,
    /// For groups of so many bytes, as the options say.
    buffer_bytes: usize,
}

impl SpareBuffer {
    pub(crate) fn new(buffer_bytes: usize) -> Self {
        Self { memory: Some(memory_for(buffer_bytes)), buffer_bytes }
    }

    /// The buffer of the next group. `is_large`: the group before it needs more than a usual one.
    fn take(&mut self, is_large: bool) -> AlignedBuf {
        let kept = self.memory.take().filter(|memory| self.is_kept(memory, is_large));
        kept.unwrap_or_else(|| memory_for(self.buffer_bytes))
    }

    /// Keeps a group's buffer for the next one.
    pub(crate) fn keep(&mut self, memory: Option<AlignedBuf>, is_large: bool) {
        self.memory = memory.filter(|memory| self.is_kept(memory, is_large));
    }

    /// Whether a buffer is used again. One that has grown is, as long as groups need it; the first
    /// that does not ends that.
    fn is_kept(&self, memory: &AlignedBuf, is_large: bool) -> bool {
        let usual = memory_bytes(self.buffer_bytes);
        memory.len() == usual || (is_large && (usual..=GROWN_BYTES_MAX).contains(&memory.len()))
    }
}

impl OpenGroup {
    /// Begins a group at byte `at`; `block` holds at least the bytes of the block before the group.
    pub(crate) fn begin(
        mut memory: AlignedBuf,
        coded: SegmentHeader,
        at: u64,
        epoch: Epoch,
        next_lsn: Lsn,
        block: &[u8],
        places: NewPlaces,
    ) -> Self {
        let prefix = (at % BLOCK_BYTES as u64) as usize;
        memory[..prefix].copy_from_slice(&block[..prefix]);
        let encoder = GroupEncoder::begin(&coded, at, epoch, next_lsn);
        Self {
            usual_bytes: memory.len(),
            memory,
            prefix,
            encoder,
            identity: coded.identity(),
            coded,
            epoch,
            first_lsn: next_lsn,
            places,
            is_held: false,
            control: Content::Optional,
            clears_behind: false,
        }
    }

    /// Continues in another segment, with the same buffer; the group is empty.
    pub(crate) fn enter(&mut self, coded: SegmentHeader, epoch: Epoch, next_lsn: Lsn) {
        debug_assert!(self.is_empty(), "records of another segment");
        self.prefix = 0;
        self.encoder = GroupEncoder::begin(&coded, HEADER_BYTES as u64, epoch, next_lsn);
        (self.coded, self.identity) = (coded, coded.identity());
        self.epoch = epoch;
        self.first_lsn = next_lsn;
        self.places = NewPlaces::default();
    }

    /// The size of the segment.
    pub(crate) fn segment_bytes(&self) -> u64 {
        self.coded.segment_bytes
    }

    /// The LSN of the group's first record, which it may not have yet.
    pub(crate) fn first_lsn(&self) -> Lsn {
        self.first_lsn
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.encoder.is_empty()
    }

    pub(crate) fn at(&self) -> u64 {
        self.encoder.at()
    }

    pub(crate) fn next_lsn(&self) -> Lsn {
        self.encoder.next_lsn()
    }

    /// Bytes that control groups may still use in this segment.
    pub(crate) fn control_room(&self) -> u64 {
        self.coded.groups_end() - self.encoder.at()
    }

    /// Bytes that records may still use in this segment.
    pub(crate) fn record_room(&self) -> u64 {
        if self.is_held { 0 } else { self.encoder.record_room() }
    }

    /// From now on it accepts no records, as if the segment were full; or accepts them again.
    pub(crate) fn hold(&mut self, is_held: bool) {
        self.is_held = is_held;
    }

    /// Why so many records, whose frames take so many bytes, cannot be added now. The segment must
    /// have `room` bytes for them.
    #[inline]
    fn refuses(&self, needed: usize, room: u64, records: usize) -> Option<Refused> {
        if room > self.record_room() {
            return Some(Refused::SegmentFull);
        }
        if self.encoder.next_lsn().plus(records as u64).is_none() {
            return Some(Refused::Ended(Error::UsedUp));
        }
        let most = self.usual_bytes.min(self.prefix + GROUP_BYTES_MAX) - CLOSING_BYTES;
        let room = most.saturating_sub(self.prefix + self.encoder.used());
        (needed > room && !self.encoder.is_empty()).then_some(Refused::BufferFull)
    }

    /// Why a record of so many bytes, for which the segment must have `room`, cannot be added now.
    pub(crate) fn refuses_record(&self, record_bytes: usize, room: u64) -> Option<Refused> {
        self.refuses(frame_bytes(record_bytes), room, 1)
    }

    /// Adds records, all or none, if the segment has `room` bytes for them; several are a batch. If
    /// they are too large for the buffer and the group is empty, the buffer grows, unless it is one
    /// that has grown before.
    pub(crate) fn records<P: Payload>(
        &mut self,
        payloads: &[(P, PayloadSum)],
        room: u64,
    ) -> Result<Lsn, Refused> {
        let needed: usize = payloads.iter().map(|(_, sum)| frame_bytes(sum.len())).sum();
        // All or none: every reason for which the encoder could refuse a later record is checked
        // before the first.
        if let Some(refused) = self.refuses(needed, room, payloads.len()) {
            return Err(refused);
        }
        let used = self.prefix + self.encoder.used();
        if self.encoder.is_empty() && used + needed + CLOSING_BYTES > self.memory.len() {
            self.grow(needed);
        }
        let last = payloads.len() - 1;
        let mut lsn = self.encoder.next_lsn();
        for (index, (payload, sum)) in payloads.iter().enumerate() {
            let place = match index {
                _ if last == 0 => Batch::Alone,
                0 => Batch::First,
                _ if index == last => Batch::Last,
                _ => Batch::Middle,
            };
            let at = self.encoder.at() + self.encoder.used() as u64;
            self.places.note(at, self.encoder.next_lsn(), self.epoch, sum.len());
            let group = &mut self.memory[self.prefix..];
            let encoded = self.encoder.record_of_parts(group, payload.parts(), *sum, place);
            lsn = encoded.map_err(|error| Refused::Ended(Error::Invalid(error.to_string())))?;
            // As much as was just used, so that each byte is prefetched once.
            let asked = frame_bytes(sum.len()).min(PREFETCH_BYTES);
            self.memory
                .expect_writes(self.prefix + self.encoder.used() + PREFETCH_BYTES - asked, asked);
        }
        Ok(lsn)
    }

    /// Takes out the places of records up to `last`, which are durable.
    pub(crate) fn take_places(&mut self, last: Lsn) -> impl Iterator<Item = FramePlace> + '_ {
        self.places.take(move |place| place.lsn <= last)
    }

    fn grow(&mut self, needed: usize) {
        let mut memory =
            memory_for((self.prefix + self.encoder.used() + needed).next_multiple_of(GROWTH_BYTES));
        memory[..self.prefix].copy_from_slice(&self.memory[..self.prefix]);
        self.memory = memory;
    }

    /// Adds a control frame.
    pub(crate) fn control(&mut self, control: &Control) -> Result<(), EncodeError> {
        self.encoder.control(&mut self.memory[self.prefix..], control)?;
        if !matches!(control, Control::Promise(_) | Control::Seal(_)) {
            self.control = Content::Needed;
        }
        Ok(())
    }

    /// This group is the last one before the log is closed. A crash may have left bytes in the
    /// block after it, which the next opening would take for the beginning of a torn group.
    pub(crate) fn clear_behind(&mut self) {
        self.clears_behind = true;
    }

    /// Ends the group and begins the next one after it, in the spare buffer.
    pub(crate) fn finish(
        &mut self,
        promise: Promise,
        pad: bool,
        spare: &mut SpareBuffer,
    ) -> Encoded {
        let is_large = self.is_large();
        let memory = spare.take(is_large);
        let mut encoder = self.encoder.clone();
        let group = &mut self.memory[self.prefix..];
        if pad {
            // There is room: CLOSING_BYTES are reserved for it.
            let padded = encoder.pad_to_block(group);
            debug_assert!(padded.is_ok(), "room for padding is kept");
        }
        let finished = encoder.finish(group, promise);
        let used = self.prefix + finished.bytes;
        let offset = finished.at - self.prefix as u64;
        let len = used.next_multiple_of(BLOCK_BYTES);
        let next = offset + len as u64;
        let crosses = used + GROUP_HEADER_BYTES > len;
        let clears = (std::mem::take(&mut self.clears_behind)
            && crosses
            && next + BLOCK_BYTES as u64 <= self.coded.groups_end())
        .then_some(next);
        self.memory[used..len].fill(0);
        let end = finished.end();
        let old = std::mem::replace(&mut self.memory, memory);
        let block = used / BLOCK_BYTES * BLOCK_BYTES;
        self.prefix = used - block;
        self.memory[..self.prefix].copy_from_slice(&old[block..used]);
        self.encoder = GroupEncoder::begin(&self.coded, end, self.epoch, finished.next_lsn);
        let first_lsn = std::mem::replace(&mut self.first_lsn, finished.next_lsn);
        let control = std::mem::replace(&mut self.control, Content::Optional);
        let content = if first_lsn == finished.next_lsn { control } else { Content::Records };
        Encoded {
            content,
            memory: old,
            len,
            offset,
            identity: self.identity,
            first_lsn,
            at: finished.at,
            end,
            next_lsn: finished.next_lsn,
            clears,
            is_large,
        }
    }

    /// Whether the group needs more than a buffer of the usual size.
    fn is_large(&self) -> bool {
        self.prefix + self.encoder.used() + CLOSING_BYTES > self.usual_bytes
    }

    /// Takes back a group without records that began at byte `at` and was not written: the next
    /// group begins there. Exchanges its buffer for the one in use. Nothing may be appended after
    /// it.
    pub(crate) fn take_back(&mut self, at: u64, memory: AlignedBuf) -> AlignedBuf {
        debug_assert!(self.is_empty(), "records behind a group that is taken back");
        self.prefix = (at % BLOCK_BYTES as u64) as usize;
        self.encoder = GroupEncoder::begin(&self.coded, at, self.epoch, self.first_lsn);
        std::mem::replace(&mut self.memory, memory)
    }
}

/// The size of frames with these payloads.
pub(crate) fn needed_bytes<P: Payload>(payloads: &[(P, PayloadSum)]) -> u64 {
    payloads.iter().map(|(_, sum)| frame_bytes(sum.len()) as u64).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use inkstone_format::{LogId, LogKind, Roll, SegmentNumber};

    /// The buffer has room for the batch, the group has not: none of it is added, and what was
    /// appended before can be written.
    #[test]
    fn a_batch_that_crosses_the_largest_group_is_refused_as_a_whole() {
        let coded = SegmentHeader {
            log: LogId::new([1; 16]),
            number: SegmentNumber::FIRST,
            segment_bytes: 2 << 30,
            first_lsn: Lsn::FIRST,
            first_live: Lsn::FIRST,
            epoch: Epoch::FIRST,
            promise: Lsn::ZERO,
            predecessor: None,
            roll: Roll::Begin,
            kind: LogKind::PLAIN,
            owner: [0; 16],
            cuts: 0,
            lost_to: Lsn::ZERO,
        };
        let memory = memory_for(GROUP_BYTES_MAX + (32 << 20));
        let at = HEADER_BYTES as u64;
        let mut open_group = OpenGroup::begin(
            memory,
            coded,
            at,
            Epoch::FIRST,
            Lsn::FIRST,
            &[],
            NewPlaces::default(),
        );
        let zeros = vec![0; 200 << 20];
        let summed = |bytes: usize| (&zeros[..bytes], PayloadSum::of(&zeros[..bytes]));
        (0..2)
            .for_each(|_| _ = open_group.records(&[summed(200 << 20)], 0).expect("there is room"));
        let refused = open_group.records(&[summed(60 << 20), summed(60 << 20)], 0);
        assert!(matches!(refused, Err(Refused::BufferFull)), "{refused:?}");
        assert_eq!(open_group.next_lsn(), Lsn::new(3));
        let promise = Promise { lsn: Lsn::ZERO, end: at };
        let encoded = open_group.finish(promise, true, &mut SpareBuffer::new(8 << 10));
        assert_eq!((encoded.last(), encoded.len % BLOCK_BYTES), (Lsn::new(2), 0));
    }
}
