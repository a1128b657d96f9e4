//! The results of each strategy on each file system, for machines and people.
//!
//! *Owns*: the rows, the verdicts, the table. *May not touch*: the checks.

use std::fmt::{self, Display, Formatter, Write as _};

use inkstone_io::NamedChoice;
use serde::{Deserialize, Serialize};

use super::content::Left;
use super::plain::{Claim, Plain, Shape};
use super::trial::Trial;

/// The result of a state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Worst {
    /// The state, as text.
    pub state: String,
    /// Steps that were acknowledged by then.
    pub acked: usize,
    /// Of these, steps of which nothing is there.
    pub lost: usize,
    /// Of these, steps of which a part is there.
    pub torn: usize,
    /// Of these, steps in whose place is something that was never written there.
    pub garbage: usize,
    /// The first of them, in words.
    pub words: String,
}

/// The verdict on one strategy on one file system. It follows from what was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// The file system.
    pub file_system: String,
    /// The strategy's name.
    pub strategy: String,
    /// What it does.
    pub does: String,
    /// What it may claim.
    pub claim: String,
    /// The verdict.
    pub verdict: Verdict,
    /// Whether the results agree with the claim.
    pub as_claimed: bool,
    /// States that were checked.
    pub states: u64,
    /// Of these, states right at an acknowledgement with nothing unflushed there.
    pub plainest: u64,
    /// States in which an acknowledged step was not there whole.
    pub bad_states: u64,
    /// Of these, states right at an acknowledgement with nothing unflushed there.
    pub bad_plainest: u64,
    /// States in which an acknowledged step was there in part, or something else in its place.
    pub damaged_states: u64,
    /// Steps that were lost when only the process was killed.
    pub lost_at_kill: usize,
    /// The worst state.
    pub worst: Option<Worst>,
    /// The worst one with damage.
    pub damage: Option<Worst>,
    /// States in which a later block was there and an earlier one was not, acknowledged or not;
    /// `None` where this is not checked.
    #[serde(default)]
    pub holes: Option<u64>,
    /// The first of them, in words.
    #[serde(default)]
    pub hole: Option<(String, String)>,
    /// The first state that could not be mounted or read, and the error.
    pub unreadable: Option<String>,
    /// The command that shows the worst state again.
    pub command: Option<String>,
    /// Why its claim here differs from other file systems.
    pub note: Option<String>,
    /// Why nothing was checked.
    pub not_run: Option<String>,
    /// The telling state has changed.
    #[serde(skip)]
    pub has_news: bool,
    #[serde(skip)]
    claimed: Option<Claim>,
}

impl Row {
    /// A row without results.
    pub fn new(trial: &Trial) -> Self {
        let (claim, note) = trial.strategy.claim_on(trial.kind);
        Self {
            file_system: trial.kind.to_string(),
            strategy: trial.strategy.to_string(),
            does: trial.strategy.summary().into(),
            claim: claim.words().into(),
            verdict: Verdict::NotRun,
            as_claimed: true,
            states: 0,
            plainest: 0,
            bad_states: 0,
            bad_plainest: 0,
            damaged_states: 0,
            lost_at_kill: 0,
            worst: None,
            damage: None,
            holes: (trial.strategy.plan().shape == Shape::Batches).then_some(0),
            hole: None,
            unreadable: None,
            command: None,
            note: note.map(String::from),
            not_run: None,
            has_news: false,
            claimed: Some(claim),
        }
    }

    /// Adds the result of a state.
    pub fn add(
        &mut self,
        state: &str,
        is_plainest: bool,
        acked: usize,
        found: Result<Left, String>,
    ) {
        self.states += 1;
        self.plainest += u64::from(is_plainest);
        let left = match found {
            Ok(left) => left,
            Err(why) => {
                self.unreadable.get_or_insert_with(|| format!("{state}: {why}"));
                return;
            }
        };
        if let Some(words) = &left.hole {
            self.holes = self.holes.map(|holes| holes + 1);
            self.hole.get_or_insert_with(|| (state.to_owned(), words.clone()));
        }
        let worst = |left: &Left| Worst {
            state: state.to_string(),
            acked,
            lost: left.lost.len(),
            torn: left.torn.len(),
            garbage: left.garbage.len(),
            words: left.words.clone(),
        };
        let missing = |worst: &Worst| worst.lost + worst.torn + worst.garbage;
        if left.missing() > 0 {
            self.bad_states += 1;
            self.bad_plainest += u64::from(is_plainest);
            if self.worst.as_ref().is_none_or(|before| missing(before) < left.missing()) {
                self.worst = Some(worst(&left));
            }
        }
        if left.is_damaged() {
            self.damaged_states += 1;
            let parts = left.torn.len() + left.garbage.len();
            if self.damage.as_ref().is_none_or(|before| before.torn + before.garbage < parts) {
                self.damage = Some(worst(&left));
            }
        }
    }

