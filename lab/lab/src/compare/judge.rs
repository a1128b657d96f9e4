//! When a difference between two runs counts.
//!
//! *Owns*: the noise between runs, the test, the correction for many cells. *May not touch*: where
//! shifts come from.
//!
//! **The shift** of a cell is the Hodges-Lehmann shift: the median of all differences between a
//! round of the second result and a round of the first, as logarithms. Its own error comes from the
//! scatter of the rounds (median absolute deviations, so that single slow rounds do not count as
//! scatter).
//!
//! **Noise between runs.** Rounds of one run share a file, its place on the disk, the state of the
//! host: two runs of the same build differ by more than their rounds scatter. The amount comes from
//! the comparison itself, as in a random-effects meta-analysis (DerSimonian and Laird 1986,
//! Controlled Clinical Trials 7, 177-188) but robustly: from the shifts of the nearer three
//! quarters of all cells. So at most a quarter of the cells may really have changed; if more have,
//! changes go unnoticed. It is never less than the minimum of a series ([`Shift::between_min`]),
//! and at least [`BETWEEN_ALONE`] if there are too few cells.
//!
//! **Many cells.** With thirty cells at 95% some cell is always "slower". So each gets a two-sided
//! p-value (Student's t), and all of them together go through Holm's step-down procedure (Holm
//! 1979, "A Simple Sequentially Rejective Multiple Test Procedure", Scandinavian Journal of
//! Statistics 6, 65-70): the chance of *any* false alarm in a comparison is at most [`ALPHA`]. A
//! change must also be at least [`CHANGE_MIN`].

use crate::stats::{SAME_WITHIN, median};

use super::series::{BETWEEN_MIN, LEVEL_MIN, centre};
use super::{Change, Line};

/// Chance of any false alarm in a whole comparison.
pub(super) const ALPHA: f64 = 0.01;
/// A change below 5% does not count, however certain.
pub(super) const CHANGE_MIN: f64 = 1.05;
/// Noise between runs if there are too few cells to estimate it.
const BETWEEN_ALONE: f64 = 0.05;
/// Median absolute deviation to standard deviation, for normal noise.
const MAD_TO_SD: f64 = 1.4826;
/// Mean square of the nearer three quarters to variance, for normal noise: 1 / (1 - 2 q f(q) /
/// 0.75) with the density f and its quartile q = 1.1503.
const NEARER_TO_VARIANCE: f64 = 2.714;

/// How much a cell of the second result differs from that of the first.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Shift {
    /// Logarithm: above 0 is slower.
    pub(super) log: f64,
    /// Its error from the scatter of the rounds: one standard deviation.
    pub(super) error: f64,
    /// Runs of one build differ by at least this much.
    pub(super) between_min: f64,
}

impl Shift {
    /// The shift from `a` to `b`; neither is empty.
    pub(super) fn between(a: &[f64], b: &[f64]) -> Self {
        let differences: Vec<f64> = b.iter().flat_map(|b| a.iter().map(move |a| b - a)).collect();
        let log = median(&differences).unwrap_or(0.0);
        // The variance of a Hodges-Lehmann centre: pi/3 of the mean's, for normal noise.
        let variance =
            |values: &[f64]| spread(values, centre(values)).powi(2) / values.len() as f64;
        let error = ((variance(a) + variance(b)) * std::f64::consts::FRAC_PI_3).sqrt();
        Self { log, error, between_min: BETWEEN_MIN }
    }

    /// The same for a series that differs more between runs.
    pub(super) fn at_least(self, between_min: f64) -> Self {
        Self { between_min, ..self }
    }
}

fn spread(values: &[f64], from: f64) -> f64 {
    let away: Vec<f64> = values.iter().map(|value| (value - from).abs()).collect();
    median(&away).unwrap_or(0.0) * MAD_TO_SD
}

/// Fills in ratio, interval and change of every line that has a shift. Each group has its own noise
/// between runs; Holm's procedure covers all groups together.
pub(super) fn judge(lines: &mut [Line], groups: &[Vec<(usize, Shift)>]) {
    let mut tests = Vec::new();
    for group in groups {
        let shifts: Vec<Shift> = group.iter().map(|(_, shift)| *shift).collect();
        let (between, within) = noise(&shifts);
        let degrees = degrees(shifts.len());
        let reach = t_quantile(0.025, degrees);
        for &(index, shift) in group {
            // There are few rounds: a cell whose rounds happen to agree is not more certain than
            // the others.
            let error = shift.error.max(within).hypot(between.max(shift.between_min));
            let line = &mut lines[index];
            line.ratio = Some(shift.log.exp());
            line.low = Some((shift.log - reach * error).exp());
            line.high = Some((shift.log + reach * error).exp());
            tests.push((p_value(shift.log / error, degrees), index));
        }
    }
    tests.sort_by(|a, b| a.0.total_cmp(&b.0));
    let count = tests.len();
    let mut rejected = true;
    for (place, (p, index)) in tests.into_iter().enumerate() {
        // Step down: the first hypothesis that is not rejected ends it.
        rejected = rejected && p <= ALPHA / (count - place) as f64;
        let line = &mut lines[index];
        let (Some(ratio), Some(low), Some(high)) = (line.ratio, line.low, line.high) else {
            continue;
        };
        line.change = if rejected && ratio >= CHANGE_MIN {
            Change::Slower
        } else if rejected && ratio <= 1.0 / CHANGE_MIN {
            Change::Faster
        } else if low >= 1.0 / SAME_WITHIN && high <= SAME_WITHIN {
            Change::Same
        } else {
            Change::CannotTell
        };
    }
}

