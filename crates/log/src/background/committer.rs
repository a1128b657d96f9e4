//! The committer, the log's own thread: it writes full buffers, commits records that no thread waits for, makes room for callers
//! that may not block, and writes the last promise when the log is idle.
//!
//! *Owns*: when each of these is due. *May not touch*: how it is done (`commit/`, `change/`).

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
    /// A group was handed over.
    Handed,
    /// Nothing before this time has passed.
    In(Duration),
    Commit,
    Roll(u64),
    Promise,
}

/// The thread's loop, until the log is closed or poisoned.
pub(crate) fn run<D: Directory>(shared: &Shared<D>) {
    // When the thread first saw that records must be committed.
    let mut since = None;
    shared.lock().committer = Some(this_thread());
    loop {
        let mut state = shared.lock();
        state.committer_rests = false;
        if state.closed || state.poison.is_some() {
            return;
        }
        match due(shared, &state, &mut since) {
            // The committer does not wait for the turn: a caller may hand it the turn meanwhile, with a group to write.
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
            // A failed write poisons the log, which notifies every waiter.
            Due::Commit => {
                since = None;
                drop(shared.commit(state));
            }
            Due::Roll(bytes) => {
                state.roll_wanted = None;
                // The caller that asked has returned; the next caller that asks gets the error.
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
        // It was set for a group that has been closed since.
        shared.unclaimed.store(false, Ordering::Relaxed);
    }
    if shared.unclaimed.load(Ordering::Relaxed) {
        let first_seen = since.get_or_insert_with(Instant::now).elapsed();
        // The period begins with the oldest record that is gathered.
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
        // A waiter will commit.
        _ if state.rule.has_waiters() => Due::In(shared.options.idle),
        // The promise is written after what is gathered, which may have no waiter ever.
        _ => Due::Promise,
    }
}
