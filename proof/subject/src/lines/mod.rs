//! The lines of any command: what one program has said is durable, and what another one finds.
//!
//! *Owns*: the words of the judge of lines: what a program may promise, and the clauses by name.
//! *May not touch*: what each clause asks (`past.rs`, `row.rs`, `keys.rs`); processes and
//! directories.
//!
//! It is a [`crate::Past`] without a [`crate::Subject`]: nobody here draws what such a program
//! does, or opens what it keeps. A driver starts it, hears it ([`heard::Heard`]) and crashes it.
//!
//! An item is a call of a caller of its own, numbered from the writer's start. It has begun when
//! the writer has said that it tries it, or is known to say it next; it has ended when it was
//! acknowledged.

use std::collections::HashSet;
use std::fmt::{self, Display, Formatter};
use std::time::Duration;

use crate::Outcome;

pub mod heard;
mod keys;
#[cfg(test)]
mod liars;
pub mod past;
mod row;

/// The reader shows what is there.
pub const READS: &str = "reads";
/// A writer goes on where another was crashed.
pub const CONTINUES: &str = "continues";
/// What an earlier reading has shown is there, in its place.
pub const SHOWN: &str = "shown";
/// What was acknowledged is there, in its place.
pub const LOST: &str = "lost";
/// Of what may be lost only the end is: nothing is behind a hole.
pub const MIDDLE: &str = "middle";
/// Where the writer's next line belongs is that line, or none.
pub const NEXT: &str = "next";
/// What is there was tried.
pub const TRIED: &str = "tried";
/// Nothing is there twice.
pub const TWICE: &str = "twice";
/// There are no more lines than can have been in flight.
pub const ENDS: &str = "ends";

pub const ALL: &[&str] = &[READS, CONTINUES, SHOWN, LOST, MIDDLE, NEXT, TRIED, TWICE, ENDS];

/// A line, without its end.
pub type Line = Vec<u8>;

/// What a program promises of the items that it acknowledges.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Promise {
    /// All are there, in one order.
    #[default]
    Order,
    /// The same, but a crash may take the end of them: what was acknowledged less than `may_go`
    /// before it.
    Prefix { may_go: Duration },
    /// All are there, in any order; several clients write at the same time.
    Set,
    /// Each key has the version that was acknowledged last, or one that was tried since. One client
    /// at a time writes a key.
    Map,
}

impl Display for Promise {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Order => f.write_str("all lines, in one order"),
            Self::Prefix { may_go } => {
                write!(f, "lines in one order, of which the last {may_go:?} may go")
            }
            Self::Set => f.write_str("all items, in any order"),
            Self::Map => f.write_str("the newest version of each key"),
        }
    }
}

/// What came of an item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Told {
    /// It was acknowledged, so long after the writer's start.
    Done(Duration),
    /// The writer has ended by itself, with this error.
    Failed(String),
}

impl crate::Told for Told {
    fn outcome(&self) -> Outcome {
        match self {
            Self::Done(_) => Outcome::Done,
            Self::Failed(_) => Outcome::Poisoned,
        }
    }
}

/// What a reader has printed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Shown {
    lines: Vec<Line>,
    seen: HashSet<Line>,
    bytes: usize,
    /// The first line that was there before.
    twice: Option<usize>,
    /// Why it failed.
    pub failed: Option<String>,
}

impl Shown {
    pub fn push(&mut self, line: Line) {
        self.bytes += line.len();
        if !self.seen.insert(line.clone()) {
            self.twice.get_or_insert(self.lines.len());
        }
        self.lines.push(line);
    }

    pub fn lines(&self) -> &[Line] {
        &self.lines
    }
}

impl crate::Shown for Shown {
    fn brief(&self) -> String {
        format!("{} lines of {} bytes", self.lines.len(), self.bytes)
    }

    fn is_corrupt(&self) -> bool {
        false
    }

    fn is_failed(&self) -> bool {
        self.failed.is_some()
    }
}

/// The beginning of a line, for a message.
fn words(line: &[u8]) -> String {
    const MOST: usize = 60;
    let text = String::from_utf8_lossy(&line[..line.len().min(MOST)]).into_owned();
    if line.len() > MOST {
        format!("{text:?}... ({} bytes)", line.len())
    } else {
        format!("{text:?}")
    }
}
