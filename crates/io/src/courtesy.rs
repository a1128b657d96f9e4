//! Courtesy: whether a thread that waits should give the processor away a few times before it sleeps, found out by doing it.
//!
//! *Owns*: that rule, and how often a thread yields. *May not touch*: the clock, how a thread yields, sleeping.
//!
//! Threads that wait for the same thing give the processor back within microseconds, and yielding to them saves a sleep and a
//! wake-up. A neighbour that has other work keeps the processor until its time slice ends. So a yield that comes back late says that
//! others want the processor, and then threads sleep at once. After a rest the next yield shows whether that is still so. The rest
//! is a multiple of what the late yield has cost, and doubles while yields come back late again soon: so trying costs little, and
//! one late yield on a quiet machine costs little too.
//!
//! A control group with a quota of processor time stops all threads of a process for some 50 ms in each 100, whether they yield or not,
//! and a host may stop a whole machine. So a very late yield does not count if yields came back in time before it, and the process
//! ran for a while: where neighbours take so long, the next yield is late too. The threads of a process come back from one stop at
//! the same time, which tells it from neighbours as well.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// A yield is late after this time, if nothing else is said: Linux gives no time slice that is shorter (0.7 ms is its least).
const LATE: Duration = Duration::from_micros(500);
/// After this time a yield may have waited for a process that was stopped, and not for a neighbour.
const STOPPED: Duration = Duration::from_millis(20);
/// Within this time all threads of a process that was stopped have come back from their yields.
const TOGETHER: Duration = Duration::from_millis(5);
/// The first rest, and the longest, as multiples of the late yield's time.
const FIRST_REST: u64 = 8;
const LONGEST_REST: u64 = 64;

/// A thread yields no more often than this before it sleeps: some 10 us on an idle processor.
const YIELDS_MAX: u32 = 32;

/// Says whether it pays to yield before sleeping. Shared by the threads that wait.
#[derive(Debug)]
pub struct Courtesy {
    late: Duration,
    /// Until then threads sleep at once. Nanoseconds since the caller's beginning of time, like all others.
    rests_until_ns: AtomicU64,
    rest_ns: AtomicU64,
    /// The end of the last stop: when the first yield came back from it.
    stopped_ns: AtomicU64,
    /// A yield has come back in time since.
    was_in_time: AtomicBool,
}

impl Default for Courtesy {
    fn default() -> Self {
        Self::late_after(LATE)
    }
}

impl Courtesy {
    /// For threads to which a yield is late after this time.
    pub fn late_after(late: Duration) -> Self {
        Self {
            late,
            rests_until_ns: AtomicU64::new(0),
            rest_ns: AtomicU64::new(0),
            stopped_ns: AtomicU64::new(0),
            was_in_time: AtomicBool::new(false),
        }
    }

    /// Gives the processor away until `is_over`, until `within` has passed, or until it is better to sleep. `None` if it is over, else
    /// what is left of `within`. `now` is the time since the caller's beginning of time.
    pub fn until(
        &self,
        within: Duration,
        now: impl Fn() -> Duration,
        give_way: impl Fn(),
        mut is_over: impl FnMut() -> bool,
    ) -> Option<Duration> {
        let begun = now();
        let (mut before, mut left) = (begun, within);
        let mut pays = self.pays(before);
        for _ in 0..YIELDS_MAX {
            if !pays || left.is_zero() {
                break;
            }
            give_way();
            let after = now();
            pays = self.yielded(after, after.saturating_sub(before));
            if is_over() {
                return None;
            }
            left = within.saturating_sub(after.saturating_sub(begun));
            before = after;
        }
        Some(left)
    }

    /// Whether a thread that begins to wait `now` should yield first.
    pub fn pays(&self, now: Duration) -> bool {
        nanoseconds(now) >= self.rests_until_ns.load(Ordering::Relaxed)
    }

