//! Finds the files of the log: from the headers of a directory to the segments that belong
//! together.
//!
//! *Owns*: the links between segments. *May not touch*: groups. Each header names its predecessor
//! and the predecessor's end, so a missing segment in the middle is noticed, and records that a cut
//! has truncated are not read.

use alloc::vec::Vec;

use crate::header::{HeaderBlock, SegmentHeader};
use crate::types::{LogId, Lsn, SegmentNumber};
use crate::verdict::{HeaderState, Reason};

/// A file: the number in its name, and the contents of its first block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileHeader {
    /// The number in its name.
    pub number: SegmentNumber,
    /// What its first block holds.
    pub block: HeaderBlock,
}

impl FileHeader {
    /// Whether it has a header of its own number, of whatever log: a segment that was begun, not
    /// one that is only prepared.
    pub fn is_begun(&self) -> bool {
        self.block.header().is_some_and(|header| header.number == self.number)
    }

    /// The header, if it is of `log` and of this file's number.
    pub fn own(&self, log: LogId) -> Option<&SegmentHeader> {
        self.block.header().filter(|header| header.log == log && header.number == self.number)
    }

    /// The state of a file without a header of its own; `None` if it has one.
    pub fn state(&self, log: Option<LogId>) -> Option<HeaderState> {
        Some(match &self.block {
            HeaderBlock::Zero => HeaderState::Zero,
            HeaderBlock::Short => HeaderState::Short,
            HeaderBlock::Unknown { .. } => HeaderState::Unknown,
            HeaderBlock::Damaged(_) => HeaderState::Damaged,
            HeaderBlock::Valid { header, .. } if Some(header.log) != log => HeaderState::Foreign,
            HeaderBlock::Valid { header, .. } if header.number < self.number => HeaderState::Older,
            HeaderBlock::Valid { header, .. } if header.number > self.number => HeaderState::Newer,
            HeaderBlock::Valid { .. } => return None,
        })
    }
}

/// The log id in the header of the lowest-numbered file that has one. A file of another log is
/// noticed because its id differs.
pub fn common_log(headers: &[FileHeader]) -> Option<LogId> {
    let with_header = headers.iter().filter(|file| file.block.header().is_some());
    with_header
        .min_by_key(|file| file.number)
        .and_then(|file| file.block.header())
        .map(|header| header.log)
}

/// The file with the lowest number that belongs to another log or has an unknown version: then the
/// whole directory is refused.
pub fn directory_fault(
    files: &[FileHeader],
    log: Option<LogId>,
) -> Option<(SegmentNumber, HeaderState)> {
    let fault = |file: &FileHeader| {
        let state = file.state(log)?;
        matches!(state, HeaderState::Foreign | HeaderState::Unknown).then_some((file.number, state))
    };
    files.iter().filter_map(fault).min_by_key(|(number, _)| *number)
}

/// The segment with the highest number that has a header of its own.
pub fn head_of(files: &[FileHeader], log: LogId) -> Option<SegmentHeader> {
    files.iter().filter_map(|file| file.own(log)).max_by_key(|header| header.number).copied()
}

/// A segment of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChainLink {
    /// Its header.
    pub header: SegmentHeader,
    /// The header of the next segment, which names the end of this one; `None` for the head.
    pub successor: Option<SegmentHeader>,
}

impl ChainLink {
    /// Its end, if another segment follows it.
    pub fn end(&self) -> Option<u64> {
        self.successor.and_then(|successor| successor.predecessor).map(|end| end.byte)
    }
}

/// The segments of the log in order; the last is the head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chain {
    /// The links, lowest number first; there is at least one.
    pub links: Vec<ChainLink>,
}

/// Why the segments do not form a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChainFault {
    /// The segment that is missing or contradicts the other.
    pub segment: SegmentNumber,
    /// The segment that names it.
    pub named_by: SegmentNumber,
    /// `MissingSegment` or `Link`.
    pub reason: Reason,
}

impl Chain {
    /// Follows the links from `head` back to the segment that holds `first_live`. The head has that
    /// LSN, in its header or in its `TruncateBefore` frames. Older segments are not needed, and may
    /// be gone.
    ///
    /// # Errors
    /// When a segment that a link names has no header of its own, or contradicts the segment that
    /// names it.
    pub fn resolve(
        files: &[FileHeader],
        head: &SegmentHeader,
        first_live: Lsn,
    ) -> Result<Self, ChainFault> {
        let mut links = alloc::vec![ChainLink { header: *head, successor: None }];
        let mut current = *head;
        let mut files: Vec<_> = files.iter().collect();
        files.sort_by_key(|file| file.number);
        while current.first_lsn > first_live {
            let fault = |segment, reason| ChainFault { segment, named_by: current.number, reason };
            let Some(end) = current.predecessor else {
                return Err(fault(current.number, Reason::Link));
            };
            let place = files.binary_search_by_key(&end.segment, |file| file.number);
            let Some(header) = place.ok().and_then(|place| files[place].own(head.log)) else {
                return Err(fault(end.segment, Reason::MissingSegment));
            };
            let agrees = end.byte <= header.groups_end()
                && header.epoch <= current.epoch
                && header.first_lsn <= current.first_lsn
                && header.first_live <= current.first_live
                && header.cuts <= current.cuts
                && (header.kind, header.owner) == (current.kind, current.owner);
            if !agrees {
                return Err(fault(end.segment, Reason::Link));
            }
            links.push(ChainLink { header: *header, successor: Some(current) });
            current = *header;
        }
        links.reverse();
        Ok(Self { links })
    }
}
