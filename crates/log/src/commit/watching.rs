//! Awaiting the watermark: until it reaches an LSN, or the log is cut, closed or poisoned.
//!
//! *Owns*: what one such task has registered with the log, and unregistering it. *May not touch*:
//! waiters of records (`wait.rs`), threads that follow (`following.rs`), whose rule this is.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use inkstone_format::Lsn;

use crate::commit::shared::Shared;
use crate::commit::watchers::Seat;
use crate::error::Result;

/// Ready when `lsn` is durable or the log was cut; an error when the log is poisoned or closed and
/// `lsn` is not durable.
pub(crate) struct Watch {
    shared: Arc<Shared>,
    lsn: Lsn,
    /// The number of cuts before it began to wait.
    cuts: usize,
    /// It counts as a waiter of the record, once that was appended.
    wants_commit: bool,
    is_counted: bool,
    seat: Option<Seat>,
}

impl Watch {
    /// `wants_commit`: it waits as the caller that appended the record does; otherwise as a reader,
    /// which takes no part in the commit.
    pub(crate) fn new(shared: Arc<Shared>, lsn: Lsn, cuts: usize, wants_commit: bool) -> Self {
        Self { shared, lsn, cuts, wants_commit, is_counted: false, seat: None }
    }
}

impl Future for Watch {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        let Self { shared, lsn, cuts, wants_commit, is_counted, seat } = &mut *self;
        shared.check_process()?;
        if *lsn <= shared.durable() {
            return Poll::Ready(Ok(()));
        }
        // Cloning a waker and dropping the clone run user code: both happen without the lock.
        let waker = context.waker().clone();
        let mut state = shared.lock();
        if *lsn <= state.durable || *cuts != state.cut_count() {
            return Poll::Ready(Ok(()));
        }
        state.check_open()?;
        let replaced = state.watchers.leave(*lsn, seat, waker);
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
        let Some(seat) =
            self.seat.filter(|_| self.lsn > self.shared.durable() && !self.shared.is_forked())
        else {
            return;
        };
        let mut state = self.shared.lock();
        let waker = state.watchers.forget(seat);
        // What is reached has no seat any more.
        if waker.is_some() && self.is_counted {
            state.uncount_task(self.lsn);
            self.shared.claim(&mut state);
        }
        drop(state);
        drop(waker);
    }
}
