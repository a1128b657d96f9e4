//! What changes of a group are in its stream.
//!
//! *Owns*: the records, the note and the truncations that make one state of another. *May not
//! touch*: the rules (`state.rs`), the bytes (`note.rs`, `record.rs`), locks.
//!
//! An entry is the record of the stream that has its index. All else is in the note of the stream,
//! but for what is committed: the last entry of an append says that too.

use std::borrow::Cow;
use std::ops::Range;

use inkstone_streams::Batch;
use smallvec::SmallVec;

use crate::error::Result;
use crate::note::encode_note;
use crate::record::encode_entry_head;
use crate::state::{Change, State};
use crate::words::NewEntry;

/// Changes that are allowed, one after the other, encoded.
pub(crate) struct Draft<'a> {
    steps: SmallVec<[Step<'a>; 2]>,
    /// What stands before the payloads of entries.
    heads: Vec<u8>,
    /// Empty if it stays as it is.
    note: Vec<u8>,
}

enum Step<'a> {
    Entry { index: u64, head: Range<usize>, payload: &'a [u8] },
    RestartAt(u64),
    TruncateAfter(u64),
    TruncateBefore(u64),
}

impl<'a> Draft<'a> {
    /// # Errors
    /// Which rule one of the changes breaks.
    pub(crate) fn of(
        state: &State,
        changes: impl ExactSizeIterator<Item = &'a Change<'a>>,
    ) -> Result<Self> {
        let (steps, heads, note) = Default::default();
        let mut draft = Self { steps, heads, note };
        let (mut state, mut left, mut is_noted) = (Cow::Borrowed(state), changes.len(), false);
        for change in changes {
            state.check(change)?;
            left -= 1;
            let is_append = matches!(change, Change::Append(entries) if !entries.is_empty());
            // Before the first entries of a stream that never had one, the note says where it
            // begins. Without entries the note is the record.
            is_noted |= !is_append || state.next_index().is_none();
            if let Change::Append(entries) = change {
                draft.append(&state, entries);
                if left == 0 && !is_noted {
                    // Nobody needs the state, so it is not copied.
                    break;
                }
            }
            let (first, next) = (state.first, state.next);
            state.to_mut().apply(change);
            if !matches!(change, Change::Append(_)) {
                draft.truncate((first, next), &state);
            }
        }
        if is_noted {
            draft.note = encode_note(&state);
        }
        Ok(draft)
    }

    /// Entries that follow a state. The last one says what is committed.
    fn append(&mut self, state: &State, entries: &'a [NewEntry<'a>]) {
        let is_new = state.next_index().is_none();
        if let Some(first) = entries.first().filter(|_| is_new) {
            self.steps.push(Step::RestartAt(first.index));
        }
        for (&NewEntry { leader, index, payload }, count) in entries.iter().zip(1..) {
            let said = state.said.as_ref().filter(|_| count == entries.len());
            let begin = self.heads.len();
            encode_entry_head(&mut self.heads, index, leader, said);
            self.steps.push(Step::Entry { index, head: begin..self.heads.len(), payload });
        }
    }

    /// What makes one state of another that has no new entries.
    fn truncate(&mut self, (first, next): (u64, u64), after: &State) {
        if after.first == after.next {
            let is_same = (first, next) == (after.first, after.next);
            self.steps.extend((!is_same).then_some(Step::RestartAt(after.next)));
        } else {
            let is_cut = after.next < next;
            self.steps.extend(is_cut.then(|| Step::TruncateAfter(after.next - 1)));
            let is_purged = after.first > first;
            self.steps.extend(is_purged.then_some(Step::TruncateBefore(after.first)));
        }
    }

    pub(crate) fn put<'b>(&'b self, group: u64, batch: &mut Batch<'b>) {
        for step in &self.steps {
            match step {
                Step::Entry { index, head, payload } => {
                    batch.append_parts_at(group, *index, [&self.heads[head.clone()], payload])
                }
                Step::RestartAt(first) => batch.restart_at(group, *first),
                Step::TruncateAfter(last) => batch.truncate_after(group, *last),
                Step::TruncateBefore(first) => batch.truncate_before(group, *first),
            };
        }
        if !self.note.is_empty() {
            batch.note(group, &self.note);
        }
    }
}
