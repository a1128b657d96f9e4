//! The segments of an open log, and their files.
//!
//! *Owns*: which segments are the log, where each ends, their open handles. *May not touch*: what
//! is in them.
//!
//! A reader holds the `Arc` of its segment: while one is held, the file is not used for anything
//! else.

pub(crate) mod kept;
mod leftovers;
pub(crate) mod listing;
pub(crate) mod making;
pub(crate) mod obtain;
pub(crate) mod pool;
mod reserve;
pub(crate) mod seal;

use std::sync::{Arc, Weak};

use inkstone_format::limits::{ALIGN, BLOCK_BYTES, HEADER_BYTES};
use inkstone_format::{
    Cuts, Decoder, Epoch, FramePlace, Lsn, Mark, NewPlaces, Prover, SegmentHeader, SegmentIndex,
    SegmentNumber, Tail,
};
use inkstone_io::{AlignedBuf, AnyDirectory, File, OpenFile};

use crate::error::Result;
use crate::names;
use crate::sync::{Mutex, lock};

/// Bytes of groups between two ends of groups that a segment remembers.
const END_STEP_BYTES: u64 = 64 << 10;

/// What is kept of a segment for readers that ask by LSN.
#[derive(Debug)]
struct Kept {
    file: Arc<dyn File>,
    index: Option<Arc<SegmentIndex>>,
}

/// One segment of the log.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) header: SegmentHeader,
    file: Mutex<Option<Weak<dyn File>>>,
    /// The handle of its readers: through the page cache.
    cached: Mutex<Option<Weak<dyn File>>>,
    /// The same, while it is kept open (`kept.rs`), and its index.
    kept: Mutex<Option<Kept>>,
    /// Ends of groups, ascending: where reading can begin.
    ends: Mutex<Vec<Mark>>,
    /// Places of durable records, as far as this process has written or walked them. Empty once
    /// they are written as the index of the segment.
    places: Mutex<SegmentIndex>,
}

impl Segment {
    pub(crate) fn new(header: SegmentHeader) -> Self {
        let (file, cached, kept, ends) = Default::default();
        Self { header, file, cached, kept, ends, places: Mutex::new(SegmentIndex::new(&header)) }
    }

    pub(crate) fn number(&self) -> SegmentNumber {
        self.header.number
    }

    /// Its file, open in the way in which the log reads and writes; all users share one handle.
    pub(crate) fn file(&self, directory: &AnyDirectory, how: &OpenFile) -> Result<Arc<dyn File>> {
        self.shared_handle(&self.file, directory, how)
    }

    /// Its file, open for reading records that are known to be durable: always through the page
    /// cache. Such records have been written, so the kernel shows them there; only bytes that were
    /// never durable can be wrong in the cache (docs/durability.md).
    pub(crate) fn cached_file(&self, directory: &AnyDirectory) -> Result<Arc<dyn File>> {
        self.shared_handle(&self.cached, directory, &OpenFile::existing().read_only())
    }

    /// As [`Segment::cached_file`], and keeps it open; whether it was not kept before.
    fn keep_open(&self, directory: &AnyDirectory) -> Result<(Arc<dyn File>, bool)> {
        let mut kept = lock(&self.kept);
        if let Some(Kept { file, .. }) = &*kept {
            return Ok((Arc::clone(file), false));
        }
        let file = self.cached_file(directory)?;
        Ok((Arc::clone(&kept.insert(Kept { file, index: None }).file), true))
    }

    /// The index that is kept with its file.
    pub(crate) fn kept_index(&self) -> Option<Arc<SegmentIndex>> {
        lock(&self.kept).as_ref()?.index.clone()
    }

    /// Keeps its index as long as its file.
    fn keep_index(&self, index: &Arc<SegmentIndex>) {
        if let Some(kept) = &mut *lock(&self.kept) {
            kept.index = Some(Arc::clone(index));
        }
    }

