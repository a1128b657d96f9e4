//! Writes to a pipe, a socket or a terminal, in a thread of its own.
//!
//! *Owns*: that thread, handing bytes to it. *May not touch*: what happens when an output fails.
//!
//! No call says whether a write will wait. A terminal reports room when it has some, and then the
//! write waits until it has taken everything; and another process may be faster to fill a pipe. So
//! the thread that must react to signals does not write there.

use std::fs::File;
use std::io::{self, ErrorKind, PipeReader, Write as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

use inkstone_io::wait_to_write;

use crate::signals;
use crate::threads;

/// Bytes of one write, so that progress shows if the reader takes anything at all.
const PIECE_BYTES: usize = 4096;

/// One of stdout and stderr. Its thread starts with the first write.
pub(crate) struct Writer(Mutex<State>);

enum State {
    NotStarted,
    Runs(Thread),
    /// A signal came and the output took nothing: the thread may hang in its write for ever.
    Hangs,
}

struct Thread {
    give: Sender<Vec<u8>>,
    /// A byte for each answer.
    done: PipeReader,
    answers: Receiver<io::Result<()>>,
    written_bytes: Arc<AtomicU64>,
}

impl Writer {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(State::NotStarted))
    }

    /// Writes all of it; false if a signal has come and the output does not take it in time.
    pub(crate) fn write_all(&self, file: &File, bytes: &[u8]) -> io::Result<bool> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(*state, State::NotStarted) {
            let Ok(thread) = Thread::start(file) else {
                // No thread could be started: this one writes, and meanwhile does not react to
                // signals.
                return write_all(file, bytes, &AtomicU64::new(0)).map(|()| true);
            };
            *state = State::Runs(thread);
        }
        let State::Runs(thread) = &mut *state else { return Ok(false) };
        let is_written = thread.write_all(bytes)?;
        if !is_written {
            *state = State::Hangs;
        }
        Ok(is_written)
    }
}

impl Thread {
    fn start(file: &File) -> io::Result<Self> {
        let file = file.try_clone()?;
        let (give, given) = channel::<Vec<u8>>();
        let (answer, answers) = channel();
        let (done, mut tell) = io::pipe()?;
        let written_bytes = Arc::new(AtomicU64::new(0));
        let theirs = Arc::clone(&written_bytes);
        let write = move || {
            for bytes in given {
                let _ = answer.send(write_all(&file, &bytes, &theirs));
                let _ = tell.write_all(b"x");
            }
        };
        threads::start("output", write)?;
        Ok(Self { give, done, answers, written_bytes })
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<bool> {
        let is_gone = || io::Error::other("the thread that writes the output panicked");
        self.give.send(bytes.to_vec()).map_err(|_| is_gone())?;
        let moved = || self.written_bytes.load(Ordering::Relaxed);
        if !signals::wait_for(&self.done, moved)
            .map_err(|error| io::Error::new(error.kind(), error))?
        {
            return Ok(false);
        }
        io::Read::read_exact(&mut self.done, &mut [0])?;
        self.answers.recv().map_err(|_| is_gone())?.map(|()| true)
    }
}

fn write_all(mut file: &File, mut rest: &[u8], written_bytes: &AtomicU64) -> io::Result<()> {
    while !rest.is_empty() {
        match file.write(&rest[..rest.len().min(PIECE_BYTES)]) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(count) => {
                written_bytes.fetch_add(count as u64, Ordering::Relaxed);
                rest = &rest[count..];
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            // Another process made the file non-blocking, and may need that: all descriptors of the
            // file share the mode.
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                wait_to_write(file).map_err(|error| io::Error::new(error.kind(), error))?;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
