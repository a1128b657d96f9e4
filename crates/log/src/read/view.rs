//! A log that another process may be writing, as a reader knows it.
//!
//! *Owns*: what was shown to be durable, which segments hold it, and when to look again. *May not touch*: the files; what
//! a look may believe (`recovery/beside.rs`); how records are found (`cursor.rs`).
//!
//! The watermark of a view only rises, but for a cut: records that this view has called durable are in segments up to
//! its head, so a later segment that begins at or below the watermark is the proof that they were taken off.
//!
//! What the reader remembers of the head for the next look is only what was *durable*: whole groups behind it may be
//! gone when the writer's sync failed, and others written in their place.

use std::sync::Arc;
use std::time::Duration;

use inkstone_format::{Lsn, SegmentNumber, Tail};
use inkstone_io::Directory;

use crate::error::{Error, Result};
use crate::options::Options;
use crate::recovery::beside::{
    Known, Observed, Pauses, Untouched, observe, settle_access, walk_head, writer_lives,
};
use crate::report::Recovery;
use crate::segment::listing::Listing;
use crate::segment::{Link, Segments};
use crate::sync::{AtomicU64, Instant, Mutex, Ordering, lock};

/// What a reader has to know before it reads on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Now {
    pub(crate) durable: Lsn,
    pub(crate) first: Lsn,
    /// How many cuts there were.
    pub(crate) cuts: usize,
}

/// A log that is open for reading only.
pub(crate) struct View<D: Directory> {
    pub(crate) directory: Arc<D>,
    pub(crate) options: Options,
    pub(crate) recovery: Recovery,
    seen: Mutex<Seen<D::File>>,
    /// Another one when a look has changed what was seen, so that who reads on need not ask for that.
    version: AtomicU64,
}

struct Seen<F> {
    segments: Segments<F>,
    durable: Lsn,
    /// The last LSN that each cut left, as far as they were noticed.
    cuts: Vec<Lsn>,
    settled: Tail,
    /// The head's file stays open: it is looked at often.
    head: Arc<F>,
    /// Set when no writer lived at the last look: what must have changed before it pays to recover again.
    untouched: Option<Untouched>,
}

impl<D: Directory> View<D> {
    pub(crate) fn open(directory: Arc<D>, options: Options) -> Result<Self> {
        let mut options = settle_access(&*directory, options)?;
        let found = observe(&*directory, &options, None)?;
        // It was true then; a cut may make it false later.
        options.expect_durable = Lsn::ZERO;
        let recovery = found.recovery;
        let segments = Segments { links: found.links, first_live: found.first_live, obsolete: Vec::new() };
        let seen = Seen {
            segments,
            durable: found.durable,
            cuts: Vec::new(),
            settled: found.settled,
            head: found.head,
            untouched: found.untouched,
        };
        Ok(Self { directory, options, recovery, seen: Mutex::new(seen), version: AtomicU64::new(0) })
    }

    /// A number that is another one when what was seen is not so any more, and always even. Ask for it before [`View::now`].
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    pub(crate) fn now(&self) -> Now {
        lock(&self.seen).now()
    }

    pub(crate) fn lowest_cut_since(&self, cuts: usize) -> Option<Lsn> {
        lock(&self.seen).cuts.get(cuts..).and_then(|later| later.iter().min().copied())
    }

    pub(crate) fn find(&self, lsn: Lsn) -> Option<Link<D::File>> {
        lock(&self.seen).segments.find(lsn).cloned()
    }

    pub(crate) fn now_and_find(&self, lsn: Lsn) -> (Now, Option<Link<D::File>>) {
        let seen = lock(&self.seen);
        (seen.now(), seen.segments.find(lsn).cloned())
    }

    /// The segment behind the one with this number.
    pub(crate) fn after(&self, number: SegmentNumber) -> Option<Link<D::File>> {
        lock(&self.seen).segments.after(number).cloned()
    }

    /// Up to which byte the head was durable at the last look.
    pub(crate) fn settled_end(&self, head: SegmentNumber) -> Option<u64> {
        let seen = lock(&self.seen);
        (seen.segments.head().segment.number() == head).then_some(seen.settled.end)
    }

    /// Looks for records beyond those that are known, with as few reads as possible.
    ///
    /// # Errors
    /// [`Error::Corrupt`], or what the file system answers.
    pub(crate) fn refresh(&self) -> Result<Now> {
        let mut seen = lock(&self.seen);
        if writer_lives(&*self.directory)? {
            seen.untouched = None;
            self.mind_the_living(&mut seen)?;
        } else {
            self.mind_the_dead(&mut seen)?;
        }
        Ok(seen.now())
    }

