//! What a raft group in the log holds, at its opening.
//!
//! *Owns*: making the state of a note and of entries. *May not touch*: the rules (`state.rs`), the
//! bytes (`note.rs`, `record.rs`); it writes nothing.

use inkstone_streams::StreamsReader;

use crate::error::{Error, Result};
use crate::note::decode_note;
use crate::record::{Record, decode};
use crate::state::State;
use crate::words::{EntryId, Leader};

/// A group in the log.
pub(crate) struct Found {
    pub(crate) reader: StreamsReader,
    pub(crate) id: u64,
}

impl Found {
    /// The state of a group with this note. Leaders never go back, so few entries must be read: the
    /// last one, if it is of the leader of what was purged.
    ///
    /// # Errors
    /// [`Error::BadGroup`]; those of reading.
    pub(crate) fn state(&self, note: &[u8]) -> Result<State> {
        let mut state = decode_note(note).map_err(|flaw| self.bad(format!("its note {flaw}")))?;
        let bounds = self.reader.bounds(self.id)?;
        if !bounds.is_empty() {
            self.find_front(&mut state, bounds.first)?;
            state.next = bounds.next;
            let (last, said) = self.entry(bounds.next - 1)?;
            if state.first < state.next {
                self.find_leaders(&mut state, &last.leader)?;
            }
            let is_later =
                |said: &EntryId| state.said.as_ref().is_none_or(|before| before.index < said.index);
            if let Some(said) = said.filter(is_later) {
                state.said = Some(said);
            }
        } else if bounds.first != state.first {
            let why =
                format!("it has no entries, and ends at {} and {}", bounds.first, state.first);
            return Err(self.bad(why));
        }
        state.committed = state.said.as_ref().map(|said| said.index);
        if state.purged.is_some() {
            state.committed = state.committed.max(state.first.checked_sub(1));
        }
        state.is_sound().map_err(|why| self.bad(why))?;
        Ok(state)
    }

    /// Where entries begin. A purge on a full disk may have freed entries without a record
    /// ([`inkstone_streams::Streams::forget_front`]). Then the first entry that is left is the last
    /// purged one.
    fn find_front(&self, state: &mut State, first: u64) -> Result<()> {
        if first > state.first {
            let (purged, _) = self.entry(first)?;
            state.first = first.checked_add(1).ok_or_else(|| self.bad("its last index is used"))?;
            state.purged = Some(purged.leader);
        }
        Ok(())
    }

    fn find_leaders(&self, state: &mut State, last: &Leader) -> Result<()> {
        let mut at = state.first;
        let mut leader = match &state.purged {
            Some(purged) if purged == last => last.clone(),
            _ => self.entry(at)?.0.leader,
        };
        loop {
            state.leaders.push(at, leader.clone());
            if leader == *last {
                return Ok(());
            }
            // The first entry of the next leader.
            let (mut same, mut other, mut next) = (at, state.next - 1, last.clone());
            while other - same > 1 {
                let middle = same + (other - same) / 2;
                match self.entry(middle)?.0.leader {
                    found if found == leader => same = middle,
                    found => (other, next) = (middle, found),
                }
            }
            (at, leader) = (other, next);
        }
    }

    /// The id of an entry, and what it says is committed.
    fn entry(&self, index: u64) -> Result<(EntryId, Option<EntryId>)> {
        let bytes = self.reader.get(self.id, index)?;
        let record = self.decode(&bytes, index)?;
        Ok((record.id, record.said))
    }

    /// The record of the entry that has this index.
    pub(crate) fn decode<'a>(&self, bytes: &'a [u8], index: u64) -> Result<Record<'a>> {
        let record = decode(bytes).map_err(|flaw| self.bad_entry(index, flaw))?;
        if record.id.index != index {
            return Err(self.bad_entry(index, format!("is {}", record.id)));
        }
        Ok(record)
    }

    /// Whether an entry that was read is the one of the state.
    pub(crate) fn check(&self, state: &State, id: &EntryId) -> Result<()> {
        if state.leader_of(id.index) != Some(&id.leader) {
            return Err(self.bad_entry(id.index, format!("is {id}")));
        }
        Ok(())
    }

    pub(crate) fn bad_entry(&self, index: u64, why: impl std::fmt::Display) -> Error {
        self.bad(format!("record {index} {why}"))
    }

    pub(crate) fn bad(&self, why: impl ToString) -> Error {
        Error::BadGroup { path: self.reader.path().into(), group: self.id, why: why.to_string() }
    }
}
