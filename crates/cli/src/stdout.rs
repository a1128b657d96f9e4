//! stdout, as every subcommand writes to it.
//!
//! *Owns*: what becomes of a reader that leaves and of an output that fails. *May not touch*: what a subcommand answers.
//!
//! What a subcommand finds out does not depend on who reads it. So writing never fails here: from the first refusal on
//! nothing more is written, and a subcommand that only has something to show may ask ([`Stdout::takes_more`]) and end. A
//! reader that leaves (`| head`) has seen enough: nothing is said of it. Any other refusal is said on stderr at once, and the
//! exit code becomes [`FAILED_CODE`], whatever the answer.

use std::fs::File;
use std::io::{BufWriter, ErrorKind, Write};
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicU8, Ordering};

/// The exit code where output was lost.
pub(crate) const FAILED_CODE: u8 = 2;

const OPEN: u8 = 0;
const LEFT: u8 = 1;
const FAILED: u8 = 2;

/// There is one stdout.
static STATE: AtomicU8 = AtomicU8::new(OPEN);

/// A buffer before stdout; flush it, or what is in it may be lost.
pub(crate) struct Stdout(BufWriter<Raw>);

/// Not `std::io::Stdout`: that takes a descriptor which cannot be written to for one that takes everything.
struct Raw(Option<File>);

impl Stdout {
    pub(crate) fn new() -> Self {
        Self::with_capacity(8 << 10)
    }

    pub(crate) fn with_capacity(bytes: usize) -> Self {
        let file = match std::io::stdout().as_fd().try_clone_to_owned() {
            Ok(descriptor) => Some(descriptor.into()),
            Err(error) => {
                refused(&error);
                None
            }
        };
        Self(BufWriter::with_capacity(bytes, Raw(file)))
    }

    /// Whether anything of what is written still arrives.
    pub(crate) fn takes_more(&self) -> bool {
        STATE.load(Ordering::Relaxed) == OPEN
    }

    /// Notices that the reader has left, where nothing is written from which that would be seen.
    pub(crate) fn look_for_reader(&self) {
        let Raw(Some(file)) = self.0.get_ref() else { return };
        if inkstone_io::has_reader(file).is_ok_and(|is_there| !is_there) {
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
        let Some(file) = &mut self.0 else { return Ok(bytes.len()) };
        let written = loop {
            match file.write(bytes) {
                // Somebody else has made it one that does not wait, and may want it so: the mode is the other end's too.
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if let Err(error) = inkstone_io::wait_to_write(file) {
                        break Err(std::io::Error::new(error.kind(), error));
                    }
                }
                answer => break answer,
            }
        };
        match written {
            // `BufWriter` takes nothing written for an error of its own.
            Ok(count) if count > 0 => Ok(count),
            Err(error) if error.kind() == ErrorKind::Interrupted => Err(error),
            Err(error) => {
                refused(&error);
                Ok(bytes.len())
            }
            Ok(_) => {
                refused(&ErrorKind::WriteZero.into());
                Ok(bytes.len())
            }
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn refused(error: &std::io::Error) {
    let state = if error.kind() == ErrorKind::BrokenPipe { LEFT } else { FAILED };
    let first = STATE.compare_exchange(OPEN, state, Ordering::Relaxed, Ordering::Relaxed).is_ok();
    if first && state == FAILED {
        complain(format_args!("write stdout: {error}; what was to be shown is lost"));
    }
}

/// Whether output was lost that somebody may have waited for.
pub(crate) fn has_failed() -> bool {
    STATE.load(Ordering::Relaxed) == FAILED
}

/// Prints a text as it is.
pub(crate) fn print(text: impl AsRef<[u8]>) {
    let mut out = Stdout::new();
    // It never fails, whatever stdout does.
    let _ = out.write_all(text.as_ref()).and_then(|()| out.flush());
}

/// Prints a line.
pub(crate) fn say(line: std::fmt::Arguments<'_>) {
    print(format!("{line}\n"));
}

/// Says what went wrong on stderr. That it may not take it either changes nothing.
pub(crate) fn complain(what: std::fmt::Arguments<'_>) {
    let _ = std::io::stderr().lock().write_all(format!("inkstone: {what}\n").as_bytes());
}

/// A line on stderr as it is: how far something has come.
pub(crate) fn note(line: &str) {
    let _ = std::io::stderr().lock().write_all(format!("{line}\n").as_bytes());
}

/// As `println!`, which would panic where stdout fails.
macro_rules! say {
    ($($words:tt)*) => { $crate::stdout::say(format_args!($($words)*)) };
}

/// As `eprintln!`, which would panic where stderr fails.
macro_rules! complain {
    ($($words:tt)*) => { $crate::stdout::complain(format_args!($($words)*)) };
}
