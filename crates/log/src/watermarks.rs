//! Awaiting the durable watermark.
//!
//! *Owns*: the public face: what a caller learns when the watermark moves. *May not touch*: how a
//! task waits (`commit/following.rs`).

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use inkstone_format::Lsn;

use crate::commit::following::Watch;
use crate::commit::shared::Shared;
use crate::commit::tasks::Ticket;
use crate::error::{Error, Result};

/// A future of the moment in which every record up to an LSN is durable.
/// [`Log::durable_at`](crate::Log::durable_at) returns it.
///
/// It belongs to no thread and does not borrow the log. Dropped while it is pending, it leaves
/// nothing behind.
#[must_use = "a future does nothing unless it is awaited"]
pub struct DurableAt {
    watch: Watch,
    /// The number of the log's last change before. Even, and still the same: no cut since.
    changes: u64,
}

impl DurableAt {
    pub(crate) fn new(shared: &Arc<Shared>, lsn: Lsn) -> Self {
        let changes = shared.changes();
        let (_, cuts) = shared.watermark_and_cuts();
        Self { watch: Watch::new(Arc::clone(shared), lsn, cuts, true), changes }
    }

    /// An error if a cut has truncated the record since this future was made.
    fn is_left(&self) -> Result<()> {
        let Watch { shared, ticket: Ticket { lsn, cuts, .. }, .. } = &self.watch;
        // Asked for after the watermark: a cut changes it before it moves the watermark.
        if self.changes.is_multiple_of(2) && shared.changes() == self.changes {
            return Ok(());
        }
        match shared.lowest_cut_since(*cuts).filter(|last| lsn > last) {
            Some(last) => Err(Error::TruncatedAfter { lsn: *lsn, last }),
            None => Ok(()),
        }
    }
}

impl Future for DurableAt {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        let outcome = ready!(Pin::new(&mut self.watch).poll(context));
        Poll::Ready(outcome.and_then(|()| self.is_left()))
    }
}

/// The durable watermarks of a log, one after the other.
/// [`Log::watermarks`](crate::Log::watermarks) and
/// [`Reader::watermarks`](crate::Reader::watermarks) return it.
///
/// It keeps no list: a late caller gets the newest one alone. It belongs to no thread and does not
/// borrow the log.
///
/// ```
/// # async fn ship(log: &inkstone::Log) -> inkstone::Result<()> {
/// let mut watermarks = log.watermarks();
/// loop {
///     let durable = watermarks.changed().await?;
///     println!("everything up to {durable} is on stable storage");
/// }
/// # }
/// ```
pub struct Watermarks {
    shared: Arc<Shared>,
    last: Lsn,
    cuts: u64,
}

impl Watermarks {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        let (last, cuts) = shared.watermark_and_cuts();
        Self { shared, last, cuts }
    }

    /// The watermark that [`Watermarks::changed`] returned last; before its first call, that of the
    /// moment in which this was made.
    pub fn last(&self) -> Lsn {
        self.last
    }

    /// Awaits a watermark after the last one, and returns the newest. A `truncate_after` counts as
    /// a change too; the watermark may be lower then, or the same. Works in any runtime or none. It
    /// is woken at most once for a group, and polling it takes as long however many others wait.
    ///
    /// Cancel-safe: a future that is dropped while it is pending misses nothing, and leaves nothing
    /// behind.
    ///
    /// # Errors
    /// [`Error::Poisoned`] and [`Error::Closed`] when the newest watermark was returned and no
    /// other will come; [`Error::Forked`].
    ///
    /// # Durability
    /// Every record up to the LSN that it returns is on stable storage, also with
    /// [`Options::periodic`](crate::Options::periodic).
    pub async fn changed(&mut self) -> Result<Lsn> {
        let next = self.last.next().ok_or(Error::UsedUp)?;
        Watch::new(Arc::clone(&self.shared), next, self.cuts, false).await?;
        (self.last, self.cuts) = self.shared.watermark_and_cuts();
        Ok(self.last)
    }
}

impl fmt::Debug for DurableAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DurableAt").field("lsn", &self.watch.ticket.lsn).finish_non_exhaustive()
    }
}

impl fmt::Debug for Watermarks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watermarks").field("last", &self.last).finish_non_exhaustive()
    }
}
