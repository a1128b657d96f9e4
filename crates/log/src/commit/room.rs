//! What a log does where writing over blocks of its own needs room that the disk may not have.
//!
//! *Owns*: when room that was kept is given up, what becomes of a control group or a header for which there is none. *May not
//! touch*: records: a group with records in it that finds no room poisons, like any other failure.
//!
//! Where every write goes to a new place (btrfs), even an overwrite can be answered with ENOSPC. A log must be opened, read,
//! and shortened from the front all the same. So it keeps a file of blocks that nobody uses, and gives it up when a control
//! group finds no room; removing a file needs none. Then the group is written again, the same bytes to the same place. That
//! is sound because the *write* was refused, before any sync: the write and the sync of such a group are two steps here, also
//! where the log's own way is one. A sync that fails is never tried again.
//!
//! Where there is still no room, an opening holds its epoch group back: the log shows what it found, which was synced and read
//! from the medium before, and writes nothing, so that no crash can take it back. The epoch group stays the first that is
//! written: appending and truncating try it, and say [`Error::NoRoom`] while it cannot be.

use std::sync::Arc;

use inkstone_format::{SegmentHeader, SegmentNumber};
use inkstone_io::{AlignedBuf, Directory, Durability};

use crate::commit::gathering::Frozen;
use crate::commit::shared::Shared;
use crate::commit::writer::{Way, Written};
use crate::error::{Error, Result};
use crate::names;
use crate::segment::pool::open_for_groups;
use crate::sync::lock;

/// What is done for a control group that finds no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// It must be written: what is kept is given up.
    Must,
    /// It may be left out.
    May,
}

impl<D: Directory> Shared<D> {
    /// The way to write into this segment where the write may find no room.
    pub(super) fn step_by_step(&self, segment: SegmentNumber) -> Way<D::File> {
        if !matches!(self.options.durability_chosen(), Durability::ODsync | Durability::OSync) {
            return Way::InSteps(None);
        }
        let how = open_for_groups(&self.options).durability(Durability::None);
        match self.directory.open(&names::segment(segment), &how) {
            Ok(file) => Way::InSteps(Some(Arc::new(file))),
            // It can be written all the same; but what a refusal means is not known then.
            Err(_) => Way::Usual,
        }
    }

    /// Writes the header of a segment that is not the log's yet, as [`Shared::write_with_room`] writes a group.
    pub(crate) fn write_header(&self, file: &Arc<D::File>, header: &SegmentHeader) -> Written {
        let way = if self.options.keeps_room { self.step_by_step(header.number) } else { Way::Usual };
        let write = || lock(&self.writer).header(file, header, &way);
        let written = write();
        self.while_refused(written, |_| write())
    }

    /// Writes a group. While its write is refused for want of room, what is kept is given up and it is written again.
    pub(crate) fn write_with_room(&self, frozen: Frozen, way: &Way<D::File>) -> Written {
        let Frozen { len, offset, has_records, at, end, next_lsn, .. } = frozen;
        let written = lock(&self.writer).group(frozen, way);
        self.while_refused(written, |memory| {
            let again = Frozen { memory, len, offset, has_records, at, end, next_lsn, clears: None };
            lock(&self.writer).group(again, way)
        })
    }

    /// Gives up what is kept, piece by piece, and writes the same bytes to the same place `again`, until there is room for them
    /// or nothing left to give up. Then room is kept again, as much as there is.
    fn while_refused(&self, mut written: Written, mut again: impl FnMut(AlignedBuf) -> Written) -> Written {
        let mut gave_up = false;
        while written.is_refused && self.options.keeps_room && self.pool.give_up_some() {
            gave_up = true;
            let Some(memory) = written.memory.take() else { return written };
            written = again(memory);
        }
        if gave_up && written.result.is_ok() {
            written.result = self.pool.keep_room(&self.options);
        }
        written
    }

    /// Keeps room again, if it was given up and can be had.
    ///
    /// # Errors
    /// The poison, if a sync failed.
    pub(crate) fn keep_room(&self) -> Result<()> {
        if !self.options.keeps_room {
            return Ok(());
        }
        self.pool.keep_room(&self.options).map_err(|error| self.poison_now(error))
    }
}

/// An error for want of room of a group of `bytes` bytes.
pub(crate) fn refused(bytes: u64, error: Error) -> Error {
    match error {
        Error::Io(cause) => Error::NoRoom { needed_bytes: bytes, cause },
        other => other,
    }
}

/// What may be left out and found no room was left out.
pub(crate) fn or_left_out(result: Result<()>) -> Result<()> {
    if matches!(result, Err(Error::NoRoom { .. })) { Ok(()) } else { result }
}
