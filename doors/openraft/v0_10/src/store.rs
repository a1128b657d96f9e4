//! The store that openraft writes to.
//!
//! *Owns*: which call of the raft log each of openraft's is, and what is awaited. *May not touch*:
//! rules, bytes, files.
//!
//! No call blocks a thread of the runtime for a flush: votes and truncations are awaited, and
//! completed by the raft log's callback; a purge, which also gives files back, runs where the
//! runtime lets calls block.

use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::path::Path;

use inkstone::AnyDirectory;
use inkstone_openraft_common::{Postcard, Stored};
use inkstone_raft::{Error, Options, RaftLog};
use openraft::async_runtime::OneshotSender;
use openraft::entry::RaftEntry;
use openraft::storage::{IOFlushed, RaftLogStorage};
use openraft::type_config::TypeConfigExt;
use openraft::type_config::alias::{CommittedLeaderIdOf, LogIdOf, VoteOf};
use openraft::{LogState, OptionalSend, RaftTypeConfig};

use crate::codec::Codec;
use crate::leader::{StoredLeader, id_of, stored_id, stored_vote};
use crate::reader::LogReader;

/// Vote and entries of one raft node, in one directory.
///
/// A directory has one store at a time. Clones are the same store: keep one to
/// [`close`](LogStore::close) it when openraft has shut down. Dropping the last clone makes durable
/// what was appended, calls all callbacks and releases the directory, but ignores errors.
///
/// Every error is a [`std::io::Error`] with the error of the raft log inside
/// ([`std::io::Error::get_ref`]): what was expected and what came. openraft ends the node when it
/// gets one. After a failed write or sync only a new opening knows what the disk holds.
pub struct LogStore<C, K = Postcard> {
    log: Stored,
    types: PhantomData<fn() -> (C, K)>,
}

impl<C: RaftTypeConfig> LogStore<C> {
    /// Opens the store in the directory `path`, with the codec [`Postcard`], creating both if they
    /// are not there.
    ///
    /// # Errors
    /// Those of [`RaftLog::open`]: a log of others, one of another raft group, one that is open
    /// already. Options with `own_thread(false)` are refused, since nobody would make awaited
    /// entries durable.
    ///
    /// # Durability
    /// Everything that the opened store shows is on stable storage on return.
    pub fn open(path: impl AsRef<Path>, options: Options) -> io::Result<Self> {
        LogStore::open_with(path, options)
    }
}

impl<C: RaftTypeConfig, K> LogStore<C, K> {
    /// As [`LogStore::open`], with any codec.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Durability
    /// As there.
    pub fn open_with(path: impl AsRef<Path>, options: Options) -> io::Result<Self> {
        Ok(Self::on(Stored::open(options, |options| RaftLog::open(path, options))?))
    }

    /// As [`LogStore::open_with`], in any directory ([`AnyDirectory`]), for example a simulated
    /// one.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Durability
    /// As there.
    pub fn open_in(directory: impl Into<AnyDirectory>, options: Options) -> io::Result<Self> {
        Ok(Self::on(Stored::open(options, |options| RaftLog::open_in(directory, options))?))
    }

    /// The store of one of many groups in one log (`groups.group(7)?`, [`Groups`]), with any codec.
    /// Keep the groups as long as the store: dropping them ends it. [`LogStore::close`] ends this
    /// group alone.
    ///
    /// # Errors
    /// [`inkstone::Error::Invalid`] for a log without a thread of its own.
    ///
    /// [`Groups`]: inkstone_raft::Groups
    pub fn of_group(raft: RaftLog) -> io::Result<Self> {
        Ok(Self::on(Stored::of(raft)?))
    }

    fn on(log: Stored) -> Self {
        Self { log, types: PhantomData }
    }

    /// A reader, as openraft's `get_log_reader`.
    pub fn reader(&self) -> LogReader<C, K> {
        LogReader { reader: self.log.reader(), types: PhantomData }
    }

    /// What the log below has done since it was opened: records, groups, how long they took.
    pub fn stats(&self) -> inkstone::Stats {
        self.log.stats()
    }

