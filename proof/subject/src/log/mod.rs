//! The log as a subject.
//!
//! *Owns*: calling a log, and writing down what it answers and shows. *May not touch*: judging that
//! (`past.rs`).

use std::sync::Arc;

use inkstone::{Error, Log, Lsn, Options, Reader, Recovery, inspect};
use inkstone_io::AnyDirectory;

pub mod clauses;
mod cuts;
pub mod history;
#[cfg(test)]
mod liars;
pub mod options;
pub mod past;
pub mod record;
pub mod words;

use self::history::Op;
use self::options::SEGMENT_BYTES;
use self::past::{Callers, Past};
use self::record::Record;
use self::words::{Answer, By, Call, Ends, How, Shown, Told};
use crate::mistake::{Mistake, build_in};
use crate::{Broken, Directories, End, PATH, Subject, When};

/// Where a salvage puts what it finds.
const SAVED: &str = "/saved";

/// The options of an opening, from a seed.
pub type Redraw = Arc<dyn Fn(u64) -> Options + Send + Sync>;

/// A log, with the options of its next opening.
#[derive(Clone)]
pub struct LogSubject {
    pub options: Options,
    /// A mistake that the log makes, to see it caught.
    pub mistake: Option<Mistake>,
    /// Whether an opening is told which LSN its caller knows to be durable.
    pub expects: bool,
    /// How other options are drawn, where each opening has its own.
    pub redraw: Option<Redraw>,
}

fn answer(log: &Log, result: inkstone::Result<Option<(u64, u64)>>) -> Answer {
    let error = match result {
        Ok(lsns) => return Answer::Done(lsns),
        Err(error) if error.corruption().is_some() => return Answer::Corrupt(error.to_string()),
        Err(error) => error,
    };
    match log.sync() {
        Ok(_) if matches!(error, Error::Poisoned(_)) => {
            Answer::Neither(format!("the log continues after {error}"))
        }
        Ok(_) => Answer::Refused(error.to_string()),
        Err(Error::Poisoned(poison)) => Answer::Poisoned(cause(&poison)),
        Err(other) => {
            Answer::Neither(format!("neither poisoned nor usable after {error}: {other}"))
        }
    }
}

/// The first cause, in words.
pub fn cause(poison: &inkstone::Poison) -> String {
    poison.cause().map_or_else(|| "a panic".into(), ToString::to_string)
}

fn append(log: &Log, records: &[Record], how: How) -> inkstone::Result<(u64, u64)> {
    let [one, ..] = records else { return Ok((1, 0)) };
    let appended = match how {
        How::Batch => {
            let payloads: Vec<_> = records.iter().map(Record::payload).collect();
            log.append_batch(&payloads)?
        }
        How::Try => match log.try_append(one.payload()) {
            // The log's own thread may be at it just now: nothing was appended.
            Err(Error::Busy) if log.has_own_thread() => log.append(one.payload())?,
            appended => appended?,
        },
        How::Several => {
            let first = log.append(one.payload())?.lsn().get();
            for record in &records[1..] {
                drop(log.append(record.payload())?);
            }
            return Ok((first, log.sync()?.get()));
        }
        How::Wait | How::LetGo | How::Probe => log.append(one.payload())?,
    };
    let (first, last) = (appended.first_lsn().get(), appended.lsn());
    Ok((first, if how.waits() { appended.wait()? } else { last }.get()))
}

/// Of a poisoned log: what every change returns.
fn refusals(log: &Log) -> By {
    let answers = [
        ("append", log.append(b"no").map(drop)),
        ("try_append", log.try_append(b"no").map(drop)),
        ("append_batch", log.append_batch(&[b"no", b"no"]).map(drop)),
        ("append_durable", log.append_durable(b"no").map(drop)),
        ("truncate_before", log.truncate_before(Lsn::FIRST)),
        ("truncate_after", log.truncate_after(log.first())),
        ("sync", log.sync().map(drop)),
    ];
    let words = |answer| match answer {
        Ok(()) => "Ok".to_owned(),
        Err(Error::Poisoned(poison)) => cause(&poison),
        Err(other) => other.to_string(),
    };
    let answers: Vec<_> = answers.into_iter().map(|(call, answer)| (call, words(answer))).collect();
    let cause = answers.last().map(|(_, cause)| cause.clone()).unwrap_or_default();
    By::Poisoned { cause, answers }
}

