//! The engine without threads: the caller's thread makes the call, inside `submit`.
//!
//! *Owns*: the completions that were not taken yet; how a request becomes blocking calls on a file,
//! also for the threads of the pool.

use std::collections::VecDeque;
use std::marker::PhantomData;

use super::blocking::{BlockingFile, too_long};
use crate::error::Result;
use crate::seam::{Completion, Engine, Operation, Request, ThenOn};

/// The caller's thread as an engine.
#[derive(Debug)]
pub(crate) struct Caller<F> {
    done: VecDeque<Completion>,
    file: PhantomData<fn(F)>,
}

impl<F> Caller<F> {
    pub(crate) fn new() -> Self {
        Self { done: VecDeque::new(), file: PhantomData }
    }
}

impl<F: BlockingFile> Engine for Caller<F> {
    type File = F;

    fn submit(&mut self, request: Request<F>) -> Result<()> {
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
pub(crate) fn carry_out<F: BlockingFile>(request: Request<F>, on: ThenOn) -> Completion {
    let Request { token, file, operation } = request;
    match operation {
        Operation::Write { buffer, len, offset, persist } => {
            let result = match buffer.get(..len) {
                Some(bytes) => file.write_with(bytes, offset, persist).map(|()| len),
                None => Err(too_long(file.path(), len, buffer.len())),
            };
            Completion { token, buffer: Some(buffer), result }
        }
        Operation::Read { mut buffer, len, offset, then } => {
            let room = buffer.len();
            let result = match buffer.get_mut(..len) {
                Some(bytes) => file.read_at(bytes, offset),
                None => Err(too_long(file.path(), len, room)),
            };
            if let (Ok(read), Some(then)) = (&result, then) {
                then.call(&buffer[..*read], on);
            }
            Completion { token, buffer: Some(buffer), result }
        }
        Operation::Sync(kind) => {
            Completion { token, buffer: None, result: file.sync(kind).map(|()| 0) }
        }
    }
}
