//! Giving the processor away instead of sleeping, as long as that pays.
//!
//! *Owns*: the clock and the way to yield, which the explorer replaces. *May not touch*: what a thread waits for; the rule, and how
//! often a thread yields (`Courtesy` of `inkstone-io`).

use inkstone_io::Courtesy;

use crate::options::Options;
use crate::sync::{Instant, yield_now};

/// What the threads of a log know about yielding.
#[derive(Debug)]
pub(crate) struct Yielding {
    /// As often as the options say, whatever yields cost.
    fixed: Option<u32>,
    courtesy: Courtesy,
    opened: Instant,
}

impl Yielding {
    pub(crate) fn new(options: &Options) -> Self {
        Self { fixed: options.yields, courtesy: Courtesy::default(), opened: Instant::now() }
    }

    /// Lets other threads run until `is_over`, or until it is better to sleep. Whether it is over.
    pub(crate) fn until(&self, mut is_over: impl FnMut() -> bool) -> bool {
        if let Some(yields) = self.fixed {
            return (0..yields).any(|_| {
                yield_now();
                is_over()
            });
        }
        self.courtesy.until(|| self.opened.elapsed(), yield_now, is_over)
    }
}
