//! Reads one segment's file from front to back, past damage.
//!
//! *Owns*: continuing at the next sound group. *May not touch*: whether a stop is damage.

use std::sync::Arc;

use inkstone_format::limits::{ALIGN, GROUP_HEADER_BYTES};
use inkstone_format::{
    Decoder, Evidence, GroupHeader, GroupStart, Place, ScanAhead, SegmentHeader, Stop, Tail,
    explain,
};
use inkstone_io::File;

use crate::error::Result;
use crate::recovery::recover::{READ_BYTES, look_ahead};
use crate::walk::window::{Item, Walk, Window};

/// A segment being read.
pub(crate) struct Strip {
    pub(crate) walk: Walk,
    /// Where reading ends at the latest: at the named end, the end of the segment or the end of its
    /// file.
    pub(crate) to: u64,
    group: Option<GroupStart>,
}

impl Strip {
    /// Begins at the first group; `end` is the end that the next segment's header names.
    pub(crate) fn new(
        file: Arc<dyn File>,
        header: &SegmentHeader,
        end: Option<u64>,
    ) -> Result<Self> {
        let file_bytes = file.len_bytes()?;
        let decoder = Decoder::new(header, file_bytes);
        let decoder = match end {
            Some(end) => decoder.with_end(end),
            None => decoder,
        };
        let to = decoder.limit().min(file_bytes);
        let window = Window::new(file, READ_BYTES.min(header.segment_bytes as usize));
        Ok(Self { walk: Walk::new(window, decoder), to, group: None })
    }

    /// The next step.
    pub(crate) fn step(&mut self) -> Result<Item> {
        let item = self.walk.step()?;
        if let Item::GroupStart(start) = item {
            self.group = Some(start);
        }
        Ok(item)
    }

    /// The group inside which reading stopped; `None` between groups.
    pub(crate) fn group_of(&self, stop: &Stop) -> Option<GroupStart> {
        self.group.filter(|_| stop.place == Place::Inside)
    }

    /// The evidence that durable data follows the stop.
    pub(crate) fn evidence(&mut self, stop: &Stop) -> Result<Evidence> {
        look_ahead(&mut self.walk, stop, self.to)
    }

    /// Explains the stop.
    pub(crate) fn explain(&mut self, stop: &Stop) -> Result<Vec<String>> {
        self.walk.window.load(stop.at, READ_BYTES)?;
        let window = &self.walk.window;
        Ok(explain(self.walk.decoder.identity(), stop, window.bytes(), window.at()).lines)
    }

    /// Moves to the next sound group after a stop and returns its place; `None` if there is none.
    pub(crate) fn go_on(&mut self, stop: &Stop) -> Result<Option<u64>> {
        let id = *self.walk.decoder.identity();
        let from = stop.tail.end + ALIGN as u64;
        let mut scan = ScanAhead::new(&id, stop.tail.epoch, from, self.to);
        let mut found = None;
        while let (Some(at), None) = (scan.wants(), found) {
            self.walk.window.load(at, READ_BYTES)?;
            scan.feed(self.walk.window.bytes(), self.walk.window.at());
            found = scan.evidence().first;
            if scan.wants() == Some(at) {
                break;
            }
        }
        let Some(at) = found else { return Ok(None) };
        self.walk.window.load(at, GROUP_HEADER_BYTES)?;
        let bytes = self.walk.window.bytes().get((at - self.walk.window.at()) as usize..);
        // The file may have been used for something else meanwhile, and be shorter.
        let Some(header) = bytes.and_then(|bytes| GroupHeader::decode(&id, at, bytes)) else {
            return Ok(None);
        };
        let tail = Tail {
            end: at,
            next_lsn: header.first_lsn,
            // Its own: whether it begins an epoch cannot be checked, since the group before it is
            // damaged.
            epoch: header.epoch,
            promise: stop.tail.promise.max(header.promise.lsn),
            closed: false,
            sealed: None,
            ..stop.tail
        };
        self.walk.decoder = self.walk.decoder.clone().from_tail(tail);
        self.group = None;
        Ok(Some(at))
    }
}
