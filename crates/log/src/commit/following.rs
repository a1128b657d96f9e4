//! How threads and tasks wait for the watermark.
//!
//! *Owns*: when a follower sleeps, what a task that awaits the watermark has registered, and that a
//! reader wants the tail. *May not touch*: what is read (`read/`), the waiters of records
//! (`wait.rs`), whose rule it is when a group is written.
//!
//! A follower that is awake asks for the watermark without a lock. Only before it sleeps it takes
//! the state's lock, so that no group becomes durable between its last look and its sleep. When it
//! wakes, it asks again without the lock, which the writer needs then. Where writers come back at
//! once it polls first (`shared_page.rs`), and after a pause that ran out it sleeps.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use inkstone_format::Lsn;

use crate::commit::shared::Shared;
use crate::commit::shared_page::POLL_PAUSE;
use crate::commit::tasks::Ticket;
use crate::error::Result;
use crate::sync::{FALLBACK, Instant};

impl Shared {
    /// From now on the tail is kept: a reader comes.
    pub(crate) fn keep_tail(&self) {
        if self.options.tail_bytes > 0 && !self.is_forked() && !self.tail.is_wanted() {
            let state = self.lock();
            self.tail.want(state.durable());
        }
    }

    /// The watermark, and the number of cuts before it. In a forked child, as far as that is known
    /// without a lock.
    pub(crate) fn watermark_and_cuts(&self) -> (Lsn, u64) {
        if self.is_forked() {
            return (self.durable(), 0);
        }
        let state = self.lock();
        (state.durable(), state.cut_count())
    }

    /// The lowest last LSN that the cuts after the first `cuts` ones have kept.
    pub(crate) fn lowest_cut_since(&self, cuts: u64) -> Option<Lsn> {
        self.lock().lowest_cut_since(cuts)
    }

    /// Waits until `lsn` is durable or the log was cut, closed or poisoned, or `until` is past.
    ///
    /// # Errors
    /// The poison, or that the log is closed, if the record is not durable.
    pub(crate) fn follow(&self, lsn: Lsn, cuts: u64, until: Option<Instant>) -> Result<()> {
        let is_durable = || lsn <= self.durable();
        let mut has_polled = false;
        while !is_durable() {
            let state = self.lock();
            if is_durable() || state.cut_count() != cuts {
                break;
            }
            state.check_open()?;
            let left = until.map_or(FALLBACK, |until| {
                until.saturating_duration_since(Instant::now()).min(FALLBACK)
            });
            if left.is_zero() {
                break;
            }
            if state.is_committer_here() {
                drop(self.sleep_for(&self.followers, state, left));
                continue;
            }
            let is_over = || is_durable() || self.is_panicked();
            if state.publishing.polls_go_on() && !has_polled {
                has_polled = self.pollers.sleep(state, left.min(POLL_PAUSE), None, is_over);
            } else {
                self.followers.sleep(state, left, None, is_over);
            }
        }
        Ok(())
    }
}

/// Ready when `lsn` is durable or the log was cut; an error when the log is poisoned or closed and
/// `lsn` is not durable.
pub(crate) struct Watch {
    shared: Arc<Shared>,
    lsn: Lsn,
    /// The number of cuts before it began to wait.
    cuts: u64,
    /// It counts as a waiter of the record, once that was appended.
    wants_commit: bool,
    is_counted: bool,
    ticket: Option<Ticket>,
}

impl Watch {
    /// `wants_commit`: it waits as the caller that appended the record does; otherwise as a reader,
    /// which takes no part in the commit.
    pub(crate) fn new(shared: Arc<Shared>, lsn: Lsn, cuts: u64, wants_commit: bool) -> Self {
        Self { shared, lsn, cuts, wants_commit, is_counted: false, ticket: None }
    }
}

impl Future for Watch {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        let Self { shared, lsn, cuts, wants_commit, is_counted, ticket } = &mut *self;
        shared.check_process()?;
        if *lsn <= shared.durable() {
            return Poll::Ready(Ok(()));
        }
        // Cloning a waker and dropping the clone run user code: both happen without the lock.
        let waker = context.waker().clone();
        let mut state = shared.lock();
        if *lsn <= state.durable() || *cuts != state.cut_count() {
            return Poll::Ready(Ok(()));
        }
        state.check_open()?;
        let replaced = state.tasks.watchers.leave(*lsn, ticket, waker);
        if *wants_commit && *lsn <= state.reserved() {
            if shared.options.periodic.is_some() {
                shared.claim(&mut state);
            } else if !std::mem::replace(is_counted, true) {
                shared.count_task(&mut state, *lsn);
            }
        }
        drop(state);
        drop(replaced);
        Poll::Pending
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let Some(ticket) =
            self.ticket.filter(|_| self.lsn > self.shared.durable() && !self.shared.is_forked())
        else {
            return;
        };
        let mut state = self.shared.lock();
        let waker = state.tasks.watchers.forget(ticket);
        // What is reached has no ticket any more.
        if waker.is_some() && self.is_counted {
            state.uncount_task(self.lsn);
            self.shared.claim(&mut state);
        }
        drop(state);
        drop(waker);
    }
}
