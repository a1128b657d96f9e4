//! The statistics of the lab: quantiles, and whether two ways measured side by side differ.
//!
//! *Owns*: the speedup of a way over its baseline, its interval, and the rule that turns both into
//! a verdict. *May not touch*: clocks, files, printing. Everything is a pure function: the
//! bootstrap draws the same numbers each time.
//!
//! **The comparison.** Ways are interleaved, so a round of the baseline and the same round of an
//! way have the same drift. Each pair gives `d = ln(baseline / way)`; the speedup is `exp` of a
//! centre of the `d`. Of the mean, the median, trimmed means and the Hodges-Lehmann centre (the
//! median of all pairwise averages) the last was chosen by simulation: with lognormal noise of
//! 3-20% per round, single rounds 2-5 times too slow and a common drift, the mean calls up to 9% of
//! equal pairs different, and the median misses more real differences if there are no spikes.
//!
//! **The interval.** A percentile bootstrap over rounds is too narrow when there are few.
//! Hesterberg (2015), "What Teachers Should Know About the Bootstrap: Resampling in the
//! Undergraduate Statistics Curriculum", The American Statistician 69(4), 371-386, corrects it by
//! the *expanded percentile interval*: instead of the 2.5% quantile the one at `Phi(-sqrt(n/(n-1))
//! t_{0.975,n-1})`. Alone that is not enough at n = 5: no percentile interval reaches beyond the
//! smallest and largest `d`, and five equal pairs agree in sign once in 16 (6.25%), whatever the
//! noise. So the same correction is applied a second way, as a factor on the distance of the
//! ordinary 2.5% quantiles from the centre, and the wider end of the two counts.
//!
//! **The results** (test `simulation`; seven noises, 10,000 equal pairs each). Share of equal pairs
//! that are called different, from the mildest noise to the worst: 2.1-3.3% at n = 5, 1.6-3.1% at
//! 7, 1.3-3.1% at 10, 0.2-4.0% at 20, 0-4.4% at 30. A real difference of 10% is found with 20
//! rounds in all of 1,000 pairs at 3% noise per round, in 90% at 5% noise with spikes, in 75% at
//! 10%, in only 25% at 20%, and with 5 rounds in 89% to 5%: on a noisy machine a tie says little
//! about small effects.

use std::collections::BTreeMap;

use fastrand::Rng;

use crate::result::{Relative, Round, Table, Verdict, Way};

/// Bootstrap resamples of one comparison.
pub const RESAMPLES: usize = 2_000;
/// Of the numbers that it draws.
const SEED: u64 = 1;
/// With fewer paired rounds than this there is no verdict.
pub const PAIRS_MIN: usize = 5;
/// With fewer rounds than this a sentence gives figures and no verdict: the interval of a table is
/// for a reader who sees its width, a verdict is quoted without it.
pub const ROUNDS_TO_JUDGE: usize = 12;
/// An effect below this is a tie, however narrow its interval: 3%, either way.
pub const EFFECT_MIN: f64 = 0.03;

/// A tie is an interval that is whole within this factor of 1: 10%, either way. A wider one says
/// nothing.
pub const SAME_WITHIN: f64 = 1.10;
/// From so many questions on each answer needs more rounds too. Simulated without that
/// (28 equal ways beside one, 5 to 12 rounds, three noises, 500 runs each): some way was called
/// faster in 1.2 to 2.8% of the runs.
const QUESTIONS_MANY: f64 = 100.0;

/// The probability in each tail of a 95% interval.
const TAIL: f64 = 0.025;
/// 0.975 quantile of the normal distribution.
const Z_975: f64 = 1.959_964;

/// The median of finite values, between the two middle ones if they are two; `None` if there are
/// none. Values that are not finite are left out.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
    sorted.sort_unstable_by(f64::total_cmp);
    (!sorted.is_empty()).then(|| quantile_of_sorted(&sorted, 0.5))
}

impl Table {
    /// The median over a way's rounds, in the table's unit; `None` if it has none.
    pub fn median(&self, way: &Way) -> Option<f64> {
        let values: Vec<f64> = way.rounds.iter().map(|round| round.value(self.unit)).collect();
        median(&values)
    }
}

