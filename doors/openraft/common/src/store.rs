//! The raft log of a store, whichever openraft gives it entries.
//!
//! *Owns*: which options a store can work with, entries on their way into the raft log, and who
//! is told that something waits. *May not touch*: what the entries say.

use std::fmt;
use std::io;
use std::ops::Deref;
use std::sync::Arc;

use inkstone_raft::{EntryId, Error, Options, RaftLog, Result};

use crate::batch::Batch;

/// What a store was given and has not made durable yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Waits {
    /// Entries were appended.
    Entries,
    /// A vote is being saved.
    Vote,
    /// Entries are being truncated at the end.
    Truncation,
}

/// The raft log of a store. Clones are the same raft log, each with a batch of its own.
pub struct Stored {
    raft: Arc<RaftLog>,
    /// Entries on their way into it.
    pub batch: Batch,
    /// Who makes things durable, where the log has no thread that would.
    due: Option<Arc<dyn Fn(Waits) + Send + Sync>>,
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
        Ok(Self { raft: Arc::new(raft), batch: Batch::default(), due: None })
    }

    /// As [`Stored::open`], for a log that has no thread. `due` is called when something waits,
    /// and whoever is told calls [`RaftLog::sync`] soon.
    ///
    /// # Errors
    /// Those of `open`; [`inkstone::Error::Invalid`] for `own_thread(true)`.
    pub fn open_unthreaded(
        options: Options,
        open: impl FnOnce(Options) -> Result<RaftLog>,
        due: impl Fn(Waits) + Send + Sync + 'static,
    ) -> io::Result<Self> {
        if options.has_own_thread() {
            return Err(invalid(
                "open_unthreaded_in: own_thread(true): the log would make durable by itself what \
                 you promise to",
            ));
        }
        let (raft, due) = (Arc::new(open(options)?), Arc::new(due));
        Ok(Self { raft, batch: Batch::default(), due: Some(due) })
    }

    /// Says that something waits.
    pub fn tell_due(&self, what: Waits) {
        if let Some(due) = &self.due {
            due(what);
        }
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
    Err(invalid(
        "own_thread(false): openraft awaits its entries and votes, and no thread would make them \
         durable",
    ))
}

fn invalid(why: &str) -> io::Error {
    Error::from(inkstone::Error::Invalid(why.into())).into()
}

impl Deref for Stored {
    type Target = RaftLog;

    fn deref(&self) -> &RaftLog {
        &self.raft
    }
}

impl Clone for Stored {
    fn clone(&self) -> Self {
        Self { raft: self.shared(), batch: Batch::default(), due: self.due.clone() }
    }
}

impl fmt::Debug for Stored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogStore").field("raft", &self.raft).finish_non_exhaustive()
    }
}
