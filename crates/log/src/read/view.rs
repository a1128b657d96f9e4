//! A reader's view of a log that another process may be writing.
//!
//! *Owns*: the records that were shown as durable, the segments that hold them, and when to observe
//! the log again. *May not touch*: the files; what an observation may believe
//! (`recovery/beside.rs`); how records are found (`cursor.rs`).
//!
//! The watermark of a view only rises, except by a cut. Records that this view has called durable
//! are in segments up to its head, so a later segment that begins at or below the watermark proves
//! that they were truncated.
//!
//! **Truncations.** What is at or below the watermark may have been truncated since, and another
//! record may have its LSN. So every read asks [`View::ask`] first, and may go by the answer as
//! long as its [`Belief`] holds: until the writer publishes a truncation, or for a second.
//!
//! For the next observation the view keeps only what was *durable* in the head: if the writer's
//! sync failed, whole groups after that may be gone, and other groups written in their place.

use std::sync::Arc;
use std::time::Duration;

use inkstone_format::{Lsn, Reason, SegmentNumber, Tail};
use inkstone_io::{AnyDirectory, File};

use crate::commit::shared_page::Published;
use crate::error::{Corruption, Error, Result};
use crate::event::Event;
use crate::names;
use crate::options::Options;
use crate::read::fresh::Fresh;
use crate::read::news::{Belief, News};
use crate::recovery::beside::{
    KnownBefore, Observed, Untouched, observe, settle_access, walk_head, writer_lives,
};
use crate::recovery::newest::{Successors, successors};
use crate::report::Recovery;
use crate::segment::kept::KeptFiles;
use crate::segment::listing::Listing;
use crate::segment::{Link, Segment, Segments};
use crate::sync::{AtomicU64, Instant, Mutex, Ordering, lock};

/// What a reader must know before it reads the next record.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Now {
    pub(crate) durable: Lsn,
    pub(crate) first: Lsn,
    /// The number of cuts so far.
    pub(crate) cuts: usize,
}

/// An answer to a reader.
pub(crate) struct Asked {
    /// The version of the source to which it belongs.
    pub(crate) version: u64,
    pub(crate) now: Now,
    /// How long it counts if the version stays the same; `None` for as long as that.
    pub(crate) belief: Option<Belief>,
}

/// A log that is open for reading only.
pub(crate) struct View {
    pub(crate) directory: AnyDirectory,
    pub(crate) options: Options,
    pub(crate) recovery: Recovery,
    seen: Mutex<Seen>,
    pub(crate) kept: KeptFiles,
    /// Changes when an observation changes what was seen. A cursor checks it instead of asking for
    /// the state again.
    version: AtomicU64,
}

struct Seen {
    segments: Segments,
    durable: Lsn,
    /// The last LSN that each noticed cut has left.
    cuts: Vec<Lsn>,
    settled: Tail,
    /// The file of the head. It stays open because it is read often.
    head: Arc<dyn File>,
    /// The same for reading records. It stays open because its file may be used for another
    /// segment.
    _cached: Option<Arc<dyn File>>,
    /// Set when no writer lived at the last observation: recovery is only repeated when this has
    /// changed.
    untouched: Option<Untouched>,
    /// What the writer publishes, and what was read because of it.
    news: News,
    fresh: Fresh,
}

impl View {
    pub(crate) fn open(directory: AnyDirectory, options: Options) -> Result<Self> {
        let mut options = settle_access(&directory, options.for_reading())?;
        let found = observe(&directory, &options, None)?;
        // Checked now; a later cut may make it false.
        options.expect_durable = Lsn::ZERO;
        let recovery = found.recovery;
        for doubt in &recovery.doubts {
            options.tell(&Event::Fallback { what: doubt.clone() });
        }
        let segments =
            Segments { links: found.links, first_live: found.first_live, obsolete: Vec::new() };
        let seen = Seen {
            segments,
            durable: found.durable,
            cuts: Vec::new(),
            settled: found.settled,
            head: found.head,
            _cached: found.cached,
            untouched: found.untouched,
            news: News::new(),
            fresh: Fresh::new(),
        };
        let (seen, kept, version) = (Mutex::new(seen), KeptFiles::default(), AtomicU64::new(0));
        Ok(Self { directory, options, recovery, seen, kept, version })
    }

