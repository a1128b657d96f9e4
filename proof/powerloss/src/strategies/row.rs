//! What was seen of one strategy on one file system, and whether it is as claimed.
//!
//! *Owns*: the counts, the verdict, its words. *May not touch*: the checks.

use std::fmt::{self, Display, Formatter};

use super::content::Left;
pub use super::content::Verdict;
use super::plain::{Claim, Plain, Shape, Trial};
use crate::kernel::machine::FsKind;
use crate::medium::Place;

/// A state in which something was not whole.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    verdict: Verdict,
    left: Left,
    /// The recording, by its seed, and the state of it.
    pub(crate) seed: u64,
    pub(crate) place: Option<Place>,
    acked: usize,
    words: String,
}

/// One strategy on one file system.
#[derive(Debug)]
pub struct Row {
    pub kind: FsKind,
    pub strategy: Plain,
    pub states: u64,
    /// Of these, states right at an acknowledgement with nothing unflushed there.
    pub plainest: u64,
    /// Of those, states in which an acknowledged step was not there whole.
    pub bad_plainest: u64,
    /// Steps that were lost when only the process was killed.
    pub lost_at_kill: usize,
    /// States in which a later block was there and an earlier one was not, acknowledged or not;
    /// `None` where this is not checked.
    pub holes: Option<u64>,
    /// The command that shows the worst state again.
    pub command: Option<String>,
    /// Why it did not run to its end.
    pub not_run: Option<String>,
    worst: Option<Seen>,
    /// The first with a hole.
    hole: Option<Seen>,
}

impl Row {
    /// A row without results.
    pub fn new(kind: FsKind, strategy: Plain) -> Self {
        Self {
            kind,
            strategy,
            states: 0,
            plainest: 0,
            bad_plainest: 0,
            lost_at_kill: 0,
            holes: (strategy.plan().shape == Shape::Batches).then_some(0),
            command: None,
            not_run: None,
            worst: None,
            hole: None,
        }
    }

    pub fn claim(&self) -> Claim {
        self.strategy.claim_on(self.kind).0
    }

    /// Adds the result of a state of a run in which so many steps were acknowledged.
    pub(crate) fn add(
        &mut self,
        trial: &Trial,
        place: Option<Place>,
        is_plainest: bool,
        acked: usize,
        found: Result<Left, String>,
    ) {
        self.states += 1;
        self.plainest += u64::from(is_plainest);
        let (verdict, left, words) = match found {
            Err(why) => (Verdict::Unreadable, Left::default(), why),
            Ok(left) => (left.verdict(), left.clone(), left.told()),
        };
        self.bad_plainest += u64::from(left.missing() > 0 && is_plainest);
        let hole = left.hole.clone();
        let seen = Seen { verdict, left, seed: trial.seed, place, acked, words };
        if let Some(words) = hole {
            self.holes = self.holes.map(|holes| holes + 1);
            self.hole.get_or_insert_with(|| Seen { words, ..seen.clone() });
        }
        let rank = |seen: &Seen| (seen.verdict, seen.left.missing());
        if verdict > Verdict::Held && self.worst.as_ref().is_none_or(|w| rank(w) < rank(&seen)) {
            self.worst = Some(seen);
        }
    }

    pub fn verdict(&self) -> Verdict {
        let of_states = if self.states == 0 { Verdict::NotRun } else { Verdict::Held };
        self.worst.as_ref().map_or(of_states, |worst| worst.verdict)
    }

    /// A run that did not reach its end proves nothing.
    pub fn is_as_claimed(&self) -> bool {
        let verdict = self.verdict();
        let agrees = match self.claim() {
            _ if verdict == Verdict::NotRun => true,
            Claim::Durable => verdict == Verdict::Held,
            Claim::NameNotPromised => matches!(verdict, Verdict::Held | Verdict::Lost),
            Claim::Nothing => matches!(verdict, Verdict::Lost | Verdict::Damaged),
            Claim::DurableNotAtomic => verdict != Verdict::Unreadable && self.bad_plainest == 0,
            Claim::NotPromised => verdict != Verdict::Unreadable,
        };
        agrees && self.not_run.is_none()
    }

    /// The state that the row's command shows again.
    pub(crate) fn telling(&self) -> Option<&Seen> {
        self.worst.as_ref().or(self.hole.as_ref())
    }

    /// The claim and the verdict in a few words: the row's name in a result.
    pub fn short(&self) -> String {
        let mut words = format!("{} ({}): ", self.strategy, self.claim().words());
        words += &match (self.verdict(), &self.worst) {
            (Verdict::NotRun, _) => "not run".into(),
            (Verdict::Lost | Verdict::Damaged, Some(Seen { acked, left, .. })) => {
                let how = match left {
                    Left { garbage: 1.., .. } => "; garbage",
                    Left { torn: 1.., .. } => "; torn",
                    _ => "",
                };
                format!("lost {} of {acked}{how}", left.missing())
            }
            (Verdict::Unreadable, _) => "does not mount".into(),
            _ => format!("held in {}", self.states),
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
        for (what, seen) in [("worst", &self.worst), ("a hole", &self.hole)] {
            let Some(Seen { place, words, .. }) = seen else { continue };
            let place = place.as_ref().map(Place::to_string).unwrap_or_default();
            write!(f, "\n  {what} in state {place}: {words}")?;
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
        let torn = Left { torn: 1, words: "half".into(), ..Left::default() };
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
                let trial = Trial { kind, strategy, seed: 1, steps: 3 };
                let mut row = Row::new(kind, strategy);
                for left in &found {
                    row.add(&trial, None, true, 3, left.clone());
                }
                assert_eq!((row.verdict(), row.is_as_claimed()), (verdict, agrees), "{row}");
            }
        }
    }
}
