//! The echo on stdout, which logging never waits for.
//!
//! *Owns*: how much may wait for stdout, the count of lines not echoed. *May not touch*: the log.
//!
//! Lines wait in memory while the reader of stdout is slower than the service. If too many wait, or
//! the reader has gone, whole lines are left out and counted: the log has them. A line longer than
//! the bound is taken anyway if no more than the bound waits before it: otherwise no reader would
//! be fast enough for it.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::AsFd as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use inkstone_io::{Amount, Outlet};

use crate::threads;

/// At most this much waits for the reader, besides one longer line.
const WAITING_BYTES_MAX: usize = 8 << 20;
/// A line that the log takes in pieces is kept until it ends; a line longer than this is left out.
const PIECES_BYTES_MAX: usize = 32 << 20;
/// At the end, a reader that takes nothing for this long is not waited for.
const STILL: Duration = Duration::from_secs(1);

/// Stdout, written by a thread of its own.
#[derive(Debug)]
pub(super) struct Echo {
    out: Outlet,
    offers: Mutex<Offers>,
}

#[derive(Debug, Default)]
struct Offers {
    offered: Amount,
    /// The bytes of a waiting line that is longer than the bound.
    long_bytes: usize,
    /// The beginning of a line that comes in pieces, and its bytes so far once it is too long.
    pieces: Vec<u8>,
    too_long_bytes: u64,
    /// Lines that were left out because of their length.
    too_long: Amount,
}

impl Offers {
    /// How many of these bytes fit, in whole lines, behind so many that wait.
    fn fits(&mut self, waiting: usize, bytes: &[u8]) -> usize {
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
        let echo = Arc::new(Self { out: Outlet::default(), offers: Mutex::default() });
        let theirs = Arc::clone(&echo);
        threads::start("echo", move || theirs.out.run(File::from(out), true, || None))?;
        Ok(echo)
    }

    fn lock(&self) -> MutexGuard<'_, Offers> {
        self.offers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Offers lines to the echo, which takes the first ones that fit. Never waits.
    pub(super) fn offer(&self, bytes: &[u8], lines: u64) {
        let mut offers = self.lock();
        offers.offered.lines += lines;
        offers.offered.bytes += bytes.len() as u64;
        let state = self.out.lock();
        let fits = offers.fits(state.waiting_bytes(), bytes);
        self.out.put(state, &bytes[..fits]);
    }

    /// Offers a part of a line, perhaps its last. The line is echoed once it has ended, or left out
    /// if it is too long to keep.
    pub(super) fn offer_piece(&self, piece: &[u8], is_end: bool) {
        let mut offers = self.lock();
        if offers.too_long_bytes == 0 && offers.pieces.len() + piece.len() <= PIECES_BYTES_MAX {
            offers.pieces.extend_from_slice(piece);
        } else {
            let before = std::mem::take(&mut offers.pieces);
            offers.too_long_bytes += (before.len() + piece.len()) as u64;
        }
        if is_end {
            let line = offers.end_pieces();
            drop(offers);
            if !line.is_empty() {
                self.offer(&line, 1);
            }
        }
    }

    /// Ends the echo: waits for its reader while it takes anything, and returns what was not
    /// echoed. Calls `until` repeatedly for the latest time to wait for.
    pub(super) fn finish(&self, mut until: impl FnMut() -> Option<Instant>) -> Option<Missing> {
        let mut offers = self.lock();
        // A line that will not end any more: the log has stopped taking it.
        let rest = offers.end_pieces();
        offers.offered.lines += u64::from(!rest.is_empty());
        offers.offered.bytes += rest.len() as u64;
        let mut seen = (0, Instant::now());
        let state = self.out.wait(|state| {
            if state.written.bytes != seen.0 {
                seen = (state.written.bytes, Instant::now());
            }
            seen.1.elapsed() < STILL && until().is_none_or(|until| Instant::now() < until)
        });
        let Offers { offered, too_long, .. } = *offers;
        // A last line without a line end counts too.
        let amount = Amount {
            lines: offered.lines.saturating_sub(state.written.lines),
            bytes: offered.bytes - state.written.bytes,
        };
        let long = format!("a line longer than {} MiB is not echoed", PIECES_BYTES_MAX >> 20);
        let slow = "its reader did not keep up";
        let why = match &state.failed {
            Some(error) if error.kind() == ErrorKind::BrokenPipe => {
                "its reader closed it".to_owned()
            }
            Some(error) => error.to_string(),
            None if too_long.lines == 0 => slow.to_owned(),
            None if amount.bytes > too_long.bytes => format!("{slow}, and {long}"),
            None => long,
        };
        (amount.bytes > 0).then_some(Missing { amount, why })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_longer_than_what_may_wait_is_taken_beside_what_waits() {
        let (mut offers, mut waiting) = (Offers::default(), 0);
        let mut offer = |bytes: &[u8]| {
            let fits = offers.fits(waiting, bytes);
            waiting += fits;
            fits
        };
        let long = [&b"x".repeat(9 << 20)[..], b"\n"].concat();
        assert_eq!(offer(b"before\n"), 7);
        assert_eq!(offer(&[&long[..], b"behind\n"].concat()), long.len() + 7);
        assert_eq!(offer(&long), 0, "more than may wait is before it");
        assert_eq!(offer(b"short\n"), 6);
        // The first lines for which there is room.
        let lines = b"0123456\n".repeat(1 << 20);
        let taken = offer(&lines);
        assert!(taken > lines.len() - 64 && taken < lines.len() && taken % 8 == 0, "{taken}");
        assert_eq!(offer(b"a line that is too much\n"), 0);
    }
}
