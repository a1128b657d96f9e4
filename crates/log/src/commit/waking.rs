//! Futures that wait, and waking them.
//!
//! *Owns*: the one rule about wakers: they are cloned, woken and dropped with no lock of the log held, since what they do is the
//! user's. *May not touch*: which future is to be woken when (`state.rs`).

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::task::Waker;

use inkstone_format::Lsn;

/// A future that waits for a record.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) lsn: Lsn,
    /// How many cuts there had been when the record was appended.
    pub(crate) cuts: usize,
    pub(crate) waker: Waker,
}

/// Wakers that are to be woken. They are woken when this is dropped.
#[derive(Debug, Default)]
pub(crate) struct Woken(Vec<Waker>);

impl Woken {
    pub(crate) fn extend(&mut self, wakers: impl IntoIterator<Item = Waker>) {
        self.0.extend(wakers);
    }
}

impl Drop for Woken {
    /// One that panics keeps nobody else asleep; the panic goes on when all are woken.
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
