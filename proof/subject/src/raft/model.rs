//! What a raft log must hold, worked out without one.
//!
//! *Owns*: the contract as a model: a list of entries and three numbers. *May not touch*: files,
//! records, runs.

use inkstone_raft::{EntryId, Leader, RaftLog, Vote};

use crate::states::Thing;

/// What a raft log holds. Without entries, and never purged, it has no first index: `first` is 0.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Model {
    /// The index of the first entry, or of the next one.
    pub first: u64,
    pub vote: Option<Vote>,
    /// The votes before it that a reader may be shown, since it may not be durable yet.
    pub earlier_votes: Vec<Option<Vote>>,
    pub purged: Option<EntryId>,
    pub entries: Vec<(EntryId, Vec<u8>)>,
    pub committed: Option<u64>,
    /// What of it has a record.
    pub recorded: Option<u64>,
    /// The same without what was purged: only what `save_committed` said.
    pub said: Option<EntryId>,
    /// What of it has a record.
    pub said_recorded: Option<EntryId>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// Entries with their payloads.
    Append(Vec<(EntryId, Vec<u8>)>),
    Vote(Vote),
    /// Not waited for.
    VoteThen(Vote),
    Truncate(u64),
    /// Not waited for.
    TruncateThen(u64),
    Commit(u64),
    Purge(EntryId),
    Snapshot(EntryId),
    Sync,
}

impl Op {
    pub fn brief(&self) -> String {
        match self {
            Self::Append(entries) => {
                let all =
                    entries.iter().map(|(id, payload)| format!("{id}: {} bytes", payload.len()));
                format!("append {:?}", all.collect::<Vec<_>>())
            }
            other => format!("{other:?}"),
        }
    }
}

impl Model {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn next(&self) -> u64 {
        self.first + self.entries.len() as u64
    }

    /// Whether the next entry may have any index.
    pub fn is_new(&self) -> bool {
        self.entries.is_empty() && self.purged.is_none()
    }

    /// Who made the last entry, here or purged.
    pub fn last_leader(&self) -> Leader {
        let last = self.entries.last().map(|(id, _)| id).or(self.purged.as_ref());
        last.map(|id| id.leader.clone()).unwrap_or_default()
    }

    /// The id of an entry that is here, or was purged last.
    pub fn id_of(&self, index: u64) -> Option<EntryId> {
        let here = index.checked_sub(self.first).and_then(|at| self.entries.get(at as usize));
        here.map(|(id, _)| id.clone())
            .or_else(|| self.purged.clone().filter(|purged| purged.index == index))
    }

    /// Whether the contract allows the call.
    pub fn allows(&self, op: &Op) -> bool {
        match op {
            Op::Append(entries) => {
                let mut leader = self.last_leader();
                let first = entries
                    .first()
                    .filter(|_| self.is_new())
                    .map_or(self.next(), |(id, _)| id.index);
                (first..).zip(entries).all(|(index, (id, _))| {
                    let fits = id.index == index && id.leader >= leader && id.index != u64::MAX;
                    leader = id.leader.clone();
                    fits
                })
            }
            Op::Vote(vote) | Op::VoteThen(vote) => self.vote.as_ref().is_none_or(|saved| {
                let (came, before) = (&vote.leader, &saved.leader);
                let granted_first = vote.is_granted && !saved.is_granted;
                came.term > before.term
                    || came.term == before.term && (came.node > before.node || granted_first)
                    || came == before && vote.is_granted == saved.is_granted
            }),
            Op::Truncate(from) | Op::TruncateThen(from) => {
                (self.purged.is_none() || *from >= self.first)
                    && self.committed.is_none_or(|committed| *from > committed)
            }
            Op::Commit(index) => self.id_of(*index).is_some() && self.committed <= Some(*index),
            Op::Purge(upto) => {
                let same = self.id_of(upto.index).is_none_or(|id| id == *upto);
                let is_committed = self.committed.is_some_and(|committed| upto.index <= committed);
                same && is_committed && self.follows(upto)
            }
            Op::Snapshot(upto) => {
                let committed = self.committed.and_then(|index| self.id_of(index));
                match committed {
                    Some(committed) if upto.index <= committed.index => {
                        self.id_of(upto.index).is_none_or(|id| id == *upto) && self.follows(upto)
                    }
                    Some(committed) => upto.leader >= committed.leader,
                    None => self.follows(upto),
                }
            }
            Op::Sync => true,
        }
    }

    /// Whether entries that were never purged may begin behind this one.
    fn follows(&self, upto: &EntryId) -> bool {
        match self.entries.first() {
            Some((first, _)) if self.purged.is_none() && upto.index < first.index => {
                upto.index + 1 == first.index
                    && (self.committed.is_none() || upto.leader <= first.leader)
            }
            _ => true,
        }
    }

