//! Housekeeping, which lets an opening begin near the end of the log.
//!
//! *Owns*: writing the directories of sealed sections and the table of all streams, in small steps;
//! where an opening must begin. *May not touch*: when a step is made (`writer.rs`), what records
//! mean (`state.rs`).
//!
//! A step is owed for each `step_bytes` of the log, and stays owed if the log's buffers have no room
//! for it. What is half written at an opening counts for nothing. docs/streams.md (The table,
//! Opening) says how much a step has, and what an opening reads and owes.

use std::collections::VecDeque;
use std::sync::Arc;

use inkstone::Lsn;

use crate::house::out::Out;
use crate::options::Options;
use crate::record::bytes::NUMBER_BYTES_MAX;
use crate::record::page::PageMaker;
use crate::record::{Change, DirectoryAt, Magic, PageAt, Sealed};
use crate::state::replay::Replayed;
use crate::state::section::{Directory, Section};
use crate::state::{State, Stream};
use crate::words::NOTE_BYTES_MAX;

/// The most runs of a stream in one change of a table.
const RUNS_MAX: usize = 100;
/// The most bytes of a stream in one change of a table: a note, runs, and numbers.
const ROW_BYTES_MAX: usize = NOTE_BYTES_MAX + RUNS_MAX * 3 * NUMBER_BYTES_MAX + 256;
/// A page of a directory prefetches the memory of the stream this many places ahead.
const TOUCH_AHEAD: usize = 8;
/// The most pages of directories in one step, when many are due.
const PAGES_MAX: u32 = 8;
/// The most steps with one append. What is owed still comes with the next ones.
const STEPS_MAX: u64 = 16;

/// The progress of housekeeping.
#[derive(Debug)]
pub(crate) struct Keeper {
    step_bytes: u64,
    /// The approximate size of a page of a directory.
    page_bytes: usize,
    /// A piece of the table ends with the stream that brings it to a size between these.
    piece_bytes: usize,
    piece_bytes_max: usize,
    owed_bytes: u64,
    /// Where the last complete table begins.
    table_begin: Lsn,
    table: Option<TableAt>,
    /// How many bytes the last complete table has, and how many the next one has by now.
    table_bytes: (u64, u64),
    /// Bytes appended since the last table began.
    since_table_bytes: u64,
    section_bytes: u64,
    /// The first section whose directory is not written yet.
    unwritten: u32,
    sealer: Option<Sealer>,
    /// Sections whose directories are written, but not known to be durable.
    settling: VecDeque<u32>,
    pub(crate) bytes: u64,
}

/// The progress of the table that is being written.
#[derive(Debug, Clone, Copy)]
struct TableAt {
    begin: Lsn,
    next: TableNext,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum TableNext {
    Sections(u32),
    /// The streams above this one.
    Streams(Option<u64>),
    /// The runs of this stream from a number on, unless it was cut since: then all of them.
    Runs {
        stream: u64,
        from: u64,
        cut: Lsn,
    },
}

/// The progress of the directory of a section.
#[derive(Debug)]
struct Sealer {
    streams: Vec<u64>,
    at: usize,
    number: u64,
    written: DirectoryAt,
}

impl Keeper {
    /// Continues after an opening.
    pub(crate) fn new(made: &Replayed, options: &Options) -> Self {
        let (step_bytes, limit_bytes) = (options.step_bytes(), options.log.largest_record_bytes());
        let mut sections = made.state.sections.iter_from(0);
        let unwritten = sections.find(|section| section.directory.written().is_none());
        Self {
            step_bytes,
            page_bytes: options.page_bytes(),
            piece_bytes: (step_bytes as usize / 8).min(limit_bytes / 8),
            piece_bytes_max: (limit_bytes / 2).saturating_sub(ROW_BYTES_MAX).max(limit_bytes / 8),
            owed_bytes: made.bytes,
            table_begin: made.table_begin,
            table: None,
            table_bytes: (0, 0),
            since_table_bytes: made.bytes,
            section_bytes: options.section_bytes,
            unwritten: unwritten.map_or(0, |section| section.number),
            sealer: None,
            settling: VecDeque::new(),
            bytes: 0,
        }
    }

