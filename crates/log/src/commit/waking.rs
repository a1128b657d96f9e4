//! Futures that wait, and waking them.
//!
//! *Owns*: the one rule about wakers: they are cloned, woken and dropped while no lock of the log is held, since they are user
//! code. *May not touch*: which future is woken when (`state.rs`).

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::task::Waker;

use inkstone_format::Lsn;

/// A future that waits for a record.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) lsn: Lsn,
    /// The number of cuts before the record was appended.
    pub(crate) cuts: usize,
    pub(crate) waker: Waker,
}

/// Wakers to be woken: dropping this wakes them.
#[derive(Debug, Default)]
pub(crate) struct Woken(Vec<Waker>);

impl Woken {
    pub(crate) fn extend(&mut self, wakers: impl IntoIterator<Item = Waker>) {
        self.0.extend(wakers);
    }
}

impl Drop for Woken {
    /// If a waker panics, the others are woken all the same; the panic resumes after that.
    fn drop(&mut self) {
        let mut panicked = None;
        for waker in self.0.drain(..) {
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| waker.wake())) {
                panicked.get_or_insert(panic);
            }
        }
        if let Some(panic) = panicked.filter(|_| !std::thread::panicking()) {
            resume_unwind(panic);
        }
    }
}
