//! What may be seen beside a cut (`truncate_after`).
//!
//! *Owns*: which cuts have begun and ended, and which records each may have taken. *May not touch*:
//! what is certain, which promise is broken (`past.rs`).
//!
//! A cut takes what is behind it at one moment between its call and its answer. If it fails, it may
//! do so at any time, or never. So a record is *loose* if its append and a cut behind which it
//! stands have overlapped, or if such a cut has begun since: it may be there or not.

use super::record::Record;

/// A count of the calls that have begun and ended.
pub(super) type Moment = u64;

#[derive(Debug, Clone)]
struct Cut {
    /// The last LSN that it leaves.
    to: u64,
    begun: Moment,
    /// `Moment::MAX` until it has come true for sure.
    ended: Moment,
}

#[derive(Debug, Clone)]
pub(super) struct Loose {
    pub(super) lsn: u64,
    /// `None`: nobody was told yet which one it is.
    pub(super) record: Option<Record>,
    /// It was there, or its append was called, at this moment or later.
    pub(super) called: Moment,
    /// By this moment it had its LSN.
    pub(super) given: Moment,
    pub(super) is_certain: bool,
}

impl Cut {
    fn may_take(&self, loose: &Loose) -> bool {
        self.to < loose.lsn && self.ended >= loose.called
    }

    /// It takes this one when it comes true.
    fn takes(&self, loose: &Loose) -> bool {
        self.to < loose.lsn && loose.given < self.begun
    }
}

impl Loose {
    pub(super) fn is(&self, lsn: u64, bytes: &[u8]) -> bool {
        self.lsn == lsn && self.record.is_some_and(|record| record.payload() == bytes)
    }
}

/// See the head of this file.
#[derive(Debug, Clone, Default)]
pub(super) struct Cuts {
    pub(super) now: Moment,
    all: Vec<Cut>,
    pub(super) loose: Vec<Loose>,
    /// What was taken, and when: who asked before may still be shown it.
    gone: Vec<(u64, Record, Moment)>,
}

impl Cuts {
    /// A cut begins; `behind` is what it would take. Returns the moment that names it.
    pub(super) fn begin(&mut self, to: u64, behind: Vec<Option<Record>>, certain: u64) -> Moment {
        let now = self.now;
        self.loose.extend((to + 1..).zip(behind).map(|(lsn, record)| Loose {
            lsn,
            record,
            called: now,
            given: now,
            is_certain: lsn <= certain,
        }));
        self.now += 1;
        self.all.push(Cut { to, begun: self.now, ended: Moment::MAX });
        self.now
    }

    /// It has come true. `may_be_asked`: a reader that asked before may be shown what it took.
    pub(super) fn end(&mut self, begun: Moment, may_be_asked: bool) {
        let now = self.now;
        let Some(cut) = self.all.iter_mut().find(|cut| cut.begun == begun) else { return };
        cut.ended = now;
        let taken = self.loose.extract_if(.., |loose| cut.takes(loose));
        let taken = taken.filter_map(|loose| Some((loose.lsn, loose.record?, now)));
        match may_be_asked {
            true => self.gone.extend(taken),
            false => taken.for_each(drop),
        }
        let last = self.loose.iter_mut().filter(|loose| loose.lsn == cut.to);
        last.filter_map(|loose| loose.record.as_mut()).for_each(|record| record.has_more = false);
    }

    /// It has changed nothing, and will not: what no other cut may have taken is returned.
    pub(super) fn undo(&mut self, begun: Moment) -> Vec<Loose> {
        self.all.retain(|cut| cut.begun != begun);
        self.settled()
    }

    /// What is there for sure, and loose no longer.
    pub(super) fn settled(&mut self) -> Vec<Loose> {
        let all = &self.all;
        let is_there = |loose: &mut Loose| !all.iter().any(|cut| cut.may_take(loose));
        self.loose.extract_if(.., is_there).collect()
    }

    /// The lowest LSN that a cut beside a call leaves which began then.
    pub(super) fn left(&self, begun: Moment) -> u64 {
        let beside = self.all.iter().filter(|cut| cut.ended >= begun);
        beside.map(|cut| cut.to).min().unwrap_or(u64::MAX)
    }

