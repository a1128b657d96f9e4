//! The results of experiments whose rows are not commits of one cell: reads, pools, depths, loads,
//! the practice.
//!
//! *Owns*: the data, its units and their meaning; part of the contract of [`crate::result`]. *May
//! not touch*: how it is measured or printed. A figure that was not measured is missing, never 0.

pub mod e1;
mod e10;
mod e2;
mod e3;
mod e4;
mod e5;
mod e5_group;
mod e6;
mod e7;
mod e8;
mod e9;
mod flight;
pub mod list;
pub mod part;
mod pattern;
pub mod rounds;
mod scratch;
pub mod statement;
#[cfg(test)]
mod testing;
mod unit;
pub(crate) mod ways;
mod words;

pub use e8::{ReadOrder, read};
pub use unit::Unit;
pub use ways::quick as quick_ways;

use serde::{Deserialize, Serialize};

use crate::result::{Finding, Histogram, Place, Relative};

/// Rows measured side by side in one place, in rounds, interleaved.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct ExperimentResult {
    /// Short name, unique in one place: `pool`, `read-random-cold`, `log-preallocation`,
    /// `text-paced-4`.
    pub name: String,
    /// What it shows, in one line for people.
    pub title: String,
    /// The command that repeats it.
    pub command: String,
    /// Where.
    pub place: Place,
    /// What a row's position on the horizontal axis means (`threads`, `writes in flight`, `bytes
    /// per write`); `None` if rows have no position.
    pub x_name: Option<String>,
    /// What is compared: a rate (`operations/s`, `bytes/s`: more is better), or a time in
    /// nanoseconds (`ns, p99.9 of a write`: less is better).
    pub unit: Unit,
    /// Name of the row that the others are compared with.
    pub baseline: Option<String>,
    /// Planned rounds.
    pub rounds: u32,
    /// Seed of the order of rows in each round and of the bytes.
    pub seed: u64,
    /// The rows, in the planned order.
    pub rows: Vec<ExperimentRow>,
    /// Where a curve bends: (the series, the x after which it no longer rises).
    pub knees: Vec<(String, f64)>,
    /// What it means, in words.
    pub finding: Option<Finding>,
    /// What a reader should know about it: what could not be checked, missing rights.
    pub notes: Vec<String>,
}

/// One row of an experiment.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct ExperimentRow {
    /// Its name, unique in the experiment: `pool, 8 threads`.
    pub name: String,
    /// Rows of one series are one curve: `pool`, `io_uring`.
    pub series: String,
    /// Its position on the horizontal axis.
    pub x: Option<f64>,
    /// Why there are no figures, in words.
    pub invalid: Option<String>,
    /// In the experiment's unit, one value per round.
    pub samples: Vec<f64>,
    /// Compared with the baseline, paired by round: above 1 is more per second, or less time.
    pub relative: Option<Relative>,
    /// Times of single operations, if they were timed one by one.
    pub latency: Option<Histogram>,
    /// Further counts and times, per operation unless the unit says otherwise.
    pub figures: Vec<Figure>,
}

/// A further figure of a row.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// `context switches`, `system time`, `resident before`.
    pub name: String,
    /// `per operation`, `ns per operation`, `%`, `bytes/s`, `lines`.
    pub unit: Unit,
    /// The value.
    pub value: f64,
}

/// For tests of tables: the words of a finding about a comparison.
#[cfg(test)]
pub(crate) fn compared_words(relative: Option<&Relative>) -> String {
    words::compared(relative, "base")
}

pub(crate) use words::{not_behind, rounds_of};

/// Where the curve of this series bends, if it does.
pub(crate) fn knee_of(experiment: &ExperimentResult, series: &str) -> Option<f64> {
    experiment.knees.iter().find(|(name, _)| name == series).map(|(_, x)| *x)
}
