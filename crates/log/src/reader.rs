//! Reading a log: by LSN, in order, and following it as it grows.
//!
//! *Owns*: the reader's public face, and what it reads from. *May not touch*: how records are found (`cursor.rs`).

use std::fmt;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use inkstone_format::Lsn;
use inkstone_io::{Access, Directory, File as _, OpenFile, OsDirectory};

use crate::ahead::{ENGINE, Means, Stretch};
use crate::cursor::{Cursor, OwnedRecord};
use crate::error::{Error, Result};
use crate::finder::Finder;
use crate::mistake::Mistake;
use crate::names;
use crate::options::Options;
use crate::recovery::Recovery;
use crate::segment::Link;
use crate::shared::Shared;
use crate::sync::{FALLBACK, Instant, lock};
use crate::view::View;

/// Reads durable records of a log. Cheap to clone.
///
/// [`crate::Log::reader`] gives one of a log that this process writes; [`Reader::open`] one of a log that anybody may be
/// writing, or nobody. Such a reader never writes, takes no lock and does not hold a writer up: a writer that gives
/// records up uses their files again, and the reader, if it comes too late, answers [`Error::GivenUp`].
///
/// Clones share what [`Reader::get`] has learned of the log, and the files that it keeps open: keep one, rather than ask for
/// a new one each time.
pub struct Reader<D: Directory = OsDirectory> {
    source: Source<D>,
    finder: Arc<Finder<D>>,
}

/// Where a reader's records come from.
pub(crate) enum Source<D: Directory> {
    /// A log that this process has open for writing.
    Living(Arc<Shared<D>>),
    /// A log that somebody else may have open for writing.
    View(Arc<View<D>>),
}

impl<D: Directory> Clone for Source<D> {
    fn clone(&self) -> Self {
        match self {
            Self::Living(shared) => Self::Living(Arc::clone(shared)),
            Self::View(view) => Self::View(Arc::clone(view)),
        }
    }
}

/// What a reader has to know before it reads on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Now {
    pub(crate) durable: Lsn,
    pub(crate) first: Lsn,
    /// How many cuts there were.
    pub(crate) cuts: usize,
}

impl<D: Directory> Source<D> {
    pub(crate) fn directory(&self) -> &D {
        match self {
            Self::Living(shared) => &shared.directory,
            Self::View(view) => &view.directory,
        }
    }

    pub(crate) fn options(&self) -> &Options {
        match self {
            Self::Living(shared) => &shared.options,
            Self::View(view) => &view.options,
        }
    }

    /// The view, if it is one.
    pub(crate) fn view(&self) -> Option<&View<D>> {
        match self {
            Self::Living(_) => None,
            Self::View(view) => Some(view),
        }
    }

    /// A number that is another one when records were given up or taken off, or another look was taken. Ask for it before
    /// [`Source::now`].
    pub(crate) fn version(&self) -> u64 {
        match self {
            Self::Living(shared) => shared.changes(),
            Self::View(view) => view.version(),
        }
    }

    /// Whether nothing that was asked for since [`Source::version`] gave this can be half of what a cut has changed.
    pub(crate) fn is_still(&self, version: u64) -> bool {
        version.is_multiple_of(2) && self.version() == version
    }

    /// As [`Shared::check_process`], also of a log that another process writes.
    pub(crate) fn check_process(&self) -> Result<()> {
        if self.is_forked() {
            Err(Error::Forked { path: self.directory().path().to_path_buf() })
        } else {
            Ok(())
        }
    }

    fn is_forked(&self) -> bool {
        self.directory().is_forked() && !self.options().makes(Mistake::ForkMarkNotAsked)
    }

    /// In a forked child: an empty log that begins behind the watermark, as far as that can be known without a lock.
    pub(crate) fn now(&self) -> Now {
        match self {
            _ if self.is_forked() => {
                let durable = match self {
                    Self::Living(shared) => shared.durable(),
                    Self::View(_) => Lsn::ZERO,
                };
                Now { durable, first: durable.next().unwrap_or(Lsn::FIRST), cuts: 0 }
            }
            Self::Living(shared) => {
                let state = shared.lock();
                let past = shared.options.makes(Mistake::ReadsPastWatermark);
                let durable = if past { state.reserved() } else { state.durable };
                Now { durable, first: lock(&shared.segments).first_live, cuts: state.cut_count() }
            }
            Self::View(view) => view.now(),
        }
    }

