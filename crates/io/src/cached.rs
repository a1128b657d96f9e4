//! How much of a file is in the page cache, and advice to the kernel about reading it: mostly for the lab's read experiments.
//!
//! *Owns*: asking (`cachestat`, `mincore`) and advising (`posix_fadvise`, `readahead`, `madvise`). *May not touch*: contents. The
//! log only asks whether a file is in the cache, to read it in the faster way ([`crate::File::is_cached`]).

use std::os::fd::AsFd;

use rustix::mm;

use crate::error::{Error, Result};
use crate::file::OsFile;
use crate::mapping::Mapping;
use crate::seam::File;
use crate::sys;
use crate::transfer::retry;

/// How a file is going to be read, as `posix_fadvise` and `madvise` take it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Advice {
    /// From front to back: the kernel reads further ahead.
    Sequential,
    /// In no order: the kernel reads nothing ahead.
    Random,
}

/// How much of a file is in the page cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Residency {
    /// Pages in the cache.
    pub resident_pages: u64,
    /// Pages that the file has.
    pub pages: u64,
    /// The call that reported it: `cachestat` or `mincore`.
    pub told_by: &'static str,
}

impl OsFile {
    /// How much of the file is in the page cache now, by `cachestat` (Linux 6.5), else by `mincore`. It reads nothing.
    ///
    /// # Errors
    /// What the kernel answers; before 6.5 the file must be open for writing too.
    pub fn residency(&self) -> Result<Residency> {
        let len_bytes = self.len_bytes()?;
        let pages = len_bytes.div_ceil(rustix::param::page_size() as u64);
        if pages == 0 {
            return Ok(Residency { resident_pages: 0, pages, told_by: "cachestat" });
        }
        match sys::cached_pages(self.std_file().as_fd(), 0, len_bytes) {
            Ok(resident_pages) => Ok(Residency { resident_pages, pages, told_by: "cachestat" }),
            // It does not exist (ENOSYS), a sandbox forbids it (EPERM), or the file system does not have it.
            Err(_) => self.residency_of_mapping(len_bytes, pages),
        }
    }

    fn residency_of_mapping(&self, len_bytes: u64, pages: u64) -> Result<Residency> {
        let resident = Mapping::new(self.std_file(), len_bytes).and_then(|mapping| mapping.resident_pages());
        let resident_pages = resident.map_err(|source| Error::new("mincore", self.path(), source))?;
        Ok(Residency { resident_pages, pages, told_by: "mincore" })
    }

    /// `posix_fadvise` for the whole file; it is valid for this handle.
    ///
    /// # Errors
    /// What the kernel answers.
    pub fn advise(&self, advice: Advice) -> Result<()> {
        sys::advise(self.std_file().as_fd(), advice)
            .map_err(|error| Error::new("posix_fadvise", self.path(), error))
    }

    /// `readahead(2)`: asks the kernel to read a range into the page cache. One call reads at most the device's own read-ahead or
    /// largest request; the kernel silently ignores the rest of the range.
    ///
    /// # Errors
    /// What the kernel answers; a file system without a page cache does not have the call.
    pub fn read_ahead(&self, offset: u64, len: usize) -> Result<()> {
        retry(|| sys::readahead(self.std_file().as_fd(), offset, len))
            .map_err(|source| Error::new("readahead", self.path(), source).at(offset))
    }

    /// For access mmap: copies `bytes.len()` bytes at `offset` out of the mapping.
    ///
    /// An error of the medium there is a `SIGBUS` that ends the process: do not use it where an error must be handled.
    ///
    /// # Errors
    /// When nothing is mapped there.
    pub fn read_mapped(&self, bytes: &mut [u8], offset: u64) -> Result<()> {
        self.with_mapping("load", offset, |mapping| mapping.read(bytes, offset))
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seam::{OpenFile, SyncKind};
    use crate::strategy::Access;
    use std::io::Write as _;

    const LEN: usize = 64 << 12;

    fn written(directory: &std::path::Path, access: Access) -> OsFile {
        let path = directory.join("file");
        let file = OsFile::open(&path, &OpenFile::new_file()).expect("a file");
        let bytes: Vec<u8> = (0..LEN).map(|at| (at / 7) as u8).collect();
        file.write_at(&bytes, 0).expect("written");
        file.sync(SyncKind::All).expect("synced");
        OsFile::open(&path, &OpenFile::existing().access(access)).expect("opened")
    }

    /// In the directory of the test program: /tmp may be a tmpfs, which never drops a page.
    fn directory() -> tempfile::TempDir {
        let program = std::env::current_exe().expect("a program");
        tempfile::tempdir_in(program.parent().expect("a directory")).expect("a directory")
    }

    #[test]
    fn residency_follows_what_is_read_and_dropped_by_both_calls() {
        let directory = directory();
        let file = written(directory.path(), Access::Buffered);
        let pages = (LEN / rustix::param::page_size()) as u64;
        let by_mincore = || file.residency_of_mapping(LEN as u64, pages).expect("told").resident_pages;
        let now = || file.residency().expect("told");
        assert_eq!((now().pages, now().resident_pages, by_mincore()), (pages, pages, pages));
        file.forget_cached().expect("dropped");
        if now().resident_pages > 0 {
            let why = format!("\nNOT RUN: residency: this file system keeps its pages ({:?})\n", now());
            let _ = std::io::stderr().write_all(why.as_bytes());
            return;
        }
        assert_eq!(by_mincore(), 0);
        file.advise(Advice::Random).expect("advised");
        file.read_at(&mut [0; 1], 0).expect("read");
        assert!((1..pages).contains(&now().resident_pages), "{:?}", now());
        file.read_at(&mut vec![0; LEN], 0).expect("read");
        assert_eq!((now().resident_pages, by_mincore()), (pages, pages));
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
        assert!(sys::readahead(writer.as_fd(), 0, 1).is_err());
    }
}
