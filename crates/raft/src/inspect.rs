//! What is in a raft log, for people and tools: read only, also while a program writes it.
//!
//! *Owns*: the summary of a raft log, and one of its records in words. *May not touch*: the rules
//! (`state.rs`), the bytes (`record.rs`). Every record that is there is read and checked.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use inkstone::inspect::look_in;
use inkstone::{AnyDirectory, Lsn, OsDirectory, Reader};

use crate::error::{Error, Result};
use crate::note::is_note;
use crate::record::{Body, decode, is_state};
use crate::replay::Expected;
use crate::state::{Change, State};
use crate::words::{Bounds, Leader, Vote};

/// What a raft log holds.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Summary {
    /// Its directory.
    pub path: PathBuf,
    /// The raft group that it belongs to.
    pub raft_group: u128,
    /// The last vote.
    pub vote: Option<Vote>,
    /// First, last, purged and committed entry.
    pub bounds: Bounds,
    /// The leaders of the entries that are left: from which index on, in order.
    pub leaders: Vec<(u64, Leader)>,
    /// The segments of the log, the oldest first.
    pub segments: Vec<Segment>,
    /// The process that has it open for writing, as far as it is known.
    pub writer: Option<String>,
    /// What could not be made sure of, a sentence each ([`inkstone::Recovery::doubts`]).
    pub doubts: Vec<String>,
}

/// What a segment of a raft log holds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Segment {
    /// Its number.
    pub number: u64,
    /// The size of its file in bytes.
    pub file_bytes: u64,
    /// Entries, also those that were truncated or purged since.
    pub entries: u64,
    /// Bytes of their payloads.
    pub payload_bytes: u64,
    /// The lowest and the highest index of them.
    pub indexes: Option<(u64, u64)>,
    /// Votes.
    pub votes: u64,
    /// Truncations.
    pub truncations: u64,
    /// Purges.
    pub purges: u64,
    /// States: everything that held before them.
    pub states: u64,
    /// Records that only say what is committed.
    pub committed: u64,
}

/// Reads a raft log and says what is in it: what an opening would find. It changes nothing, and
/// takes no lock. Beside a writer it says what is known to be durable: the last records may be left
/// out, as by every reader of another process ([`inkstone::Reader`]).
///
/// # Errors
/// [`Error::Foreign`] if it is another log, or a new one without records; [`Error::Newer`] and
/// [`Error::Contradiction`] if a record is not one of this version or breaks a rule; errors of the
/// log below, such as a missing or damaged one.
pub fn inspect(path: impl AsRef<Path>) -> Result<Summary> {
    inspect_until(path, &AtomicBool::new(false))
}

/// As [`inspect`], and ends early when `stop` becomes true.
///
/// # Errors
/// As [`inspect`]; [`inkstone::Error::Stopped`].
pub fn inspect_until(path: impl AsRef<Path>, stop: &AtomicBool) -> Result<Summary> {
    let directory = OsDirectory::open(path.as_ref()).map_err(inkstone::Error::from)?;
    summarize(AnyDirectory::new(directory), stop)
}

/// As [`inspect`], in any directory ([`AnyDirectory`]).
///
/// # Errors
/// As [`inspect`].
pub fn inspect_in(directory: impl Into<AnyDirectory>) -> Result<Summary> {
    summarize(directory.into(), &AtomicBool::new(false))
}

fn summarize(directory: AnyDirectory, stop: &AtomicBool) -> Result<Summary> {
    // The segments are asked for first: what a reader finds later may be in further ones.
    let report = look_in(directory.clone())?;
    let path = report.path.clone();
    let segments = report.segments.iter().map(|segment| {
        let found = Segment {
            number: segment.number.get(),
            file_bytes: segment.file_bytes,
            ..Segment::default()
        };
        (segment.first, found)
    });
    let mut segments: Vec<_> = segments.collect();
    let reader = Reader::open_in(directory, inkstone::Options::new())?;
    let state = read(&reader, &path, &mut segments, report.last, stop)?;
    Ok(Summary {
        path,
        raft_group: state.raft_group,
        vote: state.vote.clone(),
        bounds: state.bounds(),
        leaders: state.leaders.iter().map(|run| (run.first, run.what.clone())).collect(),
        segments: segments.into_iter().map(|(_, segment)| segment).collect(),
        writer: report.writer,
        doubts: report.doubts,
    })
}

