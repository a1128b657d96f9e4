//! A raft log that is open for writing: the public entry.
//!
//! *Owns*: the order of writes: each is checked, becomes a record, and then changes the state. *May
//! not touch*: the rules (`state.rs`), the bytes (`record.rs`), files.
//!
//! One thread writes at a time. The lock of the state is taken only for moments in between, so that
//! readers never wait for a disk.

mod entries;
mod then;

use std::fmt;
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;

use inkstone::{AnyDirectory, Append, Log, Lsn, OsDirectory, Reader};

use crate::callbacks::{Callbacks, run};
use crate::core::Core;
use crate::error::{Error, Result};
use crate::listener::is_listening_here;
use crate::open::{ask, below, check, finish};
use crate::options::Options;
use crate::reader::RaftReader;
use crate::record::{encode_change, encode_state};
use crate::state::Change;
use crate::sync::{Mutex, MutexGuard, lock, try_lock, yield_now};
use crate::words::{Bounds, Entry, EntryId, Vote};

/// A raft log that is open for writing. A directory has one writer at a time. Share the value
/// between threads by a reference or an [`Arc`]; writes are carried out one after the other, in the
/// order in which the calls come.
///
/// Dropping it makes durable what was appended, calls all callbacks and releases the lock, but
/// ignores errors, and what [`RaftLog::save_committed`] said last may be lost: [`RaftLog::close`]
/// returns errors and loses nothing.
///
/// After a failed write or sync every call returns that error ([`inkstone::Error::Poisoned`]):
/// memory may be ahead of the disk then. Open it again; the opening finds out what the disk holds.
/// In a forked child every call returns [`inkstone::Error::Forked`].
pub struct RaftLog {
    log: Log,
    order: Mutex<Order>,
    reader: RaftReader,
    memory_bytes: usize,
    /// Dropped after the log, which calls back what becomes durable.
    _end: End,
}

/// What only the writing thread knows.
#[derive(Default)]
pub(crate) struct Order {
    /// The index that was saved as committed last, as long as no record has it.
    pub(crate) to_say: Option<u64>,
    /// No state is tried in this segment again: it was too large for a record.
    no_state_in: Option<Lsn>,
    bytes: Vec<u8>,
    ends: Vec<usize>,
    payloads: Vec<Arc<[u8]>>,
}

/// When it is dropped, the callbacks that are left get the error that the raft log has ended.
struct End(Arc<Core>);

impl Drop for End {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl RaftLog {
    /// Opens the raft log in the directory `path`, creating both if they are not there.
    ///
    /// # Errors
    /// [`Error::Foreign`] for a log with other records, [`Error::OtherRaftGroup`], [`Error::Newer`]
    /// and [`Error::Contradiction`] for what it holds; [`inkstone::Error::Invalid`] for options
    /// that cannot be kept, also a `record_bytes_max` below 283; those of [`Log::open`],
    /// [`inkstone::Error::Locked`] among them. No file was changed then; only where
    /// [`Error::Newer`] or [`Error::Contradiction`] names a record behind the first one, the log
    /// below was opened and closed, which changes no record.
    ///
    /// # Durability
    /// Everything that the opened raft log shows is on stable storage on return.
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Self> {
        check(&options)?;
        let (options, callbacks) = below(options);
        let path = path.as_ref();
        ask(Reader::open(path, &options.log), path, &options)?;
        let log = Log::open(path, options.log.clone())?;
        let directory = OsDirectory::open(path).map_err(inkstone::Error::from)?;
        Self::opened(log, AnyDirectory::new(directory), &options, callbacks)
    }

    /// Opens the raft log in any directory ([`AnyDirectory`]), for example a simulated one.
    ///
    /// # Errors
    /// As [`RaftLog::open`].
    ///
    /// # Durability
    /// As [`RaftLog::open`].
    pub fn open_in(directory: impl Into<AnyDirectory>, options: Options) -> Result<Self> {
        check(&options)?;
        let (options, callbacks) = below(options);
        let directory = directory.into();
        let reader = Reader::open_in(directory.clone(), options.log.clone());
        ask(reader, directory.path(), &options)?;
        let log = Log::open_in(directory.clone(), options.log.clone())?;
        Self::opened(log, directory, &options, callbacks)
    }

