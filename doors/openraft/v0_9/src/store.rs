//! The store that openraft writes to.
//!
//! *Owns*: which call of the raft log each of openraft's is, and what is awaited. *May not touch*:
//! rules, bytes, files.
//!
//! No call blocks a thread of the runtime for a flush: votes and truncations are awaited, and
//! completed by the raft log's callback; a purge, which also gives files back, has a thread of its
//! own.

use std::fmt::{self, Debug};
use std::io;
use std::marker::PhantomData;
use std::ops::RangeBounds;
use std::path::Path;

use inkstone::AnyDirectory;
use inkstone_openraft_common::{NodeName, Postcard, Stored};
use inkstone_raft::{Error, Options, RaftLog};
use openraft::async_runtime::AsyncOneshotSendExt;
use openraft::storage::{LogFlushed, RaftLogStorage};
use openraft::{
    AsyncRuntime, ErrorSubject, ErrorVerb, LogId, LogState, OptionalSend, RaftLogId, RaftLogReader,
    RaftTypeConfig, StorageError, Vote,
};

use crate::codec::Codec;
use crate::leader::{id_of, stored_id, stored_leader, stored_vote, vote_of};
use crate::reader::LogReader;

/// Vote and entries of one raft node, in one directory.
///
/// A directory has one store at a time. Clones are the same store: keep one to
/// [`close`](LogStore::close) it when openraft has shut down. Dropping the last clone makes durable
/// what was appended, calls all callbacks and releases the directory, but ignores errors.
///
/// Every error has the text of the raft log's in it: what was expected and what came. openraft ends
/// the node when it gets one. After a failed write or sync only a new opening knows what the disk
/// holds.
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
        let log = Stored::open(options, |options| RaftLog::open(path, options))?;
        Ok(Self { log, types: PhantomData })
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
        let log = Stored::open(options, |options| RaftLog::open_in(directory, options))?;
        Ok(Self { log, types: PhantomData })
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
        Ok(Self { log: Stored::of(raft)?, types: PhantomData })
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
        call: impl FnOnce(&Stored, Callback) -> io::Result<()>,
    ) -> io::Result<()> {
        let (done, wait) = C::AsyncRuntime::oneshot();
        // Whether anybody still waits is not our concern.
        call(&self.log, Box::new(move |result| drop(done.send(result))))?;
        Ok(wait.await.unwrap_or(Err(Error::Closed))?)
    }
}

type Callback = Box<dyn FnOnce(inkstone_raft::Result<()>) + Send>;

/// The error as openraft wants it.
fn failed<N: openraft::NodeId, E: Into<io::Error>>(
    subject: ErrorSubject<N>,
    verb: ErrorVerb,
) -> impl FnOnce(E) -> StorageError<N> {
    move |error| StorageError::from_io_error(subject, verb, error.into())
}

fn reading<N: openraft::NodeId, E: Into<io::Error>>(error: E) -> StorageError<N> {
    failed(ErrorSubject::Logs, ErrorVerb::Read)(error)
}

fn writing<N: openraft::NodeId, E: Into<io::Error>>(error: E) -> StorageError<N> {
    failed(ErrorSubject::Logs, ErrorVerb::Write)(error)
}