    /// Notes a yield that took `took` and came back `now`; whether it pays to yield again.
    pub fn yielded(&self, now: Duration, took: Duration) -> bool {
        if took < self.late {
            // Read first: threads that yield all the time must not write to the same place all the time.
            if !self.was_in_time.load(Ordering::Relaxed) {
                self.was_in_time.store(true, Ordering::Relaxed);
            }
            return true;
        }
        if took >= STOPPED && self.is_a_stop(nanoseconds(now.saturating_sub(took)), nanoseconds(now)) {
            return false;
        }
        let (now, took) = (nanoseconds(now), nanoseconds(took));
        let (until, last) =
            (self.rests_until_ns.load(Ordering::Relaxed), self.rest_ns.load(Ordering::Relaxed));
        // Otherwise another thread has noted it: they yield at the same time.
        if now >= until {
            let is_soon = now - until < last;
            let rest = if is_soon { last.saturating_mul(2) } else { 0 };
            let rest = rest.clamp(took.saturating_mul(FIRST_REST), took.saturating_mul(LONGEST_REST));
            self.rest_ns.store(rest, Ordering::Relaxed);
            self.rests_until_ns.store(now.saturating_add(rest), Ordering::Relaxed);
        }
        false
    }

    /// Whether this very late yield comes from a stop of the whole process. Notes the stop.
    fn is_a_stop(&self, began: u64, now: u64) -> bool {
        let last = self.stopped_ns.load(Ordering::Relaxed);
        if self.is_noted(began, now) {
            return true;
        }
        let ran_before = began >= last.saturating_add(nanoseconds(STOPPED));
        if !ran_before || !self.was_in_time.load(Ordering::Acquire) {
            // Another thread may have noted it since.
            return self.is_noted(began, now);
        }
        match self.stopped_ns.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => {
                self.was_in_time.store(false, Ordering::Release);
                true
            }
            Err(_) => self.is_noted(began, now),
        }
    }

    /// Whether another thread has come back from the same stop.
    fn is_noted(&self, began: u64, now: u64) -> bool {
        let last = self.stopped_ns.load(Ordering::Relaxed);
        began < last && now.saturating_sub(last) < nanoseconds(TOGETHER)
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_yields_until_it_is_over_or_a_yield_is_late_or_often_enough() {
        use std::cell::Cell;

        const WITHIN: Duration = Duration::from_secs(1);
        let clock = Cell::new(Duration::ZERO);
        // Each yield takes this long; it is over after so many; how often the thread yielded, and whether it was over.
        let run = |courtesy: &Courtesy, us: u64, over_after: u32| {
            let yields = Cell::new(0);
            let give_way = || {
                yields.set(yields.get() + 1);
                clock.set(clock.get() + Duration::from_micros(us));
            };
            let left = courtesy.until(WITHIN, || clock.get(), give_way, || yields.get() == over_after);
            (yields.get(), left.is_none())
        };
        let courtesy = Courtesy::default();
        assert_eq!(run(&courtesy, 1, 3), (3, true));
        assert_eq!(run(&courtesy, 1, u32::MAX), (YIELDS_MAX, false));
        assert_eq!(run(&courtesy, 600, 1), (1, true), "late, but over");
        assert_eq!(run(&courtesy, 600, 2), (0, false), "a rest follows");
        assert_eq!(run(&Courtesy::default(), 600, 2), (1, false));
    }

    /// Each yield comes back in time, and all of them together are longer than the caller's own timer.
    #[test]
    fn a_thread_yields_no_longer_than_it_was_to_wait() {
        use std::cell::Cell;

        let us = Duration::from_micros;
        // The time of a yield, the caller's timer; how often it yields, and what is left.
        for (took, within, yields, left) in [
            (300, 100, 1, 0),
            (300, 1000, 4, 0),
            (30, 100, 4, 0),
            (25, 100, 4, 0),
            (2, 100, YIELDS_MAX, 100 - 2 * u64::from(YIELDS_MAX)),
            (1, 0, 0, 0),
        ] {
            let (clock, count) = (Cell::new(us(7)), Cell::new(0));
            let give_way = || {
                count.set(count.get() + 1);
                clock.set(clock.get() + us(took));
            };
            let over = Courtesy::default().until(us(within), || clock.get(), give_way, || false);
            assert_eq!((count.get(), over), (yields, Some(us(left))), "{took} us, {within} us");
        }
    }

    #[test]
    fn when_a_yield_is_late_is_the_callers_choice() {
        let ms = Duration::from_millis;
        for (late_us, again) in [(50, false), (500, true)] {
            let courtesy = Courtesy::late_after(Duration::from_micros(late_us));
            assert_eq!(courtesy.yielded(ms(1), Duration::from_micros(60)), again, "{late_us} us");
            assert_eq!(courtesy.pays(ms(1)), again, "{late_us} us");
        }
    }

    #[derive(Debug)]
    enum Step {
        /// A thread begins to wait: it is to yield first, or not.
        Waits(bool),
        /// A yield comes back after so many microseconds: it is to yield again, or not.
        Yields(u64, bool),
    }
    use Step::{Waits, Yields};

    /// Rows of what threads do, each at its millisecond from the beginning of the row.
    fn check(rows: &[(&str, &[(u64, Step)])]) {
        for (what, steps) in rows {
            let courtesy = Courtesy::default();
            for (at, step) in *steps {
                let now = Duration::from_millis(*at);
                match step {
                    Waits(pays) => assert_eq!(courtesy.pays(now), *pays, "{what}: at {at} ms"),
                    Yields(us, again) => {
                        let took = Duration::from_micros(*us);
                        assert_eq!(courtesy.yielded(now, took), *again, "{what}: at {at} ms");
                    }
                }
            }
        }
    }

    #[test]
    fn threads_yield_as_long_as_the_processor_comes_back_soon() {
        check(&[
            (
                "a quiet machine",
                &[(0, Waits(true)), (0, Yields(1, true)), (5, Yields(499, true)), (9, Waits(true))],
            ),
            // 3 ms late: a rest of 24 ms.
            (
                "a single late yield",
                &[
                    (3, Yields(3000, false)),
                    (4, Waits(false)),
                    (26, Waits(false)),
                    (27, Waits(true)),
                    (27, Yields(2, true)),
                    (28, Waits(true)),
                    // Long after: it counts as the first again.
                    (3000, Yields(3000, false)),
                    (3023, Waits(false)),
                    (3024, Waits(true)),
                ],
            ),
            (
                "several threads that yield at the same time",
                &[
                    (3, Yields(3000, false)),
                    (4, Yields(3000, false)),
                    (5, Yields(4000, false)),
                    (26, Waits(false)),
                    (27, Waits(true)),
                ],
            ),
            // The rests double up to 64 times the yield's time.
            (
                "a busy machine",
                &[
                    (3, Yields(3000, false)),
                    (30, Yields(3000, false)),
                    (77, Waits(false)),
                    (78, Waits(true)),
                    (81, Yields(3000, false)),
                    (176, Waits(false)),
                    (180, Yields(3000, false)),
                    (371, Waits(false)),
                    (372, Waits(true)),
                    (375, Yields(3000, false)),
                    (566, Waits(false)),
                    // The neighbours are gone: the first yield shows it.
                    (567, Waits(true)),
                    (567, Yields(1, true)),
                    (568, Waits(true)),
                ],
            ),
        ]);
    }

    #[test]
    fn a_stop_of_the_whole_process_is_told_from_neighbours() {
        check(&[
            (
                "a quota: stopped for 75 ms of each 100, two threads yield",
                &[
                    (24, Yields(2, true)),
                    (25, Waits(true)),
                    (100, Yields(75_000, false)),
                    (101, Yields(75_000, false)),
                    (101, Waits(true)),
                    (124, Yields(2, true)),
                    (200, Yields(75_000, false)),
                    (201, Waits(true)),
                ],
            ),
            // A rest of 8 times 25 ms, then of twice that.
            (
                "so many neighbours that each yield takes 25 ms",
                &[
                    (999, Yields(2, true)),
                    (1024, Yields(25_000, false)),
                    (1025, Waits(true)),
                    (1050, Yields(25_000, false)),
                    (1051, Waits(false)),
                    (1249, Waits(false)),
                    (1251, Waits(true)),
                    (1276, Yields(25_000, false)),
                    (1277, Waits(false)),
                    (1675, Waits(false)),
                ],
            ),
            (
                "the same, and two threads whose yields overlap",
                &[
                    (999, Yields(2, true)),
                    (1025, Yields(25_000, false)),
                    (1037, Yields(25_000, false)),
                    (1038, Waits(false)),
                    (1236, Waits(false)),
                    (1238, Waits(true)),
                ],
            ),
            (
                "the same, and 30 ms of other work between two waits",
                &[
                    (999, Yields(2, true)),
                    (1025, Yields(25_000, false)),
                    (1055, Waits(true)),
                    (1080, Yields(25_000, false)),
                    (1081, Waits(false)),
                ],
            ),
        ]);
    }
}
