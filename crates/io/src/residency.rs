//! How much of a file is in the page cache.
//!
//! *Owns*: asking (`cachestat`, `mincore`). *May not touch*: contents. The log asks whether a file
//! is in the cache, to read it in the faster way ([`File::is_cached`](crate::File::is_cached)).

use std::fs::File as StdFile;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::ptr::null_mut;

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::error::{Error, Result};
use crate::sys;

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

/// How much of a file of so many bytes is in the page cache now.
pub(crate) fn residency(file: &StdFile, path: &Path, len_bytes: u64) -> Result<Residency> {
    let pages = len_bytes.div_ceil(rustix::param::page_size() as u64);
    if pages == 0 {
        return Ok(Residency { resident_pages: 0, pages, told_by: "cachestat" });
    }
    match sys::cached_pages(file.as_fd(), 0, len_bytes) {
        Ok(resident_pages) => Ok(Residency { resident_pages, pages, told_by: "cachestat" }),
        // It does not exist (ENOSYS), a sandbox forbids it (EPERM), or the file system does not
        // have it.
        Err(_) => {
            let resident_pages = resident_by_mincore(file, len_bytes)
                .map_err(|source| Error::new("mincore", path, source))?;
            Ok(Residency { resident_pages, pages, told_by: "mincore" })
        }
    }
}

/// How many pages of a file are in memory. The file must be open for writing: of others the kernel
/// may say that all are.
fn resident_by_mincore(file: &StdFile, len_bytes: u64) -> io::Result<u64> {
    let len = usize::try_from(len_bytes).map_err(|_| io::Error::from_raw_os_error(libc::EFBIG))?;
    let mut states = vec![0_u8; len.div_ceil(rustix::param::page_size())];
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a fresh mapping at an address that the kernel chooses touches no memory of ours, and
    // no code goes through it.
    let start = unsafe { mmap(null_mut(), len, protection, MapFlags::SHARED, file, 0)? };
    // SAFETY: the range is the mapping, and there is a byte for each of its pages.
    let answer = match unsafe { libc::mincore(start, len, states.as_mut_ptr().cast()) } {
        0 => Ok(states.iter().filter(|state| *state & 1 != 0).count() as u64),
        _ => Err(io::Error::last_os_error()),
    };
    // SAFETY: mapped above with this length, and unmapped once.
    let _ = unsafe { munmap(start, len) };
    answer
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::OsFile;
    use crate::seam::{File as _, OpenFile, SyncKind};
    use std::io::Write as _;

    const LEN: usize = 64 << 12;

    /// In the directory of the test program: /tmp may be a tmpfs, which never drops a page.
    fn directory() -> tempfile::TempDir {
        let program = std::env::current_exe().expect("a program");
        tempfile::tempdir_in(program.parent().expect("a directory")).expect("a directory")
    }

    #[test]
    fn residency_follows_what_is_read_and_dropped_by_both_calls() {
        let directory = directory();
        let file =
            OsFile::open(&directory.path().join("file"), &OpenFile::new_file()).expect("a file");
        file.write_at(&vec![7; LEN], 0).expect("written");
        file.sync(SyncKind::All).expect("synced");
        let pages = (LEN / rustix::param::page_size()) as u64;
        let by_mincore = || resident_by_mincore(file.std_file(), LEN as u64).expect("told");
        let now = || file.residency().expect("told");
        assert_eq!((now().pages, now().resident_pages, by_mincore()), (pages, pages, pages));
        file.forget_cached().expect("dropped");
        if now().resident_pages > 0 {
            let why =
                format!("\nNOT RUN: residency: this file system keeps its pages ({:?})\n", now());
            let _ = std::io::stderr().write_all(why.as_bytes());
            return;
        }
        assert_eq!(by_mincore(), 0);
        file.read_at(&mut [0; 1], 0).expect("read");
        assert!(now().resident_pages > 0, "{:?}", now());
        file.read_at(&mut vec![0; LEN], 0).expect("read");
        assert_eq!((now().resident_pages, by_mincore()), (pages, pages));
    }
}