impl<C: RaftTypeConfig, K: Codec<C>> RaftLogStorage<C> for LogStore<C, K>
where
    C::NodeId: NodeName,
{
    type LogReader = LogReader<C, K>;

    async fn get_log_state(&mut self) -> Result<LogState<C>, StorageError<C::NodeId>> {
        let bounds = self.log.bounds().map_err(reading)?;
        Ok(LogState {
            last_purged_log_id: bounds.purged.as_ref().map(id_of).transpose().map_err(reading)?,
            last_log_id: bounds.last.as_ref().map(id_of).transpose().map_err(reading)?,
        })
    }

    async fn get_log_reader(&mut self) -> Self::LogReader {
        self.reader()
    }

    async fn save_vote(&mut self, vote: &Vote<C::NodeId>) -> Result<(), StorageError<C::NodeId>> {
        let failed = |error: io::Error| failed(ErrorSubject::Vote, ErrorVerb::Write)(error);
        let vote = stored_vote(vote).map_err(failed)?;
        let saved =
            self.awaited(move |raft, callback| Ok(raft.save_vote_then(&vote, callback)?)).await;
        saved.map_err(failed)
    }

    async fn read_vote(&mut self) -> Result<Option<Vote<C::NodeId>>, StorageError<C::NodeId>> {
        let read = || -> io::Result<_> { self.log.vote()?.as_ref().map(vote_of).transpose() };
        read().map_err(failed(ErrorSubject::Vote, ErrorVerb::Read))
    }

    async fn save_committed(
        &mut self,
        committed: Option<LogId<C::NodeId>>,
    ) -> Result<(), StorageError<C::NodeId>> {
        let Some(committed) = committed else { return Ok(()) };
        self.log.check_here(stored_id(&committed)).map_err(writing)?;
        self.log.save_committed(committed.index).map_err(writing)
    }

    async fn read_committed(
        &mut self,
    ) -> Result<Option<LogId<C::NodeId>>, StorageError<C::NodeId>> {
        // What openraft saved itself, also if it was purged since: so it notices a state machine
        // that has lost its snapshot.
        let saved = self.log.bounds().map_err(reading)?.saved_committed;
        saved.as_ref().map(id_of).transpose().map_err(reading)
    }

    async fn append<I>(
        &mut self,
        entries: I,
        callback: LogFlushed<C>,
    ) -> Result<(), StorageError<C::NodeId>>
    where
        I: IntoIterator<Item = C::Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        self.log.batch.clear();
        let purged = self.log.bounds().map_err(writing)?.purged;
        for entry in entries {
            let id = entry.get_log_id();
            let (leader, index) = (stored_leader(&id.leader_id), id.index);
            // A snapshot has it. openraft 0.9's suite appends such an entry, and means it to be
            // taken.
            if purged
                .as_ref()
                .is_some_and(|purged| index <= purged.index && leader <= purged.leader)
            {
                continue;
            }
            self.log.batch.add(leader, index, |bytes| K::encode(&entry, bytes)).map_err(writing)?;
        }
        let callback = move |result: inkstone_raft::Result<()>| {
            callback.log_io_completed(result.map_err(Into::into))
        };
        self.log.append(callback).map_err(writing)
    }

    async fn truncate(&mut self, log_id: LogId<C::NodeId>) -> Result<(), StorageError<C::NodeId>> {
        self.log.check_here(stored_id(&log_id)).map_err(writing)?;
        let from = log_id.index;
        let truncated =
            self.awaited(move |raft, callback| Ok(raft.truncate_from_then(from, callback)?)).await;
        truncated.map_err(writing)
    }

    async fn purge(&mut self, log_id: LogId<C::NodeId>) -> Result<(), StorageError<C::NodeId>> {
        let upto = stored_id(&log_id);
        let purged = self.awaited(move |raft, callback| {
            let raft = raft.shared();
            // openraft purges what a snapshot has, also one that it installed.
            let purge = move || callback(raft.purge_to_snapshot(&upto));
            std::thread::Builder::new().name("inkstone-purge".into()).spawn(purge).map(drop)
        });
        purged.await.map_err(writing)
    }
}

/// Entries are read through the store too.
impl<C: RaftTypeConfig, K: Codec<C>> RaftLogReader<C> for LogStore<C, K>
where
    C::NodeId: NodeName,
{
    async fn try_get_log_entries<R: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: R,
    ) -> Result<Vec<C::Entry>, StorageError<C::NodeId>> {
        self.reader().try_get_log_entries(range).await
    }

    async fn limited_get_log_entries(
        &mut self,
        start: u64,
        end: u64,
    ) -> Result<Vec<C::Entry>, StorageError<C::NodeId>> {
        self.reader().limited_get_log_entries(start, end).await
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
