//! What an opening makes of a log of which records are lost.
//!
//! *Owns*: which streams are uncertain, and what the changes behind a gap say of them. *May not
//! touch*: what a change means (`state.rs`): this makes an uncertain stream one of which the change
//! that the log has is true.
//!
//! Behind a gap every stream is uncertain: it may have been cut, restarted or removed there. A row
//! of a table, or its creation, makes a stream certain. A whole table behind the gap ends every
//! other one: a stream without a row in it does not exist.

use std::ops::RangeInclusive;

use inkstone::Lsn;

use crate::record::Change;
use crate::state::runs::LOST;
use crate::state::{Doubt, State, Stream};

impl State {
    /// Records of the log are lost. A section may begin among them, or be lost as a whole.
    pub(crate) fn lose(&mut self, gap: RangeInclusive<Lsn>) {
        let ids: Vec<u64> = self.streams_after(None).map(|(id, _)| id).collect();
        let Some(salvaged) = self.begin_anew() else { return };
        salvaged.gaps.push(gap);
        salvaged.doubts = ids.into_iter().map(|id| (id, Doubt::NoRow)).collect();
    }

    /// Before a change is made: what it says of an uncertain stream.
    pub(crate) fn believe(&mut self, change: &Change<'_>, lsn: Lsn) {
        if self.salvaged.is_none() {
            return;
        }
        match *change {
            Change::Create { stream, .. } => {
                if self.doubt(stream) == Some(Doubt::NoRow) {
                    self.forget(stream);
                }
                self.sections.forget_places(stream, 0);
            }
            Change::Remove { stream } => self.sections.forget_places(stream, 0),
            Change::Restart { stream, next } => {
                self.uncertain(stream, next, lsn);
                self.sections.forget_places(stream, 0);
            }
            Change::Append { stream, number, .. } => self.ends_before(stream, number, lsn),
            Change::TruncateAfter { stream, next } => {
                if let Some(found) = self.uncertain(stream, next, lsn) {
                    if next < found.first {
                        found.make_empty(next, lsn);
                    }
                    found.end_at_least(next);
                }
                self.sections.forget_places(stream, next);
            }
            Change::TruncateBefore { stream, first } => {
                if let Some(found) = self.uncertain(stream, first, lsn) {
                    if first > found.next {
                        found.make_empty(first, lsn);
                    }
                    found.begin_at_most(first);
                }
            }
            Change::Moved { stream, number, source, .. }
            | Change::Lost { stream, number, source } => {
                if let Some(found) = self.uncertain(stream, number, lsn) {
                    found.has_had(number, source);
                }
            }
            Change::TableEnd {} => self.end_doubts(),
            _ => {}
        }
    }

    /// An append of this number comes, so the stream ends before it.
    fn ends_before(&mut self, stream: u64, number: u64, lsn: Lsn) {
        let Some(found) = self.uncertain(stream, number, lsn) else { return };
        let is_cut = number < found.next;
        if number < found.first {
            found.make_empty(number, lsn);
        } else if is_cut {
            found.cut_from(number, lsn);
        } else {
            found.end_at_least(number);
        }
        if is_cut {
            self.sections.forget_places(stream, number);
        }
    }

    /// The stream, if no row is known of it; one that is not known begins and ends at `number`.
    fn uncertain(&mut self, stream: u64, number: u64, lsn: Lsn) -> Option<&mut Stream> {
        if !self.has(stream) && !self.is_known() {
            self.put(stream, Stream::new(number, lsn));
            self.salvaged.as_mut()?.doubts.insert(stream, Doubt::NoRow);
        }
        self.doubt(stream).filter(|doubt| *doubt == Doubt::NoRow)?;
        self.stream_mut(stream)
    }

    /// A table of all streams is complete. If it lies behind the gap as a whole, streams without a
    /// row do not exist.
    fn end_doubts(&mut self) {
        if !self.is_in_table() {
            return;
        }
        let Some(salvaged) = &self.salvaged else { return };
        let gone = salvaged.doubts.iter().filter(|(_, doubt)| **doubt == Doubt::NoRow);
        let gone: Vec<u64> = gone.map(|(id, _)| *id).collect();
        gone.into_iter().for_each(|id| self.forget(id));
    }
}

