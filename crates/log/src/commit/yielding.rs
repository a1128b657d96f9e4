//! Giving the processor away instead of sleeping, as long as that pays.
//!
//! *Owns*: how often a thread yields. *May not touch*: what it waits for; the rule (`Courtesy` of `inkstone-io`).

use inkstone_io::Courtesy;

use crate::options::Options;
use crate::sync::{Instant, yield_now};

/// A thread yields no more often than this before it sleeps: some 10 us on an idle processor.
const YIELDS_MAX: u32 = 32;

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
        let mut before = self.opened.elapsed();
        if !self.courtesy.pays(before) {
            return false;
        }
        for _ in 0..YIELDS_MAX {
            yield_now();
            let now = self.opened.elapsed();
            let pays = self.courtesy.yielded(now, now.saturating_sub(before));
            if is_over() {
                return true;
            }
            if !pays {
                return false;
            }
            before = now;
        }
        false
    }
}
