//! The plain data of this crate: a record, the bounds of a stream, sizes.
//!
//! *Owns*: plain data that callers get. *May not touch*: anything else.

use std::ops::{Range, RangeInclusive};

use inkstone::Lsn;

/// The largest note of a stream, in bytes.
pub const NOTE_BYTES_MAX: usize = 4096 - 256;

/// A record of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Its sequence number.
    pub number: u64,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// Where a stream begins and ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// The number of the first record that is left; [`Bounds::next`] if the stream is empty.
    pub first: u64,
    /// The number that the next record gets. Records below it may not be durable yet.
    pub next: u64,
}

impl Bounds {
    /// How many records the stream has.
    pub fn len(&self) -> u64 {
        self.next - self.first
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.first == self.next
    }
}

/// What each stream and each section takes, all as of one record of the log
/// ([`StreamsReader::usage`](crate::StreamsReader::usage)).
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Usage {
    /// The streams, by their ids.
    pub streams: Vec<StreamUsage>,
    /// The sections, oldest first. The oldest one keeps the front of the log from being freed;
    /// records are appended to the last one.
    pub sections: Vec<SectionUsage>,
    /// The records of the log that are lost, since it was salvaged without them, and that an
    /// opening needs. Streams may have been made, changed and removed there that nobody knows of.
    /// Empty also if a table of all streams lies behind what is lost.
    pub lost: Vec<RangeInclusive<Lsn>>,
}

/// What a stream takes.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct StreamUsage {
    /// Its id.
    pub stream: u64,
    /// Where it begins and ends.
    pub bounds: Bounds,
    /// The size of its note; 0 if it has none.
    pub note_bytes: usize,
    /// About how many bytes its records take in the log.
    pub bytes: u64,
    /// How many of these bytes are in the oldest section.
    pub oldest_bytes: u64,
    /// The numbers of its records that are lost: they could not be read when they were to be moved,
    /// or the log was salvaged without them.
    pub lost: Vec<Range<u64>>,
    /// As [`StreamsReader::is_uncertain`](crate::StreamsReader::is_uncertain).
    pub is_uncertain: bool,
}

/// What a section takes.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SectionUsage {
    /// Its number.
    pub number: u32,
    /// The LSN of its first record.
    pub first: Lsn,
    /// Bytes of its records, live or not.
    pub bytes: u64,
    /// About how many bytes its live records take.
    pub live_bytes: u64,
}
