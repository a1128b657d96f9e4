//! A raft log that is open for writing: the public entry.
//!
//! *Owns*: the calls, and what each promises. *May not touch*: how they are carried out
//! (`group.rs`).

use std::fmt;
use std::ops::{Deref, RangeInclusive};
use std::path::Path;

use inkstone::{AnyDirectory, Lsn};
use inkstone_streams::Streams;

use crate::error::{Error, Result};
use crate::group::Shared;
use crate::options::{Options, refuse_periodic};
use crate::reader::RaftReader;
use crate::state::Change;
use crate::words::{EntryId, NewEntry, Vote};

/// A raft log that is open for writing: alone in its log ([`RaftLog::open`]), or as one of
/// many groups in one ([`crate::Groups::group`]). A directory has one writer at a time. Share the
/// value between threads by a reference or an [`Arc`](std::sync::Arc); writes are carried out one
/// after the other, in the order in which the calls come.
///
/// Dropping it makes everything durable, calls all callbacks and releases the lock, but ignores
/// errors: [`RaftLog::close`] returns them.
///
/// After a failed write or sync every call returns that error ([`inkstone::Error::Poisoned`]):
/// memory may be ahead of the disk then. Open it again; the opening finds out what the disk holds.
/// In a forked child every call returns [`inkstone::Error::Forked`].
///
/// Of a group [`RaftLog::stats`], [`RaftLog::choice`] and [`RaftLog::records`] are those of the log
/// that all share; dropping the last handle of a group ends no log and no callback, and
/// [`RaftLog::close`] ends the group alone.
pub struct RaftLog {
    pub(crate) reader: RaftReader,
}

impl RaftLog {
    /// Opens the raft log in the directory `path`, creating both if they are not there.
    ///
    /// # Errors
    /// [`inkstone::Error::OtherKind`] for another log; [`crate::Error::OtherRaftGroup`],
    /// [`crate::Error::Lost`] and [`crate::Error::Streams`] for what it holds;
    /// [`crate::Error::BadGroup`] for what is no raft group; [`inkstone::Error::Invalid`] for
    /// options that cannot be kept, also a `record_bytes_max` below 8 KiB; those of
    /// [`inkstone::Log::open`], [`inkstone::Error::Locked`] among them. A log of another kind is
    /// left as it is; after another error of what the log holds, the log below was opened and
    /// closed, which changes no record.
    ///
    /// # Durability
    /// Everything that the opened raft log shows is on stable storage on return.
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Self> {
        refuse_periodic(&options.log)?;
        Self::alone(Streams::open(path, options.below())?, &options)
    }

    /// Opens the raft log in any directory ([`AnyDirectory`]), for example a simulated one.
    ///
    /// # Errors
    /// As [`RaftLog::open`].
    ///
    /// # Durability
    /// As [`RaftLog::open`].
    pub fn open_in(directory: impl Into<AnyDirectory>, options: Options) -> Result<Self> {
        refuse_periodic(&options.log)?;
        Self::alone(Streams::open_in(directory, options.below())?, &options)
    }

    fn alone(streams: Streams, options: &Options) -> Result<Self> {
        let shared = Shared::new(streams, Some(options.memory_bytes));
        let expected = options.raft_group;
        let others = shared.reader.ids(None, 2)?.into_iter().find(|id| *id != expected);
        if let Some(came) = others {
            return Err(Error::OtherRaftGroup {
                path: shared.reader.path().into(),
                expected,
                came,
            });
        }
        Ok(Self { reader: RaftReader { group: shared.group(expected)? } })
    }

