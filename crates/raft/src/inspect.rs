//! What is in a raft log, for people and tools: read only, also while a program writes it.
//!
//! *Owns*: the summary of a raft log. *May not touch*: the rules (`state.rs`), the bytes
//! (`record.rs`). Every entry that is there is read and checked.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use inkstone::inspect::look_in;
use inkstone::{AnyDirectory, find_directory};
use inkstone_streams::{Options, StreamsReader};

use crate::error::{Error, Result};
use crate::found::Found;
use crate::groups::of_raft;
use crate::state::State;
use crate::words::{Bounds, Leader, Vote};

/// What a raft log holds, or a log of many groups.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Summary {
    /// Its directory.
    pub path: PathBuf,
    /// The raft groups, by their numbers.
    pub groups: Vec<GroupSummary>,
    /// The process that has it open for writing, as far as it is known.
    pub writer: Option<String>,
    /// What could not be made sure of, a sentence each ([`inkstone::Recovery::doubts`]).
    pub doubts: Vec<String>,
}

/// What a raft group holds.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct GroupSummary {
    /// Its number.
    pub raft_group: u64,
    /// The last vote.
    pub vote: Option<Vote>,
    /// First, last, purged and committed entry.
    pub bounds: Bounds,
    /// The leaders of the entries that are left: from which index on, in order.
    pub leaders: Vec<(u64, Leader)>,
    /// Bytes of the payloads of these entries.
    pub payload_bytes: u64,
}

/// Reads a raft log and says what is in it: what an opening would find. It changes nothing, and
/// takes no lock. Beside a writer it says what is known to be durable: the last records may be left
/// out, as by every reader of another process ([`inkstone::Reader`]).
///
/// # Errors
/// [`inkstone::Error::OtherKind`] if it is another log; [`Error::BadGroup`] if a stream is no raft
/// group, or breaks a rule; [`Error::Lost`] and [`Error::Streams`]; errors of the log below, such as
/// a missing or damaged one.
pub fn inspect(path: impl AsRef<Path>) -> Result<Summary> {
    inspect_until(path, &AtomicBool::new(false))
}

/// As [`inspect`], and ends early when `stop` becomes true.
///
/// # Errors
/// As [`inspect`]; [`inkstone::Error::Stopped`].
pub fn inspect_until(path: impl AsRef<Path>, stop: &AtomicBool) -> Result<Summary> {
    summarize(AnyDirectory::new(find_directory(path)?), stop)
}

/// As [`inspect`], in any directory ([`AnyDirectory`]).
///
/// # Errors
/// As [`inspect`].
pub fn inspect_in(directory: impl Into<AnyDirectory>) -> Result<Summary> {
    summarize(directory.into(), &AtomicBool::new(false))
}

fn summarize(directory: AnyDirectory, stop: &AtomicBool) -> Result<Summary> {
    let report = look_in(directory.clone())?;
    let reader = StreamsReader::open_in(directory, &of_raft(Options::new()))?;
    // Nobody knows whether a vote or an entry of a group is lost.
    if let Some(lost) = reader.usage()?.lost.last() {
        return Err(Error::Lost { path: report.path, lost_to: *lost.end() });
    }
    let ids = reader.ids(None, usize::MAX)?;
    let groups = ids.into_iter().map(|id| summary_of(&Found { reader: reader.clone(), id }, stop));
    let groups = groups.collect::<Result<_>>()?;
    Ok(Summary { path: report.path, groups, writer: report.writer, doubts: report.doubts })
}

/// Beside a writer, entries may be purged and truncated while they are read: then this begins anew.
fn summary_of(found: &Found, stop: &AtomicBool) -> Result<GroupSummary> {
    loop {
        let before = found.reader.bounds(found.id)?;
        let note = found.reader.note(found.id)?;
        let summary = found.state(&note).and_then(|state| read(found, &state, stop));
        if summary.is_ok() || stop.load(Ordering::Relaxed) {
            return summary;
        }
        let is_same = found.reader.bounds(found.id)? == before;
        if is_same && found.reader.note(found.id)? == note {
            return summary;
        }
    }
}

fn read(found: &Found, state: &State, stop: &AtomicBool) -> Result<GroupSummary> {
    let mut payload_bytes = 0;
    let mut next = state.first;
    for record in found.reader.records(found.id, state.first) {
        if stop.load(Ordering::Relaxed) {
            return Err(inkstone::Error::Stopped.into());
        }
        let record = record?;
        if next == state.next {
            break;
        }
        let entry = found.decode(&record.bytes, next)?;
        found.check(state, &entry.id)?;
        if entry.said.is_some_and(|said| Some(said.index) > state.committed) {
            return Err(found.bad_entry(next, "says that more is committed than the group does"));
        }
        payload_bytes += entry.payload.len() as u64;
        next += 1;
    }
    if next != state.next {
        return Err(found.bad_entry(next, "is not there"));
    }
    Ok(GroupSummary {
        raft_group: found.id,
        vote: state.vote.clone(),
        bounds: state.bounds(),
        leaders: state.leaders.iter().map(|(first, leader)| (first, leader.clone())).collect(),
        payload_bytes,
    })
}
