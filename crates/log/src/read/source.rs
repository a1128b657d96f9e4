//! The source of a reader's records: a log that this process writes, or one that another process
//! may be writing.
//!
//! *Owns*: the questions that both can answer. *May not touch*: how records are found (`cursor.rs`,
//! `finder.rs`).

use std::sync::Arc;

use inkstone_format::{LogKind, Lsn};
use inkstone_io::{Access, AlignedBuf, AnyDirectory, File, OpenFile};

use crate::commit::shared::Shared;
use crate::error::{Error, Result};
use crate::names;
use crate::read::view::{Asked, Now, View};
use crate::segment::kept::KeptFiles;
use crate::segment::{Link, Segment};
use crate::sync::{Instant, lock};
use crate::tail::{GroupTail, TailRun};
use crate::walk::ahead::{Ahead, Means, Piece, Pieces, Stretch};

/// The source of a reader's records.
#[derive(Clone)]
pub(crate) enum Source {
    /// A log that this process has open for writing.
    Living(Arc<Shared>),
    /// A log that another process may have open for writing.
    View(Arc<View>),
}

impl Source {
    pub(crate) fn directory(&self) -> &AnyDirectory {
        match self {
            Self::Living(shared) => &shared.directory,
            Self::View(view) => &view.directory,
        }
    }

    pub(crate) fn kind(&self) -> LogKind {
        match self {
            Self::Living(shared) => lock(&shared.segments).head().segment.header.kind,
            Self::View(view) => view.kind(),
        }
    }

    pub(crate) fn owner(&self) -> [u8; 16] {
        match self {
            Self::Living(shared) => lock(&shared.segments).head().segment.header.owner,
            Self::View(view) => view.owner(),
        }
    }

    /// The view, if it is one.
    pub(crate) fn view(&self) -> Option<&View> {
        match self {
            Self::Living(_) => None,
            Self::View(view) => Some(view),
        }
    }

    /// A number that changes with each truncation, and when the log is observed again. Ask for it
    /// before [`Source::now`].
    pub(crate) fn version(&self) -> u64 {
        match self {
            Self::Living(shared) => shared.changes(),
            Self::View(view) => view.version(),
        }
    }

    /// Whether no answer since [`Source::version`] returned this number can mix the state before
    /// and after a cut.
    pub(crate) fn is_still(&self, version: u64) -> bool {
        version.is_multiple_of(2) && self.version() == version
    }

    /// The watermark of a log that this process writes, without a lock. It belongs to the version
    /// that was asked for before, if that [is still](Source::is_still) the same.
    pub(crate) fn watermark(&self) -> Option<Lsn> {
        match self {
            Self::Living(shared) => Some(shared.durable()),
            Self::View(_) => None,
        }
    }

    /// What was written last, of a log that this process writes.
    pub(crate) fn tail(&self) -> Option<&GroupTail> {
        match self {
            Self::Living(shared) if shared.tail.is_wanted() => Some(&shared.tail),
            _ => None,
        }
    }

    /// The groups in memory in which this record, which is durable, lies.
    #[inline]
    pub(crate) fn tail_run(&self, lsn: Lsn) -> Option<TailRun> {
        let Self::Living(shared) = self else { return None };
        let tail = self.tail()?;
        if !tail.has_come_to(lsn) {
            // The watermark has risen, and the group comes into the tail before the state's lock is
            // released.
            drop(shared.lock());
        }
        tail.run(lsn)
    }

    /// As [`Shared::check_process`], also of a log that another process writes.
    pub(crate) fn check_process(&self) -> Result<()> {
        if self.is_forked() {
            Err(Error::Forked { path: self.directory().path().to_path_buf() })
        } else {
            Ok(())
        }
    }

    /// Why this process's log takes no records any more, if it is so.
    pub(crate) fn end_of_log(&self) -> Option<Error> {
        match self {
            Self::Living(shared) => {
                self.check_process().and_then(|()| shared.lock().check_open()).err()
            }
            Self::View(_) => None,
        }
    }

    fn is_forked(&self) -> bool {
        self.directory().is_forked()
    }

    /// What is known of the log before its record `lsn` is read.
    ///
    /// # Errors
    /// As [`View::ask`], of a log that another process may be writing.
    pub(crate) fn ask(&self, lsn: Lsn) -> Result<Asked> {
        match self {
            Self::Living(_) => {
                let version = self.version();
                Ok(Asked { version, now: self.now(), belief: None })
            }
            Self::View(view) => view.ask(lsn),
        }
    }

