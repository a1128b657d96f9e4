//! The C library's own buffered stream (`fopen`, `fwrite`, `fflush`), for the lab's stream arms.
//!
//! *Owns*: the `FILE`. *May not touch*: durability; bytes that sit in its buffer are not even in the kernel yet.

use std::fs::File;
use std::io;
use std::os::fd::IntoRawFd;
use std::ptr::NonNull;

use crate::fork::ForkMark;

/// A C stream over a duplicate of a file's descriptor.
#[derive(Debug)]
pub(crate) struct CStream {
    stream: NonNull<libc::FILE>,
    position: u64,
    mark: ForkMark,
}

// SAFETY: a `FILE` may be used from any thread, one at a time; `OsFile` keeps it behind a lock.
unsafe impl Send for CStream {}

impl CStream {
    pub(crate) fn new(file: &File, mark: ForkMark) -> io::Result<Self> {
        let descriptor = file.try_clone()?.into_raw_fd();
        // SAFETY: the descriptor is open and ours; the mode is a NUL-terminated literal that fits its flags.
        let stream = unsafe { libc::fdopen(descriptor, c"r+".as_ptr()) };
        match NonNull::new(stream) {
            Some(stream) => Ok(Self { stream, position: 0, mark }),
            None => {
                let error = io::Error::last_os_error();
                // SAFETY: `fdopen` failed, so the descriptor is still ours, and nobody else has its number.
                unsafe { libc::close(descriptor) };
                Err(error)
            }
        }
    }

    /// `fwrite`, after an `fseek` when the stream stands elsewhere. The C library repeats short and interrupted writes
    /// only in part, so a short count is an error here.
    pub(crate) fn write(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        if offset != self.position {
            let to = libc::c_long::try_from(offset).map_err(|_| io::Error::from_raw_os_error(libc::EFBIG))?;
            // SAFETY: the stream is open and exclusively borrowed.
            if unsafe { libc::fseek(self.stream.as_ptr(), to, libc::SEEK_SET) } != 0 {
                return Err(io::Error::last_os_error());
            }
            self.position = offset;
        }
        // SAFETY: `bytes` is valid for its length, and the stream is open and exclusively borrowed.
        let written = unsafe { libc::fwrite(bytes.as_ptr().cast(), 1, bytes.len(), self.stream.as_ptr()) };
        self.position += written as u64;
        if written == bytes.len() { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// `fflush`: what was buffered is in the kernel now; not on the medium.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        // SAFETY: the stream is open and exclusively borrowed.
        if unsafe { libc::fflush(self.stream.as_ptr()) } == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }
}

impl Drop for CStream {
    fn drop(&mut self) {
        // It would write what its parent has buffered, once more.
        if self.mark.is_child() {
            return;
        }
        // SAFETY: opened by `fdopen`, closed once; it closes its duplicate of the descriptor too.
        unsafe { libc::fclose(self.stream.as_ptr()) };
    }
}
