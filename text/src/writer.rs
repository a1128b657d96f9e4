//! The handle that writes lines, and the guard that closes the log.
//!
//! *Owns*: the public face of an open log. *May not touch*: buffers, files.

use std::cell::RefCell;
use std::fmt::{self, Write as _};
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use inkstone_io::{Error, say};

use crate::event::{PROGRAM, Recovery};
use crate::notice::{Dropped, Stats};
use crate::output_thread::{Ended, Lost};
use crate::shared::Shared;
use crate::stream::Stream;

/// `io::Write::flush` waits at most this long.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(10);
/// A thread keeps its formatting buffer up to this size.
const KEPT_BYTES: usize = 64 << 10;
/// A reader of stderr that reads nothing is waited for this long.
const LAST_WORDS: Duration = Duration::from_millis(100);

thread_local! {
    static TEXT: RefCell<String> = const { RefCell::new(String::new()) };
}

/// A text log. Cheap to clone; every clone, in every thread, writes to the same file.
///
/// One call of `write`, `write_all` or `write_fmt` (so one `writeln!`) is one line: whole, and
/// never mixed with another. A call that returns before another begins comes first in the file. A
/// call makes no system call and no allocation unless buffers are swapped. On return the line is in
/// a buffer or, if the policy drops lines, dropped and counted.
///
/// After [`Guard::close`], and in a process forked from this one, every call is an error.
#[derive(Debug, Clone)]
pub struct LogWriter {
    pub(crate) shared: Arc<Shared>,
}

impl LogWriter {
    /// Puts one line, as `write_all`, and says what became of it: true if it was accepted, false if
    /// the policy dropped it ([`WhenFull`](crate::WhenFull)).
    ///
    /// # Errors
    /// The log is closed, or this is a forked child.
    #[inline]
    pub fn put(&self, line: &[u8]) -> io::Result<bool> {
        self.shared.put(line).accepted()
    }

    /// Waits until every line put before this call is in the file (that is, with the operating
    /// system; on the medium too with [`Survive::PowerLoss`](crate::Survive::PowerLoss)) or was
    /// dropped by the policy.
    ///
    /// # Errors
    /// `TimedOut` with the disk's last error if it took longer; the error of a failed sync, also of
    /// one before this call, since that sync was for earlier lines too; the log is closed and some
    /// lines were not written.
    pub fn flush_within(&self, at_most: Duration) -> io::Result<()> {
        self.shared.flush(at_most)
    }

    /// Begins a stream of text, which is put as it comes: for programs that pass on what others
    /// write. A log takes one at a time.
    ///
    /// # Errors
    /// There is one, this is a forked child, or there is no memory for what is read.
    pub fn begin_stream(&self) -> io::Result<Stream<'_>> {
        Stream::begin(&self.shared)
    }

    /// Reopens the file by its name before the next lines are written: for programs that move log
    /// files away. Lines put before the call may be in either file.
    pub fn reopen(&self) {
        self.shared.ask_to_reopen();
    }

    /// The counters of the log. All zeros in a forked child.
    pub fn stats(&self) -> Stats {
        self.shared.stats()
    }

    /// Why lines cannot be written at the moment; `None` if they can.
    pub fn trouble(&self) -> Option<Error> {
        self.shared.trouble()
    }

    /// Formats and writes one line, without an allocation in the steady state.
    fn put_formatted(&self, line: fmt::Arguments<'_>) -> io::Result<()> {
        if let Some(line) = line.as_str() {
            return self.put(line.as_bytes()).map(drop);
        }
        let put = TEXT.try_with(|text| {
            // In use already: a value logs while it is formatted.
            let mut text = text.try_borrow_mut().ok()?;
            text.clear();
            let put = self.put_formatted_in(&mut text, line);
            text.shrink_to(KEPT_BYTES);
            Some(put)
        });
        // Gone if another thread-local's destructor logs.
        put.ok().flatten().unwrap_or_else(|| self.put_formatted_in(&mut String::new(), line))
    }

    fn put_formatted_in(&self, text: &mut String, line: fmt::Arguments<'_>) -> io::Result<()> {
        text.write_fmt(line).map_err(|_| io::Error::other("a value could not be formatted"))?;
        self.put(text.as_bytes()).map(drop)
    }
}

