//! Changes for callers that must not wait: a callback says when they are durable.
//!
//! *Owns*: those calls. *May not touch*: what a change is and how it is written (`log.rs`).

use std::sync::Arc;

use inkstone::Lsn;

use super::RaftLog;
use crate::callbacks::Callback;
use crate::error::Result;
use crate::state::Change;
use crate::words::Vote;

impl RaftLog {
    /// As [`RaftLog::save_vote`], but does not wait for the device: `callback` is called once, in
    /// its turn among those of [`RaftLog::append`] and under the same rules, when the vote and
    /// everything before it are durable, or with the error when they will not be. Readers see the
    /// vote from then on.
    ///
    /// For async callers: the future that they await is completed by the callback, and no thread
    /// waits meanwhile. It can still wait where `append` does: for room in the log's buffers, and
    /// for a segment.
    ///
    /// # Errors
    /// As [`RaftLog::save_vote`]. The callback is dropped without being called then.
    ///
    /// # Durability
    /// None on return. When the callback gets `Ok`, the vote and everything before it are on stable
    /// storage.
    pub fn save_vote_then(
        &self,
        vote: &Vote,
        callback: impl FnOnce(Result<()>) + Send + 'static,
    ) -> Result<()> {
        // A callback that waits must not keep the state alive.
        let (core, saved) = (Arc::downgrade(&self.reader.core), vote.clone());
        self.change_then(&Change::Vote(vote.clone()), move |lsn| {
            Box::new(move |result: Result<()>| {
                if let Some(core) = core.upgrade().filter(|_| result.is_ok()) {
                    core.memory().vote_is_durable(lsn, &saved);
                }
                callback(result);
            })
        })
    }

    /// As [`RaftLog::truncate_from`], but does not wait for the device: `callback` is called as
    /// that of [`RaftLog::save_vote_then`]. The entries are gone for readers when the call returns.
    ///
    /// # Errors
    /// As [`RaftLog::truncate_from`]. The callback is dropped without being called then.
    ///
    /// # Durability
    /// None on return. When the callback gets `Ok`, the entries never come back.
    pub fn truncate_from_then(
        &self,
        from: u64,
        callback: impl FnOnce(Result<()>) + Send + 'static,
    ) -> Result<()> {
        self.change_then(&Change::Truncate(from), |_| Box::new(callback))
    }

    /// Makes a change: checked and written. The callback comes when it is durable; it is made when
    /// the record of the vote is known that holds then.
    fn change_then(&self, change: &Change, callback: impl FnOnce(Lsn) -> Callback) -> Result<()> {
        let core = self.core();
        core.check()?;
        let mut order = self.order();
        let is_done = {
            let memory = core.memory();
            memory.state.check(change)?;
            memory.state.is_done(change)
        };
        if is_done && self.log.durable() >= self.log.last() {
            let vote_lsn = core.memory().vote_lsn;
            drop(order);
            core.callbacks.push_after_all(callback(vote_lsn));
            core.callbacks.call();
            return Ok(());
        }
        // If the call that made the change still waits, the change is written again, which changes
        // nothing: its record says when both are durable.
        let append = self.write(&mut order, change)?;
        let vote_lsn = core.memory().vote_lsn;
        core.callbacks.push(append.lsn(), callback(vote_lsn));
        drop(order);
        append.on_durable(core.teller());
        Ok(())
    }
}
