//! Waiting: for a record, by a thread that may lead the commit or by a future; for the turn; and
//! records without a waiter.
//!
//! *Owns*: carrying out the commit rule (`rule.rs`); how threads sleep, the log's own and its
//! callers'; what comes after a turn. *May not touch*: how a group is written (`group.rs`).

use std::task::{Poll, Waker};
use std::time::Duration;

use inkstone_format::Lsn;

use crate::commit::rule::WaiterStep;
use crate::commit::shared::Shared;
use crate::commit::sleepers::{Sleepers, WaitQueue};
use crate::commit::state::{Doing, Guard, State};
use crate::commit::tasks::{Function, Task, Ticket};
use crate::commit::turn::HeldTurn;
use crate::error::{Error, Result};
use crate::sync::{FALLBACK, Ordering, lock};

impl Shared {
    /// Waits until the record is acknowledged: durable, unless the options say that being appended
    /// is enough.
    ///
    /// # Errors
    /// As [`Shared::wait`].
    pub(crate) fn acknowledge(&self, ticket: Ticket) -> Result<()> {
        let Ticket { lsn, cuts, .. } = ticket;
        self.check_process()?;
        if self.options.periodic.is_none() {
            return self.wait(lsn, cuts);
        }
        self.want(lsn);
        self.lock().outcome(lsn, cuts).unwrap_or(Ok(()))
    }

    /// Waits until the record is durable; leads the commit if the commit rule says so.
    ///
    /// # Errors
    /// The poison, if the record is above the watermark.
    pub(crate) fn wait(&self, lsn: Lsn, cuts: u64) -> Result<()> {
        let mut state = self.lock();
        let mut counted = None;
        let mut is_late = false;
        loop {
            if let Some(outcome) = state.outcome(lsn, cuts) {
                return outcome;
            }
            let is_open = lsn >= state.open_group.first_lsn();
            if !is_open {
                // It is in the group that is being written.
                let on = self.queue(WaitQueue::group(state.group().wrapping_sub(1)));
                match self.sleep_for_durable(on, state, FALLBACK, lsn) {
                    Some((locked, _)) => state = locked,
                    None => return Ok(()),
                }
                continue;
            }
            let group = state.group();
            if counted != Some(group) {
                counted = Some(group);
                is_late = false;
                state.rule.arrive();
            }
            let on = self.queue(WaitQueue::group(group));
            let is_writing = !state.is_turn_free();
            match state.rule.step(is_writing, is_late) {
                WaiterStep::Lead => state = self.commit(state)?,
                WaiterStep::Sleep => {
                    let Some((locked, slept)) = self.sleep_for_durable(on, state, FALLBACK, lsn)
                    else {
                        return Ok(());
                    };
                    state = locked;
                    // No thread writes or holds the timer, and none has woken this one.
                    let is_missed = slept
                        && state.is_turn_free()
                        && !state.rule.is_timed()
                        && group == state.group();
                    state.counted.stats.missed_wakeups += u64::from(is_missed);
                    is_late |= is_missed;
                }
                WaiterStep::Watch(linger) => {
                    match self.sleep_for_durable(on, state, linger, lsn) {
                        // Whoever holds the timer does not get the processor.
                        Some((locked, slept)) => (state, is_late) = (locked, slept),
                        None => return Ok(()),
                    }
                    is_late &= state.group() == group;
                }
                WaiterStep::Hold(linger) => {
                    match self.sleep_for_durable(on, state, linger, lsn) {
                        Some(woken) => (state, is_late) = woken,
                        None => return Ok(()),
                    }
                    if state.group() == group {
                        state.rule.timer();
                    } else {
                        is_late = false;
                    }
                }
            }
        }
    }

    /// Says what became of the record without waiting. If that is open, the future is in the queue
    /// from then on.
    pub(crate) fn poll(&self, ticket: &mut Ticket, waker: &Waker) -> Poll<Result<()>> {
        self.check_process()?;
        if ticket.lsn <= self.durable() {
            return Poll::Ready(Ok(()));
        }
        // Cloning a waker and dropping the clone run user code: both happen without the lock.
        let waker = waker.clone();
        let mut state = self.lock();
        if let Some(outcome) = state.outcome(ticket.lsn, ticket.cuts) {
            return Poll::Ready(outcome);
        }
        let replaced = state.tasks.wait(ticket, Task::Future(waker));
        if ticket.is_counted == Some(false) {
            ticket.is_counted = Some(self.count_task(&mut state, ticket.lsn));
        }
        drop(state);
        drop(replaced);
        Poll::Pending
    }

    /// A future is dropped: it is in the queue no more, and does not count as a waiter. True if it
    /// did.
    pub(crate) fn forget(&self, ticket: Ticket) -> bool {
        if self.is_forked() {
            return false;
        }
        let mut state = self.lock();
        let task = state.tasks.forget(ticket);
        let was_counted = ticket.is_counted == Some(true) && task.is_some();
        if was_counted {
            state.uncount_task(ticket);
        }
        drop(state);
        drop(task);
        was_counted
    }

