//! What was seen of one strategy on one file system, and whether it is as claimed.
//!
//! *Owns*: the counts, the verdict, its words. *May not touch*: the checks.

use std::fmt::{self, Display, Formatter};

use super::content::Left;
pub use super::content::Verdict;
use super::plain::{Claim, Plain, Shape};
use crate::kernel::machine::FsKind;
use crate::medium::Place;

/// A state that the report names, and how to see it again.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) seed: u64,
    pub(crate) place: Option<Place>,
    words: String,
}

/// One strategy on one file system.
#[derive(Debug)]
pub struct Row {
    pub kind: FsKind,
    pub strategy: Plain,
    pub states: u64,
    /// The worst of all states.
    pub verdict: Verdict,
    /// Steps that were lost when only the process was killed.
    pub lost_at_kill: usize,
    /// States in which a later block was there and an earlier one was not, acknowledged or not;
    /// `None` where this is not checked.
    pub holes: Option<u64>,
    /// The command that shows the told state again.
    pub command: Option<String>,
    /// Its recording was to be kept.
    pub is_kept: bool,
    /// Why it did not run to its end.
    pub not_run: Option<String>,
    /// The first of the worst, or with a hole.
    pub(crate) seen: Option<Seen>,
}

impl Row {
    /// A row without results.
    pub fn new(kind: FsKind, strategy: Plain) -> Self {
        Self {
            kind,
            strategy,
            states: 0,
            verdict: Verdict::NotRun,
            lost_at_kill: 0,
            holes: (strategy.plan().shape == Shape::Batches).then_some(0),
            command: None,
            is_kept: false,
            not_run: None,
            seen: None,
        }
    }

    pub fn claim(&self) -> Claim {
        self.strategy.claim_on(self.kind).0
    }

    /// Adds the result of a state.
    pub(crate) fn add(&mut self, seed: u64, place: Option<Place>, found: Result<Left, String>) {
        self.states += 1;
        let (verdict, words, hole) = match found {
            Err(why) => (Verdict::Unreadable, why, None),
            Ok(left) => (left.verdict(), left.told(), left.hole),
        };
        if let (Some(holes), Some(_)) = (&mut self.holes, &hole) {
            *holes += 1;
        }
        let is_worst = verdict > Verdict::Held && verdict > self.verdict;
        if is_worst || hole.is_some() && self.seen.is_none() {
            self.seen = Some(Seen { seed, place, words: hole.unwrap_or(words) });
        }
        self.verdict = self.verdict.max(verdict);
    }

    /// A run that did not reach its end proves nothing.
    pub fn is_as_claimed(&self) -> bool {
        use Verdict::{Damaged, Held, Lost, NotRun, Unreadable};
        let agrees = match (self.claim(), self.verdict) {
            (_, NotRun) => true,
            (_, Unreadable) => false,
            (Claim::Durable, verdict) => verdict == Held,
            (Claim::NameNotPromised, verdict) => verdict != Damaged,
            (Claim::Nothing, verdict) => matches!(verdict, Lost | Damaged),
            (Claim::NotPromised, _) => true,
        };
        agrees && self.not_run.is_none()
    }

    /// The claim and the verdict in a few words: the row's name in a result.
    pub fn short(&self) -> String {
        let mut words = format!("{} ({}): ", self.strategy, self.claim().words());
        words += match self.verdict {
            Verdict::NotRun => "not run",
            Verdict::Held => "held",
            Verdict::Lost => "lost",
            Verdict::Damaged => "damaged",
            Verdict::Unreadable => "does not mount",
        };
        match self.holes {
            Some(0) => words += "; no hole",
            Some(holes) => words += &format!("; a hole in {holes}"),
            None => {}
        }
        if self.lost_at_kill > 0 {
            words += &format!("; a kill lost {} too", self.lost_at_kill);
        }
        let note = self.strategy.claim_on(self.kind).1;
        note.map_or(words.clone(), |note| format!("{words} ({note})"))
    }
}

impl Display for Row {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind, self.short())?;
        if let Some(Seen { place, words, .. }) = &self.seen {
            let place = place.as_ref().map(Place::to_string).unwrap_or_default();
            write!(f, "\n  in state {place}: {words}")?;
        }
        self.not_run.as_ref().map_or(Ok(()), |why| write!(f, "\n  NOT RUN: {why}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_follow_from_what_was_seen() {
        let lost = Left { lost: 2, words: "gone".into(), ..Left::default() };
        let torn = Left { damaged: 1, words: "half".into(), ..Left::default() };
        let (held, dead) = (Ok(Left::default()), Err("no mount".to_string()));
        let cases = [
            (vec![held.clone()], Verdict::Held, [true, true, false]),
            (vec![held.clone(), Ok(lost.clone())], Verdict::Lost, [false, true, true]),
            (vec![Ok(torn), Ok(lost)], Verdict::Damaged, [false, false, true]),
            (vec![dead, held], Verdict::Unreadable, [false, false, false]),
            (vec![], Verdict::NotRun, [true, true, true]),
        ];
        for (found, verdict, agrees) in cases {
            let strategies = [Plain::AppendFsync, Plain::NewFileFsync, Plain::WriteOnly];
            for (strategy, agrees) in strategies.into_iter().zip(agrees) {
                let kind = FsKind::Xfs;
                let mut row = Row::new(kind, strategy);
                for left in &found {
                    row.add(1, None, left.clone());
                }
                assert_eq!((row.verdict, row.is_as_claimed()), (verdict, agrees), "{row}");
            }
        }
    }
}
