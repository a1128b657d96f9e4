//! Posting to readers in other processes: how far the log is durable, and where that ends. The
//! followers in this process are woken with it.
//!
//! *Owns*: what the words of a bulletin mean, the order of posts, and that both happen while no
//! lock of the log is held. *May not touch*: the page and its memory (`inkstone-io`); when the
//! watermark moves (`group.rs`); when a follower sleeps (`following.rs`).
//!
//! A post is made after the waiters of the group were woken and the state's lock was released: it
//! can cost a system call, if a reader sleeps, and no commit waits for that. Two threads may then
//! post at the same time, so posts have numbers that rise under the lock, and an older one changes
//! nothing.
//!
//! Where several waiters come back at once for the next group, they want the processors until its
//! write begins; a reader that was woken then cost eight threads a fifth of their rate on two
//! processors. So readers *nap* there, in this process (`following.rs`) and in others
//! (`read/news.rs`): they look again by themselves after a moment, and are woken by the thread that
//! begins that write, which takes some microseconds longer for it. In all other cases the post
//! wakes them.
//!
//! Before the post, and under the lock, the writer copies the bytes of the durable group into
//! shared memory, so that groups follow each other there. It copies them only for a reader that
//! asked a moment ago.
//!
//! A post says nothing that its reader may believe without looking (`read/fresh.rs`). Of a
//! truncation it says only that there was one: the reader looks into the files then, where cuts and
//! truncations are groups and headers (`read/view.rs`).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use inkstone_format::{Epoch, Lsn, SegmentNumber};
use inkstone_io::{BULLETIN_WORDS, Bulletin};

use crate::commit::sleepers::Sleepers;
use crate::tail::Placed;

/// The end of what is durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Posted {
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

/// What a truncation changes of a post: a cut the epoch, `truncate_before` the first record. (An
/// opening changes the epoch too.)
pub(crate) type Truncations = [u64; 2];
/// The places of these words.
pub(crate) const TRUNCATIONS_AT: [usize; 2] = [3, 4];

impl Posted {
    fn words(self) -> [u64; BULLETIN_WORDS] {
        let [epoch, first] = self.truncations();
        [self.durable.get(), self.segment.get(), self.end, epoch, first]
    }

    pub(crate) fn truncations(&self) -> Truncations {
        [self.epoch.get(), self.first.get()]
    }

    /// `None` if these words were not made from one.
    pub(crate) fn of([durable, segment, end, epoch, first]: [u64; BULLETIN_WORDS]) -> Option<Self> {
        let (segment, epoch) = (SegmentNumber::new(segment)?, Epoch::new(epoch)?);
        Some(Self { durable: Lsn::new(durable), segment, end, epoch, first: Lsn::new(first) })
    }
}

/// How long a reader naps: longer than it takes from one write to the next on a fast disk. It is
/// also the delay of the last record, and some 70 us more for the timer, if the writes stop that
/// were thought to go on.
pub(crate) const NAP: Duration = Duration::from_micros(250);
/// A write that begins within this time after the last one has ended comes at once: eight threads
/// take 25 to 45 us.
const SOON: Duration = Duration::from_micros(60);

/// Whether readers may nap until the next write begins, after a group of so many waiters whose
/// write began so long after the last one.
pub(crate) fn naps_go_on(waiters: usize, after: Duration) -> bool {
    waiters > 1 && after < SOON
}

/// Readers that nap.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Naps {
    /// None may: the last group's waiters do not come back at once.
    #[default]
    Over,
    /// They may, until the next write begins.
    GoOn,
    /// One in this process naps that was not woken for the last group.
    Owed,
}

/// What a log tells readers of how far it is durable, and where: nowhere else than to the readers
/// in this process, if there is no bulletin.
#[derive(Debug, Default)]
pub(crate) struct Posting {
    bulletin: Option<Arc<Bulletin>>,
    /// The number of the last post.
    last: u64,
    /// The post that is made when the lock is released.
    due: Post,
    naps: Naps,
}

/// Readers that are woken when the next write begins.
pub(crate) struct Nappers {
    here: bool,
    elsewhere: Option<Arc<Bulletin>>,
}

impl Nappers {
    /// Wakes them. The caller has released the lock: while a group is written, nobody misses a
    /// processor.
    pub(crate) fn wake(self, here: &Sleepers) {
        if self.here {
            here.ring();
        }
        if let Some(bulletin) = self.elsewhere {
            bulletin.wake_nappers();
        }
    }
}

impl Posting {
    /// From now on readers in other processes are told.
    pub(crate) fn begin(&mut self, bulletin: Option<Arc<Bulletin>>) {
        self.bulletin = bulletin;
    }

    /// Shares the bytes of a durable group with readers that want them. The caller has woken the
    /// group's waiters.
    #[inline]
    pub(crate) fn share(&self, placed: &Placed, memory: Option<&[u8]>) {
        if let (Some(bulletin), Some(memory)) = (&self.bulletin, memory) {
            let bytes = &memory[placed.from..placed.from + placed.bytes];
            bulletin.share(placed.identity.segment().get(), placed.at, bytes);
        }
    }

