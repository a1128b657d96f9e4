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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::machine::FsKind;
    use crate::words::{GO, Way};

    #[test]
    fn it_says_each_step_and_stops_when_nobody_answers() {
        let directory =
            std::env::temp_dir().join(format!("inkstone-writer-{}", std::process::id()));
        let (kind, way, mistake) = (FsKind::Ext4, Way::BufferedFdatasync, None);
        let spec = Spec { kind, way, seed: 4, length: 20, mistake, subject: Subject::Log };
        let mut output = Vec::new();
        let answers = format!("{GO}\n").repeat(1000);
        write(&spec, &directory, answers.as_bytes(), &mut output).expect("it goes well");
        let said = String::from_utf8(output).expect("text");
        let lines: Vec<_> = said.lines().collect();
        assert_eq!(lines.len(), 2 + 40 + 1);
        let some = (lines[0], lines[1], lines[2], lines[42]);
        assert_eq!(some, ("opening", "opened", "start 0", "end"));
        assert!(lines[41].starts_with("done 19 "), "{}", lines[41]);
        std::fs::remove_dir_all(&directory).expect("removed");
        let why = write(&spec, &directory, &b"go\ngo\n"[..], &mut Vec::new())
            .expect_err("nobody answers");
        assert!(why.contains("recorder has ended"), "{why}");
        std::fs::remove_dir_all(&directory).expect("removed");
    }
}
