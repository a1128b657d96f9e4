//! How a disk fails, by a plan that can be changed while it is mounted.
//!
//! *Owns*: the rules and when each applies. *May not touch*: the disk.

use std::ops::Range;
use std::time::Duration;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    Read,
    /// Write, zero or discard sectors.
    Write,
    /// Make earlier writes durable.
    Flush,
}

/// What happens to a request that a rule matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// `EIO`, and nothing was done.
    Error,
    /// Done, but only after this time.
    Slow(Duration),
}

#[derive(Debug, Clone)]
pub struct Rule {
    pub on: Access,
    /// Only requests that touch these sectors; a flush touches none and matches every range.
    pub sectors: Range<u64>,
    /// This many matching requests pass first.
    pub skip: u64,
    /// Then this many fail.
    pub times: u64,
    pub effect: Effect,
}

impl Rule {
    pub fn every(on: Access, effect: Effect) -> Self {
        Self { on, sectors: 0..u64::MAX, skip: 0, times: u64::MAX, effect }
    }

    /// Only the one after `skip` others.
    #[must_use]
    pub fn once_after(self, skip: u64) -> Self {
        Self { skip, times: 1, ..self }
    }

    #[must_use]
    pub fn within(self, sectors: Range<u64>) -> Self {
        Self { sectors, ..self }
    }
}

/// All ways in which a disk fails.
#[derive(Debug, Clone, Default)]
pub struct Faults {
    /// Tried in order; the first that matches decides.
    pub rules: Vec<Rule>,
    /// Every write and every flush fails from now on, as with a disk that has become read-only.
    pub is_read_only: bool,
    /// How many blocks of 4 KiB may hold something other than zeros; a write that would take more
    /// gets `ENOSPC`.
    pub blocks_max: Option<usize>,
    /// A flush that fails loses what was written since the last successful one.
    pub drops_cache: bool,
    /// How often a rule applied.
    pub fired: u64,
}

impl Faults {
    /// What happens to this request; `None`: it succeeds.
    pub fn meet(&mut self, access: Access, sectors: Range<u64>) -> Option<Effect> {
        let met = if self.is_read_only && access != Access::Read {
            Some(Effect::Error)
        } else {
            self.rules.iter_mut().find_map(|rule| rule.meet(access, &sectors))
        };
        self.fired += u64::from(met.is_some());
        met
    }
}

impl Rule {
    fn meet(&mut self, access: Access, sectors: &Range<u64>) -> Option<Effect> {
        let touches = sectors.start < self.sectors.end && self.sectors.start < sectors.end;
        if self.on != access || self.times == 0 || !(touches || access == Access::Flush) {
            return None;
        }
        if self.skip > 0 {
            self.skip -= 1;
            return None;
        }
        self.times -= 1;
        Some(self.effect)
    }
}