    /// Counts a future or callback as a waiter of its group, if that is still open, and has the
    /// committer woken if it is to lead; in a periodic log the record is committed in time. False
    /// if it is to be asked again when the future is polled again.
    fn count_task(&self, state: &mut State, lsn: Lsn) -> bool {
        if lsn > state.reserved() {
            return false;
        }
        if self.options.periodic.is_some() {
            self.claim(state);
            return false;
        }
        let is_writing = !state.is_turn_free();
        if lsn >= state.open_group.first_lsn() && state.rule.task_arrives(is_writing) {
            state.wake_committer();
        }
        true
    }

    /// Calls the function with the outcome: now if it is known, else when it is.
    pub(crate) fn call_when_durable(&self, mut ticket: Ticket, function: Function) {
        if let Err(forked) = self.check_process() {
            return function(Err(forked));
        }
        let mut state = self.lock();
        match state.outcome(ticket.lsn, ticket.cuts) {
            None => {
                state.tasks.wait(&mut ticket, Task::Callback(function));
                self.count_task(&mut state, ticket.lsn);
            }
            Some(outcome) => {
                state.mark_tasks();
                state.tasks.call(function, outcome.map(|()| ticket.lsn));
            }
        }
    }

    /// The same under a lock of the caller's: whoever next marks tasks calls it. True if its outcome
    /// is known, so that [`Shared::call_due`] is to do that.
    pub(crate) fn call_when_due(&self, mut ticket: Ticket, function: Function) -> bool {
        let mut state = self.lock();
        let is_known = state.outcome(ticket.lsn, ticket.cuts).is_some();
        state.tasks.wait(&mut ticket, Task::Callback(function));
        if !is_known {
            self.count_task(&mut state, ticket.lsn);
        }
        is_known
    }

    /// Calls the callbacks whose outcome is known, unless another thread is at it.
    pub(crate) fn call_due(&self) {
        self.lock().mark_tasks();
        self.waking.call();
    }

    /// Asks the committer to commit what was just appended, which may never have a waiter.
    #[inline]
    pub(crate) fn claim(&self, state: &mut State) {
        if !self.unclaimed.swap(true, Ordering::Relaxed) {
            state.wake_committer();
        }
    }

    /// Asks the committer to commit up to `lsn` soon.
    #[inline]
    pub(crate) fn want(&self, lsn: Lsn) {
        // Checked before the lock is taken, since each record of a producer that does not wait
        // comes here. While it is set, the committer is awake or has a timer.
        if lsn > self.durable() && !self.unclaimed.load(Ordering::Relaxed) && !self.is_forked() {
            self.claim(&mut self.lock());
        }
    }
}

/// Sleeping, the turn, and what comes after it.
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
        if state.is_handed() {
            self.write_handed(state);
            return None;
        }
        if !std::ptr::eq(on, self.queue(WaitQueue::Committer)) {
            state.committer_goes(Doing::IsAway);
        }
        Some(state)
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

    /// Waits for the turn, does `work` with it, and ends it, whatever becomes of the work.
    ///
    /// # Errors
    /// When the log is poisoned or closed; those of the work.
    pub(crate) fn in_turn<'a>(
        &'a self,
        state: Guard<'a>,
        work: impl FnOnce(&mut HeldTurn<'a>) -> Result<()>,
    ) -> Result<Guard<'a>> {
        let mut turn = self.wait_for_turn(state)?;
        let done = work(&mut turn);
        let state = turn.end();
        done.map(|()| state)
    }

    fn wait_for_turn<'a>(&'a self, mut state: Guard<'a>) -> Result<HeldTurn<'a>> {
        loop {
            state = self.wake_before_turn(state);
            state.check_open()?;
            if state.is_turn_free() {
                return Ok(HeldTurn::take(self, state));
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
        if !state.wanted.files || self.prepares_ahead() {
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
            self.lock().wanted.files = true;
            self.preparer.notify_one();
            return Ok(());
        }
        // Other threads may leave files meanwhile, and say so.
        self.lock().wanted.files = false;
        if self.give_some_back()? {
            let mut state = self.lock();
            state.wanted.files = true;
            if state.committer_does() == Some(Doing::Rests) {
                state.wake_committer();
            }
        }
        Ok(())
    }

    /// Writes the open group.
    ///
    /// # Errors
    /// When the log is poisoned or closed.
    pub(crate) fn commit<'a>(&'a self, state: Guard<'a>) -> Result<Guard<'a>> {
        let state = self.in_turn(state, HeldTurn::write)?;
        self.after_turn(state)
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
        if !state.tasks.is_any_marked() {
            return state;
        }
        drop(state);
        self.lock()
    }

    /// For the committer: writes the group that was handed over, and ends the turn that came with
    /// it.
    pub(crate) fn write_handed<'a>(&'a self, state: Guard<'a>) {
        let state = self.wake_before_turn(state);
        let Some((mut turn, group)) = HeldTurn::take_handed(self, state) else { return };
        // A failed write poisons the log, which notifies every waiter.
        let _ = turn.write_closed(group);
        // A failure has poisoned the log.
        drop(self.after_turn(turn.end()));
    }
}
