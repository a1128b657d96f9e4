//! An output that nobody waits for: a thread of its own writes what waits for it in memory.
//!
//! *Owns*: the bytes that wait, and how much was written. *May not touch*: how much may wait.
//!
//! A write into a pipe that nobody reads does not return. So the other threads only leave bytes
//! here, and look how far the writing has come.

use std::fs::File;
use std::io::{self, ErrorKind, Write as _};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use inkstone_io::wait_to_write;

/// Bytes of one write, so that progress shows if the reader takes anything at all: a pipe takes
/// this much or nothing.
const PIECE_BYTES: usize = 4096;
/// How quickly progress and signals are noticed at the end.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Lines, and their bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Amount {
    pub(super) lines: u64,
    pub(super) bytes: u64,
}

#[derive(Debug)]
pub(super) struct Outlet {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
pub(super) struct State {
    waiting: Vec<u8>,
    /// Bytes that the thread has taken but not written yet.
    taken_bytes: usize,
    pub(super) written: Amount,
    /// Why the thread has ended.
    pub(super) failed: Option<io::Error>,
}

impl State {
    pub(super) fn waiting_bytes(&self) -> usize {
        self.waiting.len() + self.taken_bytes
    }
}

impl Outlet {
    pub(super) const fn new() -> Self {
        let written = Amount { lines: 0, bytes: 0 };
        let state = State { waiting: Vec::new(), taken_bytes: 0, written, failed: None };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves bytes for the thread. Never waits.
    pub(super) fn put(&self, mut state: MutexGuard<'_, State>, bytes: &[u8]) {
        if state.failed.is_none() {
            state.waiting.extend_from_slice(bytes);
            drop(state);
            self.changed.notify_all();
        }
    }

    /// Writes for as long as the process lives; `is_last`: a failure ends it, else only what was
    /// taken is lost.
    pub(super) fn run(&self, out: &File, is_last: bool) {
        let mut taken = Vec::new();
        loop {
            let state = self.lock();
            let state = self.changed.wait_while(state, |state| state.waiting.is_empty());
            let mut state = state.unwrap_or_else(PoisonError::into_inner);
            taken.clear();
            std::mem::swap(&mut taken, &mut state.waiting);
            state.taken_bytes = taken.len();
            drop(state);
            if let Err(error) = self.write(out, &taken) {
                let mut state = self.lock();
                state.taken_bytes = 0;
                if is_last {
                    (state.failed, state.waiting) = (Some(error), Vec::new());
                    return;
                }
            }
        }
    }

    fn write(&self, mut out: &File, mut rest: &[u8]) -> io::Result<()> {
        while !rest.is_empty() {
            let count = match out.write(&rest[..rest.len().min(PIECE_BYTES)]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::Interrupted => 0,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    wait_to_write(out).map_err(io::Error::other)?;
                    0
                }
                Err(error) => return Err(error),
            };
            let lines = rest[..count].iter().filter(|byte| **byte == b'\n').count();
            rest = &rest[count..];
            let mut state = self.lock();
            state.written.lines += lines as u64;
            state.written.bytes += count as u64;
            state.taken_bytes = rest.len();
        }
        Ok(())
    }

    /// Waits until everything is written, or writing has failed, as long as `goes_on` says so,
    /// which is called again and again.
    pub(super) fn wait(&self, mut goes_on: impl FnMut(&State) -> bool) -> MutexGuard<'_, State> {
        let mut state = self.lock();
        while state.failed.is_none() && state.waiting_bytes() > 0 && goes_on(&state) {
            let waited = self.changed.wait_timeout(state, LOOK_EVERY);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        state
    }
}
