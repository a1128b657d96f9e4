//! Moving from another store.
//!
//! *Owns*: the order in which another store is read and this one written. *May not touch*: what
//! either makes of it.

use std::io;

use inkstone_openraft_common::NodeName;
use openraft::storage::{RaftLogStorage, RaftLogStorageExt};
use openraft::{
    ErrorSubject, ErrorVerb, LogIdOptionExt, LogState, RaftLogId, RaftTypeConfig, StorageError,
};

use crate::codec::Codec;
use crate::store::LogStore;

impl<C: RaftTypeConfig, K: Codec<C>> LogStore<C, K>
where
    C::NodeId: NodeName,
{
    /// Copies everything from another log store of this node into this one, which must be empty:
    /// the vote, the entries, and what is committed and purged. Stop the node first. The other
    /// store is only read.
    ///
    /// If it fails, or the process ends before it returns, remove the directory of this store and
    /// begin again.
    ///
    /// # Errors
    /// When this store is not empty; when the other one has a hole, or is not as it was at the end;
    /// those of both stores.
    ///
    /// # Durability
    /// On `Ok` all is durable but what is committed, which [`LogStore::close`] makes durable.
    pub async fn copy_from<S: RaftLogStorage<C>>(
        &mut self,
        other: &mut S,
    ) -> Result<(), StorageError<C::NodeId>> {
        let failed = |why: &str| {
            let error = io::Error::other(why.to_owned());
            Err(StorageError::from_io_error(ErrorSubject::Logs, ErrorVerb::Write, error))
        };
        if self.get_log_state().await? != LogState::default() || self.read_vote().await?.is_some() {
            return failed("the store that is copied to must be empty");
        }
        let state = other.get_log_state().await?;
        let vote = other.read_vote().await?;
        if let Some(vote) = &vote {
            self.save_vote(vote).await?;
        }
        if let Some(purged) = state.last_purged_log_id.clone() {
            self.purge(purged).await?;
        }
        let mut next = state.last_purged_log_id.next_index();
        let end = state.last_log_id.next_index();
        while next < end {
            let entries = other.limited_get_log_entries(next, end).await?;
            let Some(last) = entries.last().map(|entry| entry.get_log_id().index) else {
                return failed("the store that is copied has a hole");
            };
            next = last + 1;
            self.blocking_append(entries).await?;
        }
        // What was purged is committed too, and its id is known here.
        let committed = other.read_committed().await?;
        let purged = state.last_purged_log_id.filter(|_| committed.is_some());
        self.save_committed(committed.max(purged)).await?;
        if self.get_log_state().await? != other.get_log_state().await?
            || other.read_vote().await? != vote
        {
            return failed("the store that is copied has changed meanwhile");
        }
        Ok(())
    }
}
