//! A place in a log from which records are read in order.
//!
//! *Owns*: walking from record to record and from segment to segment, and telling damage from bytes that were not there
//! yet when they were read. *May not touch*: the log's state; it asks its source.
//!
//! A cursor holds the segment it reads, so that its file is not used for anything else.

use std::fmt;
use std::time::{Duration, Instant};

use inkstone_format::{Kind, Lsn, Stop};
use inkstone_io::{Directory, OsDirectory};

use crate::error::{Error, Result};
use crate::reader::Source;
use crate::recover::damage;
use crate::segment::Link;
use crate::store::open_for_groups;
use crate::window::{FrameAt, Item, Walk, Window};

/// Bytes read at a time.
const READ_BYTES: usize = 256 << 10;

/// A record, borrowed from the cursor that read it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    /// Its LSN.
    pub lsn: Lsn,
    /// Its bytes.
    pub bytes: &'a [u8],
}

/// A record in memory of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnedRecord {
    /// Its LSN.
    pub lsn: Lsn,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

impl From<Record<'_>> for OwnedRecord {
    fn from(record: Record<'_>) -> Self {
        Self { lsn: record.lsn, bytes: record.bytes.to_vec() }
    }
}

/// Reads records in order. Get one from [`crate::Reader::from`].
pub struct Cursor<D: Directory = OsDirectory> {
    source: Source<D>,
    next: Lsn,
    cuts: usize,
    place: Option<Place<D>>,
}

struct Place<D: Directory> {
    link: Link<D::File>,
    walk: Walk<D::File>,
    /// Where it stopped last: a second stop there is no matter of timing.
    stopped_at: Option<u64>,
}

impl<D: Directory> Cursor<D> {
    pub(crate) fn new(source: Source<D>, next: Lsn) -> Self {
        let cuts = source.now().cuts;
        Self { source, next, cuts, place: None }
    }

    /// The LSN of the record that comes next.
    pub fn next_lsn(&self) -> Lsn {
        self.next
    }

    /// Goes on at another LSN.
    pub fn seek(&mut self, lsn: Lsn) {
        self.next = lsn.max(Lsn::FIRST);
        self.place = None;
    }

    /// The next record; `None` when it is not durable yet. Call again later, or use [`Cursor::next_within`].
    ///
    /// # Errors
    /// [`Error::GivenUp`] when the record was given up (seek to go on); [`Error::Cut`] when records that this cursor has
    /// shown were taken off (the next call goes on behind the cut); [`Error::Corrupt`].
    #[allow(clippy::should_implement_trait, reason = "an iterator cannot lend")]
    pub fn next(&mut self) -> Result<Option<Record<'_>>> {
        let now = self.source.now();
        if now.cuts != self.cuts {
            self.mind_cuts(now.cuts)?;
        }
        if self.next > now.durable {
            return Ok(None);
        }
        if self.next < now.first {
            return Err(Error::GivenUp { lsn: self.next, first: now.first });
        }
        let frame = self.find_frame(now.durable)?;
        let Some(place) = &self.place else { return Ok(None) };
        Ok(Some(Record { lsn: frame.lsn, bytes: place.walk.payload(&frame) }))
    }

    /// The next record; waits for it up to `timeout`, and gives `None` then.
    ///
    /// # Errors
    /// As [`Cursor::next`]; [`Error::Closed`] and [`Error::Poisoned`] when everything was shown and no more will come.
    pub fn next_within(&mut self, timeout: Duration) -> Result<Option<Record<'_>>> {
        let until = Instant::now().checked_add(timeout);
        self.source.wait(self.next, self.cuts, until)?;
        self.next()
    }

    /// After a cut nothing that was read ahead counts, and who was beyond it must know.
    fn mind_cuts(&mut self, cuts: usize) -> Result<()> {
        let lowest = self.source.lowest_cut_since(self.cuts);
        self.cuts = cuts;
        self.place = None;
        match lowest {
            Some(last) if self.next.before().is_some_and(|shown| shown > last) => {
                let lsn = self.next;
                self.next = last.next().unwrap_or(last);
                Err(Error::Cut { lsn, last })
            }
            _ => Ok(()),
        }
    }

    /// Walks to the next record, which is durable.
    fn find_frame(&mut self, durable: Lsn) -> Result<FrameAt> {
        loop {
            let mut place = match self.place.take() {
                Some(place) => place,
                None => self.find_place()?,
            };
            match place.walk.step()? {
                Item::Frame(frame) => {
                    self.place = Some(place);
                    if frame.kind == Kind::Record && frame.lsn == self.next {
                        self.next = frame.lsn.next().ok_or(Error::UsedUp)?;
                        return Ok(frame);
                    }
                }
                Item::Stop(stop) => self.place = Some(self.after_stop(place, &stop, durable)?),
                Item::GroupStart | Item::GroupEnd => self.place = Some(place),
            }
        }
    }

    fn find_place(&self) -> Result<Place<D>> {
        let first = self.source.now().first;
        let link = self.source.find(self.next).ok_or(Error::GivenUp { lsn: self.next, first })?;
        let file = link.segment.file(self.source.directory(), &open_for_groups(self.source.options()))?;
        let decoder = link.segment.decoder_at(self.next, link.end, &file, self.source.options())?;
        let window = Window::new(file, READ_BYTES.min(link.segment.header.segment_bytes as usize));
        Ok(Place { link, walk: Walk::new(window, decoder), stopped_at: None })
    }

    /// A stop before a record that is durable: the segment ends here and the log goes on in the next, or what is in
    /// memory was read before it was written; or it is damage.
    fn after_stop(&self, place: Place<D>, stop: &Stop, durable: Lsn) -> Result<Place<D>> {
        let mut place = place;
        let first = self.source.now().first;
        let link = self.source.find(self.next).ok_or(Error::GivenUp { lsn: self.next, first })?;
        if link.segment.number() != place.link.segment.number() {
            return self.find_place();
        }
        if place.stopped_at == Some(stop.at) {
            return Err(damage(&mut place.walk, self.source.directory(), stop, durable, link.end)?);
        }
        place.walk.window.forget();
        let file = link.segment.file(self.source.directory(), &open_for_groups(self.source.options()))?;
        let decoder = link.segment.decoder(link.end, &file, self.source.options())?;
        place.walk.decoder = decoder.from_tail(stop.tail);
        place.link = link;
        place.stopped_at = Some(stop.at);
        Ok(place)
    }
}

impl<D: Directory> fmt::Debug for Cursor<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cursor").field("next", &self.next).finish_non_exhaustive()
    }
}
