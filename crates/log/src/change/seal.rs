//! The last group of a segment that is left: a frame that names the next one.
//!
//! *Owns*: seals that wait to be written, and writing them. *May not touch*: the segment that is in use, or the turn. Nobody writes
//! into a segment that was left, so a seal needs neither.
//!
//! The next segment's header says all that a seal says, so nobody waits for one, and a crash or a poison may leave it out. What
//! it is for: an archiver sees where a segment ends from the segment alone.

use std::sync::Arc;

use inkstone_format::Lsn;
use inkstone_io::{Directory, Engine, EngineKind, File, Operation, Persist, Request, SyncKind};

use crate::commit::shared::Shared;
use crate::error::{Result, is_full};
use crate::event::{Event, Pin, SealedSegment};
use crate::names;
use crate::segment::Segment;
use crate::segment::seal::Seal;
use crate::sync::{AtomicBool, Ordering, lock};

impl<D: Directory> Shared<D> {
    /// The preparer is to write it.
    pub(crate) fn seal_later(&self, seal: Seal<D::File>) {
        lock(&self.seals).push(seal);
    }

    /// Writes the seals that wait, durably, and tells of their segments; `false` when there were none.
    ///
    /// # Errors
    /// A write or a sync failed: nothing was lost, but the device cannot be trusted any more.
    pub(crate) fn write_seals(&self) -> Result<bool> {
        let mut count = 0;
        // One at a time: the listener may end the log, which writes those that are left and gives the lock back. From then on nothing may
        // be written here.
        while let Some(Seal { segment, file, memory, offset, last }) = self.take_seal() {
            let mut engine = self.directory.engine(EngineKind::Caller, 1)?;
            let len = memory.len();
            let write = Operation::Write { buffer: memory, len, offset, persist: Persist::Later };
            match engine.run(Request { token: 0, file: Arc::clone(&file), operation: write })?.result {
                // Where an overwrite needs room; the next segment's header says it all.
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

    /// The first that waits.
    fn take_seal(&self) -> Option<Seal<D::File>> {
        let mut seals = lock(&self.seals);
        if seals.is_empty() { None } else { Some(seals.remove(0)) }
    }

    /// The event that a segment is full and durable, up to `last`.
    pub(crate) fn sealed(&self, segment: Arc<Segment<D::File>>, last: Lsn) -> Event {
        Event::SegmentSealed(SealedSegment {
            number: segment.number(),
            path: self.directory.path().join(names::segment(segment.number())),
            first: segment.header.first_lsn,
            last,
            pin: Arc::new(Kept {
                _segment: segment,
                directory: Arc::clone(&self.directory),
                has_ended: Arc::clone(&self.has_ended),
            }),
        })
    }
}

/// Keeps a segment's file from being used for something else, while the log is open.
struct Kept<D: Directory> {
    _segment: Arc<Segment<D::File>>,
    directory: Arc<D>,
    has_ended: Arc<AtomicBool>,
}

impl<D: Directory> Pin for Kept<D> {
    fn is_kept(&self) -> bool {
        !self.directory.is_forked() && !self.has_ended.load(Ordering::Acquire)
    }
}
