//! The stream of applied entries.
//!
//! *Owns*: which entries a client gets, in which order. *May not touch*: the state machine.
//!
//! Entries come from the raft log, and only those that this node has applied: they are committed,
//! and never change.

use bytes::Bytes;
use futures_util::{Stream, stream};
use inkstone_openraft::LogReader;
use openraft::async_runtime::watch::WatchReceiver;
use openraft::type_config::alias::{EntryOf, WatchReceiverOf};
use openraft::{EntryPayload, RaftLogReader, RaftMetrics};
use tonic::Status;

use crate::node::Node;
use crate::types::TypeConfig;
use crate::wire::{Applied, TailFrom, encode};

struct Tail {
    metrics: WatchReceiverOf<TypeConfig, RaftMetrics<TypeConfig>>,
    reader: LogReader<TypeConfig>,
    next: u64,
}

/// Entries from an index on, several to a message, without end. An index whose entry was purged is
/// an error that says where to begin; 0 begins with the first that is there.
pub(crate) fn tail(
    node: &Node,
    from: TailFrom,
) -> impl Stream<Item = Result<Bytes, Status>> + Send + use<> {
    let tail = Tail { metrics: node.raft.metrics(), reader: node.log.reader(), next: from.index };
    stream::try_unfold(tail, async |mut tail| {
        let entries = tail.more().await?;
        Ok(Some((encode(&entries)?, tail)))
    })
}

impl Tail {
    async fn more(&mut self) -> Result<Vec<Applied>, Status> {
        loop {
            let (applied, purged) = {
                let metrics = self.metrics.borrow_watched();
                if metrics.running_state.is_err() {
                    return Err(Status::unavailable("the node ends"));
                }
                (metrics.last_applied.map(|id| id.index), metrics.purged.map(|id| id.index))
            };
            let first = purged.map_or(0, |purged| purged + 1);
            if self.next == 0 {
                self.next = first;
            }
            if self.next < first {
                return Err(Status::out_of_range(format!(
                    "the entries before {first} are in a snapshot and not in the log any more: begin at {first}"
                )));
            }
            if applied.is_some_and(|applied| applied >= self.next) {
                let end = applied.map_or(0, |applied| applied + 1);
                // A purge meanwhile is an error here; the client asks again.
                let entries = self.reader.limited_get_log_entries(self.next, end).await;
                let entries = entries.map_err(|why| Status::unavailable(why.to_string()))?;
                self.next += entries.len() as u64;
                return Ok(entries.into_iter().map(applied_entry).collect());
            }
            self.metrics.changed().await.map_err(|_| Status::unavailable("the node ends"))?;
        }
    }
}

fn applied_entry(entry: EntryOf<TypeConfig>) -> Applied {
    let request = match entry.payload {
        EntryPayload::Normal(request) => Some(request),
        EntryPayload::Blank | EntryPayload::Membership(_) => None,
    };
    Applied { index: entry.log_id.index, request }
}
