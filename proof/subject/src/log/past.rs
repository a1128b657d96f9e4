//! What a log has promised, and the one judge of what is found of it.
//!
//! *Owns*: the clauses. *May not touch*: logs, disks, how something came to be found.
//!
//! The rule: what was acknowledged or shown must be there, in its place, whole, once. What began
//! and has not ended may be there. Nothing else may be. What was shown is a promise from then on.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use super::clauses::*;
use super::cuts::{Cuts, Loose, Moment};
use super::record::Record;
use super::words::{Answer, By, Call, Shown, Told};
use crate::{Broken, Lie, Outcome, Told as _, Who, clause};

mod asked;
mod saved;
pub use asked::{Asking, Since};

/// Who uses the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Callers {
    /// One thread: what the log says of itself between two calls is exact.
    One,
    /// Several: it may be ahead of what was heard.
    Many,
}

/// A call that has not ended, or has failed: it may have come true or not.
#[derive(Debug, Clone)]
struct Doubt {
    who: Who,
    call: Call,
    has_failed: bool,
    /// It began after a call had said that the log is poisoned.
    is_poisoned: bool,
    /// The last LSN that its caller was given before, as far as no cut took it.
    after: u64,
    begun: Moment,
    /// The last LSN when it began.
    last: u64,
    /// The LSN of its first record, if one of its records was shown.
    seen: Option<u64>,
}

/// What is known of a device that has lied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lied {
    Never,
    /// No promise came since.
    Lost,
    /// A promise covers what may be missing.
    Covered,
    /// A promise covers a bit that is wrong.
    Flipped,
    Anything,
    /// It was noticed, or what was lost could not be noticed.
    Over,
}

/// See the head of this file.
#[derive(Debug, Clone)]
pub struct Past {
    callers: Callers,
    /// By LSN - 1, with the truncated ones; `None`: nobody was told yet which one it is. What a cut
    /// may have taken is not here.
    row: Arc<Vec<Option<Record>>>,
    cuts: Cuts,
    /// The first LSN that is not truncated.
    first: u64,
    /// Up to here all is certain.
    certain: u64,
    /// How many records have ever begun.
    numbers: u32,
    doubts: Vec<Doubt>,
    /// The last LSN that each of several callers was given.
    given: BTreeMap<Who, u64>,
    /// The log was closed, and nothing was called since.
    is_closed: bool,
    /// Why the log is poisoned, as a call was told first.
    poison: Option<String>,
    lied: Lied,
}

/// Records that were found at LSNs that nobody was told of.
type New = Vec<(u64, Record)>;

impl Past {
    pub fn new(callers: Callers) -> Self {
        Self {
            callers,
            row: Arc::default(),
            cuts: Cuts::default(),
            first: 1,
            certain: 0,
            numbers: 0,
            doubts: Vec::new(),
            given: BTreeMap::new(),
            is_closed: false,
            poison: None,
            lied: Lied::Never,
        }
    }

    /// From here on it is used so. No call is in progress.
    pub fn is_used_by(&mut self, callers: Callers) {
        self.callers = callers;
    }

    /// Somebody else used the log before, whose records nobody here knows: their numbers are below
    /// this one.
    pub fn continues(&mut self, first: u64, last: u64, numbers: u32) {
        self.row = Arc::new(vec![None; last as usize]);
        self.cuts = Cuts::default();
        (self.first, self.certain, self.numbers) = (first, last, numbers);
    }

    /// The last LSN, certain or not.
    pub fn last(&self) -> u64 {
        self.row.len() as u64
    }

    pub fn first(&self) -> u64 {
        self.first
    }

    pub fn certain(&self) -> u64 {
        self.certain
    }

    /// No LSN above this one was ever told, and may be there.
    fn end(&self) -> u64 {
        self.cuts.loose.iter().map(|loose| loose.lsn).fold(self.last(), u64::max)
    }

    /// What an LSN holds, if it is known.
    pub fn at(&self, lsn: u64) -> Option<&Record> {
        self.row.get((lsn as usize).checked_sub(1)?)?.as_ref()
    }

    /// What is certain, and no truncation may take.
    pub fn must_be_there(&self) -> impl Iterator<Item = (u64, &Record)> {
        let first = self.firsts().fold(self.first, u64::max);
        (first..=self.certain).filter_map(|lsn| Some((lsn, self.at(lsn)?)))
    }

