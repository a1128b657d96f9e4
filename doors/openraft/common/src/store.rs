//! The raft log of a store, whichever openraft gives it entries.
//!
//! *Owns*: which options a store can work with, and entries on their way into the raft log. *May
//! not touch*: what the entries say.

use std::fmt;
use std::io;
use std::ops::Deref;
use std::sync::Arc;

use inkstone_raft::{EntryId, Error, Options, RaftLog, Result};

use crate::batch::Batch;

/// The raft log of a store. Clones are the same raft log, each with a batch of its own.
pub struct Stored {
    raft: Arc<RaftLog>,
    /// Entries on their way into it.
    pub batch: Batch,
}

impl Stored {
    /// What `open` opens. Options under which what openraft awaits would never come are refused.
    ///
    /// # Errors
    /// Those of `open`; [`inkstone::Error::Invalid`] for `own_thread(false)`.
    pub fn open(
        options: Options,
        open: impl FnOnce(Options) -> Result<RaftLog>,
    ) -> io::Result<Self> {
        check_thread(options.has_own_thread())?;
        Self::of(open(options)?)
    }

    /// On a raft log that is open, of one of many groups.
    ///
    /// # Errors
    /// [`inkstone::Error::Invalid`] for one without a thread of its own.
    pub fn of(raft: RaftLog) -> io::Result<Self> {
        check_thread(raft.has_own_thread())?;
        Ok(Self { raft: Arc::new(raft), batch: Batch::default() })
    }

    /// The raft log, for another thread.
    pub fn shared(&self) -> Arc<RaftLog> {
        Arc::clone(&self.raft)
    }

    /// Appends the entries of the batch ([`Batch::append`]).
    ///
    /// # Errors
    /// As there.
    pub fn append(&self, callback: impl FnOnce(Result<()>) + Send + 'static) -> Result<()> {
        self.batch.append(&self.raft, callback)
    }

    /// The entry that has the index of `came`, if there is one, must be this one.
    ///
    /// # Errors
    /// [`Error::OtherEntry`].
    pub fn check_here(&self, came: EntryId) -> Result<()> {
        match self.raft.reader().id_of(came.index)? {
            Some(here) if here != came => Err(Error::OtherEntry { here, came }),
            _ => Ok(()),
        }
    }
}

fn check_thread(has_own_thread: bool) -> io::Result<()> {
    if has_own_thread {
        return Ok(());
    }
    let why = "own_thread(false): openraft awaits its entries and votes, and no thread would make \
               them durable";
    Err(Error::from(inkstone::Error::Invalid(why.into())).into())
}

impl Deref for Stored {
    type Target = RaftLog;

    fn deref(&self) -> &RaftLog {
        &self.raft
    }
}

impl Clone for Stored {
    fn clone(&self) -> Self {
        Self { raft: self.shared(), batch: Batch::default() }
    }
}

impl fmt::Debug for Stored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogStore").field("raft", &self.raft).finish_non_exhaustive()
    }
}