    fn opened(
        log: Log,
        directory: AnyDirectory,
        options: &Options,
        callbacks: Arc<Callbacks>,
    ) -> Result<Self> {
        let state = finish(&log, directory.path(), options)?;
        let core = Arc::new(Core::new(state, log.reader(), directory, callbacks));
        let reader = RaftReader { core: Arc::clone(&core) };
        let memory_bytes = options.memory_bytes;
        Ok(Self { log, order: Mutex::default(), reader, memory_bytes, _end: End(core) })
    }

    /// Saves a vote, which must not go back ([`Vote::may_follow`]). A vote that is saved already is
    /// not written again.
    ///
    /// # Errors
    /// [`Error::VoteGoesBack`], [`Error::NameTooLong`]; [`inkstone::Error::NoRoom`] (in these cases
    /// nothing has changed); [`inkstone::Error::Poisoned`].
    ///
    /// # Durability
    /// On `Ok` the vote and everything before it, entries and truncations too, are on stable
    /// storage.
    pub fn save_vote(&self, vote: &Vote) -> Result<()> {
        let lsn = self.change(&Change::Vote(vote.clone()))?;
        self.core().memory().vote_is_durable(lsn, vote);
        Ok(())
    }

    /// Truncates the entries from index `from` on. If none is left, and none was purged, the next
    /// entry may have any index again. Their records stay in the log until a purge removes them.
    ///
    /// # Errors
    /// [`Error::IsCommitted`], [`Error::IsPurged`]; [`inkstone::Error::NoRoom`] (in these cases
    /// nothing has changed); [`inkstone::Error::Poisoned`].
    ///
    /// # Durability
    /// On `Ok` the entries never come back.
    pub fn truncate_from(&self, from: u64) -> Result<()> {
        self.change(&Change::Truncate(from)).map(|_| ())
    }

    /// Purges the entries up to `upto`, which must be committed, and releases the segments that no
    /// entry needs any more. If they were purged before, nothing changes. The last entry that was
    /// purged is [`Bounds::purged`].
    ///
    /// # Errors
    /// [`Error::NotCommitted`], [`Error::OtherEntry`], [`Error::HoleBehindPurge`];
    /// [`inkstone::Error::NoRoom`] when the disk is full and releasing segments has not made room
    /// for the record of the purge: the entries in those segments are purged, the others are not;
    /// [`inkstone::Error::Poisoned`]. An error of a file that cannot be released comes after the
    /// purge: the next purge or opening tries again.
    ///
    /// # Durability
    /// On `Ok` the entries never come back.
    pub fn purge(&self, upto: &EntryId) -> Result<()> {
        self.change_and_release(upto, false)
    }

    /// The same after a snapshot was installed that has everything up to `upto`: also beyond what
    /// is committed, and beyond the last entry. What is here after `upto` stays if the entry at
    /// `upto` is the one of the snapshot, else all entries go. A raft log that was never purged may
    /// begin right behind `upto`: its entries stay unless the first is of an older leader. From
    /// then on `upto` is committed. The snapshot must be durable before.
    ///
    /// # Errors
    /// [`Error::OtherEntry`] and [`Error::LeaderGoesBack`] when the snapshot contradicts what is
    /// committed; else as [`RaftLog::purge`]. On a full disk it first releases the segments before
    /// `upto`. If it fails then, or the process ends, their entries are purged and noted as
    /// committed, which is less than the snapshot has.
    ///
    /// # Durability
    /// On `Ok` it stays so.
    pub fn purge_to_snapshot(&self, upto: &EntryId) -> Result<()> {
        self.change_and_release(upto, true)
    }

    /// Notes that the entries up to `index` are committed: they can be purged, and no longer
    /// truncated or written over.
    ///
    /// # Errors
    /// [`Error::NotHere`] beyond the last entry, [`Error::CommittedGoesBack`]; the failure that
    /// ended the raft log, if one did.
    ///
    /// # Durability
    /// None, and no write: it rides with the next record, and is durable with it.
    /// [`RaftLog::close`] writes it. After a crash an earlier one may be found, which in Raft is
    /// safe.
    pub fn save_committed(&self, index: u64) -> Result<()> {
        self.core().check()?;
        let mut order = self.order();
        let mut memory = self.core().memory();
        let change = Change::Commit(index);
        memory.state.check(&change)?;
        if !memory.state.is_done(&change) {
            memory.state.apply(&change);
            order.to_say = Some(index);
        }
        Ok(())
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
        self.core().check()?;
        self.core().noted(self.log.sync()).map(|_| ())
    }

