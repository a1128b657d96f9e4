//! Judging states of a recording again, from its file.
//!
//! *Owns*: whose judge a recording needs. *May not touch*: how it judges.

use std::ops::RangeInclusive;

use crate::in_use::judging::Recorded as OfLog;
use crate::kernel::machine::FsKind;
use crate::kernel::recording::Recording;
use crate::medium::State;
use crate::strategies::plain::Trial;
use crate::strategies::{left, plain};

#[derive(Debug)]
pub enum Recorded {
    /// A history of a log.
    Log(Box<OfLog>, FsKind),
    /// A plain way of writing, and the first and last entry of its steps.
    Plain(Trial, RangeInclusive<usize>),
}

impl Recorded {
    pub fn of(recording: &Recording) -> Result<Self, String> {
        let head = recording.head().unwrap_or_default();
        if !head.starts_with(plain::HEAD) {
            let log = OfLog::of(recording)?;
            let kind = log.judging.usage.kind.ok_or("it does not name the file system")?;
            return Ok(Self::Log(Box::new(log), kind));
        }
        let lines = recording.lines();
        let (first, last) = lines.first().zip(lines.last()).ok_or("the writer said nothing")?;
        Ok(Self::Plain(head.parse()?, *first..=*last))
    }

    pub fn kind(&self) -> FsKind {
        match self {
            Self::Log(_, kind) => *kind,
            Self::Plain(trial, _) => trial.kind,
        }
    }

    /// The cuts that can be judged.
    pub fn range(&self) -> RangeInclusive<usize> {
        match self {
            Self::Log(log, _) => log.range.clone(),
            Self::Plain(_, range) => range.clone(),
        }
    }

    pub fn failed(&self) -> Option<&str> {
        match self {
            Self::Log(log, _) => log.failed.as_deref(),
            Self::Plain(..) => None,
        }
    }

    pub fn judge(&mut self, state: &State<'_>) -> Result<(), String> {
        match self {
            Self::Log(log, _) => log.judging.judge(state),
            Self::Plain(trial, _) => {
                let left = left(trial, state)?;
                if left.missing() > 0 {
                    return Err(left.told());
                }
                left.hole.map_or(Ok(()), |hole| Err(format!("a hole: {hole}")))
            }
        }
    }
}
