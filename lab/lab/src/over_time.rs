//! Latency over the time of one round, recorded without allocating and reduced to a few slices.
//!
//! *Owns*: what is kept of each commit, and how it becomes slices. *May not touch*: clocks.

/// Entries kept of a round. With up to this many commits each has its own entry; with more,
/// neighbours share one.
const ENTRIES_MAX: usize = 1 << 14;
/// About how many slices all rounds of a cell have together: enough for a curve, and small compared
/// with the histograms.
const SLICES: usize = 240;
/// The least slices of one round (if it has as many commits), and the most.
const SLICES_OF_ROUND: (usize, usize) = (8, 60);

/// (time of the slice's commits together, median and highest of a commit), all in nanoseconds.
pub type Slice = (u64, u64, u64);

/// How many slices a round gets, so that all rounds together have few.
pub fn slices_per_round(rounds: u32) -> usize {
    (SLICES / rounds.max(1) as usize).clamp(SLICES_OF_ROUND.0, SLICES_OF_ROUND.1)
}

/// One or more commits that followed each other.
#[derive(Debug, Clone, Copy, Default)]
struct Entry {
    /// The latency of the first of them.
    sample_ns: u64,
    max_ns: u64,
    sum_ns: u64,
}

/// The latencies of one round in order. Highest values and sums are exact; a median is exact up to
/// 16,384 commits per round, and that of a regular sample beyond.
#[derive(Debug, Clone)]
pub struct Series {
    /// Written before the round, so that none of its pages is touched for the first time between
    /// two readings of the clock.
    entries: Vec<Entry>,
    /// How many of them are in use.
    used: usize,
    /// Commits that share an entry.
    stride: u32,
    /// How many more the last entry takes.
    room: u32,
}

impl Default for Series {
    fn default() -> Self {
        Self { entries: Vec::new(), used: 0, stride: 1, room: 0 }
    }
}

impl Series {
    /// Clears the previous round, and allocates memory for one of up to `commits`.
    pub fn begin(&mut self, commits: u64) {
        let entries =
            usize::try_from(commits).map_or(ENTRIES_MAX, |commits| commits.min(ENTRIES_MAX));
        self.entries.clear();
        self.entries.resize(entries, Entry::default());
        (self.used, self.stride, self.room) = (0, 1, 0);
    }

    /// Records the next commit.
    #[inline]
    pub fn record(&mut self, ns: u64) {
        if self.room == 0 {
            self.next(ns);
        } else if let Some(last) = self.entries.get_mut(self.used - 1) {
            last.max_ns = last.max_ns.max(ns);
            last.sum_ns += ns;
            self.room -= 1;
        }
    }

    fn next(&mut self, ns: u64) {
        if self.used == ENTRIES_MAX {
            self.halve();
        }
        if self.used == self.entries.len() {
            self.entries.push(Entry::default());
        }
        self.entries[self.used] = Entry { sample_ns: ns, max_ns: ns, sum_ns: ns };
        self.used += 1;
        self.room = self.stride - 1;
    }

    /// Merges every two neighbours into one entry.
    fn halve(&mut self) {
        for index in 0..self.used / 2 {
            let (first, second) = (self.entries[index * 2], self.entries[index * 2 + 1]);
            self.entries[index] = Entry {
                sample_ns: first.sample_ns,
                max_ns: first.max_ns.max(second.max_ns),
                sum_ns: first.sum_ns + second.sum_ns,
            };
        }
        self.used /= 2;
        self.stride = self.stride.saturating_mul(2);
    }

    /// The recorded latencies, in at most `slices_max` slices of equally many commits, except the
    /// last.
    pub fn slices(&self, slices_max: usize) -> Vec<Slice> {
        let used = &self.entries[..self.used];
        let len = used.len().div_ceil(slices_max.max(1)).max(1);
        used.chunks(len).map(slice).collect()
    }
}

fn slice(entries: &[Entry]) -> Slice {
    let mut samples: Vec<u64> = entries.iter().map(|entry| entry.sample_ns).collect();
    let (_, median_ns, _) = samples.select_nth_unstable(entries.len() / 2);
    let sum_ns = entries.iter().map(|entry| entry.sum_ns).sum();
    let max_ns = entries.iter().map(|entry| entry.max_ns).max().unwrap_or(0);
    (sum_ns, *median_ns, max_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: impl Iterator<Item = u64>, slices_max: usize) -> Vec<Slice> {
        let mut series = Series::default();
        series.begin(10);
        values.for_each(|ns| series.record(ns));
        series.slices(slices_max)
    }

    #[test]
    fn few_commits_have_a_slice_each_and_none_have_none() {
        assert_eq!(of([5, 9, 7].into_iter(), 60), [(5, 5, 5), (9, 9, 9), (7, 7, 7)]);
        assert_eq!(of(std::iter::empty(), 60), []);
    }

    #[test]
    fn a_slice_has_the_sum_the_median_and_the_highest_of_its_commits() {
        let slices = of([1, 100, 3, 2, 4, 10, 20, 30].into_iter(), 2);
        assert_eq!(slices, [(106, 3, 100), (64, 20, 30)]);
    }

    #[test]
    fn of_many_commits_no_sum_and_no_highest_value_is_lost() {
        let commits = ENTRIES_MAX as u64 * 5 + 77;
        let slow = commits - 1_000;
        let slices = of((0..commits).map(|n| if n == slow { 1_000_000 } else { 100 + n % 10 }), 60);
        assert!(slices.len() <= 60 && slices.len() > 30, "{}", slices.len());
        let sum =
            (0..commits).map(|n| if n == slow { 1_000_000 } else { 100 + n % 10 }).sum::<u64>();
        assert_eq!(slices.iter().map(|slice| slice.0).sum::<u64>(), sum);
        assert_eq!(slices.iter().map(|slice| slice.2).max(), Some(1_000_000));
        assert!(slices.iter().all(|slice| (100..110).contains(&slice.1)));
    }

    #[test]
    fn a_round_begins_with_nothing_of_the_round_before() {
        let mut series = Series::default();
        series.begin(u64::MAX);
        (0..ENTRIES_MAX as u64 * 3).for_each(|ns| series.record(ns));
        series.begin(2);
        series.record(4);
        series.record(6);
        assert_eq!(series.slices(60), [(4, 4, 4), (6, 6, 6)]);
        assert_eq!(
            (slices_per_round(1), slices_per_round(20), slices_per_round(1000)),
            (60, 12, 8)
        );
    }
}