    /// Makes everything durable, what is committed too, calls the callbacks that are left, and
    /// releases the lock. The raft log is closed in any case: later calls, those of readers too,
    /// get [`Error::Closed`].
    ///
    /// # Errors
    /// [`inkstone::Error::NoRoom`] when there is none for what is committed, and only that is lost;
    /// [`inkstone::Error::Poisoned`].
    ///
    /// # Durability
    /// On `Ok` everything is on stable storage.
    pub fn close(&self) -> Result<()> {
        let synced = self.sync_committed();
        let closed = self.core().noted(self.log.close());
        self.core().close();
        synced.and(closed)
    }

    /// As [`RaftLog::sync`], after a record of what is committed, if it has none yet.
    fn sync_committed(&self) -> Result<()> {
        self.core().check()?;
        let mut order = self.order();
        if let Some(index) = order.to_say {
            // Its flush is the one of the sync.
            let _unwaited = self.write(&mut order, &Change::Commit(index))?;
        }
        drop(order);
        self.sync()
    }

    /// Ends it as a killed process would.
    #[doc(hidden)]
    pub fn abandon(self) {
        self.log.abandon();
    }

    /// A reader of the entries, for other threads.
    pub fn reader(&self) -> RaftReader {
        self.reader.clone()
    }

    /// As [`RaftReader::bounds`].
    ///
    /// # Errors
    /// As there.
    pub fn bounds(&self) -> Result<Bounds> {
        self.reader.bounds()
    }

    /// As [`RaftReader::vote`].
    ///
    /// # Errors
    /// As there.
    pub fn vote(&self) -> Result<Option<Vote>> {
        self.reader.vote()
    }

    /// As [`RaftReader::entry`].
    ///
    /// # Errors
    /// As there.
    pub fn entry(&self, index: u64) -> Result<Option<Entry>> {
        self.reader.entry(index)
    }

    /// As [`RaftReader::entries`].
    ///
    /// # Errors
    /// As there.
    pub fn entries(
        &self,
        range: std::ops::Range<u64>,
        payload_bytes_max: usize,
    ) -> Result<Vec<Entry>> {
        self.reader.entries(range, payload_bytes_max)
    }

    /// What the log below has done since it was opened. All zeros in a forked child.
    pub fn stats(&self) -> inkstone::Stats {
        self.log.stats()
    }

    /// How the log below writes, and why so.
    pub fn choice(&self) -> &inkstone::Choice {
        self.log.choice()
    }

    /// What the opening of the log below found and did.
    pub fn recovery(&self) -> &inkstone::Recovery {
        self.log.recovery()
    }

    /// The first and the last record of the log below. Each entry is a record, and so is each vote,
    /// truncation and purge.
    pub fn records(&self) -> RangeInclusive<Lsn> {
        self.log.first()..=self.log.last()
    }

    /// Its directory.
    pub fn path(&self) -> &Path {
        self.core().directory.path()
    }

    fn core(&self) -> &Arc<Core> {
        &self.reader.core
    }

    /// Waits until no other thread writes. A callback or listener may run on the thread that makes
    /// room for the one that writes, so there it does the log's work while it waits.
    fn order(&self) -> Turn<'_> {
        let callbacks = &self.core().callbacks;
        let order = if callbacks.is_calling_here() || is_listening_here() {
            loop {
                if let Some(order) = try_lock(&self.order) {
                    break order;
                }
                // A failure is the other thread's, and this one's when its turn comes.
                let _ = self.log.sync();
                yield_now();
            }
        } else {
            lock(&self.order)
        };
        callbacks.begin_write();
        Turn { order: Some(order), callbacks }
    }

    /// Makes a change: checked, written, durable. Returns the record of the vote that holds then.
    fn change(&self, change: &Change) -> Result<Lsn> {
        self.core().check()?;
        let mut order = self.order();
        let is_done = {
            let memory = self.core().memory();
            memory.state.check(change)?;
            memory.state.is_done(change)
        };
        let append = if is_done { None } else { Some(self.write(&mut order, change)?) };
        let vote_lsn = self.core().memory().vote_lsn;
        drop(order);
        match append {
            Some(append) => self.core().noted(append.wait())?,
            // It may have been done by a call that still waits.
            None => self.core().noted(self.log.sync())?,
        };
        Ok(vote_lsn)
    }

