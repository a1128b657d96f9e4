//! Gives files with blocks a segment's name.
//!
//! *Owns*: which file is handed out or prepared next, its number, and the order of the steps that
//! make it durable. *May not touch*: how blocks are made (`making.rs`).

use std::io::ErrorKind;

use inkstone_format::SegmentNumber;
use inkstone_io::OpenFile;

use crate::choice::Asks;
use crate::error::{Error, Result};
use crate::names;
use crate::options::{Options, smaller_segment_bytes};
use crate::segment::making::Pacing;
use crate::segment::pool::{
    Made, ObtainError, Obtained, Pool, Ready, Spare, check_limit, no_room, no_room_or,
    open_for_groups,
};
use crate::sync::lock;

/// How many segment names in a row may be taken by other files and are skipped; after that it is an
/// error, which can be retried.
const PASSED_OVER_MAX: u32 = 1000;

impl Pool {
    /// The next file of `bytes` bytes with a durable segment's name: a prepared one, else one with
    /// old blocks, else a new one, whose blocks are made as the options say, or with `reserve` only
    /// reserved if the file system can do that.
    pub(crate) fn obtain(&self, bytes: u64, options: &Options, reserve: bool) -> Obtained<Ready> {
        check_limit(&self.directory, bytes).map_err(ObtainError::Retry)?;
        if let Some(ready) = self.take_ready(bytes) {
            return Ok(ready);
        }
        let made = match self.take_free(bytes, options) {
            Some(spare) => Made::of(spare),
            None => match self.make(bytes, options, reserve, &mut |_| true) {
                // Removing surplus files at once makes room, and no free file has this size.
                Err(ObtainError::Retry(Error::NoRoom { .. })) if self.remove_free()? => {
                    self.make(bytes, options, reserve, &mut |_| true)?
                }
                made => made?,
            },
        };
        // The preparer may have named a file meanwhile. Its number is lower, so it must be used
        // first or not at all.
        let _naming = lock(&self.naming);
        if let Some(ready) = self.front(bytes) {
            self.take_back(&made, bytes);
            return Ok(ready);
        }
        self.demote();
        self.name(made, bytes, options)
    }

    /// Makes what is to have `bytes` bytes: with fewer, where there is no room for so many, down to
    /// what `frame_bytes` of frames need. Where little is left it takes half of that: else no
    /// segment had room beside it, however few records are left.
    pub(crate) fn fitted<T>(
        &self,
        mut bytes: u64,
        frame_bytes: u64,
        options: &Options,
        mut make: impl FnMut(u64) -> Obtained<T>,
    ) -> Obtained<T> {
        let left = || self.left_bytes(options).unwrap_or(u64::MAX);
        let smaller = |bytes| smaller_segment_bytes(bytes, left(), frame_bytes);
        if !self.is_at_hand(bytes) && left() / 2 < bytes {
            bytes = smaller(bytes).unwrap_or(bytes);
        }
        loop {
            let made = make(bytes);
            let Err(ObtainError::Retry(Error::NoRoom { .. })) = &made else { return made };
            match smaller(bytes) {
                Some(smaller) => bytes = smaller,
                None => return made,
            }
        }
    }

    /// The first prepared file, if it has this size. Prepared files of another size cannot be used
    /// before it and lose their names.
    fn take_ready(&self, bytes: u64) -> Option<Ready> {
        let _naming = lock(&self.naming);
        if let Some(ready) = self.front(bytes) {
            return Some(Ready { was_waiting: true, ..ready });
        }
        self.demote();
        None
    }

    /// Prepares one more file of `bytes` bytes; `false` if `rest` has stopped it.
    pub(crate) fn prepare(
        &self,
        bytes: u64,
        options: &Options,
        reserve: bool,
        rest: Pacing<'_>,
    ) -> Obtained<bool> {
        check_limit(&self.directory, bytes).map_err(ObtainError::Retry)?;
        let mut is_stopped = false;
        let made = match self.take_free(bytes, options) {
            Some(spare) => Made::of(spare),
            None => {
                self.leave_room(bytes, options)?;
                let made = self.make(bytes, options, reserve, &mut |progress| {
                    is_stopped = !rest(progress);
                    !is_stopped
                });
                match made {
                    Err(_) if is_stopped => return Ok(false),
                    made => made?,
                }
            }
        };
        let _naming = lock(&self.naming);
        let ready = self.name(made, bytes, options)?;
        lock(&self.files).ready.push_back(ready);
        Ok(true)
    }

    /// Preparing ahead of time never uses the last of the disk or of the budget: an append may need
    /// that at once.
    fn leave_room(&self, bytes: u64, options: &Options) -> Obtained<()> {
        let left = self.left_bytes(options).map_err(ObtainError::Retry)?;
        if left < 2 * bytes {
            return Err(ObtainError::Retry(no_room(
                &self.directory,
                bytes,
                "the space that is left is kept for segments that are needed at once",
            )));
        }
        Ok(())
    }

