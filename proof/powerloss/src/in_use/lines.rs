//! What the process that uses the log says: an event a line.
//!
//! *Owns*: the lines, and parsing them. *May not touch*: what they mean for a log.
//!
//! A line is short enough for one atomic write to a pipe, so a kill leaves whole lines.

use inkstone_subject::log::words::{Call, Ends, How, Told};
use inkstone_subject::{Broken, Outcome, Told as _, Who};
use serde::{Deserialize, Serialize};

/// A promise that the process itself has found broken: its clause, and how.
pub(crate) type Wrong = Option<(String, String)>;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Line {
    /// The log is about to be opened.
    Opening,
    /// It is open, and was read.
    Opened(Ends, Wrong),
    /// It does not open.
    NotOpened(Wrong),
    /// A call is about to be made.
    Began(Who, Call),
    Ended(Who, Told),
    /// The log was read at the end of its use.
    Read(Wrong),
    /// The log is closed, and no call is in progress.
    Rests,
}

pub(crate) fn wrong(judged: Result<(), Broken>) -> Wrong {
    judged.err().map(|broken| (broken.clause.to_owned(), broken.what))
}

impl Line {
    /// As text: JSON, which has no line breaks.
    pub(crate) fn to_text(&self) -> String {
        serde_json::to_string(self).expect("it has neither maps nor floats")
    }

    pub(crate) fn parse(line: &str) -> Result<Self, String> {
        let wrong = |why| format!("{line:?} is not a line of the process that uses the log: {why}");
        serde_json::from_str(line).map_err(wrong)
    }

    pub(crate) fn is_done(&self) -> bool {
        matches!(self, Self::Ended(_, told) if told.outcome() == Outcome::Done)
    }
}

/// Whether a call that is done is durable.
pub(crate) fn acknowledges(call: &Call) -> bool {
    match call {
        Call::Append { how, .. } => *how != How::LetGo,
        Call::Sync | Call::Prepare => true,
        Call::TruncateBefore(_) | Call::TruncateAfter(_) | Call::Close => false,
    }
}
