//! Waiting for the turn, and committing with it.
//!
//! *Owns*: how threads sleep, the log's own and its callers'; taking the turn, and what comes after
//! it; writing the gathering, or a group that was handed over. *May not touch*: which record a
//! caller waits for (`wait.rs`).

use std::time::Duration;

use inkstone_format::Lsn;

use crate::commit::shared::{Shared, Turn};
use crate::commit::sleepers::{Sleepers, WaitQueue};
use crate::commit::state::Guard;
use crate::commit::writer::Way;
use crate::error::{Error, Result};
use crate::sync::{FALLBACK, lock};

impl Shared {
    /// Sleeps until woken.
    pub(crate) fn sleep<'a>(&'a self, on: &Sleepers, state: Guard<'a>) -> Guard<'a> {
        self.sleep_for(on, state, FALLBACK).0
    }

    pub(crate) fn sleep_for<'a>(
        &'a self,
        on: &Sleepers,
        state: Guard<'a>,
        time: Duration,
    ) -> (Guard<'a>, bool) {
        let Some(state) = self.write_what_is_handed_here(on, state) else {
            return (self.lock(), false);
        };
        let timed_out = on.sleep(state, time, None, || self.is_panicked());
        (self.lock(), timed_out)
    }

    /// For the committer: sleeps for `time`, or until the tasks that it expects have come. They
    /// come at once, so it yields first.
    pub(crate) fn sleep_for_tasks<'a>(&'a self, state: Guard<'a>, time: Duration) {
        let on = self.queue(WaitQueue::Committer);
        if let Some(state) = self.write_what_is_handed_here(on, state) {
            on.sleep(state, time, Some(&self.yielding_for_tasks), || self.is_panicked());
        }
    }

    /// A waker, callback or listener on the committer's thread may append and wait there. If a
    /// group was handed to the committer meanwhile, this writes it first, since no other thread
    /// would. `None` if there was one. If one is handed over later, all sleeping threads are woken,
    /// and this one comes here again.
    fn write_what_is_handed_here<'a>(
        &'a self,
        on: &Sleepers,
        mut state: Guard<'a>,
    ) -> Option<Guard<'a>> {
        if !state.is_committer_here() {
            return Some(state);
        }
        if state.handed.is_none() {
            state.committer_is_away = !std::ptr::eq(on, self.queue(WaitQueue::Committer));
            return Some(state);
        }
        self.write_handed(state);
        None
    }

    /// As [`Shared::sleep_for`]; returns `None`, without taking the lock again, if the record is
    /// durable by then. So the waiters that a group wakes need not queue for the lock. (A cut that
    /// lowers the watermark makes everything before it durable first.)
    pub(super) fn sleep_for_durable<'a>(
        &'a self,
        on: &Sleepers,
        state: Guard<'a>,
        time: Duration,
        lsn: Lsn,
    ) -> Option<(Guard<'a>, bool)> {
        let Some(state) = self.write_what_is_handed_here(on, state) else {
            return Some((self.lock(), false));
        };
        let is_durable = || lsn <= self.durable();
        let is_over = || is_durable() || self.is_panicked();
        let timed_out = on.sleep(state, time, Some(&self.yielding), is_over);
        if is_durable() { None } else { Some((self.lock(), timed_out)) }
    }

    /// Waits for the turn and takes it.
    ///
    /// # Errors
    /// When the log is poisoned or closed.
    pub(crate) fn take_turn<'a>(&'a self, mut state: Guard<'a>) -> Result<(Guard<'a>, Turn<'a>)> {
        loop {
            state = self.wake_before_turn(state);
            state.check_open()?;
            if !state.taken {
                state.taken = true;
                return Ok((state, self.turn_in_hand()));
            }
            state = self.sleep(self.queue(WaitQueue::Room), state);
        }
    }

    /// After a turn: in a log without a preparer the thread gives back a few files that are not
    /// needed any more.
    ///
    /// # Errors
    /// The poison, if a sync failed. What failed otherwise is tried again after the next change of
    /// segments, at the latest by the next opening.
    pub(crate) fn after_turn<'a>(&'a self, state: Guard<'a>) -> Result<Guard<'a>> {
        if !state.files_wanted || self.prepares_ahead() {
            return Ok(state);
        }
        drop(state);
        match self.give_files_back() {
            Err(poisoned @ Error::Poisoned(_)) => Err(poisoned),
            _ => Ok(self.lock()),
        }
    }

    /// Gives back files that are not needed any more, a few, or has the preparer do that. No thread
    /// is kept from the turn meanwhile.
    ///
    /// # Errors
    /// A file could not be renamed or removed; the poison, if a sync failed.
    pub(crate) fn give_files_back(&self) -> Result<()> {
        if self.prepares_ahead() {
            self.lock().files_wanted = true;
            self.preparer.notify_one();
            return Ok(());
        }
        // Other threads may leave files meanwhile, and say so.
        self.lock().files_wanted = false;
        if self.give_some_back()? {
            let mut state = self.lock();
            state.files_wanted = true;
            if std::mem::take(&mut state.committer_rests) {
                state.wake_ups.one(WaitQueue::Committer);
            }
        }
        Ok(())
    }

    /// Writes what is gathered now.
    ///
    /// # Errors
    /// When the log is poisoned or closed.
    pub(crate) fn commit<'a>(&'a self, state: Guard<'a>) -> Result<Guard<'a>> {
        let (state, turn) = self.take_turn(state)?;
        let (state, result) = self.write_gathered(state);
        let state = self.end_turn(state, turn);
        result.and_then(|()| self.after_turn(state))
    }

    /// Waits until no thread has the turn or gives files back. The log is closed: none begins to
    /// any more.
    pub(crate) fn wait_for_last_turn(&self) {
        let mut state = self.lock();
        while state.is_in_turn() {
            // Not awake for the mark of any other panic, which stays: this would turn in a circle
            // as long as the turn lasts.
            self.queue(WaitQueue::Room).sleep(state, FALLBACK, None, || self.is_turn_lost());
            state = self.lock();
        }
        drop(state);
        // A thread that gives files back sees now that the log is closed.
        drop(lock(&self.giving_back));
    }

    /// Runs the wakers and callbacks that an earlier turn has marked: inside the next one they
    /// could wait for it.
    fn wake_before_turn<'a>(&'a self, state: Guard<'a>) -> Guard<'a> {
        if state.woken.is_empty() {
            return state;
        }
        drop(state);
        self.lock()
    }

    /// For the committer: writes the group that was handed over, and ends the turn that came with
    /// it.
    pub(crate) fn write_handed<'a>(&'a self, state: Guard<'a>) {
        let mut state = self.wake_before_turn(state);
        let Some(group) = state.handed.take() else { return };
        let turn = self.turn_in_hand();
        // A failed write poisons the log, which notifies every waiter.
        let (state, _) = self.write_closed(state, group, &Way::Usual, None);
        // A failure has poisoned the log.
        drop(self.after_turn(self.end_turn(state, turn)));
    }
}
