//! Adaptive yielding: whether a thread that waits should give the processor away a few times before
//! it sleeps, found out by doing it.
//!
//! *Owns*: that rule, and how often a thread yields. *May not touch*: the clock, how a thread
//! yields, sleeping.
//!
//! Threads that wait for the same thing give the processor back within microseconds, and yielding
//! to them saves a sleep and a wake-up. A neighbour that has other work keeps the processor until
//! its time slice ends, so the yield comes back late. But a late yield alone is no proof of a
//! neighbour: the host of a virtual machine takes a processor away for some milliseconds, several
//! times a second. After such a stop yields come back in time for a while. Beside a neighbour the
//! next yield is late again.
//!
//! So one late yield is forgiven. If the next late yield takes longer than the time between the
//! two, yields cost more time than they leave, and threads rest from yielding: they sleep at once.
//! The first rest is as long as the late yield. After a rest the next yields show whether it still
//! pays to rest; a late yield soon after a rest makes the next rest four times as long.
//!
//! Where the threads that yield are few and sleeping costs them little, no late yield is forgiven:
//! they rest for as long as can be after each ([`AdaptiveYielding::unforgiving`]).
//!
//! A control group with a quota of processor time stops all threads of a process for some 50 ms in
//! each 100. Threads rest there too, and sleeping leaves more of the quota to the records.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A yield is late after this time, if nothing else is said: Linux gives no time slice that is
/// shorter (0.7 ms is its least).
const LATE: Duration = Duration::from_micros(500);
/// A rest that did not help is followed by one that is so many times as long.
const LONGER: u64 = 4;
/// The longest rest. After so long threads notice that a neighbour has gone; a late yield in each
/// such time costs little.
const LONGEST_REST: Duration = Duration::from_millis(500);

/// A thread yields no more often than this before it sleeps: some 10 us on an idle processor.
const YIELDS_MAX: u32 = 32;

/// Says whether it pays to yield before sleeping. Shared by the threads that wait.
#[derive(Debug)]
pub struct AdaptiveYielding {
    late: Duration,
    /// The rest after a late yield that did not come soon after another; 0: it is forgiven.
    least_rest_ns: u64,
    /// When the last rest ends or has ended: until then threads sleep at once. Nanoseconds since
    /// the caller's beginning of time.
    rests_until_ns: AtomicU64,
    /// How long that rest is; 0 after a late yield that was forgiven, which counts as a rest that
    /// is over.
    rest_ns: AtomicU64,
    /// The sum of all rests.
    rested_ns: AtomicU64,
    /// How often a thread slept at once, because of a rest.
    sleeps_at_once: AtomicU64,
}

impl Default for AdaptiveYielding {
    fn default() -> Self {
        Self::new(LATE, Duration::ZERO)
    }
}

impl AdaptiveYielding {
    /// For threads to which a yield is late after this time, and that then rest at once and for the
    /// longest time.
    pub fn unforgiving(late: Duration) -> Self {
        Self::new(late, LONGEST_REST)
    }

