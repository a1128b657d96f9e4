//! The echo on stdout, which logging never waits for.
//!
//! *Owns*: the lines that wait for stdout, their bound, the count of lines not echoed. *May not
//! touch*: the log.
//!
//! Lines wait in memory while the reader of stdout is slower than the service. If too many wait, or
//! the reader has gone, whole lines are left out and counted: the log has them. A line longer than
//! the bound is taken anyway if no more than the bound waits before it: otherwise no reader would
//! be fast enough for it.

use std::fs::File;
use std::io::{self, ErrorKind, Write as _};
use std::os::fd::AsFd as _;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use inkstone_io::wait_to_write;

use crate::threads;

/// At most this much waits for the reader, besides one longer line.
const WAITING_BYTES_MAX: usize = 8 << 20;
/// A line that the log takes in pieces is kept until it ends; a line longer than this is left out.
const PIECES_BYTES_MAX: usize = 32 << 20;
/// Bytes of one write, so that progress shows if the reader takes anything at all: a pipe takes
/// this much or nothing.
const PIECE_BYTES: usize = 4096;
/// At the end, a reader that takes nothing for this long is not waited for.
const STILL: Duration = Duration::from_secs(1);
/// How quickly a signal is noticed then.
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
    /// The bytes of a waiting line that is longer than the bound.
    long_bytes: usize,
    /// The beginning of a line that comes in pieces, and its bytes so far once it is too long.
    pieces: Vec<u8>,
    too_long_bytes: u64,
    /// Lines that were left out because of their length.
    too_long: Amount,
    offered: Amount,
    echoed: Amount,
    /// Nothing more will be offered.
    is_over: bool,
    /// The thread has ended.
    has_ended: bool,
    failed: Option<io::Error>,
}

impl State {
    /// How many of these bytes fit, in whole lines.
    fn fits(&mut self, bytes: &[u8]) -> usize {
        let waiting = self.waiting.len() + self.taken_bytes;
        if waiting <= WAITING_BYTES_MAX {
            let is_end = |byte: &u8| *byte == b'\n';
            let first = bytes.iter().position(is_end).map_or(bytes.len(), |at| at + 1);
            self.long_bytes = if first > WAITING_BYTES_MAX { first } else { 0 };
        }
        let room = (WAITING_BYTES_MAX + self.long_bytes).saturating_sub(waiting);
        if bytes.len() <= room {
            return bytes.len();
        }
        bytes[..room].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1)
    }

    /// Ends the line that came in pieces: returns it, or counts it if it was too long.
    fn end_pieces(&mut self) -> Vec<u8> {
        let bytes = std::mem::take(&mut self.too_long_bytes);
        for amount in [&mut self.too_long, &mut self.offered] {
            amount.lines += u64::from(bytes > 0);
            amount.bytes += bytes;
        }
        std::mem::take(&mut self.pieces)
    }
}

/// Lines, and their bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Amount {
    pub(super) lines: u64,
    pub(super) bytes: u64,
}

/// What was not echoed, and why.
#[derive(Debug)]
pub(super) struct Missing {
    pub(super) amount: Amount,
    pub(super) why: String,
}

