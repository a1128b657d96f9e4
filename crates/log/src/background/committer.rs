//! The log's own thread: it writes full buffers, commits what nobody waits for, makes room for those who may not block, and
//! writes the last promise when the log has been idle.
//!
//! *Owns*: when that is due. *May not touch*: how it is done (`commit/`, `change/`).

use std::time::Duration;

use inkstone_format::PromiseReason;
use inkstone_io::Directory;

use crate::commit::shared::Shared;
use crate::commit::state::State;
use crate::error::Result;
use crate::sync::{Instant, Ordering, this_thread};

/// What is due now.
enum Due {
    Nothing,
    /// What was handed over.
    Handed,
    /// Not yet: in this time.
    In(Duration),
    Commit,
    Roll(u64),
    Promise,
}

/// What the thread does, until the log is closed or poisoned.
pub(crate) fn run<D: Directory>(shared: &Shared<D>) {
    // When what is wanted now was first seen.
    let mut since = None;
    shared.lock().committer = Some(this_thread());
    loop {
        let mut state = shared.lock();
        state.committer_rests = false;
        if state.closed || state.poison.is_some() {
            return;
        }
        match due(shared, &state, &mut since) {
            // Not by waiting for the turn: it may be handed to this thread meanwhile, with a group to write.
            Due::Commit | Due::Roll(_) | Due::Promise if state.taken => {
                state.committer_waits = true;
                drop(shared.sleep(&shared.committer, state));
            }
            Due::Nothing => {
                state.committer_rests = true;
                drop(shared.sleep_for(&shared.committer, state, Duration::from_secs(3600)));
            }
            Due::In(time) => drop(shared.sleep_for(&shared.committer, state, time)),
            Due::Handed => {
                since = None;
                shared.write_handed(state);
            }
            // A failed write poisons the log, and that is how everybody learns of it.
            Due::Commit => {
                since = None;
                drop(shared.commit(state));
            }
            Due::Roll(bytes) => {
                state.roll_wanted = None;
                // The caller that asked has gone; the next one that asks gets the reason why there is no segment.
                if let Err(error) = shared.roll(state, bytes).map(drop) {
                    let mut state = shared.lock();
                    state.roll_error = Some(error);
                    state.wake_room();
                }
            }
            Due::Promise => {
                let _: Result<()> = shared.take_turn(state).and_then(|(state, turn)| {
                    let (state, result) = shared.promise(state, PromiseReason::Idle);
                    drop(shared.end_turn(state, turn));
                    result
                });
            }
        }
    }
}

fn due<D: Directory>(shared: &Shared<D>, state: &State, since: &mut Option<Instant>) -> Due {
    if state.handed.is_some() {
        return Due::Handed;
    }
    if let Some(bytes) = state.roll_wanted {
        return Due::Roll(bytes);
    }
    if state.room_wanted && !state.gathering.is_empty() {
        return Due::Commit;
    }
    if state.gathering.is_empty() {
        // Set for a group that is being written, or was.
        shared.unclaimed.store(false, Ordering::Relaxed);
    }
    if shared.unclaimed.load(Ordering::Relaxed) {
        let first_seen = since.get_or_insert_with(Instant::now).elapsed();
        // A period begins with the oldest record that it is a promise about.
        let (linger, waited) = match (shared.options.periodic, &state.gathered_since) {
            (Some(max_age), Some(oldest)) => (max_age, oldest.elapsed()),
            _ => (shared.options.linger, first_seen),
        };
        return match linger.checked_sub(waited) {
            Some(left) if !left.is_zero() => Due::In(left),
            _ => Due::Commit,
        };
    }
    *since = None;
    if !state.unpromised {
        return Due::Nothing;
    }
    match shared.options.idle.checked_sub(state.last_commit.elapsed()) {
        Some(left) if !left.is_zero() => Due::In(left),
        // Somebody waits, and will commit.
        _ if state.rule.has_waiters() => Due::In(shared.options.idle),
        // What is gathered goes with it: the caller that appended it may never wait for it.
        _ => Due::Promise,
    }
}
