//! Waiting for a record: by a thread that may lead the commit, or by a future; and records without a waiter.
//!
//! *Owns*: carrying out the gathering rule (`rule.rs`). *May not touch*: how a group is written (`group.rs`).

use std::task::Waker;

use inkstone_format::Lsn;
use inkstone_io::Directory;

use crate::commit::rule::Step;
use crate::commit::shared::Shared;
use crate::commit::waking::Waiting;
use crate::error::{Error, Result};
use crate::sync::{FALLBACK, Ordering};

impl<D: Directory> Shared<D> {
    /// Waits until the record is acknowledged: durable, unless the options say that being appended is enough.
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
            if state.closed {
                return Err(Error::Closed);
            }
            let gathered = lsn >= state.gathering.first_lsn();
            if !gathered {
                // It is in the group that is being written.
                let on = &self.groups[(state.group.wrapping_sub(1) % 2) as usize];
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
            let on = &self.groups[(group % 2) as usize];
            let is_writing = state.taken;
            match state.rule.step(is_writing, is_late) {
                Step::Lead => state = self.commit(state)?,
                Step::Sleep => {
                    let Some((locked, slept)) = self.sleep_for_durable(on, state, FALLBACK, lsn) else {
                        return Ok(());
                    };
                    state = locked;
                    // No thread writes or holds the timer, and none has woken this one.
                    let is_missed =
                        slept && !state.taken && !state.rule.is_timed() && counted == Some(state.group);
                    state.stats.missed_wakeups += u64::from(is_missed);
                    is_late |= is_missed;
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

    /// Returns the outcome without waiting; leaves the waker if it is still open.
    pub(crate) fn poll(&self, lsn: Lsn, cuts: usize, waker: &Waker) -> Option<Result<()>> {
        if let Err(forked) = self.check_process() {
            return Some(Err(forked));
        }
        if lsn <= self.durable() {
            return Some(Ok(()));
        }
        // Cloning a waker and dropping the clone run user code: both happen without the lock.
        let mut waker = Some(waker.clone());
        let mut state = self.lock();
        if let Some(outcome) = state.outcome(lsn, cuts) {
            return Some(outcome);
        }
        if state.closed {
            return Some(Err(Error::Closed));
        }
        if self.options.periodic.is_some() {
            drop(state);
            self.want(lsn);
            return Some(Ok(()));
        }
        let is_there = |future: &Waiting| {
            future.lsn == lsn && waker.as_ref().is_some_and(|waker| future.waker.will_wake(waker))
        };
        if !state.futures.iter().any(is_there)
            && let Some(waker) = waker.take()
        {
            state.futures.push(Waiting { lsn, cuts, waker });
        }
        drop(state);
        self.want(lsn);
        None
    }

    /// Asks the committer to commit what was just gathered, which may never have a waiter. The caller has the lock.
    #[inline]
    pub(crate) fn claim(&self) {
        if !self.unclaimed.swap(true, Ordering::Relaxed) {
            self.committer.notify_one();
        }
    }

    /// Asks the committer to commit up to `lsn` soon.
    #[inline]
    pub(crate) fn want(&self, lsn: Lsn) {
        if lsn <= self.durable() || self.is_forked() {
            return;
        }
        // Checked before the lock is taken, since each record of a producer that does not wait comes here. While it is set, the
        // committer is awake or has a timer.
        if !self.unclaimed.load(Ordering::Relaxed) {
            let _state = self.lock();
            self.claim();
        }
    }
}