    /// Where an opening must begin.
    pub(crate) fn replay_from(&self, state: &State) -> Lsn {
        self.replay_if(state, self.table_begin, self.unwritten)
    }

    fn replay_if(&self, state: &State, table_begin: Lsn, unwritten: u32) -> Lsn {
        state.sections.get(unwritten).map_or(table_begin, |section| section.first.min(table_begin))
    }

    /// A record was appended: returns how many steps are due, several after a large record.
    pub(crate) fn steps_due(&mut self, bytes: u64) -> u64 {
        self.owed_bytes += bytes;
        self.since_table_bytes += bytes;
        self.steps_owed().min(STEPS_MAX)
    }

    /// How many steps are owed in all.
    pub(crate) fn steps_owed(&self) -> u64 {
        self.owed_bytes / self.step_bytes
    }

    /// One step. If the log takes no record now, the step stays owed.
    ///
    /// # Errors
    /// Those of the log.
    pub(crate) fn step(
        &mut self,
        state: &mut State,
        out: &mut Out<'_, '_>,
    ) -> inkstone::Result<()> {
        self.settle(state, out.log.durable());
        self.seal_some(state, out)?;
        if self.table.is_some() || self.table_is_due(state) {
            self.write_table(state, out)?;
        }
        self.owed_bytes = self.owed_bytes.saturating_sub(self.step_bytes);
        Ok(())
    }

    /// An opening reads the active section in any case, so a table is due only if the last one is
    /// older. Nor is more written for tables than is appended otherwise.
    fn table_is_due(&self, state: &State) -> bool {
        let unwritten = state.sections.get(self.unwritten);
        unwritten.is_some_and(|section| self.table_begin < section.first)
            && self.since_table_bytes >= self.table_bytes(state)
    }

    /// About how many bytes a table of all streams takes.
    pub(crate) fn table_bytes(&self, state: &State) -> u64 {
        self.table_bytes.0.max(state.table_bytes_min())
    }

    /// About how many bytes the next piece of the table gets, so that the whole table takes no more
    /// steps than a quarter of a section has: an opening begins at the table before until then.
    fn next_piece_bytes(&self, state: &State) -> usize {
        let steps = self.section_bytes / 4 / self.step_bytes;
        let piece = (self.table_bytes(state) / steps.max(1)) as usize;
        piece.clamp(self.piece_bytes, self.piece_bytes_max)
    }

    fn seal_some(&mut self, state: &mut State, out: &mut Out<'_, '_>) -> inkstone::Result<()> {
        // Many small records make a large directory: while several are due, a step has more pages.
        let active = state.sections.active().map_or(0, |active| active.number);
        for _ in 0..active.saturating_sub(self.unwritten).clamp(1, PAGES_MAX) {
            self.seal(state, out)?;
        }
        Ok(())
    }

    /// Drops directories from memory once all their pages are durable.
    pub(crate) fn settle(&mut self, state: &mut State, durable: Lsn) {
        while let Some(number) = self.settling.front() {
            if let Some(section) = state.sections.get_mut(*number)
                && let Directory::Settling { end, written, at, .. } = &section.directory
            {
                if *at > durable {
                    return;
                }
                let (end, written) = (*end, Arc::clone(written));
                section.directory = Directory::Written { end, written };
            }
            self.settling.pop_front();
        }
    }

