//! What the lines of a program have promised, and the one judge of the lines that are found.
//!
//! *Owns*: the clauses. *May not touch*: processes, directories, how a line came to be known.
//!
//! The rule: first what an earlier reading has shown, then what was acknowledged since, in order,
//! whole, none twice. Lines that were in flight may follow. Nobody knows how many those are, so a
//! bound says when a reader has no end.

use std::collections::HashSet;

use super::{CONTINUES, ENDS, LOST, Line, NEXT, READS, SHOWN, Shown, TWICE, Told};
use crate::{Broken, Lie, Who, clause};

/// So many lines may be in flight,
pub const IN_FLIGHT_LINES: usize = 100_000;
/// of so many bytes.
pub const IN_FLIGHT_BYTES: usize = 64 << 20;

/// See the head of this file.
#[derive(Debug, Clone, Default)]
pub struct Past {
    /// In order: what was shown, and what a writer has said since or is known to say next.
    row: Vec<Line>,
    row_bytes: usize,
    /// So many of them an earlier reading has shown.
    shown: usize,
    /// So many of them were shown or acknowledged.
    certain: usize,
    has_lied: bool,
}

impl Past {
    /// Whether there are more lines than can have been in flight: what follows is not wanted.
    pub fn is_beyond(&self, shown: &Shown) -> bool {
        shown.lines.len() > self.row.len() + IN_FLIGHT_LINES
            || shown.bytes > self.row_bytes + IN_FLIGHT_BYTES
    }

    /// What a line is, by its place: the clause that it can break, and why it must be there.
    fn of(&self, at: usize) -> (&'static str, &'static str) {
        match at {
            _ if at < self.shown => (SHOWN, "an earlier reading showed it"),
            _ if at < self.certain => (LOST, "it was acknowledged"),
            _ => (NEXT, "it was said after the crash"),
        }
    }
}

impl crate::Past for Past {
    type Call = Line;
    type Told = Told;
    type Shown = Shown;

    fn began(&mut self, _: Who, line: &Line) {
        self.row_bytes += line.len();
        self.row.push(line.clone());
    }

    fn ended(&mut self, who: Who, told: &Told, is_excused: bool) -> Result<(), Broken> {
        match told {
            Told::Done => self.certain = self.certain.max(self.shown + who as usize + 1),
            Told::Failed(why) => {
                clause(CONTINUES, is_excused, || format!("the writer could not continue: {why}"))?;
            }
        }
        Ok(())
    }

    fn check(&mut self, shown: &Shown) -> Result<(), Broken> {
        let why = shown.failed.as_deref();
        clause(READS, why.is_none(), || format!("the reader failed: {}", why.unwrap_or_default()))?;
        let count = shown.lines.len();
        for (at, line) in self.row.iter().enumerate() {
            let (name, why) = self.of(at);
            let found = shown.lines.get(at);
            clause(name, found.map_or(name == NEXT, |found| found == line), || {
                let (number, line) = (at + 1, words(line));
                match found.map(|found| words(found)) {
                    Some(found) if name == NEXT => {
                        format!("line {number} is {found}, but the writer's next was {line}")
                    }
                    Some(found) => format!("line {number} is {found} instead of {line}; {why}"),
                    None => format!(
                        "line {number} is missing: {line}; {why}, but only {count} lines are there"
                    ),
                }
            })?;
        }
        let mut seen = HashSet::new();
        let twice = (1..).zip(&shown.lines).find(|(_, line)| !seen.insert(*line));
        clause(TWICE, twice.is_none(), || {
            let (number, line) = twice.map_or((0, String::new()), |(at, line)| (at, words(line)));
            format!("line {number} is there twice: {line}")
        })?;
        clause(ENDS, !self.is_beyond(shown), || {
            let (known, bytes) = (self.row.len(), IN_FLIGHT_BYTES >> 20);
            let line = shown.lines.last().map(|line| words(line)).unwrap_or_default();
            format!(
                "the reader goes on: it was stopped at line {count}, {line}, although {known} \
                 lines are known, and at most {IN_FLIGHT_LINES} more of {bytes} MiB in all may \
                 have been in flight"
            )
        })?;
        // What was shown is a promise.
        (self.row, self.row_bytes) = (shown.lines.clone(), shown.bytes);
        (self.shown, self.certain) = (count, count);
        Ok(())
    }

    /// A line that was in flight may be gone: nobody has seen it yet.
    fn opening(&mut self) {}

    fn lied(&mut self, _: Lie) {
        self.has_lied = true;
    }

    fn is_over(&self) -> bool {
        self.has_lied
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
