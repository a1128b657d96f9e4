//! Where the records of a raft log are.
//!
//! *Owns*: what the public calls need of it. *May not touch*: the calls (`raft_log.rs`). There are
//! two: a log of its own (`log.rs`), and a stream beside those of other groups (`group.rs`).

use std::any::Any;
use std::sync::Arc;

use inkstone::{Log, Lsn};

use crate::callbacks::Callback;
use crate::core::Core;
use crate::error::Result;
use crate::state::Change;
use crate::words::{EntryId, NewEntry};

/// Makes a change's callback when the record of the vote is known that holds then.
pub(crate) type Then<'a> = Box<dyn FnOnce(Lsn) -> Callback + 'a>;

pub(crate) trait Home: Send + Sync {
    fn core(&self) -> &Arc<Core>;

    /// What a reader keeps, so that who opens the raft log again finds this one.
    fn shared(&self) -> Option<Arc<dyn Any + Send + Sync>>;

    /// The log below.
    fn log(&self) -> &Log;

    fn append(&self, entries: &[NewEntry<'_>], callback: Callback) -> Result<()>;

    /// Makes a change: checked, written, durable. Returns the record of the vote that holds then.
    fn change(&self, change: &Change) -> Result<Lsn>;

    /// Makes a change: checked and written. The callback comes when it is durable.
    fn change_then(&self, change: &Change, callback: Then<'_>) -> Result<()>;

    fn purge(&self, upto: &EntryId, is_snapshot: bool) -> Result<()>;

    fn save_committed(&self, index: u64) -> Result<()>;

    fn sync(&self) -> Result<()>;

    fn close(&self) -> Result<()>;
}
