//! A process that is killed at any call, between a write and its sync for example, while the kernel
//! lives on: the next opening finds what the killed one left in memory, and what it shows must
//! survive a power cut.
//!
//! *Owns*: the moment of the kill. *May not touch*: what is written before it, which all reaches
//! the simulated disk.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use inkstone::Log;
use inkstone_io::{Error, Result};
use inkstone_sim::SimDisk;
use inkstone_sim::hooked::{Call, FileCall, Hook};

use super::explore::{Explorer, PATH};
use crate::history::{Op, carry_out, plan};
use crate::mistake::open_in;
use crate::model::{Allowed, Model};
use crate::verdict::check;

/// No call is as far away as this.
const NEVER: u64 = u64::MAX / 2;

/// A process that dies after a number of calls: later ones that change something do not reach the
/// disk.
#[derive(Debug)]
struct Mortal {
    left: Arc<AtomicU64>,
}

impl Hook for Mortal {
    /// Counts a call that opens or changes something; an error if it comes after the kill. One
    /// thread makes all calls, so `Relaxed` is enough.
    fn before(&self, call: &Call<'_>) -> Result<()> {
        if let Call::List
        | Call::Lock { .. }
        | Call::LockedBy { .. }
        | Call::OfFile { call: FileCall::Read | FileCall::CheckTakesChanges, .. }
        | Call::Complete = call
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

/// A log whose writers are killed.
pub(crate) struct Killed {
    pub(crate) explorer: Explorer,
    disk: SimDisk,
    rng: fastrand::Rng,
    model: Model,
}

impl Killed {
    pub(crate) fn new(explorer: Explorer) -> Self {
        let disk = SimDisk::new(explorer.seed, explorer.variant.disk);
        let rng = fastrand::Rng::with_seed(explorer.seed ^ 0x6B69_6C6C_6564_2121);
        Self { explorer, disk, rng, model: Model::new() }
    }

    /// Each process has options of its own: what one left to a sync, the next may make durable by
    /// its writes.
    fn open(&mut self, calls: &Arc<AtomicU64>) -> inkstone::Result<Log> {
        self.explorer.variant.redraw_options(self.rng.u64(..));
        let mortal = Mortal { left: Arc::clone(calls) };
        let directory = self.disk.directory(PATH).hooked(Arc::new(mortal));
        let variant = &self.explorer.variant;
        open_in(directory, variant.options.clone(), variant.mistake)
    }

    /// Runs a history: before each operation a process opens the log, and is killed within the
    /// operation or after it.
    pub(crate) fn all(&mut self, operations: &[Op]) -> std::result::Result<(), String> {
        for (number, operation) in operations.iter().enumerate() {
            self.one(operation).map_err(|why| format!("{number} {operation:?}: {why}"))?;
        }
        Ok(())
    }

    fn one(&mut self, operation: &Op) -> std::result::Result<(), String> {
        let calls = Arc::new(AtomicU64::new(NEVER));
        let allowed = self.model.allowed();
        let log = self.open(&calls).map_err(|error| format!("the log does not open: {error}"))?;
        let shown = check(&log, &allowed)?;
        self.model.settle(shown);
        self.look(&self.model.allowed(), "after the opening that followed a kill")?;
        let plan = plan(operation, &self.model);
        // An operation makes only a few calls: most kills are within it.
        calls.store(self.rng.u64(0..8), Ordering::Relaxed);
        let result = carry_out(&log, operation, &plan);
        let was_killed = calls.load(Ordering::Relaxed) == 0;
        log.abandon();
        self.model = match result {
            Ok(()) => plan.after.clone(),
            Err(_) if was_killed => {
                Model { records: plan.during.records.to_vec(), ..plan.after.clone() }
            }
            Err(error) => return Err(format!("the call fails: {error}")),
        };
        let now = if was_killed { plan.during } else { self.model.allowed() };
        self.look(&now, "killed")?;
        let calls = Arc::new(AtomicU64::new(NEVER));
        let log = self
            .open(&calls)
            .map_err(|error| format!("after the kill the log does not open: {error}"))?;
        let shown = check(&log, &now).map_err(|why| format!("killed: {why}"))?;
        log.abandon();
        self.model = Model::found(&now, shown, self.model.numbers);
        self.look(&self.model.allowed(), "killed, opened")
    }

    fn look(&mut self, allowed: &Allowed, when: &str) -> std::result::Result<(), String> {
        let cut = self.disk.power_cut();
        self.explorer.cut(&cut, allowed).map_err(|why| format!("{when}, then crashed: {why}"))
    }
}
