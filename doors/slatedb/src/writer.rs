//! The writer: fencing, appending, flushing.
//!
//! *Owns*: how a writer opens, and the traits `WriterInit`, `WalWriter`, `WalObserver`. *May not
//! touch*: the status (`state.rs`), reading (`iterator.rs`).

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use inkstone::{AnyDirectory, Error, Log, Lsn, Reader, Verdict};
use slatedb::RowEntry;
use slatedb::object_store::PutMode;
use slatedb::wal::{
    WalError, WalObserver, WalStatus, WalStatusListener, WalWriter, WriterInit, WriterInitResult,
    WriterManifest,
};

use crate::blocking::blocking;
use crate::bound::Held;
use crate::error::{data, is_no_room, of_io, of_log, unavailable};
use crate::iterator::LogIterator;
use crate::owner::{Named, OwnerId, Whose};
use crate::place::remove_log;
use crate::state::Shared;
use crate::wals::{DatabaseWal, Seen};

/// The manifest of a writer that opens: the part that fencing needs.
#[async_trait]
pub trait ManifestView: Send {
    /// What it says.
    fn seen(&self) -> Seen;
    /// Reads it again; [`WalError::Fenced`] when it has a later epoch.
    async fn refresh(&mut self) -> Result<(), WalError>;
}

#[async_trait]
impl ManifestView for WriterManifest {
    fn seen(&self) -> Seen {
        Seen::of(&self.manifest())
    }

    async fn refresh(&mut self) -> Result<(), WalError> {
        Self::refresh(self).await
    }
}

/// The longest pause before the next attempt to lock.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// The outcome of an attempt to open. A log is closed when it is dropped.
enum Found {
    /// The log that the object names, and the first id to replay.
    Ours(Log, u64),
    /// A new log, which the object shall name.
    Begun(Log, Named),
    /// A log that never had a row, for which a new one is to be begun.
    Empty(Log),
    /// Another process has the log, or a writer of this process that is about to open or to end.
    Locked(Error),
    Refused(WalError),
    /// Another writer has changed what was seen.
    Changed,
}

/// Sorts an opening for writing; the log has this id, unless another writer has replaced it.
fn found(
    opened: Result<Log, Error>,
    id: OwnerId,
    then: impl FnOnce(Log) -> Result<Found, WalError>,
) -> Result<Found, WalError> {
    match opened {
        Err(locked @ Error::Locked { .. }) => Ok(Found::Locked(locked)),
        Err(Error::NoLog { .. }) => Ok(Found::Changed),
        Err(error) => Err(of_log(error)),
        Ok(log) if log.reader().owner() != id => Ok(Found::Changed),
        Ok(log) => then(log),
    }
}

impl DatabaseWal {
    /// Fences every other writer, and opens; the iterator returns the rows to replay.
    ///
    /// # Errors
    /// Those of `WriterInit::fence_and_init`.
    #[doc(hidden)]
    pub async fn begin(
        &self,
        manifest: &mut dyn ManifestView,
    ) -> Result<(Writer, LogIterator), WalError> {
        self.tuning().check()?;
        // None waits for ever.
        let until = Instant::now().checked_add(self.tuning().fence_within);
        let mut pause = Duration::from_millis(10);
        loop {
            let (wal, seen, named) = (self.clone(), manifest.seen(), self.named().await?);
            let opened = blocking(move || wal.open(seen, named)).await;
            // A newer epoch may have had the lock before this one got it. An opening that waits for
            // the lock, or is refused, may be fenced too: then it returns `Fenced`.
            manifest.refresh().await?;
            match opened.unwrap_or_else(Found::Refused) {
                Found::Ours(log, first) => return self.opened(log, seen.epoch, first).await,
                // The log is durable, and has no row yet.
                Found::Begun(log, name) => {
                    let mode = named.map_or(PutMode::Create, |_| PutMode::Overwrite);
                    if self.name(name, mode).await? {
                        return self.opened(log, seen.epoch, name.first).await;
                    }
                }
                // The lock is held: no other writer of this database gives that log its name now.
                Found::Empty(log) => {
                    if self.named().await? == named {
                        let wal = self.clone();
                        blocking(move || wal.remove(log)).await?;
                    }
                }
                Found::Changed => {}
                Found::Refused(error) => {
                    // Another opening may have named the log meanwhile.
                    if self.named().await? == named {
                        return Err(error);
                    }
                }
                Found::Locked(error) => {
                    if until.is_some_and(|until| Instant::now() >= until) {
                        return Err(of_log(error));
                    }
                    // The other writer closes when it sees that its manifest is fenced.
                    blocking(move || std::thread::sleep(pause)).await;
                    pause = (2 * pause).min(PAUSE_MAX);
                }
            }
        }
    }

