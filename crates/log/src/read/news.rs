//! When a reader reads a log again that another process may be writing.
//!
//! *Owns*: the bulletin of the writer, how long its silence is trusted, the pauses between
//! observations without one. *May not touch*: what a post proves (`fresh.rs`); what was seen
//! (`view.rs`).
//!
//! A writer that this process can see posts how far the log is durable (`commit/post.rs`), and a
//! reader sleeps until it does. That costs nothing while nothing comes. But the post is a hint: its
//! writer may have been killed, and the next one may post where this process cannot see it. So when
//! nothing was posted for [`SILENCE`], the reader asks whether the lock's holder still posts there,
//! and after [`DOUBT`] it observes the log all the same. As long as the two agree, the silence is
//! trusted. If they do not, the reader looks for the bulletin of the present writer, and polls
//! meanwhile.
//!
//! What a reader knows to be durable it believes to be there still, as long as the bulletin names
//! no other truncations than those that were looked for, and for [`SILENCE`] at most ([`Belief`]).
//! To ask that takes some loads from memory, so each record can ask.

use std::sync::Arc;
use std::time::Duration;

use inkstone_io::{BulletinReader, TICK};

use crate::commit::post::{NAP, Posted, TRUNCATIONS_AT, Truncations};
use crate::sync::{CoarseInstant, Instant, sleep};

/// How long nothing may be posted before the lock is asked for, and before the log is observed
/// again.
const SILENCE: Duration = Duration::from_secs(1);
const DOUBT: Duration = Duration::from_secs(5);
/// The first pause without a bulletin after a record came, and the longest: four observations a
/// second.
const PAUSE_MIN: Duration = Duration::from_millis(1);
const POLL_PAUSE_MAX: Duration = Duration::from_millis(250);

/// What a reader knows of posts.
pub(crate) struct News {
    bulletin: Option<Arc<BulletinReader>>,
    /// The last observation found what was posted.
    agrees: bool,
    /// When the log was observed last, or a post was proved.
    looked: Option<Instant>,
    /// When the lock's holder was asked for last, or the log observed.
    asked: Option<Instant>,
    /// The truncations that were posted last, once they are known, or once the files were searched
    /// for them.
    checked: Option<Truncations>,
    /// Records came since the last rest: more may come soon.
    is_brisk: bool,
    pause: Duration,
}

/// That nothing was truncated since a reader has looked.
pub(crate) struct Belief {
    bulletin: Option<Arc<BulletinReader>>,
    truncations: Truncations,
    until: CoarseInstant,
}

impl Belief {
    /// Takes no lock and makes no system call.
    #[inline]
    pub(crate) fn holds(&self) -> bool {
        let posts = self.bulletin.as_ref();
        posts.is_none_or(|bulletin| bulletin.has_still(TRUNCATIONS_AT, self.truncations))
            && CoarseInstant::now() < self.until
    }
}

/// A bulletin as it was before the log was observed, to sleep on.
pub(crate) struct Quiet {
    bulletin: Arc<BulletinReader>,
    rings: u32,
}

impl News {
    pub(crate) fn new() -> Self {
        Self {
            bulletin: None,
            agrees: false,
            looked: None,
            asked: None,
            checked: None,
            is_brisk: false,
            pause: PAUSE_MIN,
        }
    }

    /// What is posted now, if there is a bulletin and its writer has not ended.
    pub(crate) fn posted(&self) -> Option<Posted> {
        self.bulletin.as_ref()?.read().and_then(Posted::of)
    }

    /// Where recent bytes may be found without a disk.
    pub(crate) fn bulletin(&self) -> Option<&Arc<BulletinReader>> {
        self.bulletin.as_ref()
    }

    /// Whether the process that posted is alive, and its log open.
    pub(crate) fn is_posted_by_the_living(&self) -> bool {
        self.bulletin.as_ref().is_some_and(|bulletin| bulletin.is_kept())
    }

    /// Notes whether the log is as it was posted.
    pub(crate) fn note(&mut self, agrees: bool) {
        self.agrees = agrees;
    }

    /// Notes that records came.
    pub(crate) fn note_records(&mut self) {
        self.is_brisk = true;
        self.pause = PAUSE_MIN;
    }

    /// Notes that the log was observed, or a post proved.
    pub(crate) fn note_look(&mut self) {
        self.looked = Some(Instant::now());
        self.asked = self.looked;
    }

