//! What the changes mean: the streams and the sections as of one record of the log.
//!
//! *Owns*: every stream's bounds, note and runs, and the rules of changes. *May not touch*: the
//! log: `writer.rs` writes it, `state/replay.rs` reads it.
//!
//! A writer and an opening apply changes by the same code. An opening begins in the middle of the
//! log, where most streams are unknown. A table of all streams follows (`house/keeper.rs`), and
//! each piece of it is true at its place in the log. Until the end of the table, an opening skips
//! the changes of unknown streams, since a later piece has the stream.

pub(crate) mod replay;
pub(crate) mod runs;
mod salvaged;
pub(crate) mod section;
mod sections;
mod table;

use std::collections::{BTreeMap, BTreeSet};
use std::hint::black_box;
use std::ops::{Bound, Range, RangeInclusive};
use std::sync::Arc;

use inkstone::Lsn;

use crate::error::{Error, Result};
use crate::record::{Change, DirectoryAt};
use crate::state::runs::{LOST, Live, Runs};
use crate::state::section::{Broken, IdMap, Places, Section};
use crate::state::sections::Sections;
use crate::words::{Bounds, SectionUsage, StreamUsage, Usage};

/// About how many bytes the frame and the head of a record of the log take.
pub(crate) const FRAME_BYTES: u64 = 40;

/// About how many bytes a record of a stream takes beside its own in a batch. The first one of a
/// record of the log counts [`FRAME_BYTES`], as if it were alone.
const RECORD_BYTES: u64 = 24;

/// About how many bytes a stream takes in a table, beside its note: one run, and small numbers.
const ROW_BYTES: u64 = 20;

/// A stream.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Stream {
    pub(crate) first: u64,
    pub(crate) next: u64,
    pub(crate) runs: Runs,
    /// The record of the log that created the stream, or has cut or restarted it last: a reader
    /// that missed records of the log learns by this that the stream may not be the one it knew.
    pub(crate) cut: Lsn,
    /// A box of a box takes one word, and most streams have no note.
    note: Option<Box<Box<[u8]>>>,
}

impl Stream {
    /// An empty stream, created or restarted by this record of the log.
    pub(crate) fn new(first: u64, cut: Lsn) -> Self {
        Self { first, next: first, cut, ..Self::default() }
    }

    pub(crate) fn bounds(&self) -> Bounds {
        Bounds { first: self.first, next: self.next }
    }

    /// Empty if there is none.
    pub(crate) fn note(&self) -> &[u8] {
        self.note.as_deref().map_or(&[], |note| note)
    }

    fn set_note(&mut self, note: &[u8]) {
        self.note = (!note.is_empty()).then(|| Box::new(note.into()));
    }

    /// The first number that is left if the sections before this one go.
    fn first_from(&self, section: u32) -> u64 {
        self.runs.end_before(section, self.next).unwrap_or(self.first)
    }

    /// Truncates the records up to the last one in the sections before this one.
    fn lose_before(&mut self, section: u32, sections: &mut Sections) {
        let first = self.first_from(section);
        if first > self.first {
            self.runs.truncate_before(first, self.next, sections);
            self.first = first;
        }
    }
}

/// How far an opening has come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Table {
    /// No table has begun.
    #[default]
    NotBegun,
    /// A table has begun.
    Begun,
    /// All streams are known.
    Known,
}

/// Why nobody knows all of a stream of a salvaged log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Doubt {
    /// No row of a table says behind the gap where it begins and ends, nor that it is there.
    NoRow,
    /// Its row says so. But the stream was cut since the gap began, so a record that is left may be
    /// one that was cut, and the one that took its number lost.
    Cut,
}

/// An opening of a log of which records are lost.
#[derive(Debug, Default)]
pub(crate) struct Salvaged {
    pub(crate) gaps: Vec<RangeInclusive<Lsn>>,
    pub(crate) doubts: BTreeMap<u64, Doubt>,
}

/// The first runs of a stream whose row has not come. Changes meanwhile are part of what comes, but
/// for moves of these records; the row says what was truncated.
#[derive(Debug)]
struct Partial {
    stream: u64,
    runs: Runs,
    /// They are those of all numbers before this one.
    to: u64,
}

