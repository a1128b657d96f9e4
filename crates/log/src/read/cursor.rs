//! A position in a log from which records are read in order.
//!
//! *Owns*: walking from record to record and from segment to segment, and telling damage from bytes
//! that were read before they were written. *May not touch*: the log's state; it asks its source.
//!
//! A cursor of a log that this process writes reads from memory what the tail has, and from files
//! what lies before. It changes over between two records: an LSN is in the tail or it is not. In
//! the files it holds the segment that it reads, so that the file is not used for anything else. If
//! another process writes the log, a file may be used again while the cursor reads it. The cursor
//! notices, since every checksum covers segment and position, and observes the log again before it
//! reports damage.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use inkstone_format::{Kind, Lsn, Stop};

use crate::commit::following::Watch;
use crate::error::{Error, Result};
use crate::read::place::{Place, Start};
use crate::read::publisher::Belief;
use crate::read::source::Source;
use crate::read::tail_walk::TailWalk;
use crate::read::view::{Asked, Now, may_be_the_writer};
use crate::recovery::beside::{Pauses, TRIES};
use crate::recovery::recover::damage;
use crate::segment::Link;
use crate::sync::Instant;
use crate::walk::ahead::Pieces;
use crate::walk::window::{FrameAt, Item, Walk, Window};

/// A record, borrowed from the cursor that read it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    /// Its LSN.
    pub lsn: Lsn,
    /// Its bytes.
    pub bytes: &'a [u8],
}

/// A record in its own memory.
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

/// Reads records in order. Get one from [`Reader::from`](crate::Reader::from).
pub struct Cursor {
    source: Source,
    next: Lsn,
    /// How many cuts there had been when it last asked its source. All that it gave was there then,
    /// or it has said since that it was cut.
    cuts: u64,
    /// What the source has answered when it was asked last.
    seen: Option<Asked>,
    /// Where it reads in memory, if the next record is there; there is no place in the files then.
    tail: Option<TailWalk>,
    place: Option<CursorPlace>,
    /// The record that was found last. It stands here, and not in what the calls below return,
    /// since a result that may be an error is copied at each of them: a sixth of the time that
    /// reading a small record takes.
    found: RecordAt,
}

struct CursorPlace {
    link: Link,
    /// The next segment, once there is one: held because its first bytes are read ahead.
    next: Option<Link>,
    walk: Walk,
    /// Where the walk stopped last. A second stop there is damage, not a read that came too early.
    stopped_at: Option<u64>,
    /// The watermark when the bytes were read. If another process writes, bytes after it may have
    /// changed since.
    durable: Lsn,
}

/// A record by the place of its frame.
#[derive(Clone, Copy)]
struct RecordAt {
    lsn: Lsn,
    at: u64,
    payload_bytes: usize,
}

impl RecordAt {
    fn of(frame: &FrameAt) -> Self {
        Self { lsn: frame.lsn, at: frame.at, payload_bytes: frame.payload_bytes }
    }
}

impl Cursor {
    pub(crate) fn new(source: Source, start: Start) -> Self {
        let (next, cuts) = match start {
            Start::Lsn(lsn) => (lsn, source.now().cuts),
            Start::Place(place) => (place.lsn, place.cuts),
        };
        let found = RecordAt { lsn: Lsn::ZERO, at: 0, payload_bytes: 0 };
        Self { source, next, cuts, seen: None, tail: None, place: None, found }
    }

    /// Forgets where it reads, and what was read ahead.
    fn leave(&mut self) {
        (self.tail, self.place) = (None, None);
    }

    /// The LSN of the record that comes next.
    pub fn next_lsn(&self) -> Lsn {
        self.next
    }

    /// Where it is, for a cursor that goes on after a restart
    /// ([`Reader::from`](crate::Reader::from)).
    pub fn place(&self) -> Place {
        Place { lsn: self.next, cuts: self.cuts }
    }

    /// The durable watermark, as [`Reader::durable`](crate::Reader::durable) of its reader: how far
    /// the cursor can read now.
    pub fn durable(&self) -> Lsn {
        self.source.now().durable
    }

    /// Moves to another LSN.
    pub fn seek(&mut self, lsn: Lsn) {
        self.next = lsn;
        self.leave();
    }

