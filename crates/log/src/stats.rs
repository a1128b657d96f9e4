//! What a log has done since it was opened, in numbers.
//!
//! *Owns*: the counters, the histograms, their names and what they mean. *May not touch*: anything
//! else; each module counts its own work.

use std::fmt;
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::sync::Instant;

/// Longer times are counted as this.
const LONGEST_US: u64 = 60_000_000;

/// A histogram of durations in microseconds: two significant digits, up to a minute.
#[derive(Clone, Default)]
pub struct Times {
    /// Allocated with the first duration: 20 KiB that a log which is only opened and closed does
    /// not need.
    histogram: Option<Histogram<u64>>,
    sum_us: u64,
}

impl fmt::Debug for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let quantiles = [0.5, 0.99, 0.999].map(|quantile| self.quantile_us(quantile));
        write!(
            f,
            "{} times, p50/p99/p99.9 {quantiles:?} us, longest {} us",
            self.count(),
            self.max_us()
        )
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

    /// How many durations were counted.
    pub fn count(&self) -> u64 {
        self.histogram.as_ref().map_or(0, Histogram::len)
    }

    /// The sum of all durations, in microseconds.
    pub fn sum_us(&self) -> u64 {
        self.sum_us
    }

    /// The duration that the fraction `quantile` (0 to 1) of them did not exceed, in microseconds;
    /// 0 if there are none.
    pub fn quantile_us(&self, quantile: f64) -> u64 {
        self.histogram.as_ref().map_or(0, |histogram| histogram.value_at_quantile(quantile))
    }

    /// The longest, in microseconds, to two digits; 0 if there are none.
    pub fn max_us(&self) -> u64 {
        self.histogram.as_ref().map_or(0, Histogram::max)
    }
}

/// What a log has done since it was opened. Counters only rise; gauges show the present state.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Stats {
    /// Records appended.
    pub records: u64,
    /// Bytes of these records.
    pub record_bytes: u64,
    /// Groups made durable, control groups included.
    pub groups: u64,
    /// Bytes written for these groups: whole blocks.
    pub group_bytes: u64,
    /// Waiters of these groups: divided by `groups`, how many waiters share a flush.
    pub waiters: u64,
    /// Segments begun.
    pub segments: u64,
    /// Segments begun in the blocks of an old segment.
    pub segments_recycled: u64,
    /// Segments begun in new blocks that were written before.
    pub segments_prepared: u64,
    /// Segments begun in blocks that were only reserved: as the options ask, because groups are
    /// large, or because the log fills segments faster than they can be prepared.
    pub segments_fallocated: u64,
    /// Segment changes that found no prepared file.
    pub pool_empty: u64,
    /// Bytes written to prepare segments.
    pub prepared_bytes: u64,
    /// Appends that waited for room in a buffer, or for a segment.
    pub waits: u64,
    /// Waiters that no thread woke, so that they had to check by themselves: more than 0 shows a
    /// bug of the log.
    pub missed_wakeups: u64,
    /// How often a thread slept at once, since yielding first did not pay: other programs kept the
    /// processors.
    pub sleeps_at_once: u64,
    /// For how many microseconds yielding did not pay, all such times together.
    pub rested_us: u64,
    /// Prepared files that wait to become segments, now.
    pub ready: u64,
    /// Files of obsolete segments that are kept for their blocks, now.
    pub free: u64,
    /// Bytes of memory that keep what was written last for readers, now (`Options::tail_bytes`).
    pub tail_bytes: u64,
    /// The time from a group's first record until its write began.
    pub queue: Times,
    /// The time to write a group; it includes the sync where both are one call.
    pub write: Times,
    /// The time to sync a group.
    pub sync: Times,
    /// The time to write and sync a group.
    pub commit: Times,
    /// The time to change to the next segment.
    pub change: Times,
}

/// How long a write took.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Took {
    pub(crate) started: Instant,
    pub(crate) write: Duration,
    /// Its sync, if that is a separate call.
    pub(crate) sync: Option<Duration>,
}

impl Took {
    pub(crate) fn total(&self) -> Duration {
        self.write + self.sync.unwrap_or_default()
    }
}

/// What an open log counts, and when it did last what it counts.
#[derive(Debug)]
pub(crate) struct Counted {
    pub(crate) stats: Stats,
    /// When the first record of the open group was appended.
    open_since: Option<Instant>,
    /// When the last group was durable.
    last_commit: Instant,
    /// The last segment change found no file ready.
    pub(crate) was_pool_empty: bool,
}

impl Counted {
    pub(crate) fn new() -> Self {
        let stats = Stats::default();
        Self { stats, open_since: None, last_commit: Instant::now(), was_pool_empty: false }
    }

    /// Records were appended.
    #[inline]
    pub(crate) fn records(&mut self, records: u64, bytes: u64) {
        self.stats.records += records;
        self.stats.record_bytes += bytes;
        if self.open_since.is_none() {
            self.open_since = Some(Instant::now());
        }
    }

    /// The age of the oldest record of the open group.
    pub(crate) fn open_for(&self) -> Option<Duration> {
        self.open_since.as_ref().map(Instant::elapsed)
    }

    /// When the first record of the group that is closed now was appended.
    pub(crate) fn take_open_since(&mut self) -> Option<Instant> {
        self.open_since.take()
    }

    /// A group of so many waiters, the first record of which was appended at `since`, is durable.
    pub(crate) fn group(&mut self, waiters: usize, bytes: u64, since: Option<Instant>, took: Took) {
        self.last_commit = took.started + took.total();
        let stats = &mut self.stats;
        stats.groups += 1;
        stats.group_bytes += bytes;
        stats.waiters += waiters as u64;
        stats.commit.add(took.total());
        stats.write.add(took.write);
        if let Some(sync) = took.sync {
            stats.sync.add(sync);
        }
        if let Some(since) = since {
            stats.queue.add(took.started.saturating_duration_since(since));
        }
    }

    /// How long after the last group was durable this is.
    pub(crate) fn after_last_commit(&self, moment: Instant) -> Duration {
        moment.saturating_duration_since(self.last_commit)
    }

    /// The mean size of a group since the log was opened, in bytes.
    pub(crate) fn mean_group_bytes(&self) -> u64 {
        self.stats.group_bytes / self.stats.groups.max(1)
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
}
