//! The committer, the log's own thread: it writes full buffers, leads for futures and callbacks,
//! commits records without a waiter, makes room for callers that may not block, and writes the last
//! promise when the log is idle.
//!
//! *Owns*: when each of these is due. *May not touch*: how it is done (`commit/`, `change/`).

use std::time::Duration;

use inkstone_format::PromiseReason;

use crate::commit::rule::WaiterStep;
use crate::commit::shared::Shared;
use crate::commit::sleepers::WaitQueue;
use crate::commit::state::{Doing, SegmentWish, State};
use crate::options::Frames;
use crate::sync::{Instant, Ordering, try_lock};

/// While another thread gives files back, the committer looks again after this time.
const FILES_PAUSE: Duration = Duration::from_millis(10);

/// How long records without a waiter (of dropped handles) are gathered before they are committed: a
/// producer that does not wait puts many into one flush.
const LINGER: Duration = Duration::from_micros(200);

/// How long the log must have been idle before a promise of what is durable is written.
const IDLE: Duration = Duration::from_millis(100);

/// What is due now.
enum Due {
    Nothing,
    /// A group was handed over.
    Handed,
    /// Nothing before this time has passed.
    In(Duration),
    Commit,
    Roll(Frames),
    Promise,
    /// Files are to be given back, and nothing else is to be done.
    Files,
}

/// The thread's loop, until the log is closed or poisoned.
pub(crate) fn run(shared: &Shared) {
    // When the thread first saw that records must be committed.
    let mut since = None;
    let mut timer = None;
    shared.lock().enter_committer();
    loop {
        let mut state = shared.lock();
        state.committer_goes(Doing::Works);
        if state.has_ended() {
            return;
        }
        let due = match due_for_tasks(&mut state, &mut timer) {
            Some(Due::In(time)) => due(shared, &state, &mut since).or_in(time),
            Some(due) => due,
            None => due(shared, &state, &mut since),
        };
        match due {
            // The committer does not wait for the turn: a caller may hand it the turn meanwhile,
            // with a group to write.
            Due::Commit | Due::Roll(_) | Due::Promise if !state.is_turn_free() => {
                state.committer_goes(Doing::AwaitsTurn);
                drop(shared.sleep(shared.queue(WaitQueue::Committer), state));
            }
            Due::Nothing => {
                state.committer_goes(Doing::Rests);
                drop(shared.sleep_for(
                    shared.queue(WaitQueue::Committer),
                    state,
                    Duration::from_secs(3600),
                ));
            }
            Due::In(time) if timer.is_some() => shared.sleep_for_tasks(state, time),
            Due::In(time) => {
                drop(shared.sleep_for(shared.queue(WaitQueue::Committer), state, time))
            }
            Due::Handed => {
                since = None;
                shared.write_handed(state);
            }
            // A failed write poisons the log, which notifies every waiter.
            Due::Commit => {
                since = None;
                drop(shared.commit(state));
            }
            Due::Roll(frames) => {
                state.wanted.segment = SegmentWish::None;
                // The caller that asked has returned; the next caller that asks gets the error.
                if let Err(error) = shared.roll(state, frames).map(drop) {
                    let mut state = shared.lock();
                    state.wanted.segment = SegmentWish::Failed(error);
                    state.mark_tasks();
                }
            }
            Due::Files if try_lock(&shared.giving_back).is_none() => {
                drop(shared.sleep_for(shared.queue(WaitQueue::Committer), state, FILES_PAUSE));
            }
            Due::Files => {
                drop(state);
                // What has failed is tried again after the next change of segments.
                let _ = shared.give_files_back();
            }
            Due::Promise => {
                drop(shared.in_turn(state, |turn| turn.promise(PromiseReason::Idle)));
            }
        }
    }
}

impl Due {
    /// The same, or nothing before this time has passed.
    fn or_in(self, time: Duration) -> Self {
        match self {
            Self::Nothing => Self::In(time),
            Self::In(other) => Self::In(other.min(time)),
            due => due,
        }
    }
}

/// The timer that the committer holds for the tasks of a group.
struct Timer {
    group: u64,
    ends: Instant,
}

/// What is due for futures and callbacks: their group, as soon as all that are expected are there.
fn due_for_tasks(state: &mut State, timer: &mut Option<Timer>) -> Option<Due> {
    let has_other_work = state.is_handed() || asked(state).is_some() || state.wanted.room;
    // Tasks may leave. A timer that is held is seen to its end all the same: threads may count on
    // it.
    let holds = timer.as_ref().is_some_and(|timer| timer.group == state.group());
    if has_other_work || !(state.rule.is_for_committer() || holds) {
        return None;
    }
    if !state.is_turn_free() {
        return Some(Due::Commit);
    }
    let now = Instant::now();
    let left = |timer: &Timer| timer.ends.saturating_duration_since(now);
    let held =
        timer.take().filter(|timer| timer.group == state.group()).inspect(|_| state.rule.timer());
    let is_late = held.as_ref().is_some_and(|held| left(held).is_zero());
    if is_late && !state.rule.has_waiters() {
        state.rule.expect_no_tasks();
        return None;
    }
    let (WaiterStep::Hold(linger) | WaiterStep::Watch(linger)) = state.rule.step(false, is_late)
    else {
        return Some(Due::Commit);
    };
    let held = held.unwrap_or_else(|| Timer { group: state.group(), ends: now + linger });
    let time = left(&held);
    *timer = Some(held);
    Some(Due::In(time))
}

/// The frames for which a segment is asked.
fn asked(state: &State) -> Option<Frames> {
    match state.wanted.segment {
        SegmentWish::Asked(frames) => Some(frames),
        _ => None,
    }
}

fn due(shared: &Shared, state: &State, since: &mut Option<Instant>) -> Due {
    if state.is_handed() {
        return Due::Handed;
    }
    if let Some(frames) = asked(state) {
        return Due::Roll(frames);
    }
    if state.wanted.room && !state.open_group.is_empty() {
        return Due::Commit;
    }
    if state.open_group.is_empty() {
        // It was set for a group that has been closed since.
        shared.unclaimed.store(false, Ordering::Relaxed);
    }
    if shared.unclaimed.load(Ordering::Relaxed) {
        let first_seen = since.get_or_insert_with(Instant::now).elapsed();
        // The period begins with the oldest record of the open group.
        let (linger, waited) = match (shared.options.periodic, state.counted.open_for()) {
            (Some(max_age), Some(age)) => (max_age, age),
            _ => (LINGER, first_seen),
        };
        return match linger.checked_sub(waited) {
            Some(left) if !left.is_zero() => Due::In(left),
            _ => Due::Commit,
        };
    }
    *since = None;
    if !state.wanted.promise {
        let gives_back = state.wanted.files && !shared.prepares_ahead();
        return if gives_back { Due::Files } else { Due::Nothing };
    }
    let idle_for = state.counted.after_last_commit(Instant::now());
    match IDLE.checked_sub(idle_for) {
        Some(left) if !left.is_zero() => Due::In(left),
        // A waiter will commit.
        _ if state.rule.has_waiters() => Due::In(IDLE),
        // The promise is written after the open group, which may never have a waiter.
        _ => Due::Promise,
    }
}
