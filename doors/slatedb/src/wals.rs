//! The logs of a directory, and their tuning.
//!
//! *Owns*: which log is whose. *May not touch*: the traits, which have their own files.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use inkstone::{AnyDirectory, Error, LogKind, Lsn, Options, Reader};
use slatedb::wal::WalError;

use crate::error::{check_whole, of_io, of_log};
use crate::place::{OsPlace, Place, check_finished, directory_name};
use crate::state::Shared;

/// Settings of the logs.
#[derive(Debug, Clone)]
pub struct Tuning {
    /// How the logs are opened. By default a write batch has at most 32 MiB. This crate sets
    /// `create`, `begin_at` and `expect_durable` itself.
    pub log: Options,
    /// A memtable is flushed when a restart would replay this many bytes: 256 MiB by default.
    pub replay_bytes_max: u64,
    /// How long a new writer waits for a writer in another process that has the log open: 30 s by
    /// default. The other one closes when it sees that its manifest is fenced.
    pub fence_within: Duration,
    /// Whether a database that has had WAL ids may begin a new log: never, by default.
    pub new_log: NewLog,
}

/// When a database that has had WAL ids may begin a new, empty log, whose ids follow the known
/// ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum NewLog {
    /// Never: a missing log was lost, or its disk is not mounted.
    #[default]
    Never,
    /// If every row that the manifest knows of is in the tree, as when another WAL is replaced.
    AfterFlush,
    /// If there is no log, also if rows are lost with it. A log that ends too early stays an error.
    AcceptLoss,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            log: Options::new().record_bytes_max(32 << 20),
            replay_bytes_max: 256 << 20,
            fence_within: Duration::from_secs(30),
            new_log: NewLog::Never,
        }
    }
}

/// A directory with a log for each database, and SlateDB's administrator of these logs. Cheap to
/// clone.
#[derive(Clone)]
pub struct Wals {
    pub(crate) place: Arc<dyn Place>,
    pub(crate) tuning: Arc<Tuning>,
}

impl Wals {
    /// The logs below the directory `root`, which is created with the first log. Touches no file.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self::tuned(root, Tuning::default())
    }

    /// As [`Wals::at`], with these settings.
    pub fn tuned(root: impl Into<PathBuf>, tuning: Tuning) -> Self {
        Self::in_place(Arc::new(OsPlace::new(root)), tuning)
    }

    /// The logs of any [`Place`], for example a simulated one.
    pub fn in_place(place: Arc<dyn Place>, tuning: Tuning) -> Self {
        let tuning = Tuning { log: tuning.log.kind_by_rule(LogKind::SLATEDB), ..tuning };
        Self { place, tuning: Arc::new(tuning) }
    }

    /// The log of the database at this path, which the database's builders take as writer, reader
    /// and collector. Use the same path as for the database.
    pub fn of(&self, database: impl Into<slatedb::object_store::path::Path>) -> DatabaseWal {
        let name = directory_name(database.into().as_ref());
        DatabaseWal { wals: self.clone(), name: name.into(), beside: Arc::default() }
    }
}

/// A reader, and the writer if it is one of this process.
pub(crate) type Found = (Reader, Option<Arc<Shared>>);

/// The log of one database. Cheap to clone. Implements SlateDB's `WriterInit`, `WalReader` and
/// `WalGc`; docs/slatedb.md has their errors.
#[derive(Clone)]
pub struct DatabaseWal {
    pub(crate) wals: Wals,
    pub(crate) name: Arc<str>,
    /// Kept open for repeated calls of `last_id`.
    beside: Arc<Mutex<Option<Reader>>>,
}

impl DatabaseWal {
    pub(crate) fn tuning(&self) -> &Tuning {
        &self.wals.tuning
    }

    /// The path of the log, for messages.
    pub(crate) fn path(&self) -> String {
        match self.wals.place.find(&self.name) {
            Ok(Some(directory)) => directory.path().display().to_string(),
            _ => self.name.to_string(),
        }
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
    pub(crate) fn living(&self) -> Result<Option<Arc<Shared>>, WalError> {
        let Some(directory) = self.wals.place.find(&self.name).map_err(of_io)? else {
            return Ok(None);
        };
        Ok(self.wals.place.living().get(&directory).filter(|writer| writer.is_open()))
    }

    /// A reader of the writer in this process, or of the files. `None` if there is no log.
    pub(crate) fn reader(&self) -> Result<Option<Found>, WalError> {
        if let Some(writer) = self.living()? {
            return Ok(Some((writer.log.reader(), Some(writer))));
        }
        let Some(directory) = self.find()? else { return Ok(None) };
        match Reader::open_in(directory.clone(), self.tuning().log.clone()) {
            Ok(reader) => {
                check_whole(&directory, reader.recovery().as_ref())?;
                Ok(Some((reader, None)))
            }
            Err(Error::NoLog { .. }) => Ok(None),
            Err(error) => Err(of_log(error)),
        }
    }

    /// The last durable id; 0 if there is no log.
    pub(crate) fn last_id(&self) -> Result<u64, WalError> {
        if let Some(writer) = self.living()? {
            return Ok(writer.log.durable().get());
        }
        let mut beside = self.beside.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(reader) = beside.take()
            && let Ok(last) = last_of(&reader)
        {
            *beside = Some(reader);
            return Ok(last.get());
        }
        let Some((reader, living)) = self.reader()? else { return Ok(0) };
        let last = last_of(&reader)?;
        if living.is_none() {
            *beside = Some(reader);
        }
        Ok(last.get())
    }
}

/// The last durable record. A reader beside a writer looks for new records only when it is asked
/// for the one after those that it knows.
pub(crate) fn last_of(reader: &Reader) -> Result<Lsn, WalError> {
    let mut cursor = reader.from(reader.durable().next().unwrap_or(Lsn::FIRST));
    cursor.next().map_err(of_log)?;
    Ok(cursor.durable())
}
