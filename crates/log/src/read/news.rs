//! When a reader reads a log again that another process may be writing.
//!
//! *Owns*: the shared page of the writer, how long its silence is trusted, the pauses between
//! observations without one. *May not touch*: what a publication proves (`fresh.rs`); what was seen
//! (`view.rs`).
//!
//! A writer that this process can see publishes how far the log is durable
//! (`commit/shared_page.rs`), and a reader sleeps until it does. That costs nothing while nothing
//! comes. But the publication is a hint: its writer may have been killed, and the next one may
//! publish where this process cannot see it. So when nothing was published for [`SILENCE`], the
//! reader asks whether the lock's holder still publishes there, and after [`DOUBT`] it observes the
//! log all the same. As long as the two agree, the silence is trusted. If they do not, the reader
//! looks for the shared page of the present writer, and polls meanwhile.
//!
//! What a reader knows to be durable it believes to be there still, as long as the shared page
//! names no other truncations than those that were looked for, and for [`SILENCE`] at most
//! ([`Belief`]). To ask that takes some loads from memory, so each record can ask.

use std::sync::Arc;
use std::time::Duration;

use inkstone_io::{SharedPageReader, TICK};

use crate::commit::shared_page::{POLL_PAUSE, Published, TRUNCATIONS_AT, Truncations};
use crate::sync::{CoarseInstant, Instant, sleep};

/// How long nothing may be published before the lock is asked for, and before the log is observed
/// again.
const SILENCE: Duration = Duration::from_secs(1);
const DOUBT: Duration = Duration::from_secs(5);
/// The first pause without a shared page after a record came, and the longest: four observations a
/// second.
const PAUSE_MIN: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(250);

/// What a reader knows of publications.
pub(crate) struct News {
    shared_page: Option<Arc<SharedPageReader>>,
    /// The last observation found what was published.
    agrees: bool,
    /// When the log was observed last, or a publication was proved.
    looked: Option<Instant>,
    /// When the lock's holder was asked for last, or the log observed.
    asked: Option<Instant>,
    /// The truncations that were published last, once they are known, or once the files were
    /// searched for them.
    checked: Option<Truncations>,
    /// Records came since the last rest: more may come soon.
    is_brisk: bool,
    pause: Duration,
}

/// That nothing was truncated since a reader has looked.
pub(crate) struct Belief {
    shared_page: Option<Arc<SharedPageReader>>,
    truncations: Truncations,
    until: CoarseInstant,
}

impl Belief {
    /// Takes no lock and makes no system call.
    #[inline]
    pub(crate) fn holds(&self) -> bool {
        let publishes = self.shared_page.as_ref();
        publishes.is_none_or(|shared_page| shared_page.has_still(TRUNCATIONS_AT, self.truncations))
            && CoarseInstant::now() < self.until
    }
}

/// A shared page as it was before the log was observed, to sleep on.
pub(crate) struct Quiet {
    shared_page: Arc<SharedPageReader>,
    rings: u32,
}

impl News {
    pub(crate) fn new() -> Self {
        Self {
            shared_page: None,
            agrees: false,
            looked: None,
            asked: None,
            checked: None,
            is_brisk: false,
            pause: PAUSE_MIN,
        }
    }

    /// What is published now, if there is a shared page and its writer has not ended.
    pub(crate) fn published(&self) -> Option<Published> {
        self.shared_page.as_ref()?.read().and_then(Published::of)
    }

    /// Where recent bytes may be found without a disk.
    pub(crate) fn shared_page(&self) -> Option<&Arc<SharedPageReader>> {
        self.shared_page.as_ref()
    }

    /// Whether the process that published is alive, and its log open.
    pub(crate) fn is_published_by_the_living(&self) -> bool {
        self.shared_page.as_ref().is_some_and(|shared_page| shared_page.is_kept())
    }

    /// Notes whether the log is as it was published.
    pub(crate) fn note(&mut self, agrees: bool) {
        self.agrees = agrees;
    }

    /// Notes that records came.
    pub(crate) fn note_records(&mut self) {
        self.is_brisk = true;
        self.pause = PAUSE_MIN;
    }

    /// Notes that the log was observed, or a publication proved.
    pub(crate) fn note_look(&mut self) {
        self.looked = Some(Instant::now());
        self.asked = self.looked;
    }

    /// Whether nothing more can be found out than what was published.
    pub(crate) fn is_trusted(&self) -> bool {
        self.agrees && self.is_recent()
    }

