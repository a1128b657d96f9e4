//! The bytes that a reader beside a writer of another process has just read, and what they prove.
//!
//! *Owns*: reading only what is new of the head, once; the checks that a publication must pass
//! before it is believed. *May not touch*: what was seen (`view.rs`); when to read
//! (`publisher.rs`).
//!
//! A publication claims that the log is durable up to a byte. The reader walks to that byte over
//! whole, sound groups, from the place that it knows. The publication is believed if a group ends
//! exactly there, with the LSN, the epoch and the first record that it names. Before that byte only
//! promises count, as without a publication. Anything else refutes it: nothing is shown, nothing is
//! reported, and the log is observed as if there were no publication. So a lie costs time.
//!
//! The bytes themselves come from the memory that the writer shares with the publication, or from
//! the file. They pass the same checks. What shared memory refutes is read from the file before it
//! is believed to be refuted.
//!
//! The bytes stay in memory for the cursors, which walk the same groups again. A cursor goes back
//! to the beginning of the last group that it has shown, so those of the two last readings are
//! kept.

use std::sync::Arc;

use inkstone_format::limits::BLOCK_BYTES;
use inkstone_format::{Decoder, Lsn, SegmentNumber, Step, Tail};
use inkstone_io::{File, SharedPageReader};

use crate::commit::shared_page::Published;
use crate::recovery::beside::Promised;
use crate::segment::Segment;
use crate::walk::window::FrameAt;

const BLOCK: u64 = BLOCK_BYTES as u64;
/// The most that is read at once, unless a group is larger.
const MOST_BYTES: u64 = 256 << 10;

/// Bytes of one segment, from a multiple of the block on.
pub(crate) struct Recent {
    of: Option<SegmentNumber>,
    at: u64,
    bytes: Vec<u8>,
    /// Where the last reading began.
    from: u64,
}

/// What a reading has proved.
pub(crate) struct Proved {
    /// The end of a group; everything before it is durable.
    pub(crate) settled: Tail,
    pub(crate) durable: Lsn,
}

impl Recent {
    pub(crate) fn new() -> Self {
        Self { of: None, at: 0, bytes: Vec::new(), from: 0 }
    }

    /// Forgets the bytes: they may have been read before they were written.
    pub(crate) fn forget(&mut self) {
        *self = Self::new();
    }

    fn end(&self) -> u64 {
        self.at + self.bytes.len() as u64
    }

    /// Reads on from `settled` towards the end that was published in this segment. `None` if the
    /// publication is refuted.
    pub(crate) fn read_on(
        &mut self,
        segment: &Segment,
        file: &Arc<dyn File>,
        settled: Tail,
        published: &Published,
        page: &SharedPageReader,
    ) -> Option<Proved> {
        self.prove(segment, file, settled, published, Some(page)).or_else(|| {
            self.forget();
            self.prove(segment, file, settled, published, None)
        })
    }

    fn prove(
        &mut self,
        segment: &Segment,
        file: &Arc<dyn File>,
        settled: Tail,
        published: &Published,
        page: Option<&SharedPageReader>,
    ) -> Option<Proved> {
        let header = &segment.header;
        if published.end > header.groups_end() {
            return None;
        }
        let begin = settled.end;
        self.keep(header.number, begin);
        self.fill(file, published.end.min(begin + MOST_BYTES), page)?;
        let mut decoder =
            Decoder::new(header, header.segment_bytes).with_end(published.end).from_tail(settled);
        let mut promised = Promised::new(segment, settled);
        loop {
            match decoder.step(&self.bytes, self.at) {
                Step::NeedBytes { at, bytes } => {
                    let needed = at + bytes as u64;
                    if needed > published.end || promised.settled.end > begin {
                        break;
                    }
                    let end = needed.max(self.end() + MOST_BYTES);
                    self.fill(file, published.end.min(end), page)?;
                }
                Step::GroupStart(group) => promised.begin(&group),
                Step::GroupEnd(tail) if tail.end == published.end => {
                    let is_it = tail.epoch == published.epoch
                        && tail.next_lsn.before() == Some(published.durable)
                        && tail.first_live == published.first;
                    if is_it {
                        promised.settle(tail);
                    }
                    return is_it.then_some(Proved { settled: tail, durable: published.durable });
                }
                Step::GroupEnd(tail) => promised.end(tail),
                Step::Frame(frame) => {
                    promised.frame(&FrameAt::of(&frame), decoder.mark().epoch);
                }
                Step::Stop(_) => break,
            }
        }
        let settled = promised.settled;
        let durable = settled.next_lsn.before()?;
        (settled.end > begin).then_some(Proved { settled, durable })
    }

    /// Keeps what is needed to read on from byte `begin`.
    fn keep(&mut self, number: SegmentNumber, begin: u64) {
        let is_here = self.of == Some(number)
            && (self.at..=self.end()).contains(&begin)
            && self.from <= begin;
        if is_here {
            let keep = self.from / BLOCK * BLOCK;
            self.bytes.drain(..(keep.saturating_sub(self.at)) as usize);
            self.at = self.at.max(keep);
        } else {
            self.bytes.clear();
            self.at = begin / BLOCK * BLOCK;
        }
        if self.bytes.len() as u64 <= MOST_BYTES {
            self.bytes.shrink_to(4 * MOST_BYTES as usize);
        }
        self.of = Some(number);
        self.from = begin;
    }

    /// Reads until the bytes before `end` are in memory; `None` if they are not to be had.
    fn fill(
        &mut self,
        file: &Arc<dyn File>,
        end: u64,
        page: Option<&SharedPageReader>,
    ) -> Option<()> {
        let (from, number) = (self.end(), self.of?);
        if from >= end {
            return Some(());
        }
        let had = self.bytes.len();
        self.bytes.resize((end - self.at) as usize, 0);
        let new = &mut self.bytes[had..];
        if page.is_some_and(|page| page.copy_recent(number.get(), from, new)) {
            return Some(());
        }
        let read = file.read_at(new, from);
        (read.ok()? as u64 == end - from).then_some(())
    }

    /// Copies the bytes from `at` on; false if not all of them are here.
    pub(crate) fn copy(&self, number: SegmentNumber, at: u64, to: &mut [u8]) -> bool {
        let from = at.checked_sub(self.at).and_then(|from| usize::try_from(from).ok());
        let bytes = from.and_then(|from| self.bytes.get(from..)?.get(..to.len()));
        match bytes.filter(|_| self.of == Some(number)) {
            Some(bytes) => {
                to.copy_from_slice(bytes);
                true
            }
            None => false,
        }
    }
}