    /// Appends entries, all or none: after a crash either all of them are here or none. They can be
    /// read when the call returns. The first entry of a raft log may have any index; each that
    /// follows has the next one.
    ///
    /// `callback` is called once, when they are durable, or with the error when they will not be.
    ///
    /// Callbacks are called one at a time and in the order of the appends, with nothing of the raft
    /// log locked, on the thread that made the entries durable: one of the log's own, or one that
    /// waits in another call; also within this call. A callback holds up others, so it must not
    /// block; it may use the raft log. If it panics, nothing else happens. The callback of an
    /// append whose entries were truncated meanwhile is called with `Ok` too: they were durable.
    /// For no entries it is called when all earlier calls are durable, of every group.
    ///
    /// # Errors
    /// [`crate::Error::Hole`], [`crate::Error::IsCommitted`], [`crate::Error::LeaderGoesBack`],
    /// [`crate::Error::NameTooLong`], [`crate::Error::IndexesUsedUp`];
    /// [`inkstone::Error::TooLarge`] when the entries together are larger than a record may be:
    /// append fewer at a time; [`inkstone::Error::NoRoom`]. In all these cases nothing has changed.
    /// [`inkstone::Error::Poisoned`]. After an error the callback is dropped without being called.
    ///
    /// # Durability
    /// None on return. When the callback gets `Ok`, the entries and everything before them are on
    /// stable storage.
    pub fn append(
        &self,
        entries: &[NewEntry<'_>],
        callback: impl FnOnce(Result<()>) + Send + 'static,
    ) -> Result<()> {
        let change = Change::Append(entries.to_vec());
        self.group.named(self.group.change_then(change, Box::new(callback)))
    }

    /// Saves a vote, which must not go back ([`Vote::may_follow`]). A vote that is saved already is
    /// not written again.
    ///
    /// # Errors
    /// [`crate::Error::VoteGoesBack`], [`crate::Error::NameTooLong`]; [`inkstone::Error::NoRoom`]
    /// (in these cases nothing has changed); [`inkstone::Error::Poisoned`].
    ///
    /// # Durability
    /// On `Ok` the vote and everything before it, entries and truncations too, are on stable
    /// storage.
    pub fn save_vote(&self, vote: &Vote) -> Result<()> {
        self.group.named(self.group.change(Change::Vote(vote.clone())))
    }

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
        let change = Change::Vote(vote.clone());
        self.group.named(self.group.change_then(change, Box::new(callback)))
    }

    /// Truncates the entries from index `from` on. If none is left, and none was purged, the next
    /// entry may have any index again. Their records stay in the log until a purge removes them.
    ///
    /// # Errors
    /// [`crate::Error::IsCommitted`], [`crate::Error::IsPurged`]; [`inkstone::Error::NoRoom`] (in
    /// these cases nothing has changed); [`inkstone::Error::Poisoned`].
    ///
    /// # Durability
    /// On `Ok` the entries never come back.
    pub fn truncate_from(&self, from: u64) -> Result<()> {
        self.group.named(self.group.change(Change::Truncate(from)))
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
        let change = Change::Truncate(from);
        self.group.named(self.group.change_then(change, Box::new(callback)))
    }

    /// Purges the entries up to `upto`, which must be committed, and releases the segments that no
    /// entry needs any more. If they were purged before, nothing changes. The last entry that was
    /// purged is [`crate::Bounds::purged`].
    ///
    /// # Errors
    /// [`crate::Error::NotCommitted`], [`crate::Error::OtherEntry`],
    /// [`crate::Error::HoleBehindPurge`]; [`inkstone::Error::NoRoom`] when the disk is full and
    /// releasing segments has not made room for the record of the purge: the entries in those
    /// segments are purged, the others are not; [`inkstone::Error::Poisoned`]. An error of a file
    /// that cannot be released comes after the purge: the next purge or opening tries again.
    ///
    /// # Durability
    /// On `Ok` the entries never come back.
    pub fn purge(&self, upto: &EntryId) -> Result<()> {
        self.group.named(self.group.purge(upto, false))
    }

