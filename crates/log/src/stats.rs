//! What a log has done since it was opened, in numbers.
//!
//! *Owns*: the counters, the histograms, their names and what they mean. *May not touch*: anything else; whoever does
//! something counts it.
//!
//! The definitions are data (`COUNTS`, `GAUGES`, `TIMES`), so that the text for Prometheus and the documentation cannot
//! disagree.

use std::fmt::{self, Write as _};
use std::time::Duration;

use hdrhistogram::Histogram;

/// Times above this are counted as this.
const LONGEST_US: u64 = 60_000_000;

/// How long something took, in microseconds: two significant digits, up to a minute.
#[derive(Clone, Default)]
pub struct Times {
    /// Made with the first: 20 KiB, which a log that is opened and closed does not need.
    histogram: Option<Histogram<u64>>,
    sum_us: u64,
}

impl fmt::Debug for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let quantiles = QUANTILES.map(|quantile| self.quantile_us(quantile));
        write!(f, "{} times, p50/p99/p99.9 {quantiles:?} us, longest {} us", self.count(), self.max_us())
    }
}

impl Times {
    pub(crate) fn add(&mut self, took: Duration) {
        let us = u64::try_from(took.as_micros()).unwrap_or(LONGEST_US);
        let histogram = self.histogram.get_or_insert_with(|| {
            Histogram::new_with_bounds(1, LONGEST_US, 2).expect("the bounds are sound")
        });
        histogram.saturating_record(us.max(1));
        self.sum_us = self.sum_us.saturating_add(us);
    }

    /// How many were counted.
    pub fn count(&self) -> u64 {
        self.histogram.as_ref().map_or(0, Histogram::len)
    }

    /// All of them together, in microseconds.
    pub fn sum_us(&self) -> u64 {
        self.sum_us
    }

    /// The time that `quantile` (0 to 1) of them did not exceed, in microseconds; 0 if there are none.
    pub fn quantile_us(&self, quantile: f64) -> u64 {
        self.histogram.as_ref().map_or(0, |histogram| histogram.value_at_quantile(quantile))
    }

    /// The longest, in microseconds, to two digits; 0 if there are none.
    pub fn max_us(&self) -> u64 {
        self.histogram.as_ref().map_or(0, Histogram::max)
    }
}

/// What a log has done since it was opened. Counts only rise; what is now is a gauge.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Stats {
    /// Records appended.
    pub records: u64,
    /// Their bytes.
    pub record_bytes: u64,
    /// Groups made durable, control groups included.
    pub groups: u64,
    /// Bytes written for them: whole blocks.
    pub group_bytes: u64,
    /// Waiters woken by them: with `groups`, how many commits share a flush.
    pub waiters: u64,
    /// Segments begun.
    pub segments: u64,
    /// Those that used the blocks of an old segment.
    pub segments_recycled: u64,
    /// Those whose blocks were new, and written before.
    pub segments_prepared: u64,
    /// Those whose blocks were only reserved: the log filled segments faster than they could be prepared.
    pub segments_fallocated: u64,
    /// Segment changes that found no file ready.
    pub pool_empty: u64,
    /// Bytes written to prepare segments.
    pub prepared_bytes: u64,
    /// Appends that waited for room in a buffer, or for a segment.
    pub waits: u64,
    /// Waiters that nobody woke and that had to look by themselves: a mistake in the log, if there are any.
    pub missed_wakeups: u64,
    /// Files with a segment's name that wait to be used, now.
    pub ready: u64,
    /// Files kept for their blocks, now.
    pub free: u64,
    /// From a group's first record until its write began.
    pub queue: Times,
    /// Writing a group; with the sync where they are one call.
    pub write: Times,
    /// Syncing it.
    pub sync: Times,
    /// Both.
    pub commit: Times,
    /// Changing to the next segment.
    pub change: Times,
}

/// A number of [`Stats`]: its name, what it means, and where it is.
pub(crate) type Number = (&'static str, &'static str, fn(&Stats) -> u64);

