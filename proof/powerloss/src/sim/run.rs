//! A history on a simulated disk, with a crash at every instant of it.
//!
//! *Owns*: carrying out a history, and where its crashes are. *May not touch*: what the operations
//! mean (`history.rs`), how a crash is checked (`explore.rs`).

use std::sync::atomic::Ordering;

use inkstone::Log;
use inkstone_sim::SimDisk;

use super::explore::{Explorer, open};
use super::variant::SEGMENT_BYTES;
use crate::history::{Op, carry_out, plan};
use crate::model::{Allowed, Model, Shown};
use crate::verdict::{check, check_records};

/// A log in use.
pub struct Run {
    pub disk: SimDisk,
    pub explorer: Explorer,
    pub model: Model,
    /// Segments that used the blocks of an old one.
    pub recycled: u64,
    pub(super) log: Option<Log>,
    steps: u64,
}

impl Run {
    /// A new log; a crash while it is created leaves none, or an empty one.
    pub fn begin(explorer: Explorer) -> Result<Self, String> {
        let disk = SimDisk::new(explorer.seed, explorer.variant.disk);
        let mut run = Self::on(disk, explorer);
        run.create()?;
        Ok(run)
    }

    /// A disk on which a log will be created.
    pub fn on(disk: SimDisk, explorer: Explorer) -> Self {
        disk.record_epochs();
        Self { disk, explorer, model: Model::new(), recycled: 0, log: None, steps: 0 }
    }

    /// Creates the log, and checks every crash while it is created.
    pub fn create(&mut self) -> Result<(), String> {
        self.open(&Model::new().allowed())?;
        self.look(&Model::new().allowed(), true)
    }

    fn open(&mut self, allowed: &Allowed) -> Result<Shown, String> {
        let log = open(&self.disk, &self.explorer.variant)
            .map_err(|error| format!("the log does not open: {error}"))?;
        let shown = check(&log, allowed)?;
        self.log = Some(log);
        Ok(shown)
    }

    pub(super) fn log(&self) -> &Log {
        self.log.as_ref().expect("it is open between operations")
    }

    /// Checks one crash now, and, if it looks within, every crash since the last check.
    pub(super) fn look(&mut self, during: &Allowed, within: bool) -> Result<(), String> {
        for cut in self.disk.take_epochs().into_iter().filter(|_| within) {
            self.explorer.cut(&cut, during).map_err(|why| format!("crashed within: {why}"))?;
        }
        let allowed = self.model.allowed();
        self.explorer
            .cut(&self.disk.power_cut(), &allowed)
            .map_err(|why| format!("crashed after: {why}"))
    }

    /// Runs one operation and checks every crash within and after it.
    fn step(&mut self, operation: &Op) -> Result<(), String> {
        let plan = plan(operation, &self.model);
        self.steps += 1;
        if matches!(operation, Op::Reopen | Op::Drop | Op::Kill)
            && self.explorer.redraws
            && self.explorer.seed.is_multiple_of(3)
        {
            self.explorer.variant.redraw_options(self.explorer.seed ^ self.steps);
        }
        let before = self.log().stats().segments_recycled;
        // An opening counts records from zero again.
        let is_opening = matches!(operation, Op::Reopen | Op::Drop | Op::Kill | Op::PowerCut(_));
        match (operation, self.log.take()) {
            (Op::Reopen, Some(log)) => {
                log.close().map_err(|error| format!("the log does not close: {error}"))?;
                self.open(&plan.after.allowed())?;
                self.model = plan.after;
                self.check_clean()?;
            }
            (Op::Drop | Op::Kill, Some(log)) => {
                if matches!(operation, Op::Kill) {
                    log.abandon()
                } else {
                    drop(log)
                }
                let shown = self.open(&plan.during)?;
                self.model.settle(shown);
            }
            (Op::PowerCut(within), Some(log)) => {
                carry_out(&log, within, &plan)
                    .map_err(|error| format!("the call fails: {error}"))?;
                log.abandon();
                self.go_on_with_what_was_found(&plan.during, plan.after.numbers)?;
            }
            (_, log) => {
                self.log = log;
                carry_out(self.log(), operation, &plan)
                    .map_err(|error| format!("the call fails: {error}"))?;
                self.model = plan.after.clone();
                self.check_living(&plan.after)?;
                self.model.acked = self.log().durable().get();
            }
        }
        let after = self.log().stats().segments_recycled;
        self.recycled += after - if is_opening { 0 } else { before };
        self.look(&plan.during, true)
    }

    /// The power was cut at some instant of the last operation; the rest of the history runs on the
    /// disk that was found.
    fn go_on_with_what_was_found(&mut self, during: &Allowed, numbers: u32) -> Result<(), String> {
        let mut rng = fastrand::Rng::with_seed(self.explorer.seed ^ (self.steps << 32));
        let cuts: Vec<_> =
            self.disk.take_epochs().into_iter().chain([self.disk.power_cut()]).collect();
        self.disk = cuts[rng.usize(..cuts.len())].sample(rng.u64(..));
        self.disk.record_epochs();
        let shown = self.open(during).map_err(|why| format!("after the power cut: {why}"))?;
        self.model = Model::found(during, shown, numbers);
        Ok(())
    }

    /// The last promise is left out only where its room is needed for something else.
    fn check_clean(&self) -> Result<(), String> {
        let recovery = self.log().recovery();
        let is_short = |byte: u64| byte % SEGMENT_BYTES > SEGMENT_BYTES - (8 << 10);
        if recovery.clean || recovery.end.is_some_and(|end| is_short(end.byte)) {
            return Ok(());
        }
        Err(format!("closed cleanly, but {recovery}"))
    }

    /// Checks what the open log shows now.
    pub(super) fn check_living(&self, after: &Model) -> Result<(), String> {
        let log = self.log();
        let shown = Shown { first: log.first().get(), last: log.durable().get() };
        if (log.first().get(), log.last().get()) != (after.first, after.last()) {
            return Err(format!("the log has {}..={}", log.first(), log.last()));
        }
        check_records(log, &after.allowed(), shown)
    }

    pub fn steps(&mut self, operations: &[Op]) -> Result<(), String> {
        for (number, operation) in operations.iter().enumerate() {
            if self.explorer.stop.load(Ordering::Relaxed) {
                break;
            }
            self.step(operation).map_err(|why| format!("{number} {operation:?}: {why}"))?;
        }
        Ok(())
    }
}