    /// The same after a snapshot was installed that has everything up to `upto`: also beyond what
    /// is committed, and beyond the last entry. What is here after `upto` stays if the entry at
    /// `upto` is the one of the snapshot, else all entries go. A raft log that was never purged may
    /// begin right behind `upto`: its entries stay unless the first is of an older leader. From
    /// then on `upto` is committed. The snapshot must be durable before.
    ///
    /// # Errors
    /// [`crate::Error::OtherEntry`] and [`crate::Error::LeaderGoesBack`] when the snapshot
    /// contradicts what is committed; else as [`RaftLog::purge`]. On a full disk it first releases
    /// the segments before `upto`. If it fails then, or the process ends, their entries are purged
    /// and noted as committed, which is less than the snapshot has.
    ///
    /// # Durability
    /// On `Ok` it stays so.
    pub fn purge_to_snapshot(&self, upto: &EntryId) -> Result<()> {
        self.group.named(self.group.purge(upto, true))
    }

    /// Notes that the entries up to `index` are committed: they can be purged, and no longer
    /// truncated or written over.
    ///
    /// # Errors
    /// [`crate::Error::NotHere`] beyond the last entry, [`crate::Error::CommittedGoesBack`]; the
    /// failure that ended the raft log, if one did.
    ///
    /// # Durability
    /// None, and no write: it rides with the next record, and is durable with it.
    /// [`RaftLog::close`] writes it. After a crash an earlier one may be found, which in Raft is
    /// safe.
    pub fn save_committed(&self, index: u64) -> Result<()> {
        self.group.named(self.group.save_committed(index))
    }

    /// Makes everything durable that has a record: all but what [`RaftLog::save_committed`] said
    /// since the last record. To write that each time would put a record between entries, and so a
    /// run into memory.
    ///
    /// # Errors
    /// [`inkstone::Error::Poisoned`].
    ///
    /// # Durability
    /// On `Ok` all records before are on stable storage.
    pub fn sync(&self) -> Result<()> {
        self.group.sync()
    }

    /// Makes everything durable, what is committed too, calls the callbacks that are left, and
    /// releases the lock. The raft log is closed in any case: later calls, those of readers too,
    /// get [`crate::Error::Closed`].
    ///
    /// # Errors
    /// [`inkstone::Error::NoRoom`] when there is none for what is committed, and only that is lost;
    /// [`inkstone::Error::Poisoned`].
    ///
    /// # Durability
    /// On `Ok` everything is on stable storage.
    pub fn close(&self) -> Result<()> {
        if self.group.shared.is_alone() { self.group.shared.close() } else { self.group.close() }
    }

    /// Ends it as a killed process would.
    #[doc(hidden)]
    pub fn abandon(self) {
        self.group.log().end_as_killed();
    }

    /// A reader of the entries, for other threads.
    pub fn reader(&self) -> RaftReader {
        self.reader.clone()
    }

    /// What the log below has done since it was opened. All zeros in a forked child.
    pub fn stats(&self) -> inkstone::Stats {
        self.group.log().stats()
    }

    /// How the log below writes, and why so.
    pub fn choice(&self) -> inkstone::Choice {
        self.group.log().choice()
    }

    /// The first and the last record of the log below. Each entry is a record, and so is each vote,
    /// truncation and purge.
    pub fn records(&self) -> RangeInclusive<Lsn> {
        self.group.log().first()..=self.group.log().last()
    }

    /// Whether the log below has threads of its own: without them a callback comes only when some
    /// call waits.
    pub fn has_own_thread(&self) -> bool {
        self.group.log().has_own_thread()
    }
}

/// All that a reader can be asked.
impl Deref for RaftLog {
    type Target = RaftReader;

    fn deref(&self) -> &RaftReader {
        &self.reader
    }
}

impl Drop for RaftLog {
    /// Whoever opens the raft log again finds what was said to be committed.
    fn drop(&mut self) {
        let _ = self.group.say_committed();
        if self.group.shared.is_alone() {
            let _ = self.group.shared.close();
        }
    }
}

impl fmt::Debug for RaftLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RaftLog")
            .field("path", &self.group.shared.reader.path())
            .finish_non_exhaustive()
    }
}
