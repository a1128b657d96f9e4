//! The process that uses the log: threads that call it until they are refused, stopped or killed,
//! and what each call returned.
//!
//! *Owns*: using the log, and saying so. *May not touch*: disks; whether the results are right.
//!
//! It says a line before each call and one after it, in the order in which they happened. Where it
//! goes in step with a recorder, the answer to a line is a word: `go`, `stop`, and `fill` and `free`
//! (the file system). From `fill` until the first refusal nothing is truncated: a log that recycles
//! what it truncates needs no room and would never meet the full file system.

use std::fs::File;
use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use inkstone::{Error, Log};
use inkstone_io::{AnyDirectory, OsDirectory};
use inkstone_subject::log::LogSubject;
use inkstone_subject::log::clauses::{OPENS, READABLE};
use inkstone_subject::log::history::{Op, Step, history};
use inkstone_subject::log::past::Past;
use inkstone_subject::log::words::{Call, Ends, Shown, Told};
use inkstone_subject::{Broken, End, Outcome, Past as _, Subject as _, Told as _, When, Who};

use super::lines::{Line, Wrong, acknowledges, wrong};
use super::usage::Usage;
use crate::words::{GO, Teller};

/// Calls of a life that follows the first.
const CALLS_AGAIN: usize = 8;
/// Calls that a thread makes after the log was poisoned: each must be refused likewise.
const CALLS_AFTER: u32 = 3;
/// How often a refused call is followed by another.
const TRIES: u32 = 2000;
/// Steps of one history, after which a thread begins another.
const LENGTH: usize = 24;

/// What was said, and what follows from it: positions of truncations are drawn among the records.
struct Said<'o, R> {
    past: Past,
    teller: Teller<'o, R>,
}

struct Worker<'o, R> {
    directory: PathBuf,
    usage: Usage,
    subject: LogSubject,
    said: Mutex<Said<'o, R>>,
    is_stopped: AtomicBool,
    only_grows: AtomicBool,
}

/// Uses a log in `directory` until it is killed, or to the end of its history.
pub(crate) fn work(
    directory: &Path,
    usage: &Usage,
    input: impl BufRead + Send,
    output: &mut (dyn Write + Send),
) -> Result<(), String> {
    let past = Past::new(usage.callers());
    let teller = Teller::new(input, output, usage.kind.is_some());
    let worker = Worker {
        directory: directory.to_path_buf(),
        usage: *usage,
        subject: usage.subject(),
        said: Mutex::new(Said { past, teller }),
        is_stopped: AtomicBool::new(false),
        only_grows: AtomicBool::new(false),
    };
    let done = worker.lives();
    worker.said().teller.end(done)
}

fn fill(path: &Path) {
    let Ok(mut file) = File::create(path) else { return };
    let mut piece = 1 << 20;
    while piece >= 512 {
        match file.write(&vec![1; piece]).and_then(|written| file.sync_data().map(|()| written)) {
            Ok(written) if written > 0 => {}
            _ => piece /= 2,
        }
    }
}

impl<'o, R: BufRead + Send> Worker<'o, R> {
    fn said(&self) -> MutexGuard<'_, Said<'o, R>> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn say(&self, said: &mut Said<'o, R>, line: &Line) -> Result<(), String> {
        let ballast = self.directory.with_file_name("ballast");
        let answer = said.teller.ask(&line.to_text())?;
        match answer.as_str() {
            GO => {}
            "stop" => self.is_stopped.store(true, Ordering::Relaxed),
            "fill" => {
                self.only_grows.store(true, Ordering::Relaxed);
                fill(&ballast);
            }
            "free" => drop(std::fs::remove_file(&ballast)),
            other => return Err(format!("{other:?} is no word for it")),
        }
        Ok(())
    }

    fn lives(&self) -> Result<(), String> {
        for life in self.usage.life.. {
            let who = life << 8;
            if let Some(log) = self.open()? {
                match self.usage.length {
                    Some(length) => return self.history(log, who, length),
                    None => self.life(log, who)?,
                }
            }
            self.say(&mut self.said(), &Line::Rests)?;
            if self.usage.kind.is_none() {
                break;
            }
        }
        Ok(())
    }

    /// What is wrong with what the log shows. Of records of earlier processes nothing is known
    /// here.
    fn wrong(&self, shown: &Shown) -> Wrong {
        match (&shown.failed, self.usage.from) {
            (Some(why), 1..) => Some((READABLE.to_owned(), why.clone())),
            (None, 1..) => None,
            (_, 0) => wrong(self.said().past.check(shown)),
        }
    }

    fn open(&self) -> Result<Option<Log>, String> {
        self.said().past.opening();
        self.say(&mut self.said(), &Line::Opening)?;
        let opened = OsDirectory::create(&self.directory)
            .map_err(|error| wrong(Err(Broken::new(OPENS, error.to_string()))))
            .and_then(|directory| {
                let opened = self.subject.open_in(AnyDirectory::new(directory), None);
                opened.map_err(|shown| wrong(self.said().past.clone().check(&shown)))
            });
        match opened {
            Ok(log) => {
                let ends = Ends::of(&log);
                if self.usage.from > 0 {
                    self.said().past.continues(ends.first, ends.last, self.usage.from);
                }
                let wrong = self.wrong(&self.subject.read(&log, When::Opened));
                if wrong.is_some() {
                    // Whoever hears it knows whether that is excused.
                    let _ = self.said().past.opened(ends.first, ends.last);
                }
                self.say(&mut self.said(), &Line::Opened(ends, wrong))?;
                Ok(Some(log))
            }
            Err(why) => {
                self.say(&mut self.said(), &Line::NotOpened(why))?;
                Ok(None)
            }
        }
    }

