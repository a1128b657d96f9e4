//! A section: a stretch of the log with one directory.
//!
//! *Owns*: what is known of a section; its directory, in memory until all its pages are durable.
//! *May not touch*: the bytes of pages (`page.rs`), files.

use std::collections::HashMap;
use std::sync::Arc;

use inkstone::Lsn;
use smallvec::SmallVec;

/// A map by the ids of streams. An append needs it several times, and the standard library's hash
/// of an id takes 15 to 20 ns.
pub(crate) type IdMap<T> = HashMap<u64, T, foldhash::fast::RandomState>;

/// A section of the log.
#[derive(Debug)]
pub(crate) struct Section {
    pub(crate) number: u32,
    pub(crate) first: Lsn,
    /// The bytes of its records.
    pub(crate) bytes: u64,
    /// The bytes of its live records.
    pub(crate) live_bytes: u64,
    pub(crate) directory: Directory,
}

/// Where the directory of a section is.
#[derive(Debug)]
pub(crate) enum Directory {
    /// In memory, since the section is still growing.
    Growing(Places),
    /// In memory, since not all pages are written.
    Sealing { places: Places, end: Lsn },
    /// Written, and durable once the record `at` is. In memory until then.
    Settling { places: Places, end: Lsn, written: Arc<DirectoryAt>, at: Lsn },
    /// In the log.
    Written { end: Lsn, written: Arc<DirectoryAt> },
}

/// Which records of the log a directory is in.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct DirectoryAt {
    pub(crate) pages: Vec<PageAt>,
    pub(crate) hints: Vec<HintsAt>,
    /// Hints for those records themselves.
    pub(crate) places: Vec<u8>,
}

/// A page of hints, by the first record of the log that it has a hint for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HintsAt {
    pub(crate) first: Lsn,
    /// The record that has the page.
    pub(crate) lsn: Lsn,
}

impl DirectoryAt {
    /// Its records, in the order of the log.
    pub(crate) fn lsns(&self) -> Vec<Lsn> {
        let pages = self.pages.iter().map(|page| page.lsn);
        pages.chain(self.hints.iter().map(|hints| hints.lsn)).collect()
    }

    /// The page that names a record of a stream, if it is named.
    pub(crate) fn page_of(&self, stream: u64, number: u64) -> Option<Lsn> {
        let is_before = |page: &PageAt| (page.stream, page.number) <= (stream, number);
        let behind = self.pages.partition_point(is_before);
        Some(self.pages[behind.checked_sub(1)?].lsn)
    }

    /// The page that may have a hint for this record of the log.
    pub(crate) fn hints_of(&self, lsn: Lsn) -> Option<Lsn> {
        let behind = self.hints.partition_point(|hints| hints.first <= lsn);
        Some(self.hints[behind.checked_sub(1)?].lsn)
    }
}

/// A page of a directory, by the first record that it names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PageAt {
    pub(crate) stream: u64,
    pub(crate) number: u64,
    /// The record that has the page.
    pub(crate) lsn: Lsn,
}

impl Directory {
    /// The directory, if it is in memory.
    pub(crate) fn places(&self) -> Option<&Places> {
        match self {
            Self::Growing(places)
            | Self::Sealing { places, .. }
            | Self::Settling { places, .. } => Some(places),
            Self::Written { .. } => None,
        }
    }

    /// Where the directory is, if it is in the log alone.
    pub(crate) fn written(&self) -> Arc<DirectoryAt> {
        match self {
            Self::Written { written, .. } => Arc::clone(written),
            _ => Arc::default(),
        }
    }

    /// Whether an opening can skip the records of the section.
    pub(crate) fn is_written(&self) -> bool {
        matches!(self, Self::Settling { .. } | Self::Written { .. })
    }
}

impl Section {
    /// A new section, with room for the places of this many streams.
    pub(crate) fn new(number: u32, first: Lsn, streams: usize) -> Self {
        let directory = Directory::Growing(Places::with_room(streams));
        Self { number, first, bytes: 0, live_bytes: 0, directory }
    }

    /// The first record after it, once there is one.
    pub(crate) fn end(&self) -> Option<Lsn> {
        match &self.directory {
            Directory::Growing(_) => None,
            Directory::Sealing { end, .. }
            | Directory::Settling { end, .. }
            | Directory::Written { end, .. } => Some(*end),
        }
    }

    /// The LSN of a record of this section, if the directory is in memory.
    pub(crate) fn place(&self, stream: u64, number: u64) -> Option<Lsn> {
        let offset = self.directory.places()?.find(stream, number)?;
        self.first.plus(u64::from(offset))
    }
}

/// The records of a section, by stream and number. Truncated records stay: the runs of a stream say
/// which records are live. Of two records with one number the later one counts.
#[derive(Debug, Default)]
pub(crate) struct Places {
    streams: IdMap<Rows>,
}

/// The records of one stream.
#[derive(Debug, Default)]
struct Rows {
    last: Row,
    /// The rows before it, which end where numbers were skipped or used again.
    before: Vec<Row>,
}

/// Consecutive numbers.
#[derive(Debug, Default)]
struct Row {
    first: u64,
    /// The LSN of each, counted from the first one of the section. Few records need no heap block.
    offsets: SmallVec<[u32; 4]>,
}

impl Row {
    fn find(&self, number: u64) -> Option<u32> {
        self.offsets.get(usize::try_from(number.checked_sub(self.first)?).ok()?).copied()
    }
}

impl Places {
    /// Growing a map of 100,000 streams takes milliseconds, in which all appends would wait.
    fn with_room(streams: usize) -> Self {
        Self { streams: IdMap::with_capacity_and_hasher(streams, Default::default()) }
    }

    /// How many streams it names.
    pub(crate) fn count(&self) -> usize {
        self.streams.len()
    }

    pub(crate) fn add(&mut self, stream: u64, number: u64, offset: u32) {
        let rows = self.streams.entry(stream).or_default();
        if rows.last.first.wrapping_add(rows.last.offsets.len() as u64) != number {
            let row = Row { first: number, offsets: SmallVec::new() };
            let before = std::mem::replace(&mut rows.last, row);
            if !before.offsets.is_empty() {
                rows.before.push(before);
            }
        }
        rows.last.offsets.push(offset);
    }

    pub(crate) fn touch(&self, stream: u64) -> Option<u32> {
        self.streams.get(&stream)?.last.offsets.last().copied()
    }

    pub(crate) fn find(&self, stream: u64, number: u64) -> Option<u32> {
        let rows = self.streams.get(&stream)?;
        rows.last.find(number).or_else(|| rows.before.iter().rev().find_map(|row| row.find(number)))
    }

    /// The offsets of consecutive records, all of which must be here.
    pub(crate) fn offsets(&self, stream: u64, numbers: std::ops::Range<u64>) -> Vec<u32> {
        match self.streams.get(&stream) {
            Some(Rows { last, before }) if before.is_empty() => {
                let from = (numbers.start - last.first) as usize;
                last.offsets[from..from + (numbers.end - numbers.start) as usize].to_vec()
            }
            _ => numbers
                .map(|number| self.find(stream, number).expect("a live record has a place"))
                .collect(),
        }
    }

    /// The streams that it names, in order.
    pub(crate) fn streams(&self) -> Vec<u64> {
        let mut streams: Vec<u64> = self.streams.keys().copied().collect();
        streams.sort_unstable();
        streams
    }
}