    async fn opened(
        &self,
        log: Log,
        epoch: u64,
        first: u64,
    ) -> Result<(Writer, LogIterator), WalError> {
        let wal = self.clone();
        let shared = blocking(move || wal.share(log, epoch, first)).await?;
        let writer = Writer { shared: Arc::clone(&shared), wal: self.clone() };
        self.begins_anew.store(false, Ordering::Relaxed);
        Ok((writer, LogIterator::replay(self.clone(), first, &shared)))
    }

    /// Lets the readers of this process find the log, whose rows before `first` are in the tree. If
    /// it has more than the bound allows, these are given back.
    fn share(&self, log: Log, epoch: u64, first: u64) -> Result<Arc<Shared>, WalError> {
        let directory = self.wals.place.find(&self.name).map_err(of_io)?;
        let held = directory.as_ref().map(|directory| Held::of(directory, self.tuning()));
        let held = held.unwrap_or_default();
        let is_full = held.bytes() + self.tuning().segment_bytes() > self.tuning().log_bytes_max;
        let shared = Arc::new(Shared::new(log, epoch, held, Arc::clone(&self.wals.tuning)));
        if is_full {
            shared.give_back(first.saturating_sub(1))?;
        }
        if let Some(directory) = directory {
            self.wals.place.living().put(&directory, &shared);
        }
        Ok(shared)
    }

    /// Compares the log with the object, before another writer is disturbed or a byte is written.
    /// If it is ours, takes it from an earlier writer of this process and opens it.
    fn open(&self, seen: Seen, named: Option<Named>) -> Result<Found, WalError> {
        let directory = self.find()?;
        if let Some(directory) = &directory
            && let Some(other) = self.wals.place.living().get(directory)
        {
            if other.is_open() {
                if named.map(|named| named.id) != Some(other.owner()) {
                    return Err(self.is_anothers(other.owner(), named));
                }
                if other.epoch >= seen.epoch {
                    return Err(self.is_taken(other.epoch, seen.epoch));
                }
            }
            // An error is that of the other writer's log, and that writer gets it. Only its lock
            // matters here.
            let _ = other.close(WalError::Fenced);
        }
        let known = Lsn::new(seen.known_id());
        let is_empty = |reader: &Reader| reader.durable() == known && reader.first() > known;
        let id = self.look()?.map(|(reader, _)| (reader.owner(), !is_empty(&reader)));
        let begins_anew = self.begins_anew.load(Ordering::Relaxed);
        match (Whose::of(named, id), directory) {
            (Whose::Ours(named), Some(directory)) => self.open_ours(directory, seen, named),
            (Whose::Anothers(id), _) => Err(self.is_anothers(id, named)),
            (Whose::Lost(named), _) if !begins_anew => Err(self.is_lost(named)),
            (Whose::Nobodys, _) if !begins_anew && known > Lsn::ZERO => Err(self.has_none(seen)),
            (_, directory) => match directory.zip(id) {
                Some((directory, (id, _))) => self.open_empty(directory, id, known),
                None => self.begin_log(known),
            },
        }
    }

    fn open_ours(
        &self,
        directory: AnyDirectory,
        seen: Seen,
        named: Named,
    ) -> Result<Found, WalError> {
        let known = Lsn::new(seen.known_id());
        let held = Held::of(&directory, self.tuning());
        let options = self.tuning().bounded(&held, seen.replay_after);
        let options = options.create(false).expect_durable(known);
        match Log::open_in(directory, options) {
            // With `expect_durable` a log that ends early is corrupt, although nothing in it is.
            Err(Error::Corrupt(corruption)) => {
                match self.look()?.and_then(|(reader, _)| reader.recovery()) {
                    Some(left) if left.last < known && left.verdict == Verdict::End => {
                        Err(self.is_short(seen, left.last))
                    }
                    Some(_) => Err(of_log(Error::Corrupt(corruption))),
                    None => Ok(Found::Changed),
                }
            }
            opened => found(opened, named.id, |log| self.check_first(log, seen, named)),
        }
    }

