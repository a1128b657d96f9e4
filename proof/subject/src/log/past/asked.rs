//! What a reader in the writer's process may get that asks for an LSN.
//!
//! *Owns*: these clauses, also beside a cut. *May not touch*: reading.

use super::super::clauses::{ASKED, TOLD};
use super::super::cuts::Moment;
use super::super::record::Record;
use super::super::words::Got;
use super::{Callers, Past};
use crate::{Broken, clause};

/// When a cursor asked last, and when it was answered; or when it was placed.
pub type Since = (Moment, Moment);

/// A question of a reader, and what was known then.
#[derive(Debug, Clone, Copy)]
pub struct Asking {
    lsn: u64,
    first: u64,
    certain: u64,
    begun: Moment,
    /// Of a cursor.
    since: Option<Since>,
    /// Of another process, which may not see the newest records yet: up to where the writer says
    /// that all is durable.
    afar: Option<u64>,
}

impl Asking {
    /// It is asked in another process, which may be behind, and may see what is durable although no
    /// call has said so.
    #[must_use]
    pub fn from_afar(self, durable: u64) -> Self {
        Self { afar: Some(durable), ..self }
    }
}

impl Past {
    /// A cursor is placed now.
    pub fn since(&self) -> Since {
        (self.cuts.now, self.cuts.now)
    }

    /// A reader in the writer's process asks for an LSN; or a cursor does, which asked last then.
    pub fn asks(&self, lsn: u64, since: Option<Since>) -> Asking {
        let begun = self.cuts.now + 1;
        let (first, certain) = (self.first, self.certain);
        Asking { lsn, first, certain, begun, since, afar: None }
    }

    /// What it gets. Returns since when a cursor asks next.
    ///
    /// # Errors
    /// The promise that is broken.
    pub fn check_asked(&self, asking: &Asking, got: &Got) -> Result<Since, Broken> {
        let Asking { lsn, first, certain, begun, since, afar } = *asking;
        let words = || {
            let got = got.words(self.numbers);
            format!("LSN {lsn}, {first}..={certain} are certain: a reader gets {got}")
        };
        let cut = since.and_then(|(_, since)| self.cuts.lowest_between(since, begun));
        let cut = cut.filter(|last| lsn > last + 1);
        let is_told = match got {
            Got::Record(..) | Got::Nothing => false,
            Got::TruncatedAfter(last) => Some(*last) <= cut,
            _ => true,
        };
        clause(TOLD, cut.is_none() || is_told, words)?;
        let is_durable = |lsn: u64| lsn <= certain.min(self.cuts.left(begun));
        let last_first = self.firsts().fold(first, u64::max);
        let is_right = match got {
            Got::Record(at, bytes) => {
                // What a cut in doubt may have taken is durable until it is gone.
                let is_loose = || self.cuts.loose.iter().any(|loose| loose.is(lsn, bytes));
                let may_be = self.callers == Callers::Many
                    || is_durable(lsn)
                    || afar.is_some_and(|durable| lsn <= durable || is_loose());
                *at == lsn && lsn >= first && may_be && self.may_hold(lsn, bytes, begun)
            }
            Got::Nothing => afar.is_some() || !is_durable(lsn),
            Got::Over(_) => !is_durable(lsn.max(last_first)),
            Got::TruncatedBefore(told) => lsn < last_first && (first..=last_first).contains(told),
            Got::TruncatedAfter(last) => {
                let since = since.map_or(0, |(since, _)| since);
                lsn > last + 1 && self.cuts.may_end_at(*last, since)
            }
            Got::Failed(_) => false,
        };
        clause(ASKED, is_right, words)?;
        Ok((begun, self.cuts.now))
    }

    /// Whether a reader that asked then may be shown these bytes.
    pub(super) fn may_hold(&self, lsn: u64, bytes: &[u8], begun: Moment) -> bool {
        let is_it = |record: &Record| record.payload() == bytes;
        self.at(lsn).is_some_and(is_it)
            || self.cuts.loose.iter().any(|loose| loose.is(lsn, bytes))
            || self.cuts.was_taken_since(begun, lsn, bytes)
            || self.in_doubt(lsn, bytes).is_some()
    }

    /// The record in doubt that these bytes are: of which call, and where there.
    fn in_doubt(&self, lsn: u64, bytes: &[u8]) -> Option<(usize, usize)> {
        let mut doubts = self.doubts.iter().enumerate().filter(|(_, doubt)| lsn > doubt.after);
        doubts.find_map(|(index, doubt)| {
            let is_it = |record: &Record| record.payload() == bytes;
            let at = doubt.call.records().iter().position(is_it)?;
            doubt.seen.is_none_or(|seen| seen + at as u64 == lsn).then_some((index, at))
        })
    }

    /// As [`Past::check_asked`]; and what was shown is a promise.
    ///
    /// # Errors
    /// The promise that is broken.
    pub fn asked(&mut self, asking: &Asking, got: &Got) -> Result<Since, Broken> {
        let since = self.check_asked(asking, got)?;
        match got {
            Got::Record(lsn, bytes) => self.was_shown(*lsn, bytes, asking.begun),
            // With one caller no cut is in progress: one that failed has come true.
            Got::TruncatedAfter(last) if self.callers == Callers::One => {
                let since = asking.since.map_or(0, |(since, _)| since);
                let in_doubt = self.cuts.only_in_doubt(*last, since);
                in_doubt.into_iter().for_each(|begun| self.end_cut(begun, *last));
            }
            _ => {}
        }
        Ok(since)
    }

    /// A reader that asked then was shown this record.
    fn was_shown(&mut self, lsn: u64, bytes: &[u8], begun: Moment) {
        if self.at(lsn).is_some_and(|record| record.payload() == bytes) {
            self.certain = self.certain.max(lsn);
            return;
        }
        if let Some(loose) = self.cuts.loose.iter_mut().find(|loose| loose.is(lsn, bytes)) {
            // No cut has taken it that had ended by then.
            (loose.called, loose.is_certain) = (loose.called.max(begun), true);
            let there = self.cuts.settled();
            self.put_back(there);
        } else if !self.cuts.was_taken_since(begun, lsn, bytes)
            && let Some((index, at)) = self.in_doubt(lsn, bytes)
        {
            let doubt = &mut self.doubts[index];
            doubt.seen = lsn.checked_sub(at as u64);
            let (record, called) = (doubt.call.records()[at], doubt.begun.max(begun));
            self.place(lsn, record, called, true);
        }
        self.certain = self.certain.max(lsn.min(self.cuts.left(begun)));
    }
}
