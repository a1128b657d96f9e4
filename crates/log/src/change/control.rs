//! Control groups: the log's own frames between the records.
//!
//! *Owns*: the epoch of an opening, promises, the frames of a truncation, and the segment changes
//! that these need. *May not touch*: the order of a segment change (`roll.rs`).

use inkstone_format::limits::{BLOCK_BYTES, CONTROL_RESERVE_BYTES};
use inkstone_format::{Control, EncodeError, PromiseReason};

use crate::commit::room::or_left_out;
use crate::commit::shared::Shared;
use crate::commit::state::Guard;
use crate::commit::turn::HeldTurn;
use crate::error::{Error, Result};
use crate::options::{Frames, Options};
use crate::sync::Instant;

/// Optional promises (idle, close) are left out when less room than this is left for control
/// groups: later epochs and truncations need it more.
const PROMISE_ROOM_BYTES: u64 = CONTROL_RESERVE_BYTES / 2;

impl Shared {
    /// Changes to a segment that has room for records, unless another thread has done so meanwhile.
    ///
    /// # Errors
    /// [`Error::NoRoom`] and others that leave the log unchanged; or the poison.
    pub(crate) fn roll<'a>(&'a self, state: Guard<'a>, frames: Frames) -> Result<Guard<'a>> {
        let state = self.in_turn(state, |turn| turn.make_room_for(frames))?;
        self.after_turn(state)
    }
}

impl HeldTurn<'_> {
    fn has_room(&self, frames: Frames) -> bool {
        let room = Options::room_in(self.open_group.segment_bytes(), frames);
        self.open_group.record_room() >= room
    }

    fn make_room_for(&mut self, frames: Frames) -> Result<()> {
        if self.has_room(frames) {
            return Ok(());
        }
        self.set_changing(true);
        let started = Instant::now();
        self.begin_epoch()?;
        if !self.has_room(frames) {
            self.roll(self.shared.options.least_room(frames.bytes))?;
        }
        self.counted.stats.change.add(started.elapsed());
        Ok(())
    }

    /// Commits the open group, then writes a control group; in the next segment if this one has
    /// no room. Durable when it returns `Ok`.
    ///
    /// # Errors
    /// The poison; or why there is no next segment, and nothing has changed.
    pub(crate) fn control(&mut self, control: &Control) -> Result<()> {
        self.write()?;
        let would_rewrite = self.would_rewrite();
        let mut rolled = Ok(());
        if would_rewrite || self.open_group.control_room() < 2 * BLOCK_BYTES as u64 {
            let was_changing = self.set_changing(true);
            rolled = self.roll_for_control();
            self.set_changing(was_changing);
        }
        // The reserve of this segment is for a full disk.
        let no_room = match rolled {
            Err(no_room @ Error::NoRoom { .. }) if !would_rewrite => Some(no_room),
            rolled => rolled.map(|()| None)?,
        };
        match self.open_group.control(control) {
            Ok(()) => self.write(),
            Err(EncodeError::LsnsUsedUp) => Err(Error::UsedUp),
            Err(error) => {
                let why = format!("no room for a control group: {error}");
                Err(no_room.unwrap_or(Error::Invalid(why)))
            }
        }
    }

    /// Rolls; while there is no room for that, and the reserve of this segment is used up too,
    /// releases reserved room first.
    fn roll_for_control(&mut self) -> Result<()> {
        let shared = self.shared;
        let mut rolled = self.roll(0);
        while matches!(rolled, Err(Error::NoRoom { .. }))
            && self.open_group.control_room() < BLOCK_BYTES as u64
            && self.unlocked(|| shared.give_up_some())
        {
            rolled = self.roll(0);
        }
        rolled
    }

    /// Makes the epoch group of this opening durable, if it is not yet.
    ///
    /// # Errors
    /// [`Error::NoRoom`]: the epoch group and all other writes are held back; or the poison.
    pub(crate) fn begin_epoch(&mut self) -> Result<()> {
        let Some(epoch) = self.epoch_due() else { return Ok(()) };
        let begun = self.control(&epoch);
        if begun.is_ok() {
            self.set_epoch_due(None);
        }
        self.open_group.hold(begun.is_err());
        begun
    }

    /// Writes the open group, then a promise of all that is durable, unless the room is needed
    /// for other control groups. Not while records come: their group leaves a promise to be
    /// written.
    ///
    /// # Errors
    /// The poison.
    pub(crate) fn promise(&mut self, reason: PromiseReason) -> Result<()> {
        self.write()?;
        // Records that came during the write: a promise in their group would not cover them.
        if !self.open_group.is_empty() {
            return Ok(());
        }
        let promised = self.write_promise(reason);
        // Also if there is no room for it: then it would be tried again and again.
        self.wanted.promise = false;
        promised
    }

    fn write_promise(&mut self, reason: PromiseReason) -> Result<()> {
        let has_room = self.open_group.control_room() >= PROMISE_ROOM_BYTES;
        if self.epoch_due().is_some()
            || !has_room
            || self.open_group.control(&Control::Promise(reason)).is_err()
        {
            return Ok(());
        }
        if reason == PromiseReason::Close {
            self.open_group.clear_behind();
        }
        or_left_out(self.write())
    }
}
