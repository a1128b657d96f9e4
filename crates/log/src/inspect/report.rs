//! The report on a log's directory.
//!
//! *Owns*: the report's types. *May not touch*: files.

use std::path::PathBuf;

use inkstone_format::{Epoch, LogId, Lsn, Position, Reason, SegmentHeader, SegmentNumber, Verdict};

use crate::error::Corruption;

/// What the files of a log hold.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Report {
    /// The log's directory.
    pub path: PathBuf,
    /// The log's id; `None` when no header shows it.
    pub log: Option<LogId>,
    /// What an opening would find: the first damage, else how the log ends.
    pub verdict: Verdict,
    /// The row of the tables in docs/format.md that gave the verdict.
    pub row: &'static str,
    /// The first record that was not truncated.
    pub first: Lsn,
    /// The last record that can be read; one below `first` if there is none.
    pub last: Lsn,
    /// The highest LSN that any promise in the files covers.
    pub promise: Lsn,
    /// The highest epoch seen.
    pub epoch: Option<Epoch>,
    /// Where the log ends.
    pub end: Option<Position>,
    /// The log was closed cleanly, and nothing was written after that.
    pub clean: bool,
    /// The segments of the log, as far as they are known, lowest first.
    pub segments: Vec<SegmentReport>,
    /// Files that are not part of the log.
    pub others: Vec<OtherFile>,
    /// The records that [`super::salvage`] would save of a damaged log, where all of it was read
    /// ([`super::verify`]) and no writer has it open.
    pub savable: Option<Savable>,
    /// Every damaged place that was found: in segments, missing files, broken links.
    pub damage: Vec<Corruption>,
    /// The process that has the log open for writing, as far as it is known.
    pub writer: Option<String>,
    /// What could not be made sure of, a sentence each
    /// ([`Recovery::doubts`](crate::Recovery::doubts)).
    pub doubts: Vec<String>,
}

impl Report {
    /// The directory has the files of several logs. Nothing is damaged by that, and nothing was
    /// read: only a person can tell which files belong there.
    pub fn is_of_two_logs(&self) -> bool {
        self.damage.iter().any(|damage| damage.reason == Reason::ForeignLog)
    }

    /// Whether nothing that was promised is damaged or missing. A torn tail is not damage.
    pub fn is_intact(&self) -> bool {
        self.damage.is_empty()
    }

    /// The gaps of the log, in order: records that an earlier salvage could not save. They are not
    /// damage.
    pub fn gaps(&self) -> impl Iterator<Item = Gap> {
        self.segments.iter().flat_map(|segment| segment.gaps.iter().copied())
    }

    /// Records and bytes of all segments that were read.
    pub fn counts(&self) -> Counts {
        self.segments.iter().fold(Counts::default(), |sum, segment| sum.plus(&segment.counts))
    }
}

/// A segment of the log.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct SegmentReport {
    /// Its number.
    pub number: SegmentNumber,
    /// Its file.
    pub path: PathBuf,
    /// The size of its file in bytes.
    pub file_bytes: u64,
    /// Its header; rebuilt from its first group where it has none ([`SegmentState::HeaderLost`]).
    pub header: SegmentHeader,
    /// Its state.
    pub state: SegmentState,
    /// Its first record, also if that was truncated.
    pub first: Lsn,
    /// Its last record that can be read; one below `first` if there is none.
    pub last: Lsn,
    /// The byte after the last whole group (or after the frame that the next segment names as the
    /// last).
    pub end: u64,
    /// The epoch of its last group.
    pub epoch: Epoch,
    /// The highest promise in it.
    pub promise: Lsn,
    /// Whether its groups were read; otherwise only its header and that of the next segment were.
    pub is_read: bool,
    /// The gaps in it, without truncated LSNs. A segment that may have some is always read.
    pub gaps: Vec<Gap>,
    /// What was read.
    pub counts: Counts,
    /// The verdict on the place where reading first stopped.
    pub verdict: Verdict,
    /// The row that gave the verdict.
    pub row: &'static str,
    /// What lies in a torn tail, and other harmless findings, a line each.
    pub notes: Vec<String>,
}

/// Records that are lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Gap {
    /// The LSN of the first.
    pub first: Lsn,
    /// The LSN of the last. At the end of a damaged log: the last that is known to have been
    /// durable.
    pub last: Lsn,
}

impl Gap {
    /// How many they are.
    pub fn records(&self) -> u64 {
        self.last.get() - self.first.get() + 1
    }
}

/// The state of a segment of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SegmentState {
    /// It is full, or was cut by `truncate_after`: another segment follows it.
    Sealed,
    /// It is the last segment.
    Active,
    /// Its header is lost.
    HeaderLost,
}

/// What was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Counts {
    /// Records in whole groups, without truncated ones.
    pub records: u64,
    /// Their bytes.
    pub record_bytes: u64,
    /// Whole groups.
    pub groups: u64,
    /// Control frames in them.
    pub controls: u64,
}

impl Counts {
    pub(crate) fn plus(self, other: &Self) -> Self {
        Self {
            records: self.records + other.records,
            record_bytes: self.record_bytes + other.record_bytes,
            groups: self.groups + other.groups,
            controls: self.controls + other.controls,
        }
    }
}

/// The records that can be saved of a damaged log: of a damaged group, too, each one that is whole
/// and was promised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Savable {
    /// Records.
    pub records: u64,
    /// Their bytes.
    pub record_bytes: u64,
}

/// A file in the log's directory that is not part of the log.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct OtherFile {
    /// Its number.
    pub number: SegmentNumber,
    /// The file.
    pub path: PathBuf,
    /// Its size in bytes.
    pub bytes: u64,
    /// Its state.
    pub state: FileState,
}

/// The state of a file that is not part of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FileState {
    /// Its blocks wait to be used again.
    Free,
    /// It is being prepared, or a crash left it so.
    Unfinished,
    /// It has a segment's name, and was never used.
    Ready,
    /// A segment whose records were all truncated.
    Obsolete,
}
