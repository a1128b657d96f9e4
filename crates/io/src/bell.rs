//! A bell: threads sleep until it rings, for one or for all. A count of rings, and the threads that
//! sleep beside it.
//!
//! *Owns*: the count. *May not touch*: what threads wait for; how they sleep (`sys`: by a futex, on
//! macOS by a condition variable).
//!
//! With the standard library's condition variable, every woken thread takes the lock again, one
//! after the other. A thread that a futex wakes first checks its condition, and often needs no lock
//! then. Ringing changes the count, so a ring between reading the count and sleeping is not missed.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::sys::Sleepers;

/// Counts its rings; threads sleep until the next one.
#[derive(Debug, Default)]
pub struct Bell {
    rings: AtomicU32,
    sleepers: Sleepers,
}

impl Bell {
    /// The number of rings, for [`Bell::wait`]; it wraps after 2^32 rings.
    pub fn rings(&self) -> u32 {
        self.rings.load(Ordering::Acquire)
    }

    /// Sleeps until it has rung since `rings` was read, for at most `time`; true if the time has
    /// passed. It may return early, like any wait: check the condition again.
    pub fn wait(&self, rings: u32, time: Duration) -> bool {
        self.sleepers.sleep(&self.rings, rings, time)
    }

    /// Wakes one sleeping thread.
    pub fn ring_one(&self) {
        self.rings.fetch_add(1, Ordering::Release);
        self.sleepers.wake_one(&self.rings);
    }

    /// Wakes all sleeping threads.
    pub fn ring_all(&self) {
        self.rings.fetch_add(1, Ordering::Release);
        self.sleepers.wake_all(&self.rings);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_before_the_sleep_is_not_missed() {
        let bell = Bell::default();
        let seen = bell.rings();
        bell.ring_one();
        assert!(!bell.wait(seen, Duration::from_secs(3600)), "it has rung since");
        assert!(bell.wait(bell.rings(), Duration::from_millis(1)), "it has not");
    }

    #[test]
    fn all_who_sleep_are_woken() {
        let bell = Bell::default();
        let seen = bell.rings();
        std::thread::scope(|scope| {
            let sleepers: Vec<_> =
                (0..8).map(|_| scope.spawn(|| bell.wait(seen, Duration::from_secs(60)))).collect();
            std::thread::sleep(Duration::from_millis(20));
            bell.ring_all();
            assert!(sleepers.into_iter().all(|sleeper| !sleeper.join().expect("no panic")));
        });
    }
}
