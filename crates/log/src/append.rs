//! The handle of a record that was appended: wait for it, await it, or drop it.
//!
//! *Owns*: what a caller holds of a record. *May not touch*: how it becomes durable (`commit/`).

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use inkstone_format::Lsn;
use inkstone_io::{Directory, OsDirectory};

use crate::commit::shared::Shared;
use crate::error::Result;

/// A record, or a batch, that was appended and is not necessarily durable yet.
///
/// [`Append::wait`] blocks until it is durable. As a future it becomes ready at that moment, in any runtime or none; polling
/// does no I/O. If the handle is dropped, the log's own thread commits the record within [`crate::Options::linger`] (without
/// that thread the next caller that commits does). A failure then shows only in that the log is poisoned.
///
/// Wakers run while no lock of the log is held, so they may use the log. A waker that forks must not return in the child.
///
/// The handle borrows the log, so dropping it costs nothing. [`Append::into_owned`] makes one that can outlive the borrow.
#[must_use = "the record is not durable before `wait` (or `.await`) returns Ok"]
pub struct Append<'log, D: Directory = OsDirectory> {
    shared: Held<'log, D>,
    first: Lsn,
    last: Lsn,
    cuts: usize,
    is_decided: bool,
}

/// The log that a handle belongs to.
enum Held<'log, D: Directory> {
    Borrowed(&'log Arc<Shared<D>>),
    Owned(Arc<Shared<D>>),
}

impl<D: Directory> Held<'_, D> {
    #[inline]
    fn log(&self) -> &Shared<D> {
        match self {
            Self::Borrowed(shared) => shared,
            Self::Owned(shared) => shared,
        }
    }
}

impl<'log, D: Directory> Append<'log, D> {
    #[inline]
    pub(crate) fn new(shared: &'log Arc<Shared<D>>, first: Lsn, last: Lsn, cuts: usize) -> Self {
        Self { shared: Held::Borrowed(shared), first, last, cuts, is_decided: false }
    }

    /// A handle that does not borrow the log: keep it beside the log, send it to another thread, or give it to a runtime. If the
    /// log is closed first, waiting returns `Ok` for a durable record and [`crate::Error::Closed`] for any other.
    pub fn into_owned(mut self) -> Append<'static, D> {
        let shared = match &self.shared {
            Held::Borrowed(shared) => Arc::clone(shared),
            Held::Owned(shared) => Arc::clone(shared),
        };
        let is_decided = std::mem::replace(&mut self.is_decided, true);
        Append {
            shared: Held::Owned(shared),
            first: self.first,
            last: self.last,
            cuts: self.cuts,
            is_decided,
        }
    }

    /// The LSN of the record; for a batch, that of its last record.
    #[inline]
    pub fn lsn(&self) -> Lsn {
        self.last
    }

    /// The LSN of the record; for a batch, that of its first record.
    pub fn first_lsn(&self) -> Lsn {
        self.first
    }

    /// Waits until the record is durable, and returns its LSN. The calling thread may write the group itself: a lone writer
    /// has no other thread to wait for.
    ///
    /// # Errors
    /// [`crate::Error::Poisoned`] when its write or sync, or an earlier one, failed: the next opening may or may not find the
    /// record. [`crate::Error::Closed`] when a failing `close` closed the log.
    ///
    /// # Durability
    /// On `Ok` this record and all before it are on stable storage; with [`crate::Options::periodic`] they will be soon.
    pub fn wait(mut self) -> Result<Lsn> {
        self.is_decided = true;
        self.shared.log().acknowledge(self.last, self.cuts).map(|()| self.last)
    }
}

impl<D: Directory> Future for Append<'_, D> {
    type Output = Result<Lsn>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match self.shared.log().poll(self.last, self.cuts, context.waker()) {
            Some(outcome) => {
                self.is_decided = true;
                Poll::Ready(outcome.map(|()| self.last))
            }
            None => Poll::Pending,
        }
    }
}

impl<D: Directory> Drop for Append<'_, D> {
    fn drop(&mut self) {
        if !self.is_decided {
            self.shared.log().want(self.last);
        }
    }
}

impl<D: Directory> fmt::Debug for Append<'_, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Append").field("first", &self.first).field("last", &self.last).finish_non_exhaustive()
    }
}
