//! Records latencies while measuring, without allocating, and turns them into the result's
//! histogram.
//!
//! *Owns*: the recording histogram. *May not touch*: clocks, and what a latency means.

use hdrhistogram::Histogram as Hdr;

use crate::result::Histogram;

/// The largest latency that is recorded, 100 s in nanoseconds: longer ones count as this.
pub const LATENCY_NS_MAX: u64 = 100_000_000_000;
/// Significant digits kept.
const DIGITS: u8 = 3;

/// Records latencies in nanoseconds: 1 ns to 100 s, to 3 significant digits, in memory that is
/// allocated once, at creation. Smallest, largest and mean are exact.
#[derive(Debug, Clone)]
pub struct Recorder {
    buckets: Hdr<u64>,
    count: u64,
    sum_ns: u128,
    min_ns: u64,
    max_ns: u64,
}

impl Default for Recorder {
    fn default() -> Self {
        Self::new()
    }
}

impl Recorder {
    /// An empty one. The only place that allocates (about 220 KiB, touched where latencies fall).
    pub fn new() -> Self {
        // The bounds are constants that hdrhistogram accepts (a test checks it).
        let buckets =
            Hdr::new_with_bounds(1, LATENCY_NS_MAX, DIGITS).expect("bounds that are constants");
        Self { buckets, count: 0, sum_ns: 0, min_ns: u64::MAX, max_ns: 0 }
    }

    /// Records one latency in nanoseconds; out of range it counts as 1 ns or 100 s.
    #[inline]
    pub fn record(&mut self, ns: u64) {
        let ns = ns.clamp(1, LATENCY_NS_MAX);
        self.buckets.saturating_record(ns);
        self.count += 1;
        self.sum_ns += u128::from(ns);
        self.min_ns = self.min_ns.min(ns);
        self.max_ns = self.max_ns.max(ns);
    }

    /// Latencies recorded.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Adds everything that `other` recorded.
    pub fn merge(&mut self, other: &Self) {
        for bucket in other.buckets.iter_recorded() {
            self.buckets.saturating_record_n(bucket.value_iterated_to(), bucket.count_at_value());
        }
        self.count += other.count;
        self.sum_ns += other.sum_ns;
        self.min_ns = self.min_ns.min(other.min_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// Clears everything, but keeps the memory.
    pub fn clear(&mut self) {
        self.buckets.reset();
        (self.count, self.sum_ns, self.min_ns, self.max_ns) = (0, 0, u64::MAX, 0);
    }

    /// The recorded values, with every bucket that is not empty. If nothing was recorded: count 0,
    /// no buckets.
    pub fn finish(&self) -> Histogram {
        if self.count == 0 {
            return Histogram::default();
        }
        let quantile = |q: f64| self.buckets.value_at_quantile(q).clamp(self.min_ns, self.max_ns);
        let buckets = self
            .buckets
            .iter_recorded()
            .map(|bucket| (bucket.value_iterated_to(), bucket.count_at_value()));
        Histogram {
            count: self.count,
            min_ns: self.min_ns,
            max_ns: self.max_ns,
            mean_ns: self.sum_ns as f64 / self.count as f64,
            p50_ns: quantile(0.5),
            p99_ns: quantile(0.99),
            p999_ns: quantile(0.999),
            buckets: buckets.collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_recorded_is_an_empty_histogram() {
        let finished = Recorder::new().finish();
        assert_eq!((finished.count, finished.buckets.len()), (0, 0));
    }

    #[test]
    fn quantiles_are_right_to_three_digits_and_the_ends_exact() {
        let mut recorder = Recorder::new();
        (1..=1_000_000u64).step_by(7).for_each(|ns| recorder.record(ns));
        let finished = recorder.finish();
        let near = |found: u64, wanted: f64| (found as f64 / wanted - 1.0).abs() < 2e-3;
        assert!(
            near(finished.p50_ns, 5e5)
                && near(finished.p99_ns, 9.9e5)
                && near(finished.p999_ns, 9.99e5)
        );
        assert_eq!((finished.min_ns, finished.max_ns), (1, 1_000_000));
        assert!((finished.mean_ns - 500_000.5).abs() < 1.0, "{}", finished.mean_ns);
        assert_eq!(finished.buckets.iter().map(|(_, count)| count).sum::<u64>(), finished.count);
        assert!(finished.buckets.windows(2).all(|pair| pair[0].0 < pair[1].0));
    }

    #[test]
    fn what_is_out_of_range_saturates() {
        let mut recorder = Recorder::new();
        recorder.record(0);
        recorder.record(u64::MAX);
        let finished = recorder.finish();
        assert_eq!((finished.min_ns, finished.max_ns, finished.count), (1, LATENCY_NS_MAX, 2));
        assert_eq!(finished.p999_ns, LATENCY_NS_MAX);
    }

    #[test]
    fn merging_is_recording_both() {
        let (mut one, mut two, mut both) = (Recorder::new(), Recorder::new(), Recorder::new());
        for ns in 1..5_000u64 {
            if ns % 3 == 0 {
                one.record(ns * ns)
            } else {
                two.record(ns * ns)
            }
            both.record(ns * ns);
        }
        one.merge(&two);
        one.merge(&Recorder::new());
        let (merged, both) = (one.finish(), both.finish());
        assert_eq!(merged.buckets, both.buckets);
        assert_eq!(
            (merged.min_ns, merged.max_ns, merged.count),
            (both.min_ns, both.max_ns, both.count)
        );
        one.clear();
        assert_eq!(one.finish().count, 0);
    }
}
