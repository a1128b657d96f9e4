//! Reading a log: by LSN, in order, or following it as it grows.
//!
//! *Owns*: the public face of reading. *May not touch*: how records are found (`cursor.rs`,
//! `finder.rs`).

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use inkstone_format::{LogKind, Lsn};
use inkstone_io::AnyDirectory;

use crate::commit::shared::Shared;
use crate::directory::find_directory;
use crate::error::{Error, Result};
use crate::options::Options;
use crate::read::cursor::{Cursor, OwnedRecord};
use crate::read::finder;
#[cfg(doc)]
use crate::read::place::Place;
use crate::read::place::Start;
use crate::read::source::Source;
use crate::read::view::View;
use crate::report::Recovery;
use crate::watermarks::Watermarks;

/// Reads durable records of a log. Cheap to clone.
///
/// [`Log::reader`](crate::Log::reader) returns a reader of a log that this process writes.
/// [`Reader::open`] opens a log that another process may be writing, or none. Such a reader never
/// writes, takes no lock and does not delay the writer: a writer that truncates records uses their
/// files again, and a reader that comes too late gets [`Error::TruncatedBefore`].
///
/// Keep one reader instead of opening a new one each time. [`Reader::get`] keeps up to 128 files
/// open, of one log and all readers from [`Log::reader`](crate::Log::reader) together, or of one
/// reader from [`Reader::open`] and its clones. Files that the log gives back are closed, by a
/// reader from [`Reader::open`] when it is called again or its wait goes on; until then they take
/// no room.
pub struct Reader {
    source: Source,
}

impl Reader {
    /// Opens the log in the directory `path` for reading only. It writes and creates nothing and
    /// takes no lock: permission to read the files is enough, also on a file system that is mounted
    /// read-only.
    ///
    /// If no writer lives, this recovers what the last one left, without changing it, and shows all
    /// of it. Beside a living writer it shows what the writer has *promised*: what was durable
    /// before its latest group; 100 ms after the last append that too. On Linux a writer of the
    /// same user also publishes in shared memory what is durable; the reader sleeps until it does,
    /// and believes it after its own checks (docs/durability.md, "Reading"). Where that cannot be,
    /// it polls, four times a second at last.
    ///
    /// Only three options apply: [`Options::access`] (for the last segment of a living writer;
    /// records that are durable are read through the page cache or past it, whichever is faster),
    /// [`Options::expect_durable`], and the listener, which gets an
    /// [`Event::Fallback`](crate::Event::Fallback) for each of [`Recovery::doubts`].
    ///
    /// # Errors
    /// [`Error::NoLog`]; [`Error::Corrupt`] when promised bytes are damaged or missing;
    /// [`Error::UnknownVersion`] when a newer program has written the log; [`Error::Invalid`] for
    /// options that contradict each other; errors of the file system.
    ///
    /// # Durability
    /// Everything that the reader shows is on stable storage: it first syncs what a killed writer
    /// left. Where that is refused (a disk that is dying, a file system without a sync of
    /// directories) it reads all the same, and [`Recovery::doubts`] says so.
    pub fn open(path: impl AsRef<Path>, options: &Options) -> Result<Self> {
        Self::open_in(Arc::new(find_directory(path)?), options.clone())
    }

    /// Opens the log in any directory ([`AnyDirectory`]) for reading only.
    ///
    /// # Errors
    /// As [`Reader::open`].
    ///
    /// # Durability
    /// As [`Reader::open`].
    pub fn open_in(directory: impl Into<AnyDirectory>, options: Options) -> Result<Self> {
        options.check()?;
        Ok(Self::of(Source::View(Arc::new(View::open(directory.into(), options)?))))
    }

    /// What [`Reader::open`] found; `None` for a reader of a log that this process writes. Beside a
    /// living writer there is no verdict on the tail and no end: [`Recovery::last`] is the last
    /// promised record.
    pub fn recovery(&self) -> Option<Recovery> {
        self.source
            .view()
            .map(|view| Recovery { doubts: view.options.doubts.all(), ..view.recovery.clone() })
    }

    pub(crate) fn living(shared: Arc<Shared>) -> Self {
        Self::of(Source::Living(shared))
    }

    fn of(source: Source) -> Self {
        Self { source }
    }

    /// What the log is for: the same for its whole life.
    pub fn kind(&self) -> LogKind {
        self.source.kind()
    }

    /// The id of what stands on the log ([`Options::owner`]): the same for its whole life.
    pub fn owner(&self) -> [u8; 16] {
        self.source.owner()
    }

    /// The first record that is left; one above the last if there is none, and in a forked child.
    pub fn first(&self) -> Lsn {
        self.source.now().first
    }

    /// The durable watermark: the last record that can be read. A reader from [`Reader::open`]
    /// returns the watermark that it saw last; it checks the files again when it is asked for a
    /// record above it.
    pub fn durable(&self) -> Lsn {
        self.source.now().durable
    }

    /// Why the log that this process writes takes no records any more: [`Error::Poisoned`],
    /// [`Error::Closed`], or [`Error::Forked`]. Its durable records can be read all the same.
    /// `None` if it takes them, and for a log that another process writes.
    pub fn end_of_log(&self) -> Option<Error> {
        self.source.end_of_log()
    }

