//! A reader's view of a log that another process may be writing.
//!
//! *Owns*: the records that were shown as durable, the segments that hold them, and when to observe
//! the log again. *May not touch*: the files, except to read what is new in the
//! head; what an observation may believe (`recovery/beside.rs`); how records are found
//! (`cursor.rs`).
//!
//! The watermark of a view only rises, except by a cut. How many there were, and what was kept, is
//! the history in the header of each later segment: a view that slept through any number of cuts
//! and truncations reads it there, also if the segments that the cuts had begun are gone.
//!
//! **Truncations.** What is at or below the watermark may have been truncated since, and another
//! record may have its LSN. So every read asks [`View::ask`] first, and may go by the answer as
//! long as its [`Belief`] holds: until the writer publishes something, or for a second.
//!
//! For the next observation the view keeps only what was *durable* in the head: if the writer's
//! sync failed, whole groups after that may be gone, and other groups written in their place.

use std::sync::Arc;
use std::time::Duration;

use inkstone_format::limits::BLOCK_BYTES;
use inkstone_format::{LogKind, Lsn, Reason, SegmentNumber, Tail};
use inkstone_io::{AlignedBuf, AnyDirectory, File};

use crate::commit::shared_page::Published;
use crate::error::{Corruption, Cure, Error, Result};
use crate::event::Event;
use crate::names;
use crate::options::Options;
use crate::read::publisher::{Belief, JUST_NOW, Publisher, SILENCE};
use crate::read::recent::Recent;
use crate::recovery::beside::{
    KnownBefore, Observed, Untouched, observe, settle_access, settled_first, walk_head,
    writer_lives,
};
use crate::recovery::newest::is_last;
use crate::report::Recovery;
use crate::segment::kept::KeptFiles;
use crate::segment::{Link, Segments};
use crate::sync::{AtomicU64, Instant, Mutex, Ordering, lock};
use crate::walk::ahead::{PIECE_BYTES, Piece, Stretch};

/// If no more than this is left of the head, nothing is read ahead.
const LITTLE_BYTES: u64 = 256 << 10;

/// What a reader must know before it reads the next record.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Now {
    pub(crate) durable: Lsn,
    pub(crate) first: Lsn,
    /// The number of cuts so far.
    pub(crate) cuts: u64,
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
    /// A new head counts only once its header is durable (`recovery/beside.rs`), so no later history
    /// of cuts contradicts this one.
    segments: Segments,
    durable: Lsn,
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
    publisher: Publisher,
    recent: Recent,
}

