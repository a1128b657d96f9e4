//! The engines that a lab compares: blocking calls by the caller's thread, and entries that are
//! submitted to the kernel (io_uring, Linux AIO).
//!
//! *Owns*: rings, AIO contexts, which of them an engine is. *May not touch*: what is written, or
//! when; an engine carries out requests. [`LabEngine::open`] opens one by its kind; all of them
//! behave alike.
//!
//! | engine | a write | a read | a sync | write, then sync in one request |
//! |---|---|---|---|---|
//! | `caller` | `pwrite`, `pwritev2(RWF_DSYNC)` | `pread`, or by the file's access | `fsync`, `fdatasync` | the two calls, at once |
//! | `uring` | `WRITE`, with `RWF_DSYNC` | `READ` | `FSYNC`, with `DATASYNC` | refused |
//! | `uring-linked` | as `uring` | as `uring` | as `uring` | two linked entries, one `io_uring_enter` |
//! | `aio` | `IOCB_CMD_PWRITE`, with `RWF_DSYNC` | `IOCB_CMD_PREAD` | `IOCB_CMD_FSYNC`, `FDSYNC` | refused |
//!
//! With a ring, [`LabEngine::submit`] is one `io_uring_enter` (the device starts at once), and
//! [`LabEngine::complete`] is one more if there is no completion yet; [`LabEngine::run`] is one for
//! both. A request beyond the depth waits inside `submit`; engine `caller` queues it.
//!
//! The engines that submit entries to the kernel take only files of access `buffered` or `direct`.

mod aio;
mod entries;
pub(crate) mod kind;
pub(crate) mod request;
mod uring;

use std::collections::VecDeque;

use inkstone_io::{Error, NamedChoice as _, Result};

use crate::engine::kind::EngineKind;
use entries::Entries;
use request::{Completion, Request};

/// More requests in flight than any device can use; it bounds threads, and what other engines ask
/// of the kernel.
pub const MAX_DEPTH: usize = 1024;

/// An engine of any kind. No lab forks while it has one.
#[derive(Debug)]
pub struct LabEngine {
    kind: EngineKind,
    inner: Inner,
}

#[derive(Debug)]
enum Inner {
    Blocking(Calls),
    Aio(Entries<aio::Aio>),
    Uring(Box<Entries<uring::Ring>>),
}

/// Requests that the caller's thread carries out, the oldest first; all of them before they are
/// dropped, as other engines do.
#[derive(Debug, Default)]
struct Calls(VecDeque<Request>);

impl Calls {
    fn complete(&mut self) -> Option<Completion> {
        let mut request = self.0.pop_front()?;
        let result = request.carry_out();
        Some(request.completed(result))
    }
}

impl Drop for Calls {
    fn drop(&mut self) {
        while self.complete().is_some() {}
    }
}

impl LabEngine {
    /// An engine of this kind with up to `depth` requests in flight, at least one (the caller's
    /// thread always has one at a time).
    ///
    /// # Errors
    /// When this kernel or sandbox does not have it: the message names the likely cause and the
    /// remedy. When `depth` is above [`MAX_DEPTH`].
    pub fn open(kind: EngineKind, depth: usize) -> Result<Self> {
        if depth > MAX_DEPTH {
            let why = format!("a depth of {depth} is above the limit of {MAX_DEPTH}");
            return Err(Error::invalid("open engine", kind.name(), why));
        }
        let depth = depth.max(1);
        let inner = match kind {
            EngineKind::Caller => Inner::Blocking(Calls::default()),
            EngineKind::Aio => Inner::Aio(Entries::new(aio::Aio::open(depth)?, kind, depth)),
            EngineKind::Uring | EngineKind::UringLinked => {
                Inner::Uring(Box::new(Entries::new(uring::Ring::open(kind, depth)?, kind, depth)))
            }
        };
        Ok(Self { kind, inner })
    }

    /// Which engine this is.
    pub fn kind(&self) -> EngineKind {
        self.kind
    }

    /// Takes a request. It may be carried out later; engine `caller` does that in
    /// [`LabEngine::complete`].
    ///
    /// # Errors
    /// Only when the request could not be taken, so that no completion will come: the engine is not
    /// usable any more, and the buffer is lost. Errors of the request itself come with its
    /// completion.
    pub fn submit(&mut self, request: Request) -> Result<()> {
        match &mut self.inner {
            Inner::Blocking(calls) => {
                calls.0.push_back(request);
                Ok(())
            }
            Inner::Aio(engine) => engine.submit(request),
            Inner::Uring(engine) => engine.submit(request),
        }
    }

    /// Waits for the next completion; `None` when nothing is in flight.
    ///
    /// # Errors
    /// When the engine itself failed; it is not usable any more.
    pub fn complete(&mut self) -> Result<Option<Completion>> {
        match &mut self.inner {
            Inner::Blocking(calls) => Ok(calls.complete()),
            Inner::Aio(engine) => engine.complete(),
            Inner::Uring(engine) => engine.complete(),
        }
    }

    /// How many requests were taken and not completed yet.
    pub fn in_flight(&self) -> usize {
        match &self.inner {
            Inner::Blocking(calls) => calls.0.len(),
            Inner::Aio(engine) => engine.in_flight(),
            Inner::Uring(engine) => engine.in_flight(),
        }
    }

    /// Submits one request and waits for *its* completion: for callers with nothing else in flight.
    ///
    /// # Errors
    /// As [`LabEngine::submit`] and [`LabEngine::complete`]; the request's own failure is in the
    /// completion.
    ///
    /// # Panics
    /// If another request is in flight: that is a bug of the caller.
    pub fn run(&mut self, request: Request) -> Result<Completion> {
        assert_eq!(self.in_flight(), 0, "run() with requests in flight");
        match &mut self.inner {
            Inner::Blocking(_) => {
                self.submit(request)?;
                Ok(self.complete()?.expect("one request is in flight"))
            }
            // A ring needs only one system call for it.
            Inner::Aio(engine) => engine.run(request),
            Inner::Uring(engine) => engine.run(request),
        }
    }
}