    /// The lowest LSN that the cuts from number `cuts` on left as the last.
    pub(crate) fn lowest_cut_since(&self, cuts: usize) -> Option<Lsn> {
        match self {
            Self::Living(shared) => {
                shared.lock().cuts.get(cuts..).and_then(|later| later.iter().min().copied())
            }
            Self::View(view) => view.lowest_cut_since(cuts),
        }
    }

    /// The segment of a record that is durable and not given up, and which record is the first.
    pub(crate) fn find_durable(&self, lsn: Lsn) -> Option<(Lsn, Link<D::File>)> {
        let (durable, first, link) = match self {
            Self::Living(shared) => {
                let past = shared.options.makes(Mistake::ReadsPastWatermark);
                let durable = if past { shared.lock().reserved() } else { shared.durable() };
                let segments = lock(&shared.segments);
                (durable, segments.first_live, segments.find(lsn).cloned())
            }
            Self::View(view) => {
                let (now, link) = view.now_and_find(lsn);
                (now.durable, now.first, link)
            }
        };
        let given_up = lsn < first && !self.options().makes(Mistake::GivenUpShown);
        let is_there = lsn <= durable && !given_up && lsn >= Lsn::FIRST;
        is_there.then_some(first).zip(link)
    }

    pub(crate) fn find(&self, lsn: Lsn) -> Option<Link<D::File>> {
        match self {
            Self::Living(shared) => lock(&shared.segments).find(lsn).cloned(),
            Self::View(view) => view.find(lsn),
        }
    }

    /// The segment behind this one, if the log has gone on.
    pub(crate) fn after(&self, link: &Link<D::File>) -> Option<Link<D::File>> {
        let number = link.segment.number();
        match self {
            Self::Living(shared) => lock(&shared.segments).after(number).cloned(),
            Self::View(view) => view.after(number),
        }
    }

    /// Up to which byte a segment's file can be read ahead: nothing before it is going to be written again.
    pub(crate) fn stretch(&self, link: &Link<D::File>) -> Result<Stretch<D::File>> {
        let segment = &link.segment;
        let number = segment.number();
        let end = match self {
            _ if link.end.is_some() => link.end,
            Self::Living(_) => None,
            Self::View(view) => view.settled_end(number),
        };
        let file = segment.cached_file(self.directory())?;
        Ok(Stretch { number, file, end, prover: Some(segment.prover(self.options())) })
    }

    /// Waits until `lsn` is durable or the log was cut, closed or poisoned, or `until` is past.
    pub(crate) fn wait(&self, lsn: Lsn, cuts: usize, until: Option<Instant>) -> Result<()> {
        self.check_process()?;
        match self {
            Self::Living(shared) => {
                let mut state = shared.lock();
                while state.durable < lsn && state.cut_count() == cuts {
                    state.check_open()?;
                    let left = until.map_or(FALLBACK, |until| {
                        until.saturating_duration_since(Instant::now()).min(FALLBACK)
                    });
                    if left.is_zero() {
                        break;
                    }
                    (state, _) = shared.sleep_for(&shared.followers, state, left);
                }
                Ok(())
            }
            Self::View(view) => view.wait(lsn, cuts, until),
        }
    }
}

impl<D: Directory> Means<D> for Source<D> {
    fn engine(&self, threads: usize) -> Result<D::Engine> {
        Ok(self.directory().engine(ENGINE, threads)?)
    }

    /// Through the page cache what is there, else past it: several reads in flight then leave the device no pause, and
    /// nothing that others need is driven out of memory.
    fn whole(&self, stretch: &Stretch<D::File>) -> Result<(Arc<D::File>, bool)> {
        if stretch.file.is_cached()? {
            return Ok((Arc::clone(&stretch.file), true));
        }
        let past = OpenFile::existing().read_only().access(Access::Direct);
        match self.directory().open(&names::segment(stretch.number), &past) {
            Ok(file) => Ok((Arc::new(file), false)),
            // No O_DIRECT here, or the name was taken away.
            Err(_) => Ok((Arc::clone(&stretch.file), false)),
        }
    }
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
    /// [`Error::GivenUp`] or [`Error::NotYet`] when it is not there; [`Error::Corrupt`] when it should be and cannot be
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
    /// when they are gone ([`Error::GivenUp`], [`Error::Cut`]).
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