impl View {
    pub(crate) fn open(directory: AnyDirectory, options: Options) -> Result<Self> {
        let mut options = settle_access(&directory, options.for_reading())?;
        let found = observe(&directory, &options, None)?;
        // Checked now; a later cut may make it false.
        options.expect_durable = Lsn::ZERO;
        let recovery = found.recovery;
        for what in options.doubts.all() {
            options.tell(&Event::Fallback { what });
        }
        let (links, cuts, first_live) = (found.links, found.cuts, found.first_live);
        let seen = Seen {
            segments: Segments { links, cuts, first_live, obsolete: Vec::new() },
            durable: found.durable,
            settled: found.settled,
            head: found.head,
            _cached: found.cached,
            untouched: found.untouched,
            publisher: Publisher::new(),
            recent: Recent::new(),
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

    pub(crate) fn kind(&self) -> LogKind {
        lock(&self.seen).segments.head().segment.header.kind
    }

    pub(crate) fn owner(&self) -> [u8; 16] {
        lock(&self.seen).segments.head().segment.header.owner
    }

    pub(crate) fn lowest_cut_since(&self, cuts: u64) -> Option<Lsn> {
        lock(&self.seen).segments.cuts.lowest_since(cuts)
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

    /// What a reader must know before it reads this record: whether the record may be shown.
    ///
    /// # Errors
    /// [`Error::Corrupt`]; errors of the file system.
    pub(crate) fn ask(&self, lsn: Lsn) -> Result<Asked> {
        let mut seen = lock(&self.seen);
        let quiet = seen.publisher.quiet();
        if lsn > seen.durable {
            self.refresh(lsn, &mut seen, JUST_NOW)?;
        }
        if lsn <= seen.durable {
            self.mind_truncations(&mut seen)?;
        }
        Ok(Asked {
            version: self.version(),
            now: seen.now(),
            belief: Some(seen.publisher.belief(quiet)),
        })
    }

    /// Looks for records after those that are known, as far as `wanted`, with as few reads as
    /// possible. If nothing is published and the writer was alive `within` this time, there are
    /// none.
    fn refresh(&self, wanted: Lsn, seen: &mut Seen, within: Duration) -> Result<()> {
        if self.take_news_up_to(wanted, seen) || seen.publisher.is_trusted(within) {
            return Ok(());
        }
        self.look(seen, Self::mind_the_living)
    }

    /// For records that are known: looks for truncations if some are published that are not known,
    /// or if nothing was asked for a second. So a truncated record is shown for no longer than
    /// that.
    fn mind_truncations(&self, seen: &mut Seen) -> Result<()> {
        let published = seen.publisher.published();
        let unchecked = published.filter(|published| !seen.publisher.is_checked(published));
        if let Some(published) = unchecked {
            while !seen.knows_truncations(&published) && self.take_news(seen) {}
            if !seen.knows_truncations(&published) {
                // A cut, or a lie.
                self.look(seen, Self::mind_the_living)?;
            }
            seen.publisher.note_checked(&published);
        }
        if !seen.publisher.is_recent() {
            self.look(seen, Self::mind_the_living)?;
        }
        Ok(())
    }

    /// Observes what may be new, beside a writer that lives by `living`, and then compares it with
    /// what is published.
    fn look(&self, seen: &mut Seen, living: fn(&Self, &mut Seen) -> Result<()>) -> Result<()> {
        let before = seen.durable;
        let lives = writer_lives(&self.directory)?;
        if lives {
            seen.untouched = None;
            living(self, seen)?;
        } else {
            self.mind_the_dead(seen)?;
            seen.publisher.lose();
        }
        seen.publisher.note_look();
        self.take_news(seen);
        if lives {
            seen.publisher.find(|| self.directory.read_shared_page(names::LOCK));
            self.take_news(seen);
        }
        if seen.durable != before {
            seen.publisher.note_records();
        }
        Ok(())
    }

    /// As [`View::take_news`], until the wanted record is known or all that is published now: one
    /// reading may prove a part of it.
    fn take_news_up_to(&self, wanted: Lsn, seen: &mut Seen) -> bool {
        let end = seen.publisher.published().map(|published| (published.segment, published.end));
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

    /// Reads what was published as new; true if more of the log is known then. If the log is not as
    /// it is published, it is observed as if nothing were.
    fn take_news(&self, seen: &mut Seen) -> bool {
        let taken = self.prove_news(seen);
        seen.publisher.note(taken.is_some());
        if taken.is_none() {
            seen.recent.forget();
        }
        taken.unwrap_or(false)
    }

    /// Reads what was published as new, if it is in the known head. `None` if there is none, or it
    /// proves wrong, or its writer is dead by now: the next one may have cut what it published. So
    /// too if it is in a new segment: an observation finds that.
    fn prove_news(&self, seen: &mut Seen) -> Option<bool> {
        let published = seen.publisher.published()?;
        let segment = Arc::clone(&seen.segments.head().segment);
        if published.segment != segment.number() || published.end < seen.settled.end {
            return None;
        }
        if published.end == seen.settled.end {
            let is_same = published.durable == seen.durable
                && published.epoch == seen.settled.epoch
                && published.first == seen.segments.first_live;
            return is_same.then_some(false);
        }
        let file = segment.cached_file(&self.directory).ok()?;
        let (settled, page) = (seen.settled, seen.publisher.page().map(Arc::clone)?);
        let proved = seen.recent.read_on(&segment, &file, settled, &published, &page)?;
        // Asked after the bytes were read: no other writer had come by then.
        if !seen.publisher.is_alive() {
            return None;
        }
        self.advance_by_news(seen, proved.settled, proved.durable);
        Some(true)
    }

    /// What was published is there: as [`View::advance`].
    fn advance_by_news(&self, seen: &mut Seen, settled: Tail, durable: Lsn) {
        let before = seen.durable;
        self.advance(seen, settled, durable, settled.first_live);
        seen.publisher.note_look();
        if seen.durable > before {
            seen.publisher.note_records();
        }
    }

    /// Observes everything again, because a known record could not be read.
    ///
    /// # Errors
    /// As [`View::ask`].
    pub(crate) fn refresh_fully(&self) -> Result<Now> {
        let mut seen = lock(&self.seen);
        seen.recent.forget();
        self.look(&mut seen, Self::observe_again)?;
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

    /// A writer lives: it continues in the known head, or has begun another segment. Counted for a
    /// reader without a shared page: 41 system calls an observation, and 100 if it observes
    /// everything again.
    fn mind_the_living(&self, seen: &mut Seen) -> Result<()> {
        let segment = Arc::clone(&seen.segments.head().segment);
        let walked = walk_head(&segment, &seen.head, Some(seen.settled));
        // Asked after the walk: without a newer segment, no cut had removed what the walk read.
        let is_last = is_last(&self.directory, &self.options, &segment.header);
        let known = seen.segments.first_live;
        if let (Ok(walked), Ok(true)) = (walked, is_last)
            && let Ok(first) =
                settled_first(&self.directory, &self.options, &segment, &walked, known)
        {
            self.advance(seen, walked.settled, walked.tail.promise, first);
            return Ok(());
        }
        // If anything is wrong there, observing everything gives the better error.
        self.observe_again(seen)
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

    /// A log that was removed and made anew, a copy of another one, or an older copy of this one is
    /// not read on.
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    fn check_same_log(&self, seen: &Seen, found: &Observed) -> Result<()> {
        let known = seen.segments.head().segment.header.log;
        let other = found.links.iter().find(|link| link.segment.header.log != known);
        let (number, why) = match (other, found.links.last()) {
            (Some(link), _) => {
                (link.segment.number(), "another log has taken the place of the one".to_owned())
            }
            (None, Some(head)) if !found.cuts.continues(&seen.segments.cuts) => {
                let (now, then) = (found.cuts.count(), seen.cut_count());
                let why = format!(
                    "this log was cut {now} times, and {then} times by another history when it was \
                     read last: an older copy has taken the place of the log"
                );
                (head.segment.number(), why)
            }
            _ => return Ok(()),
        };
        let path = self.directory.path().join(names::segment(number));
        let details = vec![format!("{why} that this reader had opened")];
        let corruption = Corruption::of(path, number, Reason::ForeignLog, "H2");
        Err(Corruption { details, cure: Cure::OpenAgain, ..corruption }.into())
    }

    /// What was seen is no longer true. Called with the lock held, before the state changes. (A
    /// risen watermark is no change, nor is an observation without news: otherwise one polling
    /// reader would make the others begin again and again.)
    fn note_change(&self) {
        self.version.fetch_add(2, Ordering::AcqRel);
    }

    /// Waits until `lsn` is durable or truncated, or the log was cut, or `until` has passed.
    pub(crate) fn wait(&self, lsn: Lsn, cuts: u64, until: Option<Instant>) -> Result<()> {
        let mut now = self.now();
        while now.durable < lsn && now.first <= lsn && now.cuts == cuts {
            let mut seen = lock(&self.seen);
            let quiet = seen.publisher.quiet();
            // If the writer is killed, it may be seen a second later.
            self.refresh(lsn, &mut seen, SILENCE)?;
            now = seen.now();
            let left = until
                .map_or(Duration::MAX, |until| until.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                break;
            }
            if now.durable < lsn {
                let rest = seen.publisher.rest(quiet);
                drop(seen);
                rest.sleep(left);
            }
        }
        Ok(())
    }

    /// The piece at byte `at` of this stretch, if that is of the head, and was not durable yet when
    /// the stretch was made, or little of it is left: read up to the byte that is durable and no
    /// further, or copied from what was read a moment ago.
    pub(crate) fn recent_piece(
        &self,
        stretch: &Stretch,
        at: u64,
        spare: &mut Option<AlignedBuf>,
    ) -> Result<Option<Piece>> {
        let seen = lock(&self.seen);
        let segment = Arc::clone(&seen.segments.head().segment);
        let is_known = seen.settled.next_lsn.before().is_some_and(|last| last >= seen.durable);
        let is_here = is_known && segment.number() == stretch.number;
        let is_new = stretch.end.is_none_or(|end| at >= end);
        let left = seen.settled.end.saturating_sub(at);
        if !is_here || left == 0 || !(is_new || left <= LITTLE_BYTES) {
            return Ok(None);
        }
        let mut len = left.min(PIECE_BYTES as u64) as usize;
        let enough = spare.take().filter(|spare| spare.len() >= len);
        let mut memory =
            enough.unwrap_or_else(|| AlignedBuf::zeroed(len.next_multiple_of(BLOCK_BYTES)));
        if !seen.recent.copy(stretch.number, at, &mut memory[..len]) {
            drop(seen);
            len = segment.cached_file(&self.directory)?.read_at(&mut memory[..len], at)?;
        }
        Ok(Some(Piece { memory, len, proof: None }))
    }
}

impl Seen {
    fn now(&self) -> Now {
        Now { durable: self.durable, first: self.segments.first_live, cuts: self.cut_count() }
    }

    fn cut_count(&self) -> u64 {
        self.segments.cuts.count()
    }

    /// Whether all that is published as truncated is known to be. Both rise.
    fn knows_truncations(&self, published: &Published) -> bool {
        published.epoch <= self.settled.epoch && published.first <= self.segments.first_live
    }

    /// Whether a record that was shown is missing and no cut explains it. Beside a living writer
    /// this is unknown.
    fn is_missed_by(&self, found: &Observed) -> bool {
        let is_cut = found.cuts.count() > self.cut_count();
        found.untouched.is_some() && found.durable < self.durable && !is_cut
    }

    fn take(&mut self, found: Observed) {
        let (links, cuts, first_live) = (found.links, found.cuts, found.first_live);
        self.durable = match cuts.count() > self.cut_count() {
            // The header of a cut promises all that the cut has kept.
            true => found.durable,
            false => self.durable.max(found.durable),
        };
        self.segments = Segments { links, cuts, first_live, obsolete: Vec::new() };
        // What the walk of an older head has noted is in that segment's own index now.
        if let [older @ .., _] = &self.segments.links[..] {
            older.iter().for_each(|link| link.segment.forget_places());
        }
        self.settled = found.settled;
        (self.head, self._cached) = (found.head, found.cached);
        self.untouched = found.untouched;
        self.recent.forget();
    }
}

/// Whether reading again may help: under a reader files vanish, and are used for other segments.
pub(crate) fn may_be_the_writer(error: &Error) -> bool {
    matches!(error, Error::Corrupt(_) | Error::Io(_))
}
