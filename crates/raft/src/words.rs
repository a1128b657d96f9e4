//! The words of a raft log: leader, entry, vote.
//!
//! *Owns*: what callers pass in and get back. *May not touch*: bytes (`record.rs`), rules
//! (`state.rs`).

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

/// The leader that made an entry, or for whom a vote was cast: its term, and its name where a
/// framework tells leaders of one term apart. Leaders are ordered by term, then by name.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Leader {
    /// The term.
    pub term: u64,
    /// The leader's name: up to 255 bytes that sort as the framework sorts leaders (a number big
    /// endian, say). Empty where the term says it all.
    pub node: Vec<u8>,
}

impl Leader {
    /// The leader of a term that has one leader only.
    pub fn of_term(term: u64) -> Self {
        Self { term, node: Vec::new() }
    }

    /// A leader with a name.
    pub fn new(term: u64, node: impl Into<Vec<u8>>) -> Self {
        Self { term, node: node.into() }
    }
}

impl fmt::Display for Leader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "term {}", self.term)?;
        if !self.node.is_empty() {
            write!(f, " of node {}", self.node.escape_ascii())?;
        }
        Ok(())
    }
}

/// Which entry: its index, and the leader that made it. Two logs that have the same entry id have
/// the same entries up to there.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryId {
    /// The leader that made it.
    pub leader: Leader,
    /// Its index.
    pub index: u64,
}

impl EntryId {
    /// The id of an entry.
    pub fn new(leader: Leader, index: u64) -> Self {
        Self { leader, index }
    }
}

impl fmt::Display for EntryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "entry {} of {}", self.index, self.leader)
    }
}

/// An entry to be appended. The bytes are copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewEntry<'a> {
    /// The leader that made it.
    pub leader: &'a Leader,
    /// Its index: one above that of the entry before.
    pub index: u64,
    /// What it says. The raft log does not look into it.
    pub payload: &'a [u8],
}

/// An entry that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its index and leader.
    pub id: EntryId,
    /// What it says; shared with the memory of the raft log where it came from there.
    pub payload: Arc<[u8]>,
}

/// A vote. Which vote may follow which: [`Vote::may_follow`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Vote {
    /// For whom, and in which term.
    pub leader: Leader,
    /// Whether the leader is known to have a quorum. Raft without that notion leaves it false.
    pub is_granted: bool,
}

impl Vote {
    /// A vote for a candidate.
    pub fn new(leader: Leader) -> Self {
        Self { leader, is_granted: false }
    }

    /// The vote of a leader that a quorum has elected.
    pub fn granted(leader: Leader) -> Self {
        Self { leader, is_granted: true }
    }

    /// Whether a raft log that has saved `saved` takes this vote. It refuses what goes back for
    /// certain, whether a term has one leader or several:
    ///
    /// - a lower term;
    /// - for the same leader: a vote that is not granted, after the granted one;
    /// - for another leader of the same term: a lower name, unless this vote is granted and the
    ///   saved one is not.
    ///
    /// Where a term has one leader, votes of its candidates have no order until one is granted, and
    /// the granted one follows the others. Where it has several, they follow each other by name.
    /// The raft log does not know which of the two holds, so the caller sees to the rest: never to
    /// vote for two candidates of a term that has one leader.
    pub fn may_follow(&self, saved: &Self) -> bool {
        let is_first_granted = self.is_granted && !saved.is_granted;
        match self.leader.cmp(&saved.leader) {
            Ordering::Less => self.leader.term == saved.leader.term && is_first_granted,
            Ordering::Equal => self.is_granted || !saved.is_granted,
            Ordering::Greater => true,
        }
    }
}

impl fmt::Display for Vote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a vote for {}{}", self.leader, if self.is_granted { ", granted" } else { "" })
    }
}

/// Where a raft log stands. [`crate::RaftReader::bounds`] returns it.
///
/// A raft log without entries that was never purged has no first index yet: `first` and `next` are
/// 0 then, and its first entry may have any index.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Bounds {
    /// The index of the first entry that is left, or that will come if there is none.
    pub first: u64,
    /// The index that the next entry must have.
    pub next: u64,
    /// The last entry; what was purged last if there is none; `None` for a raft log that never had
    /// any.
    pub last: Option<EntryId>,
    /// The last entry that was purged: the one before `first`.
    pub purged: Option<EntryId>,
    /// The last entry that is known to be committed: by [`crate::RaftLog::save_committed`], or
    /// since it was purged.
    pub committed: Option<EntryId>,
    /// What [`crate::RaftLog::save_committed`] said last, also if it was purged since. A state
    /// machine that has less and no snapshot has lost what it had.
    pub saved_committed: Option<EntryId>,
}