impl io::Write for &LogWriter {
    #[inline]
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.put(line)?;
        Ok(line.len())
    }

    #[inline]
    fn write_all(&mut self, line: &[u8]) -> io::Result<()> {
        self.put(line).map(drop)
    }

    fn write_fmt(&mut self, line: fmt::Arguments<'_>) -> io::Result<()> {
        self.put_formatted(line)
    }

    /// Waits, at most 10 s, until everything put before is in the file. This is a real flush: do
    /// not call it for every line.
    fn flush(&mut self) -> io::Result<()> {
        self.shared.flush(FLUSH_TIMEOUT)
    }
}

impl io::Write for LogWriter {
    #[inline]
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        (&*self).write(line)
    }

    #[inline]
    fn write_all(&mut self, line: &[u8]) -> io::Result<()> {
        self.put(line).map(drop)
    }

    fn write_fmt(&mut self, line: fmt::Arguments<'_>) -> io::Result<()> {
        self.put_formatted(line)
    }

    fn flush(&mut self) -> io::Result<()> {
        (&*self).flush()
    }
}

#[cfg(feature = "tracing")]
impl<'a> tracing_subscriber::fmt::MakeWriter<'a> for LogWriter {
    type Writer = &'a LogWriter;

    fn make_writer(&'a self) -> &'a LogWriter {
        self
    }
}

/// Keeps the log open. Dropping it writes everything that was put, and ends the output thread: keep
/// it until the end of `main`.
#[derive(Debug)]
#[must_use = "dropping the guard closes the log"]
pub struct Guard {
    pub(crate) shared: Arc<Shared>,
    pub(crate) thread: Option<JoinHandle<Ended>>,
    pub(crate) recovery: Option<Recovery>,
}

impl Guard {
    /// As [`LogWriter::flush_within`].
    ///
    /// # Errors
    /// As [`LogWriter::flush_within`].
    pub fn flush(&self, at_most: Duration) -> io::Result<()> {
        self.shared.flush(at_most)
    }

    /// The lines of a killed process that the opening appended.
    pub fn recovery(&self) -> Option<&Recovery> {
        self.recovery.as_ref()
    }

    /// Takes no more lines, writes everything that was put (and makes it durable with
    /// [`Survive::PowerLoss`](crate::Survive::PowerLoss)), and ends the output thread. It waits for
    /// a slow disk, and retries a failing one for the builder's drain timeout.
    ///
    /// # Errors
    /// The reason why some lines were not written or made durable. [`LogWriter::stats`] has their
    /// number; with [`Survive::Kill`](crate::Survive::Kill) the next opening appends them. Called
    /// by a hook of this log: the log is closed, but the call cannot wait for its end.
    pub fn close(mut self) -> io::Result<()> {
        self.end(None)
    }

    /// As [`Guard::close`], with this time for a failing disk instead of the builder's drain
    /// timeout.
    ///
    /// # Errors
    /// As [`Guard::close`].
    pub fn close_within(mut self, at_most: Duration) -> io::Result<()> {
        self.end(Some(at_most))
    }

    fn end(&mut self, at_most: Option<Duration>) -> io::Result<()> {
        // A forked child has no thread to wait for, and its parent still needs the stage.
        if self.shared.is_child() {
            std::mem::forget(self.thread.take());
            return Ok(());
        }
        let Some(thread) = self.thread.take() else { return Ok(()) };
        self.shared.close(at_most);
        if self.shared.is_own_thread() {
            let why = "a hook cannot wait for the end of the log that called it: the log is \
                       closed, and ends by itself";
            return Err(io::Error::other(why));
        }
        let Ended { result, is_kept, lost } = thread.join().unwrap_or_else(|_| {
            let why = "it ended without a result";
            let result = Err(Error::invalid("write log", "the output thread", why));
            Ended { result, is_kept: false, lost: Lost::default() }
        });
        let Err(error) = result else { return Ok(()) };
        let Lost { unwritten_lines: lines, untold } = lost;
        if lines == 0 && untold.lines == 0 {
            return Err(io::Error::new(error.kind(), error));
        }
        let mut text = format!("{lines} lines were not written: {error}");
        if lines > 0 && is_kept {
            text += "; they stay in memory, and the next opening appends them";
        }
        if untold.lines > 0 {
            let Dropped { lines, bytes } = untold;
            text += &format!(
                "; {lines} lines ({bytes} bytes) were dropped, perhaps without a notice in the file"
            );
        }
        Err(io::Error::new(error.kind(), text))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // A caller who wants the error calls `close`.
        if let Err(error) = self.end(None) {
            say(PROGRAM, error, LAST_WORDS);
        }
    }
}
