//! Sleeping until a bell rings, and ringing it for one or for all: a futex on a count of rings.
//!
//! *Owns*: the count and the two system calls. *May not touch*: what is waited for.
//!
//! The standard library's condition variable takes its lock again for everybody whom it wakes, one after the other. Who is
//! woken here looks at what it waits for first, and often needs no lock any more. Ringing changes the count, so a ring
//! between looking at it and sleeping is not missed.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::fs::Timespec;
use rustix::thread::futex::{self, Flags};

/// Counts its rings; threads sleep until the next one.
#[derive(Debug, Default)]
pub struct Bell {
    rings: AtomicU32,
}

impl Bell {
    /// How often it has rung, for [`Bell::wait`]; after 2^32 rings it begins again.
    pub fn rings(&self) -> u32 {
        self.rings.load(Ordering::Acquire)
    }

    /// Sleeps until it has rung since `rings` was read, for at most `time`; true if the time is over. It may return early,
    /// as any wait: look again at what is waited for.
    pub fn wait(&self, rings: u32, time: Duration) -> bool {
        let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
        let time = Timespec { tv_sec: seconds, tv_nsec: i64::from(time.subsec_nanos()) };
        let result = futex::wait(&self.rings, Flags::PRIVATE, rings, Some(&time));
        result == Err(rustix::io::Errno::TIMEDOUT)
    }

    /// Wakes one who sleeps.
    pub fn ring_one(&self) {
        self.ring(1);
    }

    /// Wakes all who sleep.
    pub fn ring_all(&self) {
        self.ring(i32::MAX as u32);
    }

    fn ring(&self, sleepers: u32) {
        self.rings.fetch_add(1, Ordering::Release);
        // It can only fail for an address that is none.
        let _ = futex::wake(&self.rings, Flags::PRIVATE, sleepers);
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
