//! The followers of a stream: cuts that each cursor must report, and the wakers of waiters.
//!
//! *Owns*: the lowest cut that a cursor has not reported, the wakers of waiters. *May not touch*:
//! the locks that guard both (`writer.rs`, `mirror.rs`), what a cursor does after a cut
//! (`cursor.rs`).
//!
//! Each cursor has a mark. A change that cuts records notes the cut in the marks of the stream's
//! cursors, under the lock under which the change is made. So a cursor that finds a record from
//! after a cut finds the cut in its mark, too.

use std::collections::HashMap;
use std::sync::Arc;
use std::task::Waker;

use inkstone::Lsn;

use crate::record::Change;
use crate::state::State;
use crate::sync::{AtomicBool, Mutex, Ordering, lock};

/// What was cut of a stream. Of two cuts the lower one includes the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Cut {
    /// The stream was removed: a stream with its id is a new one.
    Whole,
    /// The records from this number on.
    From(u64),
}

impl Cut {
    /// What a change cuts, and of which stream.
    pub(crate) fn of(change: &Change<'_>) -> Option<(u64, Self)> {
        match *change {
            Change::TruncateAfter { stream, next } => Some((stream, Self::From(next))),
            Change::Restart { stream, first } => Some((stream, Self::From(first))),
            Change::Remove { stream } => Some((stream, Self::Whole)),
            _ => None,
        }
    }

    pub(crate) fn has(self, number: u64) -> bool {
        self <= Self::From(number)
    }
}

/// The cuts that one cursor must report.
#[derive(Debug, Default)]
pub(crate) struct Mark {
    /// Whether `lowest` has a cut: read for each record, without the lock.
    is_cut: AtomicBool,
    lowest: Mutex<Option<Cut>>,
}

impl Mark {
    pub(crate) fn is_cut(&self) -> bool {
        self.is_cut.load(Ordering::Acquire)
    }

    fn note(&self, cut: Cut) {
        let mut lowest = lock(&self.lowest);
        *lowest = Some(lowest.map_or(cut, |before| before.min(cut)));
        self.is_cut.store(true, Ordering::Release);
    }

    /// The lowest cut since the last one that was taken.
    pub(crate) fn take(&self) -> Option<Cut> {
        if !self.is_cut() {
            return None;
        }
        let mut lowest = lock(&self.lowest);
        self.is_cut.store(false, Ordering::Release);
        lowest.take()
    }

    /// Notes a cut again if it could not be reported yet.
    pub(crate) fn give_back(&self, cut: Cut) {
        self.note(cut);
    }
}

/// The marks of all cursors, by their streams.
#[derive(Debug, Default)]
pub(crate) struct Marks(HashMap<u64, Vec<Arc<Mark>>>);

impl Marks {
    pub(crate) fn add(&mut self, stream: u64, mark: &Arc<Mark>) {
        self.0.entry(stream).or_default().push(Arc::clone(mark));
    }

    pub(crate) fn forget(&mut self, stream: u64, mark: &Arc<Mark>) {
        let Some(marks) = self.0.get_mut(&stream) else { return };
        marks.retain(|other| !Arc::ptr_eq(other, mark));
        if marks.is_empty() {
            self.0.remove(&stream);
        }
    }

    /// Notes what a change of this record of the log, which was made, has cut.
    #[inline]
    pub(crate) fn note(&self, change: &Change<'_>, state: &State, lsn: Lsn) {
        if self.0.is_empty() {
            return;
        }
        if let Some((stream, cut)) = Cut::of(change)
            && let Some(marks) = self.0.get(&stream)
            // A truncation may have removed nothing.
            && state.stream(stream).map_or(true, |found| found.cut >= lsn)
        {
            marks.iter().for_each(|mark| mark.note(cut));
        }
    }

    /// The same for all changes of the record.
    pub(crate) fn note_all<'a>(
        &self,
        changes: impl Iterator<Item = Change<'a>>,
        state: &State,
        lsn: Lsn,
    ) {
        if !self.0.is_empty() {
            changes.for_each(|change| self.note(&change, state, lsn));
        }
    }

    /// Where the changes of the log's records from `since` on were missed, notes what they may have
    /// cut. How much that was, nobody knows any more: it may be all that the stream has.
    pub(crate) fn note_missed(&self, state: &State, since: Lsn) {
        for (stream, marks) in &self.0 {
            let cut = match state.stream(*stream) {
                Ok(found) if found.cut < since => continue,
                Ok(found) => Cut::From(found.first),
                Err(_) => Cut::Whole,
            };
            marks.iter().for_each(|mark| mark.note(cut));
        }
    }
}

/// Identifies a task's waker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ticket(u64);

/// The waiters for the next record of each stream. Wakers are the user's code, so they are cloned,
/// woken and dropped without the lock that guards this.
#[derive(Debug, Default)]
pub(crate) struct Followers {
    waiting: HashMap<u64, Vec<(Ticket, Waker)>>,
    last: u64,
}

impl Followers {
    /// Stores a waker; returns the one that it replaces.
    pub(crate) fn leave(
        &mut self,
        stream: u64,
        ticket: &mut Option<Ticket>,
        waker: Waker,
    ) -> Option<Waker> {
        let waiting = self.waiting.entry(stream).or_default();
        if let Some((_, before)) = waiting.iter_mut().find(|(is, _)| Some(*is) == *ticket) {
            return Some(std::mem::replace(before, waker));
        }
        self.last += 1;
        waiting.push((*ticket.insert(Ticket(self.last)), waker));
        None
    }

    /// Removes the waker of a ticket, and returns it.
    pub(crate) fn forget(&mut self, stream: u64, ticket: Ticket) -> Option<Waker> {
        let waiting = self.waiting.get_mut(&stream)?;
        let place = waiting.iter().position(|(is, _)| *is == ticket)?;
        let (_, waker) = waiting.swap_remove(place);
        if waiting.is_empty() {
            self.waiting.remove(&stream);
        }
        Some(waker)
    }

    /// Takes out the wakers of a change's stream, to be woken.
    #[inline]
    pub(crate) fn take(&mut self, change: &Change<'_>, woken: &mut Vec<Waker>) {
        if self.waiting.is_empty() {
            return;
        }
        let stream = match change {
            Change::Append { stream, .. } => Some(*stream),
            other => Cut::of(other).map(|(stream, _)| stream),
        };
        let waiting = stream.and_then(|stream| self.waiting.remove(&stream));
        woken.extend(waiting.into_iter().flatten().map(|(_, waker)| waker));
    }
}
