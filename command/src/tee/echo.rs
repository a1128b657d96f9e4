//! The echo on stdout, which logging never waits for.
//!
//! *Owns*: how much may wait for stdout. *May not touch*: the log.
//!
//! Text waits in memory while the reader of stdout is slower than the service. If too much waits,
//! or the reader has gone, lines are left out, which is said at the end: the log has them.

use std::fs::File;
use std::io::{self, ErrorKind, Write as _};
use std::os::fd::AsFd as _;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use inkstone_io::NoSizeSignal;

use crate::threads;

/// No line begins while so much waits for the reader; one that has begun is cut where so much does.
const WAITING_BYTES_MAX: usize = 32 << 20;
const CUT_BYTES: usize = 40 << 20;
/// Bytes of one write, so that progress shows if the reader takes anything at all: a pipe takes
/// this much or nothing.
const PIECE_BYTES: usize = 4096;
/// At the end, a reader that takes nothing for this long is not waited for.
const STILL: Duration = Duration::from_secs(1);
/// How quickly progress and signals are noticed at the end.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Stdout, written by a thread of its own.
#[derive(Debug, Default)]
pub(super) struct Echo {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    waiting: Vec<u8>,
    /// Bytes that the thread has taken but not written yet.
    taken_bytes: usize,
    /// The last line that was offered has not ended.
    is_within: bool,
    /// It is left out, or its rest is.
    is_left_out: bool,
    /// Why something was left out.
    missing: Option<String>,
    /// The thread has ended.
    has_failed: bool,
}

impl State {
    fn offer(&mut self, text: &[u8]) {
        for part in text.split_inclusive(|byte| *byte == b'\n').filter(|_| !self.has_failed) {
            let waiting = self.waiting.len() + self.taken_bytes;
            // No line begins that may have to be cut.
            let most = if self.is_within { CUT_BYTES } else { WAITING_BYTES_MAX };
            let begins = !std::mem::replace(&mut self.is_within, !part.ends_with(b"\n"));
            self.is_left_out &= !begins;
            if !self.is_left_out && waiting > most {
                self.is_left_out = true;
                self.missing.get_or_insert_with(too_slow);
                if !begins {
                    self.waiting.push(b'\n');
                }
            }
            if !self.is_left_out {
                self.waiting.extend_from_slice(part);
            }
        }
    }
}

fn too_slow() -> String {
    "its reader did not keep up".to_owned()
}

impl Echo {
    /// Starts the thread that writes.
    pub(super) fn start() -> anyhow::Result<Arc<Self>> {
        // Not `io::stdout()`: its buffer would hold back the beginning of a line.
        let out = io::stdout().as_fd().try_clone_to_owned().context("open stdout")?;
        let echo = Arc::new(Self::default());
        let theirs = Arc::clone(&echo);
        threads::start("echo", move || theirs.run(&File::from(out)))?;
        Ok(echo)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Offers text to the echo. Never waits.
    pub(super) fn offer(&self, text: &[u8]) {
        self.lock().offer(text);
        self.changed.notify_all();
    }

    /// Writes for as long as the process lives, or until that fails.
    fn run(&self, out: &File) {
        let _no_signal = NoSizeSignal::here();
        loop {
            let state = self.changed.wait_while(self.lock(), |state| state.waiting.is_empty());
            let mut state = state.unwrap_or_else(PoisonError::into_inner);
            let taken = std::mem::take(&mut state.waiting);
            state.taken_bytes = taken.len();
            drop(state);
            if let Err(error) = self.write(out, &taken) {
                let why = match error.kind() {
                    ErrorKind::BrokenPipe => "its reader closed it".to_owned(),
                    _ => error.to_string(),
                };
                let mut state = self.lock();
                (state.missing, state.has_failed) = (Some(why), true);
                (state.waiting, state.taken_bytes) = (Vec::new(), 0);
                return;
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
                    std::thread::sleep(LOOK_EVERY);
                    0
                }
                Err(error) => return Err(error),
            };
            rest = &rest[count..];
            self.lock().taken_bytes = rest.len();
        }
        Ok(())
    }

    /// Ends the echo: waits for its reader while it takes anything, and returns why something was
    /// not echoed. Calls `until` repeatedly for the latest time to wait for.
    pub(super) fn finish(&self, mut until: impl FnMut() -> Option<Instant>) -> Option<String> {
        let mut state = self.lock();
        let mut seen = (usize::MAX, Instant::now());
        loop {
            let left = state.waiting.len() + state.taken_bytes;
            if left != seen.0 {
                seen = (left, Instant::now());
            }
            let goes_on =
                seen.1.elapsed() < STILL && until().is_none_or(|until| Instant::now() < until);
            if left == 0 || !goes_on {
                return state.missing.take().or_else(|| (left > 0).then(too_slow));
            }
            let waited = self.changed.wait_timeout(state, LOOK_EVERY);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