    /// Keeps its file open no longer.
    pub(crate) fn let_go(&self) {
        let kept = lock(&self.kept).take();
        drop(kept);
    }

    fn shared_handle(
        &self,
        held: &Mutex<Option<Weak<dyn File>>>,
        directory: &AnyDirectory,
        how: &OpenFile,
    ) -> Result<Arc<dyn File>> {
        let mut held = lock(held);
        if let Some(file) = held.as_ref().and_then(Weak::upgrade) {
            return Ok(file);
        }
        let file = directory.open(&names::segment(self.number()), how)?;
        *held = Some(Arc::downgrade(&file));
        Ok(file)
    }

    /// Shares a file that is open already.
    pub(crate) fn adopt(&self, file: &Arc<dyn File>) {
        *lock(&self.file) = Some(Arc::downgrade(file));
    }

    /// The same for the handle of its readers.
    pub(crate) fn adopt_cached(&self, file: &Arc<dyn File>) {
        *lock(&self.cached) = Some(Arc::downgrade(file));
    }

    /// Notes the end of a group: the byte after it, the next LSN, its epoch.
    pub(crate) fn note_end(&self, end: u64, next_lsn: Lsn, epoch: Epoch) {
        let mut ends = lock(&self.ends);
        let last = ends.last().map_or(HEADER_BYTES as u64, |last| last.at);
        if end >= last + END_STEP_BYTES {
            ends.push(Mark::between(end, next_lsn, epoch));
        }
    }

    /// Notes places of durable records, in the order of the log.
    pub(crate) fn note_places(&self, places: impl IntoIterator<Item = FramePlace>) {
        let mut places = places.into_iter().peekable();
        if places.peek().is_some() {
            let mut known = lock(&self.places);
            if known.is_empty() {
                known.reserve(self.header.segment_bytes);
            }
            places.for_each(|place| known.note(&place));
        }
    }

    /// The noted places around a record: the last one at or before it, and the first one behind it.
    /// `None` if no places are known here.
    pub(crate) fn places_around(&self, lsn: Lsn) -> Option<(Option<Mark>, Option<Mark>)> {
        let places = lock(&self.places);
        (!places.is_empty()).then(|| places.around(lsn))
    }

    /// For the places of records behind those that were noted.
    pub(crate) fn new_places(&self) -> NewPlaces {
        NewPlaces::from(lock(&self.places).next_at())
    }

    /// Forgets the places of its records: they are written, or no longer wanted.
    pub(crate) fn forget_places(&self) {
        *lock(&self.places) = SegmentIndex::new(&self.header);
    }

    /// Its index, as it is to be written; `None` if there is nothing to write or no room for it.
    pub(crate) fn encoded_index(&self) -> Option<AlignedBuf> {
        let places = lock(&self.places);
        let room = SegmentIndex::room_bytes(&self.header);
        let encoded = (!places.is_empty()).then(|| places.encode(&self.header))?;
        (encoded.len() <= room).then(|| {
            let mut memory = AlignedBuf::zeroed(encoded.len().next_multiple_of(BLOCK_BYTES));
            memory[..encoded.len()].copy_from_slice(&encoded);
            memory
        })
    }

    /// A decoder that begins at the nearest known place before `lsn` and reads no further than
    /// `end`.
    pub(crate) fn decoder_at(
        &self,
        lsn: Lsn,
        end: Option<u64>,
        file: &dyn File,
    ) -> Result<Decoder> {
        let decoder = self.decoder(end, file)?;
        let ends = lock(&self.ends);
        let after = ends.partition_point(|known| known.lsn <= lsn);
        Ok(match after.checked_sub(1).and_then(|at| ends.get(at)) {
            Some(Mark { at, lsn, epoch, .. }) if end.is_none_or(|end| *at <= end) => {
                let tail = Tail { end: *at, next_lsn: *lsn, epoch: *epoch, ..*decoder.tail() };
                decoder.from_tail(tail)
            }
            _ => decoder,
        })
    }

