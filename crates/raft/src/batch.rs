//! A batch: changes of several groups that are made together or not at all.
//!
//! *Owns*: the changes as the caller gives them. *May not touch*: what they mean (`state.rs`), the
//! log.

use std::fmt;
use std::sync::Arc;

use crate::group::Part;
use crate::raft_log::RaftLog;
use crate::state::Change;
use crate::words::{NewEntry, Vote};

/// Changes of any number of groups of one log, made as one record of it: after a crash all of them
/// are there, or none. Those of a group are made in the order in which they were added. Adding
/// checks nothing: [`Groups::apply`](crate::Groups::apply) returns the errors.
///
/// ```
/// use inkstone_raft::{Batch, Groups, Leader, NewEntry, StreamsOptions, Vote};
///
/// # fn main() -> inkstone_raft::Result<()> {
/// # let directory = tempfile::tempdir().expect("a directory");
/// let groups = Groups::open(directory.path(), StreamsOptions::new())?;
/// let (one, two) = (groups.group(1)?, groups.group(2)?);
/// let leader = Leader::of_term(1);
/// let mut batch = Batch::new();
/// batch.append(&one, &[NewEntry { leader: &leader, index: 1, payload: b"split" }]);
/// batch.save_committed(&one, 1);
/// batch.save_vote(&two, Vote::new(leader.clone()));
/// batch.append(&two, &[NewEntry { leader: &leader, index: 1, payload: b"the upper half" }]);
/// groups.apply(&batch)?; // all of it is durable, by one flush
/// # groups.close()
/// # }
/// ```
#[derive(Clone, Default)]
pub struct Batch<'a> {
    changes: Vec<Part<'a>>,
}

impl<'a> Batch<'a> {
    /// An empty batch.
    pub fn new() -> Self {
        Self::default()
    }

    fn add(&mut self, raft: &'a RaftLog, change: Change<'a>) -> &mut Self {
        self.changes.push((&raft.reader.group, change));
        self
    }

    /// Appends entries to a group.
    pub fn append(&mut self, raft: &'a RaftLog, entries: &[NewEntry<'a>]) -> &mut Self {
        if entries.is_empty() {
            return self;
        }
        self.add(raft, Change::Append(entries.to_vec()))
    }

    /// Saves the vote of a group.
    pub fn save_vote(&mut self, raft: &'a RaftLog, vote: Vote) -> &mut Self {
        self.add(raft, Change::Vote(vote))
    }

    /// Truncates the entries of a group from index `from` on.
    pub fn truncate_from(&mut self, raft: &'a RaftLog, from: u64) -> &mut Self {
        self.add(raft, Change::Truncate(from))
    }

    /// Saves what is committed in a group, also of entries that this batch appends before. Unlike
    /// that of [`RaftLog::save_committed`], it is durable with the batch.
    pub fn save_committed(&mut self, raft: &'a RaftLog, index: u64) -> &mut Self {
        self.add(raft, Change::Commit(index))
    }

    /// The changes: those of a group side by side, and the groups in order.
    pub(crate) fn by_group(&self) -> Vec<&Part<'a>> {
        let mut changes: Vec<_> = self.changes.iter().collect();
        // Stable. Of a group that was closed and opened again there are two.
        changes.sort_by_key(|(group, _)| (group.id, Arc::as_ptr(group)));
        changes
    }
}

impl fmt::Debug for Batch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let changes = self.changes.iter().map(|(group, change)| (group.id, change));
        f.debug_list().entries(changes).finish()
    }
}
