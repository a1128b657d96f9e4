//! What is written into a full segment: its index, and its last group, the seal, a frame that names
//! the next segment.
//!
//! *Owns*: seals that wait to be written, and writing them and the index. *May not touch*: the
//! segment in use. No other thread writes into a full segment, so with a preparer a seal needs no
//! turn; without one the roll writes it.
//!
//! The next segment's header says all that a seal says, so with a preparer no commit waits for a seal,
//! and a crash or a poison may leave it out. It lets an archiver see the end of a segment from the segment
//! alone.

use std::sync::Arc;

use inkstone_format::Lsn;
use inkstone_io::{AnyDirectory, File, SyncKind};

use crate::commit::shared::Shared;
use crate::error::{Result, is_full};
use crate::event::{Event, Pin, SealedSegment};
use crate::names;
use crate::segment::Segment;
use crate::segment::seal::Seal;
use crate::sync::{AtomicBool, Ordering, lock};

impl Shared {
    /// Leaves the seal to the preparer.
    pub(crate) fn seal_later(&self, seal: Seal) {
        lock(&self.seals).push(seal);
    }

    /// Writes the waiting seals, durably, and sends the events of their segments; `false` when
    /// there were none.
    ///
    /// # Errors
    /// A write or a sync failed: nothing was lost, but the device cannot be trusted any more.
    pub(crate) fn write_seals(&self) -> Result<bool> {
        let mut count = 0;
        // One at a time: the listener may end the log, which writes the other seals and releases
        // the lock. After that nothing may be written here.
        while let Some(Seal { segment, file, memory, offset, last }) = self.take_seal() {
            write_index(&segment, &*file)?;
            match file.write_at(&memory, offset) {
                // An overwrite needs room here and there is none; the next segment's header says
                // what the seal says.
                Err(error) if is_full(&error) => {}
                written => {
                    written?;
                    file.sync(SyncKind::Data)?;
                }
            }
            self.tell(&self.sealed(segment, last));
            count += 1;
        }
        Ok(count > 0)
    }

    /// The first waiting seal.
    fn take_seal(&self) -> Option<Seal> {
        let mut seals = lock(&self.seals);
        if seals.is_empty() { None } else { Some(seals.remove(0)) }
    }

    /// The event that a segment is full and durable, up to `last`.
    pub(crate) fn sealed(&self, segment: Arc<Segment>, last: Lsn) -> Event {
        Event::SegmentSealed(SealedSegment {
            number: segment.number(),
            path: self.directory.path().join(names::segment(segment.number())),
            first: segment.header.first_lsn,
            last,
            pin: Arc::new(FileHold {
                _segment: segment,
                directory: self.directory.clone(),
                has_ended: Arc::clone(&self.has_ended),
            }),
        })
    }
}

/// Writes the index of a segment that gets no more records. It is a hint with a sum, so it needs no
/// sync; where there is no room for it, readers do without.
///
/// # Errors
/// The write failed: nothing was lost, but the device cannot be trusted any more.
pub(super) fn write_index(segment: &Segment, file: &dyn File) -> Result<()> {
    let Some(index) = segment.encoded_index() else { return Ok(()) };
    match file.write_at(&index, segment.header.groups_end()) {
        Ok(()) => segment.forget_places(),
        Err(error) if is_full(&error) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

/// While the log is open, keeps a segment's file from being used for something else.
struct FileHold {
    _segment: Arc<Segment>,
    directory: AnyDirectory,
    has_ended: Arc<AtomicBool>,
}

impl Pin for FileHold {
    fn is_kept(&self) -> bool {
        !self.directory.is_forked() && !self.has_ended.load(Ordering::Acquire)
    }
}
