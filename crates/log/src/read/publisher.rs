//! What a reader knows of a writer of another process, and when the reader looks at the files.
//!
//! *Owns*: the shared page of the writer, how long its silence is trusted, the pauses between
//! observations without a page. *May not touch*: what a publication proves (`recent.rs`); what was
//! seen (`view.rs`).
//!
//! A writer that this process can see publishes how far the log is durable
//! (`commit/shared_page.rs`), and a reader sleeps until it does. That costs nothing while nothing
//! comes. But a publication is a hint, so the reader trusts a page only as long as the page agrees
//! with the log. When nothing was published for [`SILENCE`], the reader asks whether the writer
//! lives, and whether the lock's file is still there: beside another one a second writer may be at
//! work. A page may also be silent because it lies. So after [`DOUBT`] the reader observes the log
//! all the same. Counted over 11 s of an idle log: 83 system calls. They were 366 when the reader
//! asked for the lock and looked for its holder's page each second.
//!
//! What a reader knows to be durable it believes to be there still, as long as nothing is
//! published, and for [`SILENCE`] at most ([`Belief`]). To ask that takes some loads from memory,
//! so each record can ask.

use std::sync::Arc;
use std::time::Duration;

use inkstone_io::{SharedPageReader, TICK};

use crate::commit::shared_page::{POLL_PAUSE, Published, Truncations};
use crate::sync::{CoarseInstant, Instant, sleep};

/// How long nothing may be published before the reader asks whether the writer lives, and before it
/// observes the log.
pub(crate) const SILENCE: Duration = Duration::from_secs(1);
const DOUBT: Duration = Duration::from_secs(5);
/// A writer that was alive so short a time ago is alive. Counted for 1,000 questions one after the
/// other, for a record that is not there: 2 system calls, and 1,000 if each asked the system.
pub(crate) const JUST_NOW: Duration = POLL_PAUSE;
/// The first pause without a shared page after a record came, and the longest: four observations a
/// second.
const PAUSE_MIN: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(250);

/// A writer of another process, if there is one, as far as this process sees it.
pub(crate) struct Publisher {
    /// Its page. It stays where it does not agree, since it may tell of a truncation.
    page: Option<Arc<SharedPageReader>>,
    /// The log was as it is published when they were compared last.
    agrees: bool,
    /// When the log was observed last, or a publication was proved.
    looked: Option<Instant>,
    /// When this was so, or the writer was known to be alive.
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
    quiet: Option<Quiet>,
    until: CoarseInstant,
}

impl Belief {
    /// Takes no lock and makes no system call.
    #[inline]
    pub(crate) fn holds(&self) -> bool {
        self.quiet.as_ref().is_none_or(Quiet::lasts) && CoarseInstant::now() < self.until
    }
}

/// A shared page as it was before the log was observed.
pub(crate) struct Quiet {
    page: Arc<SharedPageReader>,
    rings: u32,
}

impl Quiet {
    /// Whether nothing was published since.
    #[inline]
    fn lasts(&self) -> bool {
        self.page.rings() == self.rings && !self.page.has_ended()
    }
}

/// Whether this was less than `within` ago.
fn is_new(then: Option<Instant>, within: Duration) -> bool {
    then.is_some_and(|then| then.elapsed() < within)
}

/// Whether the process that publishes is alive, and has the lock that others find. Two system
/// calls.
fn is_the_logs(page: &SharedPageReader) -> bool {
    page.is_kept() && !page.has_lost_its_lock()
}

impl Publisher {
    pub(crate) fn new() -> Self {
        Self {
            page: None,
            agrees: false,
            looked: None,
            asked: None,
            checked: None,
            is_brisk: false,
            pause: PAUSE_MIN,
        }
    }

    /// What is published now, if there is a page and its writer has not ended.
    pub(crate) fn published(&self) -> Option<Published> {
        self.page.as_ref()?.read().and_then(Published::of)
    }

