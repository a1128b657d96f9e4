//! What must be found after a crash and what may be, for what is no subject yet (`proof/subject`).
//!
//! *Owns*: the rule, for records in a row ([`Must`]). *May not touch*: logs, disks, how something
//! came to be found.
//!
//! The rule is always the same. What was acknowledged or shown must be there, in order, whole,
//! once. What was begun may be there. Nothing else may be.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};
use std::sync::Arc;

/// What must be found of a row of records, each with a number: an LSN, or a line.
#[derive(Debug, Clone)]
pub struct Must<R> {
    /// What is in the row wherever it is there, without a gap.
    pub records: Arc<[R]>,
    /// The number of the first of them.
    pub from: u64,
    /// What else is known of single numbers.
    pub told: BTreeMap<u64, R>,
    /// Up to here every record must be there.
    pub at_least: u64,
    /// No record is behind this one.
    pub at_most: u64,
    /// The row begins at one of these: a truncation of its front is in flight if there are several.
    pub firsts: Vec<u64>,
}

/// How the ends of a row that was found break the rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Broken {
    /// It begins at another number than it may.
    First {
        first: u64,
        may: Vec<u64>,
    },
    /// It begins behind its end.
    NoRow {
        first: u64,
        last: u64,
    },
    Lost {
        at_least: u64,
        last: u64,
    },
    /// It ends behind all that was begun.
    Beyond {
        at_most: u64,
        last: u64,
    },
}

impl Display for Broken {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::First { first, may } => {
                let may: Vec<_> = may.iter().map(u64::to_string).collect();
                write!(f, "the first LSN is {first}; it may be {}", may.join(" or "))
            }
            Self::NoRow { first, last } => write!(f, "the first LSN is {first}, the last {last}"),
            Self::Lost { at_least, last } => {
                write!(f, "LSN {at_least} was acknowledged, but the last is {last}")
            }
            Self::Beyond { at_most, last } => {
                write!(f, "LSN {at_most} was appended last, but the last is {last}")
            }
        }
    }
}

impl From<Broken> for String {
    fn from(broken: Broken) -> Self {
        broken.to_string()
    }
}

impl<R> Must<R> {
    /// Of a row from number 1 on, whose every record is known, and certain up to `at_least`.
    pub fn of(records: Arc<[R]>, at_least: u64) -> Self {
        let at_most = records.len() as u64;
        let told = BTreeMap::new();
        Self { records, from: 1, told, at_least, at_most, firsts: vec![1] }
    }

    /// What this number holds, where that is known.
    pub fn at(&self, number: u64) -> Option<&R> {
        let here = number.checked_sub(self.from).and_then(|at| self.records.get(at as usize));
        here.or_else(|| self.told.get(&number))
    }

    /// Whether a row may begin and end there.
    ///
    /// # Errors
    /// How it breaks the rule.
    pub fn ends(&self, first: u64, last: u64) -> Result<(), Broken> {
        if !self.firsts.contains(&first) {
            return Err(Broken::First { first, may: self.firsts.clone() });
        }
        if first > last + 1 {
            return Err(Broken::NoRow { first, last });
        }
        if last < self.at_least {
            return Err(Broken::Lost { at_least: self.at_least, last });
        }
        if last > self.at_most {
            return Err(Broken::Beyond { at_most: self.at_most, last });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_acknowledged_must_be_there_and_what_was_begun_may() {
        let row: Arc<[u32]> = [7, 8, 9, 10].into();
        let must = Must { firsts: vec![1, 2], ..Must::of(row, 2) };
        for (first, last, how) in [
            (1, 2, None),
            (2, 4, None),
            (1, 1, Some(Broken::Lost { at_least: 2, last: 1 })),
            (1, 3, None),
            (1, 5, Some(Broken::Beyond { at_most: 4, last: 5 })),
            (3, 4, Some(Broken::First { first: 3, may: vec![1, 2] })),
            (2, 0, Some(Broken::NoRow { first: 2, last: 0 })),
        ] {
            assert_eq!(must.ends(first, last).err(), how, "{first}..={last}");
        }
    }
}