    /// A number that changes when what was seen is no longer true; always even. Ask for it before
    /// [`View::now`].
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    pub(crate) fn now(&self) -> Now {
        lock(&self.seen).now()
    }

    pub(crate) fn lowest_cut_since(&self, cuts: usize) -> Option<Lsn> {
        lock(&self.seen).cuts.get(cuts..).and_then(|later| later.iter().min().copied())
    }

    pub(crate) fn find(&self, lsn: Lsn) -> Option<Link> {
        lock(&self.seen).segments.find(lsn).cloned()
    }

    pub(crate) fn now_and_find(&self, lsn: Lsn) -> (Now, Option<Link>) {
        let seen = lock(&self.seen);
        (seen.now(), seen.segments.find(lsn).cloned())
    }

    /// The segment after the one with this number.
    pub(crate) fn after(&self, number: SegmentNumber) -> Option<Link> {
        lock(&self.seen).segments.after(number).cloned()
    }

    /// The byte up to which the head was durable at the last observation.
    pub(crate) fn settled_end(&self, head: SegmentNumber) -> Option<u64> {
        let seen = lock(&self.seen);
        (seen.segments.head().segment.number() == head).then_some(seen.settled.end)
    }

    /// What a reader must know before it reads this record. No other call than this one decides
    /// whether a record may be shown.
    ///
    /// # Errors
    /// [`Error::Corrupt`]; errors of the file system.
    pub(crate) fn ask(&self, lsn: Lsn) -> Result<Asked> {
        let mut seen = lock(&self.seen);
        if lsn > seen.durable {
            self.refresh(lsn, &mut seen)?;
        }
        if lsn <= seen.durable {
            self.mind_truncations(&mut seen)?;
        }
        Ok(Asked { version: self.version(), now: seen.now(), belief: Some(seen.news.belief()) })
    }

    /// Looks for records after those that are known, as far as `wanted`, with as few reads as
    /// possible.
    fn refresh(&self, wanted: Lsn, seen: &mut Seen) -> Result<()> {
        if self.take_news_up_to(wanted, seen) {
            return Ok(());
        }
        // A system call on a path; to ask for the lock takes seven.
        let is_alive =
            |seen: &Seen| seen.news.was_alive_just_now() || seen.news.is_published_by_the_living();
        if !(seen.news.is_trusted() && is_alive(seen)) {
            let lives = writer_lives(&self.directory)?;
            if !lives || !seen.news.is_trusted() {
                self.look(seen, lives)?;
            }
        }
        Ok(())
    }

    /// For records that are known: looks for truncations if some are published that are not known,
    /// or if the log was not observed for a second. So a truncated record is shown for no longer
    /// than that.
    fn mind_truncations(&self, seen: &mut Seen) -> Result<()> {
        if let Some(published) =
            seen.news.published().filter(|published| !seen.news.is_checked(published))
        {
            while !seen.knows_truncations(&published) && self.take_news(seen) {}
            if !seen.knows_truncations(&published) {
                // A cut, or a lie.
                seen.news.note(false);
                let lives = writer_lives(&self.directory)?;
                self.look(seen, lives)?;
            }
            seen.news.note_checked(&published);
        }
        if !seen.news.is_recent() {
            let lives = writer_lives(&self.directory)?;
            self.look(seen, lives)?;
        }
        Ok(())
    }

    /// As [`View::refresh`], for a reader that waits: if the writer is killed, it may be seen a
    /// second later.
    fn refresh_to_wait(&self, wanted: Lsn, seen: &mut Seen) -> Result<Now> {
        if !self.take_news_up_to(wanted, seen) && !seen.news.is_trusted() {
            let lives = writer_lives(&self.directory)?;
            self.look(seen, lives)?;
        }
        Ok(seen.now())
    }