    /// Whether the log was observed, or the lock's holder asked for, within [`SILENCE`], and that
    /// holder has not ended since.
    pub(crate) fn is_recent(&self) -> bool {
        !self.left().is_zero()
            && !self.shared_page.as_ref().is_some_and(|shared_page| shared_page.has_ended())
    }

    fn left(&self) -> Duration {
        self.asked.map_or(Duration::ZERO, |asked| SILENCE.saturating_sub(asked.elapsed()))
    }

    /// Whether these truncations were looked for.
    pub(crate) fn is_checked(&self, published: &Published) -> bool {
        self.checked == Some(published.truncations())
    }

    /// Notes that these truncations are known, or that the files were searched for them: what was
    /// not found then was a lie.
    pub(crate) fn note_checked(&mut self, published: &Published) {
        self.checked = Some(published.truncations());
    }

    /// What may be believed of records that are known.
    pub(crate) fn belief(&self) -> Belief {
        let (shared_page, truncations) =
            (self.shared_page.clone(), self.checked.unwrap_or_default());
        // The coarse clock is late by a tick.
        Belief {
            shared_page,
            truncations,
            until: CoarseInstant::now() + self.left().saturating_sub(TICK),
        }
    }

    /// Whether the writer was alive a moment ago. What it has published since counts in any case.
    pub(crate) fn was_alive_just_now(&self) -> bool {
        self.asked.is_some_and(|asked| asked.elapsed() < POLL_PAUSE)
    }

    /// Whether the log need not be observed: the shared page agreed with it not long ago, and
    /// `find` finds the same.
    pub(crate) fn is_still(&mut self, find: impl FnOnce() -> Option<SharedPageReader>) -> bool {
        let is_doubted = self.looked.is_none_or(|looked| looked.elapsed() >= DOUBT);
        let Some(shared_page) = self.shared_page.as_ref().filter(|_| self.agrees && !is_doubted)
        else {
            return false;
        };
        let is_still = find().is_some_and(|found| found.is_same(shared_page));
        if is_still {
            self.asked = Some(Instant::now());
        }
        is_still
    }

    /// Takes the shared page that `find` finds, if the present one does not agree with the log.
    pub(crate) fn find(&mut self, find: impl FnOnce() -> Option<SharedPageReader>) {
        if !self.agrees {
            self.shared_page = find().map(Arc::new);
        }
    }

    /// No writer lives.
    pub(crate) fn lose(&mut self) {
        (self.shared_page, self.agrees) = (None, false);
    }

    /// Call it before the log is observed, so that no publication is missed.
    pub(crate) fn quiet(&self) -> Option<Quiet> {
        let shared_page = Arc::clone(self.shared_page.as_ref()?);
        let rings = shared_page.rings();
        Some(Quiet { shared_page, rings })
    }

    /// The pause until the log is to be observed again; grows each time.
    fn next_pause(&mut self) -> Duration {
        let pause = self.pause;
        self.pause = (pause * 2).min(PAUSE_MAX);
        pause
    }

    /// How to sleep when nothing was found, given the shared page as it was before.
    pub(crate) fn rest(&mut self, quiet: Option<Quiet>) -> Pause {
        let polls = std::mem::take(&mut self.is_brisk);
        match (&self.shared_page, quiet) {
            (Some(now), Some(quiet)) if self.agrees && Arc::ptr_eq(now, &quiet.shared_page) => {
                if polls {
                    Pause::PollOn(quiet)
                } else {
                    Pause::On(quiet)
                }
            }
            // It was found a moment ago: publications since then count.
            (Some(_), _) if self.agrees => Pause::Not,
            _ => Pause::For(self.next_pause()),
        }
    }
}

/// How a reader sleeps.
pub(crate) enum Pause {
    Not,
    On(Quiet),
    PollOn(Quiet),
    For(Duration),
}

impl Pause {
    /// Sleeps, `at_most` at the longest.
    pub(crate) fn sleep(self, at_most: Duration) {
        match self {
            Self::Not => {}
            Self::On(quiet) => drop(quiet.shared_page.sleep(quiet.rings, SILENCE.min(at_most))),
            Self::PollOn(quiet) => {
                let _ = quiet.shared_page.poll(quiet.rings, POLL_PAUSE.min(at_most));
            }
            Self::For(pause) => sleep(pause.min(at_most)),
        }
    }
}
