//! Reading a log: by LSN, in order, and following it as it grows.
//!
//! *Owns*: the public face of reading. *May not touch*: how records are found (`cursor.rs`, `finder.rs`).

use std::fmt;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use inkstone_format::Lsn;
use inkstone_io::{Directory, OsDirectory};

use crate::commit::shared::Shared;
use crate::error::{Error, Result};
use crate::options::Options;
use crate::read::cursor::{Cursor, OwnedRecord};
use crate::read::finder::Finder;
use crate::read::source::Source;
use crate::read::view::View;
use crate::report::Recovery;

/// Reads durable records of a log. Cheap to clone.
///
/// [`crate::Log::reader`] gives one of a log that this process writes; [`Reader::open`] one of a log that anybody may be
/// writing, or nobody. Such a reader never writes, takes no lock and does not hold a writer up: a writer that gives
/// records up uses their files again, and the reader, if it comes too late, answers [`Error::TruncatedBefore`].
///
/// Clones share what [`Reader::get`] has learned of the log, and the files that it keeps open: keep one, rather than ask for
/// a new one each time.
pub struct Reader<D: Directory = OsDirectory> {
    source: Source<D>,
    finder: Arc<Finder<D>>,
}

impl Reader {
    /// Opens the log in the directory `path` for reading only. Nothing is written or created, no lock is taken: being
    /// allowed to read the files is enough, also in a file system that is mounted read-only.
    ///
    /// If no writer lives, this recovers what the last one left, without changing it, and shows all of it. Beside a
    /// writer it shows what the writer has *promised*: what had become durable before its latest group
    /// ([`Options::idle`] bounds how long the last records take to be promised).
    ///
    /// Of the options those count that say how to look: [`Options::access`] (how a living writer's last segment is looked at;
    /// records that are durable are read through the page cache or past it, whichever is faster),
    /// [`Options::expect_durable`].
    ///
    /// # Errors
    /// [`Error::NoLog`]; [`Error::Corrupt`] when something is missing that was promised to be there;
    /// [`Error::UnknownVersion`] when a newer program has written; contradictions in the options; what the file system
    /// answers.
    ///
    /// # Durability
    /// Everything that the reader shows is on stable storage: what a writer left who was killed is synced first.
    pub fn open(path: impl AsRef<Path>, options: &Options) -> Result<Self> {
        let path = path.as_ref();
        let directory = OsDirectory::open(path).map_err(|error| match error.kind() {
            ErrorKind::NotFound => Error::NoLog { path: path.to_path_buf() },
            _ => error.into(),
        })?;
        Self::open_in(Arc::new(directory), options.clone())
    }
}

impl<D: Directory> Reader<D> {
    /// Opens the log in any directory behind the seam of `inkstone-io` for reading only.
    ///
    /// # Errors
    /// As [`Reader::open`].
    ///
    /// # Durability
    /// As [`Reader::open`].
    pub fn open_in(directory: Arc<D>, options: Options) -> Result<Self> {
        options.check()?;
        Ok(Self::of(Source::View(Arc::new(View::open(directory, options)?))))
    }

    /// What [`Reader::open`] found; `None` for a reader of a log that this process writes. Beside a writer there is no
    /// verdict on the tail, and no end: [`Recovery::last`] is what was promised.
    pub fn recovery(&self) -> Option<Recovery> {
        self.source.view().map(|view| view.recovery.clone())
    }

    pub(crate) fn living(shared: Arc<Shared<D>>) -> Self {
        Self::of(Source::Living(shared))
    }

    fn of(source: Source<D>) -> Self {
        Self { source, finder: Arc::new(Finder::new()) }
    }

    /// The first record that is left; one above the last if there is none, and in a forked child.
    pub fn first(&self) -> Lsn {
        self.source.now().first
    }

    /// The durable watermark: the last record that can be read. A reader of [`Reader::open`] answers as of its last look;
    /// it looks when something is asked for that is not there yet.
    pub fn durable(&self) -> Lsn {
        self.source.now().durable
    }

    /// The record with this LSN.
    ///
    /// The first call in a part of the log reads the headers there, and remembers where records are: every few KiB, coarser
    /// in a larger log (at most 17 MiB in all). From then on a call is one read of that many bytes, from the page cache if
    /// they are there; of the record alone where all records around it are of one size (up to 16 KiB, and then a second read
    /// where it only seemed so). Each thread that calls keeps memory for one such record.
    ///
    /// # Errors
    /// [`Error::TruncatedBefore`] or [`Error::NotYet`] when it is not there; [`Error::Corrupt`] when it should be and cannot be
    /// read; [`Error::Forked`].
    pub fn get(&self, lsn: Lsn) -> Result<Vec<u8>> {
        self.source.check_process()?;
        if let Some(record) = self.finder.find(&self.source, lsn)? {
            return Ok(record);
        }
        // It is not there, or not sound, or another process has changed something: a cursor tells which.
        match self.from(lsn).next()? {
            Some(record) => Ok(record.bytes.to_vec()),
            None => Err(Error::NotYet { lsn, durable: self.durable() }),
        }
    }

    /// A cursor whose next record is the one with this LSN, which need not be there yet.
    pub fn from(&self, lsn: Lsn) -> Cursor<D> {
        Cursor::new(self.source.clone(), lsn.max(Lsn::FIRST))
    }

    /// All records from `lsn` to the watermark as it moves, each in memory of its own. Ends where the log ends now.
    pub fn records(&self, lsn: Lsn) -> impl Iterator<Item = Result<OwnedRecord>> + use<D> {
        let mut cursor = self.from(lsn);
        let mut is_over = false;
        std::iter::from_fn(move || {
            if is_over {
                return None;
            }
            let next = cursor.next().map(|record| record.map(OwnedRecord::from)).transpose();
            is_over = !matches!(next, Some(Ok(_)));
            next
        })
    }

    /// All records from `lsn` on, waiting for those to come. Ends with an error when there will be none
    /// ([`Error::Closed`], [`Error::Poisoned`]; never for a reader of [`Reader::open`], as another writer may come), or
    /// when they are gone ([`Error::TruncatedBefore`], [`Error::TruncatedAfter`]).
    pub fn follow(&self, lsn: Lsn) -> impl Iterator<Item = Result<OwnedRecord>> + use<D> {
        let mut cursor = self.from(lsn);
        let mut is_over = false;
        std::iter::from_fn(move || {
            while !is_over {
                match cursor.next_within(Duration::from_secs(3600)) {
                    Ok(Some(record)) => return Some(Ok(record.into())),
                    Ok(None) => {}
                    Err(error) => {
                        is_over = true;
                        return Some(Err(error));
                    }
                }
            }
            None
        })
    }
}

impl<D: Directory> Clone for Reader<D> {
    fn clone(&self) -> Self {
        Self { source: self.source.clone(), finder: Arc::clone(&self.finder) }
    }
}

impl<D: Directory> fmt::Debug for Reader<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader").field("path", &self.source.directory().path()).finish_non_exhaustive()
    }
}
