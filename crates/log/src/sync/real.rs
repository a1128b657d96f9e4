//! The real primitives: those of the standard library, and the bell of `inkstone-io`.
//!
//! *Owns*: their names. *May not touch*: how they work.

use std::io;

pub(crate) use inkstone_io::{Bell, CoarseInstant};
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
pub(crate) use std::sync::mpsc::{Receiver, sync_channel};
pub(crate) use std::sync::{Mutex, MutexGuard};
pub(crate) use std::thread::{JoinHandle, ThreadId, sleep, yield_now};
pub(crate) use std::thread_local;
pub(crate) use std::time::Instant;

/// How long a thread sleeps that other threads wake: it bounds the cost of a wake-up that a bug
/// forgets.
pub(crate) const FALLBACK: std::time::Duration = std::time::Duration::from_secs(1);

/// Starts a thread, which has begun on return.
pub(crate) fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    inkstone_io::start_thread(name, run)
}

/// Which thread this is.
pub(crate) fn this_thread() -> ThreadId {
    std::thread::current().id()
}
