//! From a request through its attempts to its completion: the state machine of the engines that
//! submit entries to the kernel (io_uring, Linux AIO).
//!
//! *Owns*: the request while it is in flight: its buffer, its file, its progress, the next attempt.
//! *May not touch*: the kernel; an engine makes the attempt and brings the answer here.
//! [`Transfer`] handles `EINTR` and short transfers, as for every other engine.

use std::io;
use std::sync::Arc;

use inkstone_io::engine::too_long;
use inkstone_io::transfer::{Direction, Next, Transfer};
use inkstone_io::{
    Access, AlignedBuf, Completion, EngineKind, Error, File, Operation, Persist, Request, Result,
    SyncKind, Then, ThenOn,
};

use crate::lab_file::LabFile;

/// The longest attempt. The kernel shortens one to `MAX_RW_COUNT` (2 GiB less a page), and the
/// length in an entry has 32 bits; a round number below both keeps the rest of a direct write
/// aligned.
const MAX_ATTEMPT_BYTES: usize = 1 << 30;

/// The names of an engine's calls in error messages.
#[derive(Debug)]
pub(crate) struct CallNames {
    pub(crate) engine: EngineKind,
    pub(crate) write: &'static str,
    pub(crate) write_dsync: &'static str,
    pub(crate) read: &'static str,
    pub(crate) fsync: &'static str,
    pub(crate) fdatasync: &'static str,
}

/// A request that is under way.
#[derive(Debug)]
pub(crate) struct Progress {
    names: &'static CallNames,
    token: u64,
    file: Arc<LabFile>,
    buffer: Option<AlignedBuf>,
    offset: u64,
    transfer: Transfer,
    phase: Phase,
    /// The work on the bytes of a read.
    then: Option<Then>,
}

#[derive(Debug)]
enum Phase {
    Write(Persist),
    Read,
    Sync(SyncKind),
    Finished(Result<usize>),
}

/// What to attempt next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Write the span, with `RWF_DSYNC` if `dsync`. `then` is the sync that follows if *all* of the
    /// span is written: an engine that links may start both at once.
    Write { span: Span, dsync: bool, then: Option<SyncKind> },
    /// Read the span.
    Read { span: Span },
    /// Sync the file.
    Sync(SyncKind),
    /// Nothing: take the completion.
    Finished,
}

/// Bytes of the request's buffer, and their place in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    /// Where in the buffer.
    pub(crate) start: usize,
    /// How many bytes, at most [`MAX_ATTEMPT_BYTES`].
    pub(crate) len: usize,
    /// Where in the file.
    pub(crate) offset: u64,
}

/// The kernel's answer to the attempt of a [`Step`].
#[derive(Debug)]
pub(crate) enum Outcome {
    /// That of the one entry of the step.
    One(io::Result<usize>),
    /// Those of the write and of the sync that was linked to it.
    Linked { write: io::Result<usize>, sync: io::Result<usize> },
}

impl Progress {
    /// Takes a request. An impossible request is finished at once, with its error.
    pub(crate) fn new(request: Request<LabFile>, names: &'static CallNames) -> Self {
        let Request { token, file, operation } = request;
        let mut then = None;
        let (buffer, len, offset, phase) = match operation {
            Operation::Write { buffer, len, offset, persist } => {
                (Some(buffer), len, offset, Phase::Write(persist))
            }
            Operation::Read { buffer, len, offset, then: after } => {
                then = after;
                (Some(buffer), len, offset, Phase::Read)
            }
            Operation::Sync(kind) => (None, 0, 0, Phase::Sync(kind)),
        };
        let mut new =
            Self { names, token, file, buffer, offset, transfer: Transfer::new(len), phase, then };
        if let Err(error) = new.check(len) {
            new.phase = Phase::Finished(Err(error));
        } else if len == 0 {
            new.nothing_to_transfer();
        }
        new
    }

    fn check(&self, len: usize) -> Result<()> {
        if !matches!(self.phase, Phase::Read) {
            self.file.check_change("submit")?;
        }
        let refuse = |why: String| Err(Error::invalid("submit", self.file.path(), why));
        let access = self.file.how().access;
        if !matches!(access, Access::Buffered | Access::Direct) {
            return refuse(format!(
                "engine {} works by file descriptor and offset, and access {access} does not",
                self.names.engine
            ));
        }
        let Some(buffer) = &self.buffer else { return Ok(()) };
        if len > buffer.len() {
            return Err(too_long(self.file.path(), len, buffer.len()));
        }
        // Beyond `loff_t` an offset would be negative, and -1 means "at the file's position" to
        // io_uring.
        match self.offset.checked_add(len as u64) {
            Some(end) if i64::try_from(end).is_ok() => Ok(()),
            _ => refuse(format!("{len} bytes at byte {} end beyond the largest file", self.offset)),
        }
    }

    fn nothing_to_transfer(&mut self) {
        match self.phase {
            Phase::Write(Persist::Sync(kind)) => self.phase = Phase::Sync(kind),
            Phase::Write(_) | Phase::Read => self.phase = Phase::Finished(Ok(0)),
            Phase::Sync(_) | Phase::Finished(_) => {}
        }
    }

    /// The file, open for as long as this lives.
    pub(crate) fn file(&self) -> &Arc<LabFile> {
        &self.file
    }

    /// The buffer of a write or read; it neither moves nor is freed while this lives.
    pub(crate) fn buffer(&self) -> Option<&AlignedBuf> {
        self.buffer.as_ref()
    }