    /// The next record.
    pub(super) fn next_record(&self, number: &mut u32, bytes: usize, has_more: bool) -> Record {
        // With several callers, records must not be alike.
        if self.callers == Callers::Many && *number % 8 == 5 {
            *number += 1;
        }
        *number += 1;
        Record { number: *number - 1, bytes: bytes as u32, has_more }
    }

    /// Every record has a number below this one.
    pub fn numbers(&self) -> u32 {
        self.numbers
    }

    /// LSN of the record at a part of what is there: 255 is behind the last.
    pub(super) fn part(&self, part: u8) -> u64 {
        let count = self.last() + 1 - self.first;
        self.first - 1 + (count * u64::from(part)).div_ceil(255)
    }

    fn put(&mut self, lsn: u64, record: Option<Record>) {
        let row = Arc::make_mut(&mut self.row);
        let at = lsn as usize - 1;
        if row.len() <= at {
            row.resize(at + 1, None);
        }
        row[at] = record;
        if record.is_some() {
            self.cuts.displace(lsn);
        }
    }

    /// A record whose append began at `called` is known to have this LSN.
    fn place(&mut self, lsn: u64, mut record: Record, called: Moment, is_certain: bool) {
        record.has_more &= !self.cuts.may_end_at(lsn, called);
        let left = self.cuts.left(called);
        let is_it =
            |known: Option<Record>| known.is_some_and(|known| known.number == record.number);
        if lsn <= left || is_it(self.at(lsn).copied()) {
            self.put(lsn, Some(record));
            self.certain = self.certain.max(if is_certain { lsn } else { 0 });
            return;
        }
        let mut loose = self.cuts.loose.iter_mut();
        match loose.find(|loose| loose.lsn == lsn && is_it(loose.record)) {
            Some(known) => known.is_certain |= is_certain,
            None => {
                let given = self.cuts.now;
                let record = Some(record);
                self.cuts.loose.push(Loose { lsn, record, called, given, is_certain });
            }
        }
        if is_certain {
            self.certain = self.certain.max(left);
        }
    }

    /// These are there for sure.
    fn put_back(&mut self, there: Vec<Loose>) {
        for Loose { lsn, record, is_certain, .. } in there {
            if self.at(lsn).is_none() {
                self.put(lsn, record);
                self.certain = self.certain.max(if is_certain { lsn } else { 0 });
            }
        }
    }

    /// A cut begins: what is behind it may be gone from here on. Returns the moment that names it.
    fn begin_cut(&mut self, last: u64) -> Moment {
        let row = Arc::make_mut(&mut self.row);
        let behind = row.split_off(row.len().min(last as usize));
        let begun = self.cuts.begin(last, behind, self.certain);
        self.certain = self.certain.min(last);
        self.given.values_mut().for_each(|given| *given = (*given).min(last));
        self.doubts.iter_mut().for_each(|doubt| doubt.after = doubt.after.min(last));
        begun
    }

    /// A cut has come true.
    fn end_cut(&mut self, begun: Moment, last: u64) {
        // With one caller nobody asks meanwhile.
        self.cuts.end(begun, self.callers == Callers::Many);
        if self.last() == last {
            self.end_batch();
        }
    }

    /// It has changed nothing.
    fn undo_cut(&mut self, begun: Moment) {
        let there = self.cuts.undo(begun);
        self.put_back(there);
    }

    /// What followed the last record in its batch is gone.
    fn end_batch(&mut self) {
        let row = Arc::make_mut(&mut self.row);
        row.last_mut().into_iter().flatten().for_each(|record| record.has_more = false);
    }

    /// Nothing is behind `last` any more.
    fn cut(&mut self, last: u64) {
        Arc::make_mut(&mut self.row).truncate(last as usize);
        self.end_batch();
        self.certain = self.certain.min(last);
    }

    /// Where a log may begin.
    fn firsts(&self) -> impl Iterator<Item = u64> {
        let in_doubt = self.doubts.iter().filter_map(|doubt| match doubt.call {
            Call::TruncateBefore(first) => Some(first),
            _ => None,
        });
        std::iter::once(self.first).chain(in_doubt)
    }