/// Reads every record, and notes it where it lies.
fn read(
    reader: &Reader,
    path: &Path,
    segments: &mut [(Lsn, Segment)],
    seen: Lsn,
    stop: &AtomicBool,
) -> Result<State> {
    // Beside a writer the end moves on; what came after the report is left out.
    let (first, last) = (reader.first(), seen.max(reader.durable()));
    let foreign = |why: &str| Error::Foreign { path: path.into(), lsn: first, why: why.into() };
    if first > last {
        return Err(foreign("is not there: the log is empty"));
    }
    let front = reader.get(first)?;
    let raft_group = match decode(&front) {
        Ok(record) if is_state(&front) => match record.body {
            Body::State(state) => state.raft_group,
            _ => 0,
        },
        // `check_front` says what is wrong with it.
        _ => 0,
    };
    let expected = Expected { path, raft_group };
    expected.check_front(reader)?;
    let mut state = None;
    let mut cursor = reader.from(first);
    while cursor.next_lsn() <= last {
        if stop.load(Ordering::Relaxed) {
            return Err(inkstone::Error::Stopped.into());
        }
        let Some(record) = cursor.next()? else { break };
        expected.take(&mut state, record.lsn, record.bytes)?;
        let at = segments.partition_point(|(first, _)| *first <= record.lsn);
        if let Some((_, segment)) = at.checked_sub(1).and_then(|at| segments.get_mut(at)) {
            segment.note(record.bytes);
        }
    }
    let mut state = state.ok_or_else(|| foreign("is no state"))?;
    state.purge_before(first);
    Ok(state)
}

impl Segment {
    fn note(&mut self, record: &[u8]) {
        let Ok(record) = decode(record) else { return };
        match record.body {
            Body::State(_) => self.states += 1,
            Body::Entry(id, payload) => {
                self.entries += 1;
                self.payload_bytes += payload.len() as u64;
                let (low, high) = self.indexes.unwrap_or((id.index, id.index));
                self.indexes = Some((low.min(id.index), high.max(id.index)));
            }
            Body::Change(Change::Vote(_)) => self.votes += 1,
            Body::Change(Change::Truncate(_)) => self.truncations += 1,
            Body::Change(Change::Purge { .. }) => self.purges += 1,
            Body::Change(Change::Commit(_)) | Body::Committed => self.committed += 1,
        }
    }
}

/// A record of a raft log in words.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecordInfo {
    /// `state`, `entry`, `vote`, `truncate`, `purge` or `committed`.
    pub kind: &'static str,
    /// An entry's index, the first one of a truncation, the last one of a purge, the next one after
    /// a state.
    pub index: Option<u64>,
    /// The leader of an entry, of a purge's last entry, or for whom a vote is.
    pub leader: Option<Leader>,
    /// What was known to be committed.
    pub committed: Option<u64>,
    /// A vote: whether it was granted. A purge: whether a snapshot has the entries.
    pub is_flagged: bool,
    /// Bytes of an entry's payload.
    pub payload_bytes: Option<usize>,
}

/// Whether these bytes, a log's first record, are those of a raft log.
pub fn is_raft_log(first_record: &[u8]) -> bool {
    is_state(first_record)
}

/// Whether a stream with this note is a raft group ([`crate::Groups`]).
pub fn is_raft_group(note: &[u8]) -> bool {
    is_note(note)
}

/// What a record of a raft log says.
///
/// # Errors
/// In words: it is no such record, or one of a newer version.
pub fn describe(record: &[u8]) -> std::result::Result<RecordInfo, String> {
    let record = decode(record).map_err(|flaw| flaw.to_string())?;
    let of = |kind| RecordInfo {
        kind,
        index: None,
        leader: None,
        committed: record.committed,
        is_flagged: false,
        payload_bytes: None,
    };
    Ok(match record.body {
        Body::State(state) => {
            RecordInfo { index: Some(state.next), committed: state.committed, ..of("state") }
        }
        Body::Entry(id, payload) => RecordInfo {
            index: Some(id.index),
            leader: Some(id.leader),
            payload_bytes: Some(payload.len()),
            ..of("entry")
        },
        Body::Change(Change::Vote(vote)) => {
            RecordInfo { leader: Some(vote.leader), is_flagged: vote.is_granted, ..of("vote") }
        }
        Body::Change(Change::Truncate(from)) => RecordInfo { index: Some(from), ..of("truncate") },
        Body::Change(Change::Purge { upto, is_snapshot }) => RecordInfo {
            index: Some(upto.index),
            leader: Some(upto.leader),
            is_flagged: is_snapshot,
            ..of("purge")
        },
        Body::Change(Change::Commit(_)) | Body::Committed => of("committed"),
    })
}