/// The streams and the sections. By default none is known, as at the start of an opening.
#[derive(Debug, Default)]
pub(crate) struct State {
    streams: IdMap<Stream>,
    /// The ids in order, for tables and for [`StreamsReader::ids`](crate::StreamsReader::ids).
    ids: BTreeSet<u64>,
    pub(crate) sections: Sections,
    /// Of the notes of all streams.
    note_bytes: u64,
    /// What the first record of a stream takes more in the record of the log that was entered last.
    uncounted: u32,
    table: Table,
    /// Runs of a table, whose stream is known once its row has come.
    partial: Option<Partial>,
    /// None if the opening read no gap.
    pub(crate) salvaged: Option<Box<Salvaged>>,
}

impl State {
    /// As at the start of an opening of a log of which records are lost (`state/salvaged.rs`).
    pub(crate) fn salvaged() -> Self {
        Self { salvaged: Some(Box::default()), ..Self::default() }
    }

    /// The next table counts, also if the last one was complete.
    pub(crate) fn begin_anew(&mut self) -> Option<&mut Salvaged> {
        (self.table, self.partial) = (Table::NotBegun, None);
        self.salvaged.as_deref_mut()
    }

    /// Whether a table has begun, and all streams are known at its end.
    pub(crate) fn is_in_table(&self) -> bool {
        self.table == Table::Begun
    }

    /// Whether the records before this one are lost, and perhaps whole sections with them.
    fn follows_gap(&self, lsn: Lsn) -> bool {
        let gap = self.salvaged.as_ref().and_then(|salvaged| salvaged.gaps.last());
        gap.is_some_and(|gap| gap.end().next() == Some(lsn))
    }

    pub(crate) fn doubt(&self, stream: u64) -> Option<Doubt> {
        self.salvaged.as_ref()?.doubts.get(&stream).copied()
    }

    pub(crate) fn stream_mut(&mut self, stream: u64) -> Option<&mut Stream> {
        self.streams.get_mut(&stream)
    }

    /// Adds a stream, or replaces it: then true.
    pub(crate) fn put(&mut self, id: u64, stream: Stream) -> bool {
        self.ids.insert(id);
        self.note_bytes += stream.note().len() as u64;
        let before = self.streams.insert(id, stream);
        self.note_bytes -= before.as_ref().map_or(0, |before| before.note().len() as u64);
        before.is_some()
    }

    /// Forgets a stream.
    pub(crate) fn forget(&mut self, id: u64) {
        self.ids.remove(&id);
        let before = self.streams.remove(&id);
        self.note_bytes -= before.map_or(0, |before| before.note().len() as u64);
        if let Some(salvaged) = &mut self.salvaged {
            salvaged.doubts.remove(&id);
        }
    }

    /// Whether all streams are known.
    pub(crate) fn is_known(&self) -> bool {
        self.table == Table::Known
    }

    pub(crate) fn stream(&self, stream: u64) -> Result<&Stream> {
        self.streams.get(&stream).ok_or(Error::NoStream { stream })
    }

    /// Touches the memory that appends to these streams and truncations of them will read, so that
    /// the processor's cache misses overlap.
    #[inline]
    pub(crate) fn touch_all(&self, streams: impl Iterator<Item = u64>) {
        if let Some(places) = self.sections.active().and_then(|active| active.directory.places()) {
            streams.for_each(|stream| self.touch_in(places, stream));
        }
    }

    /// The same for the places of a section.
    #[inline]
    pub(crate) fn touch_in(&self, places: &Places, stream: u64) {
        let found = self.streams.get(&stream);
        let last = found.and_then(|found| found.runs.as_slice().last());
        black_box((last.copied(), places.touch(stream)));
    }

    pub(crate) fn bounds(&self, stream: u64) -> Result<Bounds> {
        self.stream(stream).map(Stream::bounds)
    }

    pub(crate) fn has(&self, stream: u64) -> bool {
        self.streams.contains_key(&stream)
    }

    pub(crate) fn count(&self) -> usize {
        self.streams.len()
    }

    /// How many streams have records.
    pub(crate) fn with_records(&self) -> u64 {
        self.streams.values().filter(|stream| stream.first < stream.next).count() as u64
    }

