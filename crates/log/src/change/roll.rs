//! Rolls: changes from one segment to the next.
//!
//! *Owns*: the order of durability when the segment changes. *May not touch*: how a group is
//! written (`commit/group.rs`), where files come from (`segment/pool.rs`), why the segment changes
//! (`control.rs`, `truncate.rs`).
//!
//! The order of a roll: everything in the old segment becomes durable; then a file with the new
//! segment's name; then its header; then the first group is written. After a crash between any two
//! of these steps, an opening finds the same records. A seal in the old segment names the new one,
//! at any time after the header is durable: with a background thread, commits do not wait for the
//! seal (`seal.rs`).

use std::sync::Arc;

use inkstone_format::limits::{BLOCK_BYTES, HEADER_BYTES};
use inkstone_format::{Control, Cuts, Epoch, Lsn, Position, Roll, SegmentHeader, SegmentNumber};

use crate::change::seal::write_index;
use crate::commit::room::{or_left_out, refused};
use crate::commit::shared::Shared;
use crate::commit::state::State;
use crate::commit::turn::HeldTurn;
use crate::error::{Error, Result};
use crate::event::Event;
use crate::segment::pool::{Blocks, ObtainError, Ready};
use crate::segment::seal::Seal;
use crate::segment::{Link, Segment};
use crate::sync::lock;

/// The header fields of the next segment, and why it is begun.
pub(super) struct NextSegment {
    pub(super) epoch: Epoch,
    pub(super) roll: Roll,
    pub(super) predecessor: Option<Position>,
    pub(super) first_lsn: Lsn,
    /// Its size, if there is room for that; else it is smaller.
    pub(super) bytes: u64,
    /// The frames that it must hold.
    pub(super) frame_bytes: u64,
    /// For a cut: the last record that it leaves.
    pub(super) cut: Option<Lsn>,
}

impl Shared {
    /// The size of the segment after one of `previous` bytes. A log that was cut uses the larger
    /// files that it has.
    pub(crate) fn next_bytes(&self, previous: u64, frame_bytes: u64) -> u64 {
        let grown = self.options.next_segment_bytes(previous, frame_bytes);
        self.pool.bytes_to_use(grown, self.options.full_segment_bytes())
    }
}

impl HeldTurn<'_> {
    /// Changes to the next segment, which can hold records of `frame_bytes`. The turn is changing
    /// the log ([`State::set_changing`]).
    ///
    /// # Errors
    /// As [`HeldTurn::begin_segment`].
    pub(super) fn roll(&mut self, frame_bytes: u64) -> Result<()> {
        self.write()?;
        let old = self.shared.head_header();
        let next = NextSegment {
            epoch: self.epoch(),
            roll: Roll::Full,
            predecessor: Some(Position { segment: old.number, byte: self.open_group.at() }),
            first_lsn: self.open_group.next_lsn(),
            bytes: self.shared.next_bytes(old.segment_bytes, frame_bytes),
            frame_bytes,
            cut: None,
        };
        self.begin_segment(next)
    }

    /// Obtains a file, makes its header durable, seals the old segment, and continues in the new
    /// one. The open group is empty, and everything before is durable.
    ///
    /// # Errors
    /// The poison; or why there is no file, and nothing has changed.
    pub(super) fn begin_segment(&mut self, next: NextSegment) -> Result<()> {
        let shared = self.shared;
        let (old, cuts, first_live) = {
            let segments = lock(&shared.segments);
            (segments.head().segment.header, segments.cuts, segments.first_live)
        };
        // If this header never becomes durable, the next cut has the same number.
        let cuts = next.cut.map_or(cuts, |last| cuts.with(last));
        let durable = next.first_lsn.before().unwrap_or(Lsn::ZERO);
        let header = |number, segment_bytes| SegmentHeader {
            log: old.log,
            number,
            segment_bytes,
            first_lsn: next.first_lsn,
            first_live: if next.roll == Roll::Begin { next.first_lsn } else { first_live },
            epoch: next.epoch,
            promise: durable,
            predecessor: next.predecessor,
            roll: next.roll,
            kind: old.kind,
            owner: old.owner,
            cuts: cuts.count(),
            lost_to: next.cut.map_or(old.lost_to, |last| old.lost_to.min(last)),
        };
        let make = |bytes| {
            let header = |number| header(number, bytes);
            shared.make_segment(header, &cuts, bytes, shared.prepares_ahead())
        };
        let made = self
            .unlocked(|| shared.pool.fitted(next.bytes, next.frame_bytes, &shared.options, make))
            .map_err(|failed| match failed {
                ObtainError::Retry(error) => error,
                ObtainError::Poison(error) => self.poison(error),
            });
        let (header, ready) = made?;
        shared.count_segment(self, &ready, next.cut.is_some());
        if let Some(last) = next.cut {
            self.leave_index()?;
            shared.enter_cut(self, (header, cuts), ready, last);
        } else {
            self.seal(header.number, durable)?;
            shared.enter(self, (header, cuts), ready);
        }
        // Published now, since no group may follow soon. A reader of another process that finds an
        // unpublished head stops sleeping and polls.
        shared.publish_head(self);
        Ok(())
    }

    /// Writes the seal of the old segment, which ends with the record `last`: the seal names the
    /// next segment. If the epoch of this opening is not written yet, it comes first. Without room
    /// for it the seal is left out: the new header says the same.
    fn seal(&mut self, next: SegmentNumber, last: Lsn) -> Result<()> {
        let shared = self.shared;
        let old = || Arc::clone(&lock(&shared.segments).head().segment);
        if self.would_rewrite() {
            // The new header says what the seal would say.
            self.leave_index()?;
            self.events.push(shared.sealed(old(), last));
            return Ok(());
        }
        if let Some(epoch) = self.epoch_due()
            && self.open_group.control(&epoch).is_err()
        {
            return self.leave_index();
        }
        // If there is no room for the seal, the epoch may be appended alone, which is correct too.
        let _ = self.open_group.control(&Control::Seal(next));
        if !shared.prepares_ahead() {
            self.leave_index()?;
            or_left_out(self.write())?;
            if shared.options.listener.is_some() {
                self.events.push(shared.sealed(old(), last));
            }
        } else if !self.open_group.is_empty() {
            let encoded = self.end_group();
            let file = Arc::clone(&lock(&shared.writer).file);
            let bytes = &encoded.memory[..encoded.len];
            shared.seal_later(Seal::of(bytes, encoded.offset, old(), file, last));
            self.spare.keep(Some(encoded.memory), encoded.is_large);
        }
        Ok(())
    }

    /// Writes the index of the old segment, where no seal takes it along.
    ///
    /// # Errors
    /// The poison.
    fn leave_index(&mut self) -> Result<()> {
        let old = Arc::clone(&lock(&self.shared.segments).head().segment);
        let file = Arc::clone(&lock(&self.shared.writer).file);
        self.unlocked(|| write_index(&old, &*file)).map_err(|error| self.poison(error))
    }

    /// Whether the next group of a padded log would rewrite the block in which the log ends,
    /// because the log was written without padding until now. The format has no padding between two
    /// groups, so the log continues in another segment.
    pub(super) fn would_rewrite(&self) -> bool {
        self.shared.pads() && !self.open_group.at().is_multiple_of(BLOCK_BYTES as u64)
    }
}