    /// The log is there: `Ours`, unless it lacks rows that the manifest needs.
    fn check_first(&self, log: Log, seen: Seen, named: Named) -> Result<Found, WalError> {
        let first = seen.replay_after.saturating_add(1);
        let log_first = log.first().get();
        self.check_whole(Some(log.recovery()))?;
        if log_first <= first || log_first == named.first {
            return Ok(Found::Ours(log, first.max(log_first)));
        }
        if self.begins_anew.load(Ordering::Relaxed) {
            return Ok(Found::Begun(log, Named { first: log_first, ..named }));
        }
        Err(data(format!(
            "{}: the log here begins at WAL id {log_first}, and the manifest needs the rows from \
             {first} on: the objects are older than the log, which has given back what later \
             objects have: bring the newer objects back, or an older copy of the log, or give the \
             rows before {log_first} up with DatabaseWal::begin_anew",
            self.path()
        )))
    }

    /// Begins a new log where there is none.
    fn begin_log(&self, known: Lsn) -> Result<Found, WalError> {
        let directory = self.wals.place.create(&self.name).map_err(of_io)?;
        let id = directory.random_bytes().map_err(of_io)?;
        let first = known.next().ok_or_else(|| of_log(Error::UsedUp))?;
        let options = self.tuning().bounded(&Held::default(), 0);
        let options = options.create(true).begin_at(first).owner(id);
        let name = Named { id, first: first.get() };
        found(Log::open_in(directory, options), id, |log| Ok(Found::Begun(log, name)))
    }

    /// Opens a log that never had a row. A new one will be begun for it: another database may have
    /// begun this one, and may not have written yet.
    fn open_empty(
        &self,
        directory: AnyDirectory,
        id: OwnerId,
        known: Lsn,
    ) -> Result<Found, WalError> {
        let options = self.tuning().log.clone().create(false);
        found(Log::open_in(directory, options), id, |log| {
            let is_empty = log.last() == known && log.first() > known;
            Ok(if is_empty { Found::Empty(log) } else { Found::Changed })
        })
    }

    /// Removes a log that never had a row.
    fn remove(&self, log: Log) -> Result<(), WalError> {
        let (_lock, closed) = log.close_to_lock();
        closed.map_err(of_log)?;
        let Some(directory) = self.find()? else { return Ok(()) };
        remove_log(&directory).map(drop).map_err(of_io)
    }

    fn has_none(&self, seen: Seen) -> WalError {
        let (known, after) = (seen.known_id(), seen.replay_after);
        data(format!(
            "{}: there is no log here and no object {}, and the database has had WAL ids up to \
             {known}, with the rows up to {after} in the tree: if its rows are in another WAL, \
             close it there with a flush; then begin a log with DatabaseWal::begin_anew",
            self.path(),
            self.object()
        ))
    }

    fn is_taken(&self, other: u64, epoch: u64) -> WalError {
        data(format!(
            "{}: a writer of this process with epoch {other} has the log, and the manifest here \
             has epoch {epoch}: these objects are a copy of that writer's objects; give them a \
             root of their own, with a copy of the log",
            self.path()
        ))
    }

    fn is_full(&self, refused: &WalError) -> WalError {
        unavailable(format!(
            "{}: {refused}, and the tree has the rows that can be given back: flush the memtable, \
             make room on the disk, or raise Tuning::log_bytes_max, which is {}",
            self.path(),
            self.tuning().log_bytes_max
        ))
    }

    fn is_stuck(&self, tree_has: u64) -> WalError {
        unavailable(format!(
            "{}: the log is full, and the tree has had the rows up to WAL id {tree_has} and no \
             more for {:?} (Tuning::flush_within): see whether the object store takes rows, and \
             open the database again",
            self.path(),
            self.tuning().flush_within
        ))
    }

    fn is_short(&self, seen: Seen, last: Lsn) -> WalError {
        let (known, after) = (seen.known_id(), seen.replay_after);
        data(format!(
            "{}: the log here ends at WAL id {last}, and the manifest knows {known} to be durable: \
             this is an older copy of the log, or its newest file is missing; bring the newest \
             copy back, or, if there is none, move this one away and give the rows after WAL id \
             {after} up with DatabaseWal::begin_anew",
            self.path()
        ))
    }
}

