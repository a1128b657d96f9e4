//! A process that is killed at any call, between a write and its sync for example, while the kernel
//! lives on: the next opening finds what the killed one left in memory.
//!
//! *Owns*: the moment of the kill. *May not touch*: what is written before it, which all reaches
//! the simulated disk.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use inkstone_io::{Error, Result};
use inkstone_sim::hooked::{Call, FileCall, Hook};

use super::PATH;

/// No call is as far away as this.
pub(super) const NEVER: u64 = u64::MAX / 2;

/// A process that dies after a number of calls: later ones that change something do not reach the
/// disk.
#[derive(Debug)]
pub(super) struct Mortal {
    left: Arc<AtomicU64>,
}

impl Mortal {
    /// `left`: how many calls are left to it.
    pub(super) fn new(left: &Arc<AtomicU64>) -> Self {
        Self { left: Arc::clone(left) }
    }
}

impl Hook for Mortal {
    /// Counts a call that opens or changes something; an error if it comes after the kill. One
    /// thread makes all calls, so `Relaxed` is enough.
    fn before(&self, call: &Call<'_>) -> Result<()> {
        if let Call::List
        | Call::Lock { .. }
        | Call::LockedBy { .. }
        | Call::OfFile { call: FileCall::Read | FileCall::CheckTakesChanges, .. }
        | Call::DuringWrite
        | Call::DuringSync = call
        {
            return Ok(());
        }
        let before = self.left.load(Ordering::Relaxed);
        if before == 0 {
            return Err(Error::invalid("call for", PATH, "the process was killed"));
        }
        self.left.store(before - 1, Ordering::Relaxed);
        Ok(())
    }
}