    /// What the call leads to; it is allowed.
    pub fn after(&self, op: &Op) -> Self {
        let mut next = self.clone();
        match op {
            Op::VoteThen(_) => next.earlier_votes.push(self.vote.clone()),
            Op::Append(_) | Op::TruncateThen(_) | Op::Commit(_) => {}
            _ => next.earlier_votes.clear(),
        }
        let is_record = match op {
            Op::Append(entries) => {
                if let Some((id, _)) = entries.first().filter(|_| self.is_new()) {
                    next.first = id.index;
                }
                next.entries.extend(entries.iter().cloned());
                !entries.is_empty()
            }
            Op::Vote(vote) | Op::VoteThen(vote) => {
                next.vote.replace(vote.clone()).as_ref() != Some(vote)
            }
            Op::Truncate(from) | Op::TruncateThen(from) => {
                next.entries.truncate(
                    from.saturating_sub(self.first).min(self.entries.len() as u64) as usize,
                );
                if next.is_new() {
                    next.first = 0;
                }
                *from < self.next()
            }
            Op::Commit(index) => {
                next.committed = Some(*index);
                next.said = self.id_of(*index);
                false
            }
            Op::Purge(upto) | Op::Snapshot(upto) => {
                let is_new = self.purged.as_ref().is_none_or(|purged| upto.index > purged.index);
                if is_new {
                    let stays = match self.entries.first() {
                        Some((first, _)) if upto.index < first.index => upto.leader <= first.leader,
                        _ => self.id_of(upto.index).as_ref() == Some(upto),
                    };
                    next.entries.retain(|(id, _)| stays && id.index > upto.index);
                    next.first = upto.index + 1;
                    next.purged = Some(upto.clone());
                    next.committed = self.committed.max(Some(upto.index));
                }
                is_new
            }
            Op::Sync => false,
        };
        if is_record {
            next.recorded = next.committed;
            next.said_recorded = next.said.clone();
        }
        next
    }

    /// After a purge up to an entry that is here, of which nothing has a record but that the
    /// entries before are gone.
    pub fn purged_unrecorded(&self, upto: &EntryId) -> Self {
        let mut purged = self.after(&Op::Purge(upto.clone()));
        purged.earlier_votes.clone_from(&self.earlier_votes);
        purged.recorded = self.recorded.max(Some(upto.index));
        purged.said_recorded.clone_from(&self.said_recorded);
        purged
    }

    /// What a raft log shows.
    pub fn of(raft: &RaftLog) -> Result<Self, String> {
        let told = |error: inkstone_raft::Error| format!("cannot be read: {error}");
        let bounds = raft.bounds().map_err(told)?;
        let entries = raft.entries(bounds.first..u64::MAX, usize::MAX).map_err(told)?;
        if bounds.first + entries.len() as u64 != bounds.next {
            return Err(format!("{bounds:?} and {} entries", entries.len()));
        }
        let last = entries.last().map(|entry| entry.id.clone()).or(bounds.purged.clone());
        if bounds.last != last {
            return Err(format!("{bounds:?}, and the last entry is {last:?}"));
        }
        for (index, entry) in (bounds.first..).zip(&entries) {
            if entry.id.index != index {
                return Err(format!("entry {index} has the index {}", entry.id.index));
            }
        }
        let committed = bounds.committed.map(|id| id.index);
        Ok(Self {
            first: bounds.first,
            vote: raft.vote().map_err(told)?,
            earlier_votes: Vec::new(),
            purged: bounds.purged,
            entries: entries.into_iter().map(|entry| (entry.id, entry.payload.to_vec())).collect(),
            committed,
            recorded: committed,
            said: bounds.saved_committed.clone(),
            said_recorded: bounds.saved_committed,
        })
    }

    /// The same when it was closed: all that was said has a record.
    pub fn closed(&self) -> Self {
        Self { recorded: self.committed, said_recorded: self.said.clone(), ..self.clone() }
    }

    /// Whether a raft log that shows this has heard the same of what is committed.
    pub fn is_committed_as(&self, shown: &Self) -> bool {
        (self.committed, &self.said) == (shown.committed, &shown.said)
    }

    /// The same, whatever is committed; the vote may be an earlier one.
    pub fn is_shown_as(&self, shown: &Self) -> bool {
        (self.vote == shown.vote || self.earlier_votes.contains(&shown.vote))
            && self.first == shown.first
            && self.purged == shown.purged
            && self.entries == shown.entries
    }
}

impl Thing for Model {
    /// What is committed may not have been recorded yet.
    fn may_be_shown_as(&self, shown: &Self) -> bool {
        (self.recorded..=self.committed).contains(&shown.committed)
            && [&self.said_recorded, &self.said].contains(&&shown.said)
            && self.vote == shown.vote
            && self.is_shown_as(shown)
    }

    fn brief(&self) -> String {
        let terms: Vec<_> = self.entries.iter().map(|(id, _)| id.leader.term).collect();
        let vote = self.vote.as_ref().map(ToString::to_string);
        format!(
            "first {} next {} terms {terms:?} {vote:?} purged {:?} committed {:?} (recorded {:?}) \
             said {:?} ({:?})",
            self.first,
            self.next(),
            self.purged,
            self.committed,
            self.recorded,
            self.said,
            self.said_recorded
        )
    }
}
