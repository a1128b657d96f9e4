//! The calls of Linux.
//!
//! *Owns*: the numbers that the build machine's headers may lack (from the kernel's uapi headers,
//! 6.18). *May not touch*: policy; each function here is one call.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::ptr::null_mut;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use rustix::fs::{
    AtFlags, FallocateFlags, Mode, OFlags, Statx, StatxFlags, Timespec, fstat, fstatfs, openat,
    statx,
};
use rustix::io::ReadWriteFlags;
use rustix::thread::futex::{self, Flags};

use super::layout::{Allocate, DioAlignment, Fiemap, FileSystem};
use crate::descriptor::above_standard;
use crate::error::is_not_here;

/// The open flags that access and durability ask for, where there are such flags.
pub(crate) const O_DIRECT: Option<i32> = Some(libc::O_DIRECT);
pub(crate) const O_SYNC: Option<i32> = Some(libc::O_SYNC);
pub(crate) const O_DSYNC: Option<i32> = Some(libc::O_DSYNC);
/// Opens a directory that may be searched but not read.
pub(crate) const SEARCH_ONLY: OFlags = OFlags::PATH;
/// The call behind [`size`] and [`ask_nothing`].
pub(crate) const GET_FACTS: &str = "statx";

/// `FALLOC_FL_WRITE_ZEROES`, Linux 6.17.
const FALLOC_FL_WRITE_ZEROES: u32 = 0x80;
/// `FS_IOC_FIEMAP` = `_IOWR('f', 11, struct fiemap)`.
const FS_IOC_FIEMAP: libc::Ioctl = 0xC020_660B_u32 as libc::Ioctl;

/// The threads that sleep beside one word: the kernel knows them by its address.
#[derive(Debug, Default)]
pub(crate) struct Sleepers;

impl Sleepers {
    /// Sleeps while the word has this value, for at most `time`; true if the time is over. It may
    /// return early.
    pub(crate) fn sleep(&self, word: &AtomicU32, value: u32, time: Duration) -> bool {
        let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
        let time = Timespec { tv_sec: seconds, tv_nsec: i64::from(time.subsec_nanos()) };
        futex::wait(word, Flags::PRIVATE, value, Some(&time)) == Err(rustix::io::Errno::TIMEDOUT)
    }

    /// Wakes one, after the word was changed.
    pub(crate) fn wake_one(&self, word: &AtomicU32) {
        // It can only fail for an invalid address.
        let _ = futex::wake(word, Flags::PRIVATE, 1);
    }

    /// Wakes all, after the word was changed.
    pub(crate) fn wake_all(&self, word: &AtomicU32) {
        let _ = futex::wake(word, Flags::PRIVATE, i32::MAX as u32);
    }
}

/// A file's size, and nothing else: asking for the time stamps makes the next write change them,
/// and a sync may wait for that. Without the call (Linux 4.11, and a sandbox may refuse it) that is
/// the price.
pub(crate) fn size(fd: BorrowedFd<'_>) -> io::Result<u64> {
    match statx(fd, "", AtFlags::EMPTY_PATH, StatxFlags::SIZE) {
        Err(error) if is_not_here(&error.into()) => Ok(fstat(fd)?.st_size.cast_unsigned()),
        answer => Ok(answer?.stx_size),
    }
}

/// Asks the file system about a file, without asking for any fact, where there is a call for that.
pub(crate) fn ask_nothing(fd: BorrowedFd<'_>) -> io::Result<()> {
    match statx(fd, "", AtFlags::EMPTY_PATH, StatxFlags::empty()) {
        Err(error) if is_not_here(&error.into()) => Ok(fstat(fd).map(drop)?),
        answer => Ok(answer.map(drop)?),
    }
}

/// One fact about a file, if the file system reports it.
fn told(fd: impl AsFd, fact: StatxFlags) -> Option<Statx> {
    let answer = statx(fd, "", AtFlags::EMPTY_PATH, fact).ok()?;
    StatxFlags::from_bits_retain(answer.stx_mask).contains(fact).then_some(answer)
}

