//! Futures that wait, and waking them.
//!
//! *Owns*: the one rule about wakers: they are cloned, woken and dropped with no lock of the log held, since what they do is the
//! user's. *May not touch*: which future is to be woken when (`state.rs`).

use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::task::Waker;

use inkstone_format::Lsn;

use crate::state::State;
use crate::sync::MutexGuard;

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

/// The state, locked. When it is let go the lock is free first, and then those are woken whom its holder has left to be woken.
pub(crate) struct Guard<'a> {
    // In this order: fields are dropped from the first to the last.
    state: MutexGuard<'a, State>,
    woken: Woken,
}

impl<'a> Guard<'a> {
    #[inline]
    pub(crate) fn new(state: MutexGuard<'a, State>) -> Self {
        Self { state, woken: Woken::default() }
    }
}

impl Drop for Guard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.woken = std::mem::take(&mut self.state.woken);
    }
}

impl Deref for Guard<'_> {
    type Target = State;

    #[inline]
    fn deref(&self) -> &State {
        &self.state
    }
}

impl DerefMut for Guard<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut State {
        &mut self.state
    }
}
