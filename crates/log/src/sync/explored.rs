//! The primitives of `shuttle`: at each operation the explorer may switch to another thread.
//!
//! *Owns*: the bell and the clock of an explored log. *May not touch*: which interleavings are
//! explored.
//!
//! **Time.** A timer may end at any moment, since no code may rely on how long things take. A sleep
//! without a timer (an hour or more) never ends by itself, so a forgotten wake-up is a deadlock,
//! which the explorer reports.

use std::cell::Cell;
use std::io;
use std::ops::Add;
use std::sync::PoisonError;
use std::time::Duration;

use shuttle::rand::Rng;
use shuttle::sync::Condvar;

pub(crate) use shuttle::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
pub(crate) use shuttle::sync::mpsc::{Receiver, sync_channel};
pub(crate) use shuttle::sync::{Mutex, MutexGuard};
pub(crate) use shuttle::thread::{JoinHandle, ThreadId};
pub(crate) use shuttle::thread_local;

/// No timer hides a forgotten wake-up.
pub(crate) const FALLBACK: Duration = FOREVER;

/// A sleep of this time has no timer.
const FOREVER: Duration = Duration::from_secs(3600);

std::thread_local! {
    /// Nanoseconds. All threads of one exploration, and successive explorations, run on one thread
    /// of the system: the clock only goes forward.
    static CLOCK: Cell<u64> = const { Cell::new(0) };
}

fn advance(time: Duration) -> u64 {
    CLOCK.with(|clock| {
        let now = clock.get()
            + u64::try_from(time.as_nanos()).expect("an exploration takes no centuries");
        clock.set(now);
        now
    })
}

/// A moment of the explorer's clock, which advances each time it is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Instant(u64);

impl Instant {
    pub(crate) fn now() -> Self {
        Self(advance(Duration::from_nanos(100)))
    }

    pub(crate) fn elapsed(&self) -> Duration {
        Self::now().saturating_duration_since(*self)
    }

    pub(crate) fn saturating_duration_since(&self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    pub(crate) fn checked_add(&self, time: Duration) -> Option<Self> {
        u64::try_from(time.as_nanos()).ok().and_then(|time| self.0.checked_add(time)).map(Self)
    }
}

/// There is one clock.
pub(crate) type CoarseInstant = Instant;

impl Add<Duration> for Instant {
    type Output = Self;

    fn add(self, time: Duration) -> Self {
        self.checked_add(time).expect("an exploration takes no centuries")
    }
}

/// As the bell of `inkstone-io`: a ring for one wakes any one sleeping thread, with a timer or
/// without.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    state: Mutex<Sleeping>,
    rung: Condvar,
}

#[derive(Debug, Default)]
struct Sleeping {
    rings: u32,
    tickets: u32,
    asleep: Vec<u32>,
}

impl Bell {
    pub(crate) fn rings(&self) -> u32 {
        super::lock(&self.state).rings
    }

    pub(crate) fn wait(&self, rings: u32, time: Duration) -> bool {
        let mut state = super::lock(&self.state);
        if state.rings != rings {
            return false;
        }
        state.tickets += 1;
        let ticket = state.tickets;
        state.asleep.push(ticket);
        while state.asleep.contains(&ticket) {
            if time >= FOREVER {
                state = self.rung.wait(state).unwrap_or_else(PoisonError::into_inner);
            } else if shuttle::rand::thread_rng().gen_ratio(1, 4) {
                state.asleep.retain(|other| *other != ticket);
                drop(state);
                advance(time);
                return true;
            } else {
                drop(state);
                shuttle::thread::yield_now();
                state = super::lock(&self.state);
            }
        }
        false
    }

    pub(crate) fn ring_one(&self) {
        let mut state = super::lock(&self.state);
        state.rings += 1;
        if !state.asleep.is_empty() {
            let at = shuttle::rand::thread_rng().gen_range(0..state.asleep.len());
            state.asleep.swap_remove(at);
        }
        self.rung.notify_all();
    }

    pub(crate) fn ring_all(&self) {
        let mut state = super::lock(&self.state);
        state.rings += 1;
        state.asleep.clear();
        self.rung.notify_all();
    }
}

/// A yield that lasts so long is late (`AdaptiveYielding`).
const LATE: Duration = Duration::from_millis(1);

/// Lets other threads run. It may take long, so that a thread yields a few times, or sleeps at
/// once.
pub(crate) fn yield_now() {
    shuttle::thread::yield_now();
    if shuttle::rand::thread_rng().gen_ratio(1, 2) {
        advance(LATE);
    }
}

/// Lets other threads run; after that the time has passed.
pub(crate) fn sleep(time: Duration) {
    shuttle::thread::yield_now();
    advance(time);
}

/// Starts a thread. Its panic stays its own, as with the standard library.
pub(crate) fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    shuttle::thread::Builder::new().name(name.into()).spawn(|| {
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
    })
}

/// Which thread this is.
pub(crate) fn this_thread() -> ThreadId {
    shuttle::thread::current().id()
}
