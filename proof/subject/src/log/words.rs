//! What is asked of a log, what it answers, and what it shows, written down.
//!
//! *Owns*: these values, and reading a log to its end. *May not touch*: whether they are right
//! (`past.rs`).

use std::fmt::{self, Display, Formatter};

use inkstone::{Error, Log, Lsn, Position, Reader};
use serde::{Deserialize, Serialize};

use super::record::Record;
use crate::Outcome;

/// A call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Call {
    Append {
        records: Vec<Record>,
        how: How,
    },
    /// `sync`: everything appended so far.
    Sync,
    /// One step of the background thread, which prepares files; then a sync.
    Prepare,
    TruncateBefore(u64),
    TruncateAfter(u64),
    Close,
}

impl Call {
    pub fn records(&self) -> &[Record] {
        match self {
            Self::Append { records, .. } => records,
            _ => &[],
        }
    }
}

/// How records are appended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum How {
    Wait,
    LetGo,
    /// `append_batch`, and wait.
    Batch,
    /// One after the other, then one sync.
    Several,
    /// `try_append`, and wait.
    Try,
    /// Wait, and read it by its LSN.
    Probe,
}

impl How {
    pub fn waits(self) -> bool {
        self != Self::LetGo
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// With the first and the last LSN, if there is one.
    Done(Option<(u64, u64)>),
    /// Words of the error; and a `sync` behind it is done.
    Refused(String),
    /// Words of the error, which says that nothing has changed.
    NotDone(String),
    /// Words of the first cause.
    Poisoned(String),
    /// Neither usable nor poisoned.
    Neither(String),
    Corrupt(String),
}

impl Display for Answer {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done(lsns) => write!(f, "{lsns:?}"),
            Self::Refused(why)
            | Self::NotDone(why)
            | Self::Poisoned(why)
            | Self::Neither(why)
            | Self::Corrupt(why) => f.write_str(why),
        }
    }
}

/// What a log says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ends {
    pub first: u64,
    pub last: u64,
    pub durable: u64,
}

impl Ends {
    pub fn of(log: &Log) -> Self {
        // `durable` first: what becomes durable in between does not count as acknowledged.
        let durable = log.durable().get();
        Self { first: log.first().get(), last: log.last().get(), durable }
    }
}

/// The answer to a call, and what the log says of itself then.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Told {
    pub answer: Answer,
    pub ends: Option<Ends>,
    /// A record that was appended just now, read by its LSN. Nobody writes it down.
    #[serde(skip)]
    pub back: Option<Result<Vec<u8>, String>>,
}

impl crate::Told for Told {
    fn outcome(&self) -> Outcome {
        match self.answer {
            Answer::Done(_) => Outcome::Done,
            Answer::Refused(_) | Answer::NotDone(_) => Outcome::Refused,
            Answer::Poisoned(_) | Answer::Neither(_) => Outcome::Poisoned,
            Answer::Corrupt(_) => Outcome::Corrupt,
        }
    }
}

/// What a reader gets that asks for one LSN.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Got {
    /// A record, with its LSN.
    Record(u64, Vec<u8>),
    /// There is none yet.
    Nothing,
    /// This is the first now.
    TruncatedBefore(u64),
    /// This is the last that is left.
    TruncatedAfter(u64),
    /// The log has ended: who waits was shown all.
    Over(String),
    Failed(String),
}

impl Got {
    pub fn of(answer: inkstone::Result<Option<(Lsn, Vec<u8>)>>) -> Self {
        match answer {
            Ok(Some((lsn, bytes))) => Self::Record(lsn.get(), bytes),
            Ok(None) | Err(Error::NotYet { .. }) => Self::Nothing,
            Err(Error::TruncatedBefore { first, .. }) => Self::TruncatedBefore(first.get()),
            Err(Error::TruncatedAfter { last, .. }) => Self::TruncatedAfter(last.get()),
            Err(error) => Self::Failed(error.to_string()),
        }
    }

    /// In words, of a history of so many records.
    pub fn words(&self, numbers: u32) -> String {
        match self {
            Self::Record(lsn, bytes) => format!("{} at {lsn}", Record::named(bytes, numbers)),
            other => format!("{other:?}"),
        }
    }
}

