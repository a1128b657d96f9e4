//! The logs of a directory.
//!
//! *Owns*: which log is whose. *May not touch*: the traits, which have their own files.

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use inkstone::{AnyDirectory, Error, LogKind, Lsn, Reader};
use slatedb::VersionedManifest;
use slatedb::admin::Admin;
use slatedb::object_store::{ObjectStore, path::Path};
use slatedb::wal::WalError;

use crate::blocking::blocking;
use crate::bound::Tuning;
use crate::error::{data, of_io, of_log, unavailable};
use crate::place::{OsPlace, Place, check_finished, directory_name};
use crate::state::Shared;

/// A directory with a log for each database, and SlateDB's administrator of these logs. Cheap to
/// clone.
#[derive(Clone)]
pub struct Wals {
    pub(crate) place: Arc<dyn Place>,
    pub(crate) objects: Arc<dyn ObjectStore>,
    pub(crate) tuning: Arc<Tuning>,
}

impl Wals {
    /// The logs below the directory `root`, which is created with the first log, of the databases
    /// in `objects`: their store, where an object beside each manifest names the database's log.
    /// Touches no file and no object.
    pub fn at(root: impl Into<PathBuf>, objects: Arc<dyn ObjectStore>) -> Self {
        Self::tuned(root, objects, Tuning::default())
    }

    /// As [`Wals::at`], with these settings.
    pub fn tuned(root: impl Into<PathBuf>, objects: Arc<dyn ObjectStore>, tuning: Tuning) -> Self {
        let place = OsPlace::new(root.into(), tuning.log.file_mode_chosen());
        Self::in_place(Arc::new(place), objects, tuning)
    }

    /// The logs of any [`Place`], for example a simulated one.
    pub fn in_place(place: Arc<dyn Place>, objects: Arc<dyn ObjectStore>, tuning: Tuning) -> Self {
        let segment_bytes = tuning.segment_bytes();
        let log = tuning.log.kind_by_rule(LogKind::SLATEDB).segment_bytes(segment_bytes);
        let tuning = Tuning { log, ..tuning };
        Self { place, objects, tuning: Arc::new(tuning) }
    }

    /// The log of the database at this path, which the database's builders take as writer, reader
    /// and collector. Use the same path as for the database.
    pub fn of(&self, database: impl Into<Path>) -> DatabaseWal {
        let database = database.into();
        let name = directory_name(database.as_ref());
        DatabaseWal {
            wals: self.clone(),
            database,
            name: name.into(),
            begins_anew: Arc::default(),
            kept: Arc::default(),
        }
    }
}

/// What a manifest knows of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// The writer's number: each opening of a database has a higher one.
    pub epoch: u64,
    /// All rows up to this id are in the tree.
    pub replay_after: u64,
    /// The id after the last one that the manifest knows to be durable.
    pub next_id: u64,
}

impl Seen {
    pub(crate) fn of(manifest: &VersionedManifest) -> Self {
        Self {
            epoch: manifest.writer_epoch(),
            replay_after: manifest.replay_after_wal_id(),
            next_id: manifest.next_wal_sst_id(),
        }
    }

    /// The last id that the manifest knows to be durable; 0 if none.
    pub(crate) fn known_id(&self) -> u64 {
        self.replay_after.max(self.next_id.saturating_sub(1))
    }
}

/// A reader, and the writer if it is one of this process.
pub(crate) type Found = (Reader, Option<Arc<Shared>>);

/// The log of one database. Cheap to clone. Implements SlateDB's `WriterInit`, `WalReader` and
/// `WalGc`; docs/slatedb.md has their errors.
#[derive(Clone)]
pub struct DatabaseWal {
    pub(crate) wals: Wals,
    pub(crate) database: Path,
    pub(crate) name: Arc<str>,
    /// Until the next opening has succeeded.
    pub(crate) begins_anew: Arc<AtomicBool>,
    /// Kept open for repeated calls of `last_id`.
    kept: Arc<Mutex<Option<Reader>>>,
}

impl DatabaseWal {
    /// The next opening that succeeds begins a new, empty log if there is none, although the
    /// manifest or the object knows of one: the database comes from another WAL, or its log is lost
    /// for good. The ids follow those that the manifest knows. **Rows that are not in the tree are
    /// given up.** Later openings do not begin a log. A log that is there is never replaced, unless
    /// it never had a row: move it away first. If it begins behind rows that the manifest needs,
    /// since it was salvaged and truncated or is newer than the objects, it is opened, and the rows
    /// before its first are given up.
    pub fn begin_anew(self) -> Self {
        Self { begins_anew: Arc::new(AtomicBool::new(true)), ..self }
    }

    pub(crate) fn tuning(&self) -> &Tuning {
        &self.wals.tuning
    }

    /// The database's newest manifest, or the one with this number.
    async fn manifest(&self, number: Option<u64>) -> Result<Option<VersionedManifest>, WalError> {
        let admin = Admin::builder(self.database.clone(), self.wals.objects.clone()).build();
        admin.read_manifest(number).await.map_err(|error| WalError::Unavailable(Arc::new(error)))
    }

    /// Up to which id the tree has the rows, for the writer with this epoch.
    pub(crate) async fn tree_has(&self, epoch: u64) -> Result<u64, WalError> {
        match self.manifest(None).await? {
            Some(manifest) if manifest.writer_epoch() > epoch => Err(WalError::Fenced),
            manifest => Ok(manifest.map_or(0, |manifest| manifest.replay_after_wal_id())),
        }
    }