    /// About how many bytes a table of all streams takes at the least.
    pub(crate) fn table_bytes_min(&self) -> u64 {
        self.note_bytes + self.streams.len() as u64 * ROW_BYTES
    }

    /// The streams above an id, in order.
    pub(crate) fn streams_after(&self, id: Option<u64>) -> impl Iterator<Item = (u64, &Stream)> {
        let from = id.map_or(Bound::Unbounded, Bound::Excluded);
        let ids = self.ids.range((from, Bound::Unbounded));
        ids.filter_map(|id| Some((*id, self.streams.get(id)?)))
    }

    /// What each stream and each section takes.
    pub(crate) fn usage(&self) -> Usage {
        let oldest = self.sections.front().map(|front| front.number);
        let of_stream = |(id, stream): (u64, &Stream)| {
            let runs = stream.runs.as_slice();
            let bytes = |is_counted: &dyn Fn(u32) -> bool| -> u64 {
                let counted = runs.iter().filter(|run| is_counted(run.section));
                counted.map(|run| u64::from(run.bytes)).sum()
            };
            StreamUsage {
                stream: id,
                bounds: Bounds { first: stream.first, next: stream.next },
                note_bytes: stream.note().len(),
                bytes: bytes(&|_| true),
                oldest_bytes: bytes(&|section| Some(section) == oldest),
                lost: stream.runs.in_section(LOST, stream.next).collect(),
                is_uncertain: self.doubt(id).is_some(),
            }
        };
        let of_section = |section: &Section| SectionUsage {
            number: section.number,
            first: section.first,
            bytes: section.bytes,
            live_bytes: section.live_bytes,
        };
        Usage {
            streams: self.streams_after(None).map(of_stream).collect(),
            sections: self.sections.iter_from(0).map(of_section).collect(),
            lost: self.salvaged.as_ref().map_or_else(Vec::new, |salvaged| salvaged.gaps.clone()),
        }
    }

    /// A record of a section comes. The first record begins a section, and so does a record with
    /// the next number.
    pub(crate) fn enter(
        &mut self,
        section: u32,
        lsn: Lsn,
        bytes: u64,
    ) -> std::result::Result<(), Broken> {
        let last = self.sections.list.last_key_value().map(|(number, _)| *number);
        match last {
            Some(last) if section == last => {}
            Some(last)
                if Some(section) != last.checked_add(1)
                    && !(section > last && self.follows_gap(lsn)) =>
            {
                return Err(format!("section {section} follows section {last}"));
            }
            _ => {
                let places = self.sections.active().and_then(|last| last.directory.places());
                let streams = places.map_or(0, Places::count);
                if let Some(last) = last {
                    self.sections.seal(last, lsn);
                }
                self.sections.list.insert(section, Section::new(section, lsn, streams));
            }
        }
        let taken = bytes + FRAME_BYTES;
        self.sections.log_bytes += taken;
        self.sections.active_mut().bytes += taken;
        self.uncounted = (FRAME_BYTES - RECORD_BYTES) as u32;
        Ok(())
    }

    /// Makes a change of the record with this LSN, for which `enter` was called.
    pub(crate) fn apply(
        &mut self,
        change: &Change<'_>,
        lsn: Lsn,
    ) -> std::result::Result<(), Broken> {
        if let Some(stream) = change.stream() {
            return self.change(stream, change, lsn);
        }
        match change {
            Change::Moved { stream, number, source, bytes } => {
                let section = self.sections.place(*stream, *number, lsn);
                self.relocate(*stream, *number, (*source, section), cost(bytes.len()))
            }
            Change::Lost { stream, number, source } => {
                self.relocate(*stream, *number, (*source, LOST), 0)
            }
            Change::Sealed { sealed } => self.sections.is_written(sealed),
            Change::Page { .. } => Ok(()),
            _ => self.take_table(change),
        }
    }

