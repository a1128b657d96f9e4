//! Who made which entries: what many in a row have in common, stored once.
//!
//! *Owns*: runs of entries of one leader. *May not touch*: rules (`state.rs`).
//!
//! A run ends where the leader changes. So runs grow with elections, not with entries, and a purge
//! shortens them.

use std::collections::VecDeque;

use crate::words::Leader;

/// The leader of the entries from an index on, until the next run begins.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Run {
    first: u64,
    leader: Leader,
}

/// Who made entries: runs in the order of their indexes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Leaders(VecDeque<Run>);

impl Leaders {
    /// Each leader, from which index on.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &Leader)> {
        self.0.iter().map(|run| (run.first, &run.leader))
    }

    pub(crate) fn last(&self) -> Option<&Leader> {
        self.0.back().map(|run| &run.leader)
    }

    /// The number of the run that an index lies in.
    fn number_of(&self, index: u64) -> Option<usize> {
        self.0.partition_point(|run| run.first <= index).checked_sub(1)
    }

    pub(crate) fn leader_of(&self, index: u64) -> Option<&Leader> {
        self.number_of(index).map(|number| &self.0[number].leader)
    }

    /// The first entry of a later leader than this one.
    pub(crate) fn first_above(&self, leader: &Leader) -> Option<u64> {
        self.0.get(self.0.partition_point(|run| run.leader <= *leader)).map(|run| run.first)
    }

    /// The leaders of the indexes `from..to`, each with the index from which on it is the leader.
    pub(crate) fn over(&self, from: u64, to: u64) -> Vec<(u64, Leader)> {
        let runs = self.0.iter().skip(self.number_of(from).unwrap_or(0));
        let runs = runs.take_while(|run| run.first < to);
        runs.map(|run| (run.first, run.leader.clone())).collect()
    }

    pub(crate) fn push(&mut self, first: u64, leader: Leader) {
        self.0.push_back(Run { first, leader });
    }

    /// Notes who made an entry, the next one.
    pub(crate) fn add(&mut self, index: u64, leader: &Leader) {
        if self.last() != Some(leader) {
            self.push(index, leader.clone());
        }
    }

    /// Removes everything from an index on.
    pub(crate) fn truncate(&mut self, from: u64) {
        self.0.truncate(self.0.partition_point(|run| run.first < from));
    }

    pub(crate) fn clear(&mut self) {
        self.0 = VecDeque::new();
    }

    /// Removes the runs that end before `first`; the run that has it begins there then.
    pub(crate) fn purge_before(&mut self, first: u64) {
        self.0.drain(..self.number_of(first).unwrap_or(0));
        // A purge gives memory back: it is what bounds the runs.
        if self.0.capacity() > 64 && self.0.len() < self.0.capacity() / 4 {
            self.0.shrink_to_fit();
        }
        if let Some(run) = self.0.front_mut() {
            run.first = run.first.max(first);
        }
    }
}
