//! A section: a stretch of the log with one directory.
//!
//! *Owns*: what is known of a section; its directory, in memory until all its pages are durable.
//! *May not touch*: the bytes of pages (`record/page.rs`), files.

use std::collections::HashMap;
use std::sync::Arc;

use inkstone::Lsn;
use smallvec::SmallVec;

use crate::record::{DirectoryAt, Sealed};

/// A map by the ids of streams. An append needs it several times, and the standard library's hash
/// of an id takes 15 to 20 ns.
pub(crate) type IdMap<T> = HashMap<u64, T, foldhash::fast::RandomState>;

/// Why a change is impossible.
pub(crate) type Broken = String;

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

    /// Where the directory is, if all of it was written: an opening can skip the records of the
    /// section then.
    pub(crate) fn written(&self) -> Option<&Arc<DirectoryAt>> {
        match self {
            Self::Settling { written, .. } | Self::Written { written, .. } => Some(written),
            Self::Growing(_) | Self::Sealing { .. } => None,
        }
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

    /// What a table says of it once its directory is written.
    pub(crate) fn sealed(&self) -> Option<Sealed> {
        let (written, end) = (Arc::clone(self.directory.written()?), self.end()?);
        let Self { number, first, bytes, .. } = *self;
        Some(Sealed { number, first, end, bytes, written })
    }

    /// The LSN of a record of this section, if the directory is in memory.
    pub(crate) fn place(&self, stream: u64, number: u64) -> Option<Lsn> {
        let offset = self.directory.places()?.find(stream, number)?;
        self.first.plus(u64::from(offset))
    }
}

/// The records of a section, by stream and number. Truncated records stay: the runs of a stream say
/// which records are live. Of two records with one number the later one counts.
#[derive(Debug)]
pub(crate) enum Places {
    /// Of at most one stream: what follows each other is stored once, however many records it is.
    One {
        stream: u64,
        rows: Vec<Spans>,
    },
    Many(IdMap<Rows>),
}

impl Default for Places {
    fn default() -> Self {
        Self::One { stream: 0, rows: Vec::new() }
    }
}

/// Consecutive numbers of the only stream of a section.
#[derive(Debug)]
pub(crate) struct Spans {
    first: u64,
    count: u32,
    spans: Vec<Span>,
}

/// Records that follow each other, each in the next record of the log, or all in the same one.
#[derive(Debug, Clone, Copy)]
struct Span {
    /// Which of its row is the first.
    at: u32,
    offset: u32,
    is_same: bool,
}

impl Span {
    fn offset(self, at: u32) -> u32 {
        if self.is_same { self.offset } else { self.offset + (at - self.at) }
    }
}

impl Spans {
    fn new(first: u64) -> Self {
        Self { first, count: 0, spans: Vec::new() }
    }

    /// The number after the last one; `None` if no number may follow.
    fn next(&self) -> Option<u64> {
        (self.count < u32::MAX).then(|| self.first.checked_add(u64::from(self.count)))?
    }

    fn push(&mut self, offset: u32) {
        let at = self.count;
        self.count += 1;
        if let Some(last) = self.spans.last_mut() {
            if at == last.at + 1 && offset == last.offset {
                last.is_same = true;
            }
            if last.offset(at) == offset {
                return;
            }
        }
        self.spans.push(Span { at, offset, is_same: false });
    }

    fn find(&self, number: u64) -> Option<u32> {
        let at = u32::try_from(number.checked_sub(self.first)?).ok()?;
        let behind = self.spans.partition_point(|span| span.at <= at);
        (at < self.count).then(|| self.spans[behind - 1].offset(at))
    }

    fn forget(&mut self, from: u64) {
        let left = from.saturating_sub(self.first);
        self.count = u32::try_from(left).map_or(self.count, |left| left.min(self.count));
        self.spans.retain(|span| span.at < self.count);
    }

    /// All offsets with their numbers.
    fn iter(&self) -> impl Iterator<Item = (u64, u32)> {
        // The last number may be the highest there is.
        (0..self.count)
            .map(|at| self.first + u64::from(at))
            .filter_map(|number| Some((number, self.find(number)?)))
    }
}

/// The records of one stream among others.
#[derive(Debug, Default)]
pub(crate) struct Rows {
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

    fn forget(&mut self, from: u64) {
        let left = usize::try_from(from.saturating_sub(self.first));
        self.offsets.truncate(left.unwrap_or(usize::MAX));
    }
}

impl Rows {
    fn add(&mut self, number: u64, offset: u32) {
        if self.last.first.wrapping_add(self.last.offsets.len() as u64) != number {
            let row = Row { first: number, offsets: SmallVec::new() };
            let before = std::mem::replace(&mut self.last, row);
            if !before.offsets.is_empty() {
                self.before.push(before);
            }
        }
        self.last.offsets.push(offset);
    }

    fn find(&self, number: u64) -> Option<u32> {
        self.last.find(number).or_else(|| self.before.iter().rev().find_map(|row| row.find(number)))
    }
}

impl Places {
    /// Growing a map of 100,000 streams takes milliseconds, in which all appends would wait.
    fn with_room(streams: usize) -> Self {
        if streams <= 1 {
            return Self::default();
        }
        Self::Many(IdMap::with_capacity_and_hasher(streams, Default::default()))
    }

