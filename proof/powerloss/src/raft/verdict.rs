//! Checking one raft log that a power cut left: opening it, comparing it with what is allowed,
//! appending to it.
//!
//! *Owns*: that check. *May not touch*: where the raft log is.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use inkstone::Directory;
use inkstone_raft::{EntryId, NewEntry, Options, RaftLog};
use inkstone_sim::survival::{Past, Thing as _, is_left_of};

use super::model::{Model, Op};

/// Opens a raft log and compares it.
pub fn open_and_check(
    directory: impl Directory,
    options: Options,
    past: &Past<Model>,
) -> Result<(RaftLog, Model), String> {
    let raft = RaftLog::open_in(Arc::new(directory), options)
        .map_err(|error| format!("the raft log does not open: {error}"))?;
    let shown = Model::of(&raft)?;
    is_left_of(past.states(), &shown).map(|()| (raft, shown))
}

/// Appends an entry durably: it must be there. Returns what the raft log holds then.
pub fn probe(raft: &RaftLog, shown: &Model) -> Result<Model, String> {
    let entry = (EntryId::new(shown.last_leader(), shown.next()), b"one more".to_vec());
    let told = Arc::new(AtomicBool::new(false));
    let callback = Arc::clone(&told);
    let appended = raft.append(
        &[NewEntry { leader: &entry.0.leader, index: entry.0.index, payload: &entry.1 }],
        move |result| callback.store(result.is_ok(), Ordering::Release),
    );
    appended.and_then(|()| raft.sync()).map_err(|error| format!("an append fails: {error}"))?;
    if !told.load(Ordering::Acquire) {
        return Err("an entry was appended and synced, and its callback was not called".into());
    }
    let after = shown.after(&Op::Append(vec![entry]));
    let shown = Model::of(raft)?;
    if after.may_be_shown_as(&shown) {
        Ok(after)
    } else {
        Err(format!("after one more entry it shows {}, not {}", shown.brief(), after.brief()))
    }
}
