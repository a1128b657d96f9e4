//! The results of each strategy on each file system, for machines and people.
//!
//! *Owns*: the rows, the verdicts, the table. *May not touch*: the checks.

use std::fmt::{self, Display, Formatter, Write as _};

use inkstone_io::NamedChoice;
use serde::{Deserialize, Serialize};

use super::content::Left;
use super::plain::{Claim, Plain, Shape, Trial};

/// The result of a state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Worst {
    /// The state, as text.
    pub state: String,
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

impl Worst {
    fn damaged(&self) -> usize {
        self.torn + self.garbage
    }

    fn missing(&self) -> usize {
        self.lost + self.damaged()
    }

    /// Takes the place of one of which there was less.
    fn rank(self, worst: &mut Option<Self>, measure: fn(&Self) -> usize) {
        if measure(&self) > worst.as_ref().map_or(0, measure) {
            *worst = Some(self);
        }
    }
}

/// The verdict on one strategy on one file system. It follows from what was seen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
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
    #[default]
    NotRun,
}

/// One strategy on one file system.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    pub file_system: String,
    pub strategy: String,
    pub does: String,
    pub claim: String,
    pub verdict: Verdict,
    pub as_claimed: bool,
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
    pub unreadable: Option<(String, String)>,
    /// The command that shows the worst state again.
    pub command: Option<String>,
    /// Why its claim here differs from other file systems.
    pub note: Option<String>,
    /// Why nothing was checked.
    pub not_run: Option<String>,
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
            as_claimed: true,
            holes: (trial.strategy.plan().shape == Shape::Batches).then_some(0),
            note: note.map(String::from),
            claimed: Some(claim),
            ..Self::default()
        }
    }

    /// Adds the result of a state.
    pub(crate) fn add(
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
                self.unreadable.get_or_insert_with(|| (state.to_owned(), why));
                return;
            }
        };
        if let Some(words) = left.hole {
            self.holes = self.holes.map(|holes| holes + 1);
            self.hole.get_or_insert_with(|| (state.to_owned(), words));
        }
        let [lost, torn, garbage] = [&left.lost, &left.torn, &left.garbage].map(Vec::len);
        let seen = Worst { state: state.into(), acked, lost, torn, garbage, words: left.words };
        let is_bad = seen.missing() > 0;
        self.bad_states += u64::from(is_bad);
        self.bad_plainest += u64::from(is_bad && is_plainest);
        self.damaged_states += u64::from(seen.damaged() > 0);
        seen.clone().rank(&mut self.worst, Worst::missing);
        seen.rank(&mut self.damage, Worst::damaged);
    }

    /// Draws the verdict.
    pub fn conclude(&mut self) {
        self.verdict = match self {
            Self { states: 0, .. } => Verdict::NotRun,
            Self { unreadable: Some(_), .. } => Verdict::Unreadable,
            Self { damage: Some(_), .. } => Verdict::Damaged,
            Self { worst: Some(_), .. } => Verdict::Lost,
            _ => Verdict::Held,
        };
        let is_readable = self.verdict != Verdict::Unreadable;
        let agrees = match self.claimed {
            Some(Claim::Durable) => self.verdict == Verdict::Held,
            Some(Claim::NameNotPromised) => matches!(self.verdict, Verdict::Held | Verdict::Lost),
            Some(Claim::Nothing) => matches!(self.verdict, Verdict::Lost | Verdict::Damaged),
            Some(Claim::DurableNotAtomic) => is_readable && self.bad_plainest == 0,
            Some(Claim::NotPromised) => is_readable,
            None => false,
        };
        self.as_claimed = self.verdict == Verdict::NotRun || agrees;
    }

    /// The state that the row's command shows again.
    pub fn telling_state(&self) -> Option<&str> {
        if let Some((state, _)) = &self.unreadable {
            return Some(state);
        }
        // Where the loss of a name is expected, damage shows more.
        let may_be_lost = matches!(self.claimed, Some(Claim::NameNotPromised | Claim::NotPromised));
        let telling = if may_be_lost && self.damage.is_some() { &self.damage } else { &self.worst };
        let hole = self.hole.as_ref().map(|(state, _)| state.as_str());
        telling.as_ref().map(|worst| worst.state.as_str()).or(hole)
    }

    /// The verdict in a few words, for a table.
    pub fn short(&self) -> String {
        let is_promised = matches!(self.claimed, Some(Claim::Durable | Claim::Nothing));
        let mut seen = match (self.verdict, &self.worst) {
            (Verdict::NotRun, _) => "not run".into(),
            (Verdict::Held, _) if is_promised => format!("held in {}", self.states),
            (Verdict::Held, _) => format!("not promised, held in {}", self.states),
            (Verdict::Lost | Verdict::Damaged, Some(worst)) => {
                format!("lost {} of {}", worst.missing(), worst.acked)
            }
            _ => "does not mount".into(),
        };
        if let (Verdict::Damaged, Some(damage)) = (self.verdict, &self.damage) {
            seen += if damage.garbage > 0 { "; garbage" } else { "; torn" };
        }
        match self.holes {
            Some(0) => seen += "; no hole",
            Some(holes) => seen += &format!("; a hole in {holes}"),
            None => {}
        }
        if self.as_claimed { seen } else { format!("**NOT AS CLAIMED: {seen}**") }
    }
}

impl Display for Row {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { strategy, file_system, states, bad_states, .. } = self;
        write!(f, "{strategy} on {file_system}: ")?;
        match self.verdict {
            Verdict::NotRun => {
                write!(f, "NOT RUN: {}", self.not_run.as_deref().unwrap_or("stopped"))?;
            }
            Verdict::Held => write!(f, "held in {states} states")?,
            _ => write!(f, "bad in {bad_states} of {states} states")?,
        }
        for (name, worst) in [("worst", &self.worst), ("damage", &self.damage)] {
            let Some(Worst { state, acked, lost, torn, garbage, words }) = worst else { continue };
            write!(
                f,
                "\n  {name}: {lost} lost, {torn} torn, {garbage} garbage of {acked} acknowledged \
                 in state {state}: {words}"
            )?;
        }
        if let Some((state, why)) = &self.unreadable {
            write!(f, "\n  does not mount in state {state}: {why}")?;
        }
        if let (Some(holes), Some((state, words))) = (self.holes, &self.hole) {
            write!(f, "\n  a hole in {holes} of {states} states, first in state {state}: {words}")?;
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
    pub kernel: String,
    pub command: String,
    pub rows: Vec<Row>,
    pub not_run: Vec<String>,
}

impl Report {
    /// Whether something was checked and everything is as claimed.
    pub fn is_as_claimed(&self) -> bool {
        self.states() > 0 && self.rows.iter().all(|row| row.as_claimed)
    }

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
