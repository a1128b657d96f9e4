//! What opening a log found and did, for whoever opened it.
//!
//! *Owns*: the report. *May not touch*: files.

use std::fmt;

use inkstone_format::{Epoch, Lsn, Position, Verdict};

/// What opening found, and what it did about it. Nothing that was promised was missing: else opening had failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recovery {
    /// The log did not exist and was created.
    pub created: bool,
    /// The log was closed in order, and nothing came after that.
    pub clean: bool,
    /// [`Verdict::End`]: the log ends where nothing follows. [`Verdict::Torn`]: something follows that was never
    /// acknowledged: a commit that a crash cut. It is not part of the log.
    pub verdict: Verdict,
    /// The row of the table in docs/format.md that said so.
    pub row: &'static str,
    /// Where the log ends.
    pub end: Option<Position>,
    /// The first record that is left ([`Lsn::FIRST`] if none was given up).
    pub first: Lsn,
    /// The last record; one below `first` if there is none.
    pub last: Lsn,
    /// The epoch of this opening; of the last one, when it is read-only.
    pub epoch: Option<Epoch>,
    /// How many segments the log has.
    pub segments: usize,
    /// Bytes of records and frames read to find the end.
    pub bytes_read: u64,
    /// Files of earlier openings that are not part of the log and were taken away or kept for their blocks.
    pub leftovers: usize,
    /// The disk had no room for this opening's first group, where an overwrite needs room. The log shows all that it
    /// holds; appending and truncating say [`crate::Error::NoRoom`], or the poison where a sync failed, until there is room.
    pub waits_for_room: bool,
}

impl fmt::Display for Recovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.created {
            return write!(f, "created");
        }
        match self.verdict {
            Verdict::Torn => write!(f, "torn tail after LSN {} [{}]", self.last, self.row)?,
            _ if self.clean => write!(f, "closed in order at LSN {}", self.last)?,
            _ => write!(f, "ends at LSN {} [{}]", self.last, self.row)?,
        }
        write!(f, ", {} segments from LSN {}", self.segments, self.first)?;
        if self.waits_for_room { write!(f, "; no room to append") } else { Ok(()) }
    }
}
