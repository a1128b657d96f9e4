//! The engine of a simulated disk: requests in flight, which complete in an order that is not
//! promised.
//!
//! *Owns*: the requests in flight. *May not touch*: what they do.
//!
//! It is the worst that the seam allows: a crash may keep the bytes of a write as soon as it is
//! submitted; they become durable only when it completes; and a sync that was submitted earlier
//! does not cover them, unless it is the write's own.

use std::collections::VecDeque;
use std::sync::Arc;

use inkstone_io::{
    AlignedBuf, Completion, Engine, Error, File, Operation, Persist, Request, Result, SyncKind,
    Then, ThenOn,
};

use crate::disk::SimDisk;
use crate::durable::Cover;
use crate::file::SimFile;
use crate::hooked::{Call, Hooked};
use crate::state::State;
use crate::transfer::Written;

/// An engine for [`SimFile`]s. Every kind is the same one.
#[derive(Debug)]
pub struct SimEngine {
    disk: SimDisk,
    hooked: Hooked,
    taken: VecDeque<Taken>,
}

#[derive(Debug)]
struct Taken {
    token: u64,
    file: Arc<SimFile>,
    buffer: Option<AlignedBuf>,
    rest: Rest,
}

/// What is left to do of a request.
#[derive(Debug)]
enum Rest {
    Nothing(Error),
    Write { written: Written, offset: u64, persist: Persist, cover: Cover },
    Read { len: usize, offset: u64, then: Option<Then> },
    Sync { kind: SyncKind, cover: Cover },
}

impl SimEngine {
    pub(crate) fn new(disk: SimDisk, hooked: Hooked) -> Self {
        Self { disk, hooked, taken: VecDeque::new() }
    }

    fn complete_now(&mut self) -> Option<Completion> {
        let next = match self.taken.len() {
            0 => return None,
            1 => 0,
            count => self.disk.lock().rng.usize(..count),
        };
        self.taken.remove(next).map(Taken::finish)
    }

    fn start(
        state: &mut State,
        file: &SimFile,
        operation: Operation,
    ) -> (Option<AlignedBuf>, Rest) {
        match operation {
            Operation::Write { buffer, len, offset, persist } => {
                let rest = match buffer.get(..len) {
                    Some(bytes) => match file.start_write(state, bytes, offset, persist) {
                        Ok(written) => {
                            state.in_flight.extend(&written.writes);
                            let cover = state.cover_now().with(&written.writes);
                            Rest::Write { written, offset, persist, cover }
                        }
                        Err(error) => Rest::Nothing(error),
                    },
                    None => Rest::Nothing(too_long(file, len, buffer.len())),
                };
                (Some(buffer), rest)
            }
            Operation::Read { buffer, len, offset, then } if len <= buffer.len() => {
                (Some(buffer), Rest::Read { len, offset, then })
            }
            Operation::Read { buffer, len, .. } => {
                let rest = Rest::Nothing(too_long(file, len, buffer.len()));
                (Some(buffer), rest)
            }
            Operation::Sync(kind) => (None, Rest::Sync { kind, cover: state.cover_now() }),
        }
    }
}

impl Taken {
    fn finish(self) -> Completion {
        let Self { token, file, mut buffer, rest } = self;
        let result = match rest {
            Rest::Nothing(error) => Err(error),
            Rest::Write { written, offset, persist, cover } => {
                let mut state = file.lock();
                for write in &written.writes {
                    state.in_flight.remove(write);
                }
                file.finish_write(&mut state, written, offset, persist, &cover)
            }
            Rest::Read { len, offset, then } => {
                let bytes = buffer.as_mut().expect("a read has a buffer");
                let read = file.read_now(&mut bytes[..len], offset);
                if let (Ok(read), Some(then)) = (&read, then) {
                    then.call(&bytes[..*read], ThenOn::CallersThread);
                }
                read
            }
            Rest::Sync { kind, cover } => {
                file.sync_covered(&mut file.lock(), kind, &cover).map(|()| 0)
            }
        };
        Completion { token, buffer, result }
    }
}

fn too_long(file: &SimFile, len: usize, room: usize) -> Error {
    Error::invalid(
        "submit",
        file.path(),
        format!("{len} bytes were asked for, the buffer has {room}"),
    )
}

impl Engine for SimEngine {
    type File = SimFile;

    fn submit(&mut self, request: Request<SimFile>) -> Result<()> {
        let Request { token, file, operation } = request;
        // The hook looks at the operation before the disk takes it.
        let Self { hooked, taken, .. } = self;
        if let Some(hook) = &hooked.0 {
            hook.before(&Call::Submit { path: file.path(), operation: &operation })?;
        }
        let (buffer, rest) = Self::start(&mut file.lock(), &file, operation);
        taken.push_back(Taken { token, file, buffer, rest });
        hooked.0.iter().for_each(|hook| hook.after());
        Ok(())
    }

    fn complete(&mut self) -> Result<Option<Completion>> {
        let hooked = self.hooked.clone();
        hooked.around(&Call::Complete, || Ok(self.complete_now()))
    }

    fn in_flight(&self) -> usize {
        self.taken.len()
    }
}

impl Drop for SimEngine {
    /// Carries out all accepted requests, as every engine does.
    fn drop(&mut self) {
        for taken in self.taken.drain(..) {
            drop(taken.finish());
        }
    }
}