    /// Writes the next page of the oldest unwritten directory, or the record that completes it.
    fn seal(&mut self, state: &mut State, out: &mut Out<'_, '_>) -> inkstone::Result<()> {
        let Some(section) = state.sections.get(self.unwritten) else { return Ok(()) };
        let Directory::Sealing { places, end } = &section.directory else { return Ok(()) };
        let (number, first, end, bytes) = (section.number, section.first, *end, section.bytes);
        let sealer = self.sealer.get_or_insert_with(|| Sealer {
            streams: places.streams(),
            at: 0,
            number: 0,
            written: DirectoryAt::default(),
        });
        let (page, at, next) = sealer.page(state, section.number, self.page_bytes);
        let mut changes = Vec::with_capacity(page.bytes().len() + 16);
        if let Some((stream, named)) = page.first {
            Change::Page { section: number, bytes: page.bytes() }.put(&mut changes);
            let lsn = self.write(state, out, &changes, self.unwritten)?;
            if let Some(sealer) = &mut self.sealer {
                sealer.written.pages.push(PageAt { stream, number: named, lsn });
                (sealer.at, sealer.number) = (at, next);
            }
            return Ok(());
        }
        let written = Arc::new(sealer.written.clone());
        let sealed = Sealed { number, first, end, bytes, written: Arc::clone(&written) };
        Change::Sealed { sealed }.put(&mut changes);
        let at = self.write(state, out, &changes, self.unwritten + 1)?;
        self.sealer = None;
        if let Some(section) = state.sections.get_mut(number)
            && let Directory::Sealing { places, end } = &mut section.directory
        {
            let (places, end) = (std::mem::take(places), *end);
            section.directory = Directory::Settling { places, end, written, at };
        }
        self.settling.push_back(number);
        self.unwritten += 1;
        Ok(())
    }

    /// Writes changes to the log, of which `unwritten` is the first section without a directory
    /// then.
    fn write(
        &mut self,
        state: &mut State,
        out: &mut Out<'_, '_>,
        changes: &[u8],
        unwritten: u32,
    ) -> inkstone::Result<Lsn> {
        let replay_from = self.replay_if(state, self.table_begin, unwritten);
        let lsn = out.write(state, changes, replay_from)?.0.lsn();
        self.bytes += changes.len() as u64;
        Ok(lsn)
    }

