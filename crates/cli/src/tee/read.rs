//! Stdin, cut into lines, on its way to the log and to the echo.
//!
//! *Owns*: what was read and not handed over yet, and the count of all that was read. *May not touch*: signals, time.
//!
//! All that a read gives is handed to the log before the next read, but for the beginning of a line that has not ended: each line
//! is one call, so that none is ever cut by a new file.

use std::io::{BufRead as _, Write as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use inkstone_appender::LogWriter;
use inkstone_io::{Got, Input};

use super::echo::Echo;

/// A line longer than this is taken in pieces.
pub(super) const LINE_BYTES_MAX: usize = 16 << 20;
/// After the wish to stop, what is in the input just then is read, but no more than a large pipe has.
const LAST_BYTES_MAX: u64 = 1 << 20;

/// What was read. A line without its end counts as one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Read {
    pub(super) lines: u64,
    pub(super) bytes: u64,
    /// Lines that were taken in pieces, each of which counts as a line.
    pub(super) long_lines: u64,
    /// The input has ended.
    pub(super) is_all: bool,
}

/// The count, shared with whoever tells it: exact at every moment, also while a line waits for room.
#[derive(Debug, Clone, Default)]
pub(super) struct Count(Arc<Mutex<(Read, bool)>>);

impl Count {
    fn lock(&self) -> MutexGuard<'_, (Read, bool)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn read(&self) -> Read {
        let (mut read, has_beginning) = *self.lock();
        read.lines += u64::from(has_beginning);
        read
    }
}

/// Reads until the end or the wish to stop.
pub(super) struct Reader {
    pub(super) input: Input,
    pub(super) log: LogWriter,
    pub(super) echo: Option<Arc<Echo>>,
    pub(super) count: Count,
    /// Read at once, at most: as much is lost at most, beside what is in the pipe, when this process is killed.
    pub(super) read_bytes: usize,
}

impl Reader {
    pub(super) fn run(mut self) -> anyhow::Result<()> {
        let mut lines = Lines::default();
        let ended = self.read(&mut lines);
        // Also what came before an error.
        self.hand_over_rest(&mut lines);
        ended
    }

    fn read(&mut self, lines: &mut Lines) -> anyhow::Result<()> {
        loop {
            match self.input.read(lines.room(self.read_bytes))? {
                Got::Bytes(count) => {
                    if !self.hand_over(lines, count) {
                        return Ok(());
                    }
                }
                Got::End => return self.ends(),
                Got::Nothing => return self.read_last(lines),
            }
        }
    }

    /// What is in the input when reading is stopped: it was given away by whoever wrote it.
    fn read_last(&mut self, lines: &mut Lines) -> anyhow::Result<()> {
        let mut left = self.input.waiting_bytes().unwrap_or(0).min(LAST_BYTES_MAX);
        loop {
            let most = usize::try_from(left).unwrap_or(usize::MAX).clamp(1, self.read_bytes);
            // The end is looked for too, and is no byte: the last read asks for one more.
            match self.input.read_now(lines.room(most))? {
                Got::Bytes(count) => {
                    left = left.saturating_sub(count as u64);
                    if !self.hand_over(lines, count) || left == 0 {
                        return Ok(());
                    }
                }
                Got::End => return self.ends(),
                Got::Nothing => return Ok(()),
            }
        }
    }

    #[allow(clippy::unnecessary_wraps, reason = "the answer of its callers")]
    fn ends(&self) -> anyhow::Result<()> {
        self.count.lock().0.is_all = true;
        Ok(())
    }

    /// Puts each line that has ended; false when the log takes no more.
    fn hand_over(&self, lines: &mut Lines, count: usize) -> bool {
        lines.add(count);
        let is_long = lines.ends.is_empty() && lines.len >= LINE_BYTES_MAX;
        if is_long {
            lines.ends.push(lines.len);
        }
        {
            let mut guard = self.count.lock();
            let (read, has_beginning) = &mut *guard;
            read.lines += lines.ends.len() as u64;
            read.bytes += count as u64;
            read.long_lines += u64::from(is_long && !std::mem::replace(&mut lines.is_piece, true));
            *has_beginning = lines.len > lines.whole();
        }
        if !is_long && !lines.ends.is_empty() {
            lines.is_piece = false;
        }
        let mut from = 0;
        for &to in &lines.ends {
            // It is closed: what is left is counted as read, and not as written.
            if (&self.log).write_all(&lines.bytes[from..to]).is_err() {
                return false;
            }
            from = to;
        }
        if let Some(echo) = self.echo.as_ref().filter(|_| from > 0) {
            echo.offer(&lines.bytes[..from], lines.ends.len() as u64);
        }
        lines.take_whole();
        true
    }

    /// A line that does not end any more.
    fn hand_over_rest(&self, lines: &mut Lines) {
        let rest = &lines.bytes[..lines.len];
        // After a refused line its own count says it all.
        if rest.is_empty() || !lines.ends.is_empty() || (&self.log).write_all(rest).is_err() {
            return;
        }
        if let Some(echo) = &self.echo {
            echo.offer(rest, 1);
        }
    }
}

/// Bytes that were read, and where in them lines end.
#[derive(Debug, Default)]
struct Lines {
    bytes: Vec<u8>,
    /// Bytes that are there.
    len: usize,
    ends: Vec<usize>,
    /// The line at the front goes on after a piece that was taken.
    is_piece: bool,
}

impl Lines {
    /// Where the next bytes go.
    fn room(&mut self, bytes: usize) -> &mut [u8] {
        if self.bytes.len() < self.len + bytes {
            self.bytes.resize(self.len + bytes, 0);
        }
        &mut self.bytes[self.len..self.len + bytes]
    }

    /// So many bytes have come.
    fn add(&mut self, count: usize) {
        let mut at = self.len;
        self.len += count;
        while at < self.len {
            let mut rest = &self.bytes[at..self.len];
            // A slice never fails.
            at += rest.skip_until(b'\n').unwrap_or(rest.len()).max(1);
            if self.bytes[at - 1] == b'\n' {
                self.ends.push(at);
            }
        }
    }

    /// Bytes of lines that are to be taken.
    fn whole(&self) -> usize {
        self.ends.last().copied().unwrap_or(0)
    }

    fn take_whole(&mut self) {
        let whole = self.whole();
        self.bytes.copy_within(whole..self.len, 0);
        self.len -= whole;
        self.ends.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_the_same_however_they_arrive() {
        let text = b"one\n\nthree\r\nand a beginning";
        for step in 1..text.len() {
            let (mut lines, mut taken) = (Lines::default(), Vec::new());
            for piece in text.chunks(step) {
                lines.room(64)[..piece.len()].copy_from_slice(piece);
                lines.add(piece.len());
                let mut from = 0;
                for &to in &lines.ends {
                    taken.push(lines.bytes[from..to].to_vec());
                    from = to;
                }
                lines.take_whole();
            }
            assert_eq!(taken, [&b"one\n"[..], b"\n", b"three\r\n"], "step {step}");
            assert_eq!(&lines.bytes[..lines.len], b"and a beginning");
        }
    }
}