impl Way {
    /// Nanoseconds of one operation: the median over its rounds of each round's mean. Rounds
    /// without an operation are left out; `None` if no round is left.
    pub fn per_operation_ns(&self) -> Option<f64> {
        let usable = self.rounds.iter().filter(|round| round.is_usable());
        median(&usable.map(Round::per_commit_ns).collect::<Vec<_>>())
    }
}

/// Compares `way` with `baseline`, as one of several comparisons that are read together: pairs are
/// rounds of the same number, and the interval is so wide that all of them are right at once in 95
/// of 100 runs (Bonferroni). The same input gives the same answer. `None` if there is no pair.
///
/// With fewer than [`PAIRS_MIN`] pairs the verdict is [`Verdict::Unknown`] and there is no
/// interval.
pub fn relative_of_several(
    baseline: &[Round],
    way: &[Round],
    comparisons: usize,
) -> Option<Relative> {
    relative_of(&paired_logs(baseline, way), RESAMPLES, &Level::of_several(comparisons))
}

/// The verdict on a speedup and its interval, from [`PAIRS_MIN`] pairs or more: different only when
/// the interval is clear of 1 *and* the effect is at least [`EFFECT_MIN`]; a tie only when the
/// whole interval is near 1. The rule of all tables and sentences.
pub fn verdict(low: f64, high: f64, speedup: f64) -> Verdict {
    if !(low.is_finite() && high.is_finite() && speedup.is_finite()) {
        Verdict::Unknown
    } else if low > 1.0 && speedup >= 1.0 + EFFECT_MIN {
        Verdict::Faster
    } else if high < 1.0 && speedup <= 1.0 / (1.0 + EFFECT_MIN) {
        Verdict::Slower
    } else if low >= 1.0 / SAME_WITHIN && high <= SAME_WITHIN {
        Verdict::Tie
    } else {
        Verdict::CannotTell
    }
}

/// `ln(baseline / way)` of every round that both have.
fn paired_logs(baseline: &[Round], way: &[Round]) -> Vec<f64> {
    let times = |rounds: &[Round]| -> BTreeMap<u32, f64> {
        let usable = rounds.iter().filter(|round| round.is_usable());
        usable.map(|round| (round.number, round.per_commit_ns())).collect()
    };
    let (base, way) = (times(baseline), times(way));
    way.iter().filter_map(|(number, way)| Some((base.get(number)? / way).ln())).collect()
}

fn relative_of(logs: &[f64], resamples: usize, level: &Level) -> Option<Relative> {
    if logs.is_empty() {
        return None;
    }
    let mut scratch = Vec::new();
    let centre = hodges_lehmann(logs, &mut scratch);
    if logs.len() < PAIRS_MIN {
        return Some(Relative::without_interval(centre.exp()));
    }
    let (low, high) = interval(logs, centre, resamples, level);
    let (speedup, low, high) = (centre.exp(), low.exp(), high.exp());
    Some(Relative::with_interval(speedup, (low, high), verdict(low, high, speedup)))
}

/// The bootstrap interval of the centre of at least two values, as described at the top of this
/// file.
fn interval(logs: &[f64], centre: f64, resamples: usize, level: &Level) -> (f64, f64) {
    debug_assert!(logs.len() >= 2);
    let mut rng = Rng::with_seed(SEED);
    let mut scratch = Vec::with_capacity(logs.len() * (logs.len() + 1) / 2);
    let mut drawn = vec![0.0; logs.len()];
    let mut centres: Vec<f64> = (0..resamples.max(1))
        .map(|_| {
            drawn.fill_with(|| logs[rng.usize(..logs.len())]);
            hodges_lehmann(&drawn, &mut scratch)
        })
        .collect();
    centres.sort_unstable_by(f64::total_cmp);
    let n = logs.len() as f64;
    let expanded = (n / (n - 1.0)).sqrt() * t_of_tail(level.tail, logs.len() - 1);
    let alpha = normal_below(-expanded);
    // Stretched from the ordinary quantiles: a bootstrap of few rounds has no values far out.
    let factor = expanded / Z_975;
    let stretched_low = centre - (centre - quantile_of_sorted(&centres, 0.025)) * factor;
    let stretched_high = centre + (quantile_of_sorted(&centres, 0.975) - centre) * factor;
    // Far beyond any disk, and small enough for `exp`: a speedup is never infinite.
    let low = quantile_of_sorted(&centres, alpha).min(stretched_low).max(-300.0);
    let high = quantile_of_sorted(&centres, 1.0 - alpha).max(stretched_high).min(300.0);
    if level.is_reached_by(logs.len()) {
        (low.min(centre), high.max(centre))
    } else {
        (low.min(centre).min(0.0), high.max(centre).max(0.0))
    }
}

