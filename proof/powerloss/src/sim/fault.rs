//! Histories in which something fails: by plan, by rate, or because the disk is full.
//!
//! *Owns*: distinguishing a poisoned log from one that continues, what each must still do,
//! reopening until it works. *May not touch*: what the operations mean (`history.rs`), how a crash
//! is checked (`explore.rs`).

use inkstone::{Error, Log, Lsn};
use inkstone_sim::{Effect, FaultRates, SimDisk};

use super::explore::{Explorer, open};
use crate::history::{Op, Plan, carry_out, plan};
use crate::model::{Allowed, Model, Shown};
use crate::verdict::{check, check_records};

/// How often an operation that a fault may hit is tried.
const TRIES: usize = 50;

/// What may go wrong in a history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// One fault: an operation that failed and left the log usable succeeds when it is retried.
    Once,
    /// Faults at any time.
    Often,
    /// The disk has little room, and nothing else fails.
    Full,
}

/// A log in use on a disk that fails.
pub struct FaultyRun {
    /// The disk that fails.
    pub disk: SimDisk,
    /// Checks the crash states.
    pub explorer: Explorer,
    /// What the log holds.
    pub model: Model,
    /// What may go wrong.
    pub trouble: Trouble,
    /// Errors that left the log usable.
    pub refused: u64,
    /// Errors that poisoned it.
    pub poisoned: u64,
    log: Option<Log>,
}

fn words(error: Option<&Error>) -> String {
    error.map_or_else(|| "a panic".into(), ToString::to_string)
}

impl FaultyRun {
    /// A new log.
    pub fn begin(disk: SimDisk, explorer: Explorer, trouble: Trouble) -> Result<Self, String> {
        disk.record_epochs();
        let (model, allowed) = (Model::new(), Model::new().allowed());
        let mut run = Self { disk, explorer, model, trouble, refused: 0, poisoned: 0, log: None };
        run.open_again(&allowed)?;
        Ok(run)
    }

    fn faults(&self) -> usize {
        self.disk.history().len()
    }

    fn log(&self) -> &Log {
        self.log.as_ref().expect("it is open between operations")
    }

    /// Repeats an operation until no fault hits it.
    fn steadily<T>(&self, mut attempt: impl FnMut() -> Result<T, String>) -> Result<T, String> {
        for _ in 0..TRIES {
            let before = self.faults();
            let result = attempt();
            if result.is_ok() || self.faults() == before {
                return result;
            }
        }
        Err("a call fails for ever".into())
    }

    /// Opens the log, until it succeeds, and takes over what it shows.
    fn open_again(&mut self, allowed: &Allowed) -> Result<(), String> {
        for attempt in 0..TRIES {
            if attempt > 5 {
                self.disk.change_options(|options| options.rates = FaultRates::default());
            }
            let before = self.faults();
            match open(&self.disk, &self.explorer.variant) {
                Ok(log) => {
                    let shown = self.steadily(|| check(&log, allowed))?;
                    self.log = Some(log);
                    self.model = Model::found(allowed, shown, self.model.numbers);
                    return self.look(&allowed.clone(), self.faults() > before);
                }
                Err(error) if error.corruption().is_some() || self.faults() == before => {
                    return Err(format!("the log does not open: {error}"));
                }
                Err(_) => self.explorer.cut(&self.disk.power_cut(), allowed)?,
            }
        }
        Err("the log does not open in many attempts".into())
    }

    /// Checks a crash now, and those within the last operation if something failed in it.
    fn look(&mut self, during: &Allowed, has_failed: bool) -> Result<(), String> {
        for cut in self.disk.take_epochs().into_iter().filter(|_| has_failed) {
            self.explorer.cut(&cut, during).map_err(|why| format!("crashed within: {why}"))?;
        }
        let allowed = self.model.allowed();
        self.explorer
            .cut(&self.disk.power_cut(), &allowed)
            .map_err(|why| format!("crashed after: {why}"))
    }

    fn step(&mut self, operation: &Op, is_second: bool) -> Result<(), String> {
        let plan = plan(operation, &self.model);
        let before = self.faults();
        match operation {
            Op::Reopen | Op::Drop | Op::Kill => self.end_and_open(operation, &plan),
            _ => match carry_out(self.log(), operation, &plan) {
                Ok(()) => {
                    self.model = plan.after.clone();
                    self.model.acked = self.log().durable().get();
                    self.check_living()?;
                    self.look(&plan.during, self.faults() > before)
                }
                Err(error) if is_second => Err(format!("the retry fails: {error}")),
                Err(error) if self.faults() == before && self.trouble != Trouble::Full => {
                    Err(format!("the log fails without a fault of the disk: {error}"))
                }
                Err(error) => self.failed(operation, &plan, &error),
            },
        }
    }

    fn end_and_open(&mut self, operation: &Op, plan: &Plan) -> Result<(), String> {
        let before = self.faults();
        let mut allowed = plan.during.clone();
        match (operation, self.log.take()) {
            (Op::Reopen, Some(log)) => {
                allowed = if log.close().is_ok() { plan.after.allowed() } else { allowed };
            }
            (Op::Kill, Some(log)) => log.abandon(),
            _ => {}
        }
        let has_failed = self.faults() > before;
        for cut in self.disk.take_epochs().into_iter().filter(|_| has_failed) {
            self.explorer
                .cut(&cut, &plan.during)
                .map_err(|why| format!("crashed while it ends: {why}"))?;
        }
        self.explorer
            .cut(&self.disk.power_cut(), &allowed)
            .map_err(|why| format!("crashed ended: {why}"))?;
        self.open_again(&allowed)
    }

