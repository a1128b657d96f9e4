//! The C library's own buffered stream (`fopen`, `fwrite`, `fflush`), for the lab's stream
//! experiments.
//!
//! *Owns*: the `FILE`. *May not touch*: durability; bytes in its buffer are not even in the kernel
//! yet.

use std::fs::File;
use std::io;
use std::os::fd::IntoRawFd;
use std::ptr::NonNull;

use inkstone_io::ForkMark;

/// A C stream over a duplicate of a file's descriptor.
#[derive(Debug)]
pub(crate) struct CStream {
    stream: NonNull<libc::FILE>,
    position: u64,
    mark: ForkMark,
    /// Whether the last call was a write: C demands a seek between a write and a read, in both
    /// directions.
    was_write: bool,
    /// The buffer of the stream, if it was given one. It is in use until the stream is closed.
    buffer: Option<Box<[u8]>>,
}

// SAFETY: a `FILE` may be used from any thread, one at a time; `LabFile` keeps it behind a lock.
unsafe impl Send for CStream {}

impl CStream {
    pub(crate) fn new(file: &File, mark: ForkMark) -> io::Result<Self> {
        let descriptor = file.try_clone()?.into_raw_fd();
        // SAFETY: the descriptor is open and ours; the mode is a NUL-terminated literal that fits
        // its flags.
        let stream = unsafe { libc::fdopen(descriptor, c"r+".as_ptr()) };
        match NonNull::new(stream) {
            Some(stream) => Ok(Self { stream, position: 0, mark, was_write: true, buffer: None }),
            None => {
                let error = io::Error::last_os_error();
                // SAFETY: `fdopen` failed, so the descriptor is still ours, and no other code has
                // its number.
                unsafe { libc::close(descriptor) };
                Err(error)
            }
        }
    }

    /// Gives the stream, which has done nothing yet, a buffer of this size instead of the C
    /// library's own.
    pub(crate) fn gathering(mut self, buffer_bytes: usize) -> io::Result<Self> {
        let mut buffer = vec![0; buffer_bytes].into_boxed_slice();
        // SAFETY: the stream is open, exclusively ours and unused. The buffer's memory does not
        // move when its box does, and lives until `drop` has closed the stream.
        let answer = unsafe {
            libc::setvbuf(
                self.stream.as_ptr(),
                buffer.as_mut_ptr().cast(),
                libc::_IOFBF,
                buffer.len(),
            )
        };
        if answer != 0 {
            return Err(io::Error::other("the C library does not take the buffer"));
        }
        self.buffer = Some(buffer);
        Ok(self)
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
        // A child would write once more what its parent has buffered. The stream stays open, with
        // its buffer.
        if self.mark.is_child() {
            std::mem::forget(self.buffer.take());
            return;
        }
        // SAFETY: opened by `fdopen`, closed once; it closes its duplicate of the descriptor too.
        unsafe { libc::fclose(self.stream.as_ptr()) };
    }
}

#[cfg(test)]
mod tests {
    use inkstone_io::{Access, File as _, OpenFile};

    use crate::LabFile;

    #[test]
    fn a_stream_that_gathers_writes_when_it_is_full_and_when_it_is_flushed() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("file");
        let file = LabFile::open(&path, &OpenFile::new_file().access(Access::StreamGather))
            .expect("opened");
        let len = || std::fs::metadata(&path).expect("the file").len();
        let block = |number: u8| vec![number + 1; 4096];
        for number in 0..16 {
            file.write_at(&block(number), u64::from(number) * 4096).expect("written");
        }
        assert_eq!(len(), 0, "64 KiB are gathered");
        file.write_at(&block(16), 16 * 4096).expect("written");
        assert_eq!(len(), 64 << 10);
        file.flush_buffered().expect("flushed");
        assert_eq!(len(), 17 * 4096);
        // At another place; what was there before is read through the same stream.
        file.write_at(&[9; 100], 5000).expect("written");
        let mut found = vec![0; 4096];
        assert_eq!(file.read_by_access(&mut found, 4096).expect("read"), 4096);
        assert_eq!((found[903], found[904], found[1003], found[1004]), (2, 9, 9, 2));
        file.write_at(&[7; 10], 0).expect("written");
        drop(file);
        let all = std::fs::read(&path).expect("read");
        assert_eq!((all.len(), all[9], all[10], all[5000]), (17 * 4096, 7, 1, 9));
    }

    #[test]
    fn every_access_reads_the_same_and_ends_at_the_end() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("file");
        let bytes: Vec<u8> = (0..10_000_u32).map(|number| number as u8).collect();
        std::fs::write(&path, &bytes).expect("written");
        for access in [Access::Buffered, Access::Seek, Access::Stream] {
            let file = LabFile::open(&path, &OpenFile::existing().access(access)).expect("opened");
            for offset in [0, 4096, 8192, 100, 100, 9_999, 10_000, 20_000, 0] {
                let mut found = vec![0; 4096];
                let read = file.read_by_access(&mut found, offset).expect("read");
                let from = (offset as usize).min(bytes.len());
                assert_eq!(
                    &found[..read],
                    &bytes[from..(from + 4096).min(bytes.len())],
                    "{access} {offset}"
                );
            }
        }
    }
}
