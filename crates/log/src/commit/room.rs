//! Room on the disk: giving back the files of segments that are no part of the log any more, and
//! what a log does where overwriting its own blocks needs room that the disk may not have.
//!
//! *Owns*: how many files are given back at a time, and that none is touched after the end of the
//! log; when reserved room is released, and what happens to a control group or a header without
//! room. *May not touch*: which segments are obsolete, and what is durable before
//! (`change/truncate.rs`); how a file is kept or removed (`segment/pool.rs`); records: a group with
//! records that finds no room poisons the log, like any other failure.
//!
//! **Giving back.** Removing a file can take longer than a commit, and a truncation may leave
//! thousands. So no thread has the turn meanwhile. A log with a preparer leaves them to it. In any
//! other log each thread that ends a turn gives back a few, whatever the turn was for, and the
//! committer all that are left when the log is idle. A thread that needs room which the disk does
//! not have gives back all of them first.
//!
//! **Overwriting.** On a file system that writes every block to a new place (btrfs), even an
//! overwrite can fail with ENOSPC. Opening, reading and truncating from the front must work all the
//! same. So the log reserves room in a file of unused blocks, and removes the file when a control
//! group finds no room; removing a file needs none. Then it writes the group again, the same bytes
//! to the same place. That is sound because the *write* was refused, before any sync: there the log's
//! own blocks are written and synced in two steps, even if groups of records take one. A sync that fails
//! is never tried again.
//!
//! btrfs gives the blocks of a removed file back with the end of a transaction, also those of a
//! file that somebody else has removed. Until then `df` shows them as free, and a write may be
//! refused. So before a group is given up the file system is synced, and it is written once more.
//!
//! If there is still no room, an opening holds its epoch group back. The log shows what it found,
//! which was synced and read from the medium before, and writes nothing, so no crash can take that
//! back. The epoch group remains the first group to be written: appending and truncating try to
//! write it, and return [`Error::NoRoom`] as long as that fails.

use std::sync::Arc;
use std::time::Duration;

use crate::commit::shared::Shared;
use crate::commit::writer::{Failed, Written};
use crate::error::{Error, Result};
use crate::segment::Segment;
use crate::segment::pool::{ObtainError, Obtained, Unnamed};
use crate::sync::{lock, try_lock};

/// How many files are given back after a turn, at most; of a file that is removed in pieces, how
/// many pieces.
const FILES_A_TURN: usize = 4;

impl Shared {
    /// Writes; while there is no room, releases reserved room piece by piece and writes the same
    /// bytes to the same place, until they fit or nothing is left to release; the last time after a
    /// sync of the file system. Then reserves room again, as much as there is.
    pub(crate) fn while_refused(&self, write: impl Fn() -> Written) -> Written {
        let is_refused = |written: &Written| written.result.as_ref().is_err_and(Failed::is_refused);
        let mut written = write();
        let (mut gave_up, mut is_last) = (false, false);
        while is_refused(&written) && !is_last {
            is_last = !self.give_up_some();
            gave_up |= !is_last;
            if is_last {
                // Only so that the room comes back: whether it does, the write says.
                let _ = self.directory.sync_file_system();
            }
            written = write();
        }
        if gave_up && written.result.is_ok() {
            written.result = self.pool.keep_room(&self.options).map_err(Failed::Sync);
        }
        written
    }

    /// Releases blocks that are not needed now; false if there are none.
    pub(crate) fn give_up_some(&self) -> bool {
        // A file that cannot be renamed may still be removed.
        let _ = self.retire_unread();
        self.pool.give_up_some()
    }

    /// Reserves room again, if it was released and there is some.
    ///
    /// # Errors
    /// The poison, if a sync failed.
    pub(crate) fn keep_room(&self) -> Result<()> {
        self.pool.keep_room(&self.options).map_err(|error| self.poison_now(error))
    }
}

/// Giving back.
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
            if self.lock().has_ended() {
                return Ok(false);
            }
            let unread = lock(&self.segments).take_one_unread();
            let is_retired = unread.is_some();
            if let Some(segment) = unread {
                self.retire(segment).map_err(ObtainError::Retry)?;
            }
            if !self.pool.remove_some(Duration::ZERO, unnamed)? && !is_retired {
                return Ok(false);
            }
            self.pool.keep_room(&self.options).map_err(ObtainError::Poison)?;
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
        {
            // The head may have had no record that was live when another became the head.
            let mut segments = lock(&self.segments);
            let first_live = segments.first_live;
            segments.truncate_before(first_live);
        }
        let is_any = self.retire_unread().unwrap_or(true);
        Ok(self.pool.remove_all()? || is_any || !is_alone)
    }
}

/// The error of a group of `bytes` bytes that found no room.
pub(crate) fn refused(bytes: u64, error: Error) -> Error {
    match error {
        Error::Io(cause) => Error::NoRoom { needed_bytes: bytes, cause },
        other => other,
    }
}

/// `Ok` for a group that may be left out and found no room.
pub(crate) fn or_left_out(result: Result<()>) -> Result<()> {
    if matches!(result, Err(Error::NoRoom { .. })) { Ok(()) } else { result }
}
