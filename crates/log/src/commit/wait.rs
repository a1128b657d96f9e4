//! Waiting for a record: by a thread that may lead the commit, or by a future; and records without
//! a waiter.
//!
//! *Owns*: carrying out the gathering rule (`rule.rs`). *May not touch*: how a group is written
//! (`group.rs`).

use std::task::Waker;

use inkstone_format::Lsn;

use crate::commit::callbacks::{Decided, Function};
use crate::commit::futures::{Callback, Ticket};
use crate::commit::rule::Step;
use crate::commit::shared::Shared;
use crate::commit::sleepers::WaitQueue;
use crate::commit::state::State;
use crate::error::Result;
use crate::sync::{FALLBACK, Ordering};

impl Shared {
    /// Waits until the record is acknowledged: durable, unless the options say that being appended
    /// is enough.
    ///
    /// # Errors
    /// As [`Shared::wait`].
    pub(crate) fn acknowledge(&self, lsn: Lsn, cuts: usize) -> Result<()> {
        self.check_process()?;
        if self.options.periodic.is_none() {
            return self.wait(lsn, cuts);
        }
        self.want(lsn);
        self.lock().outcome(lsn, cuts).unwrap_or(Ok(()))
    }

    /// Waits until the record is durable; leads the commit if the gathering rule says so.
    ///
    /// # Errors
    /// The poison, if the record is above the watermark.
    pub(crate) fn wait(&self, lsn: Lsn, cuts: usize) -> Result<()> {
        let mut state = self.lock();
        let mut counted = None;
        let mut is_late = false;
        loop {
            if let Some(outcome) = state.outcome(lsn, cuts) {
                return outcome;
            }
            let gathered = lsn >= state.gathering.first_lsn();
            if !gathered {
                // It is in the group that is being written.
                let on = self.queue(WaitQueue::group(state.group.wrapping_sub(1)));
                match self.sleep_for_durable(on, state, FALLBACK, lsn) {
                    Some((locked, _)) => state = locked,
                    None => return Ok(()),
                }
                continue;
            }
            if counted != Some(state.group) {
                counted = Some(state.group);
                is_late = false;
                state.rule.arrive();
            }
            let group = state.group;
            let on = self.queue(WaitQueue::group(group));
            let is_writing = state.taken;
            match state.rule.step(is_writing, is_late) {
                Step::Lead => state = self.commit(state)?,
                Step::Sleep => {
                    let Some((locked, slept)) = self.sleep_for_durable(on, state, FALLBACK, lsn)
                    else {
                        return Ok(());
                    };
                    state = locked;
                    // No thread writes or holds the timer, and none has woken this one.
                    let is_missed = slept
                        && !state.taken
                        && !state.rule.is_timed()
                        && counted == Some(state.group);
                    state.stats.missed_wakeups += u64::from(is_missed);
                    is_late |= is_missed;
                }
                Step::Watch(linger) => {
                    match self.sleep_for_durable(on, state, linger, lsn) {
                        // Whoever holds the timer does not get the processor.
                        Some((locked, slept)) => (state, is_late) = (locked, slept),
                        None => return Ok(()),
                    }
                    is_late &= state.group == group;
                }
                Step::Hold(linger) => {
                    match self.sleep_for_durable(on, state, linger, lsn) {
                        Some(woken) => (state, is_late) = woken,
                        None => return Ok(()),
                    }
                    if state.group == group {
                        state.rule.timer();
                    } else {
                        is_late = false;
                    }
                }
            }
        }
    }

    /// Returns the outcome without waiting. If it is still open, leaves the waker in the place that
    /// `ticket` names from then on.
    pub(crate) fn poll(
        &self,
        lsn: Lsn,
        cuts: usize,
        ticket: &mut Option<Ticket>,
        waker: &Waker,
    ) -> Option<Result<()>> {
        if let Err(forked) = self.check_process() {
            return Some(Err(forked));
        }
        if lsn <= self.durable() {
            return Some(Ok(()));
        }
        // Cloning a waker and dropping the clone run user code: both happen without the lock.
        let waker = waker.clone();
        let mut state = self.lock();
        if let Some(outcome) = state.outcome(lsn, cuts) {
            return Some(outcome);
        }
        if self.options.periodic.is_some() {
            drop(state);
            self.want(lsn);
            return Some(Ok(()));
        }
        let is_counted = ticket.is_some();
        let replaced = state.waiting_for(lsn).futures.leave(ticket, waker);
        if !is_counted {
            self.count_task(&mut state, lsn);
        }
        drop(state);
        drop(replaced);
        None
    }

    /// A future that was polled is dropped: frees the place of its waker, and does not count it as
    /// a waiter any more.
    pub(crate) fn forget_future(&self, lsn: Lsn, cuts: usize, ticket: Ticket) {
        if lsn <= self.durable() || self.is_forked() {
            return;
        }
        let mut state = self.lock();
        // If it is decided, its waker was taken, or will be at the end of the turn.
        if state.outcome(lsn, cuts).is_none() {
            let waker = state.waiting_for(lsn).futures.forget(ticket);
            if waker.is_some() {
                state.uncount_task(lsn);
            }
            drop(state);
            drop(waker);
        }
    }

    /// Counts a future or callback as a waiter of its group, if that is still gathered. The
    /// committer is woken if it is to lead.
    pub(super) fn count_task(&self, state: &mut State, lsn: Lsn) {
        let is_writing = state.taken;
        if lsn >= state.gathering.first_lsn() && state.rule.task_arrives(is_writing) {
            state.wake_ups.one(WaitQueue::Committer);
        }
    }

    /// Calls the function with the outcome: now if it is known, else when it is.
    pub(crate) fn call_when_durable(&self, lsn: Lsn, cuts: usize, function: Function) {
        if let Err(forked) = self.check_process() {
            return function(Err(forked));
        }
        let mut state = self.lock();
        match state.outcome(lsn, cuts) {
            None => {
                state.waiting_for(lsn).callbacks.push(Callback { lsn, cuts, function });
                match self.options.periodic {
                    Some(_) => self.claim(&mut state),
                    None => self.count_task(&mut state, lsn),
                }
            }
            // Those before it are called at the end of the turn.
            Some(_) if state.written.has_callbacks() => {
                state.written.push(Callback { lsn, cuts, function });
            }
            // The guard calls it, after those that are due already.
            Some(outcome) => {
                state.woken.decided.push(Decided { function, outcome: outcome.map(|()| lsn) })
            }
        }
        drop(state);
    }

    /// Asks the committer to commit what was just gathered, which may never have a waiter.
    #[inline]
    pub(crate) fn claim(&self, state: &mut State) {
        if !self.unclaimed.swap(true, Ordering::Relaxed) {
            state.wake_ups.one(WaitQueue::Committer);
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