    /// Draws the verdict.
    pub fn conclude(&mut self) {
        self.verdict = if self.states == 0 {
            Verdict::NotRun
        } else if self.unreadable.is_some() {
            Verdict::Unreadable
        } else if self.damage.is_some() {
            Verdict::Damaged
        } else if self.worst.is_some() {
            Verdict::Lost
        } else {
            Verdict::Held
        };
        let is_readable = self.verdict != Verdict::Unreadable;
        self.as_claimed = self.verdict == Verdict::NotRun
            || match self.claimed {
                Some(Claim::Durable) => self.verdict == Verdict::Held,
                Some(Claim::NameNotPromised) => {
                    matches!(self.verdict, Verdict::Held | Verdict::Lost)
                }
                Some(Claim::Nothing) => matches!(self.verdict, Verdict::Lost | Verdict::Damaged),
                Some(Claim::DurableNotAtomic) => is_readable && self.bad_plainest == 0,
                Some(Claim::NotPromised) => is_readable,
                None => false,
            };
    }

    /// The state that the row's command shows again.
    pub fn telling_state(&self) -> Option<&str> {
        if let Some(why) = &self.unreadable {
            return why.split_once(": ").map(|(state, _)| state);
        }
        // Where the loss of a name is expected, damage shows more.
        let may_be_lost = matches!(self.claimed, Some(Claim::NameNotPromised | Claim::NotPromised));
        let telling = if may_be_lost && self.damage.is_some() { &self.damage } else { &self.worst };
        let hole = self.hole.as_ref().map(|(state, _)| state.as_str());
        telling.as_ref().map(|worst| worst.state.as_str()).or(hole)
    }

    /// The verdict in a few words, for a table.
    pub fn short(&self) -> String {
        let worst = self.worst.as_ref();
        let seen = match self.verdict {
            Verdict::NotRun => "not run".into(),
            Verdict::Held if !matches!(self.claimed, Some(Claim::Durable | Claim::Nothing)) => {
                format!("not promised, held in {}", self.states)
            }
            Verdict::Held => format!("held in {}", self.states),
            Verdict::Unreadable => "does not mount".into(),
            Verdict::Lost => worst.map_or_else(String::new, |worst| {
                format!("lost {} of {}", worst.lost, worst.acked)
            }),
            Verdict::Damaged => worst.map_or_else(String::new, |worst| {
                let missing = worst.lost + worst.torn + worst.garbage;
                let damage = self.damage.as_ref();
                let how = if damage.is_some_and(|damage| damage.garbage > 0) {
                    "garbage"
                } else {
                    "torn"
                };
                format!("lost {missing} of {}; {how}", worst.acked)
            }),
        };
        let seen = match self.holes {
            Some(0) => format!("{seen}; no hole"),
            Some(holes) => format!("{seen}; a hole in {holes}"),
            None => seen,
        };
        if self.as_claimed { seen } else { format!("**NOT AS CLAIMED: {seen}**") }
    }
}

impl Display for Row {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} on {}: ", self.strategy, self.file_system)?;
        match self.verdict {
            Verdict::NotRun => {
                write!(f, "NOT RUN: {}", self.not_run.as_deref().unwrap_or("stopped"))
            }
            Verdict::Held => write!(f, "held in {} states", self.states),
            _ => {
                write!(f, "bad in {} of {} states", self.bad_states, self.states)?;
                for (name, worst) in [("worst", &self.worst), ("damage", &self.damage)] {
                    let Some(Worst { state, acked, lost, torn, garbage, words }) = worst else {
                        continue;
                    };
                    write!(
                        f,
                        "\n  {name}: {lost} lost, {torn} torn, {garbage} garbage of {acked} acknowledged"
                    )?;
                    write!(f, " in state {state}: {words}")?;
                }
                if let Some(why) = &self.unreadable {
                    write!(f, "\n  does not mount in state {why}")?;
                }
                Ok(())
            }
        }?;
        if let (Some(holes), Some((state, words))) = (self.holes, &self.hole) {
            write!(
                f,
                "\n  a hole in {holes} of {} states, first in state {state}: {words}",
                self.states
            )?;
        }
        if self.lost_at_kill > 0 {
            write!(f, "\n  a kill of the process alone lost {}", self.lost_at_kill)?;
        }
        self.command.as_ref().map_or(Ok(()), |command| write!(f, "\n  again: {command}"))
    }
}

