//! Which of two durable ways of writing is the faster one on this device, found out by the log's
//! real commits: no rule knows it where a device has a volatile cache and FUA.
//!
//! *Owns*: which way the next commit takes, when that is decided, and when it is asked again.
//! *May not touch*: files, clocks. It is told how long each commit took (`writer.rs`).
//!
//! Commits go in pairs, one each way, and every second pair in the other order, so that a device
//! that gets slower meanwhile favours neither. The other way is kept if a sign test over the pairs
//! says that it is the faster one, and its median is better by more than a tenth; else the rule's.

use std::time::Duration;

/// A way of writing. Both are durable when the write has returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum By {
    /// As the rule says (`strategy.rs`): the write carries its own durability.
    Rule,
    /// A write, and then a sync.
    Sync,
}

/// The pairs after which it may be decided, and how many of them a way must win. Of two ways that
/// are equal each wins so often with a probability of 0.4, 0.2 and 0.4%, and of 0.83% at any of the
/// three.
const LOOKS: [(usize, usize); 3] = [(8, 8), (16, 14), (32, 24)];

/// So many commits in a segment say how long they take now.
const JUDGED: u32 = 8;

/// The trial, from the first commit of an opening on.
#[derive(Debug)]
pub(crate) enum Trials {
    Tries(Pairs),
    Rests(Pace),
}

/// What has been measured: as many commits each way, and perhaps one more, which waits for the
/// second of its pair.
#[derive(Debug, Default)]
pub(crate) struct Pairs {
    rule: Vec<Duration>,
    sync: Vec<Duration>,
}

/// How long commits take since the trial.
#[derive(Debug)]
pub(crate) struct Pace {
    kept: By,
    /// The median of that way in the trial.
    usual: Duration,
    commits: u32,
    /// Those that took twice as long, or longer.
    slow: u32,
}

/// What a trial has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) kept: By,
    pub(crate) pairs: usize,
    /// The medians of both.
    pub(crate) rule: Duration,
    pub(crate) sync: Duration,
}

impl Trials {
    pub(crate) fn begin() -> Self {
        Self::Tries(Pairs::default())
    }

    /// The way of the next commit.
    pub(crate) fn way(&self) -> By {
        match self {
            Self::Tries(pairs) => pairs.way(),
            Self::Rests(pace) => pace.kept,
        }
    }

    /// The commit in the way that was [`way`](Self::way) took so long. Returns what the trial has
    /// found, once.
    pub(crate) fn took(&mut self, time: Duration) -> Option<Found> {
        match self {
            Self::Tries(pairs) => {
                pairs.add(time);
                let found = pairs.found()?;
                let kept = found.kept;
                let usual = if kept == By::Rule { found.rule } else { found.sync };
                *self = Self::Rests(Pace { kept, usual, commits: 0, slow: 0 });
                Some(found)
            }
            Self::Rests(pace) => {
                pace.commits += 1;
                pace.slow += u32::from(time >= 2 * pace.usual);
                None
            }
        }
    }

    /// The log continues in another segment. If most commits since the last change took twice as
    /// long as in the trial, it tries again.
    pub(crate) fn segment_changed(&mut self) {
        let Self::Rests(pace) = self else { return };
        if pace.commits < JUDGED {
            return;
        }
        if 2 * pace.slow > pace.commits {
            *self = Self::begin();
        } else {
            (pace.commits, pace.slow) = (0, 0);
        }
    }
}

impl Pairs {
    /// Rule, sync; sync, rule; and so on.
    fn way(&self) -> By {
        let commits = self.rule.len() + self.sync.len();
        if matches!(commits % 4, 0 | 3) { By::Rule } else { By::Sync }
    }

    fn add(&mut self, time: Duration) {
        match self.way() {
            By::Rule => self.rule.push(time),
            By::Sync => self.sync.push(time),
        }
    }

    fn found(&self) -> Option<Found> {
        let pairs = self.rule.len();
        if self.sync.len() != pairs {
            return None;
        }
        let (_, needed) = LOOKS.into_iter().find(|look| look.0 == pairs)?;
        let wins = |one: &[Duration], other: &[Duration]| {
            one.iter().zip(other).filter(|(one, other)| one < other).count() >= needed
        };
        let (rule, sync) = (median(&self.rule), median(&self.sync));
        let is_last = pairs == LOOKS[LOOKS.len() - 1].0;
        let kept = if wins(&self.sync, &self.rule) && sync * 10 < rule * 9 {
            By::Sync
        } else if is_last || wins(&self.rule, &self.sync) {
            By::Rule
        } else {
            return None;
        };
        Some(Found { kept, pairs, rule, sync })
    }
}

