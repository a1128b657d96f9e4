//! What a lab tells the kernel about the pages of a file: read them ahead, in which order they are
//! read, write them back.
//!
//! *Owns*: the calls (`posix_fadvise`, `readahead`, `madvise`, `sync_file_range`). *May not touch*:
//! contents, and durability: none of these makes anything durable.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use inkstone_io::transfer::retry;
use inkstone_io::{Error, File as _, Result};
use rustix::{fs, mm};

use crate::lab_file::LabFile;

/// How a file is going to be read, as `posix_fadvise` and `madvise` take it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Advice {
    /// From front to back: the kernel reads further ahead.
    Sequential,
    /// In no order: the kernel reads nothing ahead.
    Random,
}

impl LabFile {
    /// `posix_fadvise` for the whole file; it is valid for this handle.
    ///
    /// # Errors
    /// What the kernel answers.
    pub fn advise(&self, advice: Advice) -> Result<()> {
        let kind = match advice {
            Advice::Sequential => fs::Advice::Sequential,
            Advice::Random => fs::Advice::Random,
        };
        fs::fadvise(self.descriptor(), 0, None, kind)
            .map_err(|error| Error::new("posix_fadvise", self.path(), error))
    }

    /// For access mmap: `madvise` over the whole mapping.
    ///
    /// # Errors
    /// When nothing is mapped, or what the kernel answers.
    pub fn advise_mapped(&self, advice: Advice) -> Result<()> {
        let kind = match advice {
            Advice::Sequential => mm::Advice::Sequential,
            Advice::Random => mm::Advice::Random,
        };
        self.with_mapping("madvise", 0, |mapping| mapping.advise(kind))
    }

    /// `readahead(2)`: asks the kernel to read a range into the page cache. One call reads at most
    /// the device's own read-ahead or largest request; the kernel silently ignores the rest of the
    /// range.
    ///
    /// # Errors
    /// What the kernel answers; a file system without a page cache does not have the call.
    pub fn read_ahead(&self, offset: u64, len: usize) -> Result<()> {
        retry(|| readahead(self.descriptor(), offset, len))
            .map_err(|source| Error::new("readahead", self.path(), source).at(offset))
    }

    /// `sync_file_range`: passes a range of the page cache to the device and waits until the device
    /// has accepted it. This makes nothing durable: it flushes neither metadata nor the device's
    /// cache.
    ///
    /// # Errors
    /// What the kernel answers.
    pub fn write_back(&self, offset: u64, len: u64) -> Result<()> {
        self.check_change("sync_file_range")?;
        retry(|| sync_file_range(self.descriptor(), offset, len))
            .map_err(|source| Error::new("sync_file_range", self.path(), source).at(offset))
    }
}

fn as_offset(number: u64) -> io::Result<libc::off64_t> {
    libc::off64_t::try_from(number).map_err(|_| io::Error::from_raw_os_error(libc::EFBIG))
}

/// Starts reading a range into the page cache.
fn readahead(fd: BorrowedFd<'_>, offset: u64, len: usize) -> io::Result<()> {
    let offset = as_offset(offset)?;
    // SAFETY: no memory is passed; the descriptor is open for as long as it is borrowed.
    match unsafe { libc::readahead(fd.as_raw_fd(), offset, len) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// With all three flags: starts writing a range back and waits until the device has accepted it.
fn sync_file_range(fd: BorrowedFd<'_>, offset: u64, len: u64) -> io::Result<()> {
    let (offset, len) = (as_offset(offset)?, as_offset(len)?);
    let flags = libc::SYNC_FILE_RANGE_WAIT_BEFORE
        | libc::SYNC_FILE_RANGE_WRITE
        | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    // SAFETY: no memory is passed; the descriptor is open for as long as it is borrowed.
    match unsafe { libc::sync_file_range(fd.as_raw_fd(), offset, len, flags) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::fd::AsFd;

    use inkstone_io::{Access, OpenFile, SyncKind};

    use super::*;

    const LEN: usize = 64 << 12;

    fn written(directory: &std::path::Path, access: Access) -> LabFile {
        let path = directory.join("file");
        let file = LabFile::open(&path, &OpenFile::new_file()).expect("a file");
        let bytes: Vec<u8> = (0..LEN).map(|at| (at / 7) as u8).collect();
        file.write_at(&bytes, 0).expect("written");
        file.sync(SyncKind::All).expect("synced");
        LabFile::open(&path, &OpenFile::existing().access(access)).expect("opened")
    }

    /// In the directory of the test program: /tmp may be a tmpfs, which never drops a page.
    fn directory() -> tempfile::TempDir {
        let program = std::env::current_exe().expect("a program");
        tempfile::tempdir_in(program.parent().expect("a directory")).expect("a directory")
    }

    #[test]
    fn a_file_read_at_random_is_not_read_ahead() {
        let directory = directory();
        let file = written(directory.path(), Access::Buffered);
        let pages = (LEN / rustix::param::page_size()) as u64;
        let now = || file.residency().expect("told");
        file.forget_cached().expect("dropped");
        if now().resident_pages > 0 {
            let why = format!(
                "\nNOT RUN: reading at random: this file system keeps its pages ({:?})\n",
                now()
            );
            let _ = std::io::stderr().write_all(why.as_bytes());
            return;
        }
        file.advise(Advice::Random).expect("advised");
        file.read_at(&mut [0; 1], 0).expect("read");
        assert!((1..pages).contains(&now().resident_pages), "{:?}", now());
    }

    #[test]
    fn a_mapping_reads_what_was_written_and_nothing_outside() {
        let directory = directory();
        let file = written(directory.path(), Access::Mmap);
        let mut bytes = [0; 100];
        assert!(file.read_mapped(&mut bytes, 0).is_err(), "not mapped yet");
        file.map(LEN as u64).expect("mapped");
        file.advise_mapped(Advice::Sequential).expect("advised");
        file.read_mapped(&mut bytes, 7000).expect("read");
        assert!(bytes.iter().enumerate().all(|(at, byte)| *byte == ((7000 + at) / 7) as u8));
        assert!(file.read_mapped(&mut bytes, LEN as u64 - 99).is_err());
    }

    #[test]
    fn what_is_read_ahead_is_there() {
        let directory = directory();
        let file = written(directory.path(), Access::Buffered);
        file.forget_cached().expect("dropped");
        file.read_ahead(0, LEN).expect("asked for");
        // The call is only advice; the kernel decides how much it reads.
        file.read_at(&mut [0; 4096], 0).expect("read");
        assert!(file.residency().expect("told").resident_pages > 0);
        let (_reader, writer) = std::io::pipe().expect("a pipe");
        assert!(readahead(writer.as_fd(), 0, 1).is_err());
    }
}
