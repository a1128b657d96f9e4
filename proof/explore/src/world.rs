//! What all threads of a history share.
//!
//! *Owns*: who still holds the log, telling its past what it answers, surviving what is planned,
//! being a forked child. *May not touch*: what the threads do, which answers are right.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use inkstone::{Append, Error, Log, Lsn};
use inkstone_sim::Counters;
use inkstone_subject::log::cause;
use inkstone_subject::log::history::Op;
use inkstone_subject::log::past::Past;
use inkstone_subject::log::record::Record;
use inkstone_subject::log::words::{Answer, Call, How, Told};
use inkstone_subject::{Past as _, Who};

use crate::broken::{Kind, fail};
use crate::disk::Steps;
use crate::models::{Ledger, judge};
use crate::scheduler::in_a_child;
use crate::tasks::Planned;

pub type SharedLog = Arc<Log>;

/// The last LSN that an append gave, and the record that has it.
#[derive(Debug, Clone, Copy)]
pub struct Given {
    pub lsn: Lsn,
    record: Record,
}

/// An append, unless it was refused.
pub type Appended<'log> = Option<(Given, Append<'log>)>;

#[derive(Clone)]
pub struct World {
    pub ledger: Arc<Mutex<Ledger<Past>>>,
    /// Those who hold the log for sure: when there are none, it is closed or about to be.
    pub holders: Arc<AtomicU32>,
    pub weak: Weak<Log>,
    pub steps: Arc<Steps>,
    pub own_thread: bool,
    /// `wait` does not wait.
    pub is_periodic: bool,
    /// Callbacks that were not called yet.
    pub uncalled: Arc<AtomicU32>,
}

impl World {
    /// Never held over a scheduling point.
    pub fn ledger(&self) -> MutexGuard<'_, Ledger<Past>> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What an error says, and whether something has caused it.
    fn answer(&self, error: &Error) -> (Answer, bool) {
        let (words, may_fail) = (error.to_string(), self.ledger().may_fail);
        match error {
            // Others have cut or truncated what was to be; or a buffer is full.
            Error::NotYet { .. } | Error::TruncatedBefore { .. } | Error::Busy => {
                (Answer::NotDone(words), true)
            }
            Error::Corrupt(_) => (Answer::Corrupt(words), false),
            Error::Poisoned(poison) => (Answer::Poisoned(cause(poison)), may_fail),
            // What fails before anything has changed is told to the one who asked.
            Error::Io(_) | Error::NoRoom { .. } => (Answer::Refused(words), may_fail),
            Error::Closed => (Answer::Refused(words), self.holders.load(Ordering::Relaxed) == 0),
            _ => (Answer::Refused(words), false),
        }
    }

    /// Makes a call, with what it gives.
    pub fn call<T>(
        &self,
        who: Who,
        call: &Call,
        make: impl FnOnce() -> inkstone::Result<T>,
        lsns: impl FnOnce(&T) -> Option<(u64, u64)>,
    ) -> Option<T> {
        let began = |past: &mut Past| {
            past.began(who, call);
            Ok(())
        };
        self.ledger().say(|| format!("{who}: {call:?}"));
        self.ledger().hear(began);
        let (made, (answer, is_excused)) = match make() {
            Ok(made) => {
                let answer = Answer::Done(lsns(&made));
                (Some(made), (answer, self.ledger().may_fail))
            }
            Err(error) => (None, self.answer(&error)),
        };
        let told = Told { answer, ends: None, back: None };
        let mut ledger = self.ledger();
        ledger.say(|| format!("{who}: {told:?}"));
        ledger.hear(|past| past.ended(who, &told, is_excused));
        made
    }

    /// Appends records of these sizes as one.
    pub fn append<'log>(
        &self,
        who: Who,
        sizes: &[usize],
        append: impl FnOnce(&[&[u8]]) -> inkstone::Result<Append<'log>>,
    ) -> Appended<'log> {
        let records = match Op::Batch(sizes.to_vec()).plan(self.ledger().past()) {
            Call::Append { records, .. } => records,
            other => unreachable!("{other:?} is planned for an append"),
        };
        let payloads: Vec<&[u8]> = records.iter().map(Record::payload).collect();
        let record = *records.last()?;
        let call = Call::Append { records, how: How::LetGo };
        let lsns = |append: &Append<'_>| Some((append.first_lsn().get(), append.lsn().get()));
        let append = self.call(who, &call, || append(&payloads), lsns)?;
        Some((Given { lsn: append.lsn(), record }, append))
    }

    /// The outcome of a wait.
    pub fn settle(&self, given: Given, outcome: Result<Lsn, Error>, by: &str) {
        let Given { lsn, record } = given;
        let (answer, is_excused) = match outcome {
            // Nobody waited.
            Ok(_) if self.is_periodic => return,
            Ok(lsn) => (Answer::Done(Some((lsn.get(), lsn.get()))), false),
            Err(error) => self.answer(&error),
        };
        let mut ledger = self.ledger();
        ledger.say(|| format!("{by}, LSN {lsn}: {answer:?}"));
        ledger.hear(|past| past.waited(lsn.get(), &record, &answer, is_excused));
    }

    /// Somebody is told that something has failed.
    pub fn refused(&self, error: &Error, by: &str) {
        let (answer, is_excused) = self.answer(error);
        let mut ledger = self.ledger();
        ledger.say(|| format!("{by}: {error}"));
        judge(0, ledger.pasts[0].heard(&by, &answer, is_excused));
    }

    /// One owner less, who may be the last.
    pub fn leave(&self, log: SharedLog) {
        self.holders.fetch_sub(1, Ordering::Relaxed);
        self.survive(|| drop(log));
    }

    /// What a forked child does. The parent goes on as if it had not been.
    pub fn as_child(&self, run: impl FnOnce(&Self)) {
        let disk = self.ledger().disk.clone();
        let changes =
            || Counters { opens: 0, listings: 0, reads: 0, read_bytes: 0, ..disk.counters() };
        let before = changes();
        self.steps.be_forked(true);
        in_a_child(|| run(self));
        self.steps.be_forked(false);
        if changes() != before {
            fail!(
                Kind::Forked,
                "a forked child asks the disk for changes: {:?}, {before:?} before",
                changes()
            );
        }
    }

    /// Runs what may panic as planned.
    pub fn survive(&self, run: impl FnOnce()) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(run)) {
            if !panic.is::<Planned>() {
                resume_unwind(panic);
            }
            self.ledger().say(|| "a planned panic came through".into());
        }
    }
}