/// Who shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum By {
    /// An opening. `is_clean`: it says that the log was closed, or there was no room to say so.
    Opening {
        is_clean: bool,
    },
    InUse,
    /// A poisoned log, with what every change returns.
    Poisoned {
        cause: String,
        answers: Vec<(&'static str, String)>,
    },
    /// A reader of the files, while the writer says that this much is durable.
    Beside {
        durable: u64,
    },
    /// A salvage of a damaged log, which says that these are lost: first and last.
    Saved {
        lost: Vec<(u64, u64)>,
    },
}

/// What was read of a log.
#[derive(Debug, Clone)]
pub struct Shown {
    pub by: By,
    pub first: u64,
    pub last: u64,
    pub durable: u64,
    /// It was opened.
    pub is_open: bool,
    /// The log says that it is damaged.
    pub corrupt: Option<String>,
    /// Another reason why it does not open or cannot be read.
    pub failed: Option<String>,
    /// The bytes of all records, and of each its LSN and its end.
    bytes: Vec<u8>,
    records: Vec<(u64, usize)>,
    /// Gaps in them, which a salvage has left: first and last.
    pub gaps: Vec<(u64, u64)>,
    /// Records that were read by their LSNs.
    pub again: Vec<(u64, Result<Vec<u8>, String>)>,
    /// Where the log ends, of an opening.
    pub end: Option<Position>,
}

impl Shown {
    pub fn new(by: By, first: u64, last: u64) -> Self {
        Self {
            by,
            first,
            last,
            durable: last,
            is_open: true,
            corrupt: None,
            failed: None,
            bytes: Vec::new(),
            records: Vec::new(),
            gaps: Vec::new(),
            again: Vec::new(),
            end: None,
        }
    }

    /// Of a log that does not open.
    pub fn refused(error: &Error) -> Self {
        let mut shown = Self::new(By::InUse, 1, 0);
        shown.is_open = false;
        shown.fail(format!("the log does not open: {error}"), error);
        shown
    }

    pub fn fail(&mut self, words: String, error: &Error) {
        let place = if error.corruption().is_some() { &mut self.corrupt } else { &mut self.failed };
        place.get_or_insert(words);
    }

    pub fn push(&mut self, lsn: u64, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        self.records.push((lsn, self.bytes.len()));
    }

    pub fn records(&self) -> impl Iterator<Item = (u64, &[u8])> {
        let starts = std::iter::once(0).chain(self.records.iter().map(|(_, end)| *end));
        starts.zip(&self.records).map(|(start, (lsn, end))| (*lsn, &self.bytes[start..*end]))
    }

    pub fn count(&self) -> u64 {
        self.records.len() as u64
    }

    /// Reads a log to its end.
    pub fn read(&mut self, reader: &Reader) {
        // Most logs here are smaller: what they hold is copied once.
        self.bytes.reserve(128 << 10);
        let mut cursor = reader.from(Lsn::new(self.first));
        loop {
            match cursor.next() {
                Ok(Some(record)) => self.push(record.lsn.get(), record.bytes),
                Ok(None) => return,
                // A reader that stays at a gap would never end.
                Err(Error::Lost { first, last })
                    if self.gaps.last().is_none_or(|gap| gap.1 < first.get()) =>
                {
                    self.gaps.push((first.get(), last.get()));
                }
                Err(error) => {
                    let next = cursor.next_lsn();
                    return self.fail(format!("LSN {next} cannot be read: {error}"), &error);
                }
            }
        }
    }

    /// Reads some records by their LSNs, the last among them: every seventh, and no more than ten.
    pub fn read_again(&mut self, reader: &Reader) {
        let step = self.count().div_ceil(10).max(7) as usize;
        for lsn in (self.first..=self.last).rev().step_by(step) {
            let bytes = reader.get(Lsn::new(lsn)).map_err(|error| error.to_string());
            self.again.push((lsn, bytes));
        }
    }
}

impl crate::Shown for Shown {
    fn brief(&self) -> String {
        format!("{}..={}", self.first, self.last)
    }

    fn is_corrupt(&self) -> bool {
        self.corrupt.is_some()
    }

    fn is_failed(&self) -> bool {
        self.failed.is_some() || self.again.iter().any(|(_, bytes)| bytes.is_err())
    }
}