    /// How many streams it names.
    pub(crate) fn count(&self) -> usize {
        match self {
            Self::One { rows, .. } => usize::from(!rows.is_empty()),
            Self::Many(streams) => streams.len(),
        }
    }

    pub(crate) fn add(&mut self, stream: u64, number: u64, offset: u32) {
        match self {
            Self::One { stream: is, rows } if *is == stream || rows.is_empty() => {
                *is = stream;
                match rows.last_mut().filter(|last| last.next() == Some(number)) {
                    Some(last) => last.push(offset),
                    None => {
                        let mut row = Spans::new(number);
                        row.push(offset);
                        rows.push(row);
                    }
                }
            }
            Self::One { stream: is, rows } => {
                let mut one = Rows::default();
                rows.iter()
                    .flat_map(Spans::iter)
                    .for_each(|(number, offset)| one.add(number, offset));
                *self = Self::Many(IdMap::from_iter([(*is, one)]));
                self.add(stream, number, offset);
            }
            Self::Many(streams) => streams.entry(stream).or_default().add(number, offset),
        }
    }

    /// Forgets the records of a stream from a number on. Otherwise truncated records stay, since a
    /// later one counts; in a salvaged log the later one may be lost.
    pub(crate) fn forget(&mut self, stream: u64, from: u64) {
        match self {
            Self::One { stream: is, rows } if *is == stream => {
                rows.iter_mut().for_each(|row| row.forget(from));
                rows.retain(|row| row.count > 0);
            }
            Self::One { .. } => {}
            Self::Many(streams) => {
                if let Some(Rows { last, before }) = streams.get_mut(&stream) {
                    before.iter_mut().chain([last]).for_each(|row| row.forget(from));
                }
            }
        }
    }

    pub(crate) fn touch(&self, stream: u64) -> Option<u32> {
        match self {
            Self::One { .. } => None,
            Self::Many(streams) => streams.get(&stream)?.last.offsets.last().copied(),
        }
    }

    pub(crate) fn find(&self, stream: u64, number: u64) -> Option<u32> {
        match self {
            Self::One { stream: is, rows } => {
                let mut rows = rows.iter().rev().filter(|_| *is == stream);
                rows.find_map(|row| row.find(number))
            }
            Self::Many(streams) => streams.get(&stream)?.find(number),
        }
    }

    /// The offsets of consecutive records, all of which must be here.
    pub(crate) fn offsets(&self, stream: u64, numbers: std::ops::Range<u64>) -> Vec<u32> {
        if let Self::Many(streams) = self
            && let Some(Rows { last, before }) = streams.get(&stream)
            && before.is_empty()
        {
            let from = (numbers.start - last.first) as usize;
            return last.offsets[from..from + (numbers.end - numbers.start) as usize].to_vec();
        }
        numbers
            .map(|number| self.find(stream, number).expect("a live record has a place"))
            .collect()
    }

    /// The streams that it names, in order.
    pub(crate) fn streams(&self) -> Vec<u64> {
        match self {
            Self::One { stream, rows } => rows.iter().take(1).map(|_| *stream).collect(),
            Self::Many(streams) => {
                let mut streams: Vec<u64> = streams.keys().copied().collect();
                streams.sort_unstable();
                streams
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    /// Records alone, in batches, after truncations, then of a second stream: each is found, and
    /// what follows each other takes no memory of its own.
    #[test]
    fn places_of_one_stream_are_those_of_a_map() {
        let mut random = fastrand::Rng::with_seed(7);
        for round in 0..300 {
            let (mut places, mut map) = (Places::default(), HashMap::new());
            let (mut number, mut offset) = (random.u64(..9), random.u32(..9));
            for step in 0..80 {
                if random.u32(..8) == 0 {
                    number = random.u64(..number + 2);
                }
                let count = [1, 1, 1, 5][random.usize(..4)];
                let stream = if round % 2 == 1 && step > 40 { random.u64(..3) } else { 1 };
                for number in number..number + count {
                    places.add(stream, number, offset);
                    map.insert((stream, number), offset);
                }
                number += count;
                offset += if random.u32(..6) == 0 { 3 } else { 1 };
            }
            for stream in 0..4 {
                for number in 0..500 {
                    let found = places.find(stream, number);
                    assert_eq!(found, map.get(&(stream, number)).copied(), "{stream} {number}");
                }
            }
            let mut streams: Vec<_> = map.keys().map(|(stream, _)| *stream).collect();
            streams.sort_unstable();
            streams.dedup();
            assert_eq!((places.count(), places.streams()), (streams.len(), streams));
        }
        let mut places = Places::default();
        (0..100_000).for_each(|number| places.add(1, number, number as u32));
        (0..1000).for_each(|number| places.add(1, 100_000 + number, 100_000));
        let Places::One { rows, .. } = &places else { panic!("one stream") };
        assert!(rows.len() == 1 && rows[0].spans.len() == 2, "{rows:?}");
        assert_eq!(places.offsets(1, 99_999..100_002), [99_999, 100_000, 100_000]);
    }
}
