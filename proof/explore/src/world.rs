//! What all threads of a history share.
//!
//! *Owns*: who still holds the log, surviving what is planned, being a forked child. *May not
//! touch*: what the threads do.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use inkstone::{Error, Log};
use inkstone_sim::Counters;

use crate::disk::Steps;
use crate::ledger::{Kind, Ledger, fail};
use crate::scheduler::in_a_child;
use crate::tasks::Planned;

pub type SharedLog = Arc<Log>;

#[derive(Clone)]
pub struct World {
    pub ledger: Arc<Mutex<Ledger>>,
    /// Those who hold the log for sure: when there are none, it is closed or about to be.
    pub holders: Arc<AtomicU32>,
    pub weak: Weak<Log>,
    pub steps: Arc<Steps>,
    pub own_thread: bool,
    /// Callbacks that were not called yet.
    pub uncalled: Arc<AtomicU32>,
}

impl World {
    /// Never held over a scheduling point.
    pub fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn refused(&self, error: &Error, by: &str) {
        if matches!(error, Error::Closed) && self.holders.load(Ordering::Relaxed) == 0 {
            return;
        }
        self.ledger().refused(error, by);
    }

    /// One owner less, who may be the last.
    pub fn leave(&self, log: SharedLog) {
        self.holders.fetch_sub(1, Ordering::Relaxed);
        self.survive(|| drop(log));
    }

    /// What a forked child does. The parent goes on as if it had not been.
    pub fn as_child(&self, run: impl FnOnce(&Self)) {
        let disk = self.ledger().disk.clone();
        let changes =
            || Counters { opens: 0, listings: 0, reads: 0, read_bytes: 0, ..disk.counters() };
        let before = changes();
        self.steps.be_forked(true);
        in_a_child(|| run(self));
        self.steps.be_forked(false);
        if changes() != before {
            fail!(
                Kind::Forked,
                "a forked child asks the disk for changes: {:?}, {before:?} before",
                changes()
            );
        }
    }

    /// Runs what may panic as planned.
    pub fn survive(&self, run: impl FnOnce()) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(run)) {
            if !panic.is::<Planned>() {
                resume_unwind(panic);
            }
            self.ledger().say(|| "a planned panic came through".into());
        }
    }
}
