//! Two results of the lab side by side: which ways of writing became slower or faster, and for
//! which it cannot tell.
//!
//! *Owns*: what a comparison says. *May not touch*: how results are read (`series`), when a
//! difference counts (`judge`).
//!
//! Times of two runs are never compared directly: between them the machine drifts, and two machines
//! differ anyway. Each run has a yardstick of its own, round by round, and each cell is compared
//! relative to it.

mod judge;
mod series;
mod words;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use series::{Read, read};

use series::{Group, Series};

/// A comparison of two results.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Comparison {
    /// The answer, in words.
    pub sentence: String,
    /// What is compared, and what is not: the yardstick, other machines, drift.
    pub notes: Vec<String>,
    /// One line for each cell or row of either result.
    pub lines: Vec<Line>,
}

/// One cell or row in both results.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Line {
    /// Run or experiment, and place.
    pub group: String,
    /// The cell's or row's name.
    pub name: String,
    /// Its time in the second result divided by that in the first, each by its own yardstick: above
    /// 1 is slower.
    pub ratio: Option<f64>,
    /// 95% interval of that, for this line alone.
    pub low: Option<f64>,
    /// Its upper end.
    pub high: Option<f64>,
    /// The verdict, corrected for all lines together.
    pub change: Change,
    /// Why there is no verdict, if there is a special reason.
    pub why: Option<String>,
}

/// The verdict on a cell.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Change {
    /// Its interval lies inside the margin.
    Same,
    /// It takes less time, beyond noise.
    Faster,
    /// It takes more time, beyond noise.
    Slower,
    /// The figures allow none of the three.
    #[default]
    CannotTell,
}

impl Comparison {
    /// Lines of this kind.
    pub fn count(&self, change: Change) -> usize {
        self.lines.iter().filter(|line| line.change == change).count()
    }

    /// 0: nothing became slower; 3: something did; 4: there is no verdict on anything.
    pub fn exit_code(&self) -> u8 {
        match (self.count(Change::Slower), self.count(Change::Same) + self.count(Change::Faster)) {
            (0, 0) => 4,
            (0, _) => 0,
            _ => 3,
        }
    }
}

/// Compares the second result with the first.
///
/// # Errors
/// When they are of different kinds.
pub fn compare(first: &Read, second: &Read) -> Result<Comparison, String> {
    if first.kind != second.kind {
        return Err(format!(
            "the first is {}, the second {}: they cannot be compared",
            first.kind, second.kind
        ));
    }
    let mut lines = Vec::new();
    let mut found = Vec::new();
    for group in &first.groups {
        match second.groups.iter().find(|other| other.name == group.name) {
            Some(other) => one_group(group, other, &mut lines, &mut found),
            None => lines.extend(
                group.series.iter().map(|series| alone(group, series, "only in the first")),
            ),
        }
    }
    for group in &second.groups {
        if !first.groups.iter().any(|other| other.name == group.name) {
            lines.extend(
                group.series.iter().map(|series| alone(group, series, "only in the second")),
            );
        }
    }
    judge::judge(&mut lines, &found);
    let mut comparison =
        Comparison { sentence: String::new(), notes: words::notes(first, second), lines };
    comparison.sentence = words::sentence(&comparison);
    Ok(comparison)
}

fn alone(group: &Group, series: &Series, why: &str) -> Line {
    Line {
        group: group.name.clone(),
        name: series.name.clone(),
        why: Some(why.into()),
        ..Line::default()
    }
}

/// Adds a line for each series of either group; returns the shift of each line that can be judged.
fn one_group(
    first: &Group,
    second: &Group,
    lines: &mut Vec<Line>,
    found: &mut Vec<Vec<(usize, judge::Shift)>>,
) {
    let others: BTreeMap<&str, &Series> =
        second.series.iter().map(|series| (series.name.as_str(), series)).collect();
    let mut both: Vec<(&Series, &Series)> = Vec::new();
    for series in &first.series {
        match others.get(series.name.as_str()) {
            Some(other) => both.push((series, other)),
            None => lines.push(alone(first, series, "only in the first")),
        }
    }
    for series in &second.series {
        if !first.series.iter().any(|other| other.name == series.name) {
            lines.push(alone(second, series, "only in the second"));
        }
    }
    let (barred, usable): (Vec<_>, Vec<_>) =
        both.into_iter().map(|(a, b)| (a, b, cannot(a, b))).partition(|(_, _, why)| why.is_some());
    lines.extend(barred.into_iter().map(|(a, _, why)| Line { why, ..alone(first, a, "") }));
    let usable: Vec<(&Series, &Series)> = usable.into_iter().map(|(a, b, _)| (a, b)).collect();
    let mut shifts = Vec::new();
    for ((a, _), shift) in usable.iter().zip(series::Yardstick::of(first, &usable).shifts(&usable))
    {
        let mut line = Line { group: first.name.clone(), name: a.name.clone(), ..Line::default() };
        match shift {
            Ok(shift) => shifts.push((lines.len(), shift)),
            Err(why) => line.why = Some(why),
        }
        lines.push(line);
    }
    found.push(shifts);
}

/// Why these two cannot be compared.
fn cannot(a: &Series, b: &Series) -> Option<String> {
    let invalid =
        |series: &Series, which: &str| series.invalid.as_ref().map(|why| format!("{which}: {why}"));
    invalid(a, "in the first").or_else(|| invalid(b, "in the second")).or_else(|| {
        (a.what != b.what)
            .then(|| format!("different things: {} in the first, {} in the second", a.what, b.what))
    })
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
