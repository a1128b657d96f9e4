//! How readers wait for the watermark.
//!
//! *Owns*: when a follower sleeps, and that a reader wants the tail. *May not touch*: what it reads
//! (`read/`), the waiters of records (`wait.rs`).
//!
//! A follower that is awake asks for the watermark without a lock. Only before it sleeps it takes
//! the state's lock, so that no group becomes durable between its last look and its sleep. When it
//! wakes, it asks again without the lock, which the writer needs then. Where writers come back at
//! once it naps first (`post.rs`), and after a nap that ran out it sleeps.

use inkstone_format::Lsn;

use crate::commit::post::NAP;
use crate::commit::shared::Shared;
use crate::error::Result;
use crate::sync::{FALLBACK, Instant};

impl Shared {
    /// From now on the tail is kept: a reader comes.
    pub(crate) fn keep_tail(&self) {
        if self.options.tail_bytes > 0 && !self.is_forked() && !self.tail.is_wanted() {
            let state = self.lock();
            self.tail.want(state.durable);
        }
    }

    /// The watermark, and the number of cuts before it. In a forked child, as far as that is known
    /// without a lock.
    pub(crate) fn watermark_and_cuts(&self) -> (Lsn, usize) {
        if self.is_forked() {
            return (self.durable(), 0);
        }
        let state = self.lock();
        (state.durable, state.cut_count())
    }

    /// The lowest last LSN that the cuts from number `cuts` on have left.
    pub(crate) fn lowest_cut_since(&self, cuts: usize) -> Option<Lsn> {
        self.lock().cuts.get(cuts..).and_then(|later| later.iter().min().copied())
    }

    /// Waits until `lsn` is durable or the log was cut, closed or poisoned, or `until` is past.
    ///
    /// # Errors
    /// The poison, or that the log is closed, if the record is not durable.
    pub(crate) fn follow(&self, lsn: Lsn, cuts: usize, until: Option<Instant>) -> Result<()> {
        let is_durable = || lsn <= self.durable();
        let mut has_napped = false;
        while !is_durable() {
            let state = self.lock();
            if is_durable() || state.cut_count() != cuts {
                break;
            }
            state.check_open()?;
            let left = until.map_or(FALLBACK, |until| {
                until.saturating_duration_since(Instant::now()).min(FALLBACK)
            });
            if left.is_zero() {
                break;
            }
            if state.is_committer_here() {
                drop(self.sleep_for(&self.followers, state, left));
                continue;
            }
            let is_over = || is_durable() || self.is_panicked();
            if state.naps_go_on && !has_napped {
                has_napped = self.nappers.sleep(state, left.min(NAP), None, is_over);
            } else {
                self.followers.sleep(state, left, None, is_over);
            }
        }
        Ok(())
    }
}