    /// Writes a change that was checked, and makes it in memory.
    fn write(&self, order: &mut Order, change: &Change) -> Result<Append<'_>> {
        order.bytes.clear();
        encode_change(&mut order.bytes, change, order.to_say);
        let append = self.core().noted(self.log.append(&order.bytes))?;
        order.to_say = None;
        {
            let durable = self.log.durable();
            let mut memory = self.core().memory();
            memory.settle_vote(durable);
            memory.apply(change);
            match change {
                Change::Vote(_) => memory.vote_lsn = append.lsn(),
                // The state is smaller now.
                Change::Purge { .. } => order.no_state_in = None,
                Change::Truncate(_) | Change::Commit(_) => {}
            }
        }
        self.repeat_state(order);
        Ok(append)
    }

    /// Writes the state again if the log has begun another segment since the last one. If that
    /// cannot be done now, the next write tries again: until then the front of the log stays
    /// longer.
    fn repeat_state(&self, order: &mut Order) {
        let head = self.log.head_first();
        {
            let memory = self.core().memory();
            if memory.state.states.last().is_some_and(|last| *last >= head)
                || order.no_state_in == Some(head)
            {
                return;
            }
            order.bytes.clear();
            encode_state(&mut order.bytes, &memory.state);
        }
        match self.core().noted(self.log.append_unwaited(&order.bytes)) {
            Ok(lsn) => {
                let mut memory = self.core().memory();
                memory.state.states.push(lsn);
                order.to_say = None;
            }
            Err(Error::Log(inkstone::Error::TooLarge { .. })) => order.no_state_in = Some(head),
            // A failure is noted, and the next call returns it.
            Err(_) => {}
        }
        order.forget_large();
    }

    fn change_and_release(&self, upto: &EntryId, is_snapshot: bool) -> Result<()> {
        self.core().check()?;
        let change = Change::Purge { upto: upto.clone(), is_snapshot };
        let mut order = self.order();
        let is_done = {
            let memory = self.core().memory();
            memory.state.check(&change)?;
            memory.state.is_done(&change)
        };
        if is_done {
            drop(order);
            self.core().noted(self.log.sync())?;
        } else {
            let mut written = self.write(&mut order, &change);
            // On a full disk the segments come first. What an opening then takes for purged is
            // committed, or the snapshot has it, and it was asked for.
            if matches!(written, Err(Error::Log(inkstone::Error::NoRoom { .. }))) {
                let first = self.core().memory().state.first_kept_without_record(upto, is_snapshot);
                if self.release(first)? {
                    written = self.write(&mut order, &change);
                }
            }
            let append = written?;
            drop(order);
            // The purge and every state before it are durable before the log gives up what they
            // replace.
            self.core().noted(append.wait())?;
        }
        let first = self.core().memory().state.first;
        self.release(first).map(|_| ())
    }

    /// Truncates the front of the log as far as no entry from `first` on needs it, and returns
    /// whether there was anything to truncate. The log begins with a state then.
    fn release(&self, first: u64) -> Result<bool> {
        let Some(front) = self.core().memory().state.front_for(first) else { return Ok(false) };
        if front <= self.log.first() {
            return Ok(false);
        }
        let released = self.core().noted(self.log.truncate_before(front));
        // A file that could not be released does not bring its records back.
        let front = self.log.first();
        let mut memory = self.core().memory();
        memory.state.purge_before(front);
        memory.mind_bounds();
        released.map(|()| true)
    }
}

impl Order {
    /// Releases the memory that one large append took.
    fn forget_large(&mut self) {
        const KEPT_BYTES: usize = 1 << 20;
        if self.bytes.capacity() > KEPT_BYTES {
            self.bytes = Vec::new();
            self.ends = Vec::new();
            self.payloads = Vec::new();
        }
    }
}

/// The right to write. When it ends, the listener gets the events of meanwhile, and callbacks are
/// called that became due.
struct Turn<'a> {
    order: Option<MutexGuard<'a, Order>>,
    callbacks: &'a Callbacks,
}

impl std::ops::Deref for Turn<'_> {
    type Target = Order;

    fn deref(&self) -> &Order {
        self.order.as_ref().expect("it is there until the end")
    }
}

impl std::ops::DerefMut for Turn<'_> {
    fn deref_mut(&mut self) -> &mut Order {
        self.order.as_mut().expect("it is there until the end")
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let kept = self.callbacks.end_write();
        self.order = None;
        kept.into_iter().for_each(run);
        self.callbacks.call();
    }
}

impl fmt::Debug for RaftLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RaftLog").field("log", &self.log).finish_non_exhaustive()
    }
}
