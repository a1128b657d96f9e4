//! The chronicle: the log, as the network has seen it.
//!
//! *Owns*: every entry that a leader sent, and behind which one. *May not touch*: what nodes do
//! with it.
//!
//! An entry is committed only when another node has it, so it was sent; and it was sent behind the
//! entry that it follows. So the last entry that all nodes have applied at the end names all before
//! it, and with them the order of everything that happened: no disk needs to be read, and nothing
//! is missing that nodes have purged.

use std::collections::{BTreeMap, BTreeSet};

use openraft::EntryPayload;
use openraft::raft::AppendEntriesRequest;
use replicated_log::types::{LogId, Request, TypeConfig};

use crate::check::Changes;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// A leader begins.
    Blank,
    Change(Request),
    Members(Members),
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Members {
    /// Those who vote: two sets, of which each must agree, while one becomes the other.
    pub voters: Vec<BTreeSet<u64>>,
    /// All, with those who only learn.
    pub all: BTreeSet<u64>,
}

impl Members {
    pub fn votes(&self, id: u64) -> bool {
        self.voters.iter().any(|voters| voters.contains(&id))
    }
}

#[derive(Debug)]
struct Sent {
    behind: Option<LogId>,
    entry: Entry,
}

#[derive(Debug, Clone)]
pub struct Entry {
    pub id: LogId,
    pub what: What,
    /// When it was sent first: a place among all events.
    pub sent: u64,
}

#[derive(Debug, Default)]
pub struct Chronicle {
    sent: BTreeMap<LogId, Sent>,
}

/// A log: under each index the entry.
pub type Entries = BTreeMap<u64, Entry>;

impl Chronicle {
    /// Notes what a leader sends, and when. Two entries with one id are what raft rules out.
    pub fn note(&mut self, request: &AppendEntriesRequest<TypeConfig>, now: u64) -> Option<String> {
        let mut behind = request.prev_log_id;
        for entry in &request.entries {
            let what = match &entry.payload {
                EntryPayload::Blank => What::Blank,
                EntryPayload::Normal(request) => What::Change(request.clone()),
                EntryPayload::Membership(membership) => What::Members(Members {
                    voters: membership.get_joint_config().clone(),
                    all: membership.nodes().map(|(id, _)| *id).collect(),
                }),
            };
            let id = entry.log_id;
            let new = || Sent { behind, entry: Entry { id, what: what.clone(), sent: now } };
            let first = self.sent.entry(id).or_insert_with(new);
            if (first.behind, &first.entry.what) != (behind, &what) {
                return Some(format!("entry {} was sent in two forms", entry.log_id));
            }
            behind = Some(entry.log_id);
        }
        None
    }

    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.sent.values().map(|sent| &sent.entry)
    }

    /// The log whose last entry is `last`.
    pub fn up_to(&self, last: LogId) -> Result<Entries, String> {
        let mut entries = Entries::new();
        let mut next = Some(last);
        while let Some(id) = next {
            let Some(sent) = self.sent.get(&id) else {
                return Err(format!("entry {id} was applied, and no leader ever sent it"));
            };
            entries.insert(id.index, sent.entry.clone());
            next = sent.behind;
        }
        Ok(entries)
    }
}

/// Whether this log has another entry, or none, at the index of an entry that a node has applied.
pub fn differs(entries: &Entries, node: u64, applied: LogId) -> Option<String> {
    let Some(Entry { id, .. }) = entries.get(&applied.index) else {
        let last = entries.keys().next_back();
        let is_beyond = last.is_none_or(|last| *last < applied.index);
        return is_beyond.then(|| {
            format!("node {node} has applied entry {applied}, and the log ends at {last:?}")
        });
    };
    (*id != applied)
        .then(|| format!("node {node} has applied entry {applied}, and the log has {id} there"))
}

pub fn changes(entries: &Entries) -> Changes {
    let change = |(index, entry): (&u64, &Entry)| match &entry.what {
        What::Change(request) => Some((*index, request.clone())),
        _ => None,
    };
    entries.iter().filter_map(change).collect()
}

/// The memberships of a log, in order, and when each was sent first.
pub fn memberships(entries: &Entries) -> Vec<(u64, Members)> {
    let members = |entry: &Entry| match &entry.what {
        What::Members(members) => Some((entry.sent, members.clone())),
        _ => None,
    };
    entries.values().filter_map(members).collect()
}