    /// The beginning of the first group.
    pub(crate) fn first_mark(&self) -> Mark {
        Mark::between(HEADER_BYTES as u64, self.header.first_lsn, self.header.epoch)
    }

    /// The prover that checks its sums from the first group on.
    pub(crate) fn prover(&self) -> Prover {
        Prover::new(self.header.identity(), self.first_mark())
    }

    /// A decoder that begins at the first group.
    pub(crate) fn decoder(&self, end: Option<u64>, file: &dyn File) -> Result<Decoder> {
        let decoder = Decoder::new(&self.header, file.len_bytes()?);
        Ok(match end {
            Some(end) => decoder.with_end(end),
            None => decoder,
        })
    }
}

/// A segment, and its end if another segment follows it.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) segment: Arc<Segment>,
    pub(crate) end: Option<u64>,
}

impl Link {
    /// Whether the segment begins at or before the record with this LSN.
    pub(crate) fn begins_at_or_before(&self, lsn: Lsn) -> bool {
        self.segment.header.first_lsn <= lsn
    }
}

impl Clone for Link {
    fn clone(&self) -> Self {
        Self { segment: Arc::clone(&self.segment), end: self.end }
    }
}

/// The segments of the log in order, and the first record that is not truncated.
#[derive(Debug)]
pub(crate) struct Segments {
    pub(crate) links: Vec<Link>,
    /// The log's history of cuts, as the header of the head has it.
    pub(crate) cuts: Cuts,
    pub(crate) first_live: Lsn,
    /// Segments that are no longer part of the log, and may still have a reader.
    pub(crate) obsolete: Vec<Arc<Segment>>,
}

impl Segments {
    pub(crate) fn head(&self) -> &Link {
        self.links.last().expect("a log has a head")
    }

    /// The segment that holds `lsn`, or will hold it.
    pub(crate) fn find(&self, lsn: Lsn) -> Option<&Link> {
        let after = self.links.partition_point(|link| link.segment.header.first_lsn <= lsn);
        self.links.get(after.checked_sub(1)?)
    }

    /// Of every segment whose file may be in use: one that is obsolete may have a reader.
    pub(crate) fn numbers(&self) -> Vec<SegmentNumber> {
        let linked = self.links.iter().map(|link| &link.segment);
        linked.chain(&self.obsolete).map(|segment| segment.number()).collect()
    }

    /// The segment after the one with this number.
    pub(crate) fn after(&self, number: SegmentNumber) -> Option<&Link> {
        self.links.get(self.links.partition_point(|link| link.segment.number() <= number))
    }

    /// Ends the head at `end` and makes `segment` the head.
    pub(crate) fn push(&mut self, segment: Arc<Segment>, end: u64) {
        self.links.last_mut().expect("a log has a head").end = Some(end);
        self.links.push(Link { segment, end: None });
    }

    /// Makes segments obsolete that hold only records before `first_live`. The head always stays.
    pub(crate) fn truncate_before(&mut self, first_live: Lsn) {
        self.first_live = self.first_live.max(first_live);
        let dead = self
            .links
            .iter()
            .skip(1)
            .take_while(|next| next.segment.header.first_lsn <= self.first_live);
        let count = dead.count();
        self.obsolete.extend(self.links.drain(..count).map(|link| link.segment));
    }

    /// Takes out the first obsolete segment without a reader.
    pub(crate) fn take_one_unread(&mut self) -> Option<Arc<Segment>> {
        let at = self.obsolete.iter().position(|segment| Arc::strong_count(segment) == 1)?;
        Some(self.obsolete.remove(at))
    }

    /// Takes out all of them.
    pub(crate) fn take_unread(&mut self) -> Vec<Arc<Segment>> {
        let (unread, read): (Vec<_>, Vec<_>) =
            self.obsolete.drain(..).partition(|segment| Arc::strong_count(segment) == 1);
        self.obsolete = read;
        unread
    }
}

const _: () = assert!(END_STEP_BYTES.is_multiple_of(ALIGN as u64));
