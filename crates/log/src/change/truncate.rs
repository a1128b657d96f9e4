//! Truncation at both ends.
//!
//! *Owns*: what must be durable before records are truncated, and before their files are used
//! again. *May not touch*: readers; they ask for the number of the last change.

use inkstone_format::{Control, Kind, Lsn, Position, Roll};

use crate::change::roll::Next;
use crate::commit::room::or_left_out;
use crate::commit::shared::Shared;
use crate::commit::state::Guard;
use crate::error::{Error, Result};
use crate::recovery::headers::open_for_reading;
use crate::recovery::recover::damage;
use crate::sync::lock;
use crate::walk::window::{Item, Walk, Window};

impl Shared {
    /// Truncates all records before `first`. Durable on return; the files that held only those
    /// records are given back after the turn.
    pub(crate) fn truncate_before(&self, first: Lsn) -> Result<()> {
        let (mut state, turn) = self.take_turn(self.lock())?;
        // Nothing may be gathered after the control group: it could not be taken back then
        // (`commit/room.rs`).
        state.changing = self.options.keeps_room;
        let (mut state, mut result) = self.begin_epoch(state);
        if result.is_ok() {
            (state, result) = self.write_gathered(state);
        }
        if result.is_ok() && first > state.gathering.next_lsn() {
            let last = state.reserved();
            result = Err(Error::NotYet { lsn: first, durable: last });
        }
        if result.is_ok() && first > lock(&self.segments).first_live {
            (state, result) = self.control(state, &Control::TruncateBefore(first));
            if result.is_ok() {
                lock(&self.segments).truncate_before(first);
                self.tail.forget_before(first);
                self.note_change();
                // Instead of the post of the control group, which came before.
                self.post_head(&mut state);
            }
        }
        drop(self.end_turn(state, turn));
        result?;
        self.give_files_back()
    }

    /// Truncates all records after `last`; durable on return.
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
        result?;
        self.give_files_back()
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
            return (state, Err(Error::TruncatedBefore { lsn: last, first: first_live }));
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
        // As in a new log: who cuts often must not pay for a full segment each time.
        let bytes = self.options.next_segment_bytes(0, 0);
        let roll = if predecessor.is_some() { Roll::Cut } else { Roll::Begin };
        let mut result;
        let next = Next { epoch, roll, predecessor, first_lsn, bytes, cut: Some(last) };
        (state, result) = self.begin_segment(state, next);
        if result.is_err() {
            return (state, result);
        }
        // The cut is durable and was posted. The epoch must be written before anything else, if
        // there is room for it.
        state.epoch_due = Some(Control::Epoch { previous: Some(previous), recovered: last });
        (state, result) = self.begin_epoch(state);
        // Without room for it, the epoch is held back as by an opening (`commit/room.rs`).
        (state, or_left_out(result))
    }

    /// The byte after the frame of a durable record.
    fn end_of(&self, lsn: Lsn) -> Result<Position> {
        let (link, first_live) = {
            let segments = lock(&self.segments);
            (segments.find(lsn).cloned(), segments.first_live)
        };
        let Some(link) = link else {
            return Err(Error::TruncatedBefore { lsn, first: first_live });
        };
        let file = link.segment.file(&self.directory, &open_for_reading(&self.options))?;
        let decoder = link.segment.decoder_at(lsn, link.end, &*file)?;
        let mut walk = Walk::new(Window::new(file, 256 << 10), decoder);
        loop {
            match walk.step()? {
                Item::Frame(frame) if frame.kind == Kind::Record && frame.lsn == lsn => {
                    return Ok(Position { segment: link.segment.number(), byte: frame.end });
                }
                Item::Stop(stop) => {
                    return Err(damage(
                        &mut walk,
                        &self.directory,
                        &stop,
                        self.durable(),
                        link.end,
                    )?);
                }
                _ => {}
            }
        }
    }
}
