//! Common parts of the findings of experiments: the best row, and the text of comparisons.
//!
//! *Owns*: the wording. *May not touch*: figures.

use crate::result::{Relative, Round, Verdict};
use crate::stats::{median, relative_of_several};

use super::{ExperimentResult, ExperimentRow, Unit};

/// The median over a row's rounds; `None` if it has none.
pub(crate) fn median_of(row: &ExperimentRow) -> Option<f64> {
    if row.invalid.is_some() { None } else { median(&row.samples) }
}

/// The row of this name.
pub(crate) fn row<'a>(found: &'a ExperimentResult, name: &str) -> Option<&'a ExperimentRow> {
    found.rows.iter().find(|row| row.name == name)
}

/// The row with the highest median.
pub(crate) fn best(found: &ExperimentResult) -> Option<&ExperimentRow> {
    best_of(found.rows.iter())
}

/// The best row of one series.
pub(crate) fn best_in<'a>(found: &'a ExperimentResult, series: &str) -> Option<&'a ExperimentRow> {
    best_of(found.rows.iter().filter(|row| row.series == series))
}

fn best_of<'a>(rows: impl Iterator<Item = &'a ExperimentRow>) -> Option<&'a ExperimentRow> {
    let measured = rows.filter(|row| median_of(row).is_some());
    measured.max_by(|a, b| median_of(a).unwrap_or(0.0).total_cmp(&median_of(b).unwrap_or(0.0)))
}

/// The rounds of a row, rebuilt from its samples.
pub(crate) fn rounds_of(row: &ExperimentRow, unit: Unit) -> Vec<Round> {
    const COMMITS: u64 = 1_000_000;
    let one = |(number, &value): (u32, &f64)| {
        let each_ns = if unit.is_time() { value } else { 1e9 / value };
        Round {
            number,
            commits: COMMITS,
            total_ns: (COMMITS as f64 * each_ns) as u64,
            ..Round::default()
        }
    };
    (0..).zip(&row.samples).map(one).collect()
}

/// Other measured rows that were not shown to be slower than this one: ties, rows of which the lab
/// cannot tell, and rows with too few rounds for an interval.
pub(crate) fn not_behind<'a>(
    found: &'a ExperimentResult,
    best: &ExperimentRow,
    series: Option<&str>,
) -> Vec<&'a ExperimentRow> {
    let ours = rounds_of(best, found.unit);
    // As in the experiment's table.
    let questions =
        found.rows.iter().filter(|row| median_of(row).is_some()).count().saturating_sub(1);
    let is_behind = |row: &ExperimentRow| {
        let compared =
            relative_of_several(&rounds_of(row, found.unit), &ours, found.seed, questions);
        compared.is_some_and(|compared| compared.verdict == Verdict::Faster)
    };
    let others = found.rows.iter().filter(|row| row.name != best.name && median_of(row).is_some());
    let others = others.filter(|row| series.is_none_or(|series| row.series == series));
    others.filter(|row| !is_behind(row)).collect()
}

/// ` (not told apart: `x`)`, to follow the name of the best; empty if all others are slower.
pub(crate) fn also(found: &ExperimentResult, best: &ExperimentRow, series: Option<&str>) -> String {
    match not_behind(found, best, series).as_slice() {
        [] => String::new(),
        [one] => format!(" (not told apart: `{}`)", one.name),
        [first, rest @ ..] => {
            format!(" (not told apart: `{}` and {} more)", first.name, rest.len())
        }
    }
}

/// A figure of a row by its name.
pub(crate) fn figure_of(row: &ExperimentRow, name: &str) -> Option<f64> {
    row.figures.iter().find(|figure| figure.name == name).map(|figure| figure.value)
}

/// `2.4 times `x` (95%: 2.2 to 2.6)`, or that they tie.
pub(crate) fn compared(relative: Option<&Relative>, base: &str) -> String {
    match relative {
        None => format!("`{base}` is the baseline"),
        Some(relative) => {
            let (speedup, interval) = (relative.speedup, relative.interval_words());
            match relative.verdict {
                Verdict::Tie => format!("a tie with `{base}` ({speedup:.2}, {interval})"),
                Verdict::CannotTell => format!("not told from `{base}` ({speedup:.2}, {interval})"),
                _ => format!("{speedup:.2} times `{base}` ({interval})"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ties_with_the_best_is_named_and_what_is_behind_is_not() {
        let row = |name: &str, rate: f64, rounds: u32| ExperimentRow {
            name: name.into(),
            samples: (0..rounds).map(|n| rate * (1.0 + f64::from(n % 3) * 0.01)).collect(),
            ..ExperimentRow::default()
        };
        let said = |rows: Vec<ExperimentRow>| {
            let found = ExperimentResult { rows, ..ExperimentResult::default() };
            also(&found, best(&found).expect("one"), None)
        };
        assert_eq!(said(vec![row("a", 200.0, 7), row("b", 100.0, 7)]), "");
        assert_eq!(said(vec![row("a", 100.5, 7), row("b", 100.0, 7)]), " (not told apart: `b`)");
        assert_eq!(said(vec![row("a", 200.0, 1), row("b", 100.0, 1)]), " (not told apart: `b`)");
    }
}