    /// The watermarks of the log, to be awaited; they begin with the present one.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a reader from [`Reader::open`]: this process gets no notice when
    /// another one commits. Call [`Cursor::next_within`] on a thread of your own there.
    pub fn watermarks(&self) -> Result<Watermarks> {
        Ok(Watermarks::new(Arc::clone(self.source.to_await()?)))
    }

    /// The record with this LSN.
    ///
    /// It costs one read of the record and less than 8 KiB before it, from the page cache if they
    /// are there. The first record in a full segment also takes its index, a 512th of the segment;
    /// up to 16 MiB of indexes are kept, with the files. Where a segment has no index (a crash, or
    /// a full disk), the first call there reads the segment. Each calling thread keeps memory for
    /// what it reads, 1 MiB at most.
    ///
    /// A reader from [`Reader::open`] learns of a truncation by another process at once where it
    /// sees what that process publishes, otherwise within a second; until then it returns the
    /// record as it was. So do its cursors.
    ///
    /// # Errors
    /// [`Error::TruncatedBefore`] or [`Error::NotYet`] when the log does not have the record;
    /// [`Error::Lost`] when it was salvaged without the record;
    /// [`Error::Corrupt`] when the log should have it and it cannot be read; [`Error::Invalid`] for
    /// LSN 0, which no record has; [`Error::Forked`]. A reader from [`Reader::open`] also gets
    /// errors of the file system when another process may have cut the log and it cannot look (no
    /// file descriptor is left, the directory was removed).
    pub fn get(&self, lsn: Lsn) -> Result<Vec<u8>> {
        match self.find(lsn) {
            // Files that are kept open for the next call are of no use to this one.
            Err(error) if error.is_out_of_descriptors() && self.source.kept().let_go() => {
                self.find(lsn)
            }
            answer => answer,
        }
    }

    fn find(&self, lsn: Lsn) -> Result<Vec<u8>> {
        self.source.check_process()?;
        if lsn < Lsn::FIRST {
            return Err(Error::no_record_zero());
        }
        if let Some(view) = self.source.view() {
            let durable = view.ask(lsn)?.now.durable;
            if lsn > durable {
                return Err(Error::NotYet { lsn, durable });
            }
        }
        if let Some(record) = finder::find(&self.source, lsn)? {
            return Ok(record);
        }
        // The record is missing or damaged, or another process has changed the log: a cursor finds
        // out which.
        let mut cursor = self.from(lsn);
        loop {
            match cursor.next() {
                Ok(Some(record)) => return Ok(record.bytes.to_vec()),
                Ok(None) => return Err(Error::NotYet { lsn, durable: self.durable() }),
                // It is the first to learn of this cut; another record may have the LSN by now.
                Err(Error::TruncatedAfter { .. }) => cursor.seek(lsn),
                Err(error) => return Err(error),
            }
        }
    }

    /// In a forked child the error: before a lock is taken that another thread of the parent may
    /// have had.
    ///
    /// # Errors
    /// [`Error::Forked`].
    #[doc(hidden)]
    pub fn check_process(&self) -> Result<()> {
        self.source.check_process()
    }

    /// A cursor whose next record is the one with this LSN, or at this [`Place`]; it may not exist
    /// yet. No record has LSN 0: a cursor there returns [`Error::Invalid`], and so does one at the
    /// place of another log.
    pub fn from(&self, start: impl Into<Start>) -> Cursor {
        Cursor::new(self.source.clone(), start.into())
    }

    /// All durable records from `lsn` on, each in its own memory. Ends at the watermark, which may
    /// move during the iteration, or with an error; goes on behind [`Error::Lost`].
    pub fn records(&self, lsn: Lsn) -> impl Iterator<Item = Result<OwnedRecord>> + use<> {
        let mut cursor = self.from(lsn);
        let mut is_over = false;
        std::iter::from_fn(move || {
            if is_over {
                return None;
            }
            let next = cursor.next().map(|record| record.map(OwnedRecord::from)).transpose();
            is_over = !matches!(next, Some(Ok(_) | Err(Error::Lost { .. })));
            next
        })
    }

    /// All records from `lsn` on; waits for records that are not durable yet. Ends with an error
    /// when no more will come ([`Error::Closed`], [`Error::Poisoned`]; never for a reader from
    /// [`Reader::open`], since another writer may come), or when the next record was truncated
    /// ([`Error::TruncatedBefore`], [`Error::TruncatedAfter`]); goes on behind [`Error::Lost`].
    pub fn follow(&self, lsn: Lsn) -> impl Iterator<Item = Result<OwnedRecord>> + use<> {
        let mut cursor = self.from(lsn);
        let mut is_over = false;
        std::iter::from_fn(move || {
            while !is_over {
                match cursor.next_within(Duration::from_secs(3600)) {
                    Ok(Some(record)) => return Some(Ok(record.into())),
                    Ok(None) => {}
                    Err(error) => {
                        is_over = !matches!(error, Error::Lost { .. });
                        return Some(Err(error));
                    }
                }
            }
            None
        })
    }
}

impl Clone for Reader {
    fn clone(&self) -> Self {
        Self { source: self.source.clone() }
    }
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader")
            .field("path", &self.source.directory().path())
            .finish_non_exhaustive()
    }
}