    /// Whether nothing more can be found out than what was posted.
    pub(crate) fn is_trusted(&self) -> bool {
        self.agrees && self.is_recent()
    }

    /// Whether the log was observed, or the lock's holder asked for, within [`SILENCE`], and that
    /// holder has not ended since.
    pub(crate) fn is_recent(&self) -> bool {
        !self.left().is_zero()
            && !self.bulletin.as_ref().is_some_and(|bulletin| bulletin.has_ended())
    }

    fn left(&self) -> Duration {
        self.asked.map_or(Duration::ZERO, |asked| SILENCE.saturating_sub(asked.elapsed()))
    }

    /// Whether these truncations were looked for.
    pub(crate) fn is_checked(&self, posted: &Posted) -> bool {
        self.checked == Some(posted.truncations())
    }

    /// Notes that these truncations are known, or that the files were searched for them: what was
    /// not found then was a lie.
    pub(crate) fn note_checked(&mut self, posted: &Posted) {
        self.checked = Some(posted.truncations());
    }

    /// What may be believed of records that are known.
    pub(crate) fn belief(&self) -> Belief {
        let (bulletin, truncations) = (self.bulletin.clone(), self.checked.unwrap_or_default());
        // The coarse clock is late by a tick.
        Belief {
            bulletin,
            truncations,
            until: CoarseInstant::now() + self.left().saturating_sub(TICK),
        }
    }

    /// Whether the writer was alive a moment ago. What it has posted since counts in any case.
    pub(crate) fn was_alive_just_now(&self) -> bool {
        self.asked.is_some_and(|asked| asked.elapsed() < NAP)
    }

    /// Whether the log need not be observed: the bulletin agreed with it not long ago, and `find`
    /// finds the same.
    pub(crate) fn is_still(&mut self, find: impl FnOnce() -> Option<BulletinReader>) -> bool {
        let is_doubted = self.looked.is_none_or(|looked| looked.elapsed() >= DOUBT);
        let Some(bulletin) = self.bulletin.as_ref().filter(|_| self.agrees && !is_doubted) else {
            return false;
        };
        let is_still = find().is_some_and(|found| found.is_same(bulletin));
        if is_still {
            self.asked = Some(Instant::now());
        }
        is_still
    }

    /// Takes the bulletin that `find` finds, if the present one does not agree with the log.
    pub(crate) fn find(&mut self, find: impl FnOnce() -> Option<BulletinReader>) {
        if !self.agrees {
            self.bulletin = find().map(Arc::new);
        }
    }

    /// No writer lives.
    pub(crate) fn lose(&mut self) {
        (self.bulletin, self.agrees) = (None, false);
    }

    /// Call it before the log is observed, so that no post is missed.
    pub(crate) fn quiet(&self) -> Option<Quiet> {
        let bulletin = Arc::clone(self.bulletin.as_ref()?);
        let rings = bulletin.rings();
        Some(Quiet { bulletin, rings })
    }

    /// The pause until the log is to be observed again; grows each time.
    fn next_pause(&mut self) -> Duration {
        let pause = self.pause;
        self.pause = (pause * 2).min(POLL_PAUSE_MAX);
        pause
    }

    /// How to sleep when nothing was found, given the bulletin as it was before.
    pub(crate) fn rest(&mut self, quiet: Option<Quiet>) -> Rest {
        let naps = std::mem::take(&mut self.is_brisk);
        match (&self.bulletin, quiet) {
            (Some(now), Some(quiet)) if self.agrees && Arc::ptr_eq(now, &quiet.bulletin) => {
                if naps { Rest::NapOn(quiet) } else { Rest::On(quiet) }
            }
            // It was found a moment ago: posts since then count.
            (Some(_), _) if self.agrees => Rest::Not,
            _ => Rest::For(self.next_pause()),
        }
    }
}

/// How a reader sleeps.
pub(crate) enum Rest {
    Not,
    On(Quiet),
    NapOn(Quiet),
    For(Duration),
}

impl Rest {
    /// Sleeps, `at_most` at the longest.
    pub(crate) fn sleep(self, at_most: Duration) {
        match self {
            Self::Not => {}
            Self::On(quiet) => drop(quiet.bulletin.sleep(quiet.rings, SILENCE.min(at_most))),
            Self::NapOn(quiet) => drop(quiet.bulletin.nap(quiet.rings, NAP.min(at_most))),
            Self::For(pause) => sleep(pause.min(at_most)),
        }
    }
}
