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
//! This cannot detect a clock that was behind by less while the oldest remaining file was written,
//! or by so little that the order holds, or that is ahead now. Copying the files without their
//! times makes all of them young.

use std::time::{Duration, SystemTime};

/// The beginning of 2020 in UTC. No log is older, and clocks that are not set begin before: in
/// 1970, 1980, 2000.
const EARLIEST: Duration = Duration::from_secs(1_577_836_800);

/// How many of these files are kept if those last changed more than `age` before `now` may go. The
/// newest comes first, in the order in which they were written. With one that goes, all older ones
/// go.
pub fn kept_by_age(newest_first: &[SystemTime], age: Duration, now: SystemTime) -> usize {
    let mut highest = SystemTime::UNIX_EPOCH + EARLIEST;
    let oldest_first = newest_first.iter().rev().map(|&time| {
        let counts = time <= now && time >= highest;
        highest = if counts { time } else { highest };
        counts
    });
    let counts: Vec<bool> = oldest_first.collect();
    let mut not_after = now;
    let is_kept = |(time, counts): &(&SystemTime, &bool)| {
        if **counts {
            not_after = **time;
        }
        now.duration_since(not_after).is_ok_and(|old| old <= age)
    };
    newest_first.iter().zip(counts.iter().rev()).take_while(is_kept).count()
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
            assert_eq!(kept_by_age(&times, age, day(100)), kept, "{what}");
        }
    }
}