    /// Observes what may be new, and then compares it with what is published; but not if the writer
    /// publishes as before.
    fn look(&self, seen: &mut Seen, lives: bool) -> Result<()> {
        if lives && seen.news.is_still(|| self.directory.read_shared_page(names::LOCK)) {
            return Ok(());
        }
        let before = seen.durable;
        if lives {
            seen.untouched = None;
            self.mind_the_living(seen)?;
        } else {
            self.mind_the_dead(seen)?;
        }
        self.compare_news(seen, lives);
        if seen.durable != before {
            seen.news.note_records();
        }
        Ok(())
    }

    /// Called after an observation.
    fn compare_news(&self, seen: &mut Seen, lives: bool) {
        seen.news.note_look();
        if !lives {
            seen.news.lose();
            return;
        }
        self.take_news(seen);
        seen.news.find(|| self.directory.read_shared_page(names::LOCK));
        self.take_news(seen);
    }

    /// As [`View::take_news`], until the wanted record is known or all that is published now: one
    /// reading may prove a part of it.
    fn take_news_up_to(&self, wanted: Lsn, seen: &mut Seen) -> bool {
        let end = seen.news.published().map(|published| (published.segment, published.end));
        let mut came = false;
        while self.take_news(seen) {
            came = true;
            if seen.durable >= wanted
                || Some((seen.segments.head().segment.number(), seen.settled.end)) >= end
            {
                break;
            }
        }
        came
    }

    /// Reads what was published as new, if it is in the known head or leads to it; true if more of
    /// the log is known then. A publication that proves wrong changes nothing, nor does one of a
    /// writer that is dead by now: the next one may have cut what it published.
    fn take_news(&self, seen: &mut Seen) -> bool {
        let published = seen.news.published();
        let entered = published
            .is_some_and(|published| self.enter_successors(seen, published.segment).is_some());
        let segment = Arc::clone(&seen.segments.head().segment);
        let published = published.filter(|published| published.segment == segment.number());
        let Some(published) = published.filter(|published| published.end >= seen.settled.end)
        else {
            seen.news.note(false);
            return entered;
        };
        if published.end == seen.settled.end {
            let is_same =
                published.durable == seen.durable && published.epoch == seen.settled.epoch;
            seen.news.note(is_same && published.first == seen.segments.first_live);
            return entered;
        }
        let file = segment.cached_file(&self.directory).ok();
        let shared = seen.news.shared_page().map(Arc::clone);
        let settled = seen.settled;
        let proved = file.and_then(|file| {
            seen.fresh.read_on(&segment, &file, settled, &published, shared.as_deref())
        });
        // Asked after the bytes were read: no other writer had come by then.
        let proved = proved.filter(|_| seen.news.is_published_by_the_living());
        seen.news.note(proved.is_some());
        let Some(proved) = proved else {
            seen.fresh.forget();
            return entered;
        };
        self.advance_by_news(seen, proved.settled, proved.durable);
        true
    }

    /// Enters the segments up to the one that was published, if they follow the known head; `None`
    /// if not, and nothing has changed.
    fn enter_successors(&self, seen: &mut Seen, published: SegmentNumber) -> Option<()> {
        let known = seen.segments.head().segment.header;
        if published <= known.number {
            return None;
        }
        let end = seen.settled.end;
        let Successors { headers, last } =
            successors(&self.directory, &self.options, &known, end, published).ok()??;
        let ends: Vec<_> =
            headers.iter().map(|header| header.predecessor).collect::<Option<_>>()?;
        let (first, head) = (headers.first()?, *headers.last()?);
        let settled = *Segment::new(head).decoder(None, &*last.file).ok()?.tail();
        // As in `take_news`.
        if first.first_lsn <= seen.durable || !seen.news.is_published_by_the_living() {
            return None;
        }
        for (header, end) in headers.iter().zip(ends) {
            seen.segments.push(Arc::new(Segment::new(*header)), end.byte);
        }
        let segment = &seen.segments.head().segment;
        segment.adopt(&last.file);
        segment.adopt_cached(&last.cached);
        (seen.head, seen._cached) = (last.file, Some(last.cached));
        self.advance_by_news(seen, settled, head.promise);
        Some(())
    }

