//! The marks of a cut: what it leaves in older segments, so that the loss of the segment that it
//! has begun is noticed.
//!
//! *Owns*: which segments get a mark, and its order among the steps of a cut. *May not touch*: the
//! bytes of a mark (`inkstone_format::CutMark`); what an opening makes of one
//! (`recovery/headers.rs`).
//!
//! A mark says that a newer segment's header is durable, so it is written after that. It is durable
//! before the epoch group of the cut, so before the cut is acknowledged and before any record that
//! takes the place of another. A crash in between leaves marks out, and the next opening writes
//! them before its own epoch group.
//!
//! Every segment gets one from the one that was cut to the old head: whichever of them is found to
//! be the newest has it, in whatever order their files are given back. No mark is written into a
//! file that somebody else has a share in: that is a backup.

use inkstone_format::limits::{HEADER_BYTES, MARK_BLOCK_BYTES};
use inkstone_format::{CutMark, Roll, SegmentHeader};
use inkstone_io::{AlignedBuf, file_bytes_max};

use crate::commit::shared::Shared;
use crate::commit::turn::HeldTurn;
use crate::commit::writer::Failed;
use crate::error::Result;
use crate::event::Event;
use crate::names;
use crate::recovery::headers::Headers;
use crate::segment::listing::Listing;
use crate::segment::pool::open_for_groups;
use crate::sync::lock;

impl HeldTurn<'_> {
    /// Leaves the marks of the cut that has begun the head in these older segments, durably. An
    /// event names each segment that can have none.
    ///
    /// # Errors
    /// The poison.
    pub(super) fn leave_marks(&mut self, older: &[SegmentHeader]) -> Result<()> {
        let shared = self.shared;
        let (head, cuts) = (shared.head_header(), lock(&shared.segments).cuts);
        for header in older {
            match self.unlocked(|| shared.leave_mark(header, &head)) {
                Ok(None) => {}
                Ok(Some(why)) => self.events.push(Event::Fallback {
                    what: format!(
                        "segment {} got no mark of the cut after LSN {}, so the loss of a newer \
                         segment's file may not be noticed: {why}",
                        header.number,
                        cuts.last_kept().unwrap_or_default()
                    ),
                }),
                Err(error) => return Err(self.poison(error)),
            }
        }
        Ok(())
    }

    /// Leaves the marks that a crash may have left out. Only the segments that the cut has ended,
    /// and those that it has removed and whose files are still there, can lack one.
    ///
    /// # Errors
    /// The poison.
    pub(crate) fn leave_missing_marks(&mut self, listing: &Listing) -> Result<()> {
        let shared = self.shared;
        let head = shared.head_header();
        if head.roll == Roll::Full || head.cuts == 0 {
            return Ok(());
        }
        let from = head.predecessor.map(|end| end.segment);
        let numbers: Vec<_> = listing
            .segments
            .iter()
            .copied()
            .filter(|number| from.is_none_or(|from| *number >= from) && *number < head.number)
            .collect();
        match self.unlocked(|| Headers::read(&shared.directory, &shared.options, &numbers)) {
            Ok(Headers { files, .. }) => {
                let own = files.iter().filter_map(|file| file.own(head.log).copied());
                self.leave_marks(&own.collect::<Vec<_>>())
            }
            // A file that cannot be read is no reason to refuse the log.
            Err(error) => {
                let what = format!("no older segment got a mark of the last cut: {error}");
                self.events.push(Event::Fallback { what });
                Ok(())
            }
        }
    }
}

impl Shared {
    /// Leaves the mark of the cut that has begun `head` in an older segment, unless it is there;
    /// or says why not.
    ///
    /// # Errors
    /// A write or a sync failed.
    fn leave_mark(&self, older: &SegmentHeader, head: &SegmentHeader) -> Result<Option<String>> {
        let name = names::segment(older.number);
        let file = match self.directory.open(&name, &open_for_groups(&self.options)) {
            Ok(file) => file,
            Err(error) => return Ok(Some(error.to_string())),
        };
        let identity = older.identity();
        let mut block = AlignedBuf::zeroed(MARK_BLOCK_BYTES);
        match file.read_at(&mut block, older.marks_at()) {
            Ok(MARK_BLOCK_BYTES) => {}
            Ok(_) => return Ok(Some("its file is too short".into())),
            Err(error) => return Ok(Some(error.to_string())),
        }
        if CutMark::read(&identity, &block).is_some_and(|mark| mark.cuts >= head.cuts) {
            return Ok(None);
        }
        match file.facts() {
            Ok(facts) if facts.hard_links == 1 && !facts.has_shared_extents => {}
            Ok(_) => return Ok(Some("another file has a share in its blocks".into())),
            Err(error) => return Ok(Some(error.to_string())),
        }
        // The mark lies in the last block. A write beyond the limit raises a signal that ends the
        // process, and the next opening would do the same.
        if file_bytes_max() < older.segment_bytes {
            let why = "it is larger than this process may make a file (`ulimit -f`)";
            return Ok(Some(why.into()));
        }
        let end = head.predecessor.filter(|end| end.segment == older.number);
        let mark = CutMark {
            cuts: head.cuts,
            successor: head.number,
            end: end.map_or(HEADER_BYTES as u64, |end| end.byte),
            epoch: head.epoch,
        };
        mark.write(&identity, &mut block);
        let written = lock(&self.writer).block(&file, &block, older.marks_at());
        match written.result {
            Err(failed) if failed.is_refused() => Ok(Some(failed.into_error().to_string())),
            result => result.map(|()| None).map_err(Failed::into_error),
        }
    }
}
