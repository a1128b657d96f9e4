//! Publishing to readers in other processes: how far the log is durable, and where that ends. The
//! followers in this process are woken with it.
//!
//! *Owns*: what the words of a shared page mean, the order of publications, and that both happen
//! while no lock of the log is held. *May not touch*: the page and its memory (`inkstone-io`); when
//! the watermark moves (`group.rs`); when a follower sleeps (`following.rs`).
//!
//! A publication is made after the waiters of the group were woken and the state's lock was
//! released: it can cost a system call, if a reader sleeps, and no commit waits for that. Two
//! threads may then publish at the same time, so publications have numbers that rise under the
//! lock, and an older one changes nothing.
//!
//! Where several waiters come back at once for the next group, they want the processors until its
//! write begins; a reader that was woken then cost eight threads a fifth of their rate on two
//! processors. So readers *poll* there, in this process (`following.rs`) and in others
//! (`read/publisher.rs`): they look again by themselves after a moment, and are woken by the thread
//! that begins that write, which takes some microseconds longer for it. In all other cases the
//! publication wakes them.
//!
//! Before the publication, and under the lock, the writer copies the bytes of the durable group
//! into shared memory, so that groups follow each other there. It copies them only for a reader
//! that asked a moment ago.
//!
//! A publication says nothing that its reader may believe without looking (`read/recent.rs`). Of a
//! truncation it says only that there was one: the reader looks into the files then, where cuts and
//! truncations are groups and headers (`read/view.rs`).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use inkstone_format::{Epoch, Lsn, SegmentNumber};
use inkstone_io::{PAGE_WORDS, SharedPage};

use crate::commit::sleepers::Sleepers;
use crate::tail::Placed;

/// The end of what is durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Published {
    /// The durable watermark.
    pub(crate) durable: Lsn,
    /// The last segment with a durable header.
    pub(crate) segment: SegmentNumber,
    /// The byte after its last durable group, or after the header.
    pub(crate) end: u64,
    /// Its epoch.
    pub(crate) epoch: Epoch,
    /// The first record that is left.
    pub(crate) first: Lsn,
}

/// What a truncation changes of a publication: a cut the epoch, `truncate_before` the first record.
/// (An opening changes the epoch too.)
pub(crate) type Truncations = [u64; 2];

impl Published {
    fn words(self) -> [u64; PAGE_WORDS] {
        let [epoch, first] = self.truncations();
        [self.durable.get(), self.segment.get(), self.end, epoch, first]
    }

    pub(crate) fn truncations(&self) -> Truncations {
        [self.epoch.get(), self.first.get()]
    }

    /// `None` if these words were not made from one.
    pub(crate) fn of([durable, segment, end, epoch, first]: [u64; PAGE_WORDS]) -> Option<Self> {
        let (segment, epoch) = (SegmentNumber::new(segment)?, Epoch::new(epoch)?);
        Some(Self { durable: Lsn::new(durable), segment, end, epoch, first: Lsn::new(first) })
    }
}

/// How long a reader polls: longer than it takes from one write to the next on a fast disk. It is
/// also the delay of the last record, and some 70 us more for the timer, if the writes stop that
/// were thought to go on.
pub(crate) const POLL_PAUSE: Duration = Duration::from_micros(250);
/// A write that begins within this time after the last one has ended comes at once: eight threads
/// take 25 to 45 us.
const SOON: Duration = Duration::from_micros(60);

/// Whether readers may poll until the next write begins, after a group of so many waiters whose
/// write began so long after the last one.
pub(crate) fn polls_go_on(waiters: usize, after: Duration) -> bool {
    waiters > 1 && after < SOON
}

/// Readers that poll.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Polls {
    /// None may: the last group's waiters do not come back at once.
    #[default]
    Over,
    /// They may, until the next write begins.
    GoOn,
    /// One in this process polls that was not woken for the last group.
    Owed,
}

/// What a log tells readers of how far it is durable, and where: nowhere else than to the readers
/// in this process, if there is no shared page.
#[derive(Debug, Default)]
pub(crate) struct Publishing {
    shared_page: Option<Arc<SharedPage>>,
    /// The number of the last publication.
    last: u64,
    /// The publication that is made when the lock is released.
    due: Publication,
    polls: Polls,
}

