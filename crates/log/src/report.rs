//! What an opening found and did.
//!
//! *Owns*: the report. *May not touch*: files.

use std::fmt;

use inkstone_format::{Epoch, Lsn, Position, Verdict};

/// What an opening found and did. Nothing that was promised is missing: otherwise the opening would
/// have failed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Recovery {
    /// The log did not exist and was created.
    pub created: bool,
    /// The log was closed cleanly, and nothing was written after that.
    pub clean: bool,
    /// [`Verdict::End`]: nothing follows the end of the log. [`Verdict::Torn`]: a crash left part
    /// of a commit there, which was never acknowledged and is not part of the log.
    pub verdict: Verdict,
    /// The row of the table in docs/format.md that gave the verdict.
    pub row: &'static str,
    /// Where the log ends.
    pub end: Option<Position>,
    /// The first record that is left ([`Lsn::FIRST`] if none was truncated).
    pub first: Lsn,
    /// The last record; one below `first` if there is none.
    pub last: Lsn,
    /// The epoch of this opening; for a read-only opening, that of the last opening for writing.
    pub epoch: Option<Epoch>,
    /// The number of segments of the log.
    pub segments: usize,
    /// Bytes that were read to find the end.
    pub bytes_read: u64,
    /// Files of earlier openings that are not part of the log; they were removed, or kept for their
    /// blocks.
    pub leftovers: usize,
    /// The disk had no room for this opening's first group, on a file system where an overwrite
    /// needs room. All records can be read. Until there is room, appending and truncating return
    /// [`Error::NoRoom`](crate::Error::NoRoom), or the poison if a sync failed.
    pub waits_for_room: bool,
    /// Records are lost, with LSNs up to this one ([`Error::Lost`](crate::Error::Lost)); `None` if
    /// the log has no gap behind its first record.
    pub lost_to: Option<Lsn>,
    /// Of a reader: what it could not make sure of, a sentence each. It reads on a disk that takes
    /// no flush any more, and where there are no locks; then a power loss may still take some of
    /// what it shows, or a writer may be at work unseen. Empty for a writer, whose opening fails
    /// there.
    pub doubts: Vec<String>,
}

impl fmt::Display for Recovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.created {
            return write!(f, "created");
        }
        let last = match self.last {
            Lsn::ZERO => "before the first record".to_owned(),
            last => format!("at LSN {last}"),
        };
        match self.verdict {
            Verdict::Torn => write!(f, "ends {last} with a torn tail")?,
            _ if self.clean => write!(f, "closed cleanly {last}")?,
            _ => write!(f, "ends {last}")?,
        }
        let many = if self.segments == 1 { "" } else { "s" };
        write!(f, ", {} segment{many} from LSN {}", self.segments, self.first)?;
        if self.waits_for_room { write!(f, "; no room to append") } else { Ok(()) }
    }
}
