//! The locks, atomics and threads' names of a raft log.
//!
//! *Owns*: where they come from. *May not touch*: what they are used for. No other file of this
//! crate names those of the standard library (`inspect.rs` asks whether it is to stop), so a build
//! that explores interleavings (`--cfg inkstone_explore`, `.ci/explore`) puts the explorer's in
//! their place, as the log below does.

#[cfg(inkstone_explore)]
pub(crate) use shuttle::{
    sync::atomic::{AtomicBool, Ordering},
    sync::{Mutex, MutexGuard},
};
#[cfg(not(inkstone_explore))]
pub(crate) use std::{
    sync::atomic::{AtomicBool, Ordering},
    sync::{Mutex, MutexGuard},
};

use std::sync::PoisonError;

/// Locks a mutex, also after a panic of its holder: what a lock guards in this crate is checked
/// before it is changed.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