/// The noise between runs (the spread of the shifts beyond their own errors), and the usual own
/// error.
fn noise(shifts: &[Shift]) -> (f64, f64) {
    let errors: Vec<f64> = shifts.iter().map(|shift| shift.error).collect();
    let within = median(&errors).unwrap_or(0.0);
    if shifts.len() < LEVEL_MIN {
        return (BETWEEN_ALONE, within);
    }
    let mut squares: Vec<f64> = shifts.iter().map(|shift| shift.log.powi(2)).collect();
    squares.sort_by(f64::total_cmp);
    squares.truncate((squares.len() * 3).div_ceil(4));
    let nearer = squares.iter().sum::<f64>() / squares.len() as f64;
    let beyond = nearer * NEARER_TO_VARIANCE - within.powi(2);
    (beyond.max(0.0).sqrt(), within)
}

/// Degrees of freedom of the noise estimate. By simulation (`tests`): with this number the false
/// alarms stay below [`ALPHA`], although the farther cells do not count.
fn degrees(cells: usize) -> f64 {
    (cells as f64).clamp(5.0, 30.0)
}

/// Two-sided p-value of Student's t: with x = sqrt(v) tan(a) its density is cos(a)^(v-1), summed by
/// Simpson's rule.
fn p_value(t: f64, degrees: f64) -> f64 {
    let from = (t.abs() / degrees.sqrt()).atan();
    let half_pi = std::f64::consts::FRAC_PI_2;
    let area = |from: f64| {
        const STEPS: u32 = 100;
        let step = (half_pi - from) / f64::from(STEPS);
        let at = |index: u32| (from + step * f64::from(index)).cos().max(0.0).powf(degrees - 1.0);
        let weight = |index: u32| {
            if index == 0 || index == STEPS { 1.0 } else { f64::from(2 + 2 * (index % 2)) }
        };
        (0..=STEPS).map(|index| weight(index) * at(index)).sum::<f64>() * step / 3.0
    };
    (area(from) / area(0.0)).clamp(0.0, 1.0)
}

/// The t with a probability of `tail` beyond it on each side.
fn t_quantile(tail: f64, degrees: f64) -> f64 {
    let (mut low, mut high) = (0.0, 1000.0);
    for _ in 0..40 {
        let middle = (low + high) / 2.0;
        if p_value(middle, degrees) > 2.0 * tail { low = middle } else { high = middle }
    }
    high
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p_values_are_those_of_the_tables() {
        for (t, degrees, p) in [
            (2.570_6, 5.0, 0.05),
            (4.032_1, 5.0, 0.01),
            (2.178_8, 12.0, 0.05),
            (2.042_3, 30.0, 0.05),
        ] {
            assert!(
                (p_value(t, degrees) - p).abs() < 1e-4,
                "{t} {degrees}: {}",
                p_value(t, degrees)
            );
            assert!((t_quantile(p / 2.0, degrees) - t).abs() < 1e-3);
        }
        assert!((p_value(0.0, 7.0) - 1.0).abs() < 1e-9 && p_value(1e6, 7.0) < 1e-9);
    }

    #[test]
    fn holm_steps_down_and_stops() {
        let shift = |log: f64| Shift { log, error: 0.0, between_min: BETWEEN_MIN };
        let logs = [0.5, 0.001, -0.001, 0.002, 0.0, -0.4, 0.0, 0.001, -0.002];
        let mut lines = vec![Line::default(); logs.len()];
        judge(&mut lines, &[logs.iter().map(|&log| shift(log)).enumerate().collect()]);
        let changes: Vec<Change> = lines.iter().map(|line| line.change).collect();
        use Change::*;
        assert_eq!(changes, [Slower, Same, Same, Same, Same, Faster, Same, Same, Same]);
        assert!((lines[0].ratio.expect("a ratio") - 0.5_f64.exp()).abs() < 1e-9);
    }
}
