//! The writer: fencing, appending, flushing.
//!
//! *Owns*: how a writer opens, and the traits `WriterInit`, `WalWriter`, `WalObserver`. *May not
//! touch*: the status (`state.rs`), reading (`iterator.rs`).

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use inkstone::{Error, Log, Lsn};
use slatedb::wal::{
    WalError, WalObserver, WalStatus, WalStatusListener, WalWriter, WriterInit, WriterInitResult,
    WriterManifest,
};
use slatedb::{RowEntry, VersionedManifest};

use crate::blocking::blocking;
use crate::error::{check_whole, data, of_io, of_log};
use crate::iterator::LogIterator;
use crate::place::{FOREIGN, check_finished, is_marked, mark, unmark};
use crate::state::Shared;
use crate::wals::{DatabaseWal, NewLog};

/// What a manifest knows of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// The writer's number: each opening of a database has a higher one.
    pub epoch: u64,
    /// All rows up to this id are in the tree.
    pub replay_after: u64,
    /// The id after the last one that the manifest knows to be durable.
    pub next_id: u64,
    /// The database began as a clone.
    pub is_clone: bool,
}

impl Seen {
    fn of(manifest: &VersionedManifest) -> Self {
        Self {
            epoch: manifest.writer_epoch(),
            replay_after: manifest.replay_after_wal_id(),
            next_id: manifest.next_wal_sst_id(),
            is_clone: !manifest.external_dbs().is_empty(),
        }
    }

    /// No writer has opened this database before, so no log with rows can be its own.
    fn is_new(&self) -> bool {
        self.epoch <= 1 && !self.is_clone
    }

    /// The last id that the manifest knows to be durable; 0 if none.
    fn known_id(&self) -> u64 {
        self.replay_after.max(self.next_id.saturating_sub(1))
    }
}

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