    /// Whether a log may begin and end there, for all that was told.
    fn check_ends(&self, first: u64, last: u64) -> Result<(), Broken> {
        clause(FIRST, self.firsts().any(|may| may == first), || {
            let may: Vec<_> = self.firsts().map(|first| first.to_string()).collect();
            format!("the first LSN is {first}; it may be {}", may.join(" or "))
        })?;
        clause(LOST, last >= self.certain, || {
            format!("LSN {} was acknowledged, but the last is {last}", self.certain)
        })
    }

    /// Compares every record that was found.
    fn check_records(&self, shown: &Shown) -> Result<New, Broken> {
        let mut new = New::new();
        let end = self.end();
        let mut taken = Taken::default();
        let mut wanted = shown.first;
        let mut has_more = false;
        for (lsn, bytes) in shown.records() {
            clause(DENSE, lsn == wanted, || format!("LSN {lsn} instead of {wanted}"))?;
            wanted = lsn + 1;
            let record = match self.at(lsn) {
                Some(record) => {
                    clause(WRONG, record.payload() == bytes, || {
                        let (what, numbers) = (Record::named(bytes, self.numbers), self.numbers);
                        format!(
                            "LSN {lsn} holds {what}, not {}",
                            Record::named(record.payload(), numbers)
                        )
                    })?;
                    Some(*record)
                }
                None => {
                    let loose = self.cuts.loose.iter().find(|loose| loose.is(lsn, bytes));
                    let is_front = lsn == shown.first && lsn > 1;
                    let next = loose
                        .and_then(|loose| loose.record)
                        .or_else(|| taken.next(&self.doubts, &self.cuts, lsn, is_front, bytes));
                    let is_beyond = lsn > end && taken.is_all(&self.doubts);
                    let words =
                        || format!("LSN {lsn} holds {}", Record::named(bytes, self.numbers));
                    clause(BEYOND, next.is_some() || !is_beyond, words)?;
                    clause(WRONG, next.is_some() || is_beyond, words)?;
                    new.extend(next.map(|record| (lsn, record)));
                    next
                }
            };
            has_more = record.is_some_and(|record| record.has_more);
        }
        let is_cut = self.cuts.may_end_at(wanted - 1, self.cuts.now);
        clause(SPLIT, !has_more || is_cut, || {
            format!("the log ends inside a batch, at {}", wanted - 1)
        })?;
        clause(READABLE, wanted == shown.last + 1, || {
            format!("the log says that its last LSN is {}, but shows {}", shown.last, wanted - 1)
        })?;
        Ok(new)
    }

    /// A cut that has not come true for sure has taken all that it was to take, or nothing.
    fn check_cuts(&self, shown: &Shown, new: &New) -> Result<(), Broken> {
        let missing = self.cuts.missing(shown.first, |record| new.contains(record));
        clause(LOST, missing.is_none(), || {
            let lsn = missing.unwrap_or_default();
            format!("LSN {lsn} was acknowledged, and no cut that took it has left what is there")
        })
    }

    /// Records that were read once more, by their LSNs.
    fn check_again(&self, shown: &Shown, new: &New) -> Result<(), Broken> {
        let new = |wanted: u64| new.iter().find(|(lsn, _)| *lsn == wanted);
        for (lsn, bytes) in &shown.again {
            let record = self.at(*lsn).or_else(|| new(*lsn).map(|(_, record)| record));
            let is_it = match bytes {
                Ok(bytes) => record.is_some_and(|record| record.payload() == bytes),
                Err(_) => false,
            };
            clause(BY_LSN, is_it, || match bytes {
                Ok(_) => {
                    format!("LSN {lsn}, read by itself, holds bytes that were not appended there")
                }
                Err(why) => format!("LSN {lsn}, read by itself: {why}"),
            })?;
        }
        Ok(())
    }

