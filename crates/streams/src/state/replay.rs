//! Rebuilds the state from the records of a log, for an opening and for a reader.
//!
//! *Owns*: which records are read, and the errors of bad ones. *May not touch*: what changes mean
//! (`state.rs`), files; it writes nothing.
//!
//! Every record says where an opening begins if this is the last record: at the last complete
//! table, or at the oldest section without a directory, whichever is earlier.

use std::path::Path;

use inkstone::{Lsn, Reader};

use crate::error::{Error, Result};
use crate::record::{Change, Flaw, Head, decode};
use crate::state::{FRAME_BYTES, State};

/// The result of a replay.
#[derive(Debug, Default)]
pub(crate) struct Replayed {
    pub(crate) state: State,
    /// Where the last complete table begins.
    pub(crate) table_begin: Lsn,
    /// Where the incomplete table begins.
    begun: Option<Lsn>,
    /// The bytes of the records that were read.
    pub(crate) bytes: u64,
}

/// The directory of a log, for errors about its records.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Of<'a>(pub(crate) &'a Path);

/// The last record that is lost, if one is and was not truncated.
fn lost_to(reader: &Reader, first: Lsn) -> Option<Lsn> {
    reader.recovery()?.lost_to.filter(|lost_to| *lost_to >= first)
}

impl Of<'_> {
    pub(crate) fn contradiction(self, lsn: Lsn, why: impl ToString) -> Error {
        Error::Contradiction { path: self.0.into(), lsn, why: why.to_string() }
    }

    /// The record of the log should have this record of a stream.
    pub(crate) fn not_there(self, lsn: Lsn, (stream, number): (u64, u64)) -> Error {
        self.contradiction(lsn, format!("record {number} of stream {stream} is not there"))
    }

    pub(crate) fn flaw(self, lsn: Lsn, flaw: Flaw) -> Error {
        match flaw {
            Flaw::Unknown(what) => Error::Newer { path: self.0.into(), lsn, what },
            Flaw::Malformed(why) => self.contradiction(lsn, why),
        }
    }

    /// Where an opening begins, and with which state. If records are lost from there on, it reads
    /// the whole log: each table and each change before a gap says what nothing behind it may.
    fn begin(self, reader: &Reader, first: Lsn, last: Lsn) -> Result<(Lsn, State)> {
        let lost_to = lost_to(reader, first).unwrap_or(Lsn::ZERO);
        if lost_to >= last {
            return Ok((first, State::salvaged()));
        }
        let bytes = reader.get(last)?;
        let (Head { replay_from, .. }, _) =
            decode(&bytes, last).map_err(|flaw| self.flaw(last, flaw))?;
        if replay_from < first {
            let why = format!("an opening begins at {replay_from}, and the log at {first}");
            return Err(self.contradiction(last, why));
        }
        if lost_to >= replay_from {
            return Ok((first, State::salvaged()));
        }
        Ok((replay_from, State::default()))
    }

    /// Reads the log up to its last durable record, which is also returned; the one before its
    /// first if there is none.
    pub(crate) fn replay(self, reader: &Reader) -> Result<(Replayed, Lsn)> {
        let (first, last) = (reader.first(), reader.durable());
        if last < first {
            return Ok((Replayed { table_begin: first, ..Replayed::default() }, last));
        }
        let (from, state) = self.begin(reader, first, last)?;
        let mut made = Replayed { state, ..Replayed::default() };
        let mut cursor = reader.from(from);
        while cursor.next_lsn() <= last {
            let durable = cursor.durable();
            let lsn = cursor.next_lsn();
            match cursor.next() {
                Ok(Some(record)) => self.take(&mut made, record.lsn, record.bytes)?,
                Ok(None) => return Err(inkstone::Error::NotYet { lsn, durable }.into()),
                Err(inkstone::Error::Lost { first, last }) => {
                    made.begun = None;
                    made.state.lose(first..=last);
                }
                Err(error) => return Err(error.into()),
            }
        }
        made.state.finish(first).map_err(|why| self.contradiction(last, why))?;
        Ok((made, last))
    }

    /// Takes the next record. After an error `made` may be half changed: drop it.
    pub(crate) fn take(self, made: &mut Replayed, lsn: Lsn, bytes: &[u8]) -> Result<()> {
        let (head, changes) = decode(bytes, lsn).map_err(|flaw| self.flaw(lsn, flaw))?;
        made.bytes += bytes.len() as u64 + FRAME_BYTES;
        made.state
            .enter(head.section, lsn, bytes.len() as u64)
            .map_err(|why| self.contradiction(lsn, why))?;
        for change in changes {
            let change = change.map_err(|flaw| self.flaw(lsn, flaw))?;
            match change {
                Change::TableBegin { .. } => made.begun = Some(lsn),
                Change::TableEnd {} => {
                    if let Some(begun) = made.begun.take() {
                        made.table_begin = begun;
                    }
                }
                _ => {}
            }
            made.state.believe(&change, lsn);
            made.state.apply(&change, lsn).map_err(|why| self.contradiction(lsn, why))?;
        }
        Ok(())
    }
}
