//! Changes of the log other than appending: the next segment, control groups, truncation at both ends.
//!
//! *Owns*: the order in which things become durable when a segment changes. *May not touch*: how a group is written
//! (`shared.rs`, `writer.rs`), where files come from (`pool.rs`).
//!
//! The order of a roll: everything in the old segment durable; a file with the new segment's name, durable; its header,
//! durable; then the first group. A crash between any two of them opens to the same records. A seal in the old segment names
//! the new one, at any time after the header is durable: nobody waits for it where there is a steward to write it (`seal.rs`).

use std::sync::Arc;
use std::time::Duration;

use inkstone_format::limits::{BLOCK_BYTES, CONTROL_RESERVE_BYTES, HEADER_BYTES};
use inkstone_format::{
    Control, EncodeError, Epoch, Kind, Lsn, Position, PromiseReason, Roll, SegmentHeader, SegmentNumber,
};
use inkstone_io::Directory;

use crate::error::{Error, Result};
use crate::event::Event;
use crate::look::open_for_reading;
use crate::mistake::Mistake;
use crate::pool::{Blocks, ObtainError, Ready};
use crate::recover::damage;
use crate::room::{Need, or_left_out, refused};
use crate::seal::Seal;
use crate::segment::{Link, Segment, identity};
use crate::shared::Shared;
use crate::state::State;
use crate::sync::{Instant, lock, yield_now};
use crate::waking::Guard;
use crate::window::{Item, Walk, Window};

/// Promises for people who wait are left out where less than this is left for control groups: what must be said later
/// (an epoch, a truncation) needs the room more.
const PROMISE_ROOM_BYTES: u64 = CONTROL_RESERVE_BYTES / 2;

/// What the next segment is for.
struct Next {
    epoch: Epoch,
    roll: Roll,
    predecessor: Option<Position>,
    first_lsn: Lsn,
    bytes: u64,
    /// The last record that a cut leaves.
    cut: Option<Lsn>,
}

impl<D: Directory> Shared<D> {
    /// Changes to a segment that has room for records of `frame_bytes`, unless somebody else did meanwhile.
    ///
    /// # Errors
    /// [`Error::NoRoom`] and others that leave the log as it was; or the poison.
    pub(crate) fn roll<'a>(&'a self, state: Guard<'a>, frame_bytes: u64) -> Result<Guard<'a>> {
        let (mut state, turn) = self.take_turn(state)?;
        if state.filling.record_room() >= frame_bytes {
            return Ok(self.end_turn(state, turn));
        }
        state.changing = true;
        let started = Instant::now();
        let (mut state, mut result) = self.begin_epoch(state);
        if result.is_ok() && state.filling.record_room() < frame_bytes {
            (state, result) = self.roll_in_turn(state, frame_bytes);
        }
        if result.is_ok() {
            state.stats.change.add(started.elapsed());
        }
        let state = self.end_turn(state, turn);
        result.map(|()| state)
    }