/// The number of the mount that a file was opened in (Linux 5.8).
pub(crate) fn mount_id(fd: BorrowedFd<'_>) -> Option<u64> {
    told(fd, StatxFlags::MNT_ID).map(|answer| answer.stx_mnt_id)
}

/// When a file was made, in nanoseconds since 1970.
pub(crate) fn born_nanos(fd: BorrowedFd<'_>) -> Option<u64> {
    let born = told(fd, StatxFlags::BTIME)?.stx_btime;
    let seconds = u64::try_from(born.tv_sec).unwrap_or(0);
    Some(seconds.wrapping_mul(1_000_000_000).wrapping_add(u64::from(born.tv_nsec)))
}

/// The alignment that `O_DIRECT` needs for a file.
pub(crate) fn dio_alignment(fd: BorrowedFd<'_>) -> DioAlignment {
    let Some(answer) = told(fd, StatxFlags::DIOALIGN) else { return DioAlignment::NotTold };
    match (answer.stx_dio_mem_align, answer.stx_dio_offset_align) {
        (0, _) | (_, 0) => DioAlignment::Refused,
        (memory, offset) => DioAlignment::Bytes { memory, offset },
    }
}

/// A file without a name in a directory, opened with these flags too.
pub(crate) fn unnamed_file(directory: BorrowedFd<'_>, flags: i32) -> io::Result<OwnedFd> {
    let others = OFlags::from_bits_retain(flags.cast_unsigned());
    let flags = OFlags::WRONLY | OFlags::TMPFILE | OFlags::CLOEXEC | others;
    above_standard(openat(directory, ".", flags, Mode::RUSR | Mode::WUSR)?)
}

/// The file system of an open file, by its number.
pub(crate) fn file_system(fd: BorrowedFd<'_>) -> io::Result<FileSystem> {
    // The type differs between architectures; the numbers have 32 bits.
    #[allow(clippy::unnecessary_cast, reason = "the type differs between architectures")]
    let number = fstatfs(fd)?.f_type as u32;
    Ok(FileSystem { number, name: None })
}

/// The major and minor number of a device, as `stat` gives it.
pub(crate) fn device_number(device: u64) -> (u32, u32) {
    (rustix::fs::major(device), rustix::fs::minor(device))
}

/// `pwritev2(RWF_DSYNC)`: a write that is durable when it returns.
pub(crate) fn pwrite_dsync(fd: BorrowedFd<'_>, bytes: &[u8], offset: u64) -> io::Result<usize> {
    Ok(rustix::io::pwritev2(fd, &[io::IoSlice::new(bytes)], offset, ReadWriteFlags::DSYNC)?)
}

/// `fsync` of a directory.
pub(crate) fn sync_directory(fd: BorrowedFd<'_>) -> io::Result<()> {
    Ok(rustix::fs::fsync(fd)?)
}

/// `syncfs`: writes all of a file system.
pub(crate) fn sync_file_system(fd: BorrowedFd<'_>) -> io::Result<()> {
    Ok(rustix::fs::syncfs(fd)?)
}

/// Random bytes; this few come complete, or not at all.
pub(crate) fn random_bytes(bytes: &mut [u8; 16]) -> io::Result<()> {
    Ok(rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::empty()).map(drop)?)
}

/// Makes the kernel wipe a page in children. Where it does not (before 4.14, and some kernels that
/// only look like Linux), the handler in the child does it. Miri knows neither such advice nor
/// forks.
///
/// # Safety
/// The page is the caller's mapping of `bytes`, and zeros are a value of what is in it.
pub(crate) unsafe fn wipe_in_children(page: *mut u8, bytes: usize) {
    if !cfg!(miri) {
        // SAFETY: handed on.
        let _ =
            unsafe { rustix::mm::madvise(page.cast(), bytes, rustix::mm::Advice::LinuxWipeOnFork) };
    }
}

