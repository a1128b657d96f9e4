//! The handle of a record that was appended: wait for it, await it, or drop it.
//!
//! *Owns*: what a caller holds of a record. *May not touch*: how it becomes durable (`commit/`).

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use inkstone_format::Lsn;

use crate::commit::shared::Shared;
use crate::commit::tasks::Ticket;
use crate::error::Result;

/// A record, or a batch, that was appended and is not necessarily durable yet.
///
/// [`Append::wait`] blocks until it is durable. As a future it becomes ready at that moment, in any
/// runtime or none; polling does no I/O: the log's own thread commits what is awaited, as soon as
/// the waiters expected to share the flush are there. If the handle is dropped, the log's own
/// thread begins to commit the record within 200 us (without that thread the next caller that
/// commits does); it is durable when that write and flush have ended. A failure then shows only in
/// that the log is poisoned. A future that is dropped while it is pending leaves nothing behind,
/// and no group waits for it any more.
///
/// Wakers run while no lock of the log is held, so they may use the log. A waker that forks must
/// not return in the child.
///
/// The handle borrows the log, so dropping it costs nothing. [`Append::into_owned`] makes one that
/// can outlive the borrow.
#[must_use = "the record is not durable before `wait` (or `.await`) returns Ok"]
pub struct Append<'log> {
    shared: LogRef<'log>,
    first: Lsn,
    /// Of the last record, in which a polled future's waker is found.
    ticket: Ticket,
    is_decided: bool,
}

/// The log that a handle belongs to.
enum LogRef<'log> {
    Borrowed(&'log Arc<Shared>),
    Owned(Arc<Shared>),
}

impl LogRef<'_> {
    #[inline]
    fn log(&self) -> &Shared {
        match self {
            Self::Borrowed(shared) => shared,
            Self::Owned(shared) => shared,
        }
    }
}

impl<'log> Append<'log> {
    #[inline]
    pub(crate) fn new(shared: &'log Arc<Shared>, first: Lsn, last: Lsn, cuts: u64) -> Self {
        Self {
            shared: LogRef::Borrowed(shared),
            first,
            ticket: Ticket::new(last, cuts, true),
            is_decided: false,
        }
    }

