//! The locks, atomics and threads of this crate, and sleeping on them.
//!
//! *Owns*: where they come from. *May not touch*: their use. No other file of this crate names
//! those of the standard library, so a build that explores interleavings (`--cfg inkstone_explore`)
//! replaces them by the explorer's, as in the log below.

#[cfg(inkstone_explore)]
pub(crate) use shuttle::{
    sync::atomic::{AtomicBool, Ordering},
    sync::{Condvar, Mutex, MutexGuard},
    thread::{Builder, JoinHandle, current},
};
#[cfg(not(inkstone_explore))]
pub(crate) use std::{
    sync::atomic::{AtomicBool, Ordering},
    sync::{Condvar, Mutex, MutexGuard},
    thread::{Builder, JoinHandle, current},
};

use std::sync::{Arc, PoisonError};
use std::task::{Wake, Waker};
use std::time::Duration;

/// Locks a mutex, also after a panic of its holder: this crate checks a change before it makes it.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits for a bell, at most for `timeout`.
pub(crate) fn wait_for<'a, T>(
    bell: &Condvar,
    guard: MutexGuard<'a, T>,
    timeout: Duration,
) -> MutexGuard<'a, T> {
    bell.wait_timeout(guard, timeout).unwrap_or_else(PoisonError::into_inner).0
}

/// Waits for a bell.
pub(crate) fn wait<'a, T>(bell: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    bell.wait(guard).unwrap_or_else(PoisonError::into_inner)
}

/// Where a thread sleeps until its waker is woken.
#[derive(Default)]
pub(crate) struct Sleeper {
    is_woken: Mutex<bool>,
    bell: Condvar,
}

impl Sleeper {
    pub(crate) fn waker(self: &Arc<Self>) -> Waker {
        Waker::from(Arc::clone(self))
    }

    /// Sleeps until the waker is woken, at most for `timeout`.
    pub(crate) fn sleep_for(&self, timeout: Duration) {
        let mut is_woken = lock(&self.is_woken);
        if !*is_woken {
            is_woken = wait_for(&self.bell, is_woken, timeout);
        }
        *is_woken = false;
    }
}

impl Wake for Sleeper {
    fn wake(self: Arc<Self>) {
        *lock(&self.is_woken) = true;
        self.bell.notify_one();
    }
}
