//! The lock of an open file description, which Linux and macOS have by the same names.
//!
//! *Owns*: the calls and their structure. *May not touch*: the table of the locks that this process
//! holds (`lock_table.rs`).

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

// Their type differs between systems; that of the structure's field does not.
const EXCLUSIVE: libc::c_short = libc::F_WRLCK as libc::c_short;
const TO_READ: libc::c_short = libc::F_RDLCK as libc::c_short;
const FREE: libc::c_short = libc::F_UNLCK as libc::c_short;

/// Which bytes of a file are locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LockedBytes {
    All,
    /// One byte far behind the end of any file: where locks are mandatory (SMB), others may still
    /// read and write the file.
    #[allow(dead_code, reason = "only the text log takes it")]
    FarAway,
}

/// A record lock of these bytes, of this type, as `fcntl` takes it.
fn lock_of(bytes: LockedBytes, lock_type: libc::c_short) -> libc::flock {
    // SAFETY: `struct flock` is integers only, for which zeros are a value; an
    // open-file-description lock demands that `l_pid` be 0, and start and length 0 mean the whole
    // file.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = lock_type;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    if bytes == LockedBytes::FarAway {
        lock.l_start = libc::off_t::MAX / 2;
        lock.l_len = 1;
    }
    lock
}

/// Takes or releases the open file description's exclusive lock on these bytes; never waits.
pub(crate) fn set_description_lock(
    fd: BorrowedFd<'_>,
    bytes: LockedBytes,
    take: bool,
) -> io::Result<()> {
    let lock = lock_of(bytes, if take { EXCLUSIVE } else { FREE });
    // SAFETY: the descriptor is open for as long as it is borrowed; `lock` lives through the call,
    // which only reads it.
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

/// The lock that is in the way of an exclusive lock on these bytes, if there is one. Takes no lock.
pub(crate) fn lock_in_the_way(
    fd: BorrowedFd<'_>,
    bytes: LockedBytes,
) -> io::Result<Option<LockInTheWay>> {
    let mut lock = lock_of(bytes, EXCLUSIVE);
    // SAFETY: the descriptor is open for as long as it is borrowed; `lock` is a live, exclusively
    // borrowed `struct flock`.
    match unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_OFD_GETLK, &raw mut lock) } {
        0 => Ok((lock.l_type != FREE).then(|| LockInTheWay {
            is_to_read: lock.l_type == TO_READ,
            process: u32::try_from(lock.l_pid).ok().filter(|process| *process != 0),
        })),
        _ => Err(io::Error::last_os_error()),
    }
}
