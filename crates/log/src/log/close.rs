//! Closing a log: everything is committed, nothing is written after that, every waiter has its
//! answer, and the lock is free.
//!
//! *Owns*: the order of these. *May not touch*: how the last promise is written
//! (`change/control.rs`).
//!
//! Other threads may use the log meanwhile. The closing thread marks the log as closed while it has
//! the turn, and files change only in a turn or on the log's own threads, which it joins. So when
//! it releases the lock, no thread changes a file any more.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::PoisonError;

use inkstone_format::PromiseReason;
use inkstone_io::AnyLock;

use super::{Ending, Log};
use crate::error::{Error, Result};
use crate::panics::{Panic, keep_first, resume};
use crate::sync::{Ordering, lock, this_thread};

/// What is left of a log that was closed.
struct Shut<L> {
    writer_lock: Option<L>,
    result: Result<()>,
    /// What a waker or listener panicked with.
    panic: Option<Panic>,
}

impl Log {
    /// Closes the log: commits everything, writes the last promise, and releases the lock. From
    /// then on nothing is appended.
    ///
    /// Every handle, future, callback and thread that waits has its outcome when it returns; a
    /// callback only then not if another thread is calling callbacks at that moment. Other threads
    /// may use the log meanwhile: what they had appended before becomes durable, and later calls
    /// get [`Error::Closed`]. Its files stay open for readers until the log and its readers are
    /// dropped: drop them before the file system is unmounted.
    ///
    /// # Errors
    /// [`Error::Poisoned`] (and [`Error::Forked`] in a forked child); the log is closed all the
    /// same. A file that cannot be deleted is left to the next opening. A second call returns the
    /// same as the first. If the first has not ended yet (a waker or callback may call it too), a
    /// second returns [`Error::Closed`] without waiting.
    ///
    /// # Durability
    /// On `Ok` every record is on stable storage. The last promise also lets the next opening know
    /// that nothing is missing; it is left out, and [`Recovery::clean`](crate::Recovery::clean) is
    /// false, when the segment has little room left, which is kept for epochs and truncations.
    pub fn close(&self) -> Result<()> {
        self.close_then(drop)
    }

    /// As [`Log::close`], but returns the lock, so that no other writer can come before the
    /// caller's next step.
    #[doc(hidden)]
    pub fn close_to_lock(self) -> (Option<AnyLock>, Result<()>) {
        let mut writer_lock = None;
        let result = self.close_then(|lock| writer_lock = lock);
        (writer_lock, result)
    }

    fn close_then(&self, take: impl FnOnce(Option<AnyLock>)) -> Result<()> {
        self.shared.check_process()?;
        {
            let mut ending = lock(&self.ending);
            match &*ending {
                Ending::NotBegun => *ending = Ending::Begun,
                Ending::Begun => return Err(Error::Closed),
                Ending::Over(result) => return result.clone(),
            }
        }
        let Shut { writer_lock, result, panic } = self.shut();
        take(writer_lock);
        *lock(&self.ending) = Ending::Over(result.clone());
        resume(panic);
        result
    }

    fn shut(&self) -> Shut<AnyLock> {
        // A panic of a waker or listener resumes only after the end of the log: none of its threads
        // may outlive its lock.
        let mut panic = None;
        let result =
            catch_unwind(AssertUnwindSafe(|| self.promise_to_close())).unwrap_or_else(|payload| {
                panic = Some(payload);
                Err(Error::Closed)
            });
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| self.end())) {
            keep_first(&mut panic, payload);
        }
        // No other thread changes files now. Unless the log failed: write the waiting seals, then
        // release the segments that they held.
        let result = result.and_then(|()| {
            self.shared.write_seals().map_err(|error| self.shared.poison_now(error))?;
            // The next opening finds what could not be released now.
            let _ = self.shared.retire_unread();
            Ok(())
        });
        // Prepared files lose their segment names. Files beyond those to keep are removed: this log
        // will not use them again.
        self.shared.pool.demote();
        if result.is_ok() {
            // The log has ended: nothing relies on a sync that fails now.
            let _ = self.shared.pool.remove_all();
        }
        self.shared.has_ended.store(true, Ordering::Release);
        Shut { writer_lock: lock(&self.writer_lock).take(), result, panic }
    }

    /// Commits everything, writes the last promise, and marks the log as closed before any other
    /// thread can have the turn.
    fn promise_to_close(&self) -> Result<()> {
        let mut state = self.shared.lock();
        state.begin_to_close();
        let ended = self.shared.in_turn(state, |turn| {
            let promised = turn.promise(PromiseReason::Close);
            turn.close();
            promised
        });
        ended.map(drop)
    }

    /// Ends the log: nothing is written any more, and its threads end.
    fn end(&self) {
        let told = catch_unwind(AssertUnwindSafe(|| {
            let mut state = self.shared.lock();
            state.close();
            state.mark_tasks();
            self.shared.wake_all();
        }));
        // A log that was poisoned meanwhile may still be writing.
        self.shared.wait_for_last_turn();
        let this = this_thread();
        let threads = std::mem::take(&mut *lock(&self.threads));
        // A waker, callback or listener may close the log on one of the log's own threads; that
        // thread ends by itself.
        for thread in threads.into_iter().filter(|thread| thread.thread().id() != this) {
            // A panic of the thread has poisoned the log already.
            let _ = thread.join();
        }
        resume(told.err());
    }

    /// Ends the log as a killed process would: nothing is written, the lock is free.
    #[doc(hidden)]
    pub fn abandon(self) {
        self.end_as_killed();
    }

    /// As [`Log::abandon`], of a log that others share.
    #[doc(hidden)]
    pub fn end_as_killed(&self) {
        if self.shared.is_forked() {
            return;
        }
        *lock(&self.ending) = Ending::Over(Ok(()));
        self.end();
        self.shared.has_ended.store(true, Ordering::Release);
        *lock(&self.writer_lock) = None;
    }

    /// In a forked child: there are no threads to join, and the lock belongs to the parent.
    fn leave_to_parent(&mut self) {
        let threads = self.threads.get_mut().unwrap_or_else(PoisonError::into_inner);
        threads.drain(..).for_each(std::mem::forget);
        *self.writer_lock.get_mut().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        if self.shared.is_forked() {
            return self.leave_to_parent();
        }
        // A caller that wants the error calls `close`.
        let _ = self.close();
    }
}
