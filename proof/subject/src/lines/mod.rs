//! The lines of any command: what one program has said is durable, and what another one finds.
//!
//! *Owns*: the words of the judge of lines, and its clauses by name. *May not touch*: what each
//! asks (`past.rs`); processes and directories.
//!
//! It is a [`crate::Past`] without a [`crate::Subject`]: nobody here draws what such a program
//! does, or opens what it keeps. A driver starts it, hears it and crashes it.
//!
//! A line is a call of a caller of its own, numbered from the writer's start: it has begun when it
//! is known that the writer says it next, and has ended when it was said.

use crate::Outcome;

#[cfg(test)]
mod liars;
pub mod past;

/// The reader shows what is there.
pub const READS: &str = "reads";
/// A writer goes on where another was crashed.
pub const CONTINUES: &str = "continues";
/// What an earlier reading has shown is there, in its place.
pub const SHOWN: &str = "shown";
/// What was acknowledged is there, in its place.
pub const LOST: &str = "lost";
/// Where the writer's next line belongs is that line, or none.
pub const NEXT: &str = "next";
/// No line is there twice.
pub const TWICE: &str = "twice";
/// There are no more lines than can have been in flight.
pub const ENDS: &str = "ends";

pub const ALL: &[&str] = &[READS, CONTINUES, SHOWN, LOST, NEXT, TWICE, ENDS];

/// A line, without its end.
pub type Line = Vec<u8>;

/// What came of a line that the writer was to say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Told {
    /// It was said.
    Done,
    /// The writer has ended by itself, with this error.
    Failed(String),
}

impl crate::Told for Told {
    fn outcome(&self) -> Outcome {
        match self {
            Self::Done => Outcome::Done,
            Self::Failed(_) => Outcome::Poisoned,
        }
    }
}

/// What a reader has printed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Shown {
    lines: Vec<Line>,
    bytes: usize,
    /// Why it failed.
    pub failed: Option<String>,
}

impl Shown {
    pub fn push(&mut self, line: Line) {
        self.bytes += line.len();
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
