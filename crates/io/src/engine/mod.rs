//! The engines of the operating system, which make the system calls.
//!
//! *Owns*: the threads. *May not touch*: what is written, or when; an engine carries out requests.
//! [`OsEngine::open`] opens one by its kind; both behave alike (see
//! [`seam::Engine`](crate::seam::Engine)).
//!
//! | engine | a write | a read | a sync | write, then sync in one request |
//! |---|---|---|---|---|
//! | `caller` | `pwrite`, `pwritev2(RWF_DSYNC)` | `pread` | `fsync`, `fdatasync` | the two calls, at once |
//! | `pool` | as `caller`, on one of its threads | same | same | the two calls, on one thread |
//!
//! `pool` queues a request beyond its depth, and a thread that waits for completions helps. The
//! engines that submit entries to the kernel (io_uring, Linux AIO) are those of the lab, in
//! `inkstone-host`.

mod blocking;
mod caller;
mod pool;

pub use blocking::{BlockingFile, too_long};

use crate::error::{Error, Result};
use crate::file::OsFile;
use crate::fork::LeftInChild;
use crate::seam::{Completion, Engine, Request};
use crate::strategy::{EngineKind, NamedChoice};

/// More requests in flight than any device can use; it bounds threads, and what other engines ask
/// of the kernel.
pub const MAX_DEPTH: usize = 1024;

/// How many requests an engine that is asked for `depth` has in flight: at least one.
///
/// # Errors
/// `depth` is above [`MAX_DEPTH`].
pub fn check_depth(kind: EngineKind, depth: usize) -> Result<usize> {
    if depth > MAX_DEPTH {
        let why = format!("a depth of {depth} is above the limit of {MAX_DEPTH}");
        return Err(Error::invalid("open engine", kind.name(), why));
    }
    Ok(depth.max(1))
}

/// An engine of blocking calls. A forked child does not have its threads, and gets an error from it
/// ([`Error::is_forked`]); only engine `caller` can still read there.
#[derive(Debug)]
pub struct OsEngine<F: BlockingFile = OsFile> {
    kind: EngineKind,
    inner: LeftInChild<Inner<F>>,
}

#[derive(Debug)]
enum Inner<F: BlockingFile> {
    Caller(caller::Caller<F>),
    Pool(pool::Pool<F>),
}

/// Makes `$call` on the engine that this is: the one place that knows every engine.
macro_rules! each {
    ($inner:expr, $engine:ident => $call:expr) => {
        match $inner {
            Inner::Caller($engine) => $call,
            Inner::Pool($engine) => $call,
        }
    };
}

impl<F: BlockingFile> OsEngine<F> {
    /// An engine of this kind with up to `depth` requests in flight, at least one (the caller's
    /// thread always has one at a time).
    ///
    /// # Errors
    /// When it is an engine of the lab ([unsupported](Error::is_unsupported)), or a thread cannot
    /// be started: the message names the remedy. When `depth` is above [`MAX_DEPTH`].
    pub fn open(kind: EngineKind, depth: usize) -> Result<Self> {
        let depth = check_depth(kind, depth)?;
        let inner = match kind {
            EngineKind::Caller => Inner::Caller(caller::Caller::new()),
            EngineKind::Pool => Inner::Pool(pool::Pool::open(depth)?),
            kind => {
                let why = "only labs have it, in inkstone-host: use engine caller or pool";
                return Err(Error::unsupported("open engine", kind.name(), why));
            }
        };
        Ok(Self { kind, inner: LeftInChild::new(inner)? })
    }

    /// Which engine this is.
    pub fn kind(&self) -> EngineKind {
        self.kind
    }

    fn check_not_forked(&self, operation: &'static str) -> Result<()> {
        if self.kind != EngineKind::Caller && self.inner.is_child() {
            return Err(Error::forked(operation, self.kind.name()));
        }
        Ok(())
    }
}

impl<F: BlockingFile> Engine for OsEngine<F> {
    type File = F;

    fn submit(&mut self, request: Request<F>) -> Result<()> {
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engines_of_the_lab_are_refused_and_the_error_says_where_they_are() {
        for &kind in EngineKind::ALL {
            let opened = <OsEngine>::open(kind, 2);
            if matches!(kind, EngineKind::Caller | EngineKind::Pool) {
                assert_eq!(opened.expect("opened").kind(), kind);
                continue;
            }
            let error = opened.expect_err("refused");
            assert!(
                error.is_unsupported() && error.to_string().contains("in inkstone-host"),
                "{error}"
            );
        }
    }
}
