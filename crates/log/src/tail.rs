//! The tail: the groups that were written last, in memory, for the readers of this process.
//!
//! *Owns*: which groups are kept, their memory, and how much of it there may be. *May not touch*:
//! files, the watermark; whether a record is shown is the reader's question (`read/`).
//!
//! A group comes here when it is durable, and not before: so nothing that is here lies above the
//! watermark, and a group that a poison follows never comes. A cut drops everything, and
//! `truncate_before` what lies before its first record. The records that are here have LSNs without
//! a gap, up to the last group that was handed in. So a reader needs to ask for one LSN only: what
//! is not here is in a file.
//!
//! **Copied or handed over.** A large group is kept in the buffer in which it was built, and the
//! log goes on in a buffer that fell out of the tail. A small group is copied into a *chunk*,
//! behind the group before it: otherwise 128 bytes would keep a buffer of a mebibyte. A copy of 64
//! KiB, the largest, takes a few microseconds, and its write to a device twenty times as long or
//! more.
//!
//! **Memory.** At most `Options::tail_bytes`: what is kept, what has fallen out while a reader
//! still holds it, and what waits to be used again. A reader holds one buffer at a time. If readers
//! hold so much that nothing is left, the newest group is kept all the same, so that no slow reader
//! sends the others to the files. In the steady state nothing is allocated.
//!
//! Nothing is kept before the first reader of the log has come.

use std::collections::VecDeque;
use std::sync::Arc;

use inkstone_format::{Epoch, Identity, Lsn, Mark, SegmentNumber};
use inkstone_io::{AlignedBuf, GrowingBuf, GrownBytes};

use crate::sync::{AtomicBool, AtomicU64, Mutex, Ordering, lock};

/// The size of a chunk; a smaller tail has smaller ones, sixteen at least.
const CHUNK_BYTES_MAX: usize = 256 << 10;
const CHUNKS: usize = 16;
/// A group of up to this part of a chunk is copied.
const COPIED_PART: usize = 4;
/// Up to this part of the memory is kept free for groups of the other kind: so a log whose groups
/// are now small and now large does not allocate for each change.
const FREE_PART: usize = 4;
/// As the first LSN of a tail that has none.
const NONE: u64 = u64::MAX;

/// A group in the buffer in which it was built.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Placed {
    pub(crate) identity: Identity,
    /// Where it begins in its segment.
    pub(crate) at: u64,
    /// The LSN of its first record, or of the next one if it has none.
    pub(crate) first_lsn: Lsn,
    /// The LSN of the record after it.
    pub(crate) next_lsn: Lsn,
    /// Where it begins in its buffer.
    pub(crate) from: usize,
    pub(crate) bytes: usize,
}

/// Groups that follow each other in one segment, for a reader. In a chunk further ones may come.
#[derive(Debug, Clone)]
pub(crate) struct TailRun {
    pub(crate) identity: Identity,
    /// The beginning of the first group.
    pub(crate) from: Mark,
    bytes: Lent,
}

#[derive(Debug, Clone)]
enum Lent {
    Chunk(GrownBytes),
    Group { memory: Arc<AlignedBuf>, from: usize, to: usize },
}

impl TailRun {
    /// The bytes of the segment from the first group on.
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        match &self.bytes {
            Lent::Chunk(bytes) => bytes.bytes(),
            Lent::Group { memory, from, to } => &memory[*from..*to],
        }
    }

    /// Whether no group will be added to it.
    pub(crate) fn is_whole(&self) -> bool {
        matches!(self.bytes, Lent::Group { .. })
    }
}

/// Groups that are kept.
#[derive(Debug)]
struct KeptGroups {
    identity: Identity,
    from: Mark,
    /// The byte of the segment after them, and the LSN of the next record.
    end: u64,
    next_lsn: Lsn,
    memory: Memory,
}

#[derive(Debug)]
enum Memory {
    Chunk(GrowingBuf),
    Group { memory: Arc<AlignedBuf>, from: usize, to: usize },
}

impl Memory {
    fn bytes(&self) -> usize {
        match self {
            Self::Chunk(chunk) => chunk.capacity_bytes(),
            Self::Group { memory, .. } => memory.len(),
        }
    }

    /// Whether no reader holds it; it is empty then.
    fn is_free(&mut self) -> bool {
        match self {
            Self::Chunk(chunk) => chunk.clear(),
            Self::Group { memory, .. } => Arc::get_mut(memory).is_some(),
        }
    }
}

impl KeptGroups {
    fn run(&self) -> TailRun {
        let bytes = match &self.memory {
            Memory::Chunk(chunk) => Lent::Chunk(chunk.reader()),
            Memory::Group { memory, from, to } => {
                Lent::Group { memory: Arc::clone(memory), from: *from, to: *to }
            }
        };
        TailRun { identity: self.identity, from: self.from, bytes }
    }
}

