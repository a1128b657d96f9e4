//! Splits stdin into lines and hands them to the log and to the echo.
//!
//! *Owns*: bytes read but not handed over yet, and the count of all bytes read. *May not touch*:
//! signals, time.
//!
//! Everything from one read goes to the log before the next read, except the beginning of a line
//! that has not ended: each line is one call, so that a new file never splits one.
//!
//! A stamp stands before the first byte of a line from the moment that the byte is read: for all
//! that follows it is part of the line.

use std::io::{self, BufRead as _, Write as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use inkstone_appender::{LogWriter, LongLine, Zone};
use inkstone_io::{Got, Input};

use super::echo::Echo;

/// After a signal to stop, everything that waits in a pipe or socket is read, and of a file this
/// much: it does not go away.
const LAST_BYTES_MAX: u64 = 1 << 20;

/// What was read, with its stamps. A line without its end counts as a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Read {
    pub(super) lines: u64,
    pub(super) bytes: u64,
    /// The input has ended.
    pub(super) is_all: bool,
}

/// The count, shared with the final report. It is exact at every moment, also while a line waits
/// for room.
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

/// Reads until the end of the input or a signal to stop.
pub(super) struct Reader {
    pub(super) input: Input,
    pub(super) log: LogWriter,
    pub(super) echo: Option<Arc<Echo>>,
    pub(super) count: Count,
    /// The most that one read takes. A kill of this process loses at most this much, besides what
    /// is in the pipe.
    pub(super) read_bytes: usize,
    /// A line longer than this is handed over in pieces; in the log it is still one line.
    pub(super) piece_bytes: usize,
    /// The time to put before each line.
    pub(super) stamp: Option<Zone>,
}

impl Reader {
    pub(super) fn run(mut self) -> anyhow::Result<()> {
        let (log, echo, count) = (self.log.clone(), self.echo.clone(), self.count.clone());
        let mut way = Way {
            log: &log,
            echo: echo.as_deref(),
            count: &count,
            piece_bytes: self.piece_bytes,
            lines: Lines { stamp: self.stamp, ..Lines::default() },
            long: None,
            is_refused: false,
        };
        let ended = self.read(&mut way);
        // Also lines that came before an error.
        way.hand_over_rest();
        ended
    }

    fn read(&mut self, way: &mut Way<'_>) -> anyhow::Result<()> {
        loop {
            match self.input.read(way.lines.room(self.read_bytes))? {
                Got::Bytes(count) => {
                    if !way.hand_over(count) {
                        return Ok(());
                    }
                }
                Got::End => return self.ends(),
                Got::Nothing => return self.read_last(way),
            }
        }
    }

