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

use crate::command::input::wait_to_write;
use crate::size_signal::NoSizeSignal;

/// Bytes of one write, so that progress shows if the reader takes anything at all: a pipe takes
/// this much or nothing.
const PIECE_BYTES: usize = 4096;
/// How quickly progress and signals are noticed at the end.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Lines, and their bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Amount {
    /// Lines that have ended.
    pub lines: u64,
    /// All bytes.
    pub bytes: u64,
}

/// An output, and what waits for it.
#[derive(Debug, Default)]
pub struct Outlet {
    state: Mutex<OutletState>,
    changed: Condvar,
}

/// How far the writing has come.
#[derive(Debug, Default)]
pub struct OutletState {
    waiting: Vec<u8>,
    /// Bytes that the thread has taken but not written yet.
    taken_bytes: usize,
    /// What the output has taken.
    pub written: Amount,
    /// Why the thread has ended.
    pub failed: Option<io::Error>,
}

impl OutletState {
    /// Bytes that are not written yet.
    pub fn waiting_bytes(&self) -> usize {
        self.waiting.len() + self.taken_bytes
    }
}

impl Outlet {
    /// Its state, which the thread needs to go on.
    pub fn lock(&self) -> MutexGuard<'_, OutletState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves bytes for the thread. Never waits.
    pub fn put(&self, mut state: MutexGuard<'_, OutletState>, bytes: &[u8]) {
        if state.failed.is_none() {
            state.waiting.extend_from_slice(bytes);
            drop(state);
            self.changed.notify_all();
        }
    }

    /// Writes for as long as the process lives. `is_last`: a failure ends it, else only what was
    /// taken is lost. `now`: what the output is by then, if that can change.
    pub fn run(&self, mut out: File, is_last: bool, now: impl Fn() -> Option<File>) {
        let _no_signal = NoSizeSignal::here();
        let mut taken = Vec::new();
        loop {
            let state = self.lock();
            let state = self.changed.wait_while(state, |state| state.waiting.is_empty());
            let mut state = state.unwrap_or_else(PoisonError::into_inner);
            taken.clear();
            std::mem::swap(&mut taken, &mut state.waiting);
            state.taken_bytes = taken.len();
            drop(state);
            out = now().unwrap_or(out);
            if let Err(error) = self.write(&out, &taken) {
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
    pub fn wait(
        &self,
        mut goes_on: impl FnMut(&OutletState) -> bool,
    ) -> MutexGuard<'_, OutletState> {
        let mut state = self.lock();
        while state.failed.is_none() && state.waiting_bytes() > 0 && goes_on(&state) {
            let waited = self.changed.wait_timeout(state, LOOK_EVERY);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        state
    }
}
