//! Threads that sleep until a state under a lock changes, and that give the processor away first as
//! long as that pays.
//!
//! *Owns*: their count; that they are woken after the lock is released; the clock and the way to
//! yield, which the explorer replaces. *May not touch*: what they wait for; how often a thread
//! yields (`AdaptiveYielding` of `inkstone-io`). Waking costs no system call if no thread sleeps: a
//! commit wakes half a dozen of these.

use std::ops::Index;
use std::time::Duration;

use inkstone_io::AdaptiveYielding;

use crate::sync::{AtomicUsize, Bell, Instant, Ordering, yield_now};

/// The threads that sleep on one condition, always with the same lock.
#[derive(Debug, Default)]
pub(crate) struct Sleepers {
    bell: Bell,
    /// Raised with the lock held. A thread that wakes others holds the lock, or held it after its
    /// change, so no thread is about to sleep on the old state: `Relaxed` is enough, the lock
    /// orders it. Lowered later, without the lock: a count that is too high costs a system call.
    count: AtomicUsize,
}

impl Sleepers {
    /// Releases the lock and sleeps until woken, or for `time`; true if the time has passed. Yields
    /// first, if that may pay. Does not sleep if `is_over` is true after the bell was read: so no
    /// change is missed that is made without the lock and followed by [`Sleepers::ring`].
    pub(crate) fn sleep<G>(
        &self,
        guard: G,
        time: Duration,
        yielding: Option<&Yielding>,
        is_over: impl Fn() -> bool,
    ) -> bool {
        self.count.fetch_add(1, Ordering::Relaxed);
        let rings = self.bell.rings();
        drop(guard);
        let is_awake = || is_over() || self.bell.rings() != rings;
        let left = match yielding {
            _ if is_over() => None,
            Some(yielding) => yielding.until(time, is_awake),
            None => Some(time),
        };
        let is_late = left.is_some_and(|left| self.bell.wait(rings, left));
        self.count.fetch_sub(1, Ordering::Relaxed);
        is_late
    }

    /// Says whether a thread sleeps, or is about to.
    pub(crate) fn is_any_here(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    pub(crate) fn notify_one(&self) {
        if self.count.load(Ordering::Relaxed) > 0 {
            self.bell.ring_one();
        }
    }

    pub(crate) fn notify_all(&self) {
        if self.count.load(Ordering::Relaxed) > 0 {
            self.bell.ring_all();
        }
    }

    /// Wakes all threads, and keeps threads awake that are about to sleep: after changes that were
    /// made without the lock, or when the lock was released since.
    pub(crate) fn ring(&self) {
        self.bell.ring_all();
    }
}

/// What threads that sleep beside the state's lock wait for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum WaitQueue {
    /// The groups, by the parity of their numbers: waking one group does not wake the next.
    EvenGroup,
    OddGroup,
    /// The turn, room in a buffer, or the end of a segment change.
    Room,
    /// Work for the committer.
    Committer,
}

impl WaitQueue {
    pub(crate) fn group(number: u64) -> Self {
        if number.is_multiple_of(2) { Self::EvenGroup } else { Self::OddGroup }
    }
}

/// The wait queues of a log, and the threads in each.
#[derive(Debug, Default)]
pub(crate) struct WaitQueues([Sleepers; 4]);

impl Index<WaitQueue> for WaitQueues {
    type Output = Sleepers;

    fn index(&self, queue: WaitQueue) -> &Sleepers {
        &self.0[queue as usize]
    }
}

impl WaitQueues {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Sleepers> {
        self.0.iter()
    }

    /// The threads that are due. The caller has the lock, and wakes them after it has released the
    /// lock.
    pub(crate) fn due(&self, wake_ups: &mut WakeUps) -> DueThreads<'_> {
        DueThreads { queues: self, wake_ups: std::mem::take(wake_ups) }
    }
}

/// The threads that are woken when the lock is released.
pub(crate) struct DueThreads<'a> {
    queues: &'a WaitQueues,
    wake_ups: WakeUps,
}

impl DueThreads<'_> {
    pub(crate) fn wake(self) {
        for (sleepers, due) in self.queues.iter().zip(self.wake_ups.0) {
            match due {
                WakeUp::Nobody => {}
                WakeUp::One => sleepers.notify_one(),
                WakeUp::All => sleepers.notify_all(),
            }
        }
    }
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum WakeUp {
    #[default]
    Nobody,
    One,
    All,
}

/// The threads that are due to be woken when the lock is released. A thread that is woken earlier
/// asks for the lock at once, finds it taken and sleeps again: with 64 waiters each record cost two
/// sleeps instead of one, and half of the rate.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WakeUps([WakeUp; 4]);

impl WakeUps {
    #[inline]
    pub(crate) fn is_empty(self) -> bool {
        self == Self::default()
    }

    pub(crate) fn one(&mut self, queue: WaitQueue) {
        let due = &mut self.0[queue as usize];
        *due = WakeUp::One.max(*due);
    }

    pub(crate) fn all(&mut self, queue: WaitQueue) {
        self.0[queue as usize] = WakeUp::All;
    }
}

/// The committer is one thread, so a neighbour of its own program holds it up too: a reader of what
/// was just written, for example. Some 30 us is what sleeping and being woken costs. A yield wins
/// no more than that and a late one costs far more, so none is forgiven: with a first late yield
/// forgiven, 8 and 64 tasks had 0.85 of their rate beside two processes that compute.
const LATE_FOR_TASKS: Duration = Duration::from_micros(50);

/// What the threads of a log know about yielding.
#[derive(Debug)]
pub(crate) struct Yielding {
    yielding: AdaptiveYielding,
    /// Yields count to the time for which a thread is to sleep. Threads that wait for their own
    /// records yield beyond it: if they are many, each yield lets others append, and the group is
    /// the larger for it.
    keeps_time: bool,
    opened: Instant,
}

impl Yielding {
    pub(crate) fn new() -> Self {
        let yielding = AdaptiveYielding::default();
        Self { yielding, keeps_time: false, opened: Instant::now() }
    }

    /// For the committer that waits for tasks.
    pub(crate) fn for_tasks() -> Self {
        Self {
            yielding: AdaptiveYielding::unforgiving(LATE_FOR_TASKS),
            keeps_time: true,
            ..Self::new()
        }
    }

    /// How often a thread slept at once, since yielding did not pay, and for how long it did not.
    pub(crate) fn rests(&self) -> (u64, Duration) {
        self.yielding.rests()
    }

    /// Lets other threads run until `is_over`, or until it is better to sleep, which the thread is
    /// to do for `time`. `None` if it is over, else for how long it is to sleep.
    pub(crate) fn until(&self, time: Duration, is_over: impl FnMut() -> bool) -> Option<Duration> {
        let within = if self.keeps_time { time } else { Duration::MAX };
        self.yielding
            .until(within, || self.opened.elapsed(), yield_now, is_over)
            .map(|left| left.min(time))
    }
}