    /// The next record; `None` when it is not durable yet. Call again later, or use
    /// [`Cursor::next_within`].
    ///
    /// # Errors
    /// [`Error::TruncatedBefore`] when `truncate_before` has truncated the record (seek to
    /// continue); [`Error::TruncatedAfter`] when `truncate_after` has truncated records before this
    /// position, also if a new cursor is the first of its reader to learn of it (the next call
    /// continues after the last one left); [`Error::Lost`] where records are lost (the next call
    /// continues behind them); [`Error::Corrupt`]; [`Error::Forked`]; [`Error::Invalid`] for LSN 0.
    /// A cursor of a reader from [`Reader::open`](crate::Reader::open) learns of truncations as
    /// [`Reader::get`](crate::Reader::get) does, and also gets the errors of the file system that
    /// it gets then.
    #[allow(clippy::should_implement_trait, reason = "an iterator cannot lend")]
    #[inline]
    pub fn next(&mut self) -> Result<Option<Record<'_>>> {
        Ok(if self.find_undisturbed()? { self.record() } else { None })
    }

    /// The record that was just found.
    #[inline]
    fn record(&self) -> Option<Record<'_>> {
        let found = &self.found;
        let bytes = match (&self.tail, &self.place) {
            (Some(tail), _) => tail.payload(found.at, found.payload_bytes),
            (None, Some(place)) => place.walk.payload(found.at, found.payload_bytes),
            (None, None) => return None,
        };
        Some(Record { lsn: found.lsn, bytes })
    }

    /// Walks to the next record; `false` if it is not durable yet. If a cut changed the log
    /// meanwhile, or another reader observed it again, the result may mix old and new, so the walk
    /// is repeated.
    fn find_undisturbed(&mut self) -> Result<bool> {
        loop {
            let Some((mut version, durable)) = self.ask()? else { return Ok(false) };
            let next = self.next;
            let is_found = self.find_or_observe_again(durable, &mut version);
            let is_undisturbed = self.source.version() == version;
            match is_found {
                // `Ok(true)` is made anew, since copying a result that may be an error takes
                // longer.
                Ok(true) if is_undisturbed || self.is_still_there() => return Ok(true),
                Ok(false) => return Ok(false),
                Err(error) if is_undisturbed || matches!(error, Error::TruncatedAfter { .. }) => {
                    return Err(error);
                }
                Ok(true) | Err(_) => {}
            }
            self.next = next;
            self.leave();
        }
    }

    /// Whether a record that was found during a change is what the log has there now: there was no
    /// cut since this cursor last asked, and the record lies between the first one and the
    /// watermark. So a reader makes progress beside endless changes.
    fn is_still_there(&self) -> bool {
        let version = self.source.version();
        let now = self.source.now();
        let is_there = now.first <= self.found.lsn && self.found.lsn <= now.durable;
        self.source.is_still(version) && now.cuts == self.cuts && is_there
    }

    /// The watermark, if the next record is at or below it, and the version to which it belongs. As
    /// long as the last answer counts, this takes no lock.
    fn ask(&mut self) -> Result<Option<(u64, Lsn)>> {
        self.source.check_process()?;
        let version = self.source.version();
        if let Some(Asked { version: seen, now, belief }) = &mut self.seen
            && *seen == version
            && self.next >= now.first
        {
            if self.next > now.durable
                && let Some(durable) =
                    self.source.watermark().filter(|_| self.source.is_still(version))
            {
                now.durable = durable;
                if self.next > durable {
                    self.tail.take_if(|tail| tail.is_read());
                    return Ok(None);
                }
            }
            if self.next <= now.durable && belief.as_ref().is_none_or(Belief::holds) {
                return Ok(Some((version, now.durable)));
            }
        }
        self.seen = None;
        let mut asked = self.source.ask(self.next)?;
        if asked.now.cuts < self.cuts {
            self.source.look_for_cuts(self.cuts)?;
            asked = self.source.ask(self.next)?;
        }
        let is_there = self.is_there(&asked.now)?;
        let Asked { version, now: Now { durable, .. }, .. } = *self.seen.insert(asked);
        Ok(is_there.then_some((version, durable)))
    }

    /// Whether the next record is durable; an error if it was truncated.
    fn is_there(&mut self, now: &Now) -> Result<bool> {
        if now.cuts != self.cuts {
            self.mind_cuts(now.cuts)?;
        }
        if self.next > now.durable {
            return Ok(false);
        }
        if self.next < Lsn::FIRST {
            return Err(Error::no_record_zero());
        }
        if self.next < now.first {
            return Err(Error::TruncatedBefore { lsn: self.next, first: now.first });
        }
        Ok(true)
    }

    /// Walks to the next record. If another process writes, files may be used again under this
    /// cursor. So after a failed read the log is observed and read again before the failure is
    /// believed; `version` becomes that of the last observation. `false` if the log does not have
    /// the record after all.
    fn find_or_observe_again(&mut self, durable: Lsn, version: &mut u64) -> Result<bool> {
        let mut durable = durable;
        let mut pauses = Pauses::new();
        let mut failed = 0;
        loop {
            self.mind_old_bytes(durable)?;
            let error = match self.find(durable) {
                Ok(()) => return Ok(true),
                Err(error) => error,
            };
            let Some(view) = self.source.view().filter(|_| may_be_the_writer(&error)) else {
                return Err(error);
            };
            failed += 1;
            self.place = None;
            view.refresh_fully()?;
            *version = self.source.version();
            let now = self.source.now();
            if !self.is_there(&now)? {
                return Ok(false);
            }
            if failed == TRIES {
                return Err(error);
            }
            durable = now.durable;
            pauses.sleep(Duration::MAX);
        }
    }

    /// If another process writes, bytes that were not durable when they were read may have been
    /// replaced: the writer's sync failed, and another writer wrote other groups there.
    fn mind_old_bytes(&mut self, durable: Lsn) -> Result<()> {
        if self.source.view().is_some()
            && self.place.as_ref().is_some_and(|place| self.next > place.durable)
        {
            let Some(mut place) = self.place.take() else { return Ok(()) };
            let Some(link) = self.source.find(self.next) else { return Ok(()) };
            if link.segment.header != place.link.segment.header || link.end != place.link.end {
                // The segment has ended since, or been replaced.
                return Ok(());
            }
            let tail = *place.walk.decoder.tail();
            place.walk.window.forget()?;
            place.walk.decoder = place.walk.decoder.from_tail(tail);
            place.durable = durable;
            place.stopped_at = None;
            self.place = Some(place);
        }
        Ok(())
    }

    /// The next record; waits for it up to `timeout`, and returns `None` after that.
    ///
    /// # Errors
    /// As [`Cursor::next`]; [`Error::Closed`] and [`Error::Poisoned`] when all records were shown
    /// and no more will come.
    pub fn next_within(&mut self, timeout: Duration) -> Result<Option<Record<'_>>> {
        let until = Instant::now().checked_add(timeout);
        self.source.wait(self.next, self.cuts, until)?;
        self.next()
    }

    /// The next record; awaits it if it is not durable yet. Works in any runtime or none. What is
    /// in memory ([`Options::tail_bytes`](crate::Options::tail_bytes)) is returned from there; what
    /// is not is read from the files by the thread that polls, as [`Cursor::next`] does.
    ///
    /// Cancel-safe: a future that is dropped while it is pending loses no record, and leaves
    /// nothing behind.
    ///
    /// # Errors
    /// As [`Cursor::next_within`]; [`Error::Invalid`] when it would wait and the reader is from
    /// [`Reader::open`](crate::Reader::open): this process gets no notice when another one commits.
    /// Call [`Cursor::next_within`] on a thread of your own there.
    ///
    /// ```
    /// # async fn follow(log: &inkstone::Log) -> inkstone::Result<()> {
    /// let mut cursor = log.reader().from(inkstone::Lsn::FIRST);
    /// loop {
    ///     let record = cursor.next_async().await?;
    ///     println!("{}: {} bytes", record.lsn, record.bytes.len());
    /// }
    /// # }
    /// ```
    pub async fn next_async(&mut self) -> Result<Record<'_>> {
        loop {
            // Nothing is awaited between finding the record, which moves the cursor on, and
            // returning it.
            if self.find_undisturbed()? {
                return Ok(self.record().expect("what was found has a place"));
            }
            let shared = Arc::clone(self.source.to_await()?);
            Watch::new(shared, self.next, self.cuts, false).await?;
        }
    }

    /// After a cut drops what was read ahead, and returns an error if the cursor stood after the
    /// cut.
    fn mind_cuts(&mut self, cuts: u64) -> Result<()> {
        let lowest = self.source.lowest_cut_since(self.cuts);
        self.cuts = cuts;
        self.leave();
        match lowest {
            Some(last) if self.next.before().is_some_and(|shown| shown > last) => {
                let lsn = self.next;
                self.next = last.next().unwrap_or(last);
                Err(Error::TruncatedAfter { lsn, last })
            }
            _ => Ok(()),
        }
    }

    /// Walks to the next record in memory; `false` if it is not there.
    fn find_in_tail(&mut self) -> Result<bool> {
        let lsn = self.next;
        let mut found = self.tail.as_mut().and_then(|tail| tail.find(lsn));
        if found.is_none() {
            self.tail = self.source.tail_run(lsn).map(TailWalk::new);
            found = self.tail.as_mut().and_then(|tail| tail.find(lsn));
        }
        let Some(found) = found else {
            self.tail = None;
            return Ok(false);
        };
        // Nothing is read ahead from the files any more.
        self.place = None;
        self.next = lsn.next().ok_or(Error::UsedUp)?;
        self.found = RecordAt { lsn, at: found.at, payload_bytes: found.payload_bytes };
        Ok(true)
    }

    /// Walks to the next record, which is durable.
    fn find(&mut self, durable: Lsn) -> Result<()> {
        if self.find_in_tail()? {
            return Ok(());
        }
        loop {
            let place = match &mut self.place {
                Some(place) => place,
                None => self.place.insert(find_place(&self.source, self.next, durable, None)?),
            };
            let item = match place.walk.step() {
                Ok(item) => item,
                Err(error) => {
                    self.place = None;
                    return Err(error);
                }
            };
            match item {
                // The first LSN of the next segment decides: even if the end that it names is too
                // high, no truncated record is shown.
                Item::Frame(frame)
                    if place
                        .next
                        .as_ref()
                        .is_some_and(|next| next.begins_at_or_before(frame.lsn)) =>
                {
                    let Some(place) = self.place.take() else { continue };
                    self.place = Some(self.in_next_segment(place, durable)?);
                }
                Item::Frame(frame) if frame.kind == Kind::Record && frame.lsn == self.next => {
                    let Some(next) = frame.lsn.next() else { return Err(Error::UsedUp) };
                    self.next = next;
                    self.found = RecordAt::of(&frame);
                    return Ok(());
                }
                Item::Frame(frame) if frame.kind == Kind::Lost => {
                    let behind = place.walk.decoder.mark().lsn;
                    if let Some(last) = behind.before().filter(|last| *last >= self.next) {
                        self.next = behind;
                        let first = frame.lsn.max(self.source.now().first);
                        return Err(Error::Lost { first, last });
                    }
                }
                Item::Stop(stop) => {
                    let Some(place) = self.place.take() else { continue };
                    self.place = Some(self.after_stop(place, &stop, durable)?);
                }
                Item::Frame(_) | Item::GroupStart(_) | Item::GroupEnd => {}
            }
        }
    }

    /// Continues in the segment that has the next record, with the pieces that were read ahead.
    fn in_next_segment(&self, place: CursorPlace, durable: Lsn) -> Result<CursorPlace> {
        find_place(&self.source, self.next, durable, place.walk.window.into_ahead())
    }

    /// Handles a stop before a durable record: the log continues in the next segment, or the bytes
    /// were read before they were written, or it is damage.
    fn after_stop(&self, mut place: CursorPlace, stop: &Stop, durable: Lsn) -> Result<CursorPlace> {
        let first = self.source.now().first;
        let link =
            self.source.find(self.next).ok_or(Error::TruncatedBefore { lsn: self.next, first })?;
        if link.segment.number() != place.link.segment.number() {
            return self.in_next_segment(place, durable);
        }
        if place.stopped_at == Some(stop.at) {
            return Err(damage(&mut place.walk, self.source.directory(), stop, durable, link.end)?);
        }
        place.walk.window.forget()?;
        let stretch = self.source.stretch(&link)?;
        let decoder = link.segment.decoder(link.end, &*stretch.file)?;
        place.walk.decoder = decoder.from_tail(stop.tail);
        place.next = behind(&self.source, &link);
        place.link = link;
        place.stopped_at = Some(stop.at);
        Ok(place)
    }
}

/// The place from which to read the segment of a record; `ahead` has read the segment before it.
fn find_place(
    source: &Source,
    lsn: Lsn,
    durable: Lsn,
    ahead: Option<Box<dyn Pieces>>,
) -> Result<CursorPlace> {
    let first = source.now().first;
    let link = source.find(lsn).ok_or(Error::TruncatedBefore { lsn, first })?;
    let stretch = source.stretch(&link)?;
    let file = Arc::clone(&stretch.file);
    let mut ahead = match ahead {
        Some(mut ahead) => {
            ahead.go_on(stretch)?;
            ahead
        }
        None => source.pieces(stretch),
    };
    let next = behind(source, &link);
    if let Some(next) = &next {
        ahead.follow(source.stretch(next)?);
    }
    let decoder = link.segment.decoder_at(lsn, link.end, &*file)?;
    let walk = Walk::new(Window::read_by(file, ahead), decoder);
    Ok(CursorPlace { link, next, walk, stopped_at: None, durable })
}

/// The next segment, if it has named the end of this one.
fn behind(source: &Source, link: &Link) -> Option<Link> {
    link.end.and_then(|_| source.after(link))
}

impl fmt::Debug for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cursor").field("next", &self.next).finish_non_exhaustive()
    }
}
