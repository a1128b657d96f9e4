//! How one arm compares with another: part of the contract of [`crate::result`].
//!
//! *Owns*: the data, and the rule that there is an interval only if there were enough rounds. *May
//! not touch*: how it is computed (`stats`).

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

    /// The interval, if there is one. Results from before 2026-11 with too few rounds have the
    /// range of the rounds in its place: it is not shown.
    pub fn interval(&self) -> Option<(f64, f64)> {
        if self.verdict == Verdict::Unknown { None } else { self.low.zip(self.high) }
    }

    /// For a column: `1.20 [1.10..1.30]`, `1.01 [0.98..1.04] tie`, `1.7 [0.6..4.1] cannot tell`,
    /// `1.15 (few rounds)`.
    pub fn words(&self) -> String {
        self.column(|value| format!("{value:.2}"))
    }

    /// The same with the ratios as a table shows them.
    pub(crate) fn column(&self, shown: impl Fn(f64) -> String) -> String {
        let speedup = shown(self.speedup);
        match self.interval() {
            None => format!("{speedup} (few rounds)"),
            Some((low, high)) => {
                format!("{speedup} [{}..{}]{}", shown(low), shown(high), self.verdict.mark())
            }
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

/// Whether two arms differ: only when the interval is clear of 1 *and* the effect is at least 3%
/// (`stats::verdict` is the rule).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Takes less time.
    Faster,
    /// Takes more time.
    Slower,
    /// The whole interval is within 10% of 1: one is as good as the other.
    Tie,
    /// The interval allows more than one of these.
    CannotTell,
    /// Too few rounds for an interval.
    Unknown,
}

impl Verdict {
    /// Follows a figure in a table: empty where the figure itself says it.
    pub(crate) fn mark(self) -> &'static str {
        match self {
            Self::Faster | Self::Slower => "",
            Self::Tie => " tie",
            Self::CannotTell => " cannot tell",
            Self::Unknown => " ?",
        }
    }
}
