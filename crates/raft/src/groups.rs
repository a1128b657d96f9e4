//! Many raft groups in one log.
//!
//! *Owns*: the calls for all groups. *May not touch*: what a group does (`group.rs`).

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use inkstone::{AnyDirectory, LogKind};
use inkstone_streams::{Options, Stats, Streams};

use crate::batch::Batch;
use crate::error::Result;
use crate::group::{Part, Shared};
use crate::options::refuse_periodic;
use crate::raft_log::RaftLog;
use crate::reader::RaftReader;

/// Many raft groups in one log: a vote of one and entries of others share a flush, and an idle
/// group keeps no old segments.
///
/// [`Batch`] has an example. A group that nobody uses takes what its stream takes
/// (docs/streams.md): drop the [`RaftLog`] of a group that rests.
///
/// Dropping it ends all groups: everything is made durable and all callbacks are called, but errors
/// are ignored. [`Groups::close`] returns them. After a failed write or sync every call of every
/// group returns that error ([`inkstone::Error::Poisoned`]).
pub struct Groups {
    shared: Arc<Shared>,
}

impl Groups {
    /// Opens the log of many groups in the directory `path`, creating it if it is not there.
    ///
    /// # Errors
    /// [`inkstone::Error::OtherKind`] for another log, which stays as it is;
    /// [`crate::Error::Streams`], [`crate::Error::Lost`]; [`inkstone::Error::Invalid`] for options
    /// that cannot be kept, `periodic` among them; those of [`inkstone::Log::open`].
    ///
    /// # Durability
    /// Everything that the groups show is on stable storage on return.
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Self> {
        refuse_periodic(options.log_options())?;
        Ok(Self { shared: Shared::new(Streams::open(path, of_raft(options))?, None) })
    }

    /// Opens it in any directory ([`AnyDirectory`]), for example a simulated one.
    ///
    /// # Errors
    /// As [`Groups::open`].
    ///
    /// # Durability
    /// As [`Groups::open`].
    pub fn open_in(directory: impl Into<AnyDirectory>, options: Options) -> Result<Self> {
        refuse_periodic(options.log_options())?;
        Ok(Self { shared: Shared::new(Streams::open_in(directory, of_raft(options))?, None) })
    }

    /// The raft log of a group, which is created if it is not there. Each call returns a handle of
    /// the same raft log: what one of them does, all show, and [`RaftLog::close`] of one ends all.
    /// It reads the note of the group's stream and its last entry, and a few more if leaders have
    /// changed since the last purge.
    ///
    /// # Errors
    /// [`crate::Error::BadGroup`]; [`crate::Error::Closed`] while the group is being removed;
    /// [`inkstone::Error::NoRoom`] when it cannot be created; [`inkstone::Error::Poisoned`].
    ///
    /// # Durability
    /// What an existing group shows is durable, but for its last changes if it is open already. A
    /// new group is durable with the first change of it, or of any group, that is durable.
    pub fn group(&self, id: u64) -> Result<RaftLog> {
        self.shared.check()?;
        Ok(RaftLog { reader: RaftReader { group: self.shared.group(id)? } })
    }

    /// Makes all changes of a batch, or none: entries, votes, truncations and committed indexes of
    /// any groups, by one record, one write and one flush. The entries can be read when the call
    /// returns. What a batch holds is limited as an append is
    /// ([`inkstone::Options::record_bytes_max`]).
    ///
    /// # Errors
    /// The error of the first change that breaks a rule, as the call of [`RaftLog`] with its name
    /// returns it, in [`crate::Error::InGroup`]; [`crate::Error::Closed`] for a group that was
    /// closed or removed; [`inkstone::Error::TooLarge`]: make several batches;
    /// [`inkstone::Error::Invalid`] for a batch without changes, or with a raft log that is not of
    /// these groups; [`inkstone::Error::NoRoom`]. In all these cases nothing has changed in any
    /// group. [`inkstone::Error::Poisoned`].
    ///
    /// # Durability
    /// On `Ok` the batch and everything before it, of whatever group, are on stable storage. After
    /// a crash before that all its changes are there, or none.
    pub fn apply(&self, batch: &Batch<'_>) -> Result<()> {
        self.shared.write_now(&self.checked(batch)?)
    }

