//! stdout and stderr, as every subcommand but `tee` writes to them.
//!
//! *Owns*: what happens when a reader leaves or stops reading, and when an output fails. *May not
//! touch*: the answer of a subcommand.
//!
//! The result of a subcommand does not depend on its reader. So writing never fails here: after the
//! first refusal nothing more is written, and a subcommand that only shows something may check
//! ([`Stdout::takes_more`]) and end. A reader that leaves (`| head`) has seen enough: that is no
//! error. A reader that stops reading (a pager) is waited for, but after a signal only while it
//! takes something, and not for long; the rest is not written. Any other refusal is reported on
//! stderr at once, and the exit code becomes [`FAILED_CODE`], whatever the answer.

use std::fs::File;
use std::io::{BufWriter, ErrorKind, IsTerminal as _, Write};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::fs::FileTypeExt as _;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::writer::Writer;

/// The exit code after output was lost.
pub(crate) const FAILED_CODE: u8 = 2;

const OPEN: u8 = 0;
const LEFT: u8 = 1;
const FAILED: u8 = 2;
const STOPPED: u8 = 3;

/// There is one stdout.
static STATE: AtomicU8 = AtomicU8::new(OPEN);
static STDOUT: Writer = Writer::new();
static STDERR: Writer = Writer::new();

/// A buffer before stdout. Flush it, or its contents may be lost.
pub(crate) struct Stdout(BufWriter<Raw>);

struct Raw(Option<Output>);

/// Not `std::io::Stdout`, which pretends that a descriptor without write access takes everything.
struct Output {
    file: File,
    /// For a pipe, socket or terminal, where a write may wait for a reader.
    writer: Option<&'static Writer>,
}

impl Output {
    fn of(descriptor: BorrowedFd<'_>, writer: &'static Writer) -> std::io::Result<Self> {
        let file = File::from(descriptor.try_clone_to_owned()?);
        let kind = file.metadata()?.file_type();
        let may_wait = kind.is_fifo() || kind.is_socket() || file.is_terminal();
        Ok(Self { file, writer: may_wait.then_some(writer) })
    }

    /// Writes some of it. `None`: a signal came, and the output takes nothing.
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<Option<usize>> {
        match self.writer {
            Some(writer) => Ok(writer.write_all(&self.file, bytes)?.then_some(bytes.len())),
            None => self.file.write(bytes).map(Some),
        }
    }
}

impl Stdout {
    pub(crate) fn new() -> Self {
        Self::with_capacity(8 << 10)
    }

    pub(crate) fn with_capacity(bytes: usize) -> Self {
        let output = match Output::of(std::io::stdout().as_fd(), &STDOUT) {
            Ok(output) => Some(output),
            Err(error) => {
                refused(&error);
                None
            }
        };
        Self(BufWriter::with_capacity(bytes, Raw(output)))
    }

    /// Whether output still arrives anywhere.
    pub(crate) fn takes_more(&self) -> bool {
        STATE.load(Ordering::Relaxed) == OPEN
    }

    /// Notices that the reader has left while there is nothing to write.
    pub(crate) fn look_for_reader(&self) {
        let Raw(Some(output)) = self.0.get_ref() else { return };
        if inkstone_io::has_reader(&output.file).is_ok_and(|is_there| !is_there) {
            refused(&ErrorKind::BrokenPipe.into());
        }
    }
}

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

impl Write for Raw {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if STATE.load(Ordering::Relaxed) != OPEN {
            return Ok(bytes.len());
        }
        let Some(output) = &mut self.0 else { return Ok(bytes.len()) };
        match output.write(bytes) {
            // `BufWriter` makes an error of its own of a write of 0 bytes.
            Ok(Some(count)) if count > 0 => return Ok(count),
            Err(error) if error.kind() == ErrorKind::Interrupted => return Err(error),
            Ok(Some(_)) => refused(&ErrorKind::WriteZero.into()),
            Ok(None) => STATE.store(STOPPED, Ordering::Relaxed),
            Err(error) => refused(&error),
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn refused(error: &std::io::Error) {
    let state = if error.kind() == ErrorKind::BrokenPipe { LEFT } else { FAILED };
    let first = STATE.compare_exchange(OPEN, state, Ordering::Relaxed, Ordering::Relaxed).is_ok();
    if first && state == FAILED {
        complain(format_args!("write stdout: {error}; the rest of the output is lost"));
    }
}

/// Whether output was lost.
pub(crate) fn has_failed() -> bool {
    STATE.load(Ordering::Relaxed) == FAILED
}

/// Whether a signal came while the reader took nothing, so that some output was not written.
pub(crate) fn was_stopped() -> bool {
    STATE.load(Ordering::Relaxed) == STOPPED
}

/// Prints a text as it is.
pub(crate) fn print(text: impl AsRef<[u8]>) {
    let mut out = Stdout::new();
    // Never fails, whatever stdout does.
    let _ = out.write_all(text.as_ref()).and_then(|()| out.flush());
}

/// Prints a line.
pub(crate) fn say(line: std::fmt::Arguments<'_>) {
    print(format!("{line}\n"));
}

/// Reports an error on stderr. A failure of stderr itself is ignored.
pub(crate) fn complain(what: std::fmt::Arguments<'_>) {
    to_stderr(&format!("inkstone: {what}\n"));
}

/// Draws a line of progress over the one before. Only a terminal shows it.
pub(crate) fn redraw(line: &str) {
    if std::io::stderr().is_terminal() {
        to_stderr(&format!("\r\x1b[K{line}"));
    }
}

/// Removes that line.
pub(crate) fn erase() {
    redraw("");
}

/// Writes a text to stderr, escape sequences included. What stderr has not taken when a signal
/// comes is left out.
pub(crate) fn to_stderr(text: &str) {
    let Ok(mut output) = Output::of(std::io::stderr().as_fd(), &STDERR) else {
        // A sandbox that refuses to clone a descriptor does not refuse to write to it.
        let _ = std::io::stderr().write_all(text.as_bytes());
        return;
    };
    let mut rest = text.as_bytes();
    while !rest.is_empty() {
        match output.write(rest) {
            Ok(Some(count)) if count > 0 => rest = &rest[count..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            _ => return,
        }
    }
}

/// As `println!`, which panics if stdout fails.
macro_rules! say {
    ($($words:tt)*) => { $crate::stdout::say(format_args!($($words)*)) };
}

/// As `eprintln!`, which panics if stderr fails.
macro_rules! complain {
    ($($words:tt)*) => { $crate::stdout::complain(format_args!($($words)*)) };
}