pub(crate) const COUNTS: &[Number] = &[
    ("records_total", "Records appended", |stats| stats.records),
    ("record_bytes_total", "Bytes of records appended", |stats| stats.record_bytes),
    ("groups_total", "Groups made durable", |stats| stats.groups),
    ("group_bytes_total", "Bytes written for groups, whole blocks", |stats| stats.group_bytes),
    ("waiters_total", "Waiters woken by durable groups", |stats| stats.waiters),
    ("segments_total", "Segments begun", |stats| stats.segments),
    ("segments_recycled_total", "Segments that used old blocks", |stats| stats.segments_recycled),
    ("segments_prepared_total", "Segments whose new blocks were written before", |stats| {
        stats.segments_prepared
    }),
    ("segments_fallocated_total", "Segments whose blocks were only reserved", |stats| {
        stats.segments_fallocated
    }),
    ("pool_empty_total", "Segment changes that found no file ready", |stats| stats.pool_empty),
    ("prepared_bytes_total", "Bytes written to prepare segments", |stats| stats.prepared_bytes),
    ("missed_wakeups_total", "Waiters that nobody woke", |stats| stats.missed_wakeups),
    ("waits_total", "Appends that waited for room", |stats| stats.waits),
];

pub(crate) const GAUGES: &[Number] = &[
    ("ready_segments", "Files with a segment's name that wait to be used", |stats| stats.ready),
    ("free_segments", "Files kept for their blocks", |stats| stats.free),
];

/// A histogram of [`Stats`].
pub(crate) type TimesOf = (&'static str, &'static str, fn(&Stats) -> &Times);

pub(crate) const TIMES: &[TimesOf] = &[
    ("queue_seconds", "From a group's first record until its write began", |stats| &stats.queue),
    ("write_seconds", "Writing a group", |stats| &stats.write),
    ("sync_seconds", "Syncing a group", |stats| &stats.sync),
    ("commit_seconds", "Making a group durable", |stats| &stats.commit),
    ("change_seconds", "Changing to the next segment", |stats| &stats.change),
];

/// The quantiles that are published of a histogram.
pub(crate) const QUANTILES: [f64; 3] = [0.5, 0.99, 0.999];

impl Stats {
    /// The text that Prometheus reads, each line labelled with the log's name. Times are summaries, in seconds.
    pub fn prometheus(&self, log: &str) -> String {
        let label =
            format!("log=\"{}\"", log.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"));
        let mut text = String::new();
        let numbers = COUNTS
            .iter()
            .map(|number| ("counter", number))
            .chain(GAUGES.iter().map(|number| ("gauge", number)));
        for (kind, (name, help, value)) in numbers {
            // Writing to a string cannot fail.
            let _ = write!(text, "# HELP inkstone_{name} {help}.\n# TYPE inkstone_{name} {kind}\n");
            let _ = writeln!(text, "inkstone_{name}{{{label}}} {}", value(self));
        }
        for (name, help, times) in TIMES {
            let times = times(self);
            let _ = write!(text, "# HELP inkstone_{name} {help}.\n# TYPE inkstone_{name} summary\n");
            for quantile in QUANTILES {
                let seconds = times.quantile_us(quantile) as f64 / 1e6;
                let _ = writeln!(text, "inkstone_{name}{{{label},quantile=\"{quantile}\"}} {seconds}");
            }
            let _ = writeln!(text, "inkstone_{name}_sum{{{label}}} {}", times.sum_us() as f64 / 1e6);
            let _ = writeln!(text, "inkstone_{name}_count{{{label}}} {}", times.count());
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_kept_to_two_digits_and_never_fail() {
        let mut times = Times::default();
        assert_eq!((times.quantile_us(0.5), times.max_us(), times.count()), (0, 0, 0));
        for us in 1..=1000 {
            times.add(Duration::from_micros(us));
        }
        times.add(Duration::ZERO);
        times.add(Duration::from_secs(1 << 40));
        assert_eq!(times.count(), 1002);
        assert!((495..=510).contains(&times.quantile_us(0.5)), "{}", times.quantile_us(0.5));
        assert!(times.max_us() >= LONGEST_US);
    }

    #[test]
    fn the_text_for_prometheus_has_every_number_once() {
        let mut stats = Stats { records: 7, ready: 1, ..Stats::default() };
        stats.commit.add(Duration::from_micros(1500));
        let text = stats.prometheus("or\"ders");
        assert!(text.contains("inkstone_records_total{log=\"or\\\"ders\"} 7\n"), "{text}");
        assert!(text.contains("inkstone_commit_seconds_sum{log=\"or\\\"ders\"} 0.0015\n"), "{text}");
        for name in
            COUNTS.iter().chain(GAUGES).map(|(name, ..)| name).chain(TIMES.iter().map(|(name, ..)| name))
        {
            assert_eq!(text.matches(&format!("# TYPE inkstone_{name} ")).count(), 1, "{name}");
        }
    }
}
