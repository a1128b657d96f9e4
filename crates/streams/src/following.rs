//! The followers of a stream: cuts that each cursor must report, and wakers of those that wait.
//!
//! *Owns*: the lowest cut that a cursor has not reported, its waker. *May not touch*: the locks
//! under which both are told (`writer.rs`, `read/mirror.rs`), what a cursor does after a cut
//! (`read/cursor.rs`).
//!
//! Each cursor has a mark. A change that cuts records notes the cut in the marks of the stream's
//! cursors, under the lock under which the change is made. So a cursor that finds a record from
//! after a cut finds the cut in its mark, too. Wakers are the user's code, so they are cloned,
//! woken and dropped without any lock.

use std::sync::Arc;
use std::task::Waker;

use inkstone::Lsn;

use crate::record::Change;
use crate::state::State;
use crate::state::section::IdMap;
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
            Change::Restart { stream, next } => Some((stream, Self::From(next))),
            Change::Remove { stream } => Some((stream, Self::Whole)),
            _ => None,
        }
    }

    pub(crate) fn has(self, number: u64) -> bool {
        self <= Self::From(number)
    }
}

/// The cuts that one cursor must report, and its waker while it waits.
#[derive(Debug, Default)]
pub(crate) struct Mark {
    /// Whether `lowest` has a cut: read for each record, without the lock.
    is_cut: AtomicBool,
    lowest: Mutex<Option<Cut>>,
    waker: Mutex<Option<Waker>>,
}

impl Mark {
    pub(crate) fn is_cut(&self) -> bool {
        self.is_cut.load(Ordering::Acquire)
    }

    /// Notes a cut, also one that was taken and could not be reported yet.
    pub(crate) fn note(&self, cut: Cut) {
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

    /// Replaces the waker, and returns the one before.
    pub(crate) fn replace_waker(&self, waker: Option<Waker>) -> Option<Waker> {
        std::mem::replace(&mut *lock(&self.waker), waker)
    }
}

/// The marks of all cursors, by their streams.
#[derive(Debug, Default)]
pub(crate) struct Marks(IdMap<Vec<Arc<Mark>>>);

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

    /// Notes what a change of this record of the log, which was made, has cut; takes out the wakers
    /// of those who wait for it.
    #[inline]
    pub(crate) fn note(
        &self,
        change: &Change<'_>,
        state: &State,
        lsn: Lsn,
        woken: &mut Vec<Waker>,
    ) {
        if self.0.is_empty() {
            return;
        }
        let (stream, cut) = match (change, Cut::of(change)) {
            (_, Some((stream, cut))) => (stream, Some(cut)),
            (Change::Append { stream, .. }, None) => (*stream, None),
            _ => return,
        };
        // A truncation may have removed nothing.
        let cut = cut.filter(|_| state.stream(stream).map_or(true, |found| found.cut >= lsn));
        for mark in self.0.get(&stream).into_iter().flatten() {
            if let Some(cut) = cut {
                mark.note(cut);
            }
            woken.extend(mark.replace_waker(None));
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
