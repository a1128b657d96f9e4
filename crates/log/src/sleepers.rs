//! Those who sleep until something changes that a lock guards, and whether there are any.
//!
//! *Owns*: their count. *May not touch*: what is waited for. Waking nobody costs no system call: a commit has half a dozen
//! of those.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use inkstone_io::Bell;

/// Who sleeps on something, always with the same lock.
#[derive(Debug, Default)]
pub(crate) struct Sleepers {
    bell: Bell,
    /// Counted up with the lock held. Whoever wakes has the lock, or had it after the change that it tells of, so that nobody
    /// is about to sleep on the old state: `Relaxed` is enough, the lock orders it. Counted down later, without it: a
    /// count that is too high costs a system call.
    count: AtomicUsize,
}

impl Sleepers {
    /// Sleeps until woken, or for `time`; true if that was it.
    pub(crate) fn sleep<'a, T>(
        &self,
        lock: &'a Mutex<T>,
        guard: MutexGuard<'a, T>,
        time: Duration,
    ) -> (MutexGuard<'a, T>, bool) {
        let is_late = self.sleep_without(guard, time, 0, || false);
        (lock.lock().unwrap_or_else(PoisonError::into_inner), is_late)
    }

    /// As [`Sleepers::sleep`], without taking the lock again. Lets others run first, up to `yields` times, and sleeps only
    /// if `is_done` is still false.
    pub(crate) fn sleep_without<T>(
        &self,
        guard: MutexGuard<'_, T>,
        time: Duration,
        yields: u32,
        is_done: impl Fn() -> bool,
    ) -> bool {
        self.count.fetch_add(1, Ordering::Relaxed);
        let rings = self.bell.rings();
        drop(guard);
        let is_over = (0..yields).any(|_| {
            std::thread::yield_now();
            is_done() || self.bell.rings() != rings
        });
        let is_late = !is_over && self.bell.wait(rings, time);
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
}
