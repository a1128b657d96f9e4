//! The engine without threads: the caller's thread makes the call, inside `submit`.
//!
//! *Owns*: the completions that were not taken yet; how a request becomes blocking calls on a file, also for the threads of the
//! pool.

use std::collections::VecDeque;

use crate::error::{Error, Result};
use crate::file::OsFile;
use crate::seam::{Completion, Engine, File, Operation, Request, ThenOn};

/// The caller's thread as an engine.
#[derive(Debug, Default)]
pub(crate) struct Caller {
    done: VecDeque<Completion>,
}

impl Engine for Caller {
    type File = OsFile;

    fn submit(&mut self, request: Request<OsFile>) -> Result<()> {
        self.done.push_back(carry_out(request, ThenOn::CallersThread));
        Ok(())
    }

    fn complete(&mut self) -> Result<Option<Completion>> {
        Ok(self.done.pop_front())
    }

    fn in_flight(&self) -> usize {
        self.done.len()
    }
}

/// Carries out a request with blocking calls; `on` says on which kind of thread.
pub(crate) fn carry_out(request: Request<OsFile>, on: ThenOn) -> Completion {
    let Request { token, file, operation } = request;
    match operation {
        Operation::Write { buffer, len, offset, persist } => {
            let result = match buffer.get(..len) {
                Some(bytes) => file.write_with(bytes, offset, persist).map(|()| len),
                None => Err(too_long(&file, len, buffer.len())),
            };
            Completion { token, buffer: Some(buffer), result }
        }
        Operation::Read { mut buffer, len, offset, then } => {
            let room = buffer.len();
            let result = match buffer.get_mut(..len) {
                Some(bytes) => file.read_at(bytes, offset),
                None => Err(too_long(&file, len, room)),
            };
            if let (Ok(read), Some(then)) = (&result, then) {
                then.call(&buffer[..*read], on);
            }
            Completion { token, buffer: Some(buffer), result }
        }
        Operation::Sync(kind) => Completion { token, buffer: None, result: file.sync(kind).map(|()| 0) },
    }
}

/// The error of a request for more bytes than its buffer has.
pub(crate) fn too_long(file: &OsFile, len: usize, room: usize) -> Error {
    Error::invalid("submit", file.path(), format!("{len} bytes were asked for, the buffer has {room}"))
}
