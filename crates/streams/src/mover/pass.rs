//! Reads what still lives in a section that is being emptied.
//!
//! *Owns*: which records of the section live, and reading them in the order of the disk. *May not
//! touch*: what becomes of them (`mover.rs`).
//!
//! A section is emptied in one pass, by reads as large as any reader's. A search for each record
//! would read a group of many again for each of them.

use inkstone::Lsn;
use smallvec::SmallVec;

use crate::error::Result;
use crate::read::walk::{Walk, extract, is_damaged, read_page};
use crate::record::RESERVE_BYTES;
use crate::record::page::Page;
use crate::state::cost;
use crate::state::replay::Of;
use crate::writer::Shared;

/// Up to so many records of the log are read alone, and one more for each [`ALONE_EACH_BYTES`] of
/// the section. Where more of them have something that lives, reading all of it costs less.
const ALONE_MIN: u64 = 4;
const ALONE_EACH_BYTES: u64 = 256 << 10;
/// About how many places of records one look-up finds: they take 6 MiB.
const PLACES_MAX: usize = 256 << 10;

/// One pass through the section that is being emptied, in the order of the disk.
#[derive(Default)]
pub(crate) struct Pass {
    section: Option<u32>,
    /// Records that lived when they were looked up: their places in the order of the disk, each
    /// with its stream and number. Those before `at` were read.
    places: Vec<(Lsn, u64, u64)>,
    at: usize,
    /// No others lived behind them.
    is_rest: bool,
    /// Reads them.
    walk: Option<Walk>,
    /// Records that were read. Those before `moved` are moved.
    read: Vec<Read>,
    moved: usize,
}

/// A record that was read.
pub(crate) struct Read {
    pub(crate) lsn: Lsn,
    pub(crate) stream: u64,
    pub(crate) number: u64,
    /// `None` if the record is damaged: it is lost then.
    pub(crate) bytes: Option<SmallVec<[u8; 32]>>,
}

impl Read {
    /// About how many bytes it takes where it is moved to.
    pub(crate) fn moved_bytes(&self) -> usize {
        cost(self.bytes.as_ref().map_or(0, SmallVec::len)) as usize
    }
}

impl Pass {
    /// The next records of a section that were read and not moved, about `bytes` of them; none if
    /// nothing lives in the section any more.
    pub(crate) fn next_few(
        &mut self,
        shared: &Shared,
        section: u32,
        bytes: usize,
    ) -> Result<&[Read]> {
        if self.section != Some(section) {
            *self = Self { section: Some(section), ..Self::default() };
        }
        if self.moved == self.read.len() && !self.read_some(shared, section, bytes)? {
            *self = Self::default();
        }
        let limit_bytes = shared.options.log.largest_record_bytes() - RESERVE_BYTES;
        let (mut count, mut sum) = (0, 0);
        for read in &self.read[self.moved..] {
            let more = sum + read.moved_bytes();
            if count > 0 && (sum >= bytes || more > limit_bytes) {
                break;
            }
            (count, sum) = (count + 1, more);
        }
        Ok(&self.read[self.moved..self.moved + count])
    }

    /// The first few of those that were read are moved, or live no more.
    pub(crate) fn moved(&mut self, count: usize) {
        self.moved += count;
    }

    /// Reads the next records; `false` if none lives any more.
    fn read_some(&mut self, shared: &Shared, section: u32, bytes: usize) -> Result<bool> {
        self.read.clear();
        self.moved = 0;
        let mut sum = 0;
        while sum < bytes {
            // What was read and is not moved yet would be found again.
            let is_left = self.at < self.places.len();
            if !is_left && (!self.read.is_empty() || !self.look_up(shared, section)?) {
                break;
            }
            let before = self.read.len();
            self.read_next(shared)?;
            sum += self.read[before..].iter().map(Read::moved_bytes).sum::<usize>();
        }
        Ok(!self.read.is_empty())
    }

    /// Looks up which records of the section live; `false` if none does behind the last one.
    fn look_up(&mut self, shared: &Shared, section: u32) -> Result<bool> {
        let (first, end, bytes, written) = {
            let order = shared.order_here();
            let Some(found) = order.state.sections.get(section) else { return Ok(false) };
            let end = found.end().unwrap_or(found.first);
            let written = found.directory.written().cloned().unwrap_or_default();
            (found.first, end, found.bytes, written)
        };
        if self.is_rest {
            return Ok(false);
        }
        // Of the last record of the log only some may have been looked up.
        let from = self.places.last().map_or(first, |(lsn, ..)| *lsn);
        self.places.clear();
        (self.at, self.is_rest) = (0, true);
        let cut = |stream| {
            let order = shared.order_here();
            Ok(order.state.stream(stream).map(|found| found.cut).ok())
        };
        for at in 0..written.pages.len() {
            let of = Of(&shared.path);
            let page =
                read_page(&shared.reader, of, (&written, at), (section, &(first..end)), cut)?;
            add_living(&mut self.places, shared, (section, first, from), &page);
            if self.places.len() > 2 * PLACES_MAX {
                self.places.select_nth_unstable(PLACES_MAX);
                self.places.truncate(PLACES_MAX);
                self.is_rest = false;
            }
        }
        self.places.sort_unstable();
        let records = self.places.chunk_by(|one, other| one.0 == other.0).count() as u64;
        let is_dense = records > ALONE_MIN + bytes / ALONE_EACH_BYTES;
        let steps_max = if is_dense { u64::MAX } else { 0 };
        self.walk = Some(Walk::new(&shared.reader, steps_max));
        Ok(!self.places.is_empty())
    }

    /// Reads the next record of the log that has live ones, and takes these out of it.
    fn read_next(&mut self, shared: &Shared) -> Result<()> {
        let of = Of(&shared.path);
        let lsn = self.places[self.at].0;
        let behind = self.at + self.places[self.at..].partition_point(|(is, ..)| *is == lsn);
        let wanted = &self.places[self.at..behind];
        self.at = behind;
        let Some(walk) = &mut self.walk else { return Ok(()) };
        let record = match walk.record(lsn) {
            Err(error) if is_damaged(&error) => {
                let lost = |(lsn, stream, number): &(Lsn, u64, u64)| Read {
                    lsn: *lsn,
                    stream: *stream,
                    number: *number,
                    bytes: None,
                };
                self.read.extend(wanted.iter().map(lost));
                return Ok(());
            }
            record => record?,
        };
        let found = extract(of, (lsn, record), wanted, |(_, stream, number)| (*stream, *number))?;
        for (bytes, (_, stream, number)) in found.into_iter().zip(wanted.iter().copied()) {
            self.read.push(Read { lsn, stream, number, bytes: Some(bytes.into()) });
        }
        Ok(())
    }
}

/// Adds the live records that a page names, from a record of the log on.
fn add_living(
    places: &mut Vec<(Lsn, u64, u64)>,
    shared: &Shared,
    (section, first, from): (u32, Lsn, Lsn),
    page: &Page,
) {
    for (stream, number, offsets) in page.rows() {
        let order = shared.order_here();
        // The other way round, a number is taken behind the last one.
        for (offset, number) in offsets.iter().zip(number..) {
            if order.state.lives_in(section, stream, number)
                && let Some(lsn) = first.plus(u64::from(*offset)).filter(|lsn| *lsn >= from)
            {
                places.push((lsn, stream, number));
            }
        }
    }
}
