//! A condition variable that knows whether anybody sleeps on it.
//!
//! *Owns*: the count. *May not touch*: what is waited for. The standard one makes a system call for every wake-up, also of
//! nobody; a commit has half a dozen of those.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, MutexGuard, PoisonError};
use std::time::Duration;

/// Who sleeps on something, always with the same lock.
#[derive(Debug, Default)]
pub(crate) struct Sleepers {
    condvar: Condvar,
    /// Counted up and down with the lock held. Whoever wakes has the lock, or had it after the change that it tells of, so
    /// that nobody is about to sleep on the old state: `Relaxed` is enough, the lock orders it.
    count: AtomicUsize,
}

impl Sleepers {
    /// Sleeps until woken, or for `time`; true if that was it.
    pub(crate) fn sleep<'a, T>(&self, guard: MutexGuard<'a, T>, time: Duration) -> (MutexGuard<'a, T>, bool) {
        self.count.fetch_add(1, Ordering::Relaxed);
        let (guard, timeout) = self.condvar.wait_timeout(guard, time).unwrap_or_else(PoisonError::into_inner);
        self.count.fetch_sub(1, Ordering::Relaxed);
        (guard, timeout.timed_out())
    }

    pub(crate) fn notify_one(&self) {
        if self.count.load(Ordering::Relaxed) > 0 {
            self.condvar.notify_one();
        }
    }

    pub(crate) fn notify_all(&self) {
        if self.count.load(Ordering::Relaxed) > 0 {
            self.condvar.notify_all();
        }
    }
}