/// The end of a segment in which a close leaves out its last promise: the block for marks of cuts,
/// and half of the 12 KiB for control groups, which openings and truncations need more.
const NO_PROMISE_BYTES: u64 = (4 << 10) + (12 << 10) / 2;
/// The room for the index before that block, in segments larger than the smallest.
const INDEX_BYTES: u64 = 4 << 10;

/// The last promise of a close is left out where its room is needed for something else.
pub fn is_clean(recovery: &Recovery) -> bool {
    let is_short = |byte: u64| {
        let index = if byte > SEGMENT_BYTES { INDEX_BYTES } else { 0 };
        byte % SEGMENT_BYTES > SEGMENT_BYTES - NO_PROMISE_BYTES - index
    };
    recovery.clean || recovery.end.is_some_and(|end| is_short(end.byte))
}

impl LogSubject {
    pub fn new(options: Options, mistake: Option<Mistake>) -> Self {
        Self { options, mistake, expects: false, redraw: None }
    }

    /// Opens what is in one directory.
    ///
    /// # Errors
    /// What the refusal shows.
    #[expect(clippy::result_large_err, reason = "as `Subject::open`, which shows a refusal, too")]
    pub fn open_in(&self, directory: AnyDirectory, known: Option<&Past>) -> Result<Log, Shown> {
        let mut options = build_in(self.options.clone(), self.mistake);
        if let Some(past) = known.filter(|_| self.expects) {
            options = options.expect_durable(Lsn::new(past.certain()));
        }
        Log::open_in(directory, options).map_err(|error| Shown::refused(&error))
    }
}

/// Whether what inspects the files of a log says the same: `verify`, `dump`, a salvage, a reader.
fn agree(
    directories: &Directories,
    options: &Options,
    report: &inspect::Report,
    told: &inspect::Salvage,
) -> Result<(), String> {
    let saved = (told.records, told.record_bytes);
    let savable = report.savable.map_or(saved, |savable| (savable.records, savable.record_bytes));
    if savable != saved {
        return Err(format!("verify said that {savable:?} can be saved, and {saved:?} are"));
    }
    let dumped = match inspect::dump_in(directories(PATH), 0) {
        // What is damaged is an entry, too.
        Ok(mut entries) => {
            entries.try_for_each(|entry| entry.map(drop).map_err(|why| why.to_string()))
        }
        Err(error) if report.is_intact() => Err(error.to_string()),
        Err(_) => Ok(()),
    };
    dumped.map_err(|why| format!("it cannot be dumped: {why}"))?;
    if report.is_intact() {
        let opened = Reader::open_in(directories(PATH), options.clone());
        opened.map_err(|error| format!("it is intact, and does not open: {error}"))?;
        if !told.gaps.is_empty() || told.unknown_behind.is_some() {
            return Err(format!("it is intact, and {:?} are lost", told.gaps));
        }
    }
    Ok(())
}

/// Salvages the log, and reads what was saved.
fn save(directories: &Directories, options: &Options, shown: &mut Shown) -> Result<(), Error> {
    let report = inspect::verify_in(directories(PATH))?;
    let told = inspect::salvage_in(directories(PATH), || Ok(directories(SAVED)), options)?;
    let reader = Reader::open_in(directories(SAVED), options.clone())?;
    let lost: Vec<_> = told.gaps.iter().map(|gap| (gap.first.get(), gap.last.get())).collect();
    *shown = Shown::new(By::Saved { lost }, reader.first().get(), reader.durable().get());
    shown.read(&reader);
    shown.read_again(&reader);
    // By this the doors tell a log with a gap.
    let lost_to = reader.recovery().and_then(|found| found.lost_to).map(Lsn::get);
    let is_told = lost_to == shown.gaps.last().map(|gap| gap.1);
    let wrong = agree(directories, options, &report, &told).err();
    let wrong = wrong.or_else(|| (!is_told).then(|| format!("the log is lost to {lost_to:?}")));
    shown.failed = shown.failed.take().or(wrong);
    Ok(())
}

