//! What was seen of one strategy on one file system, and whether it is as claimed.
//!
//! *Owns*: the counts, the verdict, its words. *May not touch*: the checks.

use std::fmt::{self, Display, Formatter};

use super::content::Left;
use super::plain::{Claim, Plain, Shape};
use crate::kernel::machine::FsKind;

/// A state, as text, and what was left in it.
#[derive(Debug, Clone)]
struct Seen {
    state: String,
    acked: usize,
    left: Left,
}

impl Seen {
    /// Takes the place of one of which there was less.
    fn rank(&self, worst: &mut Option<Self>, measure: fn(&Left) -> usize) {
        if measure(&self.left) > worst.as_ref().map_or(0, |worst| measure(&worst.left)) {
            *worst = Some(self.clone());
        }
    }
}

/// The verdict on a row. It follows from what was seen, and from nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Every acknowledged step was there, whole, in every state.
    Held,
    /// Acknowledged steps were missing; nothing was there in part.
    Lost,
    /// Acknowledged steps were there in part, or something else in their place.
    Damaged,
    /// A state could not be mounted or read.
    Unreadable,
    /// Nothing was checked.
    NotRun,
}

/// One strategy on one file system.
#[derive(Debug)]
pub struct Row {
    pub kind: FsKind,
    pub strategy: Plain,
    pub states: u64,
    /// Of these, states right at an acknowledgement with nothing unflushed there.
    pub plainest: u64,
    /// States in which an acknowledged step was not there whole.
    pub bad: u64,
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
    /// The worst one with damage.
    damage: Option<Seen>,
    /// The first with a hole, and the first that could not be mounted or read: a state, and words.
    hole: Option<(String, String)>,
    unreadable: Option<(String, String)>,
}

impl Row {
    /// A row without results.
    pub fn new(kind: FsKind, strategy: Plain) -> Self {
        Self {
            kind,
            strategy,
            states: 0,
            plainest: 0,
            bad: 0,
            bad_plainest: 0,
            lost_at_kill: 0,
            holes: (strategy.plan().shape == Shape::Batches).then_some(0),
            command: None,
            not_run: None,
            worst: None,
            damage: None,
            hole: None,
            unreadable: None,
        }
    }

    pub fn claim(&self) -> Claim {
        self.strategy.claim_on(self.kind).0
    }

    /// Adds the result of a state.
    pub(crate) fn add(
        &mut self,
        state: String,
        is_plainest: bool,
        acked: usize,
        found: Result<Left, String>,
    ) {
        self.states += 1;
        self.plainest += u64::from(is_plainest);
        let left = match found {
            Ok(left) => left,
            Err(why) => {
                self.unreadable.get_or_insert((state, why));
                return;
            }
        };
        if let Some(words) = &left.hole {
            self.holes = self.holes.map(|holes| holes + 1);
            self.hole.get_or_insert_with(|| (state.clone(), words.clone()));
        }
        let is_bad = left.missing() > 0;
        self.bad += u64::from(is_bad);
        self.bad_plainest += u64::from(is_bad && is_plainest);
        let seen = Seen { state, acked, left };
        seen.rank(&mut self.worst, Left::missing);
        seen.rank(&mut self.damage, Left::damaged);
    }

    pub fn verdict(&self) -> Verdict {
        match self {
            Self { states: 0, .. } => Verdict::NotRun,
            Self { unreadable: Some(_), .. } => Verdict::Unreadable,
            Self { damage: Some(_), .. } => Verdict::Damaged,
            Self { worst: Some(_), .. } => Verdict::Lost,
            _ => Verdict::Held,
        }
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

    /// Whether there is something that a command can show again.
    pub(crate) fn has_news(&self) -> bool {
        self.verdict() != Verdict::Held || self.hole.is_some() || !self.is_as_claimed()
    }

    /// The state that the row's command shows again.
    pub fn telling_state(&self) -> Option<&str> {
        // Where the loss of a name is expected, damage shows more.
        let may_be_lost = matches!(self.claim(), Claim::NameNotPromised | Claim::NotPromised);
        let telling = self.damage.as_ref().filter(|_| may_be_lost).or(self.worst.as_ref());
        let unreadable = self.unreadable.as_ref().map(|(state, _)| state);
        let state = unreadable.or_else(|| telling.map(|seen| &seen.state));
        state.or(self.hole.as_ref().map(|(state, _)| state)).map(String::as_str)
    }

    /// The claim and the verdict in a few words: the row's name in a certificate.
    pub fn short(&self) -> String {
        let mut words = format!("{} ({}): ", self.strategy, self.claim().words());
        words += &match (self.verdict(), &self.worst) {
            (Verdict::NotRun, _) => "not run".into(),
            (Verdict::Held, _) => format!("held in {}", self.states),
            (Verdict::Lost | Verdict::Damaged, Some(Seen { acked, left, .. })) => {
                format!("lost {} of {acked}", left.missing())
            }
            _ => "does not mount".into(),
        };
        if let Some(damage) = &self.damage {
            words += if damage.left.garbage > 0 { "; garbage" } else { "; torn" };
        }
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
        for (name, seen) in [("worst", &self.worst), ("damage", &self.damage)] {
            let Some(Seen { state, acked, left }) = seen else { continue };
            let Left { lost, torn, garbage, words, .. } = left;
            write!(
                f,
                "\n  {name}: {lost} lost, {torn} torn, {garbage} garbage of {acked} acknowledged \
                 in state {state}: {words}"
            )?;
        }
        let others = [("does not mount", &self.unreadable), ("a hole", &self.hole)];
        for (what, seen) in others {
            if let Some((state, words)) = seen {
                write!(f, "\n  {what} in state {state}: {words}")?;
            }
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
            (vec![Ok(lost), Ok(torn)], Verdict::Damaged, [false, false, true]),
            (vec![held, dead], Verdict::Unreadable, [false, false, false]),
            (vec![], Verdict::NotRun, [true, true, true]),
        ];
        for (found, verdict, agrees) in cases {
            let strategies = [Plain::AppendFsync, Plain::NewFileFsync, Plain::WriteOnly];
            for (strategy, agrees) in strategies.into_iter().zip(agrees) {
                let mut row = Row::new(FsKind::Xfs, strategy);
                for left in &found {
                    row.add("--entry 9 --subset none".into(), true, 3, left.clone());
                }
                assert_eq!((row.verdict(), row.is_as_claimed()), (verdict, agrees), "{row}");
            }
        }
    }
}
