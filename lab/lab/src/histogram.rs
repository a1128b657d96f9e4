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
/// allocated once, at creation. The largest is exact.
#[derive(Debug, Clone)]
pub struct Recorder {
    buckets: Hdr<u64>,
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
        Self { buckets, max_ns: 0 }
    }

    /// Records one latency in nanoseconds; out of range it counts as 1 ns or 100 s.
    #[inline]
    pub fn record(&mut self, ns: u64) {
        let ns = ns.clamp(1, LATENCY_NS_MAX);
        self.buckets.saturating_record(ns);
        self.max_ns = self.max_ns.max(ns);
    }

    /// Latencies recorded.
    pub fn count(&self) -> u64 {
        self.buckets.len()
    }

    /// Adds everything that `other` recorded.
    pub fn merge(&mut self, other: &Self) {
        for bucket in other.buckets.iter_recorded() {
            self.buckets.saturating_record_n(bucket.value_iterated_to(), bucket.count_at_value());
        }
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// Clears everything, but keeps the memory.
    pub fn clear(&mut self) {
        self.buckets.reset();
        self.max_ns = 0;
    }

    /// The recorded values; with a count of 0 if nothing was recorded.
    pub fn finish(&self) -> Histogram {
        let quantile = |q: f64| self.buckets.value_at_quantile(q).min(self.max_ns);
        Histogram {
            count: self.count(),
            max_ns: self.max_ns,
            p50_ns: quantile(0.5),
            p99_ns: quantile(0.99),
            p999_ns: quantile(0.999),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_right_to_three_digits_the_largest_is_exact_and_nothing_is_out_of_range() {
        let mut recorder = Recorder::new();
        assert_eq!(recorder.finish(), Histogram::default());
        (1..=1_000_000u64).step_by(7).for_each(|ns| recorder.record(ns));
        let found = recorder.finish();
        let near = |found: u64, wanted: f64| (found as f64 / wanted - 1.0).abs() < 2e-3;
        assert!(
            near(found.p50_ns, 5e5) && near(found.p99_ns, 9.9e5) && near(found.p999_ns, 9.99e5)
        );
        assert_eq!((found.max_ns, found.count), (1_000_000, 142_858));
        recorder.clear();
        recorder.record(0);
        recorder.record(u64::MAX);
        let found = recorder.finish();
        assert_eq!((found.count, found.max_ns, found.p999_ns), (2, LATENCY_NS_MAX, LATENCY_NS_MAX));
    }

    #[test]
    fn merging_is_recording_both() {
        let (mut one, mut two, mut both) = (Recorder::new(), Recorder::new(), Recorder::new());
        for ns in 1..5_000u64 {
            let into = if ns % 3 == 0 { &mut one } else { &mut two };
            into.record(ns * ns);
            both.record(ns * ns);
        }
        one.merge(&two);
        one.merge(&Recorder::new());
        assert_eq!(one.finish(), both.finish());
    }
}
