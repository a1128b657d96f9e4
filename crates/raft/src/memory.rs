//! What is known of a raft group without reading.
//!
//! *Owns*: the state, the last entries, the votes that are not durable yet: what changes together.
//! *May not touch*: the lock around it, the order of writes (`group.rs`).

use std::collections::VecDeque;
use std::sync::Arc;

use inkstone::Lsn;

use crate::error::Result;
use crate::state::{Change, State};
use crate::tail::Tail;
use crate::words::Vote;

/// What is known without reading.
#[derive(Debug)]
pub(crate) struct Memory {
    /// As of the last record that was appended.
    pub(crate) state: State,
    pub(crate) tail: Tail,
    /// How often the last entries went, so that others may have come in their place.
    pub(crate) truncations: u64,
    /// The last vote that is known to be durable, and those that came after it, each with its
    /// record.
    votes: VecDeque<(Lsn, Option<Vote>)>,
    /// What was saved as committed last has no record yet.
    pub(crate) is_to_say: bool,
}

impl Memory {
    /// Of a group that is durable as it is.
    pub(crate) fn new(state: State) -> Self {
        let votes = VecDeque::from([(Lsn::ZERO, state.vote.clone())]);
        Self { state, tail: Tail::default(), truncations: 0, votes, is_to_say: false }
    }

    /// The last vote that is durable, if the log is so up to this record.
    pub(crate) fn durable_vote(&mut self, durable: Lsn) -> Option<&Vote> {
        while self.votes.get(1).is_some_and(|(lsn, _)| *lsn <= durable) {
            self.votes.pop_front();
        }
        self.votes.front().and_then(|(_, vote)| vote.as_ref())
    }

    /// Makes a change that was checked and has a record. `payloads`: those of the entries that
    /// follow.
    pub(crate) fn make(
        &mut self,
        change: &Change<'_>,
        lsn: Lsn,
        payloads: &mut impl Iterator<Item = Arc<[u8]>>,
    ) {
        match change {
            Change::Append(entries) => {
                for (entry, payload) in entries.iter().zip(payloads) {
                    self.tail.push(entry.index, (lsn, payload));
                }
            }
            Change::Vote(vote) => self.votes.push_back((lsn, Some(vote.clone()))),
            _ => {}
        }
        let next = self.state.next;
        self.state.apply(change);
        self.truncations += u64::from(self.state.next < next);
        self.mind_bounds();
    }

    /// Notes what is committed. It gets a record with the next change, or at the end.
    pub(crate) fn save_committed(&mut self, index: u64) -> Result<()> {
        let change = Change::Commit(index);
        self.state.check(&change)?;
        if !self.state.is_done(&change) {
            self.state.apply(&change);
            self.is_to_say = true;
        }
        Ok(())
    }

    /// Makes a purge without a record, up to an entry that is here or was purged last.
    pub(crate) fn purge_unrecorded(&mut self, index: u64) {
        if let Some(upto) = self.state.id_of(index) {
            self.state.purge(&upto);
            self.mind_bounds();
        }
    }

    /// Entries that the state no longer has leave memory.
    fn mind_bounds(&mut self) {
        self.tail.truncate(self.state.next);
        self.tail.purge_before(self.state.first);
    }
}