    /// After a lie, what is missing or damaged is not the log's fault: that it says nothing is.
    fn check_after_a_lie(&mut self, shown: &Shown) -> Result<(), Broken> {
        let is_over = shown.corrupt.is_some();
        if self.lied == Lied::Anything {
            for (lsn, bytes) in shown.records() {
                clause(WRONG, Record::is_one(bytes, self.numbers), || {
                    format!("LSN {lsn} holds {}", Record::named(bytes, self.numbers))
                })?;
            }
            return Ok(());
        }
        for (lsn, bytes) in shown.records() {
            clause(WRONG, self.may_hold(lsn, bytes, Moment::MAX), || {
                format!("LSN {lsn} holds {}", Record::named(bytes, self.numbers))
            })?;
        }
        let (first, last) = (shown.first, shown.last);
        clause(FIRST, first <= self.first, || {
            format!("the first LSN is {first}; it may be {} at most", self.first)
        })?;
        let is_whole =
            (first, last) == (self.first, self.last()) && shown.count() == last + 1 - first;
        clause(UNNOTICED, is_over || is_whole || self.lied == Lied::Lost, || {
            format!(
                "records are missing without an error: {first}..={last} of {}..={}",
                self.first,
                self.last()
            )
        })?;
        if is_over || !is_whole {
            self.lied = Lied::Over;
        }
        Ok(())
    }

    fn check_poison(by: &By) -> Result<(), Broken> {
        let By::Poisoned { cause, answers } = by else { return Ok(()) };
        for (call, answer) in answers {
            clause(POISON, answer == cause, || {
                format!("poisoned by {cause}, {call} returns {answer}")
            })?;
        }
        Ok(())
    }

    fn check_answer(
        &self,
        what: &dyn Debug,
        answer: &Answer,
        is_excused: bool,
    ) -> Result<(), Broken> {
        clause(FALSE_CORRUPT, !matches!(answer, Answer::Corrupt(_)), || answer.to_string())?;
        clause(REASON, matches!(answer, Answer::Done(_)) || is_excused, || {
            format!("{what:?}: the call fails: {answer}")
        })?;
        clause(EITHER, !matches!(answer, Answer::Neither(_)), || answer.to_string())
    }

    /// Once a call has said that the log is poisoned, every later one says so.
    fn check_poisoned(&self, doubt: &Doubt, answer: &Answer) -> Result<(), Broken> {
        let Some(cause) = self.poison.as_ref().filter(|_| doubt.call != Call::Close) else {
            return Ok(());
        };
        let is_refused = match answer {
            Answer::Done(_) | Answer::Refused(_) => !doubt.is_poisoned,
            _ => true,
        };
        clause(POISON, is_refused, || {
            format!("poisoned by {cause}, {:?} returns {answer}", doubt.call)
        })
    }

    /// An opening has shown a log with these ends: only those were told. Which of the records in
    /// doubt are there, nobody knows yet.
    ///
    /// # Errors
    /// The promise that is broken.
    pub fn opened(&mut self, first: u64, last: u64) -> Result<(), Broken> {
        self.check_ends(first, last)?;
        let in_doubt: usize = self.doubts.iter().map(|doubt| doubt.call.records().len()).sum();
        let in_doubt = in_doubt as u64;
        let there = self.cuts.opened(last, in_doubt);
        clause(LOST, there.is_some(), || {
            format!("the last LSN is {last}, and a cut was called that leaves others")
        })?;
        self.put_back(there.unwrap_or_default());
        clause(BEYOND, last <= self.end() + in_doubt, || format!("LSN {last} is beyond all"))?;
        self.cut(last);
        Arc::make_mut(&mut self.row).resize(last as usize, None);
        (self.first, self.certain) = (first, last);
        let is_known = self.row.iter().skip(first as usize - 1).all(Option::is_some);
        self.doubts.retain(|doubt| !is_known && !doubt.call.records().is_empty());
        self.doubts.iter_mut().for_each(|doubt| doubt.has_failed = true);
        self.poison = None;
        Ok(())
    }

    /// What was shown is a promise.
    fn promise(&mut self, shown: &Shown, new: New) {
        if matches!(shown.by, By::Opening { .. }) {
            new.into_iter().for_each(|(lsn, record)| self.put(lsn, Some(record)));
            self.cut(shown.last);
            self.first = shown.first;
            self.doubts.clear();
            self.given.clear();
            self.cuts.settle(shown.last);
            self.poison = None;
        }
        self.certain = self.certain.max(shown.last.min(self.cuts.left(self.cuts.now)));
    }

    /// Somebody has waited for a record that was appended before.
    ///
    /// # Errors
    /// The promise that the answer breaks.
    pub fn waited(
        &mut self,
        lsn: u64,
        record: &Record,
        answer: &Answer,
        is_excused: bool,
    ) -> Result<(), Broken> {
        self.heard(&format_args!("waiting for LSN {lsn}"), answer, is_excused)?;
        if let Answer::Done(told) = answer {
            clause(GIVES, *told == Some((lsn, lsn)), || {
                format!("LSN {lsn} was given, and who waits for it is told {told:?}")
            })?;
            self.acknowledge(lsn, record.number);
        }
        Ok(())
    }

