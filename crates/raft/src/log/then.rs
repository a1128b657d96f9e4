//! Changes for callers that must not wait: a callback says when they are durable.
//!
//! *Owns*: that call. *May not touch*: what a change is and how it is written (`log.rs`).

use super::OneLog;
use crate::error::Result;
use crate::home::{Home, Then};
use crate::state::Change;

impl OneLog {
    /// Makes a change: checked and written. The callback comes when it is durable; it is made when
    /// the record of the vote is known that holds then.
    pub(super) fn write_then(&self, change: &Change, callback: Then<'_>) -> Result<()> {
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
