//! The handle of a record that was appended: wait for it, await it, or let it go.
//!
//! *Owns*: what a caller holds of a record. *May not touch*: how it becomes durable (`shared.rs`).

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use inkstone_format::Lsn;
use inkstone_io::{Directory, OsDirectory};

use crate::error::Result;
use crate::shared::Shared;

/// A record, or a batch, that was appended and is not necessarily durable yet.
///
/// [`Append::wait`] blocks until it is. As a future it is ready then, in any runtime or none; polling does no I/O. Let
/// go, it is committed by the log's own thread within [`crate::Options::linger`] (without that thread: by whoever commits
/// next), and nobody learns of a failure but by the log being poisoned.
#[must_use = "the record is not durable before `wait` (or `.await`) returns Ok"]
pub struct Append<D: Directory = OsDirectory> {
    shared: Arc<Shared<D>>,
    first: Lsn,
    last: Lsn,
    cuts: usize,
    is_decided: bool,
}

impl<D: Directory> Append<D> {
    pub(crate) fn new(shared: Arc<Shared<D>>, first: Lsn, last: Lsn, cuts: usize) -> Self {
        Self { shared, first, last, cuts, is_decided: false }
    }

    /// For a mistake: the last of several that began with another.
    pub(crate) fn since(mut self, first: Lsn) -> Self {
        self.first = first;
        self
    }

    /// The record's LSN; of a batch, its last.
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
        self.shared.acknowledge(self.last, self.cuts).map(|()| self.last)
    }
}

impl<D: Directory> Future for Append<D> {
    type Output = Result<Lsn>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match self.shared.poll(self.last, self.cuts, context.waker()) {
            Some(outcome) => {
                self.is_decided = true;
                Poll::Ready(outcome.map(|()| self.last))
            }
            None => Poll::Pending,
        }
    }
}

impl<D: Directory> Drop for Append<D> {
    fn drop(&mut self) {
        if !self.is_decided {
            self.shared.want(self.last);
        }
    }
}

impl<D: Directory> fmt::Debug for Append<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Append").field("first", &self.first).field("last", &self.last).finish_non_exhaustive()
    }
}
