//! The history of a log's cuts, which the header of each segment carries.
//!
//! *Owns*: what is kept of each `truncate_after`, its bytes, and the one question that a reader
//! asks. *May not touch*: whether a history may be believed (its header is a record of the log like
//! any other).
//!
//! A reader that slept remembers how many cuts there had been when it last gave a record. Any newer
//! header tells it the lowest LSN that was kept since, although the segments that were begun by
//! those cuts may be gone.

use core::fmt;

use crate::bytes::{all_zero, put_u64, u64_at};
use crate::limits::CUTS_KNOWN;
use crate::types::Lsn;

/// Bytes of a history in a header.
pub(crate) const CUTS_BYTES: usize = KEPT_AT + 8 * CUTS_KNOWN;
const COUNT_AT: usize = 0;
const OLDER_AT: usize = 8;
const KEPT_AT: usize = 16;

/// The history says how often `truncate_after` has cut a log, and what each cut has kept.
///
/// The last [`CUTS_KNOWN`] cuts are known one by one; of all older ones together, the lowest LSN.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Cuts {
    count: u64,
    /// The lowest LSN that was kept by the cuts that are not in `kept`; 0 if there are none.
    older: Lsn,
    /// The last LSN that cut number `n` has kept, from 1, is at `(n - 1) % CUTS_KNOWN`.
    kept: [Lsn; CUTS_KNOWN],
}

impl Cuts {
    /// The history of a new log.
    pub const NONE: Self = Self { count: 0, older: Lsn::ZERO, kept: [Lsn::ZERO; CUTS_KNOWN] };

    /// The number of cuts in the log's life.
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// The last LSN that the last cut has kept; `None` if there was no cut.
    pub fn last_kept(&self) -> Option<Lsn> {
        self.count.checked_sub(1).map(|before| self.kept[place(before)])
    }

    /// The history after one more cut, which keeps the records up to `kept`.
    #[must_use]
    pub fn with(mut self, kept: Lsn) -> Self {
        let slot = place(self.count);
        let falls_out = self.kept[slot];
        match self.count.checked_sub(CUTS_KNOWN as u64) {
            None => {}
            Some(0) => self.older = falls_out,
            Some(_) => self.older = self.older.min(falls_out),
        }
        self.kept[slot] = kept;
        self.count += 1;
        self
    }

    /// The lowest last LSN that the cuts after the first `count` ones have kept; `None` if there
    /// was none. Records up to that LSN are still those of then. If some of these cuts are too old
    /// to be known one by one, it may be lower than it was.
    pub fn lowest_since(&self, count: u64) -> Option<Lsn> {
        self.known().filter(|(number, _)| *number > count).map(|(_, kept)| kept).min()
    }

    /// True if this history may be what became of `earlier`: it counts at least as many cuts. If it
    /// still knows the last cut of `earlier` by itself, both say the same of that cut.
    pub fn continues(&self, earlier: &Self) -> bool {
        let last = earlier.last_kept().map(|kept| (earlier.count, kept));
        let is_known = self.count - self.count.min(earlier.count) < CUTS_KNOWN as u64;
        self.count >= earlier.count
            && last.is_none_or(|last| !is_known || self.known().any(|known| known == last))
    }

    /// The number of each known cut, from 1, and what it has kept, in their order. The older ones
    /// are one cut, with the number of the last of them.
    pub fn known(&self) -> impl Iterator<Item = (u64, Lsn)> + '_ {
        let first = self.count.saturating_sub(CUTS_KNOWN as u64);
        let older = (first > 0).then_some((first, self.older));
        older.into_iter().chain((first..self.count).map(|at| (at + 1, self.kept[place(at)])))
    }

    pub(crate) fn encode(&self, bytes: &mut [u8]) {
        put_u64(bytes, COUNT_AT, self.count);
        put_u64(bytes, OLDER_AT, self.older.get());
        for (index, kept) in self.kept.iter().enumerate() {
            put_u64(bytes, KEPT_AT + 8 * index, kept.get());
        }
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, &'static str> {
        let count = u64_at(bytes, COUNT_AT);
        let kept = core::array::from_fn(|index| Lsn::new(u64_at(bytes, KEPT_AT + 8 * index)));
        let cuts = Self { count, older: Lsn::new(u64_at(bytes, OLDER_AT)), kept };
        let used = usize::try_from(count).unwrap_or(CUTS_KNOWN).min(CUTS_KNOWN);
        if !all_zero(&bytes[KEPT_AT + 8 * used..CUTS_BYTES]) {
            return Err("a cut that was not counted");
        }
        if count <= CUTS_KNOWN as u64 && cuts.older != Lsn::ZERO {
            return Err("an older cut, and all are known");
        }
        Ok(cuts)
    }
}

/// The place of the cut after so many others.
const fn place(before: u64) -> usize {
    (before % CUTS_KNOWN as u64) as usize
}

impl fmt::Debug for Cuts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cuts").field("count", &self.count).field("last", &self.last_kept()).finish()
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    /// Against a list of all cuts: exact as long as they are known one by one, and never too high.
    #[test]
    fn the_lowest_since_is_that_of_a_list_of_all_cuts() {
        let mut list: Vec<Lsn> = Vec::new();
        let mut cuts = Cuts::NONE;
        let mut bytes = [0; CUTS_BYTES];
        for round in 0..4 * CUTS_KNOWN as u64 {
            for count in 0..=round + 1 {
                let all = list.iter().skip(count as usize).min().copied();
                let said = cuts.lowest_since(count);
                if count + CUTS_KNOWN as u64 >= round {
                    assert_eq!(said, all, "{count} of {round}");
                } else {
                    assert_eq!(said, list.iter().min().copied().min(all), "{count} of {round}");
                }
            }
            assert_eq!((cuts.count(), cuts.last_kept()), (round, list.last().copied()));
            cuts.encode(&mut bytes);
            assert_eq!(Cuts::decode(&bytes), Ok(cuts));
            assert!(cuts.continues(&cuts) && cuts.continues(&Cuts::NONE));
            let kept = Lsn::new(1 + (round + 7) * 0x9e37_79b9 % 1000);
            list.push(kept);
            let next = cuts.with(kept);
            let other = cuts.with(Lsn::new(kept.get() + 1));
            assert!(next.continues(&cuts) && !cuts.continues(&next) && !other.continues(&next));
            let much_later = (1..100).fold(other, |cuts, last| cuts.with(Lsn::new(last)));
            assert!(much_later.continues(&next), "nothing is known of that cut any more");
            cuts = next;
        }
    }

    #[test]
    fn what_no_log_writes_is_refused() {
        let bytes_of = |cuts: &Cuts| {
            let mut bytes = [0; CUTS_BYTES];
            cuts.encode(&mut bytes);
            bytes
        };
        let one = bytes_of(&Cuts::NONE.with(Lsn::new(5)));
        assert!(Cuts::decode(&one).is_ok());
        for at in [OLDER_AT, KEPT_AT + 8, CUTS_BYTES - 1] {
            let mut bytes = one;
            bytes[at] = 1;
            assert!(Cuts::decode(&bytes).is_err(), "byte {at}");
        }
        let mut uncounted = one;
        uncounted[COUNT_AT] = 0;
        assert!(Cuts::decode(&uncounted).is_err());
    }
}