    /// Somebody was told this.
    ///
    /// # Errors
    /// The promise that the answer breaks.
    pub fn heard(
        &mut self,
        what: &dyn Debug,
        answer: &Answer,
        is_excused: bool,
    ) -> Result<(), Broken> {
        self.check_answer(what, answer, is_excused)?;
        let Answer::Poisoned(why) = answer else { return Ok(()) };
        let cause = self.poison.get_or_insert_with(|| why.clone());
        clause(POISON, why == cause, || format!("poisoned by {cause}, {what:?} returns {why}"))
    }

    fn acknowledge(&mut self, lsn: u64, number: u32) {
        let is_it = |known: &Record| known.number == number;
        if self.at(lsn).is_some_and(is_it) {
            self.certain = self.certain.max(lsn);
        }
        let mut loose = self.cuts.loose.iter_mut();
        let of = |loose: &&mut Loose| loose.lsn == lsn && loose.record.as_ref().is_some_and(is_it);
        if let Some(loose) = loose.find(of) {
            loose.is_certain = true;
            let called = loose.called;
            let left = self.cuts.left(called);
            self.certain = self.certain.max(left);
        }
    }

    /// A call was refused, and the log goes on: it tells what has come true.
    fn settle(&mut self, doubt: &Doubt, first: u64, last: u64) -> Result<(), Broken> {
        match doubt.call {
            Call::TruncateAfter(to) if to == last => self.end_cut(doubt.begun, to),
            Call::TruncateAfter(_) => self.undo_cut(doubt.begun),
            _ => {}
        }
        self.doubts.push(doubt.clone());
        let ends = self.check_ends(first, last);
        self.doubts.pop();
        ends?;
        let records = doubt.call.records();
        let came = (last.saturating_sub(self.last())) as usize;
        clause(BEYOND, came <= records.len(), || {
            format!("LSN {} is the last that was appended, but the last is {last}", self.last())
        })?;
        let is_split = came > 0 && came <= records.len() && records[came - 1].has_more;
        clause(SPLIT, !is_split, || format!("half a batch is there, up to LSN {last}"))?;
        for (lsn, record) in (self.last() + 1..).zip(&records[..came.min(records.len())]) {
            self.put(lsn, Some(*record));
        }
        (self.first, self.certain) = (first, last);
        Ok(())
    }

    fn done(&mut self, doubt: Doubt, lsn: Option<(u64, u64)>, told: &Told) -> Result<(), Broken> {
        let Doubt { who, call, begun, .. } = doubt;
        let is_one = self.callers == Callers::One;
        let records = call.records();
        let left = self.cuts.left(begun);
        match (&call, lsn) {
            (Call::Append { how, .. }, Some((first, last))) => {
                let given = last + 1 - first;
                let is_next = !is_one || first == self.last() + 1;
                clause(GIVES, given == records.len() as u64 && is_next, || {
                    format!("LSN {first}..={last} follow LSN {}", self.last())
                })?;
                clause(GIVES, doubt.seen.is_none_or(|seen| seen == first), || {
                    format!("LSN {first} is given, but it was shown at {:?}", doubt.seen)
                })?;
                for (lsn, record) in (first..).zip(records) {
                    let is_free =
                        lsn > left || self.at(lsn).is_none_or(|at| at.number == record.number);
                    clause(GIVES, is_free, || format!("two records have the LSN {lsn}"))?;
                    self.place(lsn, *record, begun, how.waits());
                }
                if let Some(back) = &told.back {
                    let is_it = back.as_deref() == Ok(records[0].payload());
                    clause(BY_LSN, is_it, || {
                        let why = back.as_ref().err().map_or("it has other bytes", |why| why);
                        format!("LSN {first}, appended just now: {why}")
                    })?;
                }
                if !is_one {
                    self.given.insert(who, last.min(left));
                }
            }
            (Call::Sync | Call::Prepare, Some((_, last))) => {
                clause(GIVES, !is_one || last == self.last(), || {
                    format!("LSN {last} is synced, and {} is the last", self.last())
                })?;
                let last = if left == u64::MAX { last.max(doubt.last) } else { doubt.last };
                self.certain = self.certain.max(last.min(left));
                let before = self.cuts.loose.iter_mut().filter(|loose| loose.given < begun);
                before.for_each(|loose| loose.is_certain = true);
            }
            (Call::TruncateBefore(first), _) => self.first = self.first.max(*first),
            (Call::TruncateAfter(last), _) => self.end_cut(begun, *last),
            (Call::Close, _) => {
                self.certain = self.last();
                self.cuts.loose.iter_mut().for_each(|loose| loose.is_certain = true);
                self.is_closed = true;
            }
            (_, None) => clause(GIVES, false, || format!("{call:?} gives no LSN"))?,
        }
        Ok(())
    }
}