/// The outcome of an attempt to open.
enum Found {
    Open(Arc<Shared>),
    /// Another process has the log, or a writer of this process that is about to end.
    Locked(Error),
    /// A writer of this process with this epoch has the log, and our epoch is not higher: a later
    /// writer of this database, or a writer of another database.
    Taken(u64),
    /// The log is another database's: this one is new and the log has rows, or the marker says so.
    Foreign,
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
        // None waits for ever.
        let until = Instant::now().checked_add(self.tuning().fence_within);
        let mut pause = Duration::from_millis(10);
        let writer = loop {
            let (wal, seen) = (self.clone(), manifest.seen());
            let found = blocking(move || wal.open(seen)).await?;
            // From here on the writer closes the log when it is dropped.
            let found = match found {
                Found::Open(shared) => Ok(Writer { shared }),
                other => Err(other),
            };
            // A newer epoch may have had the lock before this one got it. An opening that waits for
            // the lock, or is refused, may be fenced too: then it returns `Fenced`.
            manifest.refresh().await?;
            match found {
                Ok(writer) => break writer,
                Err(Found::Locked(error)) if until.is_some_and(|until| Instant::now() >= until) => {
                    return Err(of_log(error));
                }
                Err(Found::Taken(epoch)) => return Err(self.is_taken(epoch, seen.epoch)),
                Err(Found::Foreign) => {
                    let wal = self.clone();
                    return Err(blocking(move || wal.mark_foreign()).await);
                }
                // The other writer closes when it sees that its manifest is fenced.
                Err(_) => {}
            }
            blocking(move || std::thread::sleep(pause)).await;
            pause = (2 * pause).min(PAUSE_MAX);
        };
        let (seen, log) = (manifest.seen(), &writer.shared.log);
        if seen.known_id() > log.last().get() {
            return Err(self.is_short(seen.known_id(), log.last().get()));
        }
        let mut first = seen.replay_after.saturating_add(1);
        if self.tuning().new_log == NewLog::AcceptLoss {
            first = first.max(log.first().get());
        }
        if log.first().get() > first {
            return Err(WalError::WalTruncated(first));
        }
        let end = log.last().get().saturating_add(1);
        let replayed = LogIterator::new(self.clone(), first, Some(end), Some(&writer.shared));
        Ok((writer, replayed))
    }

    /// Opens the log, and takes it from an earlier writer of this process.
    fn open(&self, seen: Seen) -> Result<Found, WalError> {
        let (place, tuning) = (&self.wals.place, self.tuning());
        let directory = place.create(&self.name).map_err(of_io)?;
        check_finished(&directory)?;
        let is_marked = is_marked(&directory, FOREIGN)?;
        if is_marked && seen.known_id() == 0 {
            return Ok(Found::Foreign);
        }
        let is_foreign = |last: Lsn| seen.is_new() && seen.known_id() == 0 && last > Lsn::ZERO;
        if let Some(other) = place.living().get(&directory) {
            if other.is_open() && is_foreign(other.log.last()) {
                return Ok(Found::Foreign);
            }
            if other.is_open() && other.epoch >= seen.epoch {
                return Ok(Found::Taken(other.epoch));
            }
            // An error is that of the other writer's log, and that writer gets it. Only its lock
            // matters here.
            let _ = other.close(WalError::Fenced);
        }
        let options = tuning.log.clone().create(false);
        let known = Lsn::new(seen.known_id());
        let opened = Log::open_in(directory.clone(), options.clone().expect_durable(known));
        let has_none = match &opened {
            Err(Error::NoLog { .. }) => true,
            // With `expect_durable` a missing log is `Corrupt`, and not `NoLog`.
            Err(Error::Corrupt(_)) => self.reader().is_ok_and(|found| found.is_none()),
            _ => false,
        };
        let log = match opened {
            Err(Error::Locked { .. })
                if seen.is_new() && self.last_id().is_ok_and(|last| is_foreign(Lsn::new(last))) =>
            {
                return Ok(Found::Foreign);
            }
            _ if has_none => {
                self.check_new(seen)?;
                let first = known.next().ok_or_else(|| of_log(Error::UsedUp))?;
                Log::open_in(directory.clone(), options.create(true).begin_at(first))
            }
            opened => opened,
        };
        let log = match log {
            Err(locked @ Error::Locked { .. }) => return Ok(Found::Locked(locked)),
            opened => opened.map_err(of_log)?,
        };
        if is_foreign(log.last()) {
            return Ok(Found::Foreign);
        }
        check_whole(&directory, Some(log.recovery()))?;
        if is_marked {
            unmark(&directory, FOREIGN)?;
        }
        let (has_threads, bytes_max) = (tuning.log.has_own_thread(), tuning.replay_bytes_max);
        let shared = Arc::new(Shared::new(log, seen.epoch, has_threads, bytes_max));
        place.living().put(&directory, &shared);
        Ok(Found::Open(shared))
    }

    /// Whether a new log may begin where there is none.
    fn check_new(&self, seen: Seen) -> Result<(), WalError> {
        let (known, new_log) = (seen.known_id(), self.tuning().new_log);
        if known == 0 || new_log == NewLog::AcceptLoss {
            return Ok(());
        }
        let path = self.path();
        if known > seen.replay_after {
            return Err(data(format!(
                "{path}: there is no log here, and the manifest knows of rows up to WAL id {known} \
                 in one: bring its directory back (is its disk mounted?), close the database where \
                 it has another WAL, or give those rows up with NewLog::AcceptLoss"
            )));
        }
        if new_log == NewLog::AfterFlush {
            return Ok(());
        }
        Err(data(format!(
            "{path}: there is no log here, and the database has had WAL ids up to {known}: bring \
             its directory back (is its disk mounted?), or begin a new log with \
             NewLog::AfterFlush if the database comes from another WAL"
        )))
    }

    fn mark_foreign(&self) -> WalError {
        let marked = self.wals.place.create(&self.name).map_err(of_io);
        if let Err(error) = marked.and_then(|directory| mark(&directory, FOREIGN)) {
            return error;
        }
        data(format!(
            "{}: a new database found a log that has had rows, so it is another database's: \
             delete the directory, give the database the objects that belong to it, or, if \
             the log is this database's, remove {FOREIGN} there",
            self.path()
        ))
    }

    fn is_taken(&self, other: u64, epoch: u64) -> WalError {
        data(format!(
            "{}: a writer of this process with epoch {other} has the log, and the manifest here \
             has epoch {epoch}, so it is another database's: give each database a root or a path \
             of its own",
            self.path()
        ))
    }

    fn is_short(&self, known: u64, last: u64) -> WalError {
        data(format!(
            "{}: the manifest knows WAL id {known} to be durable, but the log here ends at {last}: \
             this is another database's directory or an old copy; bring back the right one",
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
}

#[cfg(not(feature = "slatedb-0-17"))]
type Flushed = slatedb::wal::WalFlushResult;
/// 0.17 returns only the future.
#[cfg(feature = "slatedb-0-17")]
type Flushed = slatedb::wal::FlushResultFuture;

#[async_trait]
impl WalWriter for Writer {
    async fn append(&mut self, write_batch: &[RowEntry]) -> Result<(), WalError> {
        self.shared.append(write_batch).await
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
        self.shared.is_replay_long(replay_after_wal_id)
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
