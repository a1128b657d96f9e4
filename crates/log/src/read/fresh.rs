//! The bytes that a reader beside a writer of another process has just read, and what they prove.
//!
//! *Owns*: reading only what is new of the head, once; the checks that a publication must pass
//! before it is believed. *May not touch*: what was seen (`view.rs`); when to read (`news.rs`).
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
use crate::segment::Segment;

const BLOCK: u64 = BLOCK_BYTES as u64;
/// The most that is read at once, unless a group is larger.
const MOST_BYTES: u64 = 256 << 10;

/// Bytes of one segment, from a multiple of the block on.
pub(crate) struct Fresh {
    of: Option<(SegmentNumber, Arc<dyn File>)>,
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

impl Fresh {
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

    /// Reads on from `settled` towards the end that was published. `None` if the publication is
    /// refuted.
    pub(crate) fn read_on(
        &mut self,
        segment: &Segment,
        file: &Arc<dyn File>,
        settled: Tail,
        published: &Published,
        shared: Option<&SharedPageReader>,
    ) -> Option<Proved> {
        let proved = self.prove(segment, file, settled, published, shared);
        if proved.is_some() || shared.is_none() {
            return proved;
        }
        self.forget();
        self.prove(segment, file, settled, published, None)
    }

    fn prove(
        &mut self,
        segment: &Segment,
        file: &Arc<dyn File>,
        settled: Tail,
        published: &Published,
        shared: Option<&SharedPageReader>,
    ) -> Option<Proved> {
        let header = &segment.header;
        if published.segment != header.number || published.end > header.segment_bytes {
            return None;
        }
        let begin = settled.end;
        self.keep(header.number, Arc::clone(file), begin);
        self.fill(published.end.min(begin + MOST_BYTES), shared)?;
        let mut decoder =
            Decoder::new(header, header.segment_bytes).with_end(published.end).from_tail(settled);
        let mut settled = settled;
        let mut open: Vec<Tail> = Vec::new();
        loop {
            match decoder.step(&self.bytes, self.at) {
                Step::NeedBytes { at, bytes } => {
                    let needed = at + bytes as u64;
                    if needed > published.end || settled.end > begin {
                        break;
                    }
                    self.fill(published.end.min(needed.max(self.end() + MOST_BYTES)), shared)?;
                }
                Step::GroupStart(group) => {
                    let count = open.partition_point(|tail| tail.end <= group.header.promise.end);
                    if let Some(tail) = open.drain(..count).next_back() {
                        settled = tail;
                        segment.note(&tail);
                    }
                }
                Step::GroupEnd(tail) if tail.end == published.end => {
                    let is_it = tail.epoch == published.epoch
                        && tail.next_lsn.before() == Some(published.durable)
                        && tail.first_live == published.first;
                    if is_it {
                        segment.note(&tail);
                    }
                    return is_it.then_some(Proved { settled: tail, durable: published.durable });
                }
                Step::GroupEnd(tail) => open.push(tail),
                Step::Frame(_) => {}
                Step::Stop(_) => break,
            }
        }
        let durable = settled.next_lsn.before()?;
        (settled.end > begin).then_some(Proved { settled, durable })
    }

    /// Keeps what is needed to read on from byte `begin`.
    fn keep(&mut self, number: SegmentNumber, file: Arc<dyn File>, begin: u64) {
        let is_here = self.of.as_ref().is_some_and(|(of, _)| *of == number)
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
        self.of = Some((number, file));
        self.from = begin;
    }

    /// Reads until the bytes before `end` are in memory; `None` if the file does not give them.
    fn fill(&mut self, end: u64, shared: Option<&SharedPageReader>) -> Option<()> {
        let from = self.end();
        let (number, file) = self.of.as_ref()?;
        if from >= end {
            return Some(());
        }
        let had = self.bytes.len();
        self.bytes.resize((end - self.at) as usize, 0);
        if shared
            .is_some_and(|shared| shared.copy_recent(number.get(), from, &mut self.bytes[had..]))
        {
            return Some(());
        }
        let read = file.read_at(&mut self.bytes[had..], from);
        (read.ok()? as u64 == end - from).then_some(())
    }

    /// Copies the bytes from `at` on; false if not all of them are here.
    pub(crate) fn copy(&self, number: SegmentNumber, at: u64, to: &mut [u8]) -> bool {
        let is_of_it = self.of.as_ref().is_some_and(|(of, _)| *of == number);
        let from = at.checked_sub(self.at).and_then(|from| usize::try_from(from).ok());
        let bytes = from.and_then(|from| self.bytes.get(from..)?.get(..to.len()));
        match bytes.filter(|_| is_of_it) {
            Some(bytes) => {
                to.copy_from_slice(bytes);
                true
            }
            None => false,
        }
    }
}