/// The groups that were written last.
pub(crate) struct GroupTail {
    limit_bytes: usize,
    chunk_bytes: usize,
    /// There is or was a reader. Set and read with the state's lock held: `Relaxed` is enough.
    is_wanted: AtomicBool,
    /// The first LSN that is here, or [`NONE`], and the last that was handed in, here or not. A
    /// reader asks for them without the lock and goes by what it then finds under it: `Acquire` and
    /// `Release` only keep it from asking in vain.
    first: AtomicU64,
    last: AtomicU64,
    /// Taken with the state's lock held, or alone; never held while another lock is taken.
    ring: Mutex<Ring>,
}

#[derive(Debug, Default)]
struct Ring {
    /// In the order of LSNs, without a gap.
    kept: VecDeque<KeptGroups>,
    /// Fallen out, while a reader held it.
    lent: Vec<Memory>,
    /// To be used again.
    free: Vec<Memory>,
}

impl GroupTail {
    /// A tail of at most `limit_bytes`; 0: nothing is ever kept.
    pub(crate) fn new(limit_bytes: usize) -> Self {
        Self {
            limit_bytes,
            chunk_bytes: (limit_bytes / CHUNKS).min(CHUNK_BYTES_MAX),
            is_wanted: AtomicBool::new(false),
            first: AtomicU64::new(NONE),
            last: AtomicU64::new(0),
            ring: Mutex::default(),
        }
    }

    /// A reader comes: from now on groups are kept, those after the watermark. The caller has the
    /// state's lock.
    pub(crate) fn want(&self, durable: Lsn) {
        if self.limit_bytes > 0 && !self.is_wanted.swap(true, Ordering::Relaxed) {
            self.last.store(durable.get(), Ordering::Release);
        }
    }

    /// Whether groups are kept.
    pub(crate) fn is_wanted(&self) -> bool {
        self.is_wanted.load(Ordering::Relaxed)
    }

    /// Bytes of memory that it uses, with what only readers hold.
    pub(crate) fn bytes(&self) -> usize {
        lock(&self.ring).bytes()
    }

    /// Keeps a group that is durable. Returns a buffer for the next group: the same one, one that
    /// fell out, or none if a new one is to be made. The caller has the state's lock, and has woken
    /// the group's waiters.
    pub(crate) fn keep(&self, placed: &Placed, memory: AlignedBuf) -> Option<AlignedBuf> {
        if !self.is_wanted() {
            return Some(memory);
        }
        let mut ring = lock(&self.ring);
        let spare = if placed.bytes <= self.chunk_bytes / COPIED_PART {
            ring.copy(placed, &memory, self);
            Some(memory)
        } else if memory.len() <= self.limit_bytes {
            ring.take_over(placed, memory, self)
        } else {
            // It is too large. What is here must be without a gap.
            ring.clear();
            Some(memory)
        };
        self.note(&ring, placed.next_lsn.before().unwrap_or(Lsn::ZERO));
        spare
    }

    /// Drops everything: the log was cut after the record `last`. The caller has the state's lock.
    pub(crate) fn cut(&self, last: Lsn) {
        let mut ring = lock(&self.ring);
        ring.clear();
        self.note(&ring, last);
    }

    /// Drops what holds only records before `first`.
    pub(crate) fn forget_before(&self, first: Lsn) {
        let mut ring = lock(&self.ring);
        while ring.kept.front().is_some_and(|kept| kept.next_lsn <= first) {
            ring.drop_oldest();
        }
        self.note(&ring, Lsn::new(self.last.load(Ordering::Relaxed)));
    }

    fn note(&self, ring: &Ring, last: Lsn) {
        let first = ring.kept.front().map_or(NONE, |kept| kept.from.lsn.get());
        self.first.store(first, Ordering::Release);
        self.last.store(last.get(), Ordering::Release);
    }

    /// Whether the group of a durable record was handed in already, kept or not.
    #[inline]
    pub(crate) fn has_come_to(&self, lsn: Lsn) -> bool {
        lsn.get() <= self.last.load(Ordering::Acquire)
    }

    /// The groups that begin at or before the record, if it is here.
    #[inline]
    pub(crate) fn run(&self, lsn: Lsn) -> Option<TailRun> {
        (self.first.load(Ordering::Acquire) <= lsn.get()).then(|| self.find(lsn)).flatten()
    }

    fn find(&self, lsn: Lsn) -> Option<TailRun> {
        let ring = lock(&self.ring);
        let after = ring.kept.partition_point(|kept| kept.from.lsn <= lsn);
        ring.kept.get(after.checked_sub(1)?).map(KeptGroups::run)
    }

    /// The place in this segment where the groups begin in which the record lies, if it is here.
    pub(crate) fn mark_before(&self, segment: SegmentNumber, lsn: Lsn) -> Option<Mark> {
        self.run(lsn).filter(|run| run.identity.segment() == segment).map(|run| run.from)
    }

