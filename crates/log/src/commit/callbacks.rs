//! Calls the callbacks of decided records, one at a time.
//!
//! *Owns*: their order, and that each is called once. *May not touch*: which record is decided
//! (`state.rs`).
//!
//! A thread that finds another thread calling leaves its callbacks to that thread. So they are
//! called in order, and a callback that uses the log never runs inside another one.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};

use inkstone_format::Lsn;

use crate::error::Result;
use crate::sync::{Mutex, lock};

/// What a user wants to be called with the outcome of a record.
pub(crate) type Function = Box<dyn FnOnce(Result<Lsn>) + Send>;

/// A callback, and the outcome of its record.
pub(crate) struct Decided {
    pub(crate) function: Function,
    pub(crate) outcome: Result<Lsn>,
}

/// The callbacks of a log that are to be called.
#[derive(Default)]
pub(crate) struct Callbacks {
    due: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    queue: VecDeque<Decided>,
    /// A thread calls them.
    is_calling: bool,
}

impl Callbacks {
    /// Adds callbacks. The caller has the state's lock, so that their order is that of the groups.
    pub(crate) fn add(&self, decided: &mut Vec<Decided>) {
        lock(&self.due).queue.extend(decided.drain(..));
    }

    /// Calls them all, unless another thread does, or this one further up its stack. The caller has
    /// no lock, and not the turn.
    pub(crate) fn call(&self) {
        let mut due = lock(&self.due);
        if due.is_calling {
            return;
        }
        due.is_calling = true;
        while let Some(Decided { function, outcome }) = due.queue.pop_front() {
            drop(due);
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| function(outcome))) {
                // The panic's own value may panic again when it is dropped.
                std::mem::forget(panic);
            }
            due = lock(&self.due);
        }
        due.is_calling = false;
    }
}
