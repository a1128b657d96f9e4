//! The cuts of a log that is open for writing.
//!
//! *Owns*: the answer to the lowest LSN that was kept since any cut. *May not touch*: the history
//! in the headers (`inkstone_format::Cuts`), with which this begins, and which knows only the last
//! cuts.
//!
//! Handles ask here too, and a handle must not be told of a cut that did not touch its record. So
//! the answer is exact for all cuts of this opening. Of several cuts only those count after which
//! none kept less, so a log that cuts for months keeps a short list.

use inkstone_format::{Cuts, Lsn};

/// The cuts since the log was created.
pub(crate) struct CutsSoFar {
    count: u64,
    /// Number and last LSN kept of each cut after which none kept as little: both rise.
    steps: Vec<(u64, Lsn)>,
}

impl CutsSoFar {
    pub(crate) fn of(history: &Cuts) -> Self {
        let mut cuts = Self { count: 0, steps: Vec::new() };
        history.known().for_each(|(number, kept)| cuts.add(number, kept));
        cuts
    }

    /// One more cut, which keeps the records up to `kept`.
    pub(crate) fn note(&mut self, kept: Lsn) {
        self.add(self.count + 1, kept);
    }

    fn add(&mut self, number: u64, kept: Lsn) {
        let lower = self.steps.partition_point(|(_, before)| *before < kept);
        self.steps.truncate(lower);
        self.steps.push((number, kept));
        self.count = number;
    }

    /// How many there were in the log's life.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// The lowest last LSN that the cuts after the first `count` ones have kept.
    pub(crate) fn lowest_since(&self, count: u64) -> Option<Lsn> {
        let earlier = self.steps.partition_point(|(number, _)| *number <= count);
        self.steps.get(earlier).map(|(_, kept)| *kept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_since_is_that_of_a_list_of_all_cuts() {
        let mut random = 7_u64;
        let mut list = Vec::new();
        let (mut history, mut cuts) = (Cuts::NONE, CutsSoFar::of(&Cuts::NONE));
        for round in 0..300_u64 {
            for count in 0..=round {
                let lowest = list.iter().skip(count as usize).min().copied();
                assert_eq!(cuts.lowest_since(count), lowest, "{count} of {round}");
                let from_header = CutsSoFar::of(&history).lowest_since(count);
                assert_eq!(from_header, history.lowest_since(count), "{count} of {round}");
            }
            assert_eq!((cuts.count(), CutsSoFar::of(&history).count()), (round, round));
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1);
            let kept = Lsn::new(random >> 54);
            list.push(kept);
            cuts.note(kept);
            history = history.with(kept);
        }
    }
}