    /// What to attempt now. Asking changes nothing.
    pub(crate) fn next_step(&self) -> Step {
        let span = self.span();
        match self.phase {
            Phase::Write(persist) => {
                let is_last = span.len == self.transfer.rest();
                let then = match persist {
                    Persist::Sync(kind) if is_last => Some(kind),
                    Persist::Sync(_) | Persist::Later | Persist::Dsync => None,
                };
                Step::Write { span, dsync: persist == Persist::Dsync, then }
            }
            Phase::Read => Step::Read { span },
            Phase::Sync(kind) => Step::Sync(kind),
            Phase::Finished(_) => Step::Finished,
        }
    }

    fn span(&self) -> Span {
        let start = self.transfer.done();
        let len = self.transfer.rest().min(MAX_ATTEMPT_BYTES);
        Span { start, len, offset: self.offset + start as u64 }
    }

    /// Takes the kernel's answer to the attempt of [`Progress::next_step`].
    pub(crate) fn advance(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::One(answer) => self.advance_one(answer),
            Outcome::Linked { write, sync } => self.advance_linked(write, sync),
        }
    }

    fn advance_one(&mut self, answer: io::Result<usize>) {
        match self.phase {
            Phase::Write(persist) => {
                match self.transfer.advance(Direction::Write, not_started_is_interrupted(answer)) {
                    Next::Again => {}
                    Next::Done | Next::End => match persist {
                        Persist::Sync(kind) => self.phase = Phase::Sync(kind),
                        Persist::Later | Persist::Dsync => self.finish(),
                    },
                    Next::Fail(error) => {
                        let is_dsync = persist == Persist::Dsync;
                        let name = if is_dsync { self.names.write_dsync } else { self.names.write };
                        self.fail_transfer(name, error);
                    }
                }
            }
            Phase::Read => {
                match self.transfer.advance(Direction::Read, not_started_is_interrupted(answer)) {
                    Next::Again => {}
                    Next::Done | Next::End => self.finish(),
                    Next::Fail(error) => self.fail_transfer(self.names.read, error),
                }
            }
            Phase::Sync(kind) => self.advance_sync(kind, answer),
            Phase::Finished(_) => unreachable!("an answer to a request that asked for nothing"),
        }
    }

    fn advance_linked(&mut self, write: io::Result<usize>, sync: io::Result<usize>) {
        let Step::Write { then: Some(kind), .. } = self.next_step() else {
            unreachable!("a linked answer to a step that has no sync to link");
        };
        self.advance_one(write);
        match (&self.phase, &sync) {
            // The write failed, so the answer of the sync does not matter.
            (Phase::Finished(_), _) => {}
            // All was written, and this is the answer of the sync that started after it. After
            // `ECANCELED` the sync is still to be done.
            (Phase::Sync(_), _) => self.advance_sync(kind, sync),
            // A short or interrupted write broke the chain: the sync was cancelled, and follows
            // after the rest. If the sync *failed* instead, the request has failed: a later sync
            // could hide it.
            (Phase::Write(_), Err(error)) if !is_not_started(error) => {
                self.advance_sync(kind, sync)
            }
            (Phase::Write(_), _) => {}
            (Phase::Read, _) => unreachable!("a write became a read"),
        }
    }

    /// A sync is retried only if it did not start (`EINTR`, as in [`File::sync`], and `ECANCELED`):
    /// after any other error a second sync could succeed over pages that were lost.
    fn advance_sync(&mut self, kind: SyncKind, answer: io::Result<usize>) {
        match answer {
            Ok(_) => self.finish(),
            Err(error) if is_not_started(&error) => {}
            Err(error) => {
                let name = match kind {
                    SyncKind::All => self.names.fsync,
                    SyncKind::Data => self.names.fdatasync,
                };
                self.phase = Phase::Finished(Err(Error::new(name, self.file.path(), error)));
            }
        }
    }

    fn finish(&mut self) {
        self.phase = Phase::Finished(Ok(self.transfer.done()));
    }

    /// The offset in the error is that of the request, as with every other engine: the caller knows
    /// the write by it.
    fn fail_transfer(&mut self, name: &'static str, error: io::Error) {
        self.phase =
            Phase::Finished(Err(Error::new(name, self.file.path(), error).at(self.offset)));
    }

    /// The completion of a request whose next step is [`Step::Finished`].
    pub(crate) fn into_completion(self) -> Completion {
        match self.phase {
            Phase::Finished(result) => {
                if let (Ok(read), Some(buffer), Some(then)) = (&result, &self.buffer, self.then) {
                    then.call(&buffer[..*read], ThenOn::CallersThread);
                }
                Completion { token: self.token, buffer: self.buffer, result }
            }
            Phase::Write(_) | Phase::Read | Phase::Sync(_) => {
                unreachable!("a completion of a request under way")
            }
        }
    }
}

/// Only io_uring returns `ECANCELED`, for an entry that never ran: the chain before it broke, or
/// the thread that submitted it has ended.
fn is_not_started(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::Interrupted || error.raw_os_error() == Some(libc::ECANCELED)
}

fn not_started_is_interrupted(answer: io::Result<usize>) -> io::Result<usize> {
    answer.map_err(
        |error| if is_not_started(&error) { io::ErrorKind::Interrupted.into() } else { error },
    )
}

#[cfg(test)]
#[path = "progress_tests.rs"]
mod tests;
