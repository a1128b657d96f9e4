//! Items in one order.
//!
//! *Owns*: the clauses about a place in the row. *May not touch*: items without an order.
//!
//! The rule: first what an earlier reading has shown, then what was acknowledged since, in order,
//! whole. Of what was acknowledged last the end may be missing, if that is promised. Lines that
//! were in flight may follow. Nobody knows how many those are, so a bound says when a reader has no
//! end.

use std::time::Duration;

use super::{ENDS, LOST, Line, MIDDLE, NEXT, SHOWN, Shown, words};
use crate::{Broken, Who, clause};

/// So many lines may be in flight,
pub(super) const IN_FLIGHT_LINES: usize = 100_000;
/// of so many bytes.
pub(super) const IN_FLIGHT_BYTES: usize = 64 << 20;

#[derive(Debug, Clone, Default)]
pub(super) struct Row {
    /// What was acknowledged later than this before the crash may be missing.
    may_go: Duration,
    /// In order: what was shown, and what a writer has said since or is known to say next.
    row: Vec<Line>,
    bytes: usize,
    /// So many of them an earlier reading has shown.
    shown: usize,
    /// When each of the next ones was acknowledged.
    acknowledged: Vec<Duration>,
}

impl Row {
    pub(super) fn losing(may_go: Duration) -> Self {
        Self { may_go, ..Self::default() }
    }

    pub(super) fn began(&mut self, line: &Line) {
        self.bytes += line.len();
        self.row.push(line.clone());
    }

    pub(super) fn ended(&mut self, who: Who, at: Duration) {
        self.acknowledged.resize(self.acknowledged.len().max(who as usize + 1), at);
    }

    /// So many of them were shown, or were acknowledged long enough before the crash. The crash was
    /// not before the newest acknowledgement that was heard.
    pub(super) fn certain(&self) -> usize {
        let crash = self.acknowledged.last().copied().unwrap_or_default();
        let is_old = |at: &Duration| crash.saturating_sub(*at) >= self.may_go;
        self.shown + self.acknowledged.partition_point(is_old)
    }

    /// What a line is, by its place: the clause that it can break, and why it must be there.
    fn of(&self, at: usize, certain: usize) -> (&'static str, &'static str) {
        match at {
            _ if at < self.shown => (SHOWN, "an earlier reading showed it"),
            _ if at < certain => (LOST, "it was acknowledged"),
            _ if at < self.shown + self.acknowledged.len() => {
                (MIDDLE, "it was acknowledged, and only the end may be missing")
            }
            _ => (NEXT, "it was said after the crash"),
        }
    }

    fn is_beyond(&self, shown: &Shown) -> bool {
        shown.lines.len() > self.row.len() + IN_FLIGHT_LINES
            || shown.bytes > self.bytes + IN_FLIGHT_BYTES
    }

    pub(super) fn is_decided(&self, shown: &Shown) -> bool {
        let at = shown.lines.len().saturating_sub(1);
        let is_wrong =
            matches!((self.row.get(at), shown.lines.last()), (Some(of), Some(is)) if of != is);
        is_wrong || self.is_beyond(shown)
    }

    pub(super) fn check(&self, shown: &Shown) -> Result<(), Broken> {
        let (count, certain) = (shown.lines.len(), self.certain());
        for (at, line) in self.row.iter().enumerate() {
            let (name, why) = self.of(at, certain);
            let found = shown.lines.get(at);
            clause(name, found.map_or(at >= certain, |found| found == line), || {
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
        Ok(())
    }

    /// The last clause; then what was shown is a promise.
    pub(super) fn check_end(&mut self, shown: &Shown) -> Result<(), Broken> {
        clause(ENDS, !self.is_beyond(shown), || {
            let (known, bytes) = (self.row.len(), IN_FLIGHT_BYTES >> 20);
            let count = shown.lines.len();
            let line = shown.lines.last().map(|line| words(line)).unwrap_or_default();
            format!(
                "the reader goes on: it was stopped at line {count}, {line}, although {known} \
                 lines are known, and at most {IN_FLIGHT_LINES} more of {bytes} MiB in all may \
                 have been in flight"
            )
        })?;
        (self.row, self.bytes) = (shown.lines.clone(), shown.bytes);
        self.shown = self.row.len();
        self.acknowledged.clear();
        Ok(())
    }
}
