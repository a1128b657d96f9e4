//! The engines that a lab compares: those of the log, and those that submit entries to the kernel
//! (io_uring, Linux AIO).
//!
//! *Owns*: rings, AIO contexts, which of them an engine is. *May not touch*: what is written, or
//! when; an engine carries out requests. [`LabEngine::open`] opens one by its kind; all of them
//! behave alike (see [`inkstone_io::seam::Engine`]).
//!
//! | engine | a write | a read | a sync | write, then sync in one request |
//! |---|---|---|---|---|
//! | `caller`, `pool` | those of [`OsEngine`] | | | |
//! | `uring` | `WRITE`, with `RWF_DSYNC` | `READ` | `FSYNC`, with `DATASYNC` | refused |
//! | `uring-linked` | as `uring` | as `uring` | as `uring` | two linked entries, one `io_uring_enter` |
//! | `aio` | `IOCB_CMD_PWRITE`, with `RWF_DSYNC` | `IOCB_CMD_PREAD` | `IOCB_CMD_FSYNC`, `FDSYNC` | refused |
//!
//! With a ring, [`Engine::submit`] is one `io_uring_enter` (the device starts at once), and
//! [`Engine::complete`] is one more if there is no completion yet; [`Engine::run`] is one for both.
//! A request beyond the depth waits inside `submit`.
//!
//! The engines that submit entries to the kernel take only files of access `buffered` or `direct`.

mod aio;
mod entries;
mod uring;

use inkstone_io::engine::{OsEngine, check_depth};
use inkstone_io::{Completion, Engine, EngineKind, Request, Result};

use crate::lab_file::LabFile;
use entries::Entries;

/// An engine of any kind, for [`LabFile`]s. No lab forks while it has one.
#[derive(Debug)]
pub struct LabEngine {
    kind: EngineKind,
    inner: Inner,
}

#[derive(Debug)]
enum Inner {
    Blocking(OsEngine<LabFile>),
    Aio(Entries<aio::Aio>),
    Uring(Box<Entries<uring::Ring>>),
}

/// Makes `$call` on the engine that this is: the one place that knows every engine.
macro_rules! each {
    ($inner:expr, $engine:ident => $call:expr) => {
        match $inner {
            Inner::Blocking($engine) => $call,
            Inner::Aio($engine) => $call,
            Inner::Uring($engine) => $call,
        }
    };
}

impl LabEngine {
    /// An engine of this kind with up to `depth` requests in flight, at least one (the caller's
    /// thread always has one at a time).
    ///
    /// # Errors
    /// When this kernel or sandbox does not have it: the message names the likely cause and the
    /// remedy. When `depth` is above [`inkstone_io::engine::MAX_DEPTH`].
    pub fn open(kind: EngineKind, depth: usize) -> Result<Self> {
        let depth = check_depth(kind, depth)?;
        let inner = match kind {
            EngineKind::Caller | EngineKind::Pool => Inner::Blocking(OsEngine::open(kind, depth)?),
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
}

impl Engine for LabEngine {
    type File = LabFile;

    fn submit(&mut self, request: Request<LabFile>) -> Result<()> {
        each!(&mut self.inner, engine => engine.submit(request))
    }

    fn complete(&mut self) -> Result<Option<Completion>> {
        each!(&mut self.inner, engine => engine.complete())
    }

    fn in_flight(&self) -> usize {
        each!(&self.inner, engine => engine.in_flight())
    }

    // Passed on, since a ring needs only one system call for it.
    fn run(&mut self, request: Request<LabFile>) -> Result<Completion> {
        each!(&mut self.inner, engine => engine.run(request))
    }
}