    /// A handle that does not borrow the log: keep it beside the log, send it to another thread, or
    /// give it to a runtime. If the log is closed first, waiting returns `Ok` for a durable record
    /// and [`Error::Closed`](crate::Error::Closed) for any other.
    pub fn into_owned(mut self) -> Append<'static> {
        let shared = match &self.shared {
            LogRef::Borrowed(shared) => Arc::clone(shared),
            LogRef::Owned(shared) => Arc::clone(shared),
        };
        let is_decided = std::mem::replace(&mut self.is_decided, true);
        Append { shared: LogRef::Owned(shared), first: self.first, ticket: self.ticket, is_decided }
    }

    /// The handle as plain numbers, for the C door, whose callers keep them: see
    /// [`Log::attach`](crate::Log::attach). Nobody waits for the record until then, and nothing
    /// commits it by itself.
    #[doc(hidden)]
    pub fn detach(mut self) -> (Lsn, Lsn, u64) {
        self.await_no_more();
        self.is_decided = true;
        (self.first, self.ticket.lsn, self.ticket.cuts)
    }

    /// If it was polled, its waker is withdrawn.
    #[inline]
    fn await_no_more(&mut self) {
        if !self.ticket.is_new() {
            self.shared.log().forget(self.ticket);
        }
    }

    /// The LSN of the record; for a batch, that of its last record.
    #[inline]
    pub fn lsn(&self) -> Lsn {
        self.ticket.lsn
    }

    /// The LSN of the record; for a batch, that of its first record.
    pub fn first_lsn(&self) -> Lsn {
        self.first
    }

    /// Waits until the record is durable, and returns its LSN. The calling thread may write the
    /// group itself: a lone writer has no other thread to wait for.
    ///
    /// # Errors
    /// [`Error::Poisoned`](crate::Error::Poisoned) when its write or sync, or an earlier one,
    /// failed: the next opening may or may not find the record.
    /// [`Error::Closed`](crate::Error::Closed) when the log was closed before the record was
    /// durable.
    ///
    /// # Durability
    /// On `Ok` this record and all before it are on stable storage; with
    /// [`Options::periodic`](crate::Options::periodic) they will be soon.
    pub fn wait(mut self) -> Result<Lsn> {
        self.is_decided = true;
        self.await_no_more();
        self.shared.log().acknowledge(self.ticket).map(|()| self.ticket.lsn)
    }

    /// Has `callback` called once, with the LSN when the record is durable, or with the error when
    /// it will not be. The thread that made the record durable calls it; if the outcome is known
    /// already, the calling thread does at once.
    ///
    /// The callbacks of a log are called one at a time and in the order of their LSNs; one that is
    /// registered for a record whose outcome is known comes after those that are due. If another
    /// thread is calling them, it calls this one too, a moment later.
    ///
    /// The callback holds up other callbacks, and often a thread that waits for its own record, so
    /// it must not block. It may use the log: append, register callbacks, truncate, close. It runs
    /// while nothing of the log is locked. If it panics, nothing else happens: the log, its other
    /// callbacks and the calling thread go on. A callback that forks must not return in the child;
    /// in a forked child only those are called that are registered there, with
    /// [`Error::Forked`](crate::Error::Forked).
    ///
    /// The record counts as waited for: the log's own thread commits it together with those of
    /// other waiters. A log that is closed or dropped leaves no callback uncalled. A callback that
    /// keeps the log alive (by an [`Arc`]) keeps it from being dropped until it was called.
    ///
    /// # Errors
    /// The callback gets those of [`Append::wait`].
    ///
    /// # Durability
    /// A callback that gets `Ok` is called when this record and all before it are on stable
    /// storage, also with [`Options::periodic`](crate::Options::periodic).
    ///
    /// ```
    /// # fn main() -> inkstone::Result<()> {
    /// # let directory = tempfile::tempdir().expect("a directory");
    /// # let path = directory.path().join("log");
    /// # let log = inkstone::Log::open(path, inkstone::Options::default())?;
    /// log.append(b"a record")?.on_durable(|outcome| match outcome {
    ///     Ok(lsn) => println!("{lsn} is durable"),
    ///     Err(error) => eprintln!("{error}"),
    /// });
    /// log.close()
    /// # }
    /// ```
    pub fn on_durable(mut self, callback: impl FnOnce(Result<Lsn>) + Send + 'static) {
        self.is_decided = true;
        self.await_no_more();
        self.shared.log().call_when_durable(self.ticket, Box::new(callback));
    }

    /// As [`Append::on_durable`], for a caller who holds a lock of its own, which callbacks must
    /// not meet: this calls none. True if the outcome is known: then call [`Log::call_due`] without
    /// the lock.
    ///
    /// [`Log::call_due`]: crate::Log::call_due
    #[doc(hidden)]
    pub fn on_durable_under_lock(
        mut self,
        callback: impl FnOnce(Result<Lsn>) + Send + 'static,
    ) -> bool {
        self.is_decided = true;
        self.await_no_more();
        self.shared.log().call_when_due(self.ticket, Box::new(callback))
    }
}

impl Future for Append<'_> {
    type Output = Result<Lsn>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { shared, ticket, is_decided, .. } = &mut *self;
        let log = shared.log();
        let outcome = if log.options.periodic.is_some() {
            log.acknowledge(*ticket)
        } else {
            ready!(log.poll(ticket, context.waker()))
        };
        *is_decided = true;
        Poll::Ready(outcome.map(|()| ticket.lsn))
    }
}

impl Drop for Append<'_> {
    #[inline]
    fn drop(&mut self) {
        if !self.is_decided {
            self.await_no_more();
            self.shared.log().want(self.ticket.lsn);
        }
    }
}

impl fmt::Debug for Append<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Append")
            .field("first", &self.first)
            .field("last", &self.ticket.lsn)
            .finish_non_exhaustive()
    }
}