/// Readers that are woken when the next write begins.
pub(crate) struct Pollers {
    here: bool,
    elsewhere: Option<Arc<SharedPage>>,
}

impl Pollers {
    /// Wakes them. The caller has released the lock: while a group is written, nobody misses a
    /// processor.
    pub(crate) fn wake(self, here: &Sleepers) {
        if self.here {
            here.ring();
        }
        if let Some(shared_page) = self.elsewhere {
            shared_page.wake_pollers();
        }
    }
}

impl Publishing {
    /// From now on each new watermark is published to readers in other processes.
    pub(crate) fn begin(&mut self, shared_page: Option<Arc<SharedPage>>) {
        self.shared_page = shared_page;
    }

    /// Shares the bytes of a durable group with readers that want them. The caller has woken the
    /// group's waiters.
    #[inline]
    pub(crate) fn share(&self, placed: &Placed, memory: &[u8]) {
        if let Some(shared_page) = &self.shared_page {
            let bytes = &memory[placed.from..placed.from + placed.bytes];
            shared_page.share(placed.identity.segment().get(), placed.at, bytes);
        }
    }

    /// A group is durable: publishes that when the lock is released, and wakes the followers that
    /// sleep here, and the pollers unless they may poll on. They fall asleep with the lock, which
    /// the caller has.
    pub(crate) fn group(
        &mut self,
        published: Published,
        polls_go_on: bool,
        followers: &Arc<Sleepers>,
        pollers: &Arc<Sleepers>,
    ) {
        let mut publish = self.publish(published, polls_go_on);
        publish.followers = followers.is_any_here().then(|| Arc::clone(followers));
        let is_any_polling = pollers.is_any_here();
        publish.pollers = (is_any_polling && !polls_go_on).then(|| Arc::clone(pollers));
        self.due = publish;
        self.polls = match polls_go_on {
            true if is_any_polling => Polls::Owed,
            true => Polls::GoOn,
            false => Polls::Over,
        };
    }

    /// The head or the first record has changed. The group before may wait to be published: this
    /// publication wakes those whom that one was to wake.
    pub(crate) fn head(&mut self, published: Published) {
        let Publication { followers, pollers, .. } = std::mem::take(&mut self.due);
        self.due = Publication { followers, pollers, ..self.publish(published, false) };
    }

    /// Whether readers may poll until the next write begins.
    pub(crate) fn polls_go_on(&self) -> bool {
        self.polls != Polls::Over
    }

    /// A write begins: the readers that poll and were not woken for the last group.
    #[inline]
    pub(crate) fn take_pollers(&mut self) -> Pollers {
        let here = self.polls == Polls::Owed;
        if here {
            self.polls = Polls::GoOn;
        }
        let owed = self.shared_page.as_ref().filter(|shared_page| shared_page.owes_pollers());
        Pollers { here, elsewhere: owed.map(Arc::clone) }
    }

    #[inline]
    pub(crate) fn is_due(&self) -> bool {
        self.due.is_due()
    }

    /// The publication that is due, to be made when the lock is free.
    pub(crate) fn take_due(&mut self) -> Publication {
        std::mem::take(&mut self.due)
    }

    fn publish(&mut self, published: Published, polls_go_on: bool) -> Publication {
        self.last += 1;
        let number = self.last;
        let words = self
            .shared_page
            .as_ref()
            .map(|shared_page| (Arc::clone(shared_page), number, published.words()));
        Publication { words, polls_go_on, followers: None, pollers: None }
    }
}

/// Something to publish, and the followers to wake.
#[derive(Default)]
pub(crate) struct Publication {
    words: Option<(Arc<SharedPage>, u64, [u64; PAGE_WORDS])>,
    polls_go_on: bool,
    followers: Option<Arc<Sleepers>>,
    pollers: Option<Arc<Sleepers>>,
}

impl Publication {
    #[inline]
    fn is_due(&self) -> bool {
        self.words.is_some() || self.followers.is_some() || self.pollers.is_some()
    }

    /// Publishes it. The caller has released the lock.
    #[inline]
    pub(crate) fn publish(self) {
        if let Some((shared_page, number, words)) = self.words {
            shared_page.publish(number, words, self.polls_go_on);
        }
        for readers in [self.followers, self.pollers].into_iter().flatten() {
            readers.ring();
        }
    }
}

impl fmt::Debug for Publication {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Publication")
    }
}
