//! What an opening takes from the pieces of a table of all streams.
//!
//! *Owns*: when a stream of a table is known, and when all are. *May not touch*: other changes
//! (`state.rs`).

use crate::record::Change;
use crate::state::runs::Runs;
use crate::state::section::Broken;
use crate::state::{Doubt, Partial, State, Stream, Table};

impl State {
    /// Takes a piece of a table, unless all streams are known already.
    pub(super) fn take_table(&mut self, change: &Change<'_>) -> std::result::Result<(), Broken> {
        if self.is_known() {
            return Ok(());
        }
        match change {
            Change::TableBegin { .. } => {
                self.table = Table::Begun;
                self.partial = None;
            }
            Change::TableStream { stream, first, next, cut, note, from, runs } => {
                let Some(mut before) = self.take_runs(*stream, *from)? else { return Ok(()) };
                before.truncate_before(*first, *from, &mut ());
                before.extend(runs);
                let runs = before;
                let (first, next, cut) = (*first, *next, *cut);
                let mut found = Stream { first, next, cut, runs, ..Stream::default() };
                found.set_note(note);
                self.take_stream(*stream, found)?;
            }
            Change::TableRuns { stream, from, to, runs } => {
                let is_sound = runs.is_sorted_by(|one, other| one.first < other.first)
                    && runs.first().is_some_and(|run| run.first >= *from)
                    && runs.last().is_some_and(|run| run.first < *to);
                if !is_sound {
                    return Err(format!("the runs of stream {stream} do not fit their numbers"));
                }
                if let Some(mut before) = self.take_runs(*stream, *from)? {
                    before.extend(runs);
                    self.partial = Some(Partial { stream: *stream, runs: before, to: *to });
                }
            }
            Change::TableSection { sealed } => self.sections.is_written(sealed)?,
            Change::TableEnd {} if self.table != Table::NotBegun => self.table = Table::Known,
            _ => {}
        }
        Ok(())
    }

    /// The runs of a stream before this number, which have come. `None` if its pieces do not count:
    /// the stream is known, or they began before the table, or before records that are lost.
    fn take_runs(&mut self, id: u64, from: u64) -> std::result::Result<Option<Runs>, Broken> {
        let partial = self.partial.take();
        if self.has(id) && self.doubt(id) != Some(Doubt::NoRow) {
            return Ok(None);
        }
        match partial.filter(|begun| begun.stream == id && begun.to == from) {
            _ if from == 0 => Ok(Some(Runs::default())),
            Some(begun) => Ok(Some(begun.runs)),
            None if self.table == Table::Begun && self.salvaged.is_none() => {
                Err(format!("the runs of stream {id} before {from} are not there"))
            }
            None => Ok(None),
        }
    }

    /// Takes a stream of a table.
    fn take_stream(&mut self, id: u64, found: Stream) -> std::result::Result<(), Broken> {
        self.check_runs(id, &found)?;
        if let Some(salvaged) = &mut self.salvaged {
            match salvaged.gaps.first() {
                Some(gap) if *gap.start() <= found.cut => salvaged.doubts.insert(id, Doubt::Cut),
                _ => salvaged.doubts.remove(&id),
            };
        }
        self.put(id, found);
        Ok(())
    }
}