    /// A group is durable: posts that when the lock is released, and wakes the followers that sleep
    /// here, and the nappers unless their naps go on. They fall asleep with the lock, which the
    /// caller has.
    pub(crate) fn group(
        &mut self,
        posted: Posted,
        naps_go_on: bool,
        followers: &Arc<Sleepers>,
        nappers: &Arc<Sleepers>,
    ) {
        let mut post = self.post(posted, naps_go_on);
        post.followers = followers.is_any_here().then(|| Arc::clone(followers));
        let is_any_napping = nappers.is_any_here();
        post.nappers = (is_any_napping && !naps_go_on).then(|| Arc::clone(nappers));
        self.due = post;
        self.naps = match naps_go_on {
            true if is_any_napping => Naps::Owed,
            true => Naps::GoOn,
            false => Naps::Over,
        };
    }

    /// The head or the first record has changed. The group before may wait to be posted: this post
    /// wakes those whom that one was to wake.
    pub(crate) fn head(&mut self, posted: Posted) {
        let mut post = self.post(posted, false);
        let mut older = std::mem::take(&mut self.due);
        older.words = None;
        (post.followers, post.nappers) = (older.followers.take(), older.nappers.take());
        self.due = post;
    }

    /// Whether readers may nap until the next write begins.
    pub(crate) fn naps_go_on(&self) -> bool {
        self.naps != Naps::Over
    }

    /// A write begins: the readers that nap and were not woken for the last group.
    #[inline]
    pub(crate) fn take_nappers(&mut self) -> Nappers {
        let here = self.naps == Naps::Owed;
        if here {
            self.naps = Naps::GoOn;
        }
        let owed = self.bulletin.as_ref().filter(|bulletin| bulletin.owes_nappers());
        Nappers { here, elsewhere: owed.map(Arc::clone) }
    }

    #[inline]
    pub(crate) fn is_due(&self) -> bool {
        self.due.is_due()
    }

    /// The post that is due, to be dropped when the lock is free.
    pub(crate) fn take_due(&mut self) -> Post {
        std::mem::take(&mut self.due)
    }

    fn post(&mut self, posted: Posted, naps_go_on: bool) -> Post {
        self.last += 1;
        let number = self.last;
        let words =
            self.bulletin.as_ref().map(|bulletin| (Arc::clone(bulletin), number, posted.words()));
        Post { words, naps_go_on, followers: None, nappers: None }
    }
}

/// Something to post: dropping this posts it, and wakes followers.
#[derive(Default)]
pub(crate) struct Post {
    words: Option<(Arc<Bulletin>, u64, [u64; BULLETIN_WORDS])>,
    naps_go_on: bool,
    followers: Option<Arc<Sleepers>>,
    nappers: Option<Arc<Sleepers>>,
}

impl Post {
    #[inline]
    fn is_due(&self) -> bool {
        self.words.is_some() || self.followers.is_some() || self.nappers.is_some()
    }
}

impl Drop for Post {
    #[inline]
    fn drop(&mut self) {
        if let Some((bulletin, number, words)) = self.words.take() {
            bulletin.post(number, words, self.naps_go_on);
        }
        for readers in [self.followers.take(), self.nappers.take()].into_iter().flatten() {
            readers.ring();
        }
    }
}

impl fmt::Debug for Post {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Post")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_naps_is_woken_by_a_post_after_which_naps_do_not_go_on() {
        let (followers, nappers) = (Arc::new(Sleepers::default()), Arc::new(Sleepers::default()));
        let (Some(segment), Some(epoch)) = (SegmentNumber::new(1), Epoch::new(1)) else {
            panic!("both are above 0")
        };
        let posted = Posted { durable: Lsn::FIRST, segment, end: 4096, epoch, first: Lsn::FIRST };
        let mut posting = Posting::default();
        let mut owes = |naps_go_on| {
            posting.group(posted, naps_go_on, &followers, &nappers);
            drop(posting.take_due());
            posting.take_nappers().here
        };
        assert!(!owes(true), "nobody naps");
        std::thread::scope(|scope| {
            let napper = scope.spawn(|| nappers.sleep((), Duration::from_secs(60), None, || false));
            while !nappers.is_any_here() {
                std::thread::yield_now();
            }
            assert!(owes(true));
            std::thread::sleep(Duration::from_millis(20));
            assert!(!napper.is_finished(), "it naps on");
            // Again if it was not asleep yet.
            while !napper.is_finished() {
                assert!(!owes(false));
                std::thread::yield_now();
            }
            assert!(!napper.join().expect("no panic"), "woken");
        });
        assert!(
            naps_go_on(2, Duration::ZERO) && !naps_go_on(1, Duration::ZERO) && !naps_go_on(2, SOON)
        );
    }
}
