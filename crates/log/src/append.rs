//! The handle of a record that was appended: wait for it, await it, or let it go.
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
/// [`Append::wait`] blocks until it is. As a future it is ready then, in any runtime or none; polling does no I/O. Let
/// go, it is committed by the log's own thread within [`crate::Options::linger`] (without that thread: by whoever commits
/// next), and nobody learns of a failure but by the log being poisoned.
///
/// Its wakers run with nothing of the log held: they may use the log. In a process that a waker forks it must not return.
///
/// It borrows the log, so that who lets it go pays nothing for it; [`Append::into_owned`] gives one that may go anywhere.
#[must_use = "the record is not durable before `wait` (or `.await`) returns Ok"]
pub struct Append<'log, D: Directory = OsDirectory> {
    shared: Held<'log, D>,
    first: Lsn,
    last: Lsn,
    cuts: usize,
    is_decided: bool,
}

/// The log of a handle.
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

    /// A handle that does not borrow the log: to be kept beside it, sent to another thread, or given to a runtime. If the
    /// log is closed before, a record that became durable says so, and another one [`crate::Error::Closed`].
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

    /// For a mistake: the last of several that began with another.
    pub(crate) fn since(mut self, first: Lsn) -> Self {
        self.first = first;
        self
    }

    /// The record's LSN; of a batch, its last.
    #[inline]
    pub fn lsn(&self) -> Lsn {
        self.last
    }

    /// The record's LSN; of a batch, its first.
    pub fn first_lsn(&self) -> Lsn {
        self.first
    }

    /// Waits until the record is durable, and gives its LSN. The caller may find itself writing the group: a lone writer
    /// has no other thread to wait for.
    ///
    /// # Errors
    /// [`crate::Error::Poisoned`] when its write or sync failed, or an earlier one: it may or may not be found by the
    /// next opening. [`crate::Error::Closed`] when the log was closed by a failing `close`.
    ///
    /// # Durability
    /// On `Ok` the record and every one before it are on stable storage; with [`crate::Options::periodic`] they will be
    /// soon.
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
