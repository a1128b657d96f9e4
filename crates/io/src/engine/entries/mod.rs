//! The engines that submit entries to the kernel: io_uring and Linux AIO.
//!
//! *Owns*: which of them an engine is. *May not touch*: requests; each carries them out in its own way.

mod aio;
mod progress;
mod queue;
#[cfg(feature = "io-uring")]
mod registered;
#[cfg(feature = "io-uring")]
mod uring;

use crate::error::{Error, Result};
use crate::file::OsFile;
use crate::seam::{Completion, Engine, Request};
use crate::strategy::EngineKind;

/// An engine that submits entries.
#[derive(Debug)]
pub(crate) enum Entries {
    Aio(queue::Queue<aio::Aio>),
    #[cfg(feature = "io-uring")]
    Uring(Box<queue::Queue<uring::Ring>>),
}

/// Makes `$call` on the engine that this is.
macro_rules! each {
    ($entries:expr, $engine:ident => $call:expr) => {
        match $entries {
            Entries::Aio($engine) => $call,
            #[cfg(feature = "io-uring")]
            Entries::Uring($engine) => $call,
        }
    };
}

impl Entries {
    /// An engine of this kind, which submits entries.
    pub(crate) fn open(kind: EngineKind, depth: usize) -> Result<Self> {
        match kind {
            EngineKind::Aio => Ok(Self::Aio(queue::Queue::new(aio::Aio::open(depth)?, depth))),
            kind => uring(kind, depth),
        }
    }

    /// The first thing that the engine could not do in its own way.
    pub(crate) fn notice(&self) -> Option<&Error> {
        each!(self, engine => engine.notice())
    }
}

#[cfg(feature = "io-uring")]
fn uring(kind: EngineKind, depth: usize) -> Result<Entries> {
    let mode = match kind {
        EngineKind::UringRegistered => uring::Mode::Registered,
        EngineKind::UringLinked => uring::Mode::Linked,
        _ => uring::Mode::Plain,
    };
    Ok(Entries::Uring(Box::new(queue::Queue::new(uring::Ring::open(mode, depth)?, depth))))
}

#[cfg(not(feature = "io-uring"))]
fn uring(kind: EngineKind, _depth: usize) -> Result<Entries> {
    use crate::strategy::NamedChoice as _;

    let why = "this build has no io_uring: build inkstone-io with the feature `io-uring`, or use engine caller, pool or aio";
    Err(Error::unsupported("open engine", kind.name(), why))
}

impl Engine for Entries {
    type File = OsFile;

    fn submit(&mut self, request: Request<OsFile>) -> Result<()> {
        each!(self, engine => engine.submit(request))
    }

    fn complete(&mut self) -> Result<Option<Completion>> {
        each!(self, engine => engine.complete())
    }

    fn in_flight(&self) -> usize {
        each!(self, engine => engine.in_flight())
    }

    // Passed on, since a ring needs only one system call for it.
    fn run(&mut self, request: Request<OsFile>) -> Result<Completion> {
        each!(self, engine => engine.run(request))
    }
}
