//! Threads that sleep until a state under a lock changes.
//!
//! *Owns*: their count. *May not touch*: what they wait for. Waking costs no system call if no thread sleeps: a commit wakes
//! half a dozen of these.

use std::time::Duration;

use crate::commit::yielding::Yielding;
use crate::sync::{AtomicUsize, Bell, Ordering};

/// The threads that sleep on one condition, always with the same lock.
#[derive(Debug, Default)]
pub(crate) struct Sleepers {
    bell: Bell,
    /// Raised with the lock held. A thread that wakes others holds the lock, or held it after its change, so no thread is about to
    /// sleep on the old state: `Relaxed` is enough, the lock orders it. Lowered later, without the lock: a count that is too high
    /// costs a system call.
    count: AtomicUsize,
}

impl Sleepers {
    /// Releases the lock and sleeps until woken, or for `time`; true if the time has passed. Yields first, if that may pay. Does not
    /// sleep if `is_over` is true after the bell was read: so no change is missed that is made without the lock and
    /// followed by [`Sleepers::ring`].
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

    /// Whether a thread sleeps, or is about to.
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

    /// Wakes all threads, and keeps threads awake that are about to sleep: after changes that were made without the lock, or when
    /// the lock was released since.
    pub(crate) fn ring(&self) {
        self.bell.ring_all();
    }
}