    fn began(&self, who: Who, plan: impl FnOnce(&Past) -> Call) -> Result<Call, String> {
        let said = &mut *self.said();
        let call = plan(&said.past);
        said.past.began(who, &call);
        self.say(said, &Line::Began(who, call.clone()))?;
        Ok(call)
    }

    fn ended(&self, who: Who, told: Told) -> Result<(), String> {
        let said = &mut *self.said();
        // Whoever hears it judges.
        let _ = said.past.ended(who, &told, true);
        self.say(said, &Line::Ended(who, told))
    }

    /// Makes a call, with a line before it and one after it.
    fn call(&self, log: &Log, who: Who, op: &Op) -> Result<(Call, Outcome), String> {
        let call = self.began(who, |past| self.subject.plan(past, op))?;
        let told = self.subject.apply(log, &call);
        let outcome = told.outcome();
        self.ended(who, told)?;
        Ok((call, outcome))
    }

    fn end(&self, log: Log, who: Who, end: End) -> Result<(), String> {
        let Some(call) = self.subject.ending(end) else {
            self.subject.end(log, end);
            return Ok(());
        };
        self.began(who, |_| call)?;
        self.ended(who, self.subject.end(log, end))
    }

    /// One thread, one history.
    fn history(&self, log: Log, who: Who, length: usize) -> Result<(), String> {
        let mut log = Some(log);
        for step in history(self.usage.seed, length) {
            match (step, log.take()) {
                (Step::Do(op), Some(open)) => {
                    self.call(&open, who, &op)?;
                    log = Some(open);
                }
                (Step::End(end), Some(open)) => {
                    self.end(open, who, end)?;
                    log = self.open()?;
                }
                _ => return Ok(()),
            }
        }
        Ok(())
    }

    /// Several threads, until they are stopped; or, where that was before, one for a while.
    fn life(&self, log: Log, who: Who) -> Result<(), String> {
        if who >> 8 == self.usage.life {
            self.threads(&log, who)?;
        } else {
            let mut ops = self.ops(who, true).take(CALLS_AGAIN);
            ops.try_for_each(|op| self.call(&log, who, &op).map(drop))?;
        }
        let is_poisoned = matches!(log.sync(), Err(Error::Poisoned(_)));
        let when = if is_poisoned { When::Poisoned } else { When::InUse };
        let wrong = self.wrong(&self.subject.read(&log, when));
        self.say(&mut self.said(), &Line::Read(wrong))?;
        let is_closed = (who >> 8).is_multiple_of(2) || self.usage.ends_after.is_some();
        self.end(log, who, if is_closed { End::Close } else { End::Drop })
    }

    fn threads(&self, log: &Log, first: Who) -> Result<(), String> {
        std::thread::scope(|scope| {
            let threads: Vec<_> = (first..first + self.usage.threads)
                .map(|who| scope.spawn(move || self.thread(log, who, who == first)))
                .collect();
            threads.into_iter().try_for_each(|thread| {
                thread.join().unwrap_or_else(|_| Err("a thread panicked".into()))
            })
        })
    }

    /// What a thread does, without an end.
    fn ops(&self, who: Who, is_first: bool) -> impl Iterator<Item = Op> {
        let (seed, is_alone) = (self.usage.seed ^ u64::from(who) << 32, self.usage.threads == 1);
        let steps = (0..).flat_map(move |turn| history(seed ^ turn << 16, LENGTH));
        steps.filter_map(move |step| match step {
            Step::Do(op) if is_alone => Some(op),
            Step::Do(op) => Some(op.among_several(is_first)),
            _ => None,
        })
    }

    fn thread(&self, log: &Log, who: Who, is_first: bool) -> Result<(), String> {
        let (mut after, mut tries, mut acknowledged) = (0, 0, 0);
        let ends_after = self.usage.ends_after.filter(|_| is_first);
        for op in self.ops(who, is_first) {
            let is_over = self.is_stopped.load(Ordering::Relaxed) || after >= CALLS_AFTER;
            if is_over || ends_after.is_some_and(|count| acknowledged >= count) {
                self.is_stopped.store(true, Ordering::Relaxed);
                break;
            }
            let op = match op {
                Op::TruncateBefore(_) | Op::TruncateAfter(_)
                    if self.only_grows.load(Ordering::Relaxed) =>
                {
                    Op::Append(1000)
                }
                op => op,
            };
            match self.call(log, who, &op)? {
                (call, Outcome::Done) => {
                    tries = 0;
                    acknowledged += u32::from(acknowledges(&call));
                }
                (_, Outcome::Refused) if tries < TRIES => {
                    tries += 1;
                    self.only_grows.store(false, Ordering::Relaxed);
                    std::thread::sleep(Duration::from_millis(5));
                }
                _ => after += 1,
            }
        }
        Ok(())
    }
}
