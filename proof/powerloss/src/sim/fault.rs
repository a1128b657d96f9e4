//! Histories in which something fails: by plan, by rate, or because the disk is full.
//!
//! *Owns*: distinguishing a poisoned log from one that continues, what each must still do,
//! reopening until it works. *May not touch*: what the operations mean (`history.rs`), how a crash
//! is checked (`explore.rs`).

use inkstone::{Error, Log, Lsn};
use inkstone_sim::{Effect, FaultRates, SimDisk};

use super::explore::{Explorer, open};
use super::run::Run;
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
    /// The log, its disk, which fails, and what checks the crash states.
    pub inner: Run,
    pub trouble: Trouble,
    /// Errors that left the log usable.
    pub refused: u64,
    /// Errors that poisoned it.
    pub poisoned: u64,
}

fn words(error: Option<&Error>) -> String {
    error.map_or_else(|| "a panic".into(), ToString::to_string)
}

impl FaultyRun {
    pub fn begin(disk: SimDisk, explorer: Explorer, trouble: Trouble) -> Result<Self, String> {
        let inner = Run::on(disk, explorer);
        let mut run = Self { inner, trouble, refused: 0, poisoned: 0 };
        run.open_again(&Model::new().allowed())?;
        Ok(run)
    }

    fn faults(&self) -> usize {
        self.inner.disk.history().len()
    }

    fn log(&self) -> &Log {
        self.inner.log()
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
                self.inner.disk.change_options(|options| options.rates = FaultRates::default());
            }
            let before = self.faults();
            match open(&self.inner.disk, &self.inner.explorer.variant) {
                Ok(log) => {
                    let shown = self.steadily(|| check(&log, allowed))?;
                    self.inner.log = Some(log);
                    self.inner.model = Model::found(allowed, shown, self.inner.model.numbers);
                    let within = self.faults() > before;
                    return self.inner.look(&allowed.clone(), within);
                }
                Err(error) if error.corruption().is_some() || self.faults() == before => {
                    return Err(format!("the log does not open: {error}"));
                }
                Err(_) => self.inner.explorer.cut(&self.inner.disk.power_cut(), allowed)?,
            }
        }
        Err("the log does not open in many attempts".into())
    }

    fn step(&mut self, operation: &Op, is_second: bool) -> Result<(), String> {
        let plan = plan(operation, &self.inner.model);
        let before = self.faults();
        match operation {
            Op::Reopen | Op::Drop | Op::Kill => self.end_and_open(operation, &plan),
            _ => match carry_out(self.log(), operation, &plan) {
                Ok(()) => {
                    self.inner.model = plan.after.clone();
                    self.inner.model.acked = self.log().durable().get();
                    self.check_living()?;
                    let within = self.faults() > before;
                    self.inner.look(&plan.during, within)
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
        match (operation, self.inner.log.take()) {
            (Op::Reopen, Some(log)) => {
                allowed = if log.close().is_ok() { plan.after.allowed() } else { allowed };
            }
            (Op::Kill, Some(log)) => log.abandon(),
            _ => {}
        }
        let has_failed = self.faults() > before;
        for cut in self.inner.disk.take_epochs().into_iter().filter(|_| has_failed) {
            self.inner
                .explorer
                .cut(&cut, &plan.during)
                .map_err(|why| format!("crashed while it ends: {why}"))?;
        }
        self.inner
            .explorer
            .cut(&self.inner.disk.power_cut(), &allowed)
            .map_err(|why| format!("crashed ended: {why}"))?;
        self.open_again(&allowed)
    }

    fn check_living(&self) -> Result<(), String> {
        self.steadily(|| self.inner.check_living(&self.inner.model))
    }

    /// An operation returned an error: the log continues, or it is poisoned.
    fn failed(&mut self, operation: &Op, plan: &Plan, error: &Error) -> Result<(), String> {
        self.inner.explorer.cut(&self.inner.disk.power_cut(), &plan.during)?;
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
                self.inner.model = Model::found(&plan.during, shown, plan.after.numbers);
                self.check_living().map_err(|why| format!("after {error}: {why}"))?;
                self.inner.look(&plan.during, true)?;
                if self.trouble == Trouble::Once { self.step(operation, true) } else { Ok(()) }
            }
            Err(Error::Poisoned(poison)) => {
                self.poisoned += 1;
                self.inner.model.numbers = plan.after.numbers;
                let allowed = self.check_poisoned(plan, &words(poison.cause()))?;
                // Half of them are killed; half are closed, which must not write.
                let log = self.inner.log.take().expect("it is open");
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
        for cut in self.inner.disk.take_epochs() {
            self.inner.explorer.cut(&cut, during).map_err(words)?;
        }
        self.inner.explorer.cut(&self.inner.disk.power_cut(), now).map_err(words)
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
        self.inner.disk.clear_faults();
        self.inner.disk.change_options(|options| options.rates = FaultRates::default());
        if self.trouble == Trouble::Full {
            self.make_room()?;
        }
        self.end().map_err(|why| format!("at the end: {why}\n{}", self.what_failed()))
    }

    fn what_failed(&self) -> String {
        let history = self.inner.disk.history();
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