    /// In a forked child: an empty log that begins after the watermark, as far as that is known
    /// without a lock.
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
                let first = lock(&shared.segments).first_live;
                Now { durable: state.durable(), first, cuts: state.cut_count() }
            }
            Self::View(view) => view.now(),
        }
    }

    /// Looks for cuts that a place knows and this reader does not.
    ///
    /// # Errors
    /// [`Error::Invalid`] when there are none; as [`View::ask`].
    pub(crate) fn look_for_cuts(&self, known: u64) -> Result<()> {
        let cuts = match self {
            Self::Living(_) => self.now().cuts,
            Self::View(view) => view.refresh_fully()?.cuts,
        };
        if cuts >= known {
            return Ok(());
        }
        Err(Error::Invalid(format!(
            "the place is of a log that was cut {known} times, and the one in {} was cut {cuts} \
             times: it is another log, or an older copy; begin at an LSN",
            self.directory().path().display()
        )))
    }

    /// The lowest last LSN that the cuts after the first `cuts` ones have kept.
    pub(crate) fn lowest_cut_since(&self, cuts: u64) -> Option<Lsn> {
        match self {
            Self::Living(shared) => shared.lowest_cut_since(cuts),
            Self::View(view) => view.lowest_cut_since(cuts),
        }
    }

    /// The segment of a record, if that is durable and not truncated.
    pub(crate) fn find_durable(&self, lsn: Lsn) -> Option<Link> {
        let (durable, first, link) = match self {
            Self::Living(shared) => {
                let durable = shared.durable();
                let segments = lock(&shared.segments);
                (durable, segments.first_live, segments.find(lsn).cloned())
            }
            Self::View(view) => {
                let (now, link) = view.now_and_find(lsn);
                (now.durable, now.first, link)
            }
        };
        let is_there = lsn <= durable && lsn >= first && lsn >= Lsn::FIRST;
        link.filter(|_| is_there)
    }

    pub(crate) fn find(&self, lsn: Lsn) -> Option<Link> {
        match self {
            Self::Living(shared) => lock(&shared.segments).find(lsn).cloned(),
            Self::View(view) => view.find(lsn),
        }
    }

    /// The next segment, if the log has one.
    pub(crate) fn after(&self, link: &Link) -> Option<Link> {
        let number = link.segment.number();
        match self {
            Self::Living(shared) => lock(&shared.segments).after(number).cloned(),
            Self::View(view) => view.after(number),
        }
    }

    /// The part of a segment's file that can be read ahead: no byte before its end will be written
    /// again.
    pub(crate) fn stretch(&self, link: &Link) -> Result<Stretch> {
        let segment = &link.segment;
        let number = segment.number();
        let end = match self {
            _ if link.end.is_some() => link.end,
            Self::Living(_) => None,
            Self::View(view) => view.settled_end(number),
        };
        let file = segment.cached_file(self.directory())?;
        Ok(Stretch { number, file, end, prover: Some(segment.prover()) })
    }

    /// The file of a segment, which stays open for the next call.
    pub(crate) fn kept_file(&self, segment: &Arc<Segment>) -> Result<Arc<dyn File>> {
        self.kept().file(segment, self.directory())
    }

    /// The files that stay open for the next call.
    pub(crate) fn kept(&self) -> &KeptFiles {
        match self {
            Self::Living(shared) => &shared.kept,
            Self::View(view) => &view.kept,
        }
    }

    /// Pieces of the log in order, from this stretch on.
    pub(crate) fn pieces(&self, stretch: Stretch) -> Box<dyn Pieces> {
        Box::new(Ahead::growing(Box::new(self.clone()), stretch))
    }

    /// Waits until `lsn` is durable or the log was cut, closed or poisoned, or `until` is past.
    pub(crate) fn wait(&self, lsn: Lsn, cuts: u64, until: Option<Instant>) -> Result<()> {
        self.check_process()?;
        match self {
            Self::Living(shared) => shared.follow(lsn, cuts, until),
            Self::View(view) => view.wait(lsn, cuts, until),
        }
    }
}

impl Source {
    /// The log, if this process writes it: there a task can wait.
    ///
    /// # Errors
    /// [`Error::Invalid`].
    pub(crate) fn to_await(&self) -> Result<&Arc<Shared>> {
        match self {
            Self::Living(shared) => Ok(shared),
            Self::View(_) => Err(Error::Invalid(
                "a reader from `Reader::open` cannot be awaited, since this process gets no notice \
                 when another one commits: call `Cursor::next_within` on a thread of your own"
                    .into(),
            )),
        }
    }
}

impl Means for Source {
    fn recent_piece(
        &self,
        stretch: &Stretch,
        at: u64,
        spare: &mut Option<AlignedBuf>,
    ) -> Result<Option<Piece>> {
        self.view().map_or(Ok(None), |view| view.recent_piece(stretch, at, spare))
    }

    fn directory(&self) -> &AnyDirectory {
        Self::directory(self)
    }

    /// Reads through the page cache what is there, and past it otherwise: several reads in flight
    /// keep the device busy, and do not evict other pages from memory.
    fn whole(&self, stretch: &Stretch) -> Result<(Arc<dyn File>, bool)> {
        if stretch.file.is_cached()? {
            return Ok((Arc::clone(&stretch.file), true));
        }
        let past = OpenFile::existing().read_only().access(Access::Direct);
        match self.directory().open(&names::segment(stretch.number), &past) {
            Ok(file) => Ok((file, false)),
            // There is no O_DIRECT here, or the file was removed.
            Err(_) => Ok((Arc::clone(&stretch.file), false)),
        }
    }
}