    /// What was published is there: as [`View::advance`].
    fn advance_by_news(&self, seen: &mut Seen, settled: Tail, durable: Lsn) {
        let before = seen.durable;
        self.advance(seen, settled, durable, settled.first_live);
        seen.news.note_look();
        if seen.durable > before {
            seen.news.note_records();
        }
    }

    /// Observes everything again, because a known record could not be read.
    ///
    /// # Errors
    /// As [`View::ask`].
    pub(crate) fn refresh_fully(&self) -> Result<Now> {
        let mut seen = lock(&self.seen);
        let lives = writer_lives(&self.directory)?;
        if lives {
            seen.untouched = None;
            self.observe_again(&mut seen)?;
        } else {
            self.mind_the_dead(&mut seen)?;
        }
        seen.fresh.forget();
        self.compare_news(&mut seen, lives);
        Ok(seen.now())
    }

    /// No writer lives: recovers everything again, unless no writer has come since the last
    /// observation.
    fn mind_the_dead(&self, seen: &mut Seen) -> Result<()> {
        let is_same = match &seen.untouched {
            Some(untouched) => untouched.still_holds(&self.directory, &seen.head)?,
            None => false,
        };
        if is_same { Ok(()) } else { self.observe_again(seen) }
    }

    /// A writer lives: it continues in the known head, or has begun another segment.
    fn mind_the_living(&self, seen: &mut Seen) -> Result<()> {
        let segment = Arc::clone(&seen.segments.head().segment);
        let walked = walk_head(&segment, &seen.head, Some(seen.settled));
        // Listed after the walk: without a newer segment, no cut had removed what the walk read.
        let listing = Listing::of(&self.directory)?;
        let is_old = listing.segments.iter().max() != Some(&segment.number());
        // If anything is wrong there, observing everything gives the better error.
        let Some(walked) = walked.ok().filter(|_| !is_old) else { return self.observe_again(seen) };
        self.advance(seen, walked.settled, walked.tail.promise, walked.tail.first_live);
        Ok(())
    }

    /// More of the known head is durable: the groups before `settled`.
    fn advance(&self, seen: &mut Seen, settled: Tail, durable: Lsn, first_live: Lsn) {
        if first_live > seen.segments.first_live {
            self.note_change();
        }
        seen.segments.truncate_before(first_live);
        seen.segments.obsolete.clear();
        seen.settled = settled;
        seen.durable = seen.durable.max(durable);
    }

    fn observe_again(&self, seen: &mut Seen) -> Result<()> {
        let known = KnownBefore { links: &seen.segments.links, settled: seen.settled };
        let mut found = observe(&self.directory, &self.options, Some(&known))?;
        self.check_same_log(seen, &found)?;
        if seen.is_missed_by(&found) {
            // If it is damage, this observation says where.
            let options = self.options.clone().expect_durable(seen.durable);
            let error = observe(&self.directory, &options, None).err();
            // A cut in between could explain it.
            found = observe(&self.directory, &self.options, None)?;
            self.check_same_log(seen, &found)?;
            if let Some(error) = error.filter(|_| seen.is_missed_by(&found)) {
                return Err(error);
            }
        }
        self.note_change();
        seen.take(found);
        Ok(())
    }

    /// A log that was removed and made anew, or a copy of another one, is not read on.
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    fn check_same_log(&self, seen: &Seen, found: &Observed) -> Result<()> {
        let known = seen.segments.head().segment.header.log;
        let Some(link) = found.links.iter().find(|link| link.segment.header.log != known) else {
            return Ok(());
        };
        let number = link.segment.number();
        let corruption = Corruption {
            path: self.directory.path().join(names::segment(number)),
            segment: Some(number),
            offset: 0,
            lsn: None,
            reason: Reason::ForeignLog,
            row: "H2",
            details: vec![
                "another log has taken the place of the one that this reader had opened: open it \
                 again"
                    .to_owned(),
            ],
            is_without_records: false,
        };
        Err(corruption.into())
    }