    /// Makes a move of a record from a section to another one.
    fn relocate(
        &mut self,
        stream: u64,
        number: u64,
        (source, to): (u32, u32),
        bytes: u32,
    ) -> std::result::Result<(), Broken> {
        let is_known = self.is_known();
        if let Some(partial) = self.partial.as_mut().filter(|begun| begun.stream == stream) {
            partial.runs.relocate((number, partial.to), (source, to), bytes, &mut ());
        }
        let Some(found) = self.streams.get_mut(&stream) else { return unknown(is_known, stream) };
        let (place, live) = ((number, found.next), &mut self.sections);
        if !(found.first..found.next).contains(&number)
            || !found.runs.relocate(place, (source, to), bytes, live)
        {
            return Err(format!(
                "stream {stream}: record {number} is moved, and is not in section {source}"
            ));
        }
        Ok(())
    }

    /// Makes a user's change of a stream.
    fn change(
        &mut self,
        id: u64,
        change: &Change<'_>,
        lsn: Lsn,
    ) -> std::result::Result<(), Broken> {
        let is_known = self.is_known();
        let section = match change {
            Change::Append { number, .. } => self.sections.place(id, *number, lsn),
            Change::Create { first, .. } => {
                return match self.put(id, Stream::new(*first, lsn)) {
                    true => Err(Error::Exists { stream: id }.to_string()),
                    false => Ok(()),
                };
            }
            _ => 0,
        };
        let Some(found) = self.streams.get_mut(&id) else { return unknown(is_known, id) };
        let before = found.bounds();
        let after = made(id, before, change).map_err(|error| error.to_string())?;
        let (runs, live) = (&mut found.runs, &mut self.sections);
        match change {
            Change::Append { number, bytes, .. } => {
                let frame = std::mem::take(&mut self.uncounted);
                runs.push(*number, section, cost(bytes.len()).saturating_add(frame), live);
            }
            Change::TruncateBefore { first, .. } => runs.truncate_before(*first, before.next, live),
            Change::TruncateAfter { next, .. } => {
                if *next < before.next {
                    found.cut = lsn;
                }
                runs.truncate_from(*next, before.next, live);
            }
            Change::Restart { .. } => {
                found.cut = lsn;
                runs.truncate_before(before.next, before.next, live);
            }
            Change::Remove { .. } => runs.truncate_before(before.next, before.next, live),
            Change::Note { bytes, .. } => {
                self.note_bytes += bytes.len() as u64;
                self.note_bytes -= found.note().len() as u64;
                found.set_note(bytes);
            }
            _ => {}
        }
        match after {
            Some(Bounds { first, next }) => (found.first, found.next) = (first, next),
            None => self.forget(id),
        }
        Ok(())
    }

    /// Bytes of the log are never trusted: arithmetic on runs that do not fit would go wrong.
    fn check_runs(&self, id: u64, stream: &Stream) -> std::result::Result<(), Broken> {
        let runs = stream.runs.as_slice();
        let is_sound = stream.first <= stream.next
            && runs.first().map_or(stream.next, |run| run.first) == stream.first
            && runs.is_sorted_by(|one, other| one.first < other.first)
            && runs.last().is_none_or(|run| run.first < stream.next);
        if is_sound {
            Ok(())
        } else {
            Err(format!("the runs of stream {id} do not fit its bounds"))
        }
    }

    /// Ends the opening of a log that begins at `first`: forgets truncated sections, and counts
    /// live bytes.
    pub(crate) fn finish(&mut self, first: Lsn) -> std::result::Result<(), Broken> {
        if !self.is_known() && self.salvaged.is_none() {
            return Err("the table of streams that it names is not complete".into());
        }
        self.forget_before(first);
        self.sections.live_bytes = 0;
        self.sections.log_bytes = self.sections.list.values().map(|section| section.bytes).sum();
        self.sections.list.values_mut().for_each(|section| section.live_bytes = 0);
        for (id, stream) in &self.streams {
            self.check_runs(*id, stream)?;
            for run in stream.runs.as_slice() {
                let is_whole = self.salvaged.is_none();
                let is_there = self.sections.list.contains_key(&run.section);
                if is_whole && run.section != LOST && !is_there {
                    return Err(format!(
                        "stream {id} has records in section {}, which the log has not",
                        run.section
                    ));
                }
                self.sections.gain(run.section, run.bytes);
            }
        }
        Ok(())
    }

