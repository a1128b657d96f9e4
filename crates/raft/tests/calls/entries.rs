//! What the tests of the calls have in common: entries with one text, and their ids.

use std::ops::RangeInclusive;

use inkstone_raft::{EntryId, Leader, NewEntry, RaftLog, Result};

pub(crate) fn append(raft: &RaftLog, term: u64, indexes: RangeInclusive<u64>) -> Result<()> {
    append_of(raft, term, indexes, b"an entry")
}

pub(crate) fn append_of(
    raft: &RaftLog,
    term: u64,
    indexes: RangeInclusive<u64>,
    payload: &[u8],
) -> Result<()> {
    let leader = Leader::of_term(term);
    let entries: Vec<_> =
        indexes.map(|index| NewEntry { leader: &leader, index, payload }).collect();
    raft.append(&entries, |result| result.unwrap())
}

pub(crate) fn id(term: u64, index: u64) -> EntryId {
    EntryId::new(Leader::of_term(term), index)
}