/// The Hodges-Lehmann centre of values; 0 where there are none.
pub(crate) fn hodges_lehmann_of(values: &[f64]) -> f64 {
    if values.is_empty() { 0.0 } else { hodges_lehmann(values, &mut Vec::new()) }
}

/// The Hodges-Lehmann centre: the median of the averages of all pairs, including each value with
/// itself.
fn hodges_lehmann(values: &[f64], scratch: &mut Vec<f64>) -> f64 {
    scratch.clear();
    for (index, first) in values.iter().enumerate() {
        scratch.extend(values[index..].iter().map(|second| (first + second) / 2.0));
    }
    let middle = scratch.len() / 2;
    let even = scratch.len().is_multiple_of(2);
    let (below, upper, _) = scratch.select_nth_unstable_by(middle, f64::total_cmp);
    match below.iter().copied().max_by(f64::total_cmp) {
        Some(lower) if even => (lower + *upper) / 2.0,
        _ => *upper,
    }
}

/// `sorted` must not be empty.
fn quantile_of_sorted(sorted: &[f64], q: f64) -> f64 {
    let at = (sorted.len() - 1) as f64 * q.clamp(0.0, 1.0);
    let (index, part) = (at.floor() as usize, at.fract());
    let here = sorted[index];
    match sorted.get(index + 1) {
        Some(next) if part > 0.0 => here + part * (next - here),
        _ => here,
    }
}

/// How wide an interval is.
struct Level {
    /// The probability in either tail.
    tail: f64,
}

impl Level {
    fn of_several(comparisons: usize) -> Self {
        Self { tail: TAIL / comparisons.max(1) as f64 }
    }

    /// Whether so many rounds agree by chance less often than this level allows (the sign test).
    /// Far out a bootstrap of few rounds that happen to lie close together is too narrow: eleven
    /// rounds cannot answer a thousand questions at once, however alike they are. The questions of
    /// one table keep their intervals.
    fn is_reached_by(&self, rounds: usize) -> bool {
        self.tail > TAIL / QUESTIONS_MANY || 0.5_f64.powf(rounds as f64) <= self.tail
    }
}

/// Student's t with probability `tail` above it, found by bisection.
pub(crate) fn t_of_tail(tail: f64, degrees: usize) -> f64 {
    let (mut low, mut high) = (0.0, 1e6);
    for _ in 0..200 {
        let middle = (low + high) / 2.0;
        if t_above(middle, degrees.max(1)) > tail {
            low = middle;
        } else {
            high = middle;
        }
    }
    high
}

/// The probability of Student's t with whole degrees of freedom above `t` >= 0 (Abramowitz and
/// Stegun 26.7.3 and 26.7.4).
pub(crate) fn t_above(t: f64, degrees: usize) -> f64 {
    let angle = (t / (degrees as f64).sqrt()).atan();
    let (sin, cos) = angle.sin_cos();
    let odd = degrees % 2 == 1;
    // For even degrees 1 + c^2/2 + 1*3/(2*4) c^4 ..., for odd ones c + 2/3 c^3 + 2*4/(3*5) c^5 ...
    let (mut term, first) = if odd { (cos, 3) } else { (1.0, 2) };
    let mut sum = if degrees == 1 { 0.0 } else { term };
    let mut k = first;
    while k + 2 <= degrees {
        term *= cos * cos * (k - 1) as f64 / k as f64;
        sum += term;
        k += 2;
    }
    let within = if odd { std::f64::consts::FRAC_2_PI * (angle + sin * sum) } else { sin * sum };
    (1.0 - within) / 2.0
}