    /// Makes everything durable, what is committed too, calls the callbacks that are left, and
    /// releases the directory. All clones and readers are closed then. It waits for the device.
    ///
    /// # Errors
    /// The failure of that, or of an earlier write.
    ///
    /// # Durability
    /// On `Ok` everything is on stable storage.
    pub fn close(&self) -> io::Result<()> {
        Ok(self.log.close()?)
    }
}

impl<C: RaftTypeConfig, K: Codec<C>> LogStore<C, K> {
    /// Makes a call of the raft log and awaits its callback.
    async fn awaited(
        &self,
        call: impl FnOnce(
            &RaftLog,
            Box<dyn FnOnce(inkstone_raft::Result<()>) + Send>,
        ) -> inkstone_raft::Result<()>,
    ) -> io::Result<()> {
        let (done, wait) = C::oneshot();
        // Whether anybody still waits is not our concern.
        call(&self.log, Box::new(move |result| drop(done.send(result))))?;
        match wait.await {
            Ok(result) => Ok(result?),
            Err(_) => Err(Error::Closed.into()),
        }
    }
}

impl<C: RaftTypeConfig, K: Codec<C>> RaftLogStorage<C> for LogStore<C, K>
where
    C::LeaderId: StoredLeader,
    CommittedLeaderIdOf<C>: StoredLeader,
{
    type LogReader = LogReader<C, K>;

    async fn get_log_state(&mut self) -> Result<LogState<C>, io::Error> {
        let bounds = self.log.bounds()?;
        Ok(LogState {
            last_purged_log_id: bounds.purged.as_ref().map(id_of::<C>).transpose()?,
            last_log_id: bounds.last.as_ref().map(id_of::<C>).transpose()?,
        })
    }

    async fn get_log_reader(&mut self) -> Self::LogReader {
        self.reader()
    }

    async fn save_vote(&mut self, vote: &VoteOf<C>) -> Result<(), io::Error> {
        let vote = stored_vote::<C>(vote);
        self.awaited(move |raft, callback| raft.save_vote_then(&vote, callback)).await
    }

    async fn save_committed(&mut self, committed: Option<LogIdOf<C>>) -> Result<(), io::Error> {
        let Some(committed) = committed else { return Ok(()) };
        self.log.check_here(stored_id(&committed))?;
        Ok(self.log.save_committed(committed.index)?)
    }

    async fn read_committed(&mut self) -> Result<Option<LogIdOf<C>>, io::Error> {
        // What openraft saved itself, also if it was purged since: so it notices a state machine
        // that has lost its snapshot.
        self.log.bounds()?.saved_committed.as_ref().map(id_of::<C>).transpose()
    }

    async fn append<I>(&mut self, entries: I, callback: IOFlushed<C>) -> Result<(), io::Error>
    where
        I: IntoIterator<Item = C::Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        self.log.batch.clear();
        for entry in entries {
            let (leader, index) = entry.log_id_parts();
            self.log.batch.add(leader.to_leader(), index, |bytes| K::encode(&entry, bytes))?;
        }
        let callback = move |result: inkstone_raft::Result<()>| {
            callback.io_completed(result.map_err(Into::into))
        };
        Ok(self.log.append(callback)?)
    }

    async fn truncate_after(&mut self, last_log_id: Option<LogIdOf<C>>) -> Result<(), io::Error> {
        let from = match &last_log_id {
            Some(last) => {
                self.log.check_here(stored_id(last))?;
                last.index.saturating_add(1)
            }
            None => self.log.bounds()?.first,
        };
        self.awaited(move |raft, callback| raft.truncate_from_then(from, callback)).await
    }

    async fn purge(&mut self, log_id: LogIdOf<C>) -> Result<(), io::Error> {
        let (raft, upto) = (self.log.shared(), stored_id(&log_id));
        // openraft purges what a snapshot has, also one that it installed.
        Ok(C::spawn_blocking(move || raft.purge_to_snapshot(&upto)).await??)
    }
}

impl<C, K> Clone for LogStore<C, K> {
    fn clone(&self) -> Self {
        Self { log: self.log.clone(), types: PhantomData }
    }
}

impl<C, K> fmt::Debug for LogStore<C, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.log.fmt(f)
    }
}
