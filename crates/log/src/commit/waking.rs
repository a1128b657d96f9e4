//! Wakes threads, and runs the user's wakers and callbacks, while the log holds no lock.
//!
//! *Owns*: the one rule about them: wakers are cloned, woken and dropped, and callbacks called,
//! while no lock of the log is held. *May not touch*: which of them is due (`state.rs`).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;

use crate::commit::callbacks::{Callbacks, Decided};
use crate::commit::sleepers::WaitQueues;
use crate::panics::{keep_first, resume};
use crate::sync::{Mutex, lock};

/// What was marked under the lock: wakers to be woken, callbacks to be called.
#[derive(Default)]
pub(crate) struct Woken {
    pub(crate) wakers: Vec<Waker>,
    pub(crate) decided: Vec<Decided>,
}

impl Woken {
    pub(crate) fn is_empty(&self) -> bool {
        self.wakers.is_empty() && self.decided.is_empty()
    }
}

/// What a log needs for waking.
#[derive(Default)]
pub(crate) struct Waking {
    pub(crate) queues: WaitQueues,
    callbacks: Callbacks,
    /// Empty lists that are used again, so that waking allocates nothing.
    spare: Mutex<Vec<Vec<Waker>>>,
}

/// The wakers that a thread wakes, and the callbacks that it calls, when it drops this.
pub(crate) struct Due<'a> {
    waking: &'a Waking,
    wakers: Vec<Waker>,
    has_callbacks: bool,
}

impl<'a> Due<'a> {
    #[inline]
    pub(crate) fn none(waking: &'a Waking) -> Self {
        Self { waking, wakers: Vec::new(), has_callbacks: false }
    }

    /// Takes what was marked. The caller has the state's lock, and drops this without it.
    pub(crate) fn take(&mut self, woken: &mut Woken) {
        if !woken.wakers.is_empty() {
            let spare = lock(&self.waking.spare).pop().unwrap_or_default();
            self.wakers = std::mem::replace(&mut woken.wakers, spare);
        }
        if !woken.decided.is_empty() {
            self.waking.callbacks.add(&mut woken.decided);
            self.has_callbacks = true;
        }
    }

    /// If a waker panics, the others are woken all the same; the first panic resumes after that.
    #[cold]
    fn run(&mut self) {
        let mut panicked = None;
        for waker in self.wakers.drain(..) {
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| waker.wake())) {
                keep_first(&mut panicked, panic);
            }
        }
        if self.wakers.capacity() > 0 {
            lock(&self.waking.spare).push(std::mem::take(&mut self.wakers));
        }
        if self.has_callbacks {
            self.waking.callbacks.call();
        }
        resume(panicked);
    }
}

impl Drop for Due<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.has_callbacks || !self.wakers.is_empty() {
            self.run();
        }
    }
}
