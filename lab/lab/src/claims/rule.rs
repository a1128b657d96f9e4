//! From a figure with its interval to an answer, by one rule for every claim: a claim only names
//! its band.
//!
//! *Owns*: the band, and how an interval is judged by it. *May not touch*: where a figure comes
//! from.

use serde::{Deserialize, Serialize};

/// The range in which a claim's figure must lie, ends included.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Band {
    /// The least.
    pub from: f64,
    /// The most; infinite if the claim names no limit.
    pub to: f64,
}

/// A figure with its interval.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Found {
    /// The centre.
    pub value: f64,
    /// Lower end of the 95% interval; for a count, the count itself.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
    /// Its unit: `times`, `flushes a commit`.
    pub unit: String,
    /// What was compared, by names of cells or rows.
    pub of: String,
}

/// The verdict on a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The whole interval is in the band.
    Confirmed,
    /// The whole interval is outside of it.
    Refuted,
    /// An end of the band is inside the interval: no answer.
    CannotTell,
    /// There is no figure; the answer has the reason.
    NotRun,
}

impl Band {
    /// `from` or more.
    pub const fn at_least(from: f64) -> Self {
        Self { from, to: f64::INFINITY }
    }

    /// From one to the other.
    pub const fn between(from: f64, to: f64) -> Self {
        Self { from, to }
    }

    /// Judges a figure with this interval.
    pub fn verdict(self, low: f64, high: f64) -> Verdict {
        if low.is_nan() || high.is_nan() {
            Verdict::CannotTell
        } else if low >= self.from && high <= self.to {
            Verdict::Confirmed
        } else if high < self.from || low > self.to {
            Verdict::Refuted
        } else {
            Verdict::CannotTell
        }
    }

    /// `1.5 to 3`, `1.03 or more`, `0`.
    pub fn words(self) -> String {
        if self.to.is_infinite() {
            format!("{} or more", self.from)
        } else if self.from == self.to {
            self.from.to_string()
        } else if self.from == 0.0 {
            format!("{} or less", self.to)
        } else {
            format!("{} to {}", self.from, self.to)
        }
    }
}

impl Verdict {
    /// For people.
    pub fn words(self) -> &'static str {
        match self {
            Self::Confirmed => "confirmed",
            Self::Refuted => "refuted",
            Self::CannotTell => "cannot tell",
            Self::NotRun => "not run",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_inside_outside_or_across() {
        let twice = Band::between(1.5, 3.0);
        for (low, high, verdict) in [
            (1.6, 2.2, Verdict::Confirmed),
            (1.5, 3.0, Verdict::Confirmed),
            (1.0, 1.4, Verdict::Refuted),
            (3.1, 4.0, Verdict::Refuted),
            (1.4, 2.0, Verdict::CannotTell),
            (2.0, 3.5, Verdict::CannotTell),
            (1.0, 9.0, Verdict::CannotTell),
            (f64::NAN, 2.0, Verdict::CannotTell),
        ] {
            assert_eq!(twice.verdict(low, high), verdict, "{low} {high}");
        }
        assert_eq!(Band::at_least(1.03).verdict(1.03, 1e9), Verdict::Confirmed);
        assert_eq!(Band::between(0.0, 0.0).verdict(0.0, 0.0), Verdict::Confirmed);
        assert_eq!(Band::between(0.0, 0.0).verdict(1.0, 1.0), Verdict::Refuted);
    }

    #[test]
    fn bands_in_words() {
        let words = [
            Band::at_least(1.2),
            Band::between(0.0, 0.0),
            Band::between(0.0, 0.1),
            Band::between(1.5, 3.0),
        ];
        assert_eq!(words.map(Band::words), ["1.2 or more", "0", "0.1 or less", "1.5 to 3"]);
    }
}