    /// Its page, behind which recent bytes may be found without a disk.
    pub(crate) fn page(&self) -> Option<&Arc<SharedPageReader>> {
        self.page.as_ref()
    }

    /// Whether the process that publishes is alive, and its log open. One system call.
    pub(crate) fn is_alive(&self) -> bool {
        self.page.as_ref().is_some_and(|page| page.is_kept())
    }

    /// Notes whether the log is as it is published.
    pub(crate) fn note(&mut self, agrees: bool) {
        self.agrees = agrees;
    }

    /// No writer lives.
    pub(crate) fn lose(&mut self) {
        (self.page, self.agrees) = (None, false);
    }

    /// Takes the page that `find` finds, unless the present one agrees with the log and is that of
    /// the writer: the page of a killed writer agrees until the next one has promised something.
    pub(crate) fn find(&mut self, find: impl FnOnce() -> Option<SharedPageReader>) {
        if !(self.agrees && self.page.as_ref().is_some_and(|page| is_the_logs(page))) {
            (self.page, self.agrees) = (find().map(Arc::new), false);
        }
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

    /// Whether the log has no more than what is known and what is published: the writer was alive
    /// `within` this time, or is alive now.
    pub(crate) fn is_trusted(&mut self, within: Duration) -> bool {
        let is_sure = self.agrees && is_new(self.looked, DOUBT);
        let Some(page) = self.page.as_ref().filter(|_| is_sure) else { return false };
        if is_new(self.asked, within) && !page.has_ended() {
            return true;
        }
        // A time before the answer: what is believed because of it counts from then on.
        let now = Instant::now();
        let is_the_logs = is_the_logs(page);
        if is_the_logs {
            self.asked = Some(now);
        }
        is_the_logs
    }

    /// Whether what is known may be believed to be there still.
    pub(crate) fn is_recent(&mut self) -> bool {
        let has_ended = self.page.as_ref().is_some_and(|page| page.has_ended());
        self.is_trusted(SILENCE) || (!self.agrees && !has_ended && is_new(self.asked, SILENCE))
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

    /// What may be believed of records that are known, given the page as it was before they were
    /// asked for; nothing if the page is another one by now.
    pub(crate) fn belief(&self, quiet: Option<Quiet>) -> Belief {
        let page = quiet.as_ref().map(|quiet| Arc::as_ptr(&quiet.page));
        let asked = self.asked.filter(|_| page == self.page.as_ref().map(Arc::as_ptr));
        let left = asked.map_or(Duration::ZERO, |asked| SILENCE.saturating_sub(asked.elapsed()));
        // The coarse clock is late by a tick.
        Belief { quiet, until: CoarseInstant::now() + left.saturating_sub(TICK) }
    }

    /// Call it before the log is observed, so that no publication is missed.
    pub(crate) fn quiet(&self) -> Option<Quiet> {
        let page = Arc::clone(self.page.as_ref()?);
        let rings = page.rings();
        Some(Quiet { page, rings })
    }

    /// How to sleep when nothing was found, given the page as it was before.
    pub(crate) fn rest(&mut self, quiet: Option<Quiet>) -> Pause {
        let polls = std::mem::take(&mut self.is_brisk);
        match (&self.page, quiet) {
            (Some(now), Some(quiet)) if self.agrees && Arc::ptr_eq(now, &quiet.page) => {
                if polls {
                    Pause::PollOn(quiet)
                } else {
                    Pause::On(quiet)
                }
            }
            // It was found a moment ago: publications since then count.
            (Some(_), _) if self.agrees => Pause::Not,
            _ => {
                let pause = self.pause;
                self.pause = (pause * 2).min(PAUSE_MAX);
                Pause::For(pause)
            }
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
            Self::On(quiet) => drop(quiet.page.sleep(quiet.rings, SILENCE.min(at_most))),
            Self::PollOn(quiet) => {
                let _ = quiet.page.poll(quiet.rings, POLL_PAUSE.min(at_most));
            }
            Self::For(pause) => sleep(pause.min(at_most)),
        }
    }
}
