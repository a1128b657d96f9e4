//! Constants that the build machine's headers may lack, and calls for which rustix has no safe form.
//!
//! *Owns*: the numbers (from the kernel's uapi headers, 6.18). *May not touch*: policy; each function here is one call.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// `FALLOC_FL_WRITE_ZEROES`, Linux 6.17.
pub(crate) const FALLOC_FL_WRITE_ZEROES: u32 = 0x80;
/// `FS_IOC_FIEMAP` = `_IOWR('f', 11, struct fiemap)`.
const FS_IOC_FIEMAP: libc::c_ulong = 0xC020_660B;
/// `FIEMAP_FLAG_SYNC`: write delayed data out first, so that the answer is about the medium.
pub(crate) const FIEMAP_FLAG_SYNC: u32 = 0x1;
pub(crate) const FIEMAP_EXTENT_LAST: u32 = 0x1;
pub(crate) const FIEMAP_EXTENT_UNKNOWN: u32 = 0x2;
pub(crate) const FIEMAP_EXTENT_DELALLOC: u32 = 0x4;
pub(crate) const FIEMAP_EXTENT_ENCODED: u32 = 0x8;
pub(crate) const FIEMAP_EXTENT_DATA_INLINE: u32 = 0x200;
pub(crate) const FIEMAP_EXTENT_UNWRITTEN: u32 = 0x800;
pub(crate) const FIEMAP_EXTENT_SHARED: u32 = 0x2000;

/// `struct fiemap_extent`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct FiemapExtent {
    pub(crate) logical: u64,
    pub(crate) physical: u64,
    pub(crate) length: u64,
    reserved64: [u64; 2],
    pub(crate) flags: u32,
    reserved: [u32; 3],
}

/// How many extents one FIEMAP call fetches.
pub(crate) const FIEMAP_BATCH: usize = 256;

/// `struct fiemap` with room for [`FIEMAP_BATCH`] extents.
#[repr(C)]
pub(crate) struct Fiemap {
    pub(crate) start: u64,
    pub(crate) length: u64,
    pub(crate) flags: u32,
    pub(crate) mapped_extents: u32,
    extent_count: u32,
    reserved: u32,
    pub(crate) extents: [FiemapExtent; FIEMAP_BATCH],
}

impl Fiemap {
    pub(crate) fn request(start: u64, length: u64, flags: u32) -> Box<Self> {
        Box::new(Self {
            start,
            length,
            flags,
            mapped_extents: 0,
            extent_count: FIEMAP_BATCH as u32,
            reserved: 0,
            extents: [FiemapExtent::default(); FIEMAP_BATCH],
        })
    }
}

/// One FIEMAP call; the answer is in `request`.
pub(crate) fn fiemap(fd: BorrowedFd<'_>, request: &mut Fiemap) -> io::Result<()> {
    // SAFETY: `request` is a live, exclusively borrowed `struct fiemap` whose `extent_count` says how many extents
    // follow it, and the kernel writes no more than that.
    let answer = unsafe { libc::ioctl(fd.as_raw_fd(), FS_IOC_FIEMAP, std::ptr::from_mut(request)) };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The C library's `posix_fallocate`: it answers with the error number itself.
pub(crate) fn posix_fallocate(fd: BorrowedFd<'_>, offset: u64, len: u64) -> io::Result<()> {
    let too_large = |_| io::Error::from_raw_os_error(libc::EFBIG);
    let offset = libc::off_t::try_from(offset).map_err(too_large)?;
    let len = libc::off_t::try_from(len).map_err(too_large)?;
    // SAFETY: no memory is passed; the descriptor is open for as long as it is borrowed.
    match unsafe { libc::posix_fallocate(fd.as_raw_fd(), offset, len) } {
        0 => Ok(()),
        code => Err(io::Error::from_raw_os_error(code)),
    }
}

/// A record lock of the whole file, of this type, as `fcntl` takes it.
fn whole_file(lock_type: libc::c_int) -> libc::flock {
    // SAFETY: `struct flock` is integers only, for which zeros are a value; an open-file-description lock demands that
    // `l_pid` be 0, and start and length 0 mean the whole file.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = lock_type as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock
}

/// Takes (`F_WRLCK`) or releases (`F_UNLCK`) the open file description's lock on the whole file; never waits.
pub(crate) fn set_description_lock(fd: BorrowedFd<'_>, lock_type: libc::c_int) -> io::Result<()> {
    let lock = whole_file(lock_type);
    // SAFETY: the descriptor is open for as long as it is borrowed; `lock` lives through the call, which only reads it.
    match unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A lock of another holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LockInTheWay {
    /// It is a read lock, which only keeps others from writing.
    pub(crate) is_to_read: bool,
    /// Its process; `None` for the lock of an open file description, which belongs to no process.
    pub(crate) process: Option<u32>,
}

/// The lock that is in the way of an exclusive lock on the whole file, if there is one. Takes no lock.
pub(crate) fn lock_in_the_way(fd: BorrowedFd<'_>) -> io::Result<Option<LockInTheWay>> {
    let mut lock = whole_file(libc::F_WRLCK);
    // SAFETY: the descriptor is open for as long as it is borrowed; `lock` is a live, exclusively borrowed `struct flock`.
    match unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_OFD_GETLK, &raw mut lock) } {
        0 => Ok((libc::c_int::from(lock.l_type) != libc::F_UNLCK).then(|| LockInTheWay {
            is_to_read: libc::c_int::from(lock.l_type) == libc::F_RDLCK,
            process: u32::try_from(lock.l_pid).ok().filter(|process| *process != 0),
        })),
        _ => Err(io::Error::last_os_error()),
    }
}

/// `sync_file_range` with all three flags: starts writing a range back and waits until the device has accepted it. It flushes no
/// device and writes no metadata.
pub(crate) fn sync_file_range(fd: BorrowedFd<'_>, offset: u64, len: u64) -> io::Result<()> {
    let too_large = |_| io::Error::from_raw_os_error(libc::EFBIG);
    let offset = libc::off64_t::try_from(offset).map_err(too_large)?;
    let len = libc::off64_t::try_from(len).map_err(too_large)?;
    let flags =
        libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WRITE | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    // SAFETY: no memory is passed; the descriptor is open for as long as it is borrowed.
    match unsafe { libc::sync_file_range(fd.as_raw_fd(), offset, len, flags) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The number of `cachestat` (Linux 6.5); new calls have the same number on all architectures but alpha.
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

/// How many pages of the range the page cache holds.
pub(crate) fn cachestat(fd: BorrowedFd<'_>, offset: u64, len: u64) -> io::Result<u64> {
    let range = CachestatRange { offset, len };
    let mut answer = Cachestat::default();
    // SAFETY: both structures are live and laid out as the kernel's; it reads the first, fills the second, and keeps neither.
    let code = unsafe {
        libc::syscall(SYS_CACHESTAT, fd.as_raw_fd(), &raw const range, &raw mut answer, 0 as libc::c_uint)
    };
    if code == 0 { Ok(answer.cached) } else { Err(io::Error::last_os_error()) }
}

/// `readahead`: starts reading a range into the page cache.
pub(crate) fn readahead(fd: BorrowedFd<'_>, offset: u64, len: usize) -> io::Result<()> {
    let too_large = |_| io::Error::from_raw_os_error(libc::EFBIG);
    let offset = libc::off64_t::try_from(offset).map_err(too_large)?;
    // SAFETY: no memory is passed; the descriptor is open for as long as it is borrowed.
    match unsafe { libc::readahead(fd.as_raw_fd(), offset, len) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
