//! Control groups: the log's own frames between the records.
//!
//! *Owns*: the epoch of an opening, promises, the frames of a truncation, and the segment changes
//! that these need. *May not touch*: the order of a segment change (`roll.rs`).

use inkstone_format::limits::{BLOCK_BYTES, CONTROL_RESERVE_BYTES};
use inkstone_format::{Control, EncodeError, PromiseReason};

use crate::commit::room::{Need, or_left_out};
use crate::commit::shared::Shared;
use crate::commit::state::Guard;
use crate::error::{Error, Result};
use crate::sync::Instant;

/// Optional promises (idle, close) are left out when less room than this is left for control
/// groups: later epochs and truncations need it more.
const PROMISE_ROOM_BYTES: u64 = CONTROL_RESERVE_BYTES / 2;

impl Shared {
    /// Changes to a segment that has room for records of `frame_bytes`, unless another thread has
    /// done so meanwhile.
    ///
    /// # Errors
    /// [`Error::NoRoom`] and others that leave the log unchanged; or the poison.
    pub(crate) fn roll<'a>(&'a self, state: Guard<'a>, frame_bytes: u64) -> Result<Guard<'a>> {
        let (mut state, turn) = self.take_turn(state)?;
        if state.gathering.record_room() >= frame_bytes {
            return Ok(self.end_turn(state, turn));
        }
        state.changing = true;
        let started = Instant::now();
        let (mut state, mut result) = self.begin_epoch(state);
        if result.is_ok() && state.gathering.record_room() < frame_bytes {
            (state, result) = self.roll_in_turn(state, frame_bytes);
        }
        if result.is_ok() {
            state.stats.change.add(started.elapsed());
        }
        let state = self.end_turn(state, turn);
        result.and_then(|()| self.after_turn(state))
    }

    /// Commits what is gathered, then writes a control group; in the next segment if this one has
    /// no room. Durable when it returns `Ok`.
    ///
    /// # Errors
    /// The poison; or why there is no next segment, and nothing has changed.
    pub(crate) fn control<'a>(
        &'a self,
        state: Guard<'a>,
        control: &Control,
    ) -> (Guard<'a>, Result<()>) {
        let (mut state, mut result) = self.write_gathered(state);
        if result.is_err() {
            return (state, result);
        }
        let would_rewrite = self.would_rewrite(&state);
        if would_rewrite || state.gathering.control_room() < 2 * BLOCK_BYTES as u64 {
            let was_changing = std::mem::replace(&mut state.changing, true);
            (state, result) = self.roll_in_turn(state, 0);
            // Even the reserve of this segment is used up.
            while matches!(result, Err(Error::NoRoom { .. }))
                && self.options.keeps_room
                && state.gathering.control_room() < BLOCK_BYTES as u64
                && self.give_up_some()
            {
                (state, result) = self.roll_in_turn(state, 0);
            }
            state.changing = was_changing;
            // The reserve of this segment is for a full disk.
            let is_last = matches!(result, Err(Error::NoRoom { .. })) && !would_rewrite;
            if result.is_err() && !is_last {
                return (state, result);
            }
        }
        match state.gathering.control(control) {
            Ok(()) => self.write_control(state, Need::Must),
            Err(EncodeError::LsnsUsedUp) => (state, Err(Error::UsedUp)),
            Err(error) => {
                let why = format!("no room for a control group: {error}");
                (state, Err(result.err().unwrap_or(Error::Invalid(why))))
            }
        }
    }

    /// Makes the epoch group of this opening durable, if it is not yet. The caller has the turn.
    ///
    /// # Errors
    /// [`Error::NoRoom`]: the epoch group and all other writes are held back; or the poison.
    pub(crate) fn begin_epoch<'a>(&'a self, state: Guard<'a>) -> (Guard<'a>, Result<()>) {
        let Some(epoch) = state.epoch_due else { return (state, Ok(())) };
        let (mut state, result) = self.control(state, &epoch);
        if result.is_ok() {
            state.epoch_due = None;
        }
        state.gathering.hold(result.is_err());
        (state, result)
    }

    /// Writes a promise of what is durable, unless the room is needed for other control groups.
    ///
    /// # Errors
    /// The poison.
    pub(crate) fn promise<'a>(
        &'a self,
        state: Guard<'a>,
        reason: PromiseReason,
    ) -> (Guard<'a>, Result<()>) {
        let (mut state, result) = self.write_gathered(state);
        if result.is_err()
            || state.epoch_due.is_some()
            || state.gathering.control_room() < PROMISE_ROOM_BYTES
        {
            state.unpromised = false;
            return (state, result);
        }
        if state.gathering.control(&Control::Promise(reason)).is_err() {
            return (state, Ok(()));
        }
        if reason == PromiseReason::Close {
            state.gathering.clear_behind();
        }
        let (mut state, result) = self.write_control(state, Need::May);
        state.unpromised = false;
        (state, or_left_out(result))
    }
}
