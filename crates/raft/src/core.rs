//! What writers and readers of a raft log share.
//!
//! *Owns*: the state with the tail of entries under one lock, which is never held while the log is called. *May not touch*: the order of
//! writes (`log.rs`).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use inkstone::{Directory, Reader};

use crate::callbacks::Callbacks;
use crate::error::{Error, Result};
use crate::state::State;
use crate::tail::Tail;
use crate::words::Vote;

/// Shared by a raft log and its readers.
pub(crate) struct Core<D: Directory> {
    memory: Mutex<Memory>,
    pub(crate) reader: Reader<D>,
    pub(crate) directory: Arc<D>,
    pub(crate) callbacks: Arc<Callbacks>,
    is_closed: AtomicBool,
}

/// What is known without reading.
#[derive(Debug)]
pub(crate) struct Memory {
    /// As of the last record that was appended.
    pub(crate) state: State,
    pub(crate) tail: Tail,
    /// The last vote that is durable.
    pub(crate) vote: Option<Vote>,
}

impl Memory {
    /// Takes a durable vote over, unless a higher one was durable earlier: another thread may have saved it.
    pub(crate) fn vote_is_durable(&mut self, vote: &Vote) {
        if self.vote.as_ref() < Some(vote) {
            self.vote = Some(vote.clone());
        }
    }

    /// Entries that the state no longer has leave memory.
    pub(crate) fn mind_bounds(&mut self) {
        self.tail.truncate(self.state.next);
        self.tail.purge_before(self.state.first);
    }
}

impl<D: Directory> Core<D> {
    pub(crate) fn new(state: State, reader: Reader<D>, directory: Arc<D>) -> Self {
        let vote = state.vote.clone();
        Self {
            memory: Mutex::new(Memory { state, tail: Tail::default(), vote }),
            reader,
            directory,
            callbacks: Arc::default(),
            is_closed: AtomicBool::new(false),
        }
    }

    /// No code of others runs under this lock, and changes were checked before they are made.
    pub(crate) fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether calls are answered: not in a forked child, after a failure, or after the end.
    pub(crate) fn check(&self) -> Result<()> {
        if self.directory.is_forked() {
            return Err(inkstone::Error::Forked { path: self.directory.path().into() }.into());
        }
        self.callbacks.check()?;
        if self.is_closed.load(Ordering::Acquire) { Err(Error::Closed) } else { Ok(()) }
    }

    /// Notes a failure that ends the raft log.
    pub(crate) fn noted<T>(&self, result: std::result::Result<T, inkstone::Error>) -> Result<T> {
        result.map_err(|error| {
            let error = Error::Log(error);
            self.callbacks.fail(&error);
            error
        })
    }

    /// The end: callbacks that are left get an error.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        if !self.directory.is_forked() {
            self.callbacks.fail(&Error::Closed);
            self.callbacks.call();
        }
    }
}