#[async_trait]
impl WriterInit for DatabaseWal {
    async fn fence_and_init(
        &self,
        manifest: &mut WriterManifest,
    ) -> Result<WriterInitResult, WalError> {
        let (writer, replayed) = self.begin(manifest).await?;
        Ok(WriterInitResult { replay_iterator: Box::new(replayed), wal_writer: Box::new(writer) })
    }
}

/// A writer. Dropping it closes the log.
pub struct Writer {
    shared: Arc<Shared>,
    wal: DatabaseWal,
}

impl Writer {
    /// Ends as a killed process would: nothing is written, the lock is released.
    #[doc(hidden)]
    pub fn abandon(self) {
        self.shared.log.end_as_killed();
    }

    /// What has no room gives back rows of which the tree says that it has them; true if that may
    /// have made room. While memtables are on their way to the tree this waits. False if the tree
    /// has all that it is going to get by itself.
    ///
    /// # Errors
    /// The tree has had no rows for long: nobody tells a WAL that SlateDB's flusher has ended.
    async fn make_room(&self, wait: &mut Wait) -> Result<bool, WalError> {
        let tree_has = self.wal.tree_has(self.shared.epoch).await?;
        let shared = Arc::clone(&self.shared);
        if blocking(move || shared.give_back(tree_has)).await? {
            return Ok(true);
        }
        if !self.shared.is_flushing(tree_has) {
            return Ok(false);
        }
        if wait.is_over(tree_has, self.wal.tuning().flush_within) {
            return Err(self.wal.is_stuck(tree_has));
        }
        let pause = wait.pause;
        blocking(move || std::thread::sleep(pause)).await;
        wait.pause = (2 * pause).min(PAUSE_MAX);
        Ok(true)
    }
}

/// A put that waits for memtables.
struct Wait {
    pause: Duration,
    tree_had: u64,
    since: Instant,
}

impl Wait {
    fn begin() -> Self {
        Self { pause: Duration::from_millis(10), tree_had: 0, since: Instant::now() }
    }

    /// Whether the tree has had no more than this for so long.
    fn is_over(&mut self, tree_has: u64, most: Duration) -> bool {
        if tree_has > self.tree_had {
            (self.tree_had, self.since) = (tree_has, Instant::now());
        }
        self.since.elapsed() >= most
    }
}

#[cfg(not(feature = "slatedb-0-17"))]
type Flushed = slatedb::wal::WalFlushResult;
/// 0.17 returns only the future.
#[cfg(feature = "slatedb-0-17")]
type Flushed = slatedb::wal::FlushResultFuture;

#[async_trait]
impl WalWriter for Writer {
    async fn append(&mut self, write_batch: &[RowEntry]) -> Result<(), WalError> {
        let mut wait = Wait::begin();
        // Where the tree has no more to give back, the log's own budget decides.
        while self.shared.is_full() && self.make_room(&mut wait).await? {}
        loop {
            match self.shared.append(write_batch).await {
                Err(refused) if is_no_room(&refused) => {
                    if !self.make_room(&mut wait).await? {
                        return Err(self.wal.is_full(&refused));
                    }
                }
                outcome => return outcome,
            }
        }
    }

    async fn flush(&mut self) -> Result<Flushed, WalError> {
        let (wal_id, completion) = self.shared.flush()?;
        #[cfg(not(feature = "slatedb-0-17"))]
        return Ok(Flushed { wal_id, completion });
        #[cfg(feature = "slatedb-0-17")]
        return Ok({
            let _ = wal_id;
            completion
        });
    }

    fn should_flush_memtable(&self, replay_after_wal_id: u64) -> bool {
        self.shared.wants_flush(replay_after_wal_id)
    }

    fn observer(&self) -> Box<dyn WalObserver> {
        Box::new(Observer { shared: Arc::clone(&self.shared) })
    }

    fn status(&self) -> Result<WalStatus, WalStatus> {
        self.shared.status()
    }

    async fn close(&mut self) -> Result<(), WalError> {
        let shared = Arc::clone(&self.shared);
        blocking(move || shared.close(WalError::Closed)).await
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // No caller is left for an error; the next opening finds what is durable.
        let _ = self.shared.close(WalError::Closed);
    }
}

struct Observer {
    shared: Arc<Shared>,
}

#[async_trait]
impl WalObserver for Observer {
    fn status(&self) -> Result<WalStatus, WalStatus> {
        self.shared.status()
    }

    fn subscribe(&self, listener: WalStatusListener) -> Result<(), WalError> {
        self.shared.subscribe(listener);
        Ok(())
    }
}
