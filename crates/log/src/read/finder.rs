//! Finds one record by its LSN: with one read, once the index of its segment is known.
//!
//! *Owns*: how much is read, and the index of a segment that has none. *May not touch*: what a
//! failed read means: it returns nothing then, and a cursor finds out; which files and indexes stay
//! in memory (`segment/kept.rs`).
//!
//! A lookup is: the watermark, the segment by its LSN, the index entries around the record, one
//! read. A full segment has its index at its end, and a search reads that with the first record
//! that it wants there. Of the segment in use, the process that writes it, or walks it, has the
//! entries in memory (`segment.rs`).
//!
//! An entry says where its record begins and ends. A record without an entry begins less than
//! [`INDEX_STEP_BYTES`] behind the entry before it, and if it is not the last one before the next
//! entry, it ends there as well. So the one read takes the record of an entry alone, else as many
//! bytes, or all up to the next entry.
//!
//! An index is a hint, and is never needed. Where there is none (a crash came before it was
//! written, no room for it, bits that changed), a search walks through the segment and makes one,
//! in memory. An entry is never trusted: the checksum of every header from there on covers segment,
//! position, epoch and LSN, and that of the record its bytes.
//!
//! What the tail has in memory is copied from there instead of read.
//!
//! Only durable records are searched, and every header on the way was durable before them. So the
//! bytes that are read here do not change any more, and the page cache has them right
//! (docs/durability.md).

use std::cell::RefCell;
use std::cmp::Ordering;
use std::sync::Arc;

use inkstone_format::limits::INDEX_STEP_BYTES;
use inkstone_format::{
    FramePlace, Identity, Lsn, Mark, SegmentHeader, SegmentIndex, Skim, Skimmed,
};
use inkstone_io::File;

use crate::error::Result;
use crate::read::source::Source;
use crate::segment::{Link, Segment};
use crate::sync::thread_local;
use crate::tail::GroupTail;

/// What is read where nothing behind the record is known, and the largest read of a walk. A larger
/// record is read at once.
const READ_BYTES: usize = 16 << 10;
const WALK_BYTES: usize = 1 << 20;

thread_local! {
    /// The memory of a thread for what it reads: it needs no lock, and no zeroing for each call.
    static MEMORY: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The record, if it is durable and every header on the way to it is sound.
///
/// # Errors
/// Errors of the file system from opening or reading, unless another process may have removed the
/// file.
pub(crate) fn find(source: &Source, lsn: Lsn) -> Result<Option<Vec<u8>>> {
    let version = source.version();
    // The link keeps the file of a segment of ours from being used for another.
    let Some(link) = source.find_durable(lsn) else { return Ok(None) };
    let found = search(source, &link, lsn);
    let is_ours = source.view().is_none();
    if !is_ours && !matches!(found, Ok(Some(_))) {
        // The file may be another segment by now.
        link.segment.let_go();
        return Ok(None);
    }
    if is_ours && !source.is_still(version) {
        // The record may have been truncated, and the link lead to a segment in which this LSN is
        // not durable yet.
        return Ok(None);
    }
    found
}

fn search(source: &Source, link: &Link, lsn: Lsn) -> Result<Option<Vec<u8>>> {
    let file = source.kept_file(&link.segment)?;
    let (from, until) = around(source, link, &*file, lsn)?;
    let mut steps = Steps::new(&*file, source.tail(), link.segment.header.identity(), from);
    if let Some(until) = until {
        let is_last = lsn.next() == Some(until.lsn);
        let known = if is_last { until.at } else { until.at.min(from.at + INDEX_STEP_BYTES) };
        steps.wanted = known.saturating_sub(from.at) as usize;
    }
    loop {
        let Some(record) = steps.record()? else { return Ok(None) };
        match steps.mark.lsn.cmp(&lsn) {
            Ordering::Less => steps.mark = record.next,
            Ordering::Equal => return steps.payload(&record),
            // It lies in a gap: a cursor says so.
            Ordering::Greater => return Ok(None),
        }
    }
}

/// The last known place at or before the record, and the first one behind it.
fn around(source: &Source, link: &Link, file: &dyn File, lsn: Lsn) -> Result<(Mark, Option<Mark>)> {
    let segment = &link.segment;
    let (before, behind) = match (segment.places_around(lsn), link.end) {
        (Some(known), _) => known,
        (None, Some(end)) => index(source, segment, file, end)?.around(lsn),
        (None, None) => (None, None),
    };
    let from = before.unwrap_or_else(|| segment.first_mark());
    // The record may lie in the tail, and the place before it.
    let recent = source.tail().and_then(|tail| tail.mark_before(segment.number(), lsn));
    let from = recent.filter(|recent| recent.at > from.at).unwrap_or(from);
    // The log may end in the segment before its last entries: a cut.
    let behind = behind.filter(|behind| link.end.is_none_or(|end| behind.at < end));
    let until = behind.or_else(|| {
        let (end, next) = link.end.zip(source.after(link))?;
        Some(Mark::between(end, next.segment.header.first_lsn, next.segment.header.epoch))
    });
    Ok((from, until))
}

/// The index of a segment that gets no more records, and which ends at byte `end`.
fn index(
    source: &Source,
    segment: &Arc<Segment>,
    file: &dyn File,
    end: u64,
) -> Result<Arc<SegmentIndex>> {
    if let Some(index) = segment.kept_index() {
        return Ok(index);
    }
    let index = match read_index(file, &segment.header) {
        Some(index) => index,
        None => walked_index(file, segment, end)?,
    };
    Ok(source.kept().keep_index(segment, index))
}

/// The index that the segment's writer has left.
fn read_index(file: &dyn File, segment: &SegmentHeader) -> Option<SegmentIndex> {
    let mut bytes = vec![0; SegmentIndex::room_bytes(segment)];
    let read = file.read_at(&mut bytes, segment.groups_end()).ok()?;
    SegmentIndex::decode(segment, &bytes[..read])
}

/// The index of a segment whose writer has left none: of its records up to `end`, or to damage.
fn walked_index(file: &dyn File, segment: &Segment, end: u64) -> Result<SegmentIndex> {
    let mut index = SegmentIndex::new(&segment.header);
    let mut steps = Steps::new(file, None, segment.header.identity(), segment.first_mark());
    steps.wanted = WALK_BYTES.min(end.saturating_sub(steps.mark.at) as usize);
    while steps.mark.at < end
        && let Some(record) = steps.record()?
    {
        if steps.mark.at < end {
            index.note(&FramePlace { mark: steps.mark, end: record.end() });
        }
        steps.mark = record.next;
    }
    Ok(index)
}

/// Steps through a segment from frame to frame.
struct Steps<'a> {
    file: &'a dyn File,
    /// Has the last bytes of the log in memory.
    tail: Option<&'a GroupTail>,
    identity: Identity,
    mark: Mark,
    /// How much the next read takes, if a frame does not need more.
    wanted: usize,
    /// What was read last: from which byte on, and how much.
    memory: Vec<u8>,
    at: u64,
    len: usize,
}

