//! Giving back the files of segments that are no part of the log any more.
//!
//! *Owns*: how many at a time, and that none is touched after the end of the log. *May not touch*:
//! which segments those are; what is durable before (`change/truncate.rs`); how a file is kept or
//! removed (`segment/pool.rs`).
//!
//! Removing a file can take longer than a commit, and a truncation may leave thousands. So no
//! thread has the turn meanwhile. A log with a preparer leaves them to it. In any other log each
//! thread that ends a turn gives back a few, whatever the turn was for, and the committer all that
//! are left when the log is idle. A thread that needs room which the disk does not have gives back
//! all of them first.

use std::sync::Arc;
use std::time::Duration;

use crate::commit::shared::Shared;
use crate::error::Result;
use crate::segment::Segment;
use crate::segment::pool::{ObtainError, Obtained, Unnamed};
use crate::sync::{lock, try_lock};

/// How many files are given back after a turn, at most; of a file that is removed in pieces, how
/// many pieces.
const FILES_A_TURN: usize = 4;

impl Shared {
    /// Gives back a few files; whether there may be more.
    ///
    /// # Errors
    /// A file could not be renamed or removed; it is tried again later, at the latest by the next
    /// opening. The poison, if a sync failed.
    pub(super) fn give_some_back(&self) -> Result<bool> {
        let mut unnamed = Unnamed::new();
        let is_more = self.give_steps_back(&mut unnamed);
        // These have no name any more, so this may come after the end of the log.
        let cut = self.pool.cut(unnamed);
        is_more.and_then(|is_more| cut.map(|()| is_more)).map_err(|error| match error {
            ObtainError::Retry(error) => error,
            ObtainError::Poison(error) => self.poison_now(error),
        })
    }

    fn give_steps_back(&self, unnamed: &mut Unnamed) -> Obtained<bool> {
        for _ in 0..FILES_A_TURN {
            // `close` waits for this lock once the log is closed. Another thread that has it goes
            // on soon.
            let Some(_giving_back) = try_lock(&self.giving_back) else { return Ok(true) };
            {
                let state = self.lock();
                if state.closed || state.poison.is_some() {
                    return Ok(false);
                }
            }
            let unread = lock(&self.segments).take_one_unread();
            let is_retired = unread.is_some();
            if let Some(segment) = unread {
                self.retire(segment).map_err(ObtainError::Retry)?;
            }
            if !self.pool.remove_some(Duration::ZERO, unnamed)? && !is_retired {
                return Ok(false);
            }
            if self.options.keeps_room {
                self.pool.keep_room(&self.options).map_err(ObtainError::Poison)?;
            }
        }
        Ok(true)
    }

    /// Takes back the files of all segments that are no part of the log any more and have no
    /// reader; whether there were any.
    ///
    /// # Errors
    /// A file could not be renamed.
    pub(crate) fn retire_unread(&self) -> Result<bool> {
        let unread = lock(&self.segments).take_unread();
        let is_any = !unread.is_empty();
        let mut result = Ok(is_any);
        for segment in unread {
            if let Err(error) = self.retire(segment) {
                result = result.and(Err(error));
            }
        }
        result
    }

    fn retire(&self, segment: Arc<Segment>) -> Result<()> {
        let retired =
            self.pool.retire(segment.number(), segment.header.segment_bytes, &self.options);
        if retired.is_err() {
            // It is tried again with the next one.
            lock(&self.segments).obsolete.push(segment);
        }
        retired
    }

    /// Gives back at once all that is left, for a caller that found no room; false if nothing was.
    pub(crate) fn give_all_back(&self) -> Obtained<bool> {
        // A thread that gives files back has room soon.
        let (_giving_back, is_alone) = match try_lock(&self.giving_back) {
            Some(locked) => (locked, true),
            None => (lock(&self.giving_back), false),
        };
        let is_any = self.retire_unread().unwrap_or(true);
        Ok(self.pool.remove_all()? || is_any || !is_alone)
    }
}
