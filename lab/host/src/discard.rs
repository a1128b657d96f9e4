//! Discards a file system's free blocks on the device below it (`FITRIM`).
//!
//! *Owns*: that request. *May not touch*: blocks that a file has; the kernel leaves those alone.

use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;

use inkstone_io::transfer::retry;
use inkstone_io::{Error, Result};

/// `_IOWR('X', 121, struct fstrim_range)`, which has 24 bytes.
const FITRIM: u32 = 0xC018_5879;

/// `struct fstrim_range`.
#[repr(C)]
struct Range {
    start: u64,
    len: u64,
    least: u64,
}

/// Syncs the file system of `directory`, since blocks of deleted files may be free only then, and
/// discards all its free blocks. Returns the number of bytes that the kernel reports; some file
/// systems leave out what they discarded before.
///
/// # Errors
/// `EPERM` without root, `EOPNOTSUPP` if the file system or the device has no discard.
pub fn trim_free_space(directory: &Path) -> Result<u64> {
    let failed = |operation, error| Error::new(operation, directory, error);
    let handle = std::fs::File::open(directory).map_err(|error| failed("open", error))?;
    rustix::fs::syncfs(handle.as_fd()).map_err(|error| Error::new("syncfs", directory, error))?;
    let mut range = Range { start: 0, len: u64::MAX, least: 0 };
    let answer = retry(|| {
        // SAFETY: `range` is a live, exclusively borrowed `struct fstrim_range`, and the kernel
        // writes no more than that.
        let answer = unsafe {
            libc::ioctl(handle.as_raw_fd(), FITRIM as libc::Ioctl, std::ptr::from_mut(&mut range))
        };
        if answer < 0 { Err(std::io::Error::last_os_error()) } else { Ok(()) }
    });
    answer.map_err(|error| failed("ioctl FITRIM", error))?;
    Ok(range.len)
}