impl Subject for LogSubject {
    type Op = Op;
    type Live = Log;
    type Past = Past;

    fn plan(&self, past: &Past, op: &Op) -> Call {
        op.plan(past)
    }

    fn probe(&self) -> Op {
        Op::Probe
    }

    fn ending(&self, end: End) -> Option<Call> {
        (end == End::Close).then_some(Call::Close)
    }

    fn open(&self, directories: &Directories, known: Option<&Past>) -> Result<Log, Shown> {
        self.open_in(directories(PATH), known)
    }

    fn apply(&self, log: &Log, call: &Call) -> Told {
        let lsn = |lsn: Lsn| Some((lsn.get(), lsn.get()));
        let result = match call {
            Call::Append { records, how } => append(log, records, *how).map(Some),
            Call::Sync => log.sync().map(lsn),
            Call::Prepare => log.prepare_some().and_then(|_| log.sync()).map(lsn),
            Call::TruncateBefore(first) => log.truncate_before(Lsn::new(*first)).map(|()| None),
            Call::TruncateAfter(last) => log.truncate_after(Lsn::new(*last)).map(|()| None),
            Call::Close => Ok(None),
        };
        let back = match (call, &result) {
            (Call::Append { how: How::Probe, .. }, Ok(Some((lsn, _)))) => {
                Some(log.reader().get(Lsn::new(*lsn)).map_err(|error| error.to_string()))
            }
            _ => None,
        };
        Told { answer: answer(log, result), ends: Some(Ends::of(log)), back }
    }

    fn end(&self, log: Log, end: End) -> Told {
        let answer = match end {
            End::Close => match log.close() {
                Ok(()) => Answer::Done(None),
                Err(error) => Answer::Poisoned(format!("the log does not close: {error}")),
            },
            End::Drop => {
                drop(log);
                Answer::Done(None)
            }
            End::Kill => {
                log.abandon();
                Answer::Done(None)
            }
        };
        Told { answer, ends: None, back: None }
    }

    fn read(&self, log: &Log, when: When) -> Shown {
        let by = match when {
            When::Opened => By::Opening { is_clean: is_clean(log.recovery()) },
            When::InUse => By::InUse,
            When::Poisoned => refusals(log),
        };
        let ends = Ends::of(log);
        let last = if when == When::Opened { ends.last } else { ends.durable };
        let mut shown = Shown::new(by, ends.first, last);
        shown.durable = ends.durable;
        shown.end = log.recovery().end;
        let reader = log.reader();
        shown.read(&reader);
        shown.read_again(&reader);
        shown
    }

    fn save(&self, directories: &Directories) -> Option<Shown> {
        let mut shown = Shown::new(By::Saved { lost: Vec::new() }, 1, 0);
        let options = build_in(self.options.clone(), self.mistake);
        if let Err(error) = save(directories, &options, &mut shown) {
            shown.is_open = false;
            shown.fail(format!("it cannot be saved: {error}"), &error);
        }
        Some(shown)
    }

    fn redraw(&mut self, seed: u64) {
        if let Some(redraw) = &self.redraw {
            self.options = redraw(seed);
        }
    }
}

/// A log that one thread uses.
pub fn new_past() -> Past {
    Past::new(Callers::One)
}

/// One more record is appended, and read.
///
/// # Errors
/// The promise that is broken.
pub fn probe(subject: &LogSubject, log: &Log, past: &mut Past) -> Result<(), Broken> {
    use super::Past as _;
    let call = subject.plan(past, &subject.probe());
    past.began(super::SOLE, &call);
    past.ended(super::SOLE, &subject.apply(log, &call), false)
}

/// A log is opened and read, and what it shows is judged.
///
/// # Errors
/// The promise that is broken.
pub fn open_and_check(
    subject: &LogSubject,
    directory: AnyDirectory,
    past: &mut Past,
) -> Result<Log, Broken> {
    use super::Past as _;
    let log = match subject.open_in(directory, None) {
        Ok(log) => log,
        Err(shown) => {
            past.check(&shown)?;
            return Err(Broken::new(clauses::OPENS, "a lie was noticed"));
        }
    };
    past.check(&subject.read(&log, When::Opened))?;
    Ok(log)
}
