//! Truncation at both ends.
//!
//! *Owns*: what must be durable before records are truncated, and before their files are used
//! again. *May not touch*: readers; they ask for the number of the last change.

use std::sync::Arc;

use inkstone_format::{Control, Kind, Lsn, Position, Roll};

use crate::change::roll::NextSegment;
use crate::commit::room::or_left_out;
use crate::commit::shared::Shared;
use crate::commit::turn::HeldTurn;
use crate::error::{Error, Result};
use crate::recovery::headers::open_for_reading;
use crate::recovery::recover::damage;
use crate::segment::Link;
use crate::sync::lock;
use crate::walk::window::{Item, Walk, Window};

impl Shared {
    /// Truncates all records before `first`. Durable on return; the files that held only those
    /// records are given back after the turn.
    pub(crate) fn truncate_before(&self, first: Lsn) -> Result<()> {
        drop(self.in_turn(self.lock(), |turn| turn.truncate_before(first))?);
        self.give_files_back()
    }

    /// Makes the records from the next LSN to `last` a gap; durable on return.
    pub(crate) fn lose(&self, last: Lsn) -> Result<()> {
        drop(self.in_turn(self.lock(), |turn| turn.lose(last))?);
        self.give_files_back()
    }

    /// Truncates all records after `last`; durable on return.
    pub(crate) fn truncate_after(&self, last: Lsn) -> Result<()> {
        drop(self.in_turn(self.lock(), |turn| turn.truncate_after(last))?);
        self.give_files_back()
    }
}

impl HeldTurn<'_> {
    fn truncate_before(&mut self, first: Lsn) -> Result<()> {
        let shared = self.shared;
        // Nothing may be appended after the control group: it could not be taken back then
        // (`commit/room.rs`).
        self.set_changing(shared.options.keeps_room);
        self.begin_epoch()?;
        self.write()?;
        if first > self.open_group.next_lsn() {
            return Err(Error::NotYet { lsn: first, durable: self.reserved() });
        }
        if first <= lock(&shared.segments).first_live {
            return Ok(());
        }
        self.control(&Control::TruncateBefore(first))?;
        lock(&shared.segments).truncate_before(first);
        shared.tail.forget_before(first);
        shared.note_change();
        // Instead of the publication of the control group, which came before.
        shared.publish_head(self);
        Ok(())
    }

    fn lose(&mut self, last: Lsn) -> Result<()> {
        self.set_changing(true);
        self.begin_epoch()?;
        self.write()?;
        let (next, most) = (self.open_group.next_lsn(), self.shared.head_header().lost_to);
        if last < next || last > most {
            let why = format!("a gap from LSN {next} to {last} in a log with gaps up to {most}");
            return Err(Error::Invalid(why));
        }
        self.control(&Control::Lost(last))
    }

    fn truncate_after(&mut self, last: Lsn) -> Result<()> {
        self.set_changing(true);
        self.begin_epoch()?;
        self.write()?;
        let reserved = self.reserved();
        if last == reserved {
            return Ok(());
        }
        if last > reserved {
            return Err(Error::NotYet { lsn: last, durable: reserved });
        }
        let shared = self.shared;
        let first_live = lock(&shared.segments).first_live;
        if last.next().is_none_or(|next| next < first_live) {
            return Err(Error::TruncatedBefore { lsn: last, first: first_live });
        }
        let predecessor = match last < first_live {
            true => None,
            false => Some(self.unlocked(|| shared.end_of(last))?),
        };
        // Held until they have their marks: an unread file may be given back at any time.
        let cut: Vec<_> = {
            let segments = lock(&shared.segments);
            let is_cut =
                |link: &&Link| predecessor.is_none_or(|end| link.segment.number() >= end.segment);
            segments.links.iter().filter(is_cut).map(|link| Arc::clone(&link.segment)).collect()
        };
        let previous = self.epoch();
        let next = NextSegment {
            epoch: previous.next().ok_or(Error::UsedUp)?,
            roll: if predecessor.is_some() { Roll::Cut } else { Roll::Begin },
            predecessor,
            first_lsn: last.next().unwrap_or(Lsn::FIRST),
            // As in a new log: who cuts often must not pay for a full segment each time.
            bytes: shared.options.next_segment_bytes(0, 0),
            frame_bytes: 0,
            cut: Some(last),
        };
        self.begin_segment(next)?;
        // The cut is durable and was published. The epoch must be written before any other group,
        // if there is room for it.
        self.set_epoch_due(Some(Control::Epoch { previous: Some(previous), recovered: last }));
        let headers: Vec<_> = cut.iter().map(|segment| segment.header).collect();
        self.leave_marks(&headers)?;
        drop(cut);
        // Without room for it, the epoch is held back as by an opening (`commit/room.rs`).
        or_left_out(self.begin_epoch())
    }
}

impl Shared {
    /// The byte after the frame of a durable record, or of the gap that ends with it.
    fn end_of(&self, lsn: Lsn) -> Result<Position> {
        let (link, first_live) = {
            let segments = lock(&self.segments);
            (segments.find(lsn).cloned(), segments.first_live)
        };
        let Some(link) = link else {
            return Err(Error::TruncatedBefore { lsn, first: first_live });
        };
        let file = link.segment.file(&self.directory, &open_for_reading(&self.options))?;
        let decoder = link.segment.decoder_at(lsn, link.end, &*file)?;
        let mut walk = Walk::new(Window::new(file, 256 << 10), decoder);
        loop {
            match walk.step()? {
                Item::Frame(frame) if frame.kind == Kind::Record && frame.lsn == lsn => {
                    return Ok(Position { segment: link.segment.number(), byte: frame.end });
                }
                Item::Frame(frame) if frame.kind == Kind::Lost && frame.lsn <= lsn => {
                    let after = walk.decoder.mark().lsn.before().unwrap_or(Lsn::ZERO);
                    if after == lsn {
                        return Ok(Position { segment: link.segment.number(), byte: frame.end });
                    }
                    if after > lsn {
                        return Err(inside_a_gap(lsn, frame.lsn, after));
                    }
                }
                Item::Stop(stop) => {
                    return Err(damage(
                        &mut walk,
                        &self.directory,
                        &stop,
                        self.durable(),
                        link.end,
                    )?);
                }
                _ => {}
            }
        }
    }
}

/// A cut names the byte after a frame, and a gap is one frame.
fn inside_a_gap(lsn: Lsn, first: Lsn, last: Lsn) -> Error {
    let before = first.before().unwrap_or(Lsn::ZERO);
    Error::Invalid(format!(
        "truncate_after({lsn}) would keep a part of the records LSN {first} to {last}, all of \
         which are lost: truncate after LSN {before} or {last}"
    ))
}