    /// Forgets the sections that end at or before this record, since the log freed them. If the log
    /// has one stream, its owner may have freed records that live, without a record of that
    /// ([`State::forget_front`]): these records are truncated.
    pub(crate) fn forget_before(&mut self, first: Lsn) {
        self.sections.forget_before(first);
        let Some(front) = self.sections.front().map(|front| front.number) else { return };
        let mut ids = self.ids.iter();
        if let (Some(id), None) = (ids.next(), ids.next())
            && self.salvaged.is_none()
            && let Some(stream) = self.streams.get_mut(id)
        {
            stream.lose_before(front, &mut self.sections);
        }
    }

    /// As [`Streams::forget_front`](crate::Streams::forget_front) says: `end` is there since the
    /// first record that is left says what came before. An opening may not begin later than at
    /// `replay_from`.
    pub(crate) fn forget_front(
        &mut self,
        stream: u64,
        end: u64,
        (first, replay_from): (Lsn, Lsn),
    ) -> Option<(Lsn, u64)> {
        let found = self.streams.get_mut(&stream).filter(|_| self.ids.len() == 1)?;
        let sections = self.sections.list.values().rev();
        let section = sections.filter(|section| section.first <= replay_from).find(|section| {
            let left = found.first_from(section.number);
            section.first > first && left < end && left < found.next
        })?;
        let (number, front) = (section.number, section.first);
        found.lose_before(number, &mut self.sections);
        Some((front, found.first))
    }

    /// Whether a record is live and in this section.
    pub(crate) fn lives_in(&self, section: u32, stream: u64, number: u64) -> bool {
        self.stream(stream).is_ok_and(|found| {
            (found.first..found.next).contains(&number)
                && found.runs.find(number, found.next).is_some_and(|(is, _)| is == section)
        })
    }

    /// Where a record that exists is.
    pub(crate) fn locate(&self, stream: u64, number: u64) -> Result<Located> {
        let found = self.stream(stream)?;
        if number < found.first {
            return Err(Error::Truncated { stream, number, first: found.first });
        }
        if number >= found.next {
            return Err(Error::NotYet { stream, number, next: found.next });
        }
        let (number_of_section, run_end) =
            found.runs.find(number, found.next).expect("every record of a stream is in a run");
        let lost = |next| Error::LostRecord { stream, number, next };
        // `finish` has seen that a whole log has each section.
        let section = self.sections.list.get(&number_of_section).ok_or_else(|| lost(run_end))?;
        Ok(match section.place(stream, number) {
            Some(lsn) => Located::Record(lsn),
            None if self.salvaged.is_some() && section.directory.places().is_some() => {
                return Err(lost(number + 1));
            }
            None => Located::Page {
                written: section.directory.written().cloned().unwrap_or_default(),
                section: section.number,
                lsns: section.first..section.end().unwrap_or(section.first),
                run_end,
            },
        })
    }
}

/// Where a record is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Located {
    /// This record of the log has it.
    Record(Lsn),
    /// A page of this directory says where. If no page does, the log contradicts itself.
    Page { written: Arc<DirectoryAt>, section: u32, lsns: Range<Lsn>, run_end: u64 },
}

fn unknown(is_known: bool, stream: u64) -> std::result::Result<(), Broken> {
    if is_known { Err(format!("there is no stream {stream}")) } else { Ok(()) }
}

/// The bounds of a stream after a change; `None` if it is gone then.
pub(crate) fn made(stream: u64, before: Bounds, change: &Change<'_>) -> Result<Option<Bounds>> {
    let Bounds { first, next } = before;
    let within = |to: u64, number: u64| match to {
        to if to < first => Err(Error::Truncated { stream, number, first }),
        to if to > next => Err(Error::NotYet { stream, number, next }),
        _ => Ok(()),
    };
    Ok(Some(match *change {
        Change::Create { .. } => return Err(Error::Exists { stream }),
        Change::Append { number, .. } if number != next => {
            return Err(Error::OtherNumber { stream, next, came: number });
        }
        Change::Append { .. } => {
            let behind = next.checked_add(1).ok_or(Error::UsedUp { stream })?;
            Bounds { first, next: behind }
        }
        Change::TruncateBefore { first: to, .. } => {
            within(to, to)?;
            Bounds { first: to, next }
        }
        Change::TruncateAfter { next: to, .. } => {
            within(to, to.wrapping_sub(1))?;
            Bounds { first, next: to }
        }
        Change::Restart { next, .. } => Bounds { first: next, next },
        Change::Remove { .. } => return Ok(None),
        _ => before,
    }))
}

