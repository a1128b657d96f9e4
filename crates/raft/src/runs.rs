//! Runs: what many entries in a row have in common, stored once.
//!
//! *Owns*: where entries lie (index to LSN) and who made them (index to leader), each as runs. *May
//! not touch*: rules (`state.rs`).
//!
//! A run of places ends where another record comes between two entries: a vote, a truncation, a
//! purge, a state. A run of leaders ends where the leader changes. So both grow with elections,
//! truncations and segments, not with entries, and a purge shortens them.

use std::collections::VecDeque;

use inkstone::Lsn;

use crate::words::Leader;

/// Something that begins at an index and holds until the next run begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Run<T> {
    pub(crate) first: u64,
    pub(crate) what: T,
}

/// Runs in the order of their indexes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Runs<T> {
    runs: VecDeque<Run<T>>,
}

impl<T> Default for Runs<T> {
    fn default() -> Self {
        Self { runs: VecDeque::new() }
    }
}

impl<T> Runs<T> {
    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = &Run<T>> {
        self.runs.iter()
    }

    pub(crate) fn last(&self) -> Option<&T> {
        self.runs.back().map(|run| &run.what)
    }

    /// The number of the run that an index lies in.
    fn number_of(&self, index: u64) -> Option<usize> {
        self.runs.partition_point(|run| run.first <= index).checked_sub(1)
    }

    fn of(&self, index: u64) -> Option<&Run<T>> {
        self.runs.get(self.number_of(index)?)
    }

    /// The index where the run ends that is number `runs_max` from the one of an index on; `end` if
    /// that comes first.
    pub(crate) fn end_of_runs(&self, from: u64, end: u64, runs_max: usize) -> u64 {
        let behind = self.number_of(from).unwrap_or(0).saturating_add(runs_max);
        self.runs.get(behind).map_or(end, |run| run.first.min(end))
    }

    pub(crate) fn push(&mut self, first: u64, what: T) {
        self.runs.push_back(Run { first, what });
    }

    /// Removes everything from an index on.
    pub(crate) fn truncate(&mut self, from: u64) {
        self.runs.truncate(self.runs.partition_point(|run| run.first < from));
    }

    pub(crate) fn clear(&mut self) {
        self.runs = VecDeque::new();
    }

    /// Removes the runs that end before `first`; the run that has it begins there then. Returns by
    /// how much that one was shortened.
    fn shorten(&mut self, first: u64) -> u64 {
        self.runs.drain(..self.number_of(first).unwrap_or(0));
        // A purge gives memory back: it is what bounds the runs.
        if self.runs.capacity() > 64 && self.runs.len() < self.runs.capacity() / 4 {
            self.runs.shrink_to_fit();
        }
        match self.runs.front_mut() {
            Some(run) if run.first < first => first - std::mem::replace(&mut run.first, first),
            _ => 0,
        }
    }
}

/// Where entries lie: the LSN of the first entry of each run; those that follow lie one behind the
/// other.
pub(crate) type Places = Runs<Lsn>;

impl Places {
    /// Notes that an entry, the next one, lies here.
    pub(crate) fn add(&mut self, index: u64, lsn: Lsn) {
        let follows =
            self.runs.back().is_some_and(|run| run.what.plus(index - run.first) == Some(lsn));
        if !follows {
            self.push(index, lsn);
        }
    }

    pub(crate) fn purge_before(&mut self, first: u64) {
        let shortened_by = self.shorten(first);
        if let Some(run) = self.runs.front_mut() {
            // It was checked when the run was made that its LSNs exist.
            run.what = run.what.plus(shortened_by).unwrap_or(run.what);
        }
    }

    /// The index of the first entry at or behind an LSN; `next` if there is none.
    pub(crate) fn first_from(&self, lsn: Lsn, next: u64) -> u64 {
        let Some(number) = self.runs.partition_point(|run| run.what < lsn).checked_sub(1) else {
            return self.runs.front().map_or(next, |run| run.first);
        };
        let end = self.runs.get(number + 1).map_or(next, |run| run.first);
        let run = &self.runs[number];
        run.first.saturating_add(lsn.get() - run.what.get()).min(end)
    }
}

/// Who made entries.
pub(crate) type Leaders = Runs<Leader>;

impl Leaders {
    /// Notes who made an entry, the next one.
    pub(crate) fn add(&mut self, index: u64, leader: &Leader) {
        if self.last() != Some(leader) {
            self.push(index, leader.clone());
        }
    }

    /// The leaders of the indexes `from..to`, each with the index from which on it is the leader.
    pub(crate) fn over(&self, from: u64, to: u64) -> Vec<(u64, Leader)> {
        let begin = self.number_of(from).unwrap_or(0);
        let runs = self.runs.iter().skip(begin).take_while(|run| run.first < to);
        runs.map(|run| (run.first, run.what.clone())).collect()
    }

    /// The first entry of a later leader than this one.
    pub(crate) fn first_above(&self, leader: &Leader) -> Option<u64> {
        self.runs.get(self.runs.partition_point(|run| run.what <= *leader)).map(|run| run.first)
    }

    pub(crate) fn leader_of(&self, index: u64) -> Option<&Leader> {
        self.of(index).map(|run| &run.what)
    }

    pub(crate) fn purge_before(&mut self, first: u64) {
        self.shorten(first);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(of: &[(u64, u64)]) -> Places {
        let mut places = Places::default();
        for &(index, lsn) in of {
            places.add(index, Lsn::new(lsn));
        }
        places
    }

    #[test]
    fn the_first_entry_from_an_lsn_on() {
        let places = places(&[(5, 10), (6, 11), (7, 12), (8, 14), (9, 15)]);
        let first = |lsn| places.first_from(Lsn::new(lsn), 10);
        assert_eq!([1, 10, 11, 12, 13, 14, 15, 16, 99].map(first), [5, 5, 6, 7, 8, 8, 9, 10, 10]);
        assert_eq!(Places::default().first_from(Lsn::new(3), 10), 10);
    }
}
