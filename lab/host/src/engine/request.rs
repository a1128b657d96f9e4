//! Requests for an engine: an operation on a file, and its result.
//!
//! *Owns*: owned buffers on their way to an engine and back; how a request becomes blocking calls.
//! *May not touch*: when they are made.

use std::sync::Arc;

use inkstone_io::{AlignedBuf, Error, File, Persist, Result, SyncKind};

use crate::lab_file::LabFile;

/// An operation for an engine.
#[derive(Debug)]
pub enum Operation {
    /// Write `buffer[..len]` at `offset`, all of it.
    Write {
        /// The bytes, owned until the completion returns them.
        buffer: AlignedBuf,
        /// How many of them, from the front.
        len: usize,
        /// Where in the file.
        offset: u64,
        /// How they become durable; [`Persist::Sync`] is a part of the same operation.
        persist: Persist,
    },
    /// Read up to `len` bytes at `offset` into the front of `buffer`; fewer only at the end of the
    /// file.
    Read {
        /// Where the bytes go.
        buffer: AlignedBuf,
        /// How many bytes.
        len: usize,
        /// Where in the file.
        offset: u64,
    },
    /// Make everything durable whose write *completed* before this operation began.
    Sync(SyncKind),
}

/// An operation on a file, with a number of the caller.
#[derive(Debug)]
pub struct Request {
    /// Returned with the completion; the engine does not use it.
    pub token: u64,
    /// The file, open for as long as this lives.
    pub file: Arc<LabFile>,
    /// What to do.
    pub operation: Operation,
}

/// The result of a request.
#[derive(Debug)]
pub struct Completion {
    /// The request's own number.
    pub token: u64,
    /// The request's buffer, if it had one.
    pub buffer: Option<AlignedBuf>,
    /// Bytes transferred (0 for a sync), or the error.
    pub result: Result<usize>,
}

impl Request {
    /// The request with its result.
    pub(crate) fn completed(self, result: Result<usize>) -> Completion {
        let buffer = match self.operation {
            Operation::Write { buffer, .. } | Operation::Read { buffer, .. } => Some(buffer),
            Operation::Sync(_) => None,
        };
        Completion { token: self.token, buffer, result }
    }

    /// # Errors
    /// More bytes are asked for than the buffer has.
    pub(crate) fn check_length(&self) -> Result<()> {
        match &self.operation {
            Operation::Write { buffer, len, .. } | Operation::Read { buffer, len, .. }
                if *len > buffer.len() =>
            {
                let why = format!("{len} bytes were asked for, the buffer has {}", buffer.len());
                Err(Error::invalid("submit", self.file.path(), why))
            }
            _ => Ok(()),
        }
    }

    /// Makes the calls; returns the bytes transferred.
    pub(crate) fn carry_out(&mut self) -> Result<usize> {
        self.check_length()?;
        match &mut self.operation {
            Operation::Write { buffer, len, offset, persist } => {
                self.file.write_with(&buffer[..*len], *offset, *persist).map(|()| *len)
            }
            Operation::Read { buffer, len, offset } => {
                self.file.read_by_access(&mut buffer[..*len], *offset)
            }
            Operation::Sync(kind) => self.file.sync(*kind).map(|()| 0),
        }
    }
}
