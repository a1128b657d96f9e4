//! Those who sleep until something changes that a lock guards, and whether there are any.
//!
//! *Owns*: their count. *May not touch*: what is waited for. Waking nobody costs no system call: a commit has half a dozen
//! of those.

use std::time::Duration;

use crate::mistake::Mistake;
use crate::options::Options;
use crate::sync::{AtomicUsize, Bell, Ordering, yield_now};

/// Who sleeps on something, always with the same lock.
#[derive(Debug, Default)]
pub(crate) struct Sleepers {
    bell: Bell,
    /// A mistake: the bell is looked at too late.
    looks_late: bool,
    /// Counted up with the lock held. Whoever wakes has the lock, or had it after the change that it tells of, so that nobody
    /// is about to sleep on the old state: `Relaxed` is enough, the lock orders it. Counted down later, without it: a
    /// count that is too high costs a system call.
    count: AtomicUsize,
}

impl Sleepers {
    pub(crate) fn new(options: &Options) -> Self {
        Self { looks_late: options.makes(Mistake::WakeUpLost), ..Self::default() }
    }

    /// Lets go of the lock and sleeps until woken, or for `time`; true if that was it. Lets others run first, up to `yields` times.
    /// Does not sleep when `is_over` is true after the bell was looked at: so nothing is missed that is changed without the lock
    /// and rung for with [`Sleepers::ring`].
    pub(crate) fn sleep<G>(&self, guard: G, time: Duration, yields: u32, is_over: impl Fn() -> bool) -> bool {
        self.count.fetch_add(1, Ordering::Relaxed);
        let mut rings = self.bell.rings();
        drop(guard);
        if self.looks_late {
            rings = self.bell.rings();
        }
        let is_awake = is_over()
            || (0..yields).any(|_| {
                yield_now();
                is_over() || self.bell.rings() != rings
            });
        let is_late = !is_awake && self.bell.wait(rings, time);
        self.count.fetch_sub(1, Ordering::Relaxed);
        is_late
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

    /// Wakes all, and keeps those awake who are about to sleep: for changes that are made without the lock.
    pub(crate) fn ring(&self) {
        self.bell.ring_all();
    }
}
