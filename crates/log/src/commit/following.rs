//! How threads and tasks wait for the watermark.
//!
//! *Owns*: when a follower sleeps, the future of a watermark, and that a reader wants the tail.
//! *May not touch*: what is read (`read/`), the waiters of records (`wait.rs`), whose rule it is
//! when a group is written.
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

/// Ready when an LSN is durable or the log was cut; an error when the log is poisoned or closed and
/// the LSN is not durable.
pub(crate) struct Watch {
    pub(crate) shared: Arc<Shared>,
    pub(crate) ticket: Ticket,
}

impl Watch {
    /// `wants_commit`: as of [`Ticket::new`].
    pub(crate) fn new(shared: Arc<Shared>, lsn: Lsn, cuts: u64, wants_commit: bool) -> Self {
        Self { shared, ticket: Ticket::new(lsn, cuts, wants_commit) }
    }
}

impl Future for Watch {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        let Self { shared, ticket } = &mut *self;
        shared.poll(ticket, context.waker())
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let Self { shared, ticket } = self;
        if ticket.lsn > shared.durable() && shared.forget(*ticket) {
            // The rule no longer counts this waiter, but its record is still to be committed.
            shared.want(ticket.lsn);
        }
    }
}
