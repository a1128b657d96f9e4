//! The locks, atomics, bells, threads and the clock of a running log.
//!
//! *Owns*: where they come from. *May not touch*: what they are used for. No other file of this
//! crate names those of the standard library, so a build that explores interleavings (`--cfg
//! inkstone_explore`, `.ci/explore`) can replace them: there every operation is a point where
//! another thread may continue, and the scheduler decides how time passes.

#[cfg(inkstone_explore)]
mod explored;
#[cfg(not(inkstone_explore))]
mod real;

use std::sync::{PoisonError, TryLockError};

#[cfg(inkstone_explore)]
pub(crate) use explored::*;
#[cfg(not(inkstone_explore))]
pub(crate) use real::*;

/// Locks a mutex, also after a panic of its holder. What a lock guards in this crate stays sound
/// then: every change is one assignment, or the holder of the turn poisons the log
/// (`commit/shared.rs`).
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// As [`lock`], if no thread has it.
#[inline]
pub(crate) fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(error)) => Some(error.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}
