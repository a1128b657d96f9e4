//! The engines of the operating system, which make the system calls.
//!
//! *Owns*: threads, rings, AIO contexts. *May not touch*: what is written, or when; an engine carries out requests.
//! [`OsEngine::open`] opens one by its kind; all of them behave alike (see [`crate::seam::Engine`]).
//!
//! | engine | a write | a read | a sync | write, then sync in one request |
//! |---|---|---|---|---|
//! | `caller` | `pwrite`, `pwritev2(RWF_DSYNC)` | `pread` | `fsync`, `fdatasync` | the two calls, at once |
//! | `pool` | as `caller`, on one of its threads | same | same | the two calls, on one thread |
//! | `uring` | `WRITE`, with `RWF_DSYNC` | `READ` | `FSYNC`, with `DATASYNC` | an entry each, the second after the first |
//! | `uring-registered` | `WRITE_FIXED` on a registered file | `READ_FIXED` | as `uring` | as `uring` |
//! | `uring-linked` | as `uring` | as `uring` | as `uring` | two linked entries, one `io_uring_enter` |
//! | `aio` | `IOCB_CMD_PWRITE`, with `RWF_DSYNC` | `IOCB_CMD_PREAD` | `IOCB_CMD_FSYNC`, `FDSYNC` | an entry each |
//!
//! With a ring, [`Engine::submit`] is one `io_uring_enter` (the device starts at once), and [`Engine::complete`] is one more if
//! there is no completion yet; [`Engine::run`] is one for both. A request beyond the depth waits inside `submit` (`pool` queues
//! it, and a thread that waits for completions helps). The next step after an answer (the rest of a short write, an unlinked
//! sync) starts inside `complete` or `submit`.
//!
//! The engines that submit entries to the kernel take only files of access `buffered` or `direct`.

mod caller;
#[cfg(target_os = "linux")]
mod entries;
#[cfg(not(target_os = "linux"))]
#[path = "no_entries.rs"]
mod entries;
mod pool;

use std::mem::ManuallyDrop;

use crate::error::{Error, Result};
use crate::file::OsFile;
use crate::fork::ForkMark;
use crate::seam::{Completion, Engine, Request};
use crate::strategy::{EngineKind, NamedChoice};

/// More requests in flight than any device can use; it bounds threads, rings and the machine's AIO entries.
pub const MAX_DEPTH: usize = 1024;

/// An engine for [`OsFile`]s. A forked child does not have its threads, rings and contexts, and gets an error from it
/// ([`Error::is_forked`]); only engine `caller` can still read there.
#[derive(Debug)]
pub struct OsEngine {
    kind: EngineKind,
    mark: ForkMark,
    /// Not dropped in a forked child: it would wait for threads that do not exist there, or use the ring of its parent.
    inner: ManuallyDrop<Inner>,
}

#[derive(Debug)]
enum Inner {
    Caller(caller::Caller),
    Pool(pool::Pool),
    Entries(entries::Entries),
}

/// Makes `$call` on the engine that this is: the one place that knows every engine.
macro_rules! each {
    ($inner:expr, $engine:ident => $call:expr) => {
        match $inner {
            Inner::Caller($engine) => $call,
            Inner::Pool($engine) => $call,
            Inner::Entries($engine) => $call,
        }
    };
}

impl OsEngine {
    /// An engine of this kind with up to `depth` requests in flight, at least one (the caller's thread always has one at a time).
    ///
    /// # Errors
    /// When this kernel, sandbox or build does not have it: the message names the likely cause and the remedy. When `depth` is
    /// above [`MAX_DEPTH`].
    pub fn open(kind: EngineKind, depth: usize) -> Result<Self> {
        if depth > MAX_DEPTH {
            let why = format!("a depth of {depth} is above the limit of {MAX_DEPTH}");
            return Err(Error::invalid("open engine", kind.name(), why));
        }
        let (depth, mark) = (depth.max(1), ForkMark::new()?);
        let inner = match kind {
            EngineKind::Caller => Inner::Caller(caller::Caller::default()),
            EngineKind::Pool => Inner::Pool(pool::Pool::open(depth)?),
            kind => Inner::Entries(entries::Entries::open(kind, depth)?),
        };
        Ok(Self { kind, mark, inner: ManuallyDrop::new(inner) })
    }

    /// Which engine this is.
    pub fn kind(&self) -> EngineKind {
        self.kind
    }

    fn check_not_forked(&self, operation: &'static str) -> Result<()> {
        if self.kind != EngineKind::Caller && self.mark.is_child() {
            return Err(Error::forked(operation, self.kind.name()));
        }
        Ok(())
    }

    /// The first thing that the engine could not do in its own way, for example a buffer or file that the kernel did not
    /// register. Such a request is carried out all the same, in another way.
    pub fn notice(&self) -> Option<&Error> {
        match &*self.inner {
            Inner::Caller(_) | Inner::Pool(_) => None,
            Inner::Entries(engine) => engine.notice(),
        }
    }
}

impl Engine for OsEngine {
    type File = OsFile;

    fn submit(&mut self, request: Request<OsFile>) -> Result<()> {
        self.check_not_forked("submit")?;
        each!(&mut *self.inner, engine => engine.submit(request))
    }

    fn complete(&mut self) -> Result<Option<Completion>> {
        self.check_not_forked("complete")?;
        each!(&mut *self.inner, engine => engine.complete())
    }

    fn in_flight(&self) -> usize {
        each!(&*self.inner, engine => engine.in_flight())
    }

    // Passed on, since a ring needs only one system call for it.
    fn run(&mut self, request: Request<OsFile>) -> Result<Completion> {
        self.check_not_forked("run")?;
        each!(&mut *self.inner, engine => engine.run(request))
    }
}

impl Drop for OsEngine {
    fn drop(&mut self) {
        if !self.mark.is_child() {
            // SAFETY: this is the only place that drops it, and no code uses it after that.
            unsafe { ManuallyDrop::drop(&mut self.inner) };
        }
    }
}