    /// What was seen is no longer true. Called with the lock held, before the state changes. (A
    /// risen watermark is no change, nor is an observation without news: otherwise one polling
    /// reader would make the others begin again and again.)
    fn note_change(&self) {
        self.version.fetch_add(2, Ordering::AcqRel);
    }

    /// Waits until `lsn` is durable or truncated, or the log was cut, or `until` has passed.
    pub(crate) fn wait(&self, lsn: Lsn, cuts: usize, until: Option<Instant>) -> Result<()> {
        let mut now = self.now();
        while now.durable < lsn && now.first <= lsn && now.cuts == cuts {
            let mut seen = lock(&self.seen);
            let quiet = seen.news.quiet();
            now = self.refresh_to_wait(lsn, &mut seen)?;
            let left = until
                .map_or(Duration::MAX, |until| until.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                break;
            }
            if now.durable < lsn {
                let rest = seen.news.rest(quiet);
                drop(seen);
                rest.sleep(left);
            }
        }
        Ok(())
    }

    /// The byte of this segment before which everything is durable, if it is the head and that is
    /// known.
    pub(crate) fn end_of_durable(&self, number: SegmentNumber) -> Option<u64> {
        let seen = lock(&self.seen);
        let is_head = seen.segments.head().segment.number() == number;
        let is_known = seen.settled.next_lsn.before().is_some_and(|last| last >= seen.durable);
        (is_head && is_known).then_some(seen.settled.end)
    }

    /// Copies bytes of this segment that were read a moment ago; false if they are not in memory.
    pub(crate) fn copy_fresh(&self, number: SegmentNumber, at: u64, to: &mut [u8]) -> bool {
        lock(&self.seen).fresh.copy(number, at, to)
    }
}

impl Seen {
    fn now(&self) -> Now {
        Now { durable: self.durable, first: self.segments.first_live, cuts: self.cuts.len() }
    }

    /// Whether all that is published as truncated is known to be. Both rise.
    fn knows_truncations(&self, published: &Published) -> bool {
        published.epoch <= self.settled.epoch && published.first <= self.segments.first_live
    }

    /// The last LSN that was left by a cut which `found` shows and this view had not noticed.
    fn cut_by(&self, found: &Observed) -> Option<Lsn> {
        let head = self.segments.head().segment.number();
        let later = found
            .links
            .iter()
            .map(|link| link.segment.header)
            .filter(|header| header.number > head);
        let cut = later.filter(|header| header.first_lsn <= self.durable);
        let last = cut.map(|header| header.first_lsn.before().unwrap_or(Lsn::ZERO)).min()?;
        // Records that `truncate_before` has truncated since are no place to continue.
        Some(last.max(found.first_live.before().unwrap_or(Lsn::ZERO)))
    }

    /// Whether a record that was shown is missing and no cut explains it. Beside a living writer
    /// this is unknown.
    fn is_missed_by(&self, found: &Observed) -> bool {
        found.untouched.is_some() && found.durable < self.durable && self.cut_by(found).is_none()
    }

    fn take(&mut self, found: Observed) {
        match self.cut_by(&found) {
            Some(last) => {
                self.cuts.push(last);
                self.durable = found.durable;
            }
            None => self.durable = self.durable.max(found.durable),
        }
        self.segments =
            Segments { links: found.links, first_live: found.first_live, obsolete: Vec::new() };
        self.settled = found.settled;
        (self.head, self._cached) = (found.head, found.cached);
        self.untouched = found.untouched;
        self.fresh.forget();
    }
}

/// Whether reading again may help: under a reader files vanish, and are used for other segments.
pub(crate) fn may_be_the_writer(error: &Error) -> bool {
    matches!(error, Error::Corrupt(_) | Error::Io(_))
}