    /// Whether a cut beside a call that began then may have made this LSN the last one.
    pub(super) fn may_end_at(&self, lsn: u64, begun: Moment) -> bool {
        self.all.iter().any(|cut| cut.to == lsn && cut.ended >= begun)
    }

    /// A log was opened and read, and `last` is its last LSN: nothing is in doubt. A reader that
    /// sleeps is still told of the cuts that have come true.
    pub(super) fn settle(&mut self, last: u64) {
        let mut all = std::mem::take(&mut self.all);
        all.retain(|cut| cut.ended < Moment::MAX || cut.to == last);
        all.iter_mut().for_each(|cut| cut.ended = cut.ended.min(self.now));
        *self = Self { now: self.now + 1, all, ..Self::default() };
    }

    /// The cut in doubt that leaves this LSN, if no other one since `since` does.
    pub(super) fn only_in_doubt(&self, last: u64, since: Moment) -> Option<Moment> {
        let mut may_be = self.all.iter().filter(|cut| cut.to == last && cut.ended >= since);
        let cut = may_be.next().filter(|cut| cut.ended == Moment::MAX);
        cut.filter(|_| may_be.next().is_none()).map(|cut| cut.begun)
    }

    /// Another record has this LSN.
    pub(super) fn displace(&mut self, lsn: u64) {
        for loose in self.loose.extract_if(.., |loose| loose.lsn == lsn) {
            self.gone.extend(loose.record.map(|record| (lsn, record, self.now)));
        }
    }

    /// Whether these bytes were there since `begun`, and were taken.
    pub(super) fn was_taken_since(&self, begun: Moment, lsn: u64, bytes: &[u8]) -> bool {
        let is_it = |(at, record, when): &(u64, Record, Moment)| {
            *at == lsn && *when >= begun && record.payload() == bytes
        };
        self.gone.iter().any(is_it)
    }

    /// The lowest LSN that is left by cuts which began after `since` and had ended before `begun`.
    pub(super) fn lowest_between(&self, since: Moment, begun: Moment) -> Option<u64> {
        let between = self.all.iter().filter(|cut| cut.begun > since && cut.ended < begun);
        between.map(|cut| cut.to).min()
    }

    /// Of what was found from `first` on, and of what is missing: each record that is certain is
    /// there, or a cut may have taken it that has taken nothing of what is there.
    pub(super) fn missing(
        &self,
        first: u64,
        is_there: impl Fn(&(u64, Record)) -> bool,
    ) -> Option<u64> {
        let is_there = |loose: &Loose, record| is_there(&(loose.lsn, record));
        let is_refuted = |cut: &Cut| {
            let is_left = |loose: &Loose| {
                cut.takes(loose) && loose.record.is_some_and(|record| is_there(loose, record))
            };
            self.loose.iter().any(is_left)
        };
        let is_lost = |loose: &&Loose| {
            let is_gone = loose.record.is_some_and(|record| !is_there(loose, record));
            let is_cut = |cut: &Cut| cut.may_take(loose) && !is_refuted(cut);
            loose.is_certain && loose.lsn >= first && is_gone && !self.all.iter().any(is_cut)
        };
        self.loose.iter().find(is_lost).map(|loose| loose.lsn)
    }

    /// An opening has shown that `last` is the last; `in_doubt` records more may have followed a
    /// cut. Returns what is there for sure then, or `None` if something certain is missing.
    pub(super) fn opened(&mut self, last: u64, in_doubt: u64) -> Option<Vec<Loose>> {
        let may_be_true = |cut: &Cut| {
            let follow = self.loose.iter().filter(|loose| loose.given > cut.begun).count() as u64;
            cut.ended < Moment::MAX || cut.to <= last && last - cut.to <= in_doubt + follow
        };
        let mut all = std::mem::take(&mut self.all);
        all.retain(may_be_true);
        all.iter_mut().for_each(|cut| cut.ended = cut.ended.min(self.now));
        self.all = all;
        let there = self.settled();
        let is_whole = there.iter().all(|loose| loose.lsn <= last || !loose.is_certain);
        self.loose.retain(|loose| loose.lsn <= last);
        self.loose.iter_mut().for_each(|loose| loose.is_certain = false);
        is_whole.then_some(there)
    }
}
