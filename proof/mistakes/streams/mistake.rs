//! The mistakes that this copy of the streams can make, to show that their model catches them.
//!
//! *Owns*: their names and what each does. *May not touch*: anything; the code that makes a mistake
//! asks for it. The crate that users have is without this file and without that code:
//! `.ci/mistaken` puts both into a copy (docs/mistakes.md).

use std::fmt;

/// A mistake that a log with streams could make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mistake {
    /// The front of the log goes before the move of what lived there is durable.
    SourceRemovedEarly,
    /// A reader is led to the new place of a record before the move is durable.
    IndexBeforeDurable,
    /// What lies at the place that a directory names is taken for the record.
    DirectoryBelieved,
    /// A page of a directory is full, and the next one leaves a record out.
    DirectoryLeavesOut,
    /// A record is moved although it was truncated meanwhile.
    TruncatedIsMoved,
    /// The notes of a batch are written after its records, in a record of their own.
    NoteApart,
    /// An opening passes over the removal of a stream before it knows all streams.
    RemovedComesBack,
    /// A piece of the table ends, and the next one leaves a stream out.
    TableForgets,
    /// A table counts as complete when it begins.
    TableBelievedEarly,
    /// A follower looks for its record, lets go of the lock, and then registers to be woken.
    FollowerSleepsLate,
    /// A follower waits for its record alone, and not for the end of the log.
    EndNotAwaited,
    /// A truncation at the end of a stream is not told to its cursors.
    CutNotMarked,
    /// The front of the log goes although an opening begins there.
    FrontBehindOpening,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

thread_local! {
    /// What streams of this thread make: those of the model have no other thread.
    static MADE: std::cell::Cell<Option<Mistake>> = const { std::cell::Cell::new(None) };
}

/// From now on, streams of this thread make this mistake, or none.
pub fn set(mistake: Option<Mistake>) {
    MADE.set(mistake);
}

/// Whether streams of this thread make it.
pub(crate) fn makes(mistake: Mistake) -> bool {
    MADE.get() == Some(mistake)
}