impl Drop for Steps<'_> {
    fn drop(&mut self) {
        if self.memory.len() <= WALK_BYTES {
            let memory = std::mem::take(&mut self.memory);
            MEMORY.with(|kept| kept.replace(memory));
        }
    }
}

impl<'a> Steps<'a> {
    fn new(
        file: &'a dyn File,
        tail: Option<&'a GroupTail>,
        identity: Identity,
        mark: Mark,
    ) -> Self {
        let memory = MEMORY.with(RefCell::take);
        Self { file, tail, identity, mark, wanted: READ_BYTES, memory, at: mark.at, len: 0 }
    }

    /// Steps to the next record, at which the mark then is; `None` if what lies there is not sound.
    fn record(&mut self) -> Result<Option<Skimmed>> {
        loop {
            match self.mark.skim(&self.identity, &self.memory[..self.len], self.at) {
                Skim::Record(record) => return Ok(Some(record)),
                Skim::Passed(next) => self.mark = next,
                Skim::NeedBytes(bytes) => {
                    if !self.read(bytes)? {
                        return Ok(None);
                    }
                }
                Skim::Unsound => return Ok(None),
            }
        }
    }

    /// The bytes of the record at the mark, if their sum is right.
    fn payload(&mut self, record: &Skimmed) -> Result<Option<Vec<u8>>> {
        let bytes = (record.end() - self.mark.at) as usize;
        if record.end() > self.at + self.len as u64 && !self.read(bytes)? {
            return Ok(None);
        }
        Ok(record.payload(&self.memory[..self.len], self.at).map(<[u8]>::to_vec))
    }

    /// Reads from the mark on; whether so many bytes were there. A frame lies wholly in the tail's
    /// memory or in the file.
    fn read(&mut self, needed: usize) -> Result<bool> {
        let wanted = self.wanted.max(needed);
        self.wanted = (2 * wanted).clamp(READ_BYTES, WALK_BYTES);
        if self.memory.len() < wanted {
            self.memory.resize(wanted, 0);
        }
        (self.at, self.len) = (self.mark.at, 0);
        let into = &mut self.memory[..wanted];
        let number = self.identity.segment();
        self.len = match self.tail.map_or(0, |tail| tail.read(number, self.at, into)) {
            0 => self.file.read_at(into, self.at)?,
            copied => copied,
        };
        Ok(self.len >= needed)
    }
}
