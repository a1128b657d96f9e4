//! The locks, atomics, bells, threads and the clock of a running log.
//!
//! *Owns*: where they come from. *May not touch*: what they are used for. Nothing else in this crate names those of the standard
//! library, so that a build which explores interleavings (`--cfg inkstone_explore`, `.ci/explore`) can put others in their place:
//! there every operation is a point where another thread may go on, and time passes as the scheduler pleases.

#[cfg(inkstone_explore)]
mod explored;
#[cfg(not(inkstone_explore))]
mod real;

use std::sync::PoisonError;

#[cfg(inkstone_explore)]
pub(crate) use explored::*;
#[cfg(not(inkstone_explore))]
pub(crate) use real::*;

/// What a lock guards in this crate stays sound when its holder panics: every change is one assignment, or the turn's holder
/// poisons the log (`commit/shared.rs`).
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