/// Which records in doubt were found so far.
#[derive(Default)]
struct Taken {
    /// Of each doubt.
    next: Vec<usize>,
    /// A batch that has begun.
    batch: Option<usize>,
}

impl Taken {
    /// The record in doubt that these bytes are. `is_front`: what is before was truncated.
    fn next(
        &mut self,
        doubts: &[Doubt],
        cuts: &Cuts,
        lsn: u64,
        is_front: bool,
        bytes: &[u8],
    ) -> Option<Record> {
        self.next.resize(doubts.len(), 0);
        let open = self.batch.take();
        for (index, doubt) in doubts.iter().enumerate() {
            if open.is_some_and(|open| open != index) || lsn <= doubt.after {
                continue;
            }
            let records = doubt.call.records();
            let next = self.next[index];
            let from = match doubt.seen.filter(|_| next < usize::MAX) {
                // A reader was shown one of them, so each has its LSN.
                Some(first) => {
                    let Some(at) = lsn.checked_sub(first) else { continue };
                    at as usize..(at as usize).saturating_add(1)
                }
                None if is_front => next..records.len(),
                None => next..next.saturating_add(1),
            };
            let is_it = |at: &usize| records.get(*at).is_some_and(|one| one.payload() == bytes);
            let Some(at) = from.into_iter().find(is_it) else { continue };
            // A caller does one thing after the other: what failed before this one is not there.
            for (earlier, next) in self.next[..index].iter_mut().enumerate() {
                if doubts[earlier].who == doubt.who {
                    *next = usize::MAX;
                }
            }
            self.next[index] = at + 1;
            let mut record = records[at];
            record.has_more &= !cuts.may_end_at(lsn, doubt.begun);
            self.batch = record.has_more.then_some(index);
            return Some(record);
        }
        None
    }

    /// Whether no record is in doubt any more.
    fn is_all(&self, doubts: &[Doubt]) -> bool {
        let left = doubts.iter().zip(&self.next);
        left.into_iter().all(|(doubt, next)| *next >= doubt.call.records().len())
    }
}

impl crate::Past for Past {
    type Call = Call;
    type Told = Told;
    type Shown = Shown;

    fn began(&mut self, who: Who, call: &Call) {
        let numbers = call.records().last().map_or(0, |record| record.number + 1);
        self.numbers = self.numbers.max(numbers);
        self.is_closed = false;
        let is_promise = match call {
            Call::Append { how, .. } => how.waits(),
            Call::TruncateBefore(first) => *first > self.first,
            _ => false,
        };
        if is_promise && self.lied == Lied::Lost {
            self.lied = Lied::Covered;
        }
        self.cuts.now += 1;
        let last = self.last();
        let begun = match call {
            Call::TruncateAfter(last) => self.begin_cut(*last),
            _ => self.cuts.now,
        };
        self.doubts.push(Doubt {
            who,
            call: call.clone(),
            has_failed: false,
            is_poisoned: self.poison.is_some(),
            after: self.given.get(&who).copied().unwrap_or(0).min(self.cuts.left(begun)),
            begun,
            last,
            seen: None,
        });
    }