/// Of an even number of times: between the two in the middle.
fn median(times: &[Duration]) -> Duration {
    let mut times = times.to_vec();
    times.sort_unstable();
    (times[times.len() / 2 - 1] + times[times.len() / 2]) / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAIRS_MAX: usize = 32;

    /// Runs a trial whose commits take so many microseconds; returns what it finds after how many
    /// commits.
    fn run(trial: &mut Trials, mut us: impl FnMut(By) -> u64) -> (Found, usize) {
        for commits in 1.. {
            if let Some(found) = trial.took(Duration::from_micros(us(trial.way()))) {
                return (found, commits);
            }
            assert!(commits < 2 * PAIRS_MAX, "a trial ends");
        }
        unreachable!("it has ended");
    }

    /// A time around this one, and one in 32 ten times as long.
    fn noisy(rng: &mut fastrand::Rng, us: u64) -> u64 {
        us * rng.u64(50..200) / 100 * if rng.u8(..32) == 0 { 10 } else { 1 }
    }

    #[test]
    fn commits_go_in_pairs_and_every_second_pair_the_other_way_round() {
        use By::{Rule, Sync};
        let mut trial = Trials::begin();
        let order = [Rule, Sync, Sync, Rule, Rule, Sync, Sync, Rule];
        for way in order {
            assert_eq!(trial.way(), way);
            assert_eq!(trial.took(Duration::from_micros(5)), None);
        }
    }

    #[test]
    fn without_noise_eight_pairs_are_enough() {
        for (rule, sync, kept) in [(4007, 1643, By::Sync), (50, 100, By::Rule)] {
            let mut trial = Trials::begin();
            let us = |way| if way == By::Rule { rule } else { sync };
            let (found, commits) = run(&mut trial, us);
            let [rule, sync] = [rule, sync].map(Duration::from_micros);
            assert_eq!(found, Found { kept, pairs: 8, rule, sync });
            assert_eq!((commits, trial.way()), (16, kept));
        }
    }

    #[test]
    fn a_gain_of_a_tenth_or_less_is_none() {
        for (sync, kept) in [(90, By::Rule), (89, By::Sync)] {
            let us = |way| if way == By::Rule { 100 } else { sync };
            assert_eq!(run(&mut Trials::begin(), us).0.kept, kept, "{sync} us");
        }
    }

    /// The share of wrong changes is that of the three looks together, at most.
    #[test]
    fn of_equal_ways_the_rules_is_kept() {
        let mut rng = fastrand::Rng::with_seed(1);
        let changes = (0..20_000)
            .filter(|_| {
                let (found, _) = run(&mut Trials::begin(), |_| noisy(&mut rng, 100));
                found.kept == By::Sync
            })
            .count();
        assert!((1..=166).contains(&changes), "{changes} of 20,000");
    }

    #[test]
    fn a_device_that_gets_slower_favours_neither() {
        let mut now = 1000;
        let (found, _) = run(&mut Trials::begin(), |_| {
            now += now / 4;
            now
        });
        assert_eq!((found.kept, found.pairs), (By::Rule, PAIRS_MAX));
    }

    /// `commits` commits that take so long, and a change of the segment; whether it tries again.
    fn tries_after(trial: &mut Trials, commits: usize, us: u64) -> bool {
        for _ in 0..commits {
            assert_eq!(trial.took(Duration::from_micros(us)), None);
        }
        trial.segment_changed();
        matches!(trial, Trials::Tries(_))
    }

    #[test]
    fn it_tries_again_once_most_commits_of_a_segment_take_twice_as_long() {
        let mut trial = Trials::begin();
        run(&mut trial, |way| if way == By::Rule { 100 } else { 200 });
        assert!(!tries_after(&mut trial, 100, 199));
        assert!(!tries_after(&mut trial, 7, 200), "too few");
        assert!(tries_after(&mut trial, 1, 200), "they count in the next segment");
        let (found, commits) = run(&mut trial, |way| if way == By::Rule { 600 } else { 200 });
        assert_eq!((found.kept, commits), (By::Sync, 16));
        for _ in 0..50 {
            trial.took(Duration::from_micros(400));
        }
        assert!(!tries_after(&mut trial, 50, 399), "half of them");
        assert!(tries_after(&mut trial, 8, 400));
        let (found, _) = run(&mut trial, |way| if way == By::Rule { 300 } else { 900 });
        assert_eq!(found.kept, By::Rule);
    }

    #[test]
    fn while_it_tries_a_change_of_the_segment_is_nothing() {
        let mut trial = Trials::begin();
        for _ in 0..9 {
            trial.took(Duration::from_micros(100));
        }
        trial.segment_changed();
        assert!(matches!(&trial, Trials::Tries(pairs) if pairs.rule.len() == 5));
    }
}
