//! Where records of changes go: to the end of the log.
//!
//! *Owns*: the head of each record, which section it belongs to, which LSN it gets. *May not
//! touch*: the lock under which it is written, what changes mean.

use std::io::IoSlice;

use inkstone::{Append, Log, Lsn, Parts};

use crate::record::{Head, put_head};
use crate::state::State;

/// What writing a record leaves for the next one.
#[derive(Debug)]
pub(crate) struct Pen {
    /// The LSN of the record that is written next.
    pub(crate) next: Lsn,
    head: Vec<u8>,
    section_bytes: u64,
}

impl Pen {
    pub(crate) fn new(log: &Log, section_bytes: u64) -> Self {
        Self { next: log.last().next().unwrap_or(Lsn::FIRST), head: Vec::new(), section_bytes }
    }
}

/// The end of the log.
pub(crate) struct Out<'a, 'log> {
    pub(crate) log: &'log Log,
    /// How much is left at the end of the segment.
    pub(crate) kept_bytes: u64,
    pub(crate) pen: &'a mut Pen,
}

impl<'log> Out<'_, 'log> {
    /// Appends a record of these changes, whose head says where an opening begins; also returns its
    /// bytes.
    pub(crate) fn write(
        &mut self,
        state: &mut State,
        changes: &[u8],
        replay_from: Lsn,
    ) -> inkstone::Result<(Append<'log>, u64)> {
        let Pen { next, head, section_bytes } = &mut *self.pen;
        let lsn = *next;
        let section = match state.sections.active() {
            Some(active) if active.bytes < *section_bytes => active.number,
            Some(active) => active.number.checked_add(1).ok_or(inkstone::Error::UsedUp)?,
            None => 0,
        };
        head.clear();
        put_head(head, Head { section, replay_from }, lsn);
        let bytes = (head.len() + changes.len()) as u64;
        let parts = [IoSlice::new(head), IoSlice::new(changes)];
        let append = self.log.try_append_under_lock(&Parts(&parts), self.kept_bytes)?;
        assert_eq!(append.lsn(), lsn, "another caller has written to the log of these streams");
        *next = lsn.next().ok_or(inkstone::Error::UsedUp)?;
        state.enter(section, lsn, bytes).expect("the section follows the one before");
        Ok((append, bytes))
    }
}
