//! A position in the tail: records read from memory in order.
//!
//! *Owns*: stepping from record to record in the groups that the log keeps in memory. *May not
//! touch*: whether a record may be shown, and where the records are that are not here
//! (`cursor.rs`).
//!
//! The bytes are those from which the groups were written. This process has encoded them, and no
//! disk has had them in between, so no checksum is computed again. Everything else is as in a file:
//! padding and control frames are passed, a batch lies in one group, and a group comes whole.

use inkstone_format::limits::FRAME_HEADER_BYTES;
use inkstone_format::{Lsn, Mark, Skim, Skimmed};

use crate::tail::TailRun;

/// A position in groups that are kept in memory.
#[derive(Debug)]
pub(crate) struct TailWalk {
    /// Held, so that its memory is not used again.
    run: TailRun,
    mark: Mark,
}

impl TailWalk {
    pub(crate) fn new(run: TailRun) -> Self {
        Self { mark: run.from, run }
    }

    /// Walks to the record with this LSN, which is not before its position; `None` if it is not
    /// here yet, or in later groups.
    #[inline]
    pub(crate) fn find(&mut self, lsn: Lsn) -> Option<Skimmed> {
        let (bytes, from) = (self.run.bytes(), self.run.from.at);
        loop {
            match self.mark.skim_own(&self.run.identity, bytes, from) {
                Skim::Record(record) => {
                    let found = self.mark.lsn;
                    self.mark = record.next;
                    if found == lsn {
                        return Some(record);
                    }
                    if found > lsn {
                        // It lies in a gap.
                        return None;
                    }
                }
                Skim::Passed(next) => self.mark = next,
                Skim::NeedBytes(_) => return None,
                Skim::Unsound => {
                    debug_assert!(false, "bytes in memory that are no group: {:?}", self.mark);
                    return None;
                }
            }
        }
    }

    /// The bytes of the record at byte `at`, which was found here.
    #[inline]
    pub(crate) fn payload(&self, at: u64, payload_bytes: usize) -> &[u8] {
        let from = (at - self.run.from.at) as usize + FRAME_HEADER_BYTES;
        &self.run.bytes()[from..from + payload_bytes]
    }

    /// Whether all that will ever come here was read.
    pub(crate) fn is_read(&self) -> bool {
        self.run.is_whole() && (self.mark.at - self.run.from.at) as usize == self.run.bytes().len()
    }
}