/// Replaces a descriptor by an eventfd that no code uses. All calls in it may be made in a child of
/// `fork`.
///
/// # Safety
/// The number is the caller's, who closes it at most once more and takes it for no file before
/// that.
pub(crate) unsafe fn replace(descriptor: RawFd) {
    // Closed first, so that a number is free even if all were in use.
    // SAFETY: handed on; the eventfd is ours.
    unsafe {
        libc::close(descriptor);
        let harmless = libc::eventfd(0, libc::EFD_CLOEXEC);
        if harmless >= 0 && harmless != descriptor {
            libc::dup3(harmless, descriptor, libc::O_CLOEXEC);
            libc::close(harmless);
        }
    }
}

/// Takes the pending signals of a set of one, which this thread has blocked; false if one may still
/// be pending.
pub(crate) fn take_pending(set: &libc::sigset_t, signal: i32) -> bool {
    let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the set and the time live as long as the call, which may be told to give no details.
    while unsafe { libc::sigtimedwait(set, null_mut(), &raw const at_once) } == signal {}
    true
}

/// Lets every other thread go first, from now on. On Linux "this process" is the calling thread.
#[cfg(feature = "text-log")]
pub(crate) fn let_others_go_first() -> io::Result<()> {
    Ok(rustix::process::setpriority_process(None, 19)?)
}

/// One call of fallocate on the first `len` bytes.
pub(crate) fn fallocate(fd: BorrowedFd<'_>, mode: Allocate, len: u64) -> io::Result<()> {
    let flags = match mode {
        Allocate::Grow => FallocateFlags::empty(),
        Allocate::WriteZeroes => FallocateFlags::from_bits_retain(FALLOC_FL_WRITE_ZEROES),
    };
    Ok(rustix::fs::fallocate(fd, flags, 0, len)?)
}

/// Drops the clean cached pages of a file. A length of 0 (None) is up to the end.
pub(crate) fn drop_cached(fd: BorrowedFd<'_>) -> io::Result<()> {
    Ok(rustix::fs::fadvise(fd, 0, None, rustix::fs::Advice::DontNeed)?)
}

/// One FIEMAP call; the answer is in `request`.
pub(crate) fn fiemap(fd: BorrowedFd<'_>, request: &mut Fiemap) -> io::Result<()> {
    // SAFETY: `request` is a live, exclusively borrowed `struct fiemap` whose `extent_count` says
    // how many extents follow it, and the kernel writes no more than that.
    let answer = unsafe { libc::ioctl(fd.as_raw_fd(), FS_IOC_FIEMAP, std::ptr::from_mut(request)) };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The number of `cachestat` (Linux 6.5); new calls have the same number on all architectures but
/// alpha.
const SYS_CACHESTAT: libc::c_long = 451;

/// `struct cachestat_range`.
#[repr(C)]
struct CachestatRange {
    offset: u64,
    len: u64,
}

/// `struct cachestat`: pages of the range, by state.
#[repr(C)]
#[derive(Default)]
struct Cachestat {
    cached: u64,
    dirty: u64,
    writeback: u64,
    evicted: u64,
    recently_evicted: u64,
}

/// `cachestat`: how many pages of the range the page cache holds.
pub(crate) fn cached_pages(fd: BorrowedFd<'_>, offset: u64, len: u64) -> io::Result<u64> {
    let range = CachestatRange { offset, len };
    let mut answer = Cachestat::default();
    // SAFETY: both structures are live and laid out as the kernel's; it reads the first, fills the
    // second, and keeps neither.
    let code = unsafe {
        libc::syscall(
            SYS_CACHESTAT,
            fd.as_raw_fd(),
            &raw const range,
            &raw mut answer,
            0 as libc::c_uint,
        )
    };
    if code == 0 { Ok(answer.cached) } else { Err(io::Error::last_os_error()) }
}
