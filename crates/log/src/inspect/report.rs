//! What was found in a log's directory.
//!
//! *Owns*: the report's types. *May not touch*: files.

use std::path::PathBuf;

use inkstone_format::{Epoch, LogId, Lsn, Position, SegmentHeader, SegmentNumber, Verdict};

use crate::error::Corruption;

/// A log as its files are.
#[derive(Debug, Clone)]
pub struct Report {
    /// The log's directory.
    pub path: PathBuf,
    /// Its id; `None` where no header tells.
    pub log: Option<LogId>,
    /// What an opening would say: the first damage, else how the log ends.
    pub verdict: Verdict,
    /// The row of the tables in docs/format.md that said so.
    pub row: &'static str,
    /// The first record that is not given up.
    pub first: Lsn,
    /// The last record that can be read; one below `first` if there is none.
    pub last: Lsn,
    /// The highest LSN that anything in the files promises to be durable.
    pub promise: Lsn,
    /// The highest epoch seen.
    pub epoch: Option<Epoch>,
    /// Where the log ends.
    pub end: Option<Position>,
    /// It was closed in order, and nothing came after that.
    pub clean: bool,
    /// The segments of the log, as far as they are known, lowest first.
    pub segments: Vec<SegmentReport>,
    /// Files that are not part of the log.
    pub others: Vec<OtherFile>,
    /// Every damaged place that was found: the segments' own, and files and links that are missing.
    pub damage: Vec<Corruption>,
    /// Who has it open for writing, as far as it is known.
    pub writer: Option<String>,
}

impl Report {
    /// Whether nothing that was promised is damaged or missing. A torn tail is no damage.
    pub fn is_intact(&self) -> bool {
        self.damage.is_empty()
    }

    /// Records and bytes of all segments that were read.
    pub fn counts(&self) -> Counts {
        self.segments.iter().fold(Counts::default(), |sum, segment| sum.plus(&segment.counts))
    }
}

/// A segment of the log.
#[derive(Debug, Clone)]
pub struct SegmentReport {
    /// Its number.
    pub number: SegmentNumber,
    /// Its file.
    pub path: PathBuf,
    /// The size of its file in bytes.
    pub file_bytes: u64,
    /// Its header; put together from what its groups say where it has none ([`SegmentState::HeaderLost`]).
    pub header: SegmentHeader,
    /// What it is.
    pub state: SegmentState,
    /// Its first record, also where that is given up.
    pub first: Lsn,
    /// Its last record that can be read; one below `first` if there is none.
    pub last: Lsn,
    /// The byte after the last whole group (or the frame that a later segment names as the last).
    pub end: u64,
    /// The epoch of its last group.
    pub epoch: Epoch,
    /// The highest promise in it.
    pub promise: Lsn,
    /// Whether it was read; otherwise only its header was, and its successor's.
    pub is_read: bool,
    /// What was read.
    pub counts: Counts,
    /// What its first stop means.
    pub verdict: Verdict,
    /// The row that fits.
    pub row: &'static str,
    /// What is behind a torn tail, and what else there is to know and does no harm, a line each.
    pub notes: Vec<String>,
}

/// What a segment of the log is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SegmentState {
    /// It is full, or cut: another follows it.
    Sealed,
    /// The last one.
    Active,
    /// Its header is lost.
    HeaderLost,
}

/// What was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Records in whole groups, without those that are given up.
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

/// A file in the log's directory that is not part of the log.
#[derive(Debug, Clone)]
pub struct OtherFile {
    /// Its number.
    pub number: SegmentNumber,
    /// The file.
    pub path: PathBuf,
    /// Its size in bytes.
    pub bytes: u64,
    /// What it is.
    pub state: FileState,
}

/// What a file is that is not part of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileState {
    /// Its blocks wait to be used again.
    Free,
    /// It is being prepared, or a crash left it so.
    Unfinished,
    /// It has a segment's name and was never begun.
    Ready,
    /// A segment that was given up, or cut off.
    Obsolete,
}
