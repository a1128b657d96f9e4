//! The process that writes: a history on the mounted file system, in step with the recorder.
//!
//! *Owns*: the operations, and the lines before and after each. *May not touch*: disks, recordings.

use std::fmt;
use std::io::{BufRead, Write};
use std::path::Path;

use inkstone::Log;
use inkstone_io::OsDirectory;

use super::raft;
use super::spec::{Spec, Subject};
use crate::history::{Op, carry_out, plan};
use crate::mistake::open_in;
use crate::model::{Allowed, Model, Shown};
use crate::verdict::check;
use crate::words::{DONE, InStep, OPENED, OPENING, START};

/// Does what `spec` says in `directory`.
pub(crate) fn write(
    spec: &Spec,
    directory: &Path,
    input: impl BufRead,
    output: &mut (dyn Write + Send),
) -> Result<(), String> {
    let mut recorder = InStep::new(input, output);
    let done = match spec.subject {
        Subject::Log => log(spec, directory, &mut recorder),
        Subject::Raft => raft::write(spec, directory, &mut recorder),
    };
    recorder.end(done)
}

fn open(spec: &Spec, directory: &Path) -> Result<Log, String> {
    let directory = OsDirectory::create(directory).map_err(|error| error.to_string())?;
    open_in(directory, spec.options(spec.has_threads()), spec.mistake)
        .map_err(|error| format!("the log does not open: {error}"))
}

fn log(
    spec: &Spec,
    directory: &Path,
    recorder: &mut InStep<'_, impl BufRead>,
) -> Result<(), String> {
    recorder.say(OPENING)?;
    let mut log = open(spec, directory)?;
    let mut model = Model::new();
    model.settle(check(&log, &model.allowed())?);
    recorder.say(OPENED)?;
    for (number, operation) in spec.operations().iter().enumerate() {
        recorder.say(&format!("{START} {number}"))?;
        let plan = plan(operation, &model);
        let done = match operation {
            Op::Reopen | Op::Drop | Op::Kill => {
                again(log, operation, &plan.during, || open(spec, directory))
            }
            _ => carry_out(&log, operation, &plan)
                .or_else(|error| match operation {
                    // With a background thread a buffer may be in use just now: nothing was
                    // appended.
                    Op::Try(bytes) if error.is_retryable() => {
                        carry_out(&log, &Op::Append(*bytes), &plan)
                    }
                    _ => Err(error),
                })
                .map(|()| log)
                .map_err(|error| format!("the call fails: {error}")),
        };
        log = done.map_err(|why| format!("operation {number}, {operation:?}: {why}"))?;
        let facts = Facts::of(&log);
        model = facts.settle(operation, plan.after);
        recorder.say(&format!("{DONE} {number} {facts}"))?;
    }
    Ok(())
}

fn again(
    log: Log,
    operation: &Op,
    during: &Allowed,
    open: impl FnOnce() -> Result<Log, String>,
) -> Result<Log, String> {
    match operation {
        Op::Reopen => {
            log.close().map_err(|error| format!("the log does not close: {error}"))?;
            drop(log);
        }
        Op::Kill => log.abandon(),
        _ => drop(log),
    }
    let log = open()?;
    check(&log, during)?;
    Ok(log)
}

/// What a log reported when an operation was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) shown: Shown,
    pub(crate) durable: u64,
}

impl fmt::Display for Facts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.shown.first, self.shown.last, self.durable)
    }
}

impl Facts {
    fn of(log: &Log) -> Self {
        // Read `durable` first: what becomes durable in between does not count as acknowledged.
        let durable = log.durable().get();
        Self { shown: Shown { first: log.first().get(), last: log.last().get() }, durable }
    }

    /// From the words of a line behind its number.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split(' ').skip(1).map(|number| number.parse().ok());
        let mut next = || numbers.next().flatten();
        Some(Self { shown: Shown { first: next()?, last: next()? }, durable: next()? })
    }

    /// The model when an operation with this outcome is done.
    pub(crate) fn settle(self, operation: &Op, mut after: Model) -> Model {
        match operation {
            Op::Reopen | Op::Drop | Op::Kill => after.settle(self.shown),
            _ => after.acked = after.acked.max(self.durable),
        }
        after
    }
}