impl Echo {
    /// Starts the thread that writes.
    pub(super) fn start() -> anyhow::Result<Arc<Self>> {
        // Not `io::stdout()`: its buffer would hold back the beginning of a line.
        let out = io::stdout().as_fd().try_clone_to_owned().context("open stdout")?;
        let echo = Arc::new(Self::default());
        let theirs = Arc::clone(&echo);
        let write = move || theirs.run(&mut File::from(out));
        threads::start("echo", write)?;
        Ok(echo)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Offers lines to the echo, which takes the first ones that fit. Never waits.
    pub(super) fn offer(&self, bytes: &[u8], lines: u64) {
        let mut state = self.lock();
        state.offered.lines += lines;
        state.offered.bytes += bytes.len() as u64;
        if state.failed.is_none() {
            let fits = state.fits(bytes);
            state.waiting.extend_from_slice(&bytes[..fits]);
            drop(state);
            self.changed.notify_all();
        }
    }

    /// Offers a part of a line, perhaps its last. The line is echoed once it has ended, or left out
    /// if it is too long to keep.
    pub(super) fn offer_piece(&self, piece: &[u8], is_end: bool) {
        let mut state = self.lock();
        if state.too_long_bytes == 0 && state.pieces.len() + piece.len() <= PIECES_BYTES_MAX {
            state.pieces.extend_from_slice(piece);
        } else {
            let before = std::mem::take(&mut state.pieces);
            state.too_long_bytes += (before.len() + piece.len()) as u64;
        }
        if is_end {
            let line = state.end_pieces();
            drop(state);
            if !line.is_empty() {
                self.offer(&line, 1);
            }
        }
    }

    fn run(&self, out: &mut File) {
        let mut taken = Vec::new();
        let ended = loop {
            taken.clear();
            let mut state = self.lock();
            while state.waiting.is_empty() && !state.is_over {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            std::mem::swap(&mut taken, &mut state.waiting);
            state.taken_bytes = taken.len();
            drop(state);
            if taken.is_empty() {
                break Ok(());
            }
            if let Err(error) = self.write(out, &taken) {
                break Err(error);
            }
        };
        let mut state = self.lock();
        state.failed = ended.err();
        state.waiting = Vec::new();
        state.has_ended = true;
        drop(state);
        self.changed.notify_all();
    }

    fn write(&self, out: &mut File, mut rest: &[u8]) -> io::Result<()> {
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
            state.echoed.lines += lines as u64;
            state.echoed.bytes += count as u64;
            // No wake-up needed: `finish` polls.
            state.taken_bytes = rest.len();
        }
        Ok(())
    }

    /// Ends the echo: waits for its reader while it takes anything, and returns what was not
    /// echoed. Calls `until` repeatedly for the latest time to wait for.
    pub(super) fn finish(&self, mut until: impl FnMut() -> Option<Instant>) -> Option<Missing> {
        let mut state = self.lock();
        // A line that will not end any more: the log has stopped taking it.
        let rest = state.end_pieces();
        state.offered.lines += u64::from(!rest.is_empty());
        state.offered.bytes += rest.len() as u64;
        state.is_over = true;
        self.changed.notify_all();
        let mut seen = (state.echoed.bytes, Instant::now());
        while !state.has_ended {
            if state.echoed.bytes != seen.0 {
                seen = (state.echoed.bytes, Instant::now());
            }
            let left = STILL.saturating_sub(seen.1.elapsed());
            if left.is_zero() || until().is_some_and(|until| Instant::now() >= until) {
                break;
            }
            let look = left.min(LOOK_EVERY);
            state =
                self.changed.wait_timeout(state, look).unwrap_or_else(PoisonError::into_inner).0;
        }
        missing(&state)
    }
}

fn missing(state: &State) -> Option<Missing> {
    let State { offered, echoed, too_long, failed, .. } = state;
    // A last line without a line end counts too.
    let amount = Amount {
        lines: offered.lines - echoed.lines.min(offered.lines),
        bytes: offered.bytes - echoed.bytes,
    };
    let why = match failed {
        Some(error) if error.kind() == ErrorKind::BrokenPipe => "its reader closed it".to_owned(),
        Some(error) => error.to_string(),
        None => {
            let long = format!("a line longer than {} MiB is not echoed", PIECES_BYTES_MAX >> 20);
            let slow = "its reader did not keep up";
            match (too_long.lines > 0, amount.bytes > too_long.bytes) {
                (true, true) => format!("{slow}, and {long}"),
                (true, false) => long,
                (false, _) => slow.to_owned(),
            }
        }
    };
    (amount.bytes > 0).then_some(Missing { amount, why })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;

    /// An echo into a pipe, and the pipe's other end.
    fn echo() -> (Arc<Echo>, io::PipeReader) {
        let (reader, writer) = io::pipe().expect("a pipe");
        let echo = Arc::new(Echo::default());
        let theirs = Arc::clone(&echo);
        std::thread::spawn(move || theirs.run(&mut File::from(std::os::fd::OwnedFd::from(writer))));
        (echo, reader)
    }

    #[test]
    fn a_reader_that_reads_gets_everything_and_nothing_is_missing() {
        let (echo, mut reader) = echo();
        let read = std::thread::spawn(move || {
            let mut text = String::new();
            reader.read_to_string(&mut text).map(|_| text)
        });
        let lines: String = (0..50_000).map(|line| format!("line {line}\n")).collect();
        echo.offer(lines.as_bytes(), 50_000);
        echo.offer(b"and an end", 1);
        assert!(echo.finish(|| None).is_none());
        assert!(read.join().expect("a thread").expect("text") == lines + "and an end");
    }

    #[test]
    fn a_reader_that_stands_still_costs_lines_of_the_echo_and_each_is_counted() {
        let (echo, mut reader) = echo();
        let line = [b'x'; 1023].iter().chain(b"\n").copied().collect::<Vec<u8>>();
        for _ in 0..10_000 {
            echo.offer(&line, 1);
        }
        let missing = echo.finish(|| None).expect("some");
        // What is in the pipe counts as echoed: nobody can know better.
        let mut state = echo.lock();
        assert_eq!(state.echoed.lines + missing.amount.lines, 10_000);
        assert_eq!(state.echoed.bytes + missing.amount.bytes, 10_240_000);
        assert!(missing.amount.lines >= 10_000 - 1024, "{missing:?}");
        assert!(missing.why.contains("keep up"));
        state.waiting.clear();
        drop(state);
        let mut seen = vec![0; 4096];
        reader.read_exact(&mut seen).expect("it was in the pipe");
    }

    #[test]
    fn a_line_longer_than_what_may_wait_is_taken_beside_what_waits() {
        let mut state = State::default();
        let offer = |state: &mut State, bytes: &[u8]| {
            let fits = state.fits(bytes);
            state.waiting.extend_from_slice(&bytes[..fits]);
            fits
        };
        let long = [&b"x".repeat(9 << 20)[..], b"\n"].concat();
        assert_eq!(offer(&mut state, b"before\n"), 7);
        assert_eq!(offer(&mut state, &[&long[..], b"behind\n"].concat()), long.len() + 7);
        assert_eq!(offer(&mut state, &long), 0, "more than may wait is before it");
        assert_eq!(offer(&mut state, b"short\n"), 6);
        // The first lines for which there is room.
        let lines = b"0123456\n".repeat(1 << 20);
        let taken = offer(&mut state, &lines);
        assert!(taken > lines.len() - 64 && taken < lines.len() && taken % 8 == 0, "{taken}");
        assert_eq!(offer(&mut state, b"a line that is too much\n"), 0);
        assert_eq!(state.waiting.len(), 7 + long.len() + 7 + 6 + taken);
    }

    #[test]
    fn a_line_in_pieces_is_echoed_whole_or_left_out_whole() {
        let (echo, mut reader) = echo();
        let read = std::thread::spawn(move || {
            let mut text = Vec::new();
            reader.read_to_end(&mut text).map(|_| text)
        });
        let piece = b"x".repeat(PIECES_BYTES_MAX / 4);
        for pieces in [3, 4, 5] {
            for _ in 0..pieces {
                echo.offer_piece(&piece, false);
            }
            echo.offer_piece(b"\n", true);
            while pieces == 3 && echo.lock().echoed.lines == 0 {
                std::thread::yield_now();
            }
        }
        echo.offer(b"last\n", 1);
        let missing = echo.finish(|| None).expect("two lines");
        let too_long = PIECES_BYTES_MAX as u64 * 9 / 4 + 2;
        assert_eq!(missing.amount, Amount { lines: 2, bytes: too_long });
        assert_eq!(missing.why, "a line longer than 32 MiB is not echoed");
        let text = read.join().expect("a thread").expect("read");
        assert!(text == [&piece[..], &piece, &piece, b"\nlast\n"].concat(), "{} bytes", text.len());
    }

    #[test]
    fn a_reader_that_has_gone_is_told_and_waited_for_no_longer() {
        let (echo, reader) = echo();
        drop(reader);
        echo.offer(b"one\ntwo\n", 2);
        while !echo.lock().has_ended {
            std::thread::yield_now();
        }
        echo.offer(b"three\nfour", 2);
        let missing = echo.finish(|| None).expect("all");
        assert_eq!(missing.amount, Amount { lines: 4, bytes: 18 });
        assert!(missing.why.contains("closed it"));
    }
}
