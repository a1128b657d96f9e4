//! How long something may still take, by the time in which this process could look.
//!
//! *Owns*: that time. *May not touch*: what is waited for.
//!
//! A process may be stopped (Ctrl-Z, SIGSTOP, a virtual machine that pauses) for any time. What it
//! waits for may be done meanwhile, and a clock alone would call that late.

use std::thread;
use std::time::{Duration, Instant};

/// No more than this counts between two looks: whoever waits looks more often, unless it is
/// stopped.
const LOOKS_WITHIN: Duration = Duration::from_millis(500);

/// A limit, and how much of it is left.
#[derive(Debug, Clone)]
pub struct Patience {
    left: Duration,
    looked: Instant,
}

impl Patience {
    /// Begins now.
    pub fn new(limit: Duration) -> Self {
        Self { left: limit, looked: Instant::now() }
    }

    /// What is left. Ask several times a second.
    pub fn left(&mut self) -> Duration {
        self.spend(Instant::now())
    }

    /// Whether nothing is left.
    pub fn is_over(&mut self) -> bool {
        self.left().is_zero()
    }

    /// Sleeps, for at most what is left. Returns whether something was left: if so, look again.
    pub fn pause(&mut self, pause: Duration) -> bool {
        let left = self.left();
        thread::sleep(left.min(pause));
        !left.is_zero()
    }

    fn spend(&mut self, now: Instant) -> Duration {
        let spent = now.saturating_duration_since(self.looked).min(LOOKS_WITHIN);
        (self.left, self.looked) = (self.left.saturating_sub(spent), now);
        self.left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_hour_in_which_nobody_looked_is_no_hour() {
        let mut patience = Patience::new(Duration::from_secs(10));
        let mut now = patience.looked;
        now += Duration::from_millis(100);
        assert_eq!(patience.spend(now), Duration::from_millis(9900));
        now += Duration::from_secs(3600);
        assert_eq!(patience.spend(now), Duration::from_millis(9400));
        let looks = (0..100).filter(|_| {
            now += Duration::from_millis(100);
            patience.spend(now) > Duration::ZERO
        });
        assert_eq!(looks.count(), 93);
    }
}
