//! What a salvage may leave out of a damaged log, and what it may say of that.
//!
//! *Owns*: these clauses. *May not touch*: salvaging, reading.

use super::super::clauses::{SAVED, WRONG};
use super::super::cuts::Moment;
use super::super::record::Record;
use super::super::words::Shown;
use super::{Lied, Past};
use crate::{Broken, clause};

impl Past {
    /// What was saved is what was there, in its place; what is not there is a gap, also in words. If
    /// all was promised and one bit is damaged, one record is lost, or one batch.
    pub(super) fn check_saved(&self, shown: &Shown, said: &[(u64, u64)]) -> Result<(), Broken> {
        let is_known = matches!(self.lied, Lied::Lost | Lied::Covered | Lied::Flipped);
        for (lsn, bytes) in shown.records() {
            let is_it = match is_known {
                true => self.may_hold(lsn, bytes, Moment::MAX),
                false => Record::is_one(bytes, self.numbers),
            };
            clause(WRONG, is_it, || {
                format!("saved, LSN {lsn} holds {}", Record::named(bytes, self.numbers))
            })?;
        }
        if !is_known || !shown.is_open && self.lied != Lied::Flipped {
            return Ok(());
        }
        clause(SAVED, shown.failed.is_none(), || shown.failed.clone().unwrap_or_default())?;
        let lost = match shown.is_open {
            true => shown.gaps.clone(),
            // Not one record was found.
            false => (self.first..=self.last()).map(|lsn| (lsn, lsn)).collect(),
        };
        if shown.is_open {
            Self::check_places(shown)?;
            let is_there = |gap: &&(u64, u64)| gap.1 >= shown.first;
            let are_said = said.iter().filter(is_there).eq(shown.gaps.iter());
            clause(SAVED, are_said, || format!("{said:?} are said to be lost, not {lost:?}"))?;
        }
        if self.lied == Lied::Flipped {
            self.check_lost(shown, &lost)?;
        }
        Ok(())
    }

    /// From the first LSN to the last each is that of a record, or in a gap; and a reader by LSN says
    /// the same.
    fn check_places(shown: &Shown) -> Result<(), Broken> {
        let records = shown.records().map(|(lsn, _)| (lsn, lsn));
        let mut all: Vec<_> = records.chain(shown.gaps.iter().copied()).collect();
        all.sort_unstable();
        let mut next = shown.first;
        for (first, last) in all {
            clause(SAVED, first == next && last >= first, || {
                format!("LSN {next} is neither saved nor lost, or twice")
            })?;
            next = last + 1;
        }
        clause(SAVED, next == shown.last + 1, || {
            format!("the saved log ends at {}, not at {}", next - 1, shown.last)
        })?;
        for (lsn, bytes) in &shown.again {
            let is_lost = shown.gaps.iter().any(|gap| (gap.0..=gap.1).contains(lsn));
            clause(SAVED, bytes.is_err() == is_lost, || format!("saved, LSN {lsn}: {bytes:?}"))?;
        }
        Ok(())
    }

    /// One bit costs one record, or one batch.
    fn check_lost(&self, shown: &Shown, lost: &[(u64, u64)]) -> Result<(), Broken> {
        let has_more = |lsn: u64| self.at(lsn).is_some_and(|record| record.has_more);
        let (first, last) = (self.first, self.last());
        // The bit may be in what says where the log begins.
        let is_whole = !shown.is_open || shown.first <= first && shown.last == last;
        clause(SAVED, is_whole, || {
            let Shown { first: is_first, last: is_last, .. } = shown;
            format!("a bit rots, and of {first}..={last} there are {is_first}..={is_last}")
        })?;
        let lost: Vec<u64> = lost.iter().flat_map(|gap| gap.0.max(first)..=gap.1).collect();
        let is_one = lost.windows(2).all(|pair| pair[1] == pair[0] + 1 && has_more(pair[0]));
        let ends = lost.first().zip(lost.last());
        let is_all = ends.is_none_or(|(begin, end)| {
            (*begin == first || !has_more(begin - 1)) && !has_more(*end)
        });
        clause(SAVED, is_one && is_all, || format!("a bit rots, and {lost:?} are lost"))
    }
}
