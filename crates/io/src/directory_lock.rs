//! The lock of a directory itself (`flock`): it keeps a second holder out also when the lock file
//! was removed, moved or replaced.
//!
//! *Owns*: the descriptor that has the lock, and which file systems' locks count. *May not touch*:
//! the lock file (`lock.rs`), which is locked first.
//!
//! The kernel keeps such a lock with the directory's inode. On a network file system or FUSE each
//! machine, or each mount, may keep its own: there it proves nothing and is not taken. A reader
//! never takes it.

use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::fork::ForkMark;
use crate::held::Held;
use crate::lock_table::{Entry, while_no_fork};
use crate::sys::{self, BTRFS, EXT4, F2FS, OVERLAY, TMPFS, XFS};

/// File systems of which one kernel has all holders. An overlay is one as far as its mount goes.
const OF_ONE_KERNEL: [u32; 6] = [EXT4, XFS, BTRFS, F2FS, TMPFS, OVERLAY];
/// Others hold such a lock for a moment: systemd-tmpfiles does while it looks for old files.
const PATIENCE: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(10);

/// What came of asking for the lock.
pub(crate) enum Asked {
    Taken(DirectoryLock),
    /// Another process has had it for a second.
    Busy,
    /// No such lock counts here, or this process may not have one.
    NotHere,
}

/// The lock; released when dropped, and not kept by a forked child.
#[derive(Debug)]
pub(crate) struct DirectoryLock {
    // Closed after the entry was removed from the table.
    descriptor: OwnedFd,
    entry: Entry,
    mark: ForkMark,
}

impl DirectoryLock {
    /// Takes it; waits for up to a second while another process has it.
    pub(crate) fn take(held: &Held, mark: ForkMark) -> Asked {
        let counts = sys::file_system(held.as_fd())
            .is_ok_and(|system| OF_ONE_KERNEL.contains(&system.number));
        if !counts {
            return Asked::NotHere;
        }
        let until = Instant::now() + PATIENCE;
        loop {
            match while_no_fork(|| Self::attempt(held, mark)) {
                Ok(lock) => return Asked::Taken(lock),
                Err(Errno::WOULDBLOCK) if Instant::now() >= until => return Asked::Busy,
                Err(Errno::WOULDBLOCK) => std::thread::sleep(PAUSE),
                Err(Errno::INTR) => {}
                // A user who may not read the directory; a sandbox.
                Err(_) => return Asked::NotHere,
            }
        }
    }

    fn attempt(held: &Held, mark: ForkMark) -> rustix::io::Result<Self> {
        let descriptor = held
            .fresh()
            .map_err(|error| error.raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error))?;
        let entry = Entry::of(descriptor.as_raw_fd());
        // Dropped after a refusal, it unlocks a lock that it does not hold, which does nothing.
        let lock = Self { descriptor, entry, mark };
        flock(&lock.descriptor, FlockOperation::NonBlockingLockExclusive)?;
        Ok(lock)
    }
}

impl Drop for DirectoryLock {
    fn drop(&mut self) {
        // As for the lock file (`lock.rs`): in a child the descriptor means something else.
        if self.mark.is_child() {
            return;
        }
        let _ = flock(&self.descriptor, FlockOperation::Unlock);
        self.entry.forget();
    }
}
