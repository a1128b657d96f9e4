//! Calls the callbacks of appends: in order, once each, while we hold no lock.
//!
//! *Owns*: the callbacks that wait, up to where the log is durable, the first failure. *May not
//! touch*: the log and the state, so that a callback that waits keeps neither alive.
//!
//! The log reports durability on any thread that commits. One thread at a time calls back, until
//! nothing is due; other threads leave their callbacks to it.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};

use inkstone::Lsn;

use crate::error::{Error, Result};
use crate::sync::{AtomicU64, Mutex, MutexGuard, Ordering, lock};

/// What a caller gives to `append`.
pub(crate) type Callback = Box<dyn FnOnce(Result<()>) + Send>;

/// The callbacks of one raft log.
#[derive(Default)]
pub(crate) struct Callbacks {
    waiting: Mutex<Waiting>,
    /// Up to here all that waited was taken out, to be called.
    told: AtomicU64,
}

#[derive(Default)]
struct Waiting {
    /// By the LSN of the last record that each waits for: never descending.
    queue: VecDeque<(Lsn, Callback)>,
    durable: Lsn,
    failed: Option<Error>,
    /// Whether a thread calls back now.
    is_calling: bool,
}

impl Callbacks {
    /// Callers' code never runs under this lock, so a panic of theirs cannot leave it half changed.
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        lock(&self.waiting)
    }

    /// The first failure, after which nothing succeeds any more.
    pub(crate) fn check(&self) -> Result<()> {
        self.lock().failed.clone().map_or(Ok(()), Err)
    }

    /// Adds a callback for the record `lsn`, the highest so far. Its caller asks afterwards what is
    /// due ([`Callbacks::call`]): the record may be durable already, and the callbacks of its group
    /// called.
    pub(crate) fn push(&self, lsn: Lsn, callback: Callback) {
        let mut waiting = self.lock();
        debug_assert!(
            waiting.queue.back().is_none_or(|(last, _)| *last <= lsn),
            "callbacks out of order"
        );
        waiting.queue.push_back((lsn, callback));
    }

    /// Adds a callback that is due when those before it are.
    pub(crate) fn push_after_all(&self, callback: Callback) {
        let mut waiting = self.lock();
        let lsn = waiting.queue.back().map_or(Lsn::ZERO, |(lsn, _)| *lsn);
        waiting.queue.push_back((lsn, callback));
    }

    /// Whether all that waited for this record was taken out.
    pub(crate) fn has_told(&self, lsn: Lsn) -> bool {
        lsn.get() <= self.told.load(Ordering::Acquire)
    }

    /// What the log says of a record: durable, with all before it; or the failure. Then calls back
    /// what is due.
    pub(crate) fn tell(&self, result: std::result::Result<Lsn, inkstone::Error>) {
        let mut waiting = self.lock();
        match result {
            Ok(lsn) => waiting.durable = waiting.durable.max(lsn),
            // What is durable was told before.
            Err(error) => waiting.fail(Lsn::ZERO, &Error::Log(error)),
        }
        self.call_due(waiting);
    }

    /// Notes a failure that ends the raft log, if it is the first, and up to where the log was
    /// durable then: callbacks up to there get `Ok`, also those of which the log has not told yet.
    pub(crate) fn fail(&self, durable: Lsn, error: &Error) {
        self.lock().fail(durable, error);
    }

    /// Calls back what is due, unless another thread does.
    pub(crate) fn call(&self) {
        self.call_due(self.lock());
    }

    /// All that is due is taken out at once: the thread that appends is held up by the lock once
    /// for a group, not for each of its entries.
    fn call_due<'a>(&'a self, mut waiting: MutexGuard<'a, Waiting>) {
        if waiting.is_calling {
            return;
        }
        loop {
            let (due, result) = waiting.take_due();
            self.told.store(waiting.durable.get(), Ordering::Release);
            if due.is_empty() {
                waiting.is_calling = false;
                return;
            }
            waiting.is_calling = true;
            drop(waiting);
            for callback in due {
                let result = result.clone();
                run(|| callback(result));
            }
            waiting = self.lock();
        }
    }
}

/// Runs what is the user's. If it panics, nothing else happens.
fn run(task: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(task)) {
        // As the log does: its own value may panic again when it is dropped.
        std::mem::forget(panic);
    }
}

impl Waiting {
    fn fail(&mut self, durable: Lsn, error: &Error) {
        if error.is_final() {
            self.durable = self.durable.max(durable);
            self.failed.get_or_insert_with(|| error.clone());
        }
    }

    /// Takes out the callbacks that are due now, in order, with what to tell them: first those of
    /// what is durable.
    fn take_due(&mut self) -> (Vec<Callback>, Result<()>) {
        let durable = self.queue.partition_point(|(lsn, _)| *lsn <= self.durable);
        let (due, result) = match &self.failed {
            Some(error) if durable == 0 => (self.queue.len(), Err(error.clone())),
            _ => (durable, Ok(())),
        };
        (self.queue.drain(..due).map(|(_, callback)| callback).collect(), result)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    type Told = Arc<Mutex<Vec<(u64, bool)>>>;

    fn told() -> (Arc<Callbacks>, Told) {
        (Arc::default(), Arc::default())
    }

    fn push(callbacks: &Callbacks, told: &Told, lsn: u64) {
        let told = Arc::clone(told);
        callbacks.push(
            Lsn::new(lsn),
            Box::new(move |result| told.lock().unwrap().push((lsn, result.is_ok()))),
        );
    }

    #[test]
    fn a_callback_may_add_one_and_a_panic_loses_none() {
        let (callbacks, told) = told();
        let inner = (Arc::clone(&callbacks), Arc::clone(&told));
        callbacks.push(
            Lsn::new(1),
            Box::new(move |_| {
                push(&inner.0, &inner.1, 2);
                inner.0.tell(Ok(Lsn::new(2)));
                assert!(inner.1.lock().unwrap().is_empty(), "not inside this one");
                panic!("a panic of the user's");
            }),
        );
        callbacks.tell(Ok(Lsn::new(1)));
        assert_eq!(*told.lock().unwrap(), [(2, true)]);
    }
}