    /// Bytes that are left for new files, on the disk and in the budget.
    pub(crate) fn left_bytes(&self, options: &Options) -> Result<u64> {
        let free = self.directory.free_bytes()?;
        let used = lock(&self.files).used_bytes;
        let budget = options.disk_budget_bytes.map_or(u64::MAX, |most| most.saturating_sub(used));
        Ok(free.min(budget))
    }

    /// Gives a file the next segment's name, durably. The caller holds `naming`. If that fails, the
    /// file becomes a free one again or is removed.
    fn name(&self, made: Made, bytes: u64, options: &Options) -> Obtained<Ready> {
        let mut passed_over = 0;
        let (number, name) = loop {
            let number = self.next_number()?;
            let name = names::segment(number);
            match self.directory.rename_new(&made.name, &name) {
                Ok(()) => break (number, name),
                // Another program has put a file there since the directory was listed. It stays,
                // and its number is skipped.
                Err(error)
                    if error.kind() == ErrorKind::AlreadyExists
                        && passed_over < PASSED_OVER_MAX =>
                {
                    passed_over += 1;
                }
                Err(error) => {
                    self.take_back(&made, bytes);
                    return Err(ObtainError::Retry(no_room_or(bytes, error)));
                }
            }
        };
        // Before the file is opened for writing. This is not only for the name: btrfs may skip the
        // sync of a file whose directory is synced after a write into it, and if the file is not
        // new, nothing else helps (docs/powerloss.md).
        self.directory.sync().map_err(|error| ObtainError::Poison(error.into()))?;
        let file = match self.directory.open(&name, &open_for_groups(options)) {
            Ok(file) => file,
            Err(error) => {
                // O_DIRECT may have been there when the log was opened, and a sandbox have come
                // since.
                let cached = open_for_groups(options).access(inkstone_io::Access::Buffered);
                let cached = if error.is_not_here() {
                    self.directory.open(&name, &cached).ok()
                } else {
                    None
                };
                match cached {
                    Some(file) => file,
                    None => {
                        self.free_again(number, bytes);
                        return Err(ObtainError::Retry(no_room_or(bytes, error)));
                    }
                }
            }
        };
        if options.asks != Asks::Never {
            // It asks about its blocks, its size and its name, all synced by now.
            file.check_takes_changes().map_err(|error| ObtainError::Poison(error.into()))?;
        }
        let asks = options.asks.groups_in(&*file);
        Ok(Ready { number, file, bytes, blocks: made.blocks, asks, was_waiting: false })
    }

    /// Takes back a file that did not get a segment's name.
    fn take_back(&self, made: &Made, bytes: u64) {
        if let Some(spare) = made.spare {
            lock(&self.files).free.push(spare);
        } else if self.directory.remove(&made.name).is_ok() {
            self.give_bytes(bytes);
        }
    }

    fn next_number(&self) -> Obtained<SegmentNumber> {
        let mut files = lock(&self.files);
        let next = match files.highest {
            Some(highest) => highest.next().ok_or(ObtainError::Retry(Error::UsedUp))?,
            None => SegmentNumber::FIRST,
        };
        files.highest = Some(next);
        Ok(next)
    }

    /// A free file of exactly this size whose blocks no other file shares. Segments grow, so a
    /// smaller one is marked for removal. A file with other links or shared extents is a backup of
    /// the user and is marked too, and so is one with holes, which a sparse copy leaves. A file
    /// that is marked for removal and still complete can be used too: otherwise a log that changes
    /// segments fast would make new files faster than the old ones are removed.
    fn take_free(&self, bytes: u64, options: &Options) -> Option<Spare> {
        loop {
            let mut spare = {
                let mut files = lock(&self.files);
                let is_whole = |spare: &Spare| spare.is_usable && spare.bytes == bytes;
                files.doom_if(|spare| spare.bytes < bytes);
                match files.free.iter().rposition(is_whole) {
                    Some(at) => files.free.remove(at),
                    None if options.free_segments_chosen() == 0 => return None,
                    None => {
                        let at = files.doomed.iter().position(is_whole)?;
                        files.doomed.swap_remove(at)
                    }
                }
            };
            let name = names::free(spare.number);
            let fits = self.directory.open(&name, &OpenFile::existing()).is_ok_and(|file| {
                let is_ours = |facts: inkstone_io::FileFacts| {
                    facts.hard_links == 1 && !facts.has_shared_extents && !facts.has_holes
                };
                file.facts().is_ok_and(is_ours) && file.len_bytes().is_ok_and(|len| len == bytes)
            });
            if fits {
                return Some(spare);
            }
            spare.is_usable = false;
            lock(&self.files).doomed.push(spare);
        }
    }
}
