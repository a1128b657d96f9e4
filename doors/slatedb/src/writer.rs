//! The writer: fencing, appending, flushing.
//!
//! *Owns*: how a writer begins, and the traits `WriterInit`, `WalWriter`, `WalObserver`. *May not
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
use crate::error::{data, of_io, of_log};
use crate::iterator::LogIterator;
use crate::place::{FOREIGN, check_finished, is_marked, mark, unmark};
use crate::state::Shared;
use crate::wals::DatabaseWal;

/// What a manifest says about the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// Everything up to this id is in the tree.
    pub replay_after: u64,
    /// The id after the last that the manifest knows to be durable.
    pub next_id: u64,
    /// No writer has ever opened this database, and it is no clone: no log can be its own.
    pub is_new: bool,
}

impl Seen {
    fn of(manifest: &VersionedManifest) -> Self {
        Self {
            replay_after: manifest.replay_after_wal_id(),
            next_id: manifest.next_wal_sst_id(),
            is_new: manifest.writer_epoch() <= 1 && manifest.external_dbs().is_empty(),
        }
    }

    /// The last id that was durable.
    fn known_id(&self) -> u64 {
        self.replay_after.max(self.next_id.saturating_sub(1))
    }
}

/// The manifest of the writer that begins, as far as fencing needs it.
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

/// The longest pause before a lock is asked for again.
const PAUSE_MAX: Duration = Duration::from_secs(1);

impl DatabaseWal {
    /// Fences every other writer and begins; the iterator shows what is to be replayed.
    ///
    /// # Errors
    /// Those of `WriterInit::fence_and_init`.
    #[doc(hidden)]
    pub async fn begin(
        &self,
        manifest: &mut dyn ManifestView,
    ) -> Result<(Writer, LogIterator), WalError> {
        let until = Instant::now() + self.tuning().fence_within;
        let mut pause = Duration::from_millis(10);
        let shared = loop {
            let (wal, seen) = (self.clone(), manifest.seen());
            match blocking(move || wal.open(seen)).await? {
                Ok(shared) => break shared,
                Err(locked) if Instant::now() >= until => return Err(of_log(locked)),
                Err(_) => {}
            }
            // The other one goes when it sees its manifest; this one too.
            manifest.refresh().await?;
            blocking(move || std::thread::sleep(pause)).await;
            pause = (2 * pause).min(PAUSE_MAX);
        };
        // From here on the writer closes the log when it is dropped.
        let writer = Writer { shared };
        // The lock may have come to an older epoch after a newer one had it and went.
        manifest.refresh().await?;
        let (seen, log) = (manifest.seen(), &writer.shared.log);
        if seen.known_id() > log.last().get() {
            return Err(self.is_short(seen.known_id(), log.last().get()));
        }
        let mut first = seen.replay_after.saturating_add(1);
        if self.tuning().accept_loss {
            first = first.max(log.first().get());
        }
        if log.first().get() > first {
            return Err(WalError::WalTruncated(first));
        }
        let end = log.last().get().saturating_add(1);
        let replayed = LogIterator::new(self.clone(), first, Some(end), Some(&writer.shared));
        Ok((writer, replayed))
    }

    /// Opens the log, and takes it from a writer of this process; the inner error says who has it.
    fn open(&self, seen: Seen) -> Result<Result<Arc<Shared>, Error>, WalError> {
        let (place, tuning) = (&self.wals.place, self.tuning());
        let directory = place.create(&self.name).map_err(of_io)?;
        check_finished(&directory)?;
        if let Some(other) = place.living().get(&directory) {
            // An error is one of that writer's log, and it is told of it. What matters here is the
            // lock.
            let _ = other.close(WalError::Fenced);
        }
        let known = Lsn::new(seen.known_id());
        let mut options = tuning.log.clone().create(false).expect_durable(known);
        if tuning.accept_loss {
            options = options.expect_durable(Lsn::ZERO);
        }
        let log = match Log::open_in(directory.clone(), options.clone()) {
            Err(Error::NoLog { .. }) => {
                if seen.known_id() > seen.replay_after && !tuning.accept_loss {
                    return Err(self.is_short(seen.known_id(), seen.replay_after));
                }
                let first = known.next().ok_or_else(|| of_log(Error::UsedUp))?;
                Log::open_in(directory.clone(), options.create(true).begin_at(first))
            }
            opened => opened,
        };
        let log = match log {
            Ok(log) => log,
            Err(locked @ Error::Locked { .. }) => return Ok(Err(locked)),
            Err(error) => return Err(of_log(error)),
        };
        let is_foreign = is_marked(&directory, FOREIGN)?;
        if seen.known_id() == 0 && (is_foreign || seen.is_new && log.last() > Lsn::ZERO) {
            mark(&directory, FOREIGN)?;
            return Err(data(format!(
                "{}: a new database found a log that has had rows, so it is another database's: \
                 delete the directory, give the database the objects that belong to it, or, if \
                 the log is this database's, remove {FOREIGN} there",
                directory.path().display()
            )));
        }
        if is_foreign {
            unmark(&directory, FOREIGN)?;
        }
        let shared =
            Arc::new(Shared::new(log, tuning.log.has_own_thread(), tuning.replay_bytes_max));
        place.living().put(&directory, &shared);
        Ok(Ok(shared))
    }

    fn is_short(&self, known: u64, last: u64) -> WalError {
        data(format!(
            "{}: the manifest knows WAL id {known} to be durable, the log here ends at {last}: the \
             directory is another one's, older than the database, or its disk was lost",
            self.name
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
/// 0.17 gives the future alone.
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
        // Nobody is left to be told; the next opening finds what is durable.
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
