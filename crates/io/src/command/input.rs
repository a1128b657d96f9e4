//! Standard input whose reader another thread can stop; waiting for pipes, and for an output that
//! takes bytes again.
//!
//! *Owns*: waiting for bytes, for room or for the request to stop. *May not touch*: what is read or
//! written.
//!
//! A read of an idle pipe returns when a process writes, which may be never. So each read first
//! waits, for the input and for a pipe of its own; closing the other end of that pipe stops it.

use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt as _;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::ioctl_fionread;
use rustix::net::SocketType;
use rustix::net::sockopt::socket_type;

use crate::descriptor::above_standard;
use crate::error::{Error, Result};
use crate::transfer::retry;

const STDIN: &str = "stdin";

/// Whether standard input, a socket, waits for connections.
#[cfg(target_os = "linux")]
fn listens() -> bool {
    rustix::net::sockopt::socket_acceptconn(io::stdin()) == Ok(true)
}

/// The kernel does not say.
#[cfg(not(target_os = "linux"))]
fn listens() -> bool {
    false
}

/// Standard input. Nothing is read ahead.
#[derive(Debug)]
pub struct Input {
    file: File,
    is_stream: bool,
    stop: PipeReader,
}

/// Stops the reader of an [`Input`] when it is dropped.
#[derive(Debug)]
#[must_use = "dropping it stops the reader"]
pub struct InputStop {
    _open: PipeWriter,
}

/// The result of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Got {
    /// This many bytes, not 0.
    Bytes(usize),
    /// The end of the input.
    End,
    /// Nothing: reading was stopped, or there was nothing to read and the call does not wait.
    Nothing,
}

impl Input {
    /// Standard input, and the handle that stops its reader.
    ///
    /// # Errors
    /// There is no descriptor left; or it is a socket that listens, where nothing ever comes, or
    /// one of packets, where a read cuts a packet that is longer, and an empty one looks like the
    /// end.
    pub fn stdin() -> Result<(Self, InputStop)> {
        // Other files have no such type.
        let kind = socket_type(io::stdin());
        let why = match kind {
            Ok(SocketType::STREAM) if listens() => {
                Some("it is a socket that listens (systemd: Accept=yes)")
            }
            Ok(SocketType::STREAM) | Err(_) => None,
            Ok(_) => Some(
                "it is a socket of packets (systemd: ListenStream in place of \
                 ListenSequentialPacket or ListenDatagram)",
            ),
        };
        if let Some(why) = why {
            let error = Error::invalid("open", STDIN, why);
            return Err(error.advise("give it a pipe or a connected stream socket"));
        }
        let made = || {
            let file = File::from(io::stdin().as_fd().try_clone_to_owned()?);
            let kind = file.metadata()?.file_type();
            let (stop, open) = io::pipe()?;
            let (stop, open) = (above_standard(stop)?, above_standard(open)?);
            let is_stream = kind.is_fifo() || kind.is_socket();
            Ok((Self { file, is_stream, stop }, InputStop { _open: open }))
        };
        made().map_err(|source: io::Error| Error::new("open", STDIN, source))
    }

    /// Whether it is a pipe or a socket: a process is at its other end, and unread bytes are lost
    /// when it is closed.
    pub fn is_stream(&self) -> bool {
        self.is_stream
    }

    /// Waits for bytes, the end, or the request to stop, which comes before bytes; false for that.
    ///
    /// # Errors
    /// What the kernel answers.
    pub fn wait(&self) -> Result<bool> {
        let mut waited =
            [PollFd::new(&self.stop, PollFlags::IN), PollFd::new(&self.file, PollFlags::IN)];
        wait(&mut waited, None)?;
        Ok(waited[0].revents().is_empty())
    }

    /// Waits, and reads; [`Got::Nothing`] after the request to stop.
    ///
    /// # Errors
    /// What the kernel answers.
    pub fn read(&mut self, into: &mut [u8]) -> Result<Got> {
        while self.wait()? {
            match self.read_ready(into)? {
                // Another reader of the same input was faster.
                Got::Nothing => {}
                got => return Ok(got),
            }
        }
        Ok(Got::Nothing)
    }

    /// Reads what is there, without waiting; also after the request to stop.
    ///
    /// # Errors
    /// What the kernel answers.
    pub fn read_now(&mut self, into: &mut [u8]) -> Result<Got> {
        let mut waited = [PollFd::new(&self.file, PollFlags::IN)];
        wait(&mut waited, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))?;
        if waited[0].revents().is_empty() { Ok(Got::Nothing) } else { self.read_ready(into) }
    }

    fn read_ready(&mut self, into: &mut [u8]) -> Result<Got> {
        match retry(|| self.file.read(into)) {
            Ok(0) => Ok(Got::End),
            Ok(count) => Ok(Got::Bytes(count)),
            // Another reader of the same input was faster.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Got::Nothing),
            Err(source) => Err(Error::new("read", STDIN, source)),
        }
    }

    /// How many bytes can be read without waiting.
    ///
    /// # Errors
    /// The kernel does not report it for this kind of file.
    pub fn waiting_bytes(&self) -> Result<u64> {
        ioctl_fionread(&self.file).map_err(|error| Error::new("ioctl FIONREAD", STDIN, error))
    }
}

/// Sleeps until a file takes bytes or a write would return an error: for a file that another
/// process has made non-blocking.
///
/// # Errors
/// What the kernel answers.
pub fn wait_to_write(file: &File) -> Result<()> {
    wait(&mut [PollFd::new(file, PollFlags::OUT)], None)
}

/// Sleeps until one of the pipes has something to read, or the time has passed. Returns the first
/// pipe that has something; `None` if the time has passed.
///
/// # Errors
/// What the kernel answers.
pub fn wait_to_read(pipes: &[&PipeReader], at_most: Option<Duration>) -> Result<Option<usize>> {
    let mut waited: Vec<_> = pipes.iter().map(|pipe| PollFd::new(*pipe, PollFlags::IN)).collect();
    // A longer time than the kernel can count is forever.
    let at_most = at_most.and_then(|at_most| Timespec::try_from(at_most).ok());
    wait(&mut waited, at_most.as_ref())?;
    Ok(waited.iter().position(|pipe| !pipe.revents().is_empty()))
}

/// Whether a pipe, socket or terminal still has a reader. A file always counts as having one.
///
/// # Errors
/// What the kernel answers.
pub fn has_reader(file: &File) -> Result<bool> {
    // The kernel reports errors without being asked.
    let mut asked = [PollFd::new(file, PollFlags::empty())];
    wait(&mut asked, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))?;
    Ok(!asked[0].revents().contains(PollFlags::ERR))
}

fn wait(files: &mut [PollFd<'_>], at_most: Option<&Timespec>) -> Result<()> {
    retry(|| poll(files, at_most).map_err(io::Error::from))
        .map(drop)
        .map_err(|source| Error::new("poll", STDIN, source))
}
