//! Awaiting room: appending where a caller may not block.
//!
//! *Owns*: trying again when there may be room, and that a future which is dropped leaves nothing
//! behind. *May not touch*: when there is room (`commit/`).

use std::future::poll_fn;
use std::task::Poll;

use inkstone_format::PayloadSum;

use super::Log;
use crate::append::Append;
use crate::commit::open_group::Payload;
use crate::commit::shared::Shared;
use crate::commit::tasks::Ticket;
use crate::error::{Error, Result};

/// A future that waits for room. Dropping it withdraws its waker.
struct InLine<'log> {
    shared: &'log Shared,
    ticket: Option<Ticket>,
}

impl Log {
    /// Appends one record, and awaits room for it.
    pub(super) async fn append_when_there_is_room<P: Payload>(
        &self,
        record: P,
        sum: PayloadSum,
    ) -> Result<Append<'_>> {
        let mut line = InLine { shared: &self.shared, ticket: None };
        poll_fn(|context| {
            let mut tried = self.try_gather(record, sum, None);
            if matches!(tried, Err(Error::Busy)) {
                // `clone` is the user's code, so it runs without the lock.
                tried =
                    self.try_gather(record, sum, Some((&mut line.ticket, context.waker().clone())));
            }
            match tried {
                Err(Error::Busy) => Poll::Pending,
                other => Poll::Ready(other),
            }
        })
        .await
    }
}

impl Drop for InLine<'_> {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket.take().filter(|_| !self.shared.is_forked()) else { return };
        let mut state = self.shared.lock();
        let waker = state.tasks.room.forget(ticket);
        drop(state);
        drop(waker);
    }
}
