//! What the process that uses the log prints: a line before each call and a line after it.
//!
//! *Owns*: the lines, and parsing them. *May not touch*: what they mean for a log.
//!
//! A line is short enough for one atomic write to a pipe, so a kill leaves whole lines.

use inkstone::Error;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Call {
    Open,
    /// `append_durable`.
    Append,
    /// An append, or a batch, that is not waited for yet.
    Gather,
    /// The wait for it.
    Wait,
    Sync,
    TruncateBefore,
    /// Reading all durable records.
    Read,
    /// Closing or dropping the log.
    Close,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Class {
    Poisoned,
    /// The call can be retried when there is room.
    NoRoom,
    /// The operating system refused something.
    Io,
    Corrupt,
    Other,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Refusal {
    pub(crate) class: Class,
    /// What was durable, if the log is poisoned.
    pub(crate) durable: u64,
    /// The kernel's error number; 0: none.
    pub(crate) errno: i32,
    /// The operation that failed first.
    pub(crate) operation: String,
    pub(crate) path: String,
    /// The first cause in words.
    pub(crate) text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Made {
    /// The writer: a thread of one life of the process.
    pub(crate) writer: u32,
    pub(crate) call: Call,
    /// The number of the record, or of the first of a batch; for a sync that of the thread's next
    /// record, for a truncation the first LSN, else the life.
    pub(crate) number: u64,
    /// Records of a batch; else 1.
    pub(crate) count: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Line {
    /// The call is about to be made.
    Begin(Made),
    /// It succeeded, with this LSN: that of the last record, or the last durable one.
    Done(Made, u64),
    Failed(Made, Refusal),
    /// Opened: the first and the last LSN that are shown.
    Shown(u64, u64),
    /// No call is in progress.
    Rests,
}

impl Refusal {
    pub(crate) fn of(error: &Error) -> Self {
        let (class, durable, cause) = match error {
            Error::Poisoned(poison) => (Class::Poisoned, poison.durable().get(), poison.cause()),
            Error::NoRoom { .. } => (Class::NoRoom, 0, Some(error)),
            Error::Io(_) => (Class::Io, 0, Some(error)),
            Error::Corrupt(_) => (Class::Corrupt, 0, Some(error)),
            _ => (Class::Other, 0, Some(error)),
        };
        let io = match cause {
            Some(Error::Io(io) | Error::NoRoom { cause: io, .. }) => Some(io),
            _ => None,
        };
        Self {
            class,
            durable,
            errno: io.and_then(inkstone_io::Error::raw_os_error).unwrap_or(0),
            operation: io.map_or_else(String::new, |io| io.operation().to_string()),
            path: io.map_or_else(String::new, |io| io.path().display().to_string()),
            text: cause.unwrap_or(error).to_string(),
        }
    }
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

    pub(crate) fn is_acknowledgement(&self) -> bool {
        matches!(self, Self::Done(Made { call: Call::Append | Call::Wait, .. }, _))
    }
}
