//! Every mode of fallocate, one call each.
//!
//! *Owns*: the calls and their flags. *May not touch*: when to prepare what; the lab decides that.
//! The two that a log uses are in `inkstone-io` too.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::Path;

use inkstone_io::transfer::retry;
use inkstone_io::{Error, NamedChoice, Result, named_choice};
use rustix::fs::FallocateFlags;

/// `FALLOC_FL_WRITE_ZEROES`, Linux 6.17.
const FALLOC_FL_WRITE_ZEROES: u32 = 0x80;

named_choice! {
    /// Every mode of fallocate that the kernel has, as one call each.
    FallocateMode, "fallocate mode" {
        Plain = "mode-0", "reserve blocks, grow the file";
        KeepSize = "keep-size", "reserve blocks, keep the size";
        PunchHole = "punch-hole", "free blocks, read as zeros";
        PunchHoleAlone = "punch-hole-alone", "the same without KEEP_SIZE, which it needs";
        CollapseRange = "collapse-range", "remove a range, the rest moves down";
        ZeroRange = "zero-range", "read as zeros, blocks reserved";
        ZeroRangeKeepSize = "zero-range-keep-size", "read as zeros, keep the size";
        InsertRange = "insert-range", "insert a range, the rest moves up";
        UnshareRange = "unshare-range", "copy shared blocks so that writing cannot fail for room";
        WriteZeroes = "write-zeroes", "zeros written by the device (Linux 6.17)";
        Posix = "posix-fallocate", "posix_fallocate of the C library";
    }
}

impl FallocateMode {
    /// Makes the call on `offset..offset + len_bytes` of `file`.
    ///
    /// # Errors
    /// What the file system answers: `is_unsupported()` if it lacks the mode, `ENOSPC` with advice
    /// if it is full.
    pub fn call(self, file: &File, path: &Path, offset: u64, len_bytes: u64) -> Result<()> {
        retry(|| fallocate(file.as_fd(), self, offset, len_bytes)).map_err(|source| {
            let full = source.kind() == io::ErrorKind::StorageFull;
            let error = Error::new(self.name(), path, source).at(offset);
            if full {
                error.advise(format!("{len_bytes} bytes were asked for: free some space"))
            } else {
                error
            }
        })
    }
}

/// One call of fallocate, in the given mode.
fn fallocate(fd: BorrowedFd<'_>, mode: FallocateMode, offset: u64, len: u64) -> io::Result<()> {
    let flags = match mode {
        FallocateMode::Plain => FallocateFlags::empty(),
        FallocateMode::KeepSize => FallocateFlags::KEEP_SIZE,
        FallocateMode::PunchHole => FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
        FallocateMode::PunchHoleAlone => FallocateFlags::PUNCH_HOLE,
        FallocateMode::CollapseRange => FallocateFlags::COLLAPSE_RANGE,
        FallocateMode::ZeroRange => FallocateFlags::ZERO_RANGE,
        FallocateMode::ZeroRangeKeepSize => FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE,
        FallocateMode::InsertRange => FallocateFlags::INSERT_RANGE,
        FallocateMode::UnshareRange => FallocateFlags::UNSHARE_RANGE,
        FallocateMode::WriteZeroes => FallocateFlags::from_bits_retain(FALLOC_FL_WRITE_ZEROES),
        FallocateMode::Posix => return posix_fallocate(fd, offset, len),
    };
    Ok(rustix::fs::fallocate(fd, flags, offset, len)?)
}

/// The C library's `posix_fallocate`: it answers with the error number itself.
fn posix_fallocate(fd: BorrowedFd<'_>, offset: u64, len: u64) -> io::Result<()> {
    let too_large = |_| io::Error::from_raw_os_error(libc::EFBIG);
    let offset = libc::off_t::try_from(offset).map_err(too_large)?;
    let len = libc::off_t::try_from(len).map_err(too_large)?;
    // SAFETY: no memory is passed; the descriptor is open for as long as it is borrowed.
    match unsafe { libc::posix_fallocate(fd.as_raw_fd(), offset, len) } {
        0 => Ok(()),
        code => Err(io::Error::from_raw_os_error(code)),
    }
}