impl Shared {
    pub(super) fn head_header(&self) -> SegmentHeader {
        lock(&self.segments).head().segment.header
    }

    /// Continues after a cut, which is durable. Readers without the lock see all of the change or
    /// ask again.
    fn enter_cut(&self, state: &mut State, header: (SegmentHeader, Cuts), ready: Ready, last: Lsn) {
        self.note_half_a_change();
        self.enter(state, header, ready);
        state.note_cut(last);
        self.set_durable(state, last);
        self.tail.cut(last);
        self.note_half_a_change();
        self.followers.notify_all();
        self.pollers.notify_all();
    }

    fn count_segment(&self, state: &mut State, ready: &Ready, is_cut: bool) {
        let stats = &mut state.counted.stats;
        stats.segments += 1;
        match ready.blocks {
            Blocks::Recycled => stats.segments_recycled += 1,
            Blocks::Written => stats.segments_prepared += 1,
            Blocks::Reserved => stats.segments_fallocated += 1,
        }
        if let Some(what) = self.pool.take_notice() {
            state.events.push(Event::Fallback { what });
        }
        // No file is prepared for a cut.
        if self.prepares_ahead() && !ready.was_waiting && !is_cut {
            state.counted.stats.pool_empty += 1;
            state.counted.was_pool_empty = true;
            let fallocated = ready.blocks == Blocks::Reserved;
            state.events.push(Event::PoolEmpty { segment_bytes: ready.bytes(), fallocated });
        }
    }

    /// A file with a durable header.
    fn make_segment(
        &self,
        header: impl FnOnce(SegmentNumber) -> SegmentHeader,
        cuts: &Cuts,
        bytes: u64,
        reserve: bool,
    ) -> std::result::Result<(SegmentHeader, Ready), ObtainError> {
        let ready = match self.pool.obtain(bytes, &self.options, reserve) {
            Err(ObtainError::Retry(Error::NoRoom { .. })) if self.give_all_back()? => {
                self.pool.obtain(bytes, &self.options, reserve)?
            }
            // Files that are kept open for readers are of no use to this call.
            Err(ObtainError::Retry(error))
                if error.is_out_of_descriptors() && self.kept.let_go() =>
            {
                self.pool.obtain(bytes, &self.options, reserve)?
            }
            obtained => obtained?,
        };
        let header = header(ready.number);
        let written = self.while_refused(|| lock(&self.writer).header(&ready.file, &header, cuts));
        match written.result {
            Ok(()) => Ok((header, ready)),
            // Before the log continues without this file, no crash may find a header in it,
            // complete or not.
            Err(failed) => {
                let is_refused = failed.is_refused();
                let error = failed.into_error();
                match is_refused && self.pool.give_back(ready, &self.options).is_ok() {
                    true => Err(ObtainError::Retry(refused(HEADER_BYTES as u64, error))),
                    false => Err(ObtainError::Poison(error)),
                }
            }
        }
    }

    /// Makes this segment the head: the next group goes into it.
    fn enter(&self, state: &mut State, (header, cuts): (SegmentHeader, Cuts), ready: Ready) {
        let segment = Arc::new(Segment::new(header));
        segment.adopt(&ready.file);
        lock(&self.writer).enter(ready.file, ready.asks);
        let mut segments = lock(&self.segments);
        segments.cuts = cuts;
        match header.predecessor {
            Some(end) => {
                // After a cut the log may end in a segment before the head.
                let keep =
                    segments.links.partition_point(|link| link.segment.number() <= end.segment);
                let cut_off: Vec<_> =
                    segments.links.drain(keep..).map(|link| link.segment).collect();
                segments.obsolete.extend(cut_off);
                segments.push(segment, end.byte);
            }
            None => {
                let all: Vec<_> = segments.links.drain(..).map(|link| link.segment).collect();
                segments.obsolete.extend(all);
                segments.first_live = header.first_live;
                segments.links.push(Link { segment, end: None });
            }
        }
        drop(segments);
        state.enter_segment(header);
        // Not earlier: the size of the next file depends on the segment in use.
        state.wanted.files = true;
        self.preparer.notify_one();
    }
}
