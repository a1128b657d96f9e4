//! The C library's own buffered stream (`fopen`, `fwrite`, `fflush`), for the lab's stream
//! experiments.
//!
//! *Owns*: the `FILE`. *May not touch*: durability; bytes in its buffer are not even in the kernel
//! yet.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd};
use std::ptr::NonNull;

/// A C stream over a duplicate of a file's descriptor.
#[derive(Debug)]
pub(crate) struct CStream {
    stream: NonNull<libc::FILE>,
    position: u64,
    /// Whether the last call was a write: C demands a seek between a write and a read, in both
    /// directions.
    was_write: bool,
    /// The buffer of the stream, if it was given one. It is in use until the stream is closed.
    _buffer: Option<Box<[u8]>>,
}

// SAFETY: a `FILE` may be used from any thread, one at a time; `LabFile` keeps it behind a lock.
unsafe impl Send for CStream {}

impl CStream {
    /// A stream with a buffer of this size, or with the C library's own.
    pub(crate) fn new(file: &File, buffer_bytes: Option<usize>) -> io::Result<Self> {
        let descriptor = OwnedFd::from(file.try_clone()?);
        // SAFETY: the descriptor is open and ours; the mode is a NUL-terminated literal that fits
        // its flags.
        let stream = unsafe { libc::fdopen(descriptor.as_raw_fd(), c"r+".as_ptr()) };
        let stream = NonNull::new(stream).ok_or_else(io::Error::last_os_error)?;
        // The stream has it now.
        let _ = descriptor.into_raw_fd();
        let mut buffer = buffer_bytes.map(|bytes| vec![0; bytes].into_boxed_slice());
        if let Some(buffer) = &mut buffer {
            let (start, len) = (buffer.as_mut_ptr().cast(), buffer.len());
            // SAFETY: the stream is open, exclusively ours and unused. The buffer's memory does not
            // move when its box does, and lives until `drop` has closed the stream.
            let answer = unsafe { libc::setvbuf(stream.as_ptr(), start, libc::_IOFBF, len) };
            assert!(answer == 0, "the C library takes every buffer before the first use");
        }
        Ok(Self { stream, position: 0, was_write: true, _buffer: buffer })
    }

    fn seek(&mut self, offset: u64, write: bool) -> io::Result<()> {
        if offset != self.position || write != self.was_write {
            let to = libc::c_long::try_from(offset)
                .map_err(|_| io::Error::from_raw_os_error(libc::EFBIG))?;
            // SAFETY: the stream is open and exclusively borrowed.
            if unsafe { libc::fseek(self.stream.as_ptr(), to, libc::SEEK_SET) } != 0 {
                return Err(io::Error::last_os_error());
            }
            (self.position, self.was_write) = (offset, write);
        }
        Ok(())
    }

    /// `fread`, after an `fseek` if the stream is elsewhere. Returns the number of bytes: fewer at
    /// the end of the file.
    pub(crate) fn read(&mut self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        // At the beginning it has written nothing, and may read.
        self.was_write &= self.position != 0;
        self.seek(offset, false)?;
        // SAFETY: `bytes` is valid for writes of its length, and the stream is open and exclusively
        // borrowed.
        let read =
            unsafe { libc::fread(bytes.as_mut_ptr().cast(), 1, bytes.len(), self.stream.as_ptr()) };
        self.position += read as u64;
        // SAFETY: the stream is open and exclusively borrowed.
        if read < bytes.len() && unsafe { libc::ferror(self.stream.as_ptr()) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(read)
    }

    /// `fwrite`, after an `fseek` if the stream is elsewhere. The C library repeats short and
    /// interrupted writes only in part, so a short count is an error here.
    pub(crate) fn write(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.seek(offset, true)?;
        // SAFETY: `bytes` is valid for its length, and the stream is open and exclusively borrowed.
        let written =
            unsafe { libc::fwrite(bytes.as_ptr().cast(), 1, bytes.len(), self.stream.as_ptr()) };
        self.position += written as u64;
        if written == bytes.len() { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// `fflush`: moves what was buffered into the kernel, not onto the medium.
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
        // SAFETY: opened by `fdopen`, closed once; it closes its duplicate of the descriptor too.
        unsafe { libc::fclose(self.stream.as_ptr()) };
    }
}
