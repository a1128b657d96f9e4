//! Hands stdin to the log and to the echo, as it comes.
//!
//! *Owns*: bytes read but not handed over yet, and the count of all bytes read. *May not touch*:
//! signals, time.
//!
//! Everything from one read goes to the log before the next read, lines complete or not: so it is
//! in the file soon, and a kill loses nothing that has left the pipe.
//!
//! A stamp stands before the first byte of a line from the moment that the byte is read: for all
//! that follows it is part of the line.

use std::io::BufRead as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use inkstone_appender::{LogWriter, Stream, stamp};
use inkstone_io::{Got, Input};

use super::echo::Echo;

/// The most that one read takes: a whole pipe.
const READ_BYTES: usize = 64 << 10;
/// After a signal to stop, everything that waits in a pipe or socket is read, and of a file this
/// much: it does not go away.
const LAST_BYTES_MAX: u64 = 1 << 20;

/// What was read, with its stamps. A line without its end counts as a line, and one that was cut
/// ([`Stream::put`]) as two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Read {
    pub(super) lines: u64,
    pub(super) bytes: u64,
    /// The input has ended.
    pub(super) is_all: bool,
}

/// The count, shared with the final report. It is exact at every moment, also while text waits for
/// room.
#[derive(Debug, Clone, Default)]
pub(super) struct Count(Arc<Mutex<Read>>);

impl Count {
    fn lock(&self) -> MutexGuard<'_, Read> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn read(&self) -> Read {
        *self.lock()
    }

    fn add(&self, lines: u64, bytes: u64) {
        let mut read = self.lock();
        read.lines += lines;
        read.bytes += bytes;
    }
}

/// Reads until the end of the input or a signal to stop.
pub(super) struct Reader {
    pub(super) input: Input,
    pub(super) log: LogWriter,
    pub(super) echo: Option<Arc<Echo>>,
    pub(super) count: Count,
    /// Put the time before each line.
    pub(super) stamps: bool,
}

impl Reader {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let Self { mut input, log, echo, count, stamps } = self;
        let stream = log.begin_stream()?;
        let mut way =
            Way { stream, echo: echo.as_deref(), count: &count, stamps, text: Text::default() };
        while input.wait()? {
            match way.pass_on(&mut input, READ_BYTES)? {
                Passed::Bytes(_) | Passed::Nothing => {}
                Passed::End => {
                    count.lock().is_all = true;
                    return Ok(());
                }
                Passed::Refused => return Ok(()),
            }
        }
        // What is in the input when reading stops: its writer has already handed it over.
        let most = if input.is_stream() { u64::MAX } else { LAST_BYTES_MAX };
        let mut left = input.waiting_bytes().unwrap_or(0).min(most);
        loop {
            // At least one byte, also if nothing waits: that finds the end of the input.
            let most = usize::try_from(left).unwrap_or(usize::MAX).clamp(1, READ_BYTES);
            match way.pass_on(&mut input, most)? {
                Passed::Bytes(bytes) if (bytes as u64) < left => left -= bytes as u64,
                Passed::End => {
                    count.lock().is_all = true;
                    return Ok(());
                }
                _ => return Ok(()),
            }
        }
    }
}

/// What one read gave.
enum Passed {
    Bytes(usize),
    Nothing,
    End,
    /// The log is closed: the rest counts as read, not as written.
    Refused,
}

/// Bytes on their way from the input to the log.
struct Way<'a> {
    stream: Stream<'a>,
    echo: Option<&'a Echo>,
    count: &'a Count,
    stamps: bool,
    text: Text,
}

impl Way<'_> {
    /// Reads what is there, and hands it over.
    fn pass_on(&mut self, input: &mut Input, most: usize) -> anyhow::Result<Passed> {
        let mut got = Got::Nothing;
        self.text.read.clear();
        self.stream.read(&mut self.text.read, most, |room| {
            got = input.read_now(room)?;
            Ok::<_, inkstone_io::Error>(if let Got::Bytes(bytes) = got { bytes } else { 0 })
        })?;
        match got {
            Got::Bytes(bytes) if self.put() => Ok(Passed::Bytes(bytes)),
            Got::Bytes(_) => Ok(Passed::Refused),
            Got::Nothing => Ok(Passed::Nothing),
            Got::End => Ok(Passed::End),
        }
    }

    /// Hands over what was read; false if the log takes no more.
    fn put(&mut self) -> bool {
        let stamp = if self.stamps { stamp(SystemTime::now()) + " " } else { String::new() };
        let (most, mut from, mut is_taken) = (self.stream.put_bytes_max(), 0, true);
        while from < self.text.read.len() {
            let (to, lines) = self.text.take(from, stamp.as_bytes(), most);
            let text = &self.text.text;
            self.count.add(lines, text.len() as u64);
            if is_taken {
                match self.stream.put(text, to) {
                    Ok(is_cut) => self.count.add(u64::from(is_cut), u64::from(is_cut)),
                    Err(_) => is_taken = false,
                }
            }
            if let Some(echo) = self.echo.filter(|_| is_taken) {
                echo.offer(text);
            }
            from = to;
        }
        is_taken
    }
}

/// Bytes that were read, and the text that is made of them.
#[derive(Debug, Default)]
struct Text {
    read: Vec<u8>,
    text: Vec<u8>,
    /// The line of the last byte has not ended.
    is_within: bool,
}

impl Text {
    /// Makes a text of at most so many bytes of those that were read, from this one on: up to which
    /// byte, and how many lines begin in it. It ends within a line only if the line is longer, or
    /// goes on behind what was read.
    fn take(&mut self, from: usize, stamp: &[u8], most: usize) -> (usize, u64) {
        self.text.clear();
        let (mut to, mut lines) = (from, 0);
        while to < self.read.len() {
            let mut behind = &self.read[to..];
            // A slice never fails.
            let mut len = behind.skip_until(b'\n').unwrap_or(0);
            let stamp = if self.is_within { &[] } else { stamp };
            if self.text.len() + stamp.len() + len > most {
                if !self.text.is_empty() {
                    break;
                }
                len = (most - stamp.len()).min(len);
            }
            self.text.extend_from_slice(stamp);
            self.text.extend_from_slice(&self.read[to..to + len]);
            lines += u64::from(!self.is_within);
            to += len;
            self.is_within = self.read[to - 1] != b'\n';
        }
        (to, lines)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_the_same_however_they_arrive_and_whatever_fits() {
        let read = b"one\n\nthree\r\nand a beginning";
        for (step, most) in (1..read.len()).flat_map(|step| (6..40).map(move |most| (step, most))) {
            let (mut text, mut all, mut lines) = (Text::default(), Vec::new(), 0);
            for piece in read.chunks(step) {
                (text.read, text.text) = (piece.to_vec(), Vec::new());
                let mut from = 0;
                while from < piece.len() {
                    let (to, begun) = text.take(from, b"now: ", most);
                    assert!(text.text.len() <= most && to > from);
                    all.extend_from_slice(&text.text);
                    (from, lines) = (to, lines + begun);
                }
            }
            let expected = b"now: one\nnow: \nnow: three\r\nnow: and a beginning";
            assert_eq!((all.as_slice(), lines), (&expected[..], 4), "step {step}, most {most}");
        }
    }
}
