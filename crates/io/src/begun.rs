//! A thread of ours that has begun when its starter continues.
//!
//! *Owns*: that order. *May not touch*: what the thread does.
//!
//! The standard library takes a lock of its own for a moment while a thread starts. A child that is
//! forked in that moment keeps the lock taken for ever, so no thread that it starts ever runs: a log
//! that it opens hangs. A thread that has begun does not hold that lock.

use std::io;
use std::sync::mpsc::sync_channel;
use std::thread::{Builder, JoinHandle};

/// Starts a thread of this name, and returns when it has begun to run `work`.
///
/// # Errors
/// The system cannot start a thread.
pub fn start_thread<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    let (begins, begun) = sync_channel(1);
    let thread = Builder::new().name(name.into()).spawn(move || {
        // The starter waits for this word.
        let _ = begins.send(());
        work()
    })?;
    // It fails only if the thread has ended already.
    let _ = begun.recv();
    Ok(thread)
}
