//! The process that writes: a history on the mounted file system, in step with the recorder.
//!
//! *Owns*: the operations, and the lines before and after each. *May not touch*: disks, recordings.

use std::fmt;
use std::io::{BufRead, Write};
use std::path::Path;

use inkstone_io::{AnyDirectory, OsDirectory};

use super::raft;
use super::spec::{Kind, Spec};
use crate::words::{DONE, InStep, OPENED, OPENING, START};
use inkstone_subject::log::history::Step;
use inkstone_subject::log::words::{Answer, Ends, Told};
use inkstone_subject::log::{LogSubject, new_past, open_and_check};
use inkstone_subject::{Broken, Past as _, SOLE, Subject};

/// Does what `spec` says in `directory`.
pub(crate) fn write(
    spec: &Spec,
    directory: &Path,
    input: impl BufRead,
    output: &mut (dyn Write + Send),
) -> Result<(), String> {
    let mut recorder = InStep::new(input, output);
    let done = match spec.subject {
        Kind::Log => log(spec, directory, &mut recorder),
        Kind::Raft => raft::write(spec, directory, &mut recorder),
    };
    recorder.end(done)
}

fn log(
    spec: &Spec,
    directory: &Path,
    recorder: &mut InStep<'_, impl BufRead>,
) -> Result<(), String> {
    let subject = LogSubject::new(spec.options(spec.has_threads()), spec.mistake);
    let mut past = new_past();
    let open = |past: &mut _| {
        let directory = OsDirectory::create(directory)
            .map_err(|error| Broken::new("opens", error.to_string()))?;
        open_and_check(&subject, AnyDirectory::new(directory), past)
    };
    recorder.say(OPENING)?;
    let mut log = Some(open(&mut past)?);
    recorder.say(OPENED)?;
    for (number, step) in spec.steps().iter().enumerate() {
        recorder.say(&format!("{START} {number}"))?;
        let broken = |broken: Broken| broken.at(format_args!("operation {number}, {step:?}"));
        let (call, told) = match (step, &log) {
            (Step::Do(op), Some(log)) => {
                let call = subject.plan(&past, op);
                past.began(SOLE, &call);
                let told = subject.apply(log, &call);
                (Some(call), told)
            }
            (Step::End(end), Some(_)) => {
                let call = subject.ending(*end);
                call.iter().for_each(|call| past.began(SOLE, call));
                let Some(ended) = log.take() else { continue };
                (call, subject.end(ended, *end))
            }
            _ => continue,
        };
        if call.is_some() {
            past.ended(SOLE, &told, false).map_err(broken)?;
        }
        let now = match &log {
            Some(_) => told,
            None => {
                let opened = open(&mut past).map_err(broken)?;
                let ends = Some(Ends::of(&opened));
                log = Some(opened);
                Told { ends, ..told }
            }
        };
        recorder.say(&format!("{DONE} {number} {}", Facts::of(&now)?))?;
    }
    Ok(())
}

/// What a log answered, and what it says of itself, in one line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) ends: Ends,
    /// The first and the last LSN of the call, if it has one.
    lsns: Option<(u64, u64)>,
}

impl fmt::Display for Facts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Ends { first, last, durable } = self.ends;
        write!(f, "{first} {last} {durable}")?;
        self.lsns.map_or(Ok(()), |(first, last)| write!(f, " {first} {last}"))
    }
}

impl Facts {
    fn of(told: &Told) -> Result<Self, String> {
        match (&told.answer, told.ends) {
            (Answer::Done(lsns), Some(ends)) => Ok(Self { ends, lsns: *lsns }),
            (other, _) => Err(other.to_string()),
        }
    }

    /// From the words of a line behind its number.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let numbers = text.split(' ').skip(1).map(str::parse);
        let numbers: Vec<u64> = numbers.collect::<Result<_, _>>().ok()?;
        let (ends, lsns) = numbers.split_first_chunk()?;
        let [first, last, durable] = *ends;
        let lsns = match *lsns {
            [] => None,
            [first, last] => Some((first, last)),
            _ => return None,
        };
        Some(Self { ends: Ends { first, last, durable }, lsns })
    }

    pub(crate) fn told(self) -> Told {
        Told { answer: Answer::Done(self.lsns), ends: Some(self.ends), back: None }
    }
}