    /// The caller has the turn, and `changing` is set.
    fn roll_in_turn<'a>(&'a self, state: Guard<'a>, frame_bytes: u64) -> (Guard<'a>, Result<()>) {
        let (state, result) = self.write_group(state, self.options.makes(Mistake::FirstGroupEarly));
        if result.is_err() {
            return (state, result);
        }
        let old = *self.head_header();
        let next = Next {
            epoch: state.epoch,
            roll: Roll::Full,
            predecessor: Some(Position { segment: old.number, byte: state.filling.at() }),
            first_lsn: state.filling.next_lsn(),
            bytes: self.options.next_segment_bytes(old.segment_bytes, frame_bytes),
            cut: None,
        };
        self.begin_segment(state, next)
    }

    fn head_header(&self) -> Box<SegmentHeader> {
        Box::new(lock(&self.segments).head().segment.header)
    }

    /// Obtains a file, makes its header durable, seals the old segment, and goes on in the new one. The caller has the
    /// turn, nothing is gathered, everything before is durable.
    fn begin_segment<'a>(&'a self, mut state: Guard<'a>, next: Next) -> (Guard<'a>, Result<()>) {
        let (log, first_live) = {
            let segments = lock(&self.segments);
            let old = segments.head().segment.header;
            let is_forgotten = self.options.makes(Mistake::TruncationForgottenAtRoll);
            (old.log, if is_forgotten { old.first_live } else { segments.first_live })
        };
        let durable = next.first_lsn.before().unwrap_or(Lsn::ZERO);
        let reserve = self.prepares_ahead();
        drop(state);
        let header = |number| SegmentHeader {
            version: self.options.version,
            log,
            number,
            segment_bytes: next.bytes,
            first_lsn: next.first_lsn,
            first_live: if next.roll == Roll::Begin { next.first_lsn } else { first_live },
            epoch: next.epoch,
            promise: durable,
            predecessor: next.predecessor,
            roll: next.roll,
        };
        let made = self.make_segment(header, next.bytes, reserve);
        state = self.lock();
        let (header, ready) = match made {
            Ok(made) => made,
            Err(ObtainError::Retry(error)) if !self.options.makes(Mistake::NoRoomPoisons) => {
                return (state, Err(error));
            }
            Err(ObtainError::Retry(error) | ObtainError::Poison(error)) => {
                let poisoned = self.poison(&mut state, error);
                return (state, Err(poisoned));
            }
        };
        self.count_segment(&mut state, &ready);
        if let Some(last) = next.cut {
            self.enter_cut(&mut state, header, ready, last);
            return (state, Ok(()));
        }
        let result;
        (state, result) = self.seal(state, header.number, durable);
        if result.is_ok() {
            self.enter(&mut state, header, ready);
        }
        (state, result)
    }

    /// Goes on behind a cut, which is durable. Readers that hold no lock see all of it or look again.
    fn enter_cut(&self, state: &mut Guard<'_>, header: SegmentHeader, ready: Ready<D::File>, last: Lsn) {
        self.note_half_a_change();
        self.enter(state, header, ready);
        let is_early = self.options.makes(Mistake::ChangeBeforeWatermark);
        if is_early {
            self.note_half_a_change();
            // The mistake leaves readers the time to believe it.
            yield_now();
        }
        if !self.options.makes(Mistake::CutUntold) {
            state.cuts.push(last);
        }
        self.set_durable(state, last);
        if !is_early {
            self.note_half_a_change();
        }
        self.followers.notify_all();
    }

    /// Whether a thread makes files ready.
    pub(crate) fn prepares_ahead(&self) -> bool {
        self.options.own_thread && self.options.prepare_ahead
    }

    fn count_segment(&self, state: &mut State, ready: &Ready<D::File>) {
        let stats = &mut state.stats;
        stats.segments += 1;
        match ready.blocks {
            Blocks::Recycled => stats.segments_recycled += 1,
            Blocks::Written => stats.segments_prepared += 1,
            Blocks::Reserved => stats.segments_fallocated += 1,
        }
        if let Some(what) = self.pool.take_notice() {
            state.events.push(Event::Fallback { what });
        }
        if self.prepares_ahead() && !ready.was_waiting {
            stats.pool_empty += 1;
            state.was_pool_empty = true;
            let fallocated = ready.blocks == Blocks::Reserved;
            state.events.push(Event::PoolEmpty { segment_bytes: ready.bytes(), fallocated });
        }
    }

    /// A file with a durable header.
    fn make_segment(
        &self,
        header: impl FnOnce(SegmentNumber) -> SegmentHeader,
        bytes: u64,
        reserve: bool,
    ) -> std::result::Result<(SegmentHeader, Ready<D::File>), ObtainError> {
        let ready = self.pool.obtain(bytes, &self.options, reserve)?;
        let header = header(ready.number);
        let is_retried = self.options.makes(Mistake::HeaderFailureRetried);
        let failed = if is_retried { ObtainError::Retry } else { ObtainError::Poison };
        let written = self.write_header(&ready.file, &header);
        match written.result {
            Ok(()) => Ok((header, ready)),
            // Before the log goes on without it no crash may find a header in it, whole or in part.
            Err(error) if written.is_refused => match self.pool.give_back(ready, &self.options) {
                Ok(()) => Err(ObtainError::Retry(refused(HEADER_BYTES as u64, error))),
                Err(_) => Err(failed(error)),
            },
            Err(error) => Err(failed(error)),
        }
    }

    /// Says in the old segment, which ends with the record `last`, which one comes next. Where an opening could not say its
    /// epoch there yet, that comes first; where there is no room it is left out: the new header says it all.
    fn seal<'a>(&'a self, mut state: Guard<'a>, next: SegmentNumber, last: Lsn) -> (Guard<'a>, Result<()>) {
        if self.would_rewrite(&state) {
            // What a segment without a seal leaves open the new header says.
            let segment = Arc::clone(&lock(&self.segments).head().segment);
            state.events.push(self.sealed(segment, last));
            return (state, Ok(()));
        }
        if let Some(epoch) = state.epoch_due
            && state.filling.control(&epoch).is_err()
        {
            return (state, Ok(()));
        }
        // Without room for the seal an epoch alone may be gathered; it says nothing wrong.
        let _ = state.filling.control(&Control::Seal(next));
        let segment = Arc::clone(&lock(&self.segments).head().segment);
        if !self.prepares_ahead() {
            let (mut state, result) = match self.options.makes(Mistake::FirstGroupEarly) {
                true => self.write_group(state, true),
                false => self.write_control(state, Need::May),
            };
            let result = or_left_out(result);
            if result.is_ok() && self.options.listener.is_some() {
                state.events.push(self.sealed(segment, last));
            }
            return (state, result);
        }
        if !state.filling.is_empty() {
            let frozen = self.freeze(&mut state);
            let file = Arc::clone(&lock(&self.writer).file);
            self.seal_later(Seal::of(&frozen, segment, file, last));
            self.keep_memory(&mut state, Some(frozen.memory));
        }
        (state, Ok(()))
    }

    /// Whether the next group would write again the block in which the log ends, and no group of a padded log may: it was
    /// written without padding until now. The format has nothing that stands between two groups, so the log goes on in
    /// another segment.
    fn would_rewrite(&self, state: &State) -> bool {
        self.pads() && !state.filling.at().is_multiple_of(BLOCK_BYTES as u64)
    }

    /// From now on groups go into this segment.
    fn enter(&self, state: &mut Guard<'_>, header: SegmentHeader, ready: Ready<D::File>) {
        let segment = Arc::new(Segment::new(header));
        segment.adopt(&ready.file);
        lock(&self.writer).enter(ready.file, ready.asks);
        let mut segments = lock(&self.segments);
        match header.predecessor {
            Some(end) => {
                // A cut may end the log in an older segment than the head.
                let keep = segments.links.partition_point(|link| link.segment.number() <= end.segment);
                let cut_off: Vec<_> = segments.links.drain(keep..).map(|link| link.segment).collect();
                segments.obsolete.extend(cut_off);
                segments.push(segment, end.byte);
            }
            None => {
                let all: Vec<_> = segments.links.drain(..).map(|link| link.segment).collect();
                segments.obsolete.extend(all);
                segments.first_live = header.first_live;
                segments.links.push(Link { segment, end: None });
            }
        }
        drop(segments);
        state.epoch = header.epoch;
        state.filling.enter(identity(&header, &self.options), header.epoch, header.first_lsn);
        // Not earlier: how large the next file is to be goes by the segment that is in use.
        state.files_wanted = true;
        self.steward.notify_one();
    }

    /// Writes a control group of its own, after what is gathered; in the next segment if this one has no room. Durable
    /// when it returns `Ok`.
    ///
    /// # Errors
    /// The poison; or that no segment was to be had, and nothing has changed.
    pub(crate) fn control<'a>(&'a self, state: Guard<'a>, control: &Control) -> (Guard<'a>, Result<()>) {
        let (mut state, mut result) = self.write_gathered(state);
        if result.is_err() {
            return (state, result);
        }
        let would_rewrite = self.would_rewrite(&state);
        if would_rewrite || state.filling.control_room() < 2 * BLOCK_BYTES as u64 {
            let was_changing = std::mem::replace(&mut state.changing, true);
            (state, result) = self.roll_in_turn(state, 0);
            // Not even the last of the reserve is left.
            while matches!(result, Err(Error::NoRoom { .. }))
                && self.options.keeps_room
                && state.filling.control_room() < BLOCK_BYTES as u64
                && self.pool.give_up_some()
            {
                (state, result) = self.roll_in_turn(state, 0);
            }
            state.changing = was_changing;
            // The last of the reserve is for a full disk.
            let goes_without = !would_rewrite && !self.options.makes(Mistake::TruncationNeedsRoom);
            let is_last = matches!(result, Err(Error::NoRoom { .. })) && goes_without;
            if result.is_err() && !is_last {
                return (state, result);
            }
        }
        let forgets = match control {
            Control::Epoch { .. } => Mistake::EpochNotSynced,
            _ => Mistake::TruncationNotSynced,
        };
        match state.filling.control(control) {
            Ok(()) if self.options.makes(forgets) => self.write_group(state, true),
            Ok(()) => self.write_control(state, Need::Must),
            Err(EncodeError::LsnsUsedUp) => (state, Err(Error::UsedUp)),
            Err(error) => {
                let why = format!("no room for a control group: {error}");
                (state, Err(result.err().unwrap_or(Error::Invalid(why))))
            }
        }
    }

    /// Writes what is durable into the log, so that nobody has to guess; not where the room is needed for other things.
    ///
    /// # Errors
    /// The poison.
    pub(crate) fn promise<'a>(&'a self, state: Guard<'a>, reason: PromiseReason) -> (Guard<'a>, Result<()>) {
        let (mut state, result) = self.write_gathered(state);
        let is_left_out = reason == PromiseReason::Close && self.options.makes(Mistake::NoLastPromise);
        let is_left_out = is_left_out || state.epoch_due.is_some();
        if result.is_err() || is_left_out || state.filling.control_room() < PROMISE_ROOM_BYTES {
            state.unpromised = false;
            return (state, result);
        }
        if state.filling.control(&Control::Promise(reason)).is_err() {
            return (state, Ok(()));
        }
        if reason == PromiseReason::Close {
            state.filling.clear_behind();
        }
        let (mut state, result) = self.write_control(state, Need::May);
        state.unpromised = false;
        (state, or_left_out(result))
    }

    /// Gives up all records before `first`; durable on return, and the files that held only those are free.
    pub(crate) fn truncate_before(&self, first: Lsn) -> Result<()> {
        let (mut state, turn) = self.take_turn(self.lock())?;
        // What is gathered behind a control group would keep it from being taken back (`room.rs`).
        state.changing = self.options.keeps_room;
        let (mut state, mut result) = self.begin_epoch(state);
        if result.is_ok() {
            (state, result) = self.write_gathered(state);
        }
        if result.is_ok() && first > state.filling.next_lsn() {
            let last = state.reserved();
            result = Err(Error::NotYet { lsn: first, durable: last });
        }
        if result.is_ok() && first > lock(&self.segments).first_live {
            if self.options.makes(Mistake::RemovesFirst) {
                lock(&self.segments).give_up(first);
                self.note_change();
                result = self.retire_unread();
            }
            if result.is_ok() {
                (state, result) = self.control(state, &Control::TruncateBefore(first));
            }
            if result.is_ok() {
                lock(&self.segments).give_up(first);
                self.note_change();
            }
        }
        if result.is_ok() {
            drop(state);
            result = self.retire_unread();
            state = self.lock();
        }
        drop(self.end_turn(state, turn));
        result
    }

    /// Takes back the files of segments that are not the log's any more and that nobody reads.
    pub(crate) fn retire_unread(&self) -> Result<()> {
        let unread = lock(&self.segments).take_unread(self.options.makes(Mistake::RecyclesPinned));
        let count = unread.len();
        let mut result = Ok(());
        for segment in unread {
            let retired = self.pool.retire(segment.number(), segment.header.segment_bytes, &self.options);
            if retired.is_err() {
                // It is tried again with the next.
                lock(&self.segments).obsolete.push(segment);
            }
            result = result.and(retired);
        }
        result?;
        if !self.prepares_ahead() {
            while self.pool.remove_some(Duration::ZERO)? {}
            if count > 0 {
                self.keep_room()?;
            }
        } else if count > 0 {
            self.lock().files_wanted = true;
            self.steward.notify_one();
        }
        Ok(())
    }

    /// Takes off all records after `last`; durable on return.
    pub(crate) fn truncate_after(&self, last: Lsn) -> Result<()> {
        let (mut state, turn) = self.take_turn(self.lock())?;
        state.changing = true;
        let (mut state, mut result) = self.begin_epoch(state);
        if result.is_ok() {
            (state, result) = self.write_gathered(state);
        }
        let (state, result) = match result {
            Ok(()) => self.cut(state, last),
            Err(error) => (state, Err(error)),
        };
        drop(self.end_turn(state, turn));
        result
    }

    fn cut<'a>(&'a self, state: Guard<'a>, last: Lsn) -> (Guard<'a>, Result<()>) {
        let reserved = state.reserved();
        if last == reserved {
            return (state, Ok(()));
        }
        if last > reserved {
            return (state, Err(Error::NotYet { lsn: last, durable: reserved }));
        }
        let first_live = lock(&self.segments).first_live;
        if last.next().is_none_or(|next| next < first_live) {
            return (state, Err(Error::GivenUp { lsn: last, first: first_live }));
        }
        drop(state);
        let predecessor = if last < first_live { Ok(None) } else { self.end_of(last).map(Some) };
        let mut state = self.lock();
        let (predecessor, epoch) = match (predecessor, state.epoch.next()) {
            (Ok(predecessor), Some(epoch)) => (predecessor, epoch),
            (Err(error), _) => return (state, Err(error)),
            (_, None) => return (state, Err(Error::UsedUp)),
        };
        let previous = state.epoch;
        let first_lsn = last.next().unwrap_or(Lsn::FIRST);
        let bytes = self.head_header().segment_bytes;
        let roll = if predecessor.is_some() { Roll::Cut } else { Roll::Begin };
        let mut result;
        let next = Next { epoch, roll, predecessor, first_lsn, bytes, cut: Some(last) };
        (state, result) = self.begin_segment(state, next);
        if result.is_err() {
            return (state, result);
        }
        // From here on the cut is durable. The epoch comes before all else that is written.
        let said = Control::Epoch { previous: Some(previous), recovered: last };
        if self.options.makes(Mistake::CutEpochNotSynced) {
            let _ = state.filling.control(&said);
            (state, result) = self.write_group(state, true);
        } else {
            state.epoch_due = Some(said);
            (state, result) = self.begin_epoch(state);
            // Without room for it: as an opening does (`room.rs`).
            result = or_left_out(result);
        }
        if result.is_ok() {
            drop(state);
            result = self.retire_unread();
            state = self.lock();
        }
        (state, result)
    }

    /// The byte after the frame of a durable record.
    fn end_of(&self, lsn: Lsn) -> Result<Position> {
        let (link, first_live) = {
            let segments = lock(&self.segments);
            (segments.find(lsn).cloned(), segments.first_live)
        };
        let Some(link) = link else { return Err(Error::GivenUp { lsn, first: first_live }) };
        let file = link.segment.file(&*self.directory, &open_for_reading(&self.options))?;
        let decoder = link.segment.decoder_at(lsn, link.end, &file, &self.options)?;
        let mut walk = Walk::new(Window::new(file, 256 << 10), decoder);
        loop {
            match walk.step()? {
                Item::Frame(frame) if frame.kind == Kind::Record && frame.lsn == lsn => {
                    let is_early = self.options.makes(Mistake::CutBeforeRecord);
                    let byte = if is_early { frame.at } else { frame.end };
                    return Ok(Position { segment: link.segment.number(), byte });
                }
                Item::Stop(stop) => {
                    return Err(damage(&mut walk, &*self.directory, &stop, self.durable(), link.end)?);
                }
                _ => {}
            }
        }
    }
}
