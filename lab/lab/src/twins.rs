//! Identical rows compared with each other: how often the lab calls equal things different. Part of
//! the contract of [`crate::result`].
//!
//! *Owns*: the data, and when a pair counts as called different. *May not touch*: the comparison
//! (`stats`), measuring.

use serde::{Deserialize, Serialize};

use crate::experiment::ExperimentResult;
use crate::result::{Place, Relative, Run, Verdict};
use crate::stats;

/// Identical arms compared with each other.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct AaResult {
    /// Where.
    pub place: Place,
    /// The arm that was paired with itself, or the experiment whose rows were.
    pub cell: String,
    /// Pairs that have an interval.
    pub pairs: u32,
    /// Rounds in each pair.
    pub rounds: u32,
    /// Pairs called different: at 95% about one in twenty may be.
    pub different: u32,
    /// The speedup found in each pair.
    pub speedups: Vec<f64>,
    /// The rows that were called different.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub called: Vec<String>,
}

/// The share of equal pairs that may be called different.
pub const BY_CHANCE: f64 = 0.05;

impl AaResult {
    /// A result without pairs.
    pub fn of(place: &Place, cell: impl Into<String>, rounds: u32) -> Self {
        Self { place: place.clone(), cell: cell.into(), rounds, ..Self::default() }
    }

    /// Adds a pair; with too few rounds for an interval it does not count.
    pub fn take(&mut self, row: &str, pair: Option<Relative>) {
        let Some(pair) = pair.filter(|pair| pair.verdict != Verdict::Unknown) else { return };
        self.pairs += 1;
        self.speedups.push(pair.speedup);
        if matches!(pair.verdict, Verdict::Faster | Verdict::Slower) {
            self.different += 1;
            self.called.push(format!("{row}: {}", pair.words()));
        }
    }

    /// Adds each row of an experiment with twins.
    pub fn take_experiment(&mut self, found: &ExperimentResult) {
        for row in &found.rows {
            self.take(&row.name, row.twin);
        }
    }

    /// Adds each cell of a run that has every cell twice, one after the other.
    pub fn take_run(&mut self, run: &Run) {
        for pair in run.cells.chunks_exact(2) {
            let both = pair[0].outcome.measured().zip(pair[1].outcome.measured());
            let found =
                both.and_then(|(one, other)| stats::relative(&one.rounds, &other.rounds, run.seed));
            self.take(&pair[0].name, found);
        }
    }

    /// The share of pairs that were called different.
    pub fn share(&self) -> f64 {
        f64::from(self.different) / f64::from(self.pairs.max(1))
    }
}

/// The sum of all.
pub fn together(all: &[AaResult]) -> AaResult {
    let mut sum = AaResult::default();
    for one in all {
        sum.pairs += one.pairs;
        sum.different += one.different;
        sum.speedups.extend(&one.speedups);
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::tests::{cell, run};
    use crate::result::DurableFinding;

    fn pairs(us: &[(f64, f64)]) -> AaResult {
        let made = |us| cell("new fsync", us, DurableFinding::Seen { commits: 10 });
        let run = run(us.iter().flat_map(|&(one, other)| [made(one), made(other)]).collect());
        let mut found = AaResult::of(&run.place, "quick", run.rounds);
        found.take_run(&run);
        found
    }

    #[test]
    fn a_planted_difference_is_called_one_and_equals_are_not() {
        let same = pairs(&[(100.0, 100.0), (50.0, 50.0), (7.0, 7.0)]);
        assert_eq!((same.pairs, same.different, same.called.len()), (3, 0, 0));
        let planted = pairs(&[(100.0, 100.0), (100.0, 200.0), (200.0, 100.0)]);
        assert_eq!((planted.pairs, planted.different), (3, 2), "{:?}", planted.called);
        let all = together(&[same, planted]);
        assert_eq!((all.pairs, all.different, all.speedups.len()), (6, 2, 6));
        assert!((all.share() - 1.0 / 3.0).abs() < 1e-9);
    }

    #[test]
    fn what_has_no_interval_is_no_pair() {
        let mut found = AaResult::default();
        found.take("row", Some(Relative::without_interval(3.0)));
        found.take("row", None);
        assert_eq!((found.pairs, found.different, found.share()), (0, 0, 0.0));
    }
}
