//! The process that writes: a history on the mounted file system, in step with the recorder.
//!
//! *Owns*: the operations, and the lines before and after each. *May not touch*: disks, recordings.
//!
//! It is a process of its own, so that the process that serves the disk never waits for it. Before
//! and after each operation it prints a line and waits for an answer: by then the recorder has put
//! a mark into the recording.

use std::io::{BufRead, Write};
use std::path::Path;

use inkstone::Log;

use super::raft;
use super::spec::{Spec, Subject};
use crate::history::{Op, carry_out, plan};
use crate::model::{Model, Shown};

/// The writer's lines, which are also the marks in the recording.
pub mod words {
    /// The log is being opened for the first time.
    pub const OPENING: &str = "opening";
    /// It is open.
    pub const OPENED: &str = "opened";
    /// `start 7`: operation 7 begins.
    pub const START: &str = "start";
    /// `done 7 1 12 12`: it is done; then the log's first, last and durable LSN. Of a raft log: see
    /// `raft.rs`.
    pub const DONE: &str = "done";
    /// The history is over.
    pub const END: &str = "end";
    /// The writer failed: the rest of the line says why.
    pub const FAILED: &str = "failed";
    /// The recorder's answer to each line.
    pub const GO: &str = "go";
}

/// A writer, and its line to the recorder.
pub(crate) struct Writer<'a, R, W> {
    input: R,
    output: W,
    pub(crate) spec: &'a Spec,
    pub(crate) directory: &'a Path,
}

/// Does what `spec` says in `directory`.
///
/// # Errors
/// What failed: `output` has got it too. Also that the recorder has ended.
pub fn write(
    spec: &Spec,
    directory: &Path,
    input: impl BufRead,
    output: impl Write,
) -> Result<(), String> {
    let mut writer = Writer { input, output, spec, directory };
    let result = match spec.subject {
        Subject::Log => writer.all(),
        Subject::Raft => raft::write(&mut writer),
    };
    if let Err(why) = &result {
        // The recorder may have ended already.
        let _ = writer.say(&format!("{} {}", words::FAILED, why.replace('\n', " ")));
    }
    result
}

impl<R: BufRead, W: Write> Writer<'_, R, W> {
    pub(crate) fn say(&mut self, line: &str) -> Result<(), String> {
        let said = writeln!(self.output, "{line}").and_then(|()| self.output.flush());
        said.map_err(|error| format!("the recorder has ended: {error}"))?;
        let mut answer = String::new();
        match self.input.read_line(&mut answer) {
            Ok(_) if answer.trim_end() == words::GO => Ok(()),
            Ok(_) => Err(format!("the recorder has ended: {answer:?} after {line:?}")),
            Err(error) => Err(format!("the recorder has ended: {error}")),
        }
    }

    fn open(&self) -> Result<Log, String> {
        Log::open(self.directory, self.spec.options(self.spec.has_threads()))
            .map_err(|error| format!("the log does not open: {error}"))
    }

    fn all(&mut self) -> Result<(), String> {
        self.say(words::OPENING)?;
        let mut log = self.open()?;
        let mut model = Model::new();
        let shown = model.allowed().check(&log)?;
        model.settle(shown);
        self.say(words::OPENED)?;
        for (number, operation) in self.spec.operations().iter().enumerate() {
            self.say(&format!("{} {number}", words::START))?;
            let plan = plan(operation, &model);
            let done = match operation {
                Op::Reopen | Op::Drop | Op::Kill => self.again(log, operation, &plan.during),
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
            self.say(&format!("{} {number} {facts}", words::DONE))?;
        }
        self.say(words::END)
    }

    fn again(
        &self,
        log: Log,
        operation: &Op,
        during: &crate::model::Allowed,
    ) -> Result<Log, String> {
        match operation {
            Op::Reopen => {
                log.close().map_err(|error| format!("the log does not close: {error}"))?;
                drop(log);
            }
            Op::Kill => log.abandon(),
            _ => drop(log),
        }
        let log = self.open()?;
        during.check(&log)?;
        Ok(log)
    }
}

/// What a log reported when an operation was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facts {
    /// Its first and last LSN.
    pub shown: Shown,
    /// What is durable.
    pub durable: u64,
}

impl std::fmt::Display for Facts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} {}", self.shown.first, self.shown.last, self.durable)
    }
}

impl Facts {
    fn of(log: &Log) -> Self {
        // Read `durable` first: what becomes durable in between does not count as acknowledged.
        let durable = log.durable().get();
        Self { shown: Shown { first: log.first().get(), last: log.last().get() }, durable }
    }

    /// The model when an operation with this outcome is done.
    pub fn settle(self, operation: &Op, mut after: Model) -> Model {
        match operation {
            Op::Reopen | Op::Drop | Op::Kill => after.settle(self.shown),
            _ => after.acked = after.acked.max(self.durable),
        }
        after
    }
}

#[cfg(test)]
mod tests {
    use super::super::machine::FsKind;
    use super::super::spec::Way;
    use super::*;

    #[test]
    fn it_says_each_step_and_stops_when_nobody_answers() {
        let directory =
            std::env::temp_dir().join(format!("inkstone-writer-{}", std::process::id()));
        let spec = Spec {
            kind: FsKind::Ext4,
            way: Way::BufferedFdatasync,
            seed: 4,
            length: 20,
            mistake: None,
            subject: Subject::Log,
        };
        let mut output = Vec::new();
        let answers = format!("{}\n", words::GO).repeat(1000);
        write(&spec, &directory, answers.as_bytes(), &mut output).expect("it goes well");
        let said = String::from_utf8(output).expect("text");
        let lines: Vec<_> = said.lines().collect();
        assert_eq!(lines.len(), 2 + 40 + 1);
        assert_eq!(
            (lines[0], lines[1], lines[2], lines[42]),
            ("opening", "opened", "start 0", "end")
        );
        assert!(lines[41].starts_with("done 19 "), "{}", lines[41]);
        std::fs::remove_dir_all(&directory).expect("removed");
        let why =
            write(&spec, &directory, &b"go\ngo\n"[..], Vec::new()).expect_err("nobody answers");
        assert!(why.contains("recorder has ended"), "{why}");
        std::fs::remove_dir_all(&directory).expect("removed");
    }
}