impl Stream {
    /// All records are gone.
    fn make_empty(&mut self, at: u64, lsn: Lsn) {
        (self.first, self.next, self.cut) = (at, at, lsn);
        self.runs = crate::state::runs::Runs::default();
    }

    /// The stream had all numbers before this one: those that nobody has seen are lost.
    fn end_at_least(&mut self, next: u64) {
        if self.next < next {
            self.runs.push(self.next, LOST, 0, &mut ());
            self.next = next;
        }
    }

    /// The stream has this number and those from it on.
    fn begin_at_most(&mut self, first: u64) {
        if first < self.first {
            self.runs.add_before(first, LOST, self.first);
            self.first = first;
        }
    }

    fn cut_from(&mut self, number: u64, lsn: Lsn) {
        self.runs.truncate_from(number, self.next, &mut ());
        (self.next, self.cut) = (number, lsn);
    }

    /// The stream has this record, and the section has had it.
    fn has_had(&mut self, number: u64, section: u32) {
        let Some(behind) = number.checked_add(1) else { return };
        if number < self.first {
            self.runs.add_before(number, section, self.first);
            self.first = number;
        } else if number >= self.next {
            self.end_at_least(number);
            self.runs.push(number, section, 0, &mut ());
            self.next = behind;
        } else if let Some((is, _)) = self.runs.find(number, self.next).filter(|is| is.0 != section)
        {
            self.runs.relocate((number, self.next), (is, section), 0, &mut ());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Magic, Run};
    use crate::state::Located;

    fn taken(state: &mut State, lsn: u64, changes: &[Change<'_>]) {
        state.enter(0, Lsn::new(lsn), 1).unwrap();
        for change in changes {
            state.believe(change, Lsn::new(lsn));
            state.apply(change, Lsn::new(lsn)).unwrap();
        }
    }

    /// A table that began before the gap says nothing of the streams that it lacks.
    #[test]
    fn a_whole_table_behind_a_gap_ends_the_streams_that_it_lacks() {
        for begins_behind in [false, true] {
            let mut state = State::salvaged();
            let create = |stream| Change::Create { stream, first: 1 };
            let begin = || Change::TableBegin { magic: Magic };
            taken(&mut state, 1, &[create(1), create(2), begin()]);
            state.lose(Lsn::new(2)..=Lsn::new(3));
            assert_eq!([1, 2].map(|id| state.doubt(id)), [Some(Doubt::NoRow); 2]);
            if begins_behind {
                taken(&mut state, 4, &[begin()]);
            }
            let (cut, runs) = (Lsn::new(1), Vec::new());
            let row =
                Change::TableStream { stream: 1, first: 1, next: 1, cut, note: b"", from: 0, runs };
            taken(&mut state, 5, &[row, Change::TableEnd {}]);
            assert_eq!((state.has(1), state.doubt(1)), (true, None));
            assert_eq!((state.has(2), state.is_known()), (!begins_behind, begins_behind));
        }
    }

    /// A move behind a gap makes a stream known of which only the first pieces of a row have come.
    #[test]
    fn a_move_between_the_pieces_of_a_row_counts() {
        let runs = |from: u64, to| {
            (from..to).map(|first| Run { first, section: 0, bytes: 30 }).collect::<Vec<_>>()
        };
        let (cut, note) = (Lsn::new(1), &b""[..]);
        let mut state = State::salvaged();
        state.lose(Lsn::new(2)..=Lsn::new(3));
        let changes = [
            (0, Change::TableBegin { magic: Magic }),
            (0, Change::TableRuns { stream: 1, from: 0, to: 5, runs: runs(1, 5) }),
            (1, Change::Moved { stream: 1, number: 2, source: 0, bytes: b"" }),
            (
                1,
                Change::TableStream {
                    stream: 1,
                    first: 1,
                    next: 9,
                    cut,
                    note,
                    from: 5,
                    runs: runs(5, 9),
                },
            ),
            (1, Change::TableEnd {}),
        ];
        for (lsn, (section, change)) in (4..).zip(&changes) {
            state.enter(*section, Lsn::new(lsn), 1).unwrap();
            state.believe(change, Lsn::new(lsn));
            state.apply(change, Lsn::new(lsn)).unwrap();
        }
        assert!(matches!(state.locate(1, 2), Ok(Located::Record(lsn)) if lsn == Lsn::new(6)));
    }
}
