//! What a raft log knows beside its entries' bytes, and the rules by which that changes.
//!
//! *Owns*: the state, which change is allowed in it, what the change does; whether what an opening
//! has found can be a state. *May not touch*: files, locks, bytes, the log.

use crate::error::{Error, Result};
use crate::runs::Leaders;
use crate::words::{Bounds, EntryId, Leader, NewEntry, Vote};

/// Everything but the payloads.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct State {
    /// The index of the first entry that is left, or that will come; 0 if that is not known yet
    /// ([`State::next_index`]).
    pub(crate) first: u64,
    /// The index behind the last entry.
    pub(crate) next: u64,
    pub(crate) vote: Option<Vote>,
    /// The index of the last entry known to be committed: here, or purged last.
    pub(crate) committed: Option<u64>,
    /// What the caller said last to be committed, whatever a purge says; its entry may be purged.
    pub(crate) said: Option<EntryId>,
    /// Who made the entry before `first`, if any was purged.
    pub(crate) purged: Option<Leader>,
    pub(crate) leaders: Leaders,
}

/// A change of the state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Change<'a> {
    /// These entries follow.
    Append(Vec<NewEntry<'a>>),
    /// Another vote.
    Vote(Vote),
    /// All entries from this index on are gone.
    Truncate(u64),
    /// All entries up to this one are gone.
    Purge {
        upto: EntryId,
        /// A snapshot has everything up to there, so it is committed, whatever the entries here
        /// say.
        is_snapshot: bool,
    },
    /// All entries up to this index are committed.
    Commit(u64),
    /// What was said to be committed gets a record.
    Say,
}

impl State {
    /// The index that the next entry must have. A raft log without entries that was never purged
    /// takes its first index from its first entry: `None`.
    pub(crate) fn next_index(&self) -> Option<u64> {
        (self.first < self.next || self.purged.is_some()).then_some(self.next)
    }

    /// Who made an entry that is here, or that was purged last.
    pub(crate) fn leader_of(&self, index: u64) -> Option<&Leader> {
        if self.is_here(index) {
            return self.leaders.leader_of(index);
        }
        self.purged.as_ref().filter(|_| index.checked_add(1) == Some(self.first))
    }

    pub(crate) fn id_of(&self, index: u64) -> Option<EntryId> {
        self.leader_of(index).map(|leader| EntryId::new(leader.clone(), index))
    }

    pub(crate) fn is_here(&self, index: u64) -> bool {
        (self.first..self.next).contains(&index)
    }

    /// Who made the last entry, here or purged.
    pub(crate) fn last_leader(&self) -> Option<&Leader> {
        self.leaders.last().or(self.purged.as_ref())
    }

    pub(crate) fn bounds(&self) -> Bounds {
        let before = |index: u64| index.checked_sub(1).and_then(|index| self.id_of(index));
        Bounds {
            first: self.first,
            next: self.next,
            last: before(self.next),
            purged: self.purged.as_ref().and(before(self.first)),
            committed: self.committed.and_then(|index| self.id_of(index)),
            saved_committed: self.said.clone(),
        }
    }

    pub(crate) fn is_purged(&self, index: u64) -> bool {
        self.purged.is_some() && index < self.first
    }

    /// Whether the change would change nothing, so that no record is needed.
    pub(crate) fn is_done(&self, change: &Change<'_>) -> bool {
        match change {
            Change::Append(entries) => entries.is_empty(),
            Change::Vote(vote) => self.vote.as_ref() == Some(vote),
            Change::Truncate(from) => *from >= self.next,
            Change::Purge { upto, .. } => self.is_purged(upto.index),
            Change::Commit(index) => self.said.as_ref().is_some_and(|said| said.index == *index),
            Change::Say => true,
        }
    }

