//! The engine that has no thread: the caller itself makes the call, inside `submit`.
//!
//! *Owns*: the completions not yet taken. Also the one place that says how a request becomes blocking calls on a file;
//! the pool's threads use it too.

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

/// Carries a request out with blocking calls, on the thread that is said.
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