    fn check_living(&self) -> Result<(), String> {
        let log = self.log();
        let shown = Shown { first: log.first().get(), last: log.durable().get() };
        if (log.first().get(), log.last().get()) != (self.model.first, self.model.last()) {
            return Err(format!("the log has {}..={}", log.first(), log.last()));
        }
        self.steadily(|| check_records(log, &self.model.allowed(), shown))
    }

    /// An operation returned an error: the log continues, or it is poisoned.
    fn failed(&mut self, operation: &Op, plan: &Plan, error: &Error) -> Result<(), String> {
        self.explorer.cut(&self.disk.power_cut(), &plan.during)?;
        match self.log().sync() {
            Ok(_) => {
                self.refused += 1;
                if matches!(error, Error::Poisoned(_)) {
                    return Err(format!("the log continues after {error}"));
                }
                let shown =
                    Shown { first: self.log().first().get(), last: self.log().last().get() };
                plan.during
                    .ends(shown.first, shown.last)
                    .map_err(|why| format!("after {error}: {why}"))?;
                self.model = Model::found(&plan.during, shown, plan.after.numbers);
                self.check_living().map_err(|why| format!("after {error}: {why}"))?;
                self.look(&plan.during, true)?;
                if self.trouble == Trouble::Once { self.step(operation, true) } else { Ok(()) }
            }
            Err(Error::Poisoned(poison)) => {
                self.poisoned += 1;
                self.model.numbers = plan.after.numbers;
                let allowed = self.check_poisoned(plan, &words(poison.cause()))?;
                // Half of them are killed; half are closed, which must not write.
                let log = self.log.take().expect("it is open");
                if self.poisoned.is_multiple_of(2) {
                    log.abandon()
                } else {
                    drop(log)
                }
                self.look_poisoned(&plan.during, &allowed)?;
                self.open_again(&allowed)
            }
            Err(other) => Err(format!("neither poisoned nor usable after {error}: {other}")),
        }
    }

    fn look_poisoned(&mut self, during: &Allowed, now: &Allowed) -> Result<(), String> {
        let words = |why| format!("poisoned, then crashed: {why}");
        for cut in self.disk.take_epochs() {
            self.explorer.cut(&cut, during).map_err(words)?;
        }
        self.explorer.cut(&self.disk.power_cut(), now).map_err(words)
    }

    /// Everything that would write is refused with the first cause; durable records can be read.
    /// Returns what the next opening may find.
    fn check_poisoned(&self, plan: &Plan, cause: &str) -> Result<Allowed, String> {
        let log = self.log();
        let answers = [
            log.append(b"no").map(drop),
            log.try_append(b"no").map(drop),
            log.append_batch(&[b"no", b"no"]).map(drop),
            log.append_durable(b"no").map(drop),
            log.sync().map(drop),
            log.truncate_before(Lsn::FIRST),
            log.truncate_after(log.first()),
        ];
        for (number, answer) in answers.into_iter().enumerate() {
            match answer {
                Err(Error::Poisoned(poison)) if words(poison.cause()) == cause => {}
                Err(other) => {
                    return Err(format!("poisoned by {cause}, call {number} returns {other}"));
                }
                Ok(()) => return Err(format!("poisoned by {cause}, call {number} succeeds")),
            }
        }
        let shown = Shown { first: log.first().get(), last: log.durable().get() };
        self.steadily(|| check_records(log, &plan.during, shown))
            .map_err(|why| format!("poisoned: {why}"))?;
        let at_least = plan.during.at_least.max(shown.last);
        Ok(Allowed { at_least, ..plan.during.clone() })
    }

    /// Runs a history to its end, where everything must work again.
    pub fn all(&mut self, operations: &[Op]) -> Result<(), String> {
        for (number, operation) in operations.iter().enumerate() {
            self.step(operation, false)
                .map_err(|why| format!("{number} {operation:?}: {why}\n{}", self.what_failed()))?;
        }
        self.disk.clear_faults();
        self.disk.change_options(|options| options.rates = FaultRates::default());
        if self.trouble == Trouble::Full {
            self.make_room()?;
        }
        self.end().map_err(|why| format!("at the end: {why}\n{}", self.what_failed()))
    }

    fn what_failed(&self) -> String {
        let history = self.disk.history();
        let told = history.iter().filter(|event| !matches!(event.effect, Effect::Short(_)));
        told.map(|event| format!("  {event}\n")).collect()
    }

    /// After everything is truncated there is room again, without reopening the log.
    fn make_room(&mut self) -> Result<(), String> {
        self.step(&Op::TruncateBefore(255), true)?;
        for _ in 0..3 {
            self.step(&Op::Append(super::variant::RECORD_BYTES_MAX), true)?;
            self.step(&Op::TruncateBefore(255), true)?;
        }
        Ok(())
    }

    fn end(&mut self) -> Result<(), String> {
        for operation in [Op::Append(100), Op::Kill, Op::Append(200), Op::Reopen] {
            self.step(&operation, true)?;
        }
        Ok(())
    }
}