    fn ended(&mut self, who: Who, told: &Told, is_excused: bool) -> Result<(), Broken> {
        let is_it = |doubt: &Doubt| doubt.who == who && !doubt.has_failed;
        let Some(at) = self.doubts.iter().rposition(is_it) else {
            return Err(Broken::new(SAYS, format!("{who} ends what has not begun")));
        };
        let Told { answer, ends, .. } = told;
        if told.outcome() == Outcome::Corrupt && self.lied != Lied::Never {
            self.lied = Lied::Over;
            return Ok(());
        }
        if told.outcome() != Outcome::Done && self.lied == Lied::Anything {
            self.doubts[at].has_failed = true;
            return Ok(());
        }
        self.cuts.now += 1;
        let call = self.doubts[at].call.clone();
        match call {
            // It promises less.
            Call::Close => self.check_answer(&call, answer, is_excused)?,
            _ => self.heard(&call, answer, is_excused)?,
        }
        self.check_poisoned(&self.doubts[at], answer)?;
        let is_one = self.callers == Callers::One;
        let begun = self.doubts[at].begun;
        match (answer, ends) {
            (Answer::Done(lsn), _) => {
                let doubt = self.doubts.remove(at);
                self.done(doubt, *lsn, told)?;
                // With a reason to fail, a close may have left out its last promise.
                self.is_closed &= !is_excused;
                if let Some(says) = ends.filter(|_| is_one) {
                    let is_exact = (says.first, says.last) == (self.first, self.last());
                    clause(SAYS, is_exact && says.durable <= self.last(), || {
                        format!(
                            "the log has {}..={} of {}..={}",
                            says.first,
                            says.last,
                            self.first,
                            self.last()
                        )
                    })?;
                }
            }
            (Answer::Refused(_), Some(says)) if is_one => {
                let doubt = self.doubts.remove(at);
                self.settle(&doubt, says.first, says.last)?;
            }
            (Answer::NotDone(_), _) => {
                if let Call::TruncateAfter(_) = self.doubts.remove(at).call {
                    self.undo_cut(begun);
                }
            }
            _ => self.doubts[at].has_failed = true,
        }
        if let Some(says) = ends {
            let durable = says.durable.min(self.last()).min(self.cuts.left(begun));
            self.certain = self.certain.max(durable);
        }
        Ok(())
    }

    fn check(&mut self, shown: &Shown) -> Result<(), Broken> {
        if let By::Saved { lost } = &shown.by {
            return self.check_saved(shown, lost);
        }
        let closed = std::mem::take(&mut self.is_closed);
        match self.lied {
            Lied::Never => {}
            Lied::Over => return Ok(()),
            _ if shown.failed.is_none() => return self.check_after_a_lie(shown),
            _ => {}
        }
        clause(FALSE_CORRUPT, shown.corrupt.is_none(), || {
            shown.corrupt.clone().unwrap_or_default()
        })?;
        if let Some(why) = &shown.failed {
            let name = if shown.is_open { READABLE } else { OPENS };
            return clause(name, false, || why.clone());
        }
        if let By::Opening { is_clean } = shown.by {
            clause(WATERMARK, shown.durable == shown.last, || {
                format!(
                    "after opening, the durable LSN is {}, the last {}",
                    shown.durable, shown.last
                )
            })?;
            clause(CLEAN, is_clean || !closed, || "it was closed, and does not say so".to_owned())?;
        }
        if let By::Beside { durable } = shown.by {
            clause(AHEAD, shown.last <= durable, || {
                format!(
                    "a reader beside the writer shows LSN {}, but only {durable} is durable",
                    shown.last
                )
            })?;
        }
        Self::check_poison(&shown.by)?;
        // Beside a writer a reader may be behind.
        let is_beside = matches!(shown.by, By::Beside { .. });
        if !is_beside {
            self.check_ends(shown.first, shown.last)?;
        }
        let new = self.check_records(shown)?;
        if !is_beside {
            self.check_cuts(shown, &new)?;
        }
        self.check_again(shown, &new)?;
        self.promise(shown, new);
        Ok(())
    }

    fn opening(&mut self) {
        self.is_closed = false;
        self.poison = None;
    }

    fn lied(&mut self, lie: Lie) {
        self.lied = match (self.lied, lie) {
            (Lied::Never, Lie::Lost) => Lied::Lost,
            (Lied::Never | Lied::Lost, Lie::Damaged) => Lied::Covered,
            (Lied::Never, Lie::Flipped) => Lied::Flipped,
            (Lied::Over, _) => Lied::Over,
            (_, Lie::Anything) => Lied::Anything,
            (known, _) => known,
        };
    }

    fn is_over(&self) -> bool {
        self.lied == Lied::Over
    }
}