/// All rows, file system by file system.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// The kernel.
    pub kernel: String,
    /// The command that repeats the run.
    pub command: String,
    /// The rows.
    pub rows: Vec<Row>,
    /// What did not run, and why.
    pub not_run: Vec<String>,
}

impl Report {
    /// Whether something was checked and everything is as claimed.
    pub fn is_as_claimed(&self) -> bool {
        self.states() > 0 && self.rows.iter().all(|row| row.as_claimed)
    }

    /// States that were checked.
    pub fn states(&self) -> u64 {
        self.rows.iter().map(|row| row.states).sum()
    }

    /// The table: a row for each strategy, a column for each file system, notes below. Markdown,
    /// aligned for terminals.
    pub fn table(&self) -> String {
        let mut kinds: Vec<&str> = Vec::new();
        for row in &self.rows {
            if !kinds.contains(&row.file_system.as_str()) {
                kinds.push(&row.file_system);
            }
        }
        let mut lines = vec![
            [&["strategy", "claim"], &kinds[..]].concat().into_iter().map(String::from).collect(),
        ];
        let mut notes: Vec<&str> = Vec::new();
        for strategy in Plain::ALL {
            let of: Vec<_> =
                self.rows.iter().filter(|row| row.strategy == strategy.name()).collect();
            let Some(first) = of.first() else { continue };
            let killed = of.iter().map(|row| row.lost_at_kill).max().unwrap_or(0);
            let at_kill =
                if killed > 0 { format!(" (a kill lost {killed} too)") } else { String::new() };
            let mut cells = vec![first.does.clone() + &at_kill, first.claim.clone()];
            cells.extend(kinds.iter().map(|kind| {
                of.iter()
                    .find(|row| row.file_system == *kind)
                    .map_or_else(String::new, |row| noted(row, &mut notes))
            }));
            lines.push(cells);
        }
        let mut text = markdown(&lines);
        for (number, note) in notes.iter().enumerate() {
            // Writing to a string cannot fail.
            let _ = write!(text, "\n[{}] {note}\n", number + 1);
        }
        text
    }
}

/// A verdict with the number of its note.
fn noted<'a>(row: &'a Row, notes: &mut Vec<&'a str>) -> String {
    let Some(note) = row.note.as_deref() else { return row.short() };
    let number = notes.iter().position(|known| *known == note).unwrap_or_else(|| {
        notes.push(note);
        notes.len() - 1
    });
    format!("{} [{}]", row.short(), number + 1)
}

fn markdown(lines: &[Vec<String>]) -> String {
    let columns = lines.first().map_or(0, Vec::len);
    let width =
        |column: usize| lines.iter().map(|cells| cells[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<_> = (0..columns).map(width).collect();
    let mut text = String::new();
    for (number, cells) in lines.iter().enumerate() {
        for (cell, width) in cells.iter().zip(&widths) {
            // Writing to a string cannot fail.
            let _ = write!(text, "| {cell:width$} ");
        }
        text.push_str("|\n");
        if number == 0 {
            widths.iter().for_each(|width| text.push_str(&format!("|{}", "-".repeat(width + 2))));
            text.push_str("|\n");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::machine::FsKind;

    fn row(strategy: Plain, found: &[Result<Left, String>]) -> Row {
        let mut row = Row::new(&Trial { kind: FsKind::Xfs, strategy, seed: 1, steps: 3 });
        for left in found {
            row.add("--entry 9 --subset none", true, 3, left.clone());
        }
        row.conclude();
        row
    }

    #[test]
    fn verdicts_follow_from_what_was_seen() {
        let lost = Left { lost: vec![2, 3], words: "gone".into(), ..Left::default() };
        let torn = Left { torn: vec![3], words: "half".into(), ..Left::default() };
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
                let row = row(strategy, &found);
                assert_eq!((row.verdict, row.as_claimed), (verdict, agrees), "{row}");
            }
        }
    }

    #[test]
    fn the_table_shows_what_is_not_as_claimed() {
        let lost = Left { lost: vec![3], words: "gone".into(), ..Left::default() };
        let rows = vec![
            row(Plain::AppendFsync, &[Ok(lost)]),
            row(Plain::WriteOnly, &[Ok(Left::default())]),
        ];
        let report = Report { rows, ..Report::default() };
        let table = report.table();
        assert!(table.contains("**NOT AS CLAIMED: lost 1 of 3**"), "{table}");
        assert!(table.contains("**NOT AS CLAIMED: held in 1**"), "{table}");
        assert!(!report.is_as_claimed() && !Report::default().is_as_claimed());
        let json = serde_json::to_string(&report).expect("data");
        let read: Report = serde_json::from_str(&json).expect("its own");
        assert_eq!(read.rows[0].worst, report.rows[0].worst);
    }
}
