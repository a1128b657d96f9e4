//! The outside witness: it compares what a log shows after a kill with what was reported and shown
//! before.
//!
//! *Owns*: the judgement. *May not touch*: processes; the log except through its public API.

use std::collections::BTreeMap;

use inkstone::{Log, Lsn};

use super::record::Id;
use super::told::Report;

/// Knows what is certain.
#[derive(Debug, Clone)]
pub(super) struct Witness {
    /// The first LSN that the last opening showed.
    first: u64,
    /// The records from there on.
    shown: Vec<Id>,
}

/// The counts of one check.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Looked {
    /// Records read back.
    pub(super) records: u64,
    /// Of these, records that an earlier opening had shown.
    pub(super) again: u64,
    /// Of these, records that were acknowledged by LSN since then.
    pub(super) acknowledged: u64,
}

impl Witness {
    pub(super) fn new() -> Self {
        Self { first: 1, shown: Vec::new() }
    }

    fn last(&self) -> u64 {
        self.first + self.shown.len() as u64 - 1
    }

    /// Reads the whole log and compares it; from then on what it shows is certain.
    ///
    /// # Errors
    /// Which promise is broken.
    pub(super) fn look(
        &mut self,
        log: &Log,
        round: u32,
        report: &Report,
    ) -> Result<Looked, String> {
        let (first, last) = (log.first().get(), log.last().get());
        self.check_ends(first, last, report)?;
        let mut looked = Looked::default();
        let mut reading = Reading::new(round, report, first <= self.last() + 1);
        let mut shown = Vec::new();
        for record in log.reader().records(Lsn::new(first)) {
            let lsn = first + shown.len() as u64;
            let record = record.map_err(|error| format!("LSN {lsn} cannot be read: {error}"))?;
            if record.lsn.get() != lsn {
                return Err(format!("LSN {} instead of {lsn}", record.lsn));
            }
            let id = Id::of(&record.bytes).ok_or_else(|| {
                format!(
                    "LSN {lsn} holds {} bytes that are not a whole record of any writer",
                    record.bytes.len()
                )
            })?;
            if lsn <= self.last() {
                let before = self.shown[(lsn - self.first) as usize];
                if id != before {
                    return Err(format!("LSN {lsn} was shown as {before}, but is now {id}"));
                }
                looked.again += 1;
            } else {
                looked.acknowledged += u64::from(reading.take(lsn, id, shown.last().copied())?);
            }
            looked.records += 1;
            shown.push(id);
        }
        if first + looked.records != last + 1 {
            return Err(format!(
                "the log says that its last LSN is {last}, but shows {}",
                first + looked.records - 1
            ));
        }
        reading.finish()?;
        *self = Self { first, shown };
        Ok(looked)
    }

    /// The witness itself truncated the log.
    pub(super) fn gave_up(&mut self, first: u64) {
        self.shown.drain(..(first - self.first) as usize);
        self.first = first;
    }

    fn check_ends(&self, first: u64, last: u64, report: &Report) -> Result<(), String> {
        let certain = self.first.max(report.first);
        if first != certain && Some(first) != report.first_perhaps {
            let perhaps =
                report.first_perhaps.map_or(String::new(), |perhaps| format!(" or {perhaps}"));
            return Err(format!("the first LSN is {first}; it must be {certain}{perhaps}"));
        }
        if first < self.first {
            return Err(format!(
                "the first LSN is {first}, but the log was truncated before {}",
                self.first
            ));
        }
        if last < report.durable {
            return Err(format!("LSN {} was acknowledged, but the last is {last}", report.durable));
        }
        if last < self.last() {
            return Err(format!("LSN {} was shown before, but the last is {last}", self.last()));
        }
        Ok(())
    }
}

/// The records after those that were shown before: all of one writer.
struct Reading<'a> {
    round: u32,
    report: &'a Report,
    /// None of this writer's records was truncated.
    is_from_start: bool,
    /// The next record of each thread.
    next: BTreeMap<u8, u32>,
}

impl<'a> Reading<'a> {
    fn new(round: u32, report: &'a Report, is_from_start: bool) -> Self {
        Self { round, report, is_from_start, next: BTreeMap::new() }
    }

    /// Checks a record; returns whether this LSN was acknowledged.
    fn take(&mut self, lsn: u64, id: Id, before: Option<Id>) -> Result<bool, String> {
        if id.round != self.round {
            return Err(format!("LSN {lsn} is {id}, which no earlier opening has shown there"));
        }
        let Some(thread) =
            self.report.threads.get(&id.thread).filter(|thread| id.number < thread.intended)
        else {
            return Err(format!("LSN {lsn} is {id}, which was not announced"));
        };
        let next = match self.next.get(&id.thread) {
            Some(next) => *next,
            None if self.is_from_start => 0,
            // The thread's first records were truncated.
            None => id.number,
        };
        if id.number != next {
            return Err(format!("LSN {lsn} is {id}, but number {next} is the next of that thread"));
        }
        if thread.inside.contains(&id.number) && !self.is_given_up_before(before) {
            let wanted = Id { number: id.number - 1, ..id };
            if before != Some(wanted) {
                return Err(format!(
                    "LSN {lsn} is {id}, but the rest of its batch is not before it"
                ));
            }
        }
        self.next.insert(id.thread, next + 1);
        match self.report.acknowledged.get(&lsn) {
            Some(told) if *told != id => {
                Err(format!("LSN {lsn} was acknowledged as {told}, but is {id}"))
            }
            told => Ok(told.is_some()),
        }
    }

    /// The log begins inside a batch: its start was truncated.
    fn is_given_up_before(&self, before: Option<Id>) -> bool {
        before.is_none() && !self.is_from_start
    }

    fn finish(self) -> Result<(), String> {
        for (number, thread) in &self.report.threads {
            let next = match self.next.get(number) {
                Some(next) => *next,
                None if self.is_from_start => 0,
                // All its records were truncated.
                None => continue,
            };
            if next < thread.acknowledged {
                return Err(format!(
                    "thread {number}: record {next} was acknowledged, but is missing"
                ));
            }
            if self.report.is_closed && next < thread.intended {
                return Err(format!(
                    "thread {number}: record {next} is missing, though the log was closed"
                ));
            }
            if thread.inside.contains(&next) {
                return Err(format!(
                    "thread {number}: the log ends inside a batch, before record {next}"
                ));
            }
        }
        Ok(())
    }
}