    /// The error of a range up to before `end` that lacks the row `id`: `lost` if a checkpoint
    /// needs the row. SlateDB takes `WalTruncated` for the end of the range, which is right for a
    /// reader whose next look finds a newer tree.
    pub(crate) async fn truncated(&self, id: u64, end: Option<u64>, lost: WalError) -> WalError {
        match self.is_of_a_checkpoint(id, end).await {
            Ok(true) => lost,
            Ok(false) => WalError::WalTruncated(id),
            Err(error) => error,
        }
    }

    /// The error of a range up to before `end` if the log has only the rows before `id`.
    pub(crate) async fn missing(
        &self,
        reader: Option<&Reader>,
        id: u64,
        end: Option<u64>,
    ) -> WalError {
        let lost = self.lacks(reader, end.map_or(id, |end| end - 1), id - 1);
        self.truncated(id, end, lost).await
    }

    async fn is_of_a_checkpoint(&self, id: u64, end: Option<u64>) -> Result<bool, WalError> {
        let Some(newest) = self.manifest(None).await? else { return Ok(false) };
        for checkpoint in newest.checkpoints() {
            if let Some(manifest) = self.manifest(Some(checkpoint.manifest_id)).await?
                && end == Some(manifest.next_wal_sst_id())
                && manifest.replay_after_wal_id() < id
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The error of a reader or a clone that needs this row.
    pub(crate) fn is_given_back(&self, id: u64) -> WalError {
        data(format!(
            "{}: the checkpoint needs WAL id {id}, which the log has given back, since its files \
             may use Tuning::log_bytes_max, {} bytes: make a checkpoint that flushes the memtable \
             (CheckpointScope::All) and use that, or raise the bound for later ones",
            self.path(),
            self.tuning().log_bytes_max
        ))
    }

    /// The error of a reader or a clone that needs this row, which the log does not show. A writer
    /// in another process may have the row, and not have published it.
    pub(crate) fn lacks(&self, reader: Option<&Reader>, last: u64, durable: u64) -> WalError {
        if reader.is_some_and(has_writer) {
            return unavailable(format!(
                "{}: the manifest knows WAL id {last}, and the log's writer, which is open, has \
                 published the ids up to {durable}: try again",
                self.path()
            ));
        }
        data(format!(
            "{}: the manifest knows WAL id {last}, the log ends at {durable}: bring back the log \
             that belongs to the database",
            self.path()
        ))
    }

    /// The path of the log, for messages.
    pub(crate) fn path(&self) -> String {
        self.wals.place.path(&self.name).display().to_string()
    }

    /// The directory, if it exists; an error if a clone or a deletion in it is unfinished.
    pub(crate) fn find(&self) -> Result<Option<AnyDirectory>, WalError> {
        let Some(directory) = self.wals.place.find(&self.name).map_err(of_io)? else {
            return Ok(None);
        };
        check_finished(&directory)?;
        Ok(Some(directory))
    }

    /// The writer of this process, if it is open.
    fn living(&self) -> Result<Option<Arc<Shared>>, WalError> {
        let Some(directory) = self.wals.place.find(&self.name).map_err(of_io)? else {
            return Ok(None);
        };
        Ok(self.wals.place.living().get(&directory).filter(|writer| writer.is_open()))
    }

    /// A reader of the writer in this process, or of the files, whosever they are. `None` if there
    /// is no log.
    pub(crate) fn look(&self) -> Result<Option<Found>, WalError> {
        if let Some(writer) = self.living()? {
            return Ok(Some((writer.log.reader(), Some(writer))));
        }
        let Some(directory) = self.find()? else { return Ok(None) };
        match Reader::open_in(directory, self.tuning().log.clone()) {
            Ok(reader) => Ok(Some((reader, None))),
            Err(Error::NoLog { .. }) => Ok(None),
            Err(error) => Err(of_log(error)),
        }
    }

    /// The last durable id; 0 if there is no log. An error if the manifest knows of rows that are
    /// neither there nor in the tree.
    pub(crate) async fn last_id(&self) -> Result<u64, WalError> {
        let wal = self.clone();
        if let Some(last) = blocking(move || wal.last_of_kept()).await? {
            return Ok(last);
        }
        // First: what it knows is in the log, if there is no writer then.
        let seen = self.manifest(None).await?.as_ref().map(Seen::of);
        let found = self.reader().await?.map(|(reader, _)| reader);
        let last = match &found {
            Some(reader) => {
                let reader = reader.clone();
                blocking(move || last_of(&reader)).await?
            }
            None => Lsn::ZERO,
        };
        if let Some(seen) = seen.filter(|seen| seen.known_id() > last.get().max(seen.replay_after))
            && !found.as_ref().is_some_and(has_writer)
        {
            return Err(self.lacks(None, seen.known_id(), last.get()));
        }
        *self.kept() = found;
        Ok(last.get())
    }

    /// As [`Self::last_id`], by the reader that is kept, if it reads what a new one would.
    fn last_of_kept(&self) -> Result<Option<u64>, WalError> {
        let has_writer = self.living()?.is_some();
        let kept = self.kept().take().filter(|reader| {
            reader.recovery().is_none() == has_writer && reader.end_of_log().is_none()
        });
        let last = kept.as_ref().and_then(|reader| last_of(reader).ok());
        if last.is_some() {
            *self.kept() = kept;
        }
        Ok(last.map(Lsn::get))
    }

    fn kept(&self) -> MutexGuard<'_, Option<Reader>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a writer had the log open when this reader was opened.
fn has_writer(reader: &Reader) -> bool {
    reader.recovery().is_none_or(|recovery| recovery.end.is_none())
}

/// The last durable record. A reader beside a writer looks for new records only when it is asked
/// for the one after those that it knows.
pub(crate) fn last_of(reader: &Reader) -> Result<Lsn, WalError> {
    let mut cursor = reader.from(reader.durable().next().unwrap_or(Lsn::FIRST));
    cursor.next().map_err(of_log)?;
    Ok(cursor.durable())
}