    /// Writes the next piece of the table, also the first and the last.
    fn write_table(&mut self, state: &mut State, out: &mut Out<'_, '_>) -> inkstone::Result<()> {
        let piece_bytes = self.next_piece_bytes(state);
        let mut changes = Vec::with_capacity(piece_bytes + 1024);
        let mut at = self.table.unwrap_or_else(|| {
            Change::TableBegin { magic: Magic }.put(&mut changes);
            self.since_table_bytes = 0;
            TableAt { begin: out.pen.next, next: TableNext::Sections(0) }
        });
        let mut is_complete = false;
        loop {
            let most = match at.next {
                // The row of a section may be large.
                TableNext::Sections(_) => self.piece_bytes,
                TableNext::Streams(_) | TableNext::Runs { .. } => piece_bytes,
            };
            if changes.len() >= most {
                break;
            }
            match at.next {
                TableNext::Sections(from) => {
                    let mut sections = state.sections.iter_from(from);
                    at.next = match sections.find_map(Section::sealed) {
                        Some(sealed) => {
                            let next = sealed.number + 1;
                            Change::TableSection { sealed }.put(&mut changes);
                            TableNext::Sections(next)
                        }
                        None => TableNext::Streams(None),
                    };
                }
                TableNext::Streams(last) => {
                    let mut next = None;
                    for stream in state.streams_after(last) {
                        next = Some(put_stream(&mut changes, stream, 0));
                        if changes.len() >= most || matches!(next, Some(TableNext::Runs { .. })) {
                            break;
                        }
                    }
                    let Some(next) = next else {
                        is_complete = true;
                        break;
                    };
                    at.next = next;
                }
                TableNext::Runs { stream: id, from, cut } => {
                    at.next = match state.stream(id) {
                        Ok(stream) => put_rest(&mut changes, (id, stream), (from, cut)),
                        Err(_) => TableNext::Streams(Some(id)),
                    };
                }
            }
        }
        let mut table_begin = self.table_begin;
        if is_complete {
            Change::TableEnd {}.put(&mut changes);
            table_begin = at.begin;
        }
        let replay_from = self.replay_if(state, table_begin, self.unwritten);
        drop(out.write(state, &changes, replay_from)?);
        self.bytes += changes.len() as u64;
        self.table_bytes.1 += changes.len() as u64;
        if is_complete {
            self.table_bytes = (self.table_bytes.1, 0);
        }
        self.table_begin = table_begin;
        self.table = (!is_complete).then_some(at);
        Ok(())
    }
}

/// Encodes a stream of a table from one of its numbers on, or as many of its runs as one change
/// holds; returns what comes next.
fn put_stream(out: &mut Vec<u8>, (id, stream): (u64, &Stream), from: u64) -> TableNext {
    let (runs, to) = stream.runs.piece(from, stream.next, RUNS_MAX);
    if let Some(to) = to {
        Change::TableRuns { stream: id, from, to, runs }.put(out);
        return TableNext::Runs { stream: id, from: to, cut: stream.cut };
    }
    let (first, next, cut, note) = (stream.first, stream.next, stream.cut, stream.note());
    Change::TableStream { stream: id, first, next, cut, note, from, runs }.put(out);
    TableNext::Streams(Some(id))
}

/// The same, unless the stream was cut since: then from its first number on.
fn put_rest(out: &mut Vec<u8>, stream: (u64, &Stream), (from, cut): (u64, Lsn)) -> TableNext {
    let is_same = stream.1.cut == cut;
    put_stream(out, stream, if is_same { from } else { 0 })
}

impl Sealer {
    /// The next page, and where the one after it begins. It names live records only, since a sealed
    /// section gains none.
    fn page(&self, state: &State, section: u32, page_bytes: usize) -> (PageMaker, usize, u64) {
        let mut page = PageMaker::default();
        let (mut at, mut from) = (self.at, self.number);
        let Some(section) = state.sections.get(section) else { return (page, at, from) };
        let Some(places) = section.directory.places() else { return (page, at, from) };
        while let Some(id) = self.streams.get(at).copied() {
            if let Some(ahead) = self.streams.get(at + TOUCH_AHEAD) {
                state.touch_in(places, *ahead);
            }
            let Ok(stream) = state.stream(id) else {
                (at, from) = (at + 1, 0);
                continue;
            };
            for run in stream.runs.in_section(section.number, stream.next) {
                let first = run.start.max(from);
                if first >= run.end {
                    continue;
                }
                let left = page_bytes.saturating_sub(page.bytes().len()) / 2;
                if left == 0 {
                    return (page, at, first);
                }
                let end = run.end.min(first.saturating_add(left as u64));
                page.add(id, first, &places.offsets(id, first..end));
                if end < run.end {
                    return (page, at, end);
                }
            }
            (at, from) = (at + 1, 0);
        }
        (page, at, from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_runs_of_a_stream_that_is_cut_while_they_are_written_begin_anew() {
        let mut state = State::default();
        for (section, number) in (1..=150).zip(0..) {
            state.enter(section, Lsn::new(number + 1), 1).unwrap();
            let made = match number {
                0 => Change::Create { stream: 7, first: 1 },
                number => Change::Append { stream: 7, number, bytes: b"" },
            };
            state.apply(&made, Lsn::new(number + 1)).unwrap();
        }
        let stream = |state: &State| state.stream(7).unwrap().clone();
        let next = put_stream(&mut Vec::new(), (7, &stream(&state)), 0);
        assert_eq!(next, TableNext::Runs { stream: 7, from: 101, cut: Lsn::new(1) });
        let from_of = |state: &State| {
            let mut out = Vec::new();
            put_rest(&mut out, (7, &stream(state)), (101, Lsn::new(1)));
            match crate::record::changes(&out).next() {
                Some(Ok(Change::TableStream { from, .. })) => from,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(from_of(&state), 101);
        state.apply(&Change::TruncateAfter { stream: 7, next: 50 }, Lsn::new(151)).unwrap();
        assert_eq!(from_of(&state), 0);
    }
}