    /// Whether the rules allow a change.
    ///
    /// # Errors
    /// Which rule it breaks, with what was expected and what came.
    pub(crate) fn check(&self, change: &Change<'_>) -> Result<()> {
        match change {
            Change::Append(entries) => self.check_entries(entries),
            Change::Vote(vote) => match &self.vote {
                Some(saved) if !vote.may_follow(saved) => {
                    Err(Error::VoteGoesBack { saved: saved.clone(), came: vote.clone() })
                }
                _ => check_name(&vote.leader),
            },
            Change::Truncate(from) => match self.committed {
                Some(committed) if *from <= committed => {
                    Err(Error::IsCommitted { index: *from, committed })
                }
                _ if self.is_purged(*from) => {
                    Err(Error::IsPurged { index: *from, first: self.first })
                }
                _ => Ok(()),
            },
            Change::Purge { upto, is_snapshot } => self.check_purge(upto, *is_snapshot),
            Change::Commit(index) => self.check_commit(*index),
            Change::Say => Ok(()),
        }
    }

    /// Whether all entries may be appended, one after the other.
    fn check_entries(&self, entries: &[NewEntry<'_>]) -> Result<()> {
        let mut next = self.next_index();
        let mut last = self.last_leader();
        for &NewEntry { leader, index, .. } in entries {
            if let Some(committed) = self.committed.filter(|committed| index <= *committed) {
                return Err(Error::IsCommitted { index, committed });
            }
            if let Some(expected) = next.filter(|next| *next != index) {
                return Err(Error::Hole { expected, came: index });
            }
            if index == u64::MAX {
                return Err(Error::IndexesUsedUp);
            }
            check_name(leader)?;
            if let Some(before) = last.filter(|last| leader < *last).cloned() {
                return Err(Error::LeaderGoesBack { index, before, came: leader.clone() });
            }
            (next, last) = (Some(index + 1), Some(leader));
        }
        Ok(())
    }

    fn check_commit(&self, index: u64) -> Result<()> {
        match self.committed {
            Some(committed) if index < committed => {
                Err(Error::CommittedGoesBack { saved: committed, came: index })
            }
            _ if self.leader_of(index).is_none() => Err(Error::NotHere { index, next: self.next }),
            _ => Ok(()),
        }
    }

    fn check_purge(&self, upto: &EntryId, is_snapshot: bool) -> Result<()> {
        if upto.index == u64::MAX {
            return Err(Error::IndexesUsedUp);
        }
        check_name(&upto.leader)?;
        let is_committed = self.committed.is_some_and(|committed| upto.index <= committed);
        if !is_snapshot && !is_committed {
            return Err(Error::NotCommitted { upto: upto.index, committed: self.committed });
        }
        if let Some(here) = self.id_of(upto.index).filter(|here| here.leader != upto.leader)
            && is_committed
        {
            return Err(Error::OtherEntry { here, came: upto.clone() });
        }
        let goes_back = |index, before: &Leader, came: &Leader| {
            Err(Error::LeaderGoesBack { index, before: before.clone(), came: came.clone() })
        };
        if !is_committed
            && let Some(below) = self.committed.and_then(|committed| self.id_of(committed))
        {
            return if upto.leader < below.leader {
                goes_back(upto.index, &below.leader, &upto.leader)
            } else {
                Ok(())
            };
        }
        if self.purged.is_some() || upto.index >= self.first {
            return Ok(());
        }
        // It was never purged, and has entries behind `upto` only.
        match self.leaders.leader_of(self.first) {
            _ if upto.index + 1 < self.first => {
                Err(Error::HoleBehindPurge { upto: upto.index, first: self.first })
            }
            Some(first) if is_committed && *first < upto.leader => {
                goes_back(self.first, &upto.leader, first)
            }
            _ => Ok(()),
        }
    }

    /// Makes a change that was checked.
    pub(crate) fn apply(&mut self, change: &Change<'_>) {
        match change {
            Change::Append(entries) => {
                entries.iter().for_each(|entry| self.add(entry.index, entry.leader));
            }
            Change::Vote(vote) => self.vote = Some(vote.clone()),
            Change::Truncate(from) => {
                if *from < self.next {
                    self.leaders.truncate(*from);
                    self.next = (*from).max(self.first);
                    self.forget_first();
                }
            }
            Change::Purge { upto, .. } => self.purge(upto),
            Change::Commit(index) => {
                self.committed = Some(*index);
                self.said = self.id_of(*index);
            }
            Change::Say => {}
        }
    }

    /// Adds an entry that was checked.
    fn add(&mut self, index: u64, leader: &Leader) {
        if self.next_index().is_none() {
            (self.first, self.next) = (index, index);
        }
        assert_eq!(index, self.next, "an entry is checked before it is added");
        self.leaders.add(index, leader);
        self.next = index + 1;
    }

    /// Without entries, and never purged, it has no first index.
    fn forget_first(&mut self) {
        if self.first == self.next && self.purged.is_none() {
            (self.first, self.next) = (0, 0);
        }
    }

    pub(crate) fn purge(&mut self, upto: &EntryId) {
        if self.is_purged(upto.index) {
            return;
        }
        // A snapshot that disagrees with the entry at its end, or with the one behind it, replaces
        // all entries (Raft, section 7 of the extended paper).
        let keeps_rest = if upto.index < self.first {
            self.leaders.leader_of(self.first).is_some_and(|first| upto.leader <= *first)
        } else {
            self.leaders.leader_of(upto.index) == Some(&upto.leader)
        };
        let first = upto.index + 1;
        if keeps_rest && first < self.next {
            self.leaders.purge_before(first);
        } else {
            self.leaders.clear();
            self.next = first;
        }
        self.first = first;
        self.purged = Some(upto.leader.clone());
        self.committed = self.committed.max(Some(upto.index));
    }

    /// The first entry that must stay while a purge that was checked has no record: those before it
    /// are committed, or the snapshot has them.
    pub(crate) fn first_kept_without_record(&self, upto: &EntryId, is_snapshot: bool) -> u64 {
        let committed = self.committed.map_or(0, |committed| committed.min(upto.index) + 1);
        if !is_snapshot {
            return committed;
        }
        let is_same = self.is_here(upto.index) && self.leader_of(upto.index) == Some(&upto.leader);
        // Where the snapshot disagrees, or ends behind all entries, nothing may be left that keeps
        // the same snapshot out later: its own end, and an entry of a later leader.
        let later = self.leaders.first_above(&upto.leader).unwrap_or(self.next);
        committed.max(if is_same { upto.index + 1 } else { upto.index.min(later) })
    }

    /// Whether what an opening has found can be: it believes nothing else.
    pub(crate) fn is_sound(&self) -> std::result::Result<(), &'static str> {
        if self.first > self.next {
            return Err("its first index is above its next one");
        }
        if self.next_index().is_none() && self.first > 0 {
            return Err("it has a first index, but no entry, and none was purged");
        }
        if self.purged.is_some()
            && self.first.checked_sub(1).is_none_or(|purged| self.committed < Some(purged))
        {
            return Err("it says that entries are purged which are not committed");
        }
        if self.committed.is_some_and(|index| self.leader_of(index).is_none()) {
            return Err("it says that an entry is committed which is not there");
        }
        if let Some(said) = &self.said {
            let is_theirs = match self.leader_of(said.index) {
                Some(leader) => *leader == said.leader,
                None => self.purged.as_ref().is_some_and(|purged| said.leader <= *purged),
            };
            if !is_theirs || self.committed < Some(said.index) {
                return Err("its saved committed index is above what is committed");
            }
        }
        let leaders: Vec<_> =
            self.purged.iter().chain(self.leaders.iter().map(|(_, leader)| leader)).collect();
        if !leaders.is_sorted() { Err("its leaders go back") } else { Ok(()) }
    }
}

/// Refuses names that a record has no room for.
pub(crate) fn check_name(leader: &Leader) -> Result<()> {
    match leader.node.len() {
        0..=255 => Ok(()),
        bytes => Err(Error::NameTooLong { bytes }),
    }
}
