//! What findings of experiments have in common: the best row, and comparisons in words.
//!
//! *Owns*: the wording. *May not touch*: figures.

use crate::result::{Relative, Verdict};
use crate::stats::median;

use super::{Experiment, ExperimentRow};

/// The median over a row's rounds; `None` where it has none.
pub(crate) fn median_of(row: &ExperimentRow) -> Option<f64> {
    if row.invalid.is_some() { None } else { median(&row.samples) }
}

/// The row of this name.
pub(crate) fn row<'a>(found: &'a Experiment, name: &str) -> Option<&'a ExperimentRow> {
    found.rows.iter().find(|row| row.name == name)
}

/// The row with the highest median.
pub(crate) fn best(found: &Experiment) -> Option<&ExperimentRow> {
    best_of(found.rows.iter())
}

/// The best of one series.
pub(crate) fn best_in<'a>(found: &'a Experiment, series: &str) -> Option<&'a ExperimentRow> {
    best_of(found.rows.iter().filter(|row| row.series == series))
}

fn best_of<'a>(rows: impl Iterator<Item = &'a ExperimentRow>) -> Option<&'a ExperimentRow> {
    let measured = rows.filter(|row| median_of(row).is_some());
    measured.max_by(|a, b| median_of(a).unwrap_or(0.0).total_cmp(&median_of(b).unwrap_or(0.0)))
}

/// A figure of a row by its name.
pub(crate) fn figure_of(row: &ExperimentRow, name: &str) -> Option<f64> {
    row.figures.iter().find(|figure| figure.name == name).map(|figure| figure.value)
}

/// `2.4 times `x` (95%: 2.2 to 2.6)`, or that they cannot be told apart.
pub(crate) fn compared(relative: Option<&Relative>, base: &str) -> String {
    match relative {
        None => format!("`{base}` is what the others are compared with"),
        Some(relative) => {
            let (speedup, interval) = (relative.speedup, relative.interval_words());
            match relative.verdict {
                Verdict::Tie => format!("not to be told from `{base}` ({speedup:.2}, {interval})"),
                _ => format!("{speedup:.2} times `{base}` ({interval})"),
            }
        }
    }
}