/// The normal distribution function (Abramowitz and Stegun 7.1.26, absolute error below 1e-7).
fn normal_below(x: f64) -> f64 {
    let z = x.abs() / std::f64::consts::SQRT_2;
    let t = 1.0 / (1.0 + 0.327_591_1 * z);
    let poly = t
        * (0.254_829_592
            + t * (-0.284_496_736
                + t * (1.421_413_741 + t * (-1.453_152_027 + t * 1.061_405_429))));
    let upper = poly * (-z * z).exp() / 2.0;
    if x < 0.0 { upper } else { 1.0 - upper }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn relative(baseline: &[Round], way: &[Round]) -> Option<Relative> {
        relative_of_several(baseline, way, 1)
    }

    fn round(number: u32, per_commit_ns: f64) -> Round {
        Round { number, commits: 100, total_ns: (per_commit_ns * 100.0) as u64, ..Round::default() }
    }

    /// Seen in ten runs of `lab read`: eleven rounds of two equal ways lay close together on one
    /// side.
    #[test]
    fn few_rounds_do_not_answer_a_thousand_questions() {
        let ratios: [f64; 17] = [
            0.93, 0.95, 0.82, 0.87, 0.93, 0.92, 0.91, 0.92, 0.93, 0.73, 0.96, 0.93, 0.94, 0.9,
            0.92, 0.91, 0.93,
        ];
        let verdict = |count: usize, questions| {
            let base: Vec<Round> = (0..count).map(|number| round(number as u32, 1e6)).collect();
            let way: Vec<Round> =
                (0..count).map(|number| round(number as u32, 1e6 / ratios[number])).collect();
            relative_of_several(&base, &way, questions).expect("rounds")
        };
        assert_eq!(verdict(11, 1).verdict, Verdict::Slower);
        assert_eq!(verdict(11, 10).verdict, Verdict::Slower);
        let several = verdict(11, 1424);
        assert_eq!(several.verdict, Verdict::CannotTell, "{several:?}");
        assert_eq!(verdict(17, 1424).verdict, Verdict::Slower, "seventeen rounds can");
    }

    #[test]
    fn medians_of_ugly_input() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[f64::NAN, f64::INFINITY]), None);
        assert_eq!(median(&[3.0]), Some(3.0));
        assert_eq!(median(&[4.0, 1.0, f64::NAN, 2.0, 3.0]), Some(2.5));
    }

    #[test]
    fn known_constants() {
        assert!((normal_below(-1.959_964) - 0.025).abs() < 1e-6);
        assert!((normal_below(0.0) - 0.5).abs() < 1e-6);
        assert!((normal_below(3.0) - 0.998_650_1).abs() < 1e-6);
        // Published quantiles: one-sided 0.025, 0.005 and 0.0005.
        for (tail, degrees, t) in [
            (0.025, 1, 12.7062),
            (0.025, 4, 2.7764),
            (0.005, 5, 4.0321),
            (0.005, 6, 3.7074),
            (0.0005, 11, 4.437),
            (0.025, 30, 2.0423),
            (0.025, 40, 2.0211),
        ] {
            assert!(
                (t_of_tail(tail, degrees) - t).abs() < 1e-3,
                "{tail} {degrees}: {}",
                t_of_tail(tail, degrees)
            );
        }
        let mut scratch = Vec::new();
        assert_eq!(hodges_lehmann(&[1.0, 2.0, 9.0], &mut scratch), 3.5);
        assert_eq!(hodges_lehmann(&[1.0, 3.0], &mut scratch), 2.0);
        assert_eq!(hodges_lehmann(&[7.0], &mut scratch), 7.0);
    }

    #[test]
    fn pairs_are_matched_by_number_and_ugly_rounds_left_out() {
        let base: Vec<Round> = (0..8).map(|n| round(n, 200.0)).collect();
        let mut way: Vec<Round> = (2..10).rev().map(|n| round(n, 100.0)).collect();
        let found = relative(&base, &way).unwrap();
        assert_eq!(found.verdict, Verdict::Faster);
        assert!(
            (found.speedup - 2.0).abs() < 1e-9
                && found.interval().is_some_and(|(low, high)| low <= 2.0 && high >= 2.0)
        );
        way.iter_mut().for_each(|round| round.commits = 0);
        assert!(relative(&base, &way).is_none());
        assert!(relative(&base, &[]).is_none());
        let four: Vec<Round> = (0..4).map(|n| round(n, 100.0)).collect();
        for rounds in 1..PAIRS_MIN {
            let few = relative(&base, &four[..rounds]).unwrap();
            assert_eq!(
                (few.verdict, few.interval(), few.low, few.high),
                (Verdict::Unknown, None, None, None)
            );
        }
        let huge = [Round { number: 0, commits: u64::MAX, total_ns: 1, ..Round::default() }];
        let found = relative(&base, &huge).unwrap();
        assert!(found.speedup.is_finite());
    }

    #[test]
    fn the_rule_of_the_verdict() {
        assert_eq!(verdict(1.01, 1.2, 1.1), Verdict::Faster);
        assert_eq!(verdict(1.01, 1.03, 1.02), Verdict::Tie, "clear of 1, but small");
        assert_eq!(verdict(0.9, 1.3, 1.1), Verdict::CannotTell, "large, but not clear of 1");
        assert_eq!(verdict(0.15, 3.58, 0.998), Verdict::CannotTell, "499 [75..1790]");
        assert_eq!(verdict(0.94, 1.08, 1.0), Verdict::Tie);
        assert_eq!(
            verdict(1.01, 1.13, 1.02),
            Verdict::CannotTell,
            "clear of 1, small, and perhaps not"
        );
        assert_eq!(verdict(0.8, 0.95, 0.9), Verdict::Slower);
        assert_eq!(verdict(0.97, 0.99, 0.98), Verdict::Tie);
        assert_eq!(verdict(f64::NAN, 1.0, 1.0), Verdict::Unknown);
    }

    #[test]
    fn the_same_rounds_give_the_same_answer_and_ways_are_symmetric() {
        let mut rng = Rng::with_seed(9);
        let (base, way) = pair(&mut rng, 10, Noise { sd: 0.1, spikes: 0.1 }, 1.2);
        let first = relative(&base, &way).unwrap();
        let again = relative(&base, &way).unwrap();
        assert_eq!((first.low, first.high), (again.low, again.high));
        let turned = relative(&way, &base).unwrap();
        assert!((first.speedup * turned.speedup - 1.0).abs() < 1e-9);
    }

    #[derive(Clone, Copy)]
    struct Noise {
        sd: f64,
        spikes: f64,
    }

    /// Two ways on a shared machine: common drift, lognormal noise per round, single rounds 2-5
    /// times too slow.
    fn pair(rng: &mut Rng, rounds: u32, noise: Noise, speedup: f64) -> (Vec<Round>, Vec<Round>) {
        let drift = rng.f64() * 0.3;
        let mut one = |number: u32, ns: f64| {
            let (u, v) = (1.0 - rng.f64(), rng.f64());
            let normal = (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos();
            let spike = if rng.f64() < noise.spikes { 2.0 + 3.0 * rng.f64() } else { 1.0 };
            let common = drift * f64::from(number) / f64::from(rounds);
            round(number, ns * spike * (common + noise.sd * normal).exp())
        };
        (0..rounds).map(|number| (one(number, 2e5 * speedup), one(number, 2e5))).unzip()
    }

    /// The percentage of `pairs` that are found different (in the right direction, if there is
    /// one). Use many pairs: at a true 4%, 400 pairs scatter by a whole per cent (one stream showed
    /// 8.25%), 2,000 by half.
    fn called_different(
        pairs: u64,
        resamples: usize,
        rounds: u32,
        noise: Noise,
        speedup: f64,
    ) -> f64 {
        let mut rng = Rng::with_seed(u64::from(rounds).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let called = (0..pairs).filter(|_| {
            let (base, way) = pair(&mut rng, rounds, noise, speedup);
            let level = Level::of_several(1);
            let found = relative_of(&paired_logs(&base, &way), resamples, &level);
            let found = found.map(|found| found.verdict);
            found == Some(Verdict::Faster) || (speedup == 1.0 && found == Some(Verdict::Slower))
        });
        100.0 * called.count() as f64 / pairs as f64
    }

    #[test]
    fn equal_ways_differ_in_at_most_one_pair_in_twenty() {
        for noise in [Noise { sd: 0.1, spikes: 0.0 }, Noise { sd: 0.15, spikes: 0.08 }] {
            // Fewer pairs if a pair costs more, so that a debug build needs only seconds.
            for (rounds, pairs) in [(5, 2_000), (7, 1_500), (10, 1_000), (20, 500)] {
                let found = called_different(pairs, 200, rounds, noise, 1.0);
                assert!(found <= 5.0, "{rounds} rounds: {found}%");
            }
        }
    }

    #[test]
    fn ten_per_cent_is_found_with_twenty_rounds() {
        let found = called_different(100, 300, 20, Noise { sd: 0.05, spikes: 0.03 }, 1.1);
        assert!(found >= 90.0, "{found}%");
    }
}
