//! How one arm compares with another: part of the contract of [`crate::result`].
//!
//! *Owns*: the data, and the rule that there is an interval only if there were enough rounds. *May not touch*: how it is computed
//! (`stats`).

use serde::{Deserialize, Serialize};

/// How a cell compares with its run's baseline.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Relative {
    /// Time per commit of the baseline divided by this cell's, paired by round: above 1 is faster.
    pub speedup: f64,
    /// Lower end of its 95% interval; `None` if there were too few rounds.
    pub low: Option<f64>,
    /// Its upper end.
    pub high: Option<f64>,
    /// The verdict.
    pub verdict: Verdict,
}

impl Relative {
    /// A comparison with enough rounds for an interval.
    pub fn with_interval(speedup: f64, (low, high): (f64, f64), verdict: Verdict) -> Self {
        Self { speedup, low: Some(low), high: Some(high), verdict }
    }

    /// With fewer rounds: the speedup alone, without a verdict.
    pub fn without_interval(speedup: f64) -> Self {
        Self { speedup, low: None, high: None, verdict: Verdict::Unknown }
    }

    /// The interval, if there is one. Results from before 2026-11 with too few rounds have the range of the rounds in its
    /// place: it is not shown.
    pub fn interval(&self) -> Option<(f64, f64)> {
        if self.verdict == Verdict::Unknown { None } else { self.low.zip(self.high) }
    }

    /// For a column: `1.20 [1.10..1.30]`, `tie [0.98..1.02]`, `1.15 (few rounds)`.
    pub fn words(&self) -> String {
        let speedup = self.speedup;
        match (self.interval(), self.verdict) {
            (None, _) => format!("{speedup:.2} (few rounds)"),
            (Some((low, high)), Verdict::Tie) => format!("tie [{low:.2}..{high:.2}]"),
            (Some((low, high)), _) => format!("{speedup:.2} [{low:.2}..{high:.2}]"),
        }
    }

    /// `95%: 1.10 to 1.30`, or why there is no interval.
    pub(crate) fn interval_words(&self) -> String {
        match self.interval() {
            Some((low, high)) => format!("95%: {low:.2} to {high:.2}"),
            None => FEW_ROUNDS.into(),
        }
    }

    /// The inverse comparison.
    pub(crate) fn turned(&self) -> Self {
        let turn = |end: Option<f64>| end.map(|end| 1.0 / end);
        let verdict = match self.verdict {
            Verdict::Faster => Verdict::Slower,
            Verdict::Slower => Verdict::Faster,
            other => other,
        };
        Self { speedup: 1.0 / self.speedup, low: turn(self.high), high: turn(self.low), verdict }
    }
}

/// Shown in place of an interval.
pub(crate) const FEW_ROUNDS: &str = "too few rounds for an interval";

/// Whether two arms differ: only when the interval is clear of 1 *and* the effect is at least 3%.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Takes less time.
    Faster,
    /// Takes more time.
    Slower,
    /// Neither is shown to be faster.
    Tie,
    /// Too few rounds to say anything.
    Unknown,
}