    /// Looks at everything again: something that was known is not where it was.
    ///
    /// # Errors
    /// As [`View::refresh`].
    pub(crate) fn refresh_fully(&self) -> Result<Now> {
        let mut seen = lock(&self.seen);
        if writer_lives(&*self.directory)? {
            seen.untouched = None;
            self.observe_again(&mut seen)?;
        } else {
            self.mind_the_dead(&mut seen)?;
        }
        Ok(seen.now())
    }

    /// No writer lives: unless none has been here since the last look, everything is recovered anew.
    fn mind_the_dead(&self, seen: &mut Seen<D::File>) -> Result<()> {
        let is_same = match &seen.untouched {
            Some(untouched) => untouched.still_holds(&*self.directory, &seen.head)?,
            None => false,
        };
        if is_same { Ok(()) } else { self.observe_again(seen) }
    }

    /// A writer lives: it goes on in the head that is known, or has begun another.
    fn mind_the_living(&self, seen: &mut Seen<D::File>) -> Result<()> {
        let segment = Arc::clone(&seen.segments.head().segment);
        let walked = walk_head(&self.options, &segment, &seen.head, Some(seen.settled));
        // Asked after the walk: what it found was not cut off then.
        let listing = Listing::of(&*self.directory)?;
        let is_old = listing.segments.iter().max() != Some(&segment.number());
        // Whatever is wrong there, a look at everything says it better.
        let Some(walked) = walked.ok().filter(|_| !is_old) else { return self.observe_again(seen) };
        seen.settled = walked.settled;
        if walked.tail.first_live > seen.segments.first_live {
            self.note_change();
        }
        seen.segments.give_up(walked.tail.first_live);
        seen.segments.obsolete.clear();
        seen.durable = seen.durable.max(walked.tail.promise);
        Ok(())
    }

    fn observe_again(&self, seen: &mut Seen<D::File>) -> Result<()> {
        let known = Known { links: &seen.segments.links, settled: seen.settled };
        let mut found = observe(&*self.directory, &self.options, Some(&known))?;
        if seen.is_missed_by(&found) {
            // If it is damage, this look says where.
            let options = self.options.clone().expect_durable(seen.durable);
            let error = observe(&*self.directory, &options, None).err();
            // A cut in between would explain it.
            found = observe(&*self.directory, &self.options, None)?;
            if let Some(error) = error.filter(|_| seen.is_missed_by(&found)) {
                return Err(error);
            }
        }
        self.note_change();
        seen.take(found);
        Ok(())
    }

    /// Something that was seen is not so any more: called before that changes, with the lock held. (That the watermark has risen, or that nothing
    /// is new, is no change: a reader that polls would have the others begin again and again.)
    fn note_change(&self) {
        self.version.fetch_add(2, Ordering::AcqRel);
    }

    /// Waits until `lsn` is durable or gone, or the log was cut, or `until` is past.
    pub(crate) fn wait(&self, lsn: Lsn, cuts: usize, until: Option<Instant>) -> Result<()> {
        let mut pauses = Pauses::new();
        let mut now = self.now();
        while now.durable < lsn && now.first <= lsn && now.cuts == cuts {
            now = self.refresh()?;
            let left = until.map_or(Duration::MAX, |until| until.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                break;
            }
            if now.durable < lsn {
                pauses.sleep(left);
            }
        }
        Ok(())
    }
}

impl<F: inkstone_io::File> Seen<F> {
    fn now(&self) -> Now {
        Now { durable: self.durable, first: self.segments.first_live, cuts: self.cuts.len() }
    }

    /// The last LSN that a cut left which `found` shows and this has not noticed.
    fn cut_by(&self, found: &Observed<F>) -> Option<Lsn> {
        let head = self.segments.head().segment.number();
        let later = found.links.iter().map(|link| link.segment.header).filter(|header| header.number > head);
        let cut = later.filter(|header| header.first_lsn <= self.durable);
        let last = cut.map(|header| header.first_lsn.before().unwrap_or(Lsn::ZERO)).min()?;
        // What was given up since is nothing to begin again at.
        Some(last.max(found.first_live.before().unwrap_or(Lsn::ZERO)))
    }

    /// Whether something that was shown is not there, and no cut says why. Beside a writer nobody can say.
    fn is_missed_by(&self, found: &Observed<F>) -> bool {
        found.untouched.is_some() && found.durable < self.durable && self.cut_by(found).is_none()
    }

    fn take(&mut self, found: Observed<F>) {
        match self.cut_by(&found) {
            Some(last) => {
                self.cuts.push(last);
                self.durable = found.durable;
            }
            None => self.durable = self.durable.max(found.durable),
        }
        self.segments = Segments { links: found.links, first_live: found.first_live, obsolete: Vec::new() };
        self.settled = found.settled;
        self.head = found.head;
        self.untouched = found.untouched;
    }
}

/// Whether reading again may mend it: files vanish, and are used for other segments, under a reader.
pub(crate) fn may_be_the_writer(error: &Error) -> bool {
    matches!(error, Error::Corrupt(_) | Error::Io(_))
}
