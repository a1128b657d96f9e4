//! The turn in the hand of the thread that has it, together with the state's lock.
//!
//! *Owns*: that a turn ends, whatever happens in it. *May not touch*: what is done in a turn
//! (`group.rs`, `change/`), waiting for it (`wait.rs`).

use std::ops::{Deref, DerefMut};

use crate::commit::open_group::Group;
use crate::commit::shared::Shared;
use crate::commit::sleepers::WaitQueue;
use crate::commit::state::{Doing, Guard, State};
use crate::error::Error;
use crate::sync::Ordering;

/// The turn: the right to write, roll or cut. It owns the guard of the state, so its holder reads
/// and changes the state through it; [`HeldTurn::unlocked`] alone releases the lock.
///
/// If it is dropped without [`HeldTurn::end`] (by a panic), it poisons the log, whose state may be
/// half changed. The unwinding thread may hold the state's lock itself; then it only leaves a mark,
/// and the next thread that locks poisons the log.
pub(crate) struct HeldTurn<'a> {
    pub(crate) shared: &'a Shared,
    /// `None` inside of `unlocked` alone, where nobody can ask.
    state: Option<Guard<'a>>,
}

impl<'a> HeldTurn<'a> {
    /// Takes the turn, which is free.
    pub(super) fn take(shared: &'a Shared, mut state: Guard<'a>) -> Self {
        state.take_turn();
        Self { shared, state: Some(state) }
    }

    /// For the committer: takes the turn that was handed to it, with its group.
    pub(super) fn take_handed(shared: &'a Shared, mut state: Guard<'a>) -> Option<(Self, Group)> {
        let group = state.take_handed()?;
        Some((Self { shared, state: Some(state) }, group))
    }

    /// Runs `work` without the state's lock. The turn remains taken meanwhile.
    pub(crate) fn unlocked<T>(&mut self, work: impl FnOnce() -> T) -> T {
        self.state = None;
        let done = work();
        self.state = Some(self.shared.lock());
        done
    }

    /// Poisons the log, unless it is poisoned already, and returns the poison as an error.
    pub(crate) fn poison(&mut self, cause: Error) -> Error {
        self.shared.poison(self, cause)
    }

    /// Leaves the turn, still taken, to the committer, with a group that was closed.
    pub(super) fn hand_on(self, group: Group) -> Guard<'a> {
        let shared = self.shared;
        let mut state = self.into_guard();
        state.hand_turn(group);
        if state.committer_does() == Some(Doing::IsAway) {
            // The committer is blocked in user code and may wait on any bell: ring them all.
            shared.wake_all();
        } else {
            state.wake_committer();
        }
        state
    }

    /// Ends the turn, and sends its events.
    pub(crate) fn end(self) -> Guard<'a> {
        let shared = self.shared;
        let mut state = self.into_guard();
        give_back(shared, &mut state);
        shared.tell_all(state)
    }

    fn into_guard(mut self) -> Guard<'a> {
        let state = self.state.take().expect(LOCKED);
        std::mem::forget(self);
        state
    }
}

/// Wakes who waits for the turn, and who waited for what was done in it.
fn give_back(shared: &Shared, state: &mut State) {
    state.free_turn();
    state.mark_tasks();
    state.wake_ups.all(WaitQueue::Room);
    if state.is_poisoned() {
        shared.wake_all();
        return;
    }
    // One waiter of the next group takes over: it leads at once, or holds the timer.
    let open_group = WaitQueue::group(state.group());
    state.wake_ups.one(open_group);
    // A committer with a timer wakes by itself: waking it after each group would cost a lone writer
    // a switch each time.
    let is_due = match state.committer_does() {
        Some(Doing::AwaitsTurn) => true,
        Some(Doing::Rests) => state.wanted.promise,
        _ => false,
    };
    let is_wanted = shared.unclaimed.load(Ordering::Relaxed) || state.rule.is_for_committer();
    if is_due || is_wanted {
        state.wake_committer();
    }
}

const LOCKED: &str = "the state is locked outside of `unlocked`";

impl Drop for HeldTurn<'_> {
    fn drop(&mut self) {
        self.shared.mark_turn_lost();
    }
}

impl Deref for HeldTurn<'_> {
    type Target = State;

    #[inline]
    fn deref(&self) -> &State {
        self.state.as_ref().expect(LOCKED)
    }
}

impl DerefMut for HeldTurn<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut State {
        self.state.as_mut().expect(LOCKED)
    }
}
