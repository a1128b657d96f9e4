//! What the writer reports to the witness, line by line, and what the witness knows from it.
//!
//! *Owns*: the lines on the pipe, and their sum. *May not touch*: logs.
//!
//! A line is short enough for one atomic write to a pipe, so a kill leaves whole lines.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::record::Id;

/// One line of a writer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Told {
    /// The log is open.
    Open,
    /// This many records of a thread are about to be appended, from `number` on.
    Intends {
        /// The thread.
        thread: u8,
        /// The first of them.
        number: u32,
        /// How many.
        count: u32,
        /// They are one batch: all or none.
        is_batch: bool,
    },
    /// A record was acknowledged, and with it all before it.
    Acknowledged {
        /// The thread.
        thread: u8,
        /// The record; of a batch its last.
        number: u32,
        /// Its LSN.
        lsn: u64,
    },
    /// A thread's records before `next` were acknowledged by a `sync`, which returned `lsn`.
    Synced {
        /// The thread.
        thread: u8,
        /// The first of its records that may be missing.
        next: u32,
        /// What `sync` returned.
        lsn: u64,
    },
    /// `truncate_before` is about to be called.
    GivesUp(u64),
    /// `truncate_before` has returned.
    GaveUp(u64),
    /// All threads have ended, and the log is about to be closed.
    Closing,
    /// `close` has returned.
    Closed,
    /// Something failed that must not.
    Failed(String),
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Told::Open => f.write_str("open"),
            Told::Intends { thread, number, count, is_batch } => {
                write!(f, "intends {thread} {number} {count} {}", u8::from(*is_batch))
            }
            Told::Acknowledged { thread, number, lsn } => {
                write!(f, "acknowledged {thread} {number} {lsn}")
            }
            Told::Synced { thread, next, lsn } => write!(f, "synced {thread} {next} {lsn}"),
            Told::GivesUp(lsn) => write!(f, "gives-up {lsn}"),
            Told::GaveUp(lsn) => write!(f, "gave-up {lsn}"),
            Told::Closing => f.write_str("closing"),
            Told::Closed => f.write_str("closed"),
            Told::Failed(why) => write!(f, "failed {}", why.replace('\n', " ")),
        }
    }
}

impl Told {
    /// Parses a line; `None` if it is not a line of a writer.
    pub fn parse(line: &str) -> Option<Self> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        if word == "failed" {
            return Some(Told::Failed(rest.to_owned()));
        }
        let numbers = rest.split_ascii_whitespace().map(|number| number.parse::<u64>().ok());
        let numbers: Vec<u64> = numbers.collect::<Option<_>>()?;
        let thread = |number: u64| u8::try_from(number).ok();
        let small = |number: u64| u32::try_from(number).ok();
        Some(match (word, &numbers[..]) {
            ("open", []) => Told::Open,
            ("intends", &[of, number, count, is_batch]) => Told::Intends {
                thread: thread(of)?,
                number: small(number)?,
                count: small(count)?,
                is_batch: is_batch == 1,
            },
            ("acknowledged", &[of, number, lsn]) => {
                Told::Acknowledged { thread: thread(of)?, number: small(number)?, lsn }
            }
            ("synced", &[of, next, lsn]) => {
                Told::Synced { thread: thread(of)?, next: small(next)?, lsn }
            }
            ("gives-up", &[lsn]) => Told::GivesUp(lsn),
            ("gave-up", &[lsn]) => Told::GaveUp(lsn),
            ("closing", []) => Told::Closing,
            ("closed", []) => Told::Closed,
            _ => return None,
        })
    }
}

/// What one thread has reported.
#[derive(Debug, Clone, Default)]
pub(super) struct ThreadReport {
    /// Records before this one were announced.
    pub(super) intended: u32,
    /// Records before this one were acknowledged.
    pub(super) acknowledged: u32,
    /// Records that are in a batch with the one before them.
    pub(super) inside: BTreeSet<u32>,
}

/// Everything that a writer has reported before it was killed.
#[derive(Debug, Clone, Default)]
pub(super) struct Report {
    pub(super) threads: BTreeMap<u8, ThreadReport>,
    /// Acknowledged records by LSN.
    pub(super) acknowledged: BTreeMap<u64, Id>,
    /// Acknowledgements, those of `sync` included.
    pub(super) acknowledgements: u64,
    /// Up to here every LSN was acknowledged.
    pub(super) durable: u64,
    /// Everything before this was truncated.
    pub(super) first: u64,
    /// Everything before this may have been truncated.
    pub(super) first_perhaps: Option<u64>,
    pub(super) is_open: bool,
    pub(super) is_closing: bool,
    pub(super) is_closed: bool,
    pub(super) failed: Option<String>,
}

impl Report {
    /// Adds a line of the writer of `round`.
    pub(super) fn add(&mut self, round: u32, told: &Told) {
        match *told {
            Told::Open => self.is_open = true,
            Told::Intends { thread, number, count, is_batch } => {
                let report = self.threads.entry(thread).or_default();
                report.intended = report.intended.max(number + count);
                if is_batch {
                    report.inside.extend(number + 1..number + count);
                }
            }
            Told::Acknowledged { thread, number, lsn } => {
                self.acknowledged.insert(lsn, Id { round, thread, number });
                self.is_durable(thread, number + 1, lsn);
            }
            Told::Synced { thread, next, lsn } => self.is_durable(thread, next, lsn),
            Told::GivesUp(lsn) => self.first_perhaps = Some(lsn),
            Told::GaveUp(lsn) => (self.first, self.first_perhaps) = (lsn, None),
            Told::Closing => self.is_closing = true,
            Told::Closed => self.is_closed = true,
            Told::Failed(ref why) => self.failed = Some(why.clone()),
        }
    }

    fn is_durable(&mut self, thread: u8, next: u32, lsn: u64) {
        let report = self.threads.entry(thread).or_default();
        report.acknowledged = report.acknowledged.max(next);
        self.durable = self.durable.max(lsn);
        self.acknowledgements += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_comes_back_and_nothing_else_is_taken_for_one() {
        for told in [
            Told::Open,
            Told::Intends { thread: 7, number: 3, count: 4, is_batch: true },
            Told::Intends { thread: 0, number: u32::MAX, count: 1, is_batch: false },
            Told::Acknowledged { thread: 1, number: 2, lsn: u64::MAX },
            Told::Synced { thread: 1, next: 2, lsn: 0 },
            Told::GivesUp(4),
            Told::GaveUp(5),
            Told::Closing,
            Told::Closed,
            Told::Failed("no room: 3 bytes".into()),
        ] {
            assert_eq!(Told::parse(&told.to_string()), Some(told.clone()), "{told}");
        }
        for line in
            ["", "opened", "open 1", "acknowledged 1 2", "acknowledged 256 2 3", "intends 1 2 x 0"]
        {
            assert_eq!(Told::parse(line), None, "{line}");
        }
    }
}
