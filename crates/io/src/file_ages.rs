//! How many of a row of files are young enough to stay, by their times.
//!
//! *Owns*: which times count. *May not touch*: files; what else decides that one goes.
//!
//! The files were written one after the other: none is younger than a later one, nor than now. A
//! clock may have been wrong, so a time is used only if nothing contradicts it:
//! - A time that is later than now, or earlier than that of an older file, is not used; nor is one
//!   before 2020, since a clock that shows it was not set yet (a machine without a clock chip
//!   starts in 1970). Such a file counts as young as the next later one whose time is used, or as
//!   now. So a clock that was behind makes nothing look older than it is.
//! - A clock that was ahead makes later files look younger until its time has passed. So nothing is
//!   kept forever.
//!
//! - A machine without a clock chip starts years behind, and its clock then jumps to the right
//!   time: what it wrote seconds ago looks years old. So the times have to fit together. A gap
//!   between two of them, or between the last one and now, that is more than ten times as long as
//!   all the rest and the time since the machine started is taken for such a jump: it makes nothing
//!   older, and the caller is told.
//!
//! This cannot detect a clock that was behind by less, or by so little that the order holds, or
//! that is ahead now. Copying the files without their times makes all of them young. A log that
//! rested for very long keeps its files for a while longer.

use std::time::{Duration, SystemTime};

/// The beginning of 2020 in UTC. No log is older, and clocks that are not set begin before: in
/// 1970, 1980, 2000.
const EARLIEST: Duration = Duration::from_secs(1_577_836_800);

/// A gap that is longer by this than what the log can have lived otherwise is a jump of the clock.
const JUMP: u32 = 10;

/// What the times of some files say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeptByAge {
    /// How many of them are kept.
    pub count: usize,
    /// So much time was not believed, and more files are kept because of that.
    pub jump: Option<Duration>,
}

/// How many of these files are kept if those last changed more than `age` before `now` may go. The
/// newest comes first, in the order in which they were written. With one that goes, all older ones
/// go. `lived`: the time since this machine started.
pub fn kept_by_age(
    newest_first: &[SystemTime],
    age: Duration,
    now: SystemTime,
    lived: Duration,
) -> KeptByAge {
    let mut highest = SystemTime::UNIX_EPOCH + EARLIEST;
    let oldest_first = newest_first.iter().rev().map(|&time| {
        let counts = time <= now && time >= highest;
        highest = if counts { time } else { highest };
        counts
    });
    let counts: Vec<bool> = oldest_first.collect();
    let mut later = now;
    // How much older than the next later one each is; the later one of the first is now.
    let gap = |(time, counts): (&SystemTime, &bool)| {
        let not_after = if *counts { *time } else { later };
        let gap = later.duration_since(not_after).unwrap_or(Duration::ZERO);
        later = not_after;
        gap
    };
    let gaps: Vec<_> = newest_first.iter().zip(counts.iter().rev()).map(gap).collect();
    let kept = |longest: Duration| {
        let mut old = Duration::ZERO;
        let is_kept = |gap: &&Duration| {
            old += if **gap > longest { Duration::ZERO } else { **gap };
            old <= age
        };
        gaps.iter().take_while(is_kept).count()
    };
    let longest = longest_believed(&gaps, lived);
    let count = kept(longest);
    let jump = gaps.iter().filter(|gap| **gap > longest).sum();
    KeptByAge { count, jump: (count > kept(Duration::MAX)).then_some(jump) }
}

fn longest_believed(gaps: &[Duration], lived: Duration) -> Duration {
    let mut gaps = gaps.to_vec();
    gaps.sort_unstable();
    while let Some(longest) = gaps.pop() {
        let rest = gaps.iter().sum::<Duration>().saturating_add(lived);
        if longest <= rest.saturating_mul(JUMP) {
            return longest;
        }
    }
    Duration::ZERO
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_clock_gives_up_nothing_that_is_younger_than_asked_and_keeps_nothing_for_ever() {
        let day = |day: u64| SystemTime::UNIX_EPOCH + EARLIEST + Duration::from_secs(day * 86_400);
        for (what, newest_first, age, kept) in [
            ("one a day", &[100, 99, 98, 97][..], 2, 3),
            ("behind now", &[200, 200], 1, 2),
            ("began at zero for two of them, later than the first", &[100, 0, 0, 95], 1, 3),
            ("was ahead for one, and its time has not come", &[100, 99, 5000, 97], 2, 3),
            ("was ahead for one, and its time is past", &[99, 98, 97, 98, 95], 3, 4),
        ] {
            let times: Vec<_> = newest_first.iter().map(|at| day(*at)).collect();
            let age = Duration::from_secs(age * 86_400);
            // Started long ago.
            let found = kept_by_age(&times, age, day(100), age);
            assert_eq!(found, KeptByAge { count: kept, jump: None }, "{what}");
        }
    }
    #[test]
    fn a_clock_that_was_years_behind_makes_nothing_old_and_what_it_wrote_goes_in_its_time() {
        const DAY: Duration = Duration::from_secs(86_400);
        let behind = SystemTime::UNIX_EPOCH + EARLIEST + 1000 * DAY;
        let right = behind + 1200 * DAY;
        let age = 30 * DAY;
        let minute = Duration::from_secs(60);
        // One file a second, then the clock is set; the machine is up for a minute.
        let of_then: Vec<_> =
            (0..9).rev().map(|second| behind + Duration::from_secs(second)).collect();
        let kept = |times: &[SystemTime], now, lived| kept_by_age(times, age, now, lived);
        let jump = |time: Option<Duration>| time.map(|time| time.as_secs() / 86_400);
        let found = kept(&of_then, right, minute);
        assert_eq!((found.count, jump(found.jump)), (9, Some(1199)));
        // A file a day: those of then are as old as the first of those behind the jump.
        for (days, expected) in [(29, 29 + 9), (32, 31)] {
            let later: Vec<_> = (0..days).rev().map(|day| right + day * DAY).collect();
            let now = right + (days - 1) * DAY;
            let found = kept(&[later, of_then.clone()].concat(), now, minute);
            assert_eq!(found.count, expected, "{days}");
        }
        // Nobody can have written for so long on a machine that was just started; but on one that
        // runs for long, the log has rested.
        let rested = [right - 31 * DAY];
        assert_eq!(kept(&rested, right, minute).count, 1);
        assert_eq!(kept(&rested, right, 4 * DAY), KeptByAge { count: 0, jump: None });
    }
}