    /// Copies bytes of a segment from `at` on, as many as one run has and `into` can take; 0 if
    /// they are not here.
    pub(crate) fn read(&self, segment: SegmentNumber, at: u64, into: &mut [u8]) -> usize {
        let Some(run) = self.run_at(segment, at) else { return 0 };
        let bytes = &run.bytes()[(at - run.from.at) as usize..];
        let count = bytes.len().min(into.len());
        into[..count].copy_from_slice(&bytes[..count]);
        count
    }

    fn run_at(&self, segment: SegmentNumber, at: u64) -> Option<TailRun> {
        if self.first.load(Ordering::Acquire) == NONE {
            return None;
        }
        let ring = lock(&self.ring);
        let after = ring
            .kept
            .partition_point(|kept| (kept.identity.segment(), kept.from.at) <= (segment, at));
        let kept = ring.kept.get(after.checked_sub(1)?)?;
        (kept.identity.segment() == segment && at < kept.end).then(|| kept.run())
    }
}

impl Ring {
    fn bytes(&self) -> usize {
        let kept: usize = self.kept.iter().map(|kept| kept.memory.bytes()).sum();
        kept + self.lent.iter().chain(&self.free).map(Memory::bytes).sum::<usize>()
    }

    /// Copies a small group behind the one before it.
    fn copy(&mut self, placed: &Placed, memory: &[u8], tail: &GroupTail) {
        let bytes = &memory[placed.from..placed.from + placed.bytes];
        if let Some(KeptGroups { identity, end, next_lsn, memory: Memory::Chunk(chunk), .. }) =
            self.kept.back_mut()
            && (*end, identity.segment()) == (placed.at, placed.identity.segment())
            && chunk.room_bytes() >= bytes.len()
        {
            chunk.push(bytes);
            (*end, *next_lsn) = (placed.at + placed.bytes as u64, placed.next_lsn);
            return;
        }
        let is_chunk = |memory: &Memory| matches!(memory, Memory::Chunk(_));
        let mut chunk = match self.obtain(tail.chunk_bytes, tail.limit_bytes, is_chunk) {
            Some(Memory::Chunk(chunk)) => chunk,
            _ => GrowingBuf::with_room(tail.chunk_bytes),
        };
        chunk.push(bytes);
        self.push(placed, Memory::Chunk(chunk));
    }

    /// Keeps a large group in its own buffer, and returns another one of its size, if there is one.
    fn take_over(
        &mut self,
        placed: &Placed,
        memory: AlignedBuf,
        tail: &GroupTail,
    ) -> Option<AlignedBuf> {
        let bytes = memory.len();
        let is_alike =
            |free: &Memory| matches!(free, Memory::Group { memory, .. } if memory.len() == bytes);
        let (from, to) = (placed.from, placed.from + placed.bytes);
        let (shell, spare) = match self.obtain(bytes, tail.limit_bytes, is_alike) {
            Some(Memory::Group { memory: mut shell, .. }) => {
                // The `Arc` is used again too, so that nothing is allocated.
                let old = Arc::get_mut(&mut shell).expect("no reader holds what is free");
                let spare = std::mem::replace(old, memory);
                (shell, Some(spare))
            }
            _ => (Arc::new(memory), None),
        };
        self.push(placed, Memory::Group { memory: shell, from, to });
        spare
    }

    fn push(&mut self, placed: &Placed, memory: Memory) {
        self.kept.push_back(KeptGroups {
            identity: placed.identity,
            // No checksum is computed again, so the epoch is only a lower bound.
            from: Mark::between(placed.at, placed.first_lsn, Epoch::FIRST),
            end: placed.at + placed.bytes as u64,
            next_lsn: placed.next_lsn,
            memory,
        });
    }

    /// Free memory of `bytes` bytes that `fits`; `None` if it must be allocated. Drops the oldest
    /// groups until there is room for it, all of them if need be.
    fn obtain(
        &mut self,
        bytes: usize,
        limit: usize,
        fits: impl Fn(&Memory) -> bool,
    ) -> Option<Memory> {
        self.take_back();
        let mut found = None;
        loop {
            if found.is_none()
                && let Some(at) = self.free.iter().position(&fits)
            {
                found = Some(self.free.swap_remove(at));
            }
            if self.bytes() + bytes <= limit {
                return found;
            }
            let free: usize = self.free.iter().map(Memory::bytes).sum();
            if free <= limit / FREE_PART && self.drop_oldest() {
                continue;
            }
            if self.free.pop().is_none() && !self.drop_oldest() {
                return found;
            }
        }
    }

    /// Takes back what no reader holds any more.
    fn take_back(&mut self) {
        self.free.extend(self.lent.extract_if(.., Memory::is_free));
    }

    /// Drops the oldest groups; false if there are none.
    fn drop_oldest(&mut self) -> bool {
        let Some(KeptGroups { mut memory, .. }) = self.kept.pop_front() else { return false };
        if memory.is_free() {
            self.free.push(memory)
        } else {
            self.lent.push(memory)
        }
        true
    }

    fn clear(&mut self) {
        while self.drop_oldest() {}
    }
}