    fn new(late: Duration, least_rest: Duration) -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            late,
            least_rest_ns: nanoseconds(least_rest),
            rests_until_ns: zero(),
            rest_ns: zero(),
            rested_ns: zero(),
            sleeps_at_once: zero(),
        }
    }

    /// Gives the processor away until `is_over`, until `within` has passed, or until it is better
    /// to sleep. `None` if it is over, else what is left of `within`. `now` is the time since the
    /// caller's beginning of time.
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
        if !pays {
            self.sleeps_at_once.fetch_add(1, Ordering::Relaxed);
        }
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

    /// How often a thread slept at once because of a rest, and how long all rests were together;
    /// one that goes on counts whole.
    pub fn rests(&self) -> (u64, Duration) {
        let rested = Duration::from_nanos(self.rested_ns.load(Ordering::Relaxed));
        (self.sleeps_at_once.load(Ordering::Relaxed), rested)
    }

    /// Whether a thread that begins to wait `now` should yield first.
    pub fn pays(&self, now: Duration) -> bool {
        nanoseconds(now) >= self.rests_until_ns.load(Ordering::Relaxed)
    }

    /// Notes a yield that took `took` and came back `now`; whether it pays to yield again.
    pub fn yielded(&self, now: Duration, took: Duration) -> bool {
        if took < self.late {
            return true;
        }
        let began = nanoseconds(now.saturating_sub(took));
        let took = nanoseconds(took.min(LONGEST_REST));
        let until = self.rests_until_ns.load(Ordering::Relaxed);
        // Otherwise another thread has noted it: they yield at the same time.
        if began >= until {
            // 0: no yield was late so far.
            let is_soon = until > 0 && began - until <= took;
            let longer = self.rest_ns.load(Ordering::Relaxed).saturating_mul(LONGER).max(took);
            let rest = if is_soon { longer } else { 0 };
            let rest = rest.clamp(self.least_rest_ns, nanoseconds(LONGEST_REST));
            self.rest_ns.store(rest, Ordering::Relaxed);
            self.rested_ns.fetch_add(rest, Ordering::Relaxed);
            self.rests_until_ns.store(nanoseconds(now).saturating_add(rest), Ordering::Relaxed);
        }
        false
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
        // Each yield takes this long; it is over after so many; how often the thread yielded, and
        // whether it was over.
        let run = |yielding: &AdaptiveYielding, us: u64, over_after: u32| {
            let yields = Cell::new(0);
            let give_way = || {
                yields.set(yields.get() + 1);
                clock.set(clock.get() + Duration::from_micros(us));
            };
            let left =
                yielding.until(WITHIN, || clock.get(), give_way, || yields.get() == over_after);
            (yields.get(), left.is_none())
        };
        let yielding = AdaptiveYielding::default();
        assert_eq!(run(&yielding, 1, 3), (3, true));
        assert_eq!(run(&yielding, 1, u32::MAX), (YIELDS_MAX, false));
        clock.set(clock.get() + Duration::from_secs(1));
        assert_eq!(run(&yielding, 600, 1), (1, true), "late, but over");
        assert_eq!(run(&yielding, 600, 2), (1, false), "late, soon after another");
        assert_eq!(run(&yielding, 600, 2), (0, false), "a rest follows");
    }

    /// Each yield comes back in time, and all of them together are longer than the caller's own
    /// timer.
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
            let over =
                AdaptiveYielding::default().until(us(within), || clock.get(), give_way, || false);
            assert_eq!((count.get(), over), (yields, Some(us(left))), "{took} us, {within} us");
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
            let yielding = AdaptiveYielding::default();
            for (at, step) in *steps {
                let now = Duration::from_millis(*at);
                match step {
                    Waits(pays) => assert_eq!(yielding.pays(now), *pays, "{what}: at {at} ms"),
                    Yields(us, again) => {
                        let took = Duration::from_micros(*us);
                        assert_eq!(yielding.yielded(now, took), *again, "{what}: at {at} ms");
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
            // A host took the processor away.
            (
                "late yields, each long after the one before",
                &[
                    (13, Yields(3000, false)),
                    (13, Waits(true)),
                    (13, Yields(2, true)),
                    (20, Yields(3000, false)),
                    (20, Waits(true)),
                ],
            ),
            (
                "several threads whose yields overlap count once",
                &[
                    (13, Yields(3000, false)),
                    (14, Yields(3000, false)),
                    (15, Yields(4000, false)),
                    (15, Waits(true)),
                ],
            ),
            // The rests become longer, up to half a second.
            (
                "a neighbour",
                &[
                    (13, Yields(3000, false)),
                    (13, Waits(true)),
                    // It began 3 ms after the other one had ended.
                    (19, Yields(3000, false)),
                    (21, Waits(false)),
                    (22, Waits(true)),
                    (26, Yields(3000, false)),
                    (37, Waits(false)),
                    (38, Waits(true)),
                    (41, Yields(3000, false)),
                    (88, Waits(false)),
                    (89, Waits(true)),
                    (92, Yields(3000, false)),
                    (283, Waits(false)),
                    (284, Waits(true)),
                    (287, Yields(3000, false)),
                    (786, Waits(false)),
                    (787, Waits(true)),
                    (790, Yields(3000, false)),
                    (1289, Waits(false)),
                    // The neighbour is gone: yields come back in time, and a late one is the first
                    // again.
                    (1290, Waits(true)),
                    (1290, Yields(1, true)),
                    (1300, Yields(3000, false)),
                    (1300, Waits(true)),
                    (1304, Yields(3000, false)),
                    (1306, Waits(false)),
                    (1307, Waits(true)),
                ],
            ),
            (
                "a quota of processor time: stopped for 75 ms of each 100, two threads yield",
                &[
                    (124, Yields(2, true)),
                    (200, Yields(75_000, false)),
                    (201, Yields(75_000, false)),
                    (201, Waits(true)),
                    (300, Yields(75_000, false)),
                    (301, Yields(75_000, false)),
                    (374, Waits(false)),
                    (375, Waits(true)),
                    (500, Yields(75_000, false)),
                    (799, Waits(false)),
                    (800, Waits(true)),
                ],
            ),
            (
                "a machine that slept for an hour",
                &[
                    (3_600_100, Yields(3_600_000_000, false)),
                    (3_600_100, Waits(true)),
                    (3_600_500, Yields(3000, false)),
                    (3_600_500, Waits(true)),
                ],
            ),
        ]);
    }

    #[test]
    fn an_unforgiving_thread_rests_for_the_longest_time_after_each_late_yield() {
        let (ms, us) = (Duration::from_millis, Duration::from_micros);
        let yielding = AdaptiveYielding::unforgiving(us(50));
        assert!(yielding.yielded(ms(13), us(49)) && yielding.pays(ms(13)));
        // The first one; one as soon as the rest is over; one long after.
        for at in [14, 515, 9000] {
            assert!(!yielding.yielded(ms(at), us(50)), "late at {at} ms");
            assert!(!yielding.pays(ms(at + 499)) && yielding.pays(ms(at + 500)), "{at} ms");
        }
        assert_eq!(yielding.rests(), (0, 3 * LONGEST_REST));
    }

    #[test]
    fn rests_are_counted() {
        let ms = Duration::from_millis;
        let yielding = AdaptiveYielding::default();
        let wait = |at| yielding.until(ms(1), || ms(at), || (), || true);
        assert_eq!(yielding.rests(), (0, Duration::ZERO));
        yielding.yielded(ms(13), ms(3));
        assert_eq!(yielding.rests(), (0, Duration::ZERO), "forgiven");
        yielding.yielded(ms(17), ms(3));
        assert_eq!(yielding.rests(), (0, ms(3)));
        assert_eq!((wait(18), wait(19), wait(20)), (Some(ms(1)), Some(ms(1)), None));
        assert_eq!(yielding.rests(), (2, ms(3)));
    }
}
