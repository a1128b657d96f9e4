//! The calls of macOS, as far as a log needs them.
//!
//! *Owns*: the calls, and the answer "unsupported" where there is none. *May not touch*: policy;
//! each function here is one call.
//!
//! This compiles, and no test runs it (docs/assumptions.md, "macOS").

use std::ffi::CStr;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};

use rustix::fs::{OFlags, fcntl_fullfsync, fstat, fstatfs};

use super::layout::{Allocate, DioAlignment, Fiemap, FileSystem};

pub(crate) use super::sleepers::Sleepers;

/// There is no such flag.
pub(crate) const O_DIRECT: Option<i32> = None;
/// There are flags of these names, but a write with them does not flush the device's cache.
pub(crate) const O_SYNC: Option<i32> = None;
pub(crate) const O_DSYNC: Option<i32> = None;
/// There is no `O_PATH`: who may not read a directory cannot open it.
pub(crate) const SEARCH_ONLY: OFlags = OFlags::RDONLY;
/// The call behind [`size`] and [`ask_nothing`].
pub(crate) const GET_FACTS: &str = "fstat";

/// The answer of a file system that lacks a call.
fn unsupported() -> io::Error {
    io::Error::from_raw_os_error(libc::EOPNOTSUPP)
}

pub(crate) fn size(fd: BorrowedFd<'_>) -> io::Result<u64> {
    Ok(u64::try_from(fstat(fd)?.st_size).unwrap_or(0))
}

pub(crate) fn ask_nothing(fd: BorrowedFd<'_>) -> io::Result<()> {
    Ok(fstat(fd).map(drop)?)
}

pub(crate) fn mount_id(_: BorrowedFd<'_>) -> Option<u64> {
    None
}

/// When a file was made, in nanoseconds since 1970.
pub(crate) fn born_nanos(fd: BorrowedFd<'_>) -> Option<u64> {
    let facts = fstat(fd).ok()?;
    let (seconds, nanos) = (facts.st_birthtime, facts.st_birthtime_nsec);
    let seconds = u64::try_from(seconds).ok().filter(|seconds| *seconds > 0)?;
    Some(seconds.wrapping_mul(1_000_000_000).wrapping_add(u64::try_from(nanos).unwrap_or(0)))
}

pub(crate) fn dio_alignment(_: BorrowedFd<'_>) -> DioAlignment {
    DioAlignment::Refused
}

pub(crate) fn unnamed_file(_: BorrowedFd<'_>, _: i32) -> io::Result<OwnedFd> {
    Err(unsupported())
}

/// The file system of an open file, by its name: the numbers are given out as file systems are
/// loaded.
pub(crate) fn file_system(fd: BorrowedFd<'_>) -> io::Result<FileSystem> {
    let answer = fstatfs(fd)?;
    let bytes = answer.f_fstypename.map(libc::c_char::cast_unsigned);
    let name =
        CStr::from_bytes_until_nul(&bytes).ok().map(|name| name.to_string_lossy().into_owned());
    Ok(FileSystem { number: 0, name })
}

/// The major and minor number of a device, as `stat` gives it.
pub(crate) fn device_number(device: u64) -> (u32, u32) {
    // The kernel's number has 32 bits.
    let device = device as rustix::fs::Dev;
    (rustix::fs::major(device), rustix::fs::minor(device))
}

pub(crate) fn pwrite_dsync(_: BorrowedFd<'_>, _: &[u8], _: u64) -> io::Result<usize> {
    Err(unsupported())
}

/// `F_FULLFSYNC` of a directory: `fsync` alone leaves changes in the device's cache.
pub(crate) fn sync_directory(fd: BorrowedFd<'_>) -> io::Result<()> {
    Ok(fcntl_fullfsync(fd)?)
}

/// No file system here needs it: see `Directory::sync_file_system`.
pub(crate) fn sync_file_system(_fd: BorrowedFd<'_>) -> io::Result<()> {
    Ok(())
}

/// Random bytes; up to 256 come complete, or not at all.
pub(crate) fn random_bytes(bytes: &mut [u8; 16]) -> io::Result<()> {
    // SAFETY: the array is exclusively borrowed, and the call writes at most the length that it
    // gets, which is the array's.
    match unsafe { libc::getentropy(bytes.as_mut_ptr().cast(), bytes.len()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// There is no such call: the handler in the child wipes the page.
///
/// # Safety
/// It does nothing.
pub(crate) unsafe fn wipe_in_children(_: *mut u8, _: usize) {}

/// Replaces a descriptor by `/dev/null`. All calls in it may be made in a child of `fork`.
///
/// # Safety
/// The number is the caller's, who closes it at most once more and takes it for no file before
/// that.
pub(crate) unsafe fn replace(descriptor: RawFd) {
    // Closed first, so that a number is free even if all were in use. SAFETY: handed on; the path
    // is a NUL-terminated literal, and the descriptor opened here is ours.
    unsafe {
        libc::close(descriptor);
        let harmless = libc::open(c"/dev/null".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
        if harmless >= 0 && harmless != descriptor {
            libc::dup2(harmless, descriptor);
            libc::fcntl(descriptor, libc::F_SETFD, libc::FD_CLOEXEC);
            libc::close(harmless);
        }
    }
}

/// Whether no signal of the set is pending. A pending one is not taken: no call here takes one
/// without waiting.
pub(crate) fn take_pending(_: &libc::sigset_t, signal: i32) -> bool {
    let mut pending: libc::sigset_t = 0;
    // SAFETY: the set lives as long as the calls, and 0 is the empty one, should the first call
    // fail.
    unsafe {
        libc::sigpending(&raw mut pending);
        libc::sigismember(&raw const pending, signal) != 1
    }
}

/// A priority is the whole process's here, which does not ask for it.
#[cfg(feature = "text-log")]
pub(crate) fn let_others_go_first() -> io::Result<()> {
    Err(unsupported())
}

pub(crate) fn fallocate(_: BorrowedFd<'_>, _: Allocate, _: u64) -> io::Result<()> {
    Err(unsupported())
}

pub(crate) fn fiemap(_: BorrowedFd<'_>, _: &mut Fiemap) -> io::Result<()> {
    Err(unsupported())
}

/// There is no such call. It is only advice on Linux too, so this is no error: who must see the
/// medium reads with `O_DIRECT`, which macOS lacks as well (docs/assumptions.md, A8).
pub(crate) fn drop_cached(_: BorrowedFd<'_>) -> io::Result<()> {
    Ok(())
}

pub(crate) fn cached_pages(_: BorrowedFd<'_>, _: u64, _: u64) -> io::Result<u64> {
    Err(unsupported())
}