    /// As [`Groups::apply`], but does not wait for the device: `callback` is called once, under the
    /// rules of [`RaftLog::append`], when the batch and everything before it are durable, or with
    /// the error when they will not be. Readers see the votes from then on.
    ///
    /// # Errors
    /// As [`Groups::apply`]. The callback is dropped without being called then.
    ///
    /// # Durability
    /// None on return. When the callback gets `Ok`, the batch and everything before it are on
    /// stable storage.
    pub fn apply_then(
        &self,
        batch: &Batch<'_>,
        callback: impl FnOnce(Result<()>) + Send + 'static,
    ) -> Result<()> {
        self.shared.write_then(&self.checked(batch)?, Box::new(callback))
    }

    fn checked<'a>(&self, batch: &'a Batch<'a>) -> Result<Vec<&'a Part<'a>>> {
        self.shared.check()?;
        let changes = batch.by_group();
        let invalid = |why| Err(inkstone::Error::Invalid(why).into());
        match changes.iter().find(|(group, _)| !Arc::ptr_eq(&group.shared, &self.shared)) {
            _ if changes.is_empty() => invalid("a batch without changes".into()),
            Some((group, _)) => {
                let (path, other) = (self.shared.reader.path(), group.shared.reader.path());
                invalid(format!(
                    "a batch for the groups in {} has a raft log of {}, opened by itself or by \
                     other `Groups`",
                    path.display(),
                    other.display()
                ))
            }
            None => Ok(changes),
        }
    }

    /// Removes a group with its entries and its vote. Handles of it are closed. A node that comes
    /// back to a group that was removed has no memory of its votes: give it another name.
    ///
    /// # Errors
    /// [`crate::Error::NoGroup`], [`crate::Error::BadGroup`]; [`crate::Error::Closed`] while
    /// another thread removes it; [`inkstone::Error::NoRoom`] (the group is there, and can be
    /// opened again); [`inkstone::Error::Poisoned`].
    ///
    /// # Durability
    /// On `Ok` the group never comes back.
    pub fn remove(&self, id: u64) -> Result<()> {
        self.shared.check()?;
        self.shared.remove(id)
    }

    /// The groups that there are, in order.
    ///
    /// # Errors
    /// The failure that ended the groups, if one did.
    pub fn ids(&self) -> Result<Vec<u64>> {
        self.shared.check()?;
        Ok(self.shared.reader.ids(None, usize::MAX)?)
    }

    /// How much lives, how large the log is, and what was moved.
    pub fn stats(&self) -> Stats {
        self.shared.streams.stats()
    }

    /// One step of the mover on this thread, for groups that were opened without one
    /// ([`Options::own_mover`]). False when there is nothing to do.
    ///
    /// # Errors
    /// Those of the log.
    ///
    /// # Durability
    /// What was moved is on stable storage on return.
    pub fn move_some(&self) -> Result<bool> {
        self.shared.check()?;
        Ok(self.shared.streams.move_some()?)
    }

    /// Makes everything durable, what is committed too, calls the callbacks that are left, and
    /// releases the lock. Later calls, those of groups and readers too, get
    /// [`crate::Error::Closed`].
    ///
    /// # Errors
    /// [`inkstone::Error::NoRoom`] when there is none for what is committed, and only that is lost;
    /// [`inkstone::Error::Poisoned`].
    ///
    /// # Durability
    /// On `Ok` everything is on stable storage.
    pub fn close(&self) -> Result<()> {
        self.shared.close()
    }

    /// Ends as a killed process would.
    #[doc(hidden)]
    pub fn abandon(self) {
        self.shared.streams.log().end_as_killed();
    }
}

/// Those of the log below say that it is a raft log.
pub(crate) fn of_raft(options: Options) -> Options {
    let log = options.log_options().clone().kind_by_rule(LogKind::RAFT);
    options.log(log)
}

impl Drop for Groups {
    fn drop(&mut self) {
        let _ = self.close();
    }
}

impl fmt::Debug for Groups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.shared.reader.path();
        f.debug_struct("Groups").field("path", &path).finish_non_exhaustive()
    }
}