    /// Reads what is in the input when reading stops: its writer has already handed it over.
    fn read_last(&mut self, way: &mut Way<'_>) -> anyhow::Result<()> {
        let most = if self.input.is_stream() { u64::MAX } else { LAST_BYTES_MAX };
        let mut left = self.input.waiting_bytes().unwrap_or(0).min(most);
        loop {
            let most = usize::try_from(left).unwrap_or(usize::MAX).clamp(1, self.read_bytes);
            // At least one byte, also if nothing waits: that finds the end of the input.
            match self.input.read_now(way.lines.room(most))? {
                Got::Bytes(count) => {
                    left = left.saturating_sub(count as u64);
                    if !way.hand_over(count) || left == 0 {
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
}

/// Bytes on their way from the input to the log.
struct Way<'a> {
    log: &'a LogWriter,
    echo: Option<&'a Echo>,
    count: &'a Count,
    piece_bytes: usize,
    lines: Lines,
    /// The line that is handed over in pieces, while it goes on.
    long: Option<LongLine<'a>>,
    /// The log is closed: the rest counts as read, not as written.
    is_refused: bool,
}

impl Way<'_> {
    /// Hands over each line that has ended with the new `count` bytes; false if the log takes no
    /// more.
    fn hand_over(&mut self, count: usize) -> bool {
        let count = self.lines.add(count);
        let is_piece = self.lines.ends.is_empty() && self.lines.bytes.len() >= self.piece_bytes;
        {
            let mut guard = self.count.lock();
            let (read, has_beginning) = &mut *guard;
            read.lines += self.lines.ends.len() as u64;
            read.bytes += count as u64;
            let goes_on = self.lines.ends.is_empty() && self.long.is_some();
            *has_beginning = goes_on || self.lines.bytes.len() > self.lines.whole();
        }
        let put =
            if is_piece { self.put_piece(self.lines.bytes.len(), false) } else { self.put_lines() };
        self.is_refused = put.is_err();
        !self.is_refused
    }

    /// Hands over the first bytes, which are part of a line, perhaps its last.
    fn put_piece(&mut self, len: usize, is_end: bool) -> io::Result<()> {
        let piece = &self.lines.bytes[..len];
        if self.long.is_none() {
            self.long = Some(self.log.begin_line()?);
        }
        if let Some(long) = &mut self.long {
            long.push(piece)?;
        }
        if let Some(echo) = self.echo {
            echo.offer_piece(piece, is_end);
        }
        self.lines.take(len);
        if is_end { self.long.take().map_or(Ok(()), LongLine::end) } else { Ok(()) }
    }

    fn put_lines(&mut self) -> io::Result<()> {
        if self.long.is_some()
            && let Some(&end) = self.lines.ends.first()
        {
            self.put_piece(end, true)?;
        }
        let mut from = 0;
        for &to in &self.lines.ends {
            let mut log = self.log;
            log.write_all(&self.lines.bytes[from..to])?;
            from = to;
        }
        if let Some(echo) = self.echo.filter(|_| from > 0) {
            echo.offer(&self.lines.bytes[..from]);
        }
        self.lines.take(from);
        Ok(())
    }

    /// Hands over a last line without its end.
    fn hand_over_rest(mut self) {
        let len = self.lines.bytes.len();
        if self.is_refused || (len == 0 && self.long.is_none()) {
            return;
        }
        if self.long.is_some() {
            // The log counts what it refuses.
            let _ = self.put_piece(len, true);
            return;
        }
        let (mut log, rest) = (self.log, &self.lines.bytes[..len]);
        if log.write_all(rest).is_ok()
            && let Some(echo) = self.echo
        {
            echo.offer(rest);
        }
    }
}

/// Bytes that were read and not handed over, and where lines end in them.
#[derive(Debug, Default)]
struct Lines {
    /// What one read has given.
    read: Vec<u8>,
    bytes: Vec<u8>,
    ends: Vec<usize>,
    /// The time to put before each line.
    stamp: Option<Zone>,
    /// The line of the last byte has not ended.
    is_within: bool,
}

impl Lines {
    /// Where the next bytes go.
    fn room(&mut self, bytes: usize) -> &mut [u8] {
        self.read.resize(bytes.max(self.read.len()), 0);
        &mut self.read[..bytes]
    }

    /// This many bytes have arrived; returns how many they are with stamps.
    fn add(&mut self, count: usize) -> usize {
        let before = self.bytes.len();
        let stamp = self.stamp.map(|zone| zone.stamp(SystemTime::now()) + " ");
        let mut rest = &self.read[..count];
        while !rest.is_empty() {
            let mut behind = rest;
            // A slice never fails.
            let len = behind.skip_until(b'\n').unwrap_or(rest.len());
            if let Some(stamp) = stamp.as_ref().filter(|_| !self.is_within) {
                self.bytes.extend_from_slice(stamp.as_bytes());
            }
            self.bytes.extend_from_slice(&rest[..len]);
            self.is_within = rest[len - 1] != b'\n';
            if !self.is_within {
                self.ends.push(self.bytes.len());
            }
            rest = behind;
        }
        self.bytes.len() - before
    }

    /// Bytes of whole lines.
    fn whole(&self) -> usize {
        self.ends.last().copied().unwrap_or(0)
    }

    /// This many bytes from the front have been handed over.
    fn take(&mut self, count: usize) {
        self.bytes.drain(..count);
        self.ends.retain_mut(|end| {
            let is_left = *end > count;
            *end = end.saturating_sub(count);
            is_left
        });
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
                lines.take(lines.whole());
            }
            assert_eq!(taken, [&b"one\n"[..], b"\n", b"three\r\n"], "step {step}");
            assert_eq!(lines.bytes, b"and a beginning");
        }
    }
}
