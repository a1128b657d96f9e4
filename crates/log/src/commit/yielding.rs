//! Giving the processor away instead of sleeping, as long as that pays.
//!
//! *Owns*: the clock and the way to yield, which the explorer replaces. *May not touch*: what a
//! thread waits for; the rule, and how often a thread yields (`Courtesy` of `inkstone-io`).

use std::time::Duration;

use inkstone_io::Courtesy;

use crate::options::Options;
use crate::sync::{Instant, yield_now};

/// The committer is one thread, so a neighbour of its own program holds it up too: a reader of what
/// was just written, for example. Some 30 us is what sleeping and being woken costs.
const LATE_FOR_TASKS: Duration = Duration::from_micros(50);

/// What the threads of a log know about yielding.
#[derive(Debug)]
pub(crate) struct Yielding {
    /// As often as the options say, whatever yields cost.
    fixed: Option<u32>,
    courtesy: Courtesy,
    /// Yields, unless the options fix their number, count to the time for which a thread is to
    /// sleep. Threads that wait for their own records yield beyond it: if they are many, each yield
    /// lets others append, and the group is the larger for it.
    keeps_time: bool,
    opened: Instant,
}

impl Yielding {
    pub(crate) fn new(options: &Options) -> Self {
        let courtesy = Courtesy::default();
        Self { fixed: options.yields, courtesy, keeps_time: false, opened: Instant::now() }
    }

    /// For the committer that waits for tasks.
    pub(crate) fn for_tasks(options: &Options) -> Self {
        Self {
            courtesy: Courtesy::late_after(LATE_FOR_TASKS),
            keeps_time: true,
            ..Self::new(options)
        }
    }

    /// How often a thread slept at once, since yielding did not pay, and for how long it did not.
    pub(crate) fn rests(&self) -> (u64, Duration) {
        self.courtesy.rests()
    }

    /// Lets other threads run until `is_over`, or until it is better to sleep, which the thread is
    /// to do for `time`. `None` if it is over, else for how long it is to sleep.
    pub(crate) fn until(
        &self,
        time: Duration,
        mut is_over: impl FnMut() -> bool,
    ) -> Option<Duration> {
        if let Some(yields) = self.fixed {
            let is_over = (0..yields).any(|_| {
                yield_now();
                is_over()
            });
            return (!is_over).then_some(time);
        }
        let within = if self.keeps_time { time } else { Duration::MAX };
        self.courtesy
            .until(within, || self.opened.elapsed(), yield_now, is_over)
            .map(|left| left.min(time))
    }
}