/// About how many bytes a record of a stream takes in the log.
pub(crate) fn cost(bytes: usize) -> u32 {
    u32::try_from(bytes as u64 + RECORD_BYTES).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Magic, Run, Sealed};

    fn runs(numbers: std::ops::Range<u64>) -> Vec<Run> {
        numbers.map(|first| Run { first, section: first as u32, bytes: 30 }).collect()
    }

    /// Pieces of the runs 1 to 9, one run for each number, of a stream that had the first three
    /// truncated meanwhile, and record 5 moved.
    #[test]
    fn a_stream_of_a_table_is_known_when_all_its_runs_have_come() {
        let piece = |from: u64, to| {
            let runs = runs(from.max(1)..to);
            Change::TableRuns { stream: 1, from, to, runs }
        };
        let row = |from: u64| {
            let (first, next, cut) = (4, 10, Lsn::new(1));
            let runs = runs(from.max(4)..10);
            Change::TableStream { stream: 1, first, next, cut, note: b"", from, runs }
        };
        let [begin, end] = [Change::TableBegin { magic: Magic }, Change::TableEnd {}];
        let moved = Change::Moved { stream: 1, number: 5, source: 5, bytes: b"" };
        let whole = [&begin, &piece(0, 4), &piece(4, 7), &moved, &row(7), &end];
        let again = [&begin, &piece(0, 6), &piece(0, 2), &piece(2, 7), &moved, &row(7), &end];
        let before = [&piece(0, 4), &begin, &piece(0, 7), &moved, &row(7), &end];
        let late = [&piece(3, 4), &row(4), &begin, &piece(0, 9), &moved, &row(9), &end];
        let short = [&begin, &piece(0, 2), &row(2), &moved, &end];
        for changes in [&whole[..], &again, &before, &late, &short] {
            let mut state = State::default();
            state.enter(9, Lsn::new(9), 1).unwrap();
            changes.iter().for_each(|change| state.apply(change, Lsn::new(9)).unwrap());
            let mut expected = runs(4..10);
            (expected[1].section, expected[1].bytes) = (9, cost(0));
            assert_eq!(state.stream(1).unwrap().runs.as_slice(), expected, "{changes:?}");
        }
        for wrong in [piece(3, 4), row(4)] {
            let mut state = State::default();
            state.enter(9, Lsn::new(9), 1).unwrap();
            state.apply(&begin, Lsn::new(9)).unwrap();
            state.apply(&wrong, Lsn::new(9)).unwrap_err();
        }
    }

    /// What docs/streams.md says of memory: an entry of the table, and no heap block beside it.
    #[test]
    fn an_idle_stream_takes_64_bytes_of_its_table() {
        assert_eq!(size_of::<(u64, Stream)>(), 64);
        let (mut runs, mut sections) = (Runs::default(), Sections::default());
        runs.push(1, 9, 30, &mut sections);
        runs.push(2, 9, 30, &mut sections);
        assert!(!runs.is_on_heap(), "one run");
        runs.push(3, 10, 30, &mut sections);
        assert!(runs.is_on_heap(), "two runs");
        runs.truncate_before(3, 4, &mut sections);
        assert!(!runs.is_on_heap(), "one run again");
    }

    #[test]
    fn a_section_that_is_written_has_no_directory() {
        let (first, end) = (Lsn::new(1 << 40), Lsn::new(1 << 41));
        let sealed = |number| Sealed { number, first, end, bytes: 1, written: Arc::default() };
        for change in [
            Change::Sealed { sealed: sealed(9) },
            Change::TableSection { sealed: sealed(u32::MAX) },
        ] {
            let mut state = State::default();
            state.enter(9, Lsn::new(9), 1).unwrap();
            state.apply(&change, Lsn::new(9)).unwrap_err();
        }
    }
}
