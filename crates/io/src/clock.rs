//! A clock that is cheap to read: for a bound on how old something is, asked for each record.
//!
//! *Owns*: the coarse clock, the fine one of a file, and the time since the machine started. *May
//! not touch*: what they are asked for.

use std::ops::Add;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// A moment of a clock that the kernel moves on at each timer tick (1 to 10 ms), and that it shares
/// in memory: reading it makes no system call and does not ask the processor's counter. It never
/// goes back, and lags by a tick at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct CoarseInstant(Duration);

/// The longest tick.
pub const TICK: Duration = Duration::from_millis(10);

#[cfg(target_os = "linux")]
const CLOCK: ClockId = ClockId::MonotonicCoarse;
#[cfg(not(target_os = "linux"))]
const CLOCK: ClockId = ClockId::Monotonic;

/// A moment of the clock that never goes back, as the time since some other one.
pub(crate) fn moment() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs() as u32)
}

/// How long this machine has been up, also asleep.
pub fn since_start() -> Duration {
    #[cfg(target_os = "linux")]
    let clock = ClockId::Boottime;
    #[cfg(not(target_os = "linux"))]
    let clock = ClockId::Monotonic;
    let since = clock_gettime(clock);
    Duration::new(since.tv_sec.unsigned_abs(), since.tv_nsec.unsigned_abs() as u32)
}

impl CoarseInstant {
    /// This moment.
    #[inline]
    pub fn now() -> Self {
        let now = clock_gettime(CLOCK);
        Self(Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs() as u32))
    }
}

impl Add<Duration> for CoarseInstant {
    type Output = Self;

    fn add(self, time: Duration) -> Self {
        Self(self.0.saturating_add(time))
    }
}
