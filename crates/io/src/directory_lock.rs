//! The lock of a directory itself (`flock`): it keeps a second holder out also when the lock file
//! was removed, moved or replaced.
//!
//! *Owns*: the descriptor that has the lock, and which file systems' locks count. *May not touch*:
//! the lock file (`lock.rs`), which is locked first.
//!
//! The kernel keeps such a lock with the directory's inode. On a network file system or FUSE each
//! machine, or each mount, may keep its own: there it proves nothing and is not taken. A reader
//! never takes it.

use std::io::{self, ErrorKind};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::error::{Error, Result};
use crate::fork::ForkMark;
use crate::held::Held;
use crate::lock_table::{Entry, while_no_fork};
use crate::sys::{self, BTRFS, EXT4, F2FS, OVERLAY, TMPFS, XFS};

/// File systems of which one kernel has all holders. An overlay is one as far as its mount goes.
const OF_ONE_KERNEL: [u32; 6] = [EXT4, XFS, BTRFS, F2FS, TMPFS, OVERLAY];
/// Others hold such a lock for a moment: systemd-tmpfiles does while it looks for old files.
const PATIENCE: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(10);

/// The lock of a directory itself; released when dropped, and not kept by a forked child.
#[derive(Debug)]
pub struct DirectoryLock {
    // Closed after the entry was removed from the table.
    descriptor: OwnedFd,
    entry: Entry,
    mark: ForkMark,
}

impl DirectoryLock {
    /// As [`Directory::lock_itself`](crate::Directory::lock_itself).
    pub(crate) fn take(held: &Held, mark: ForkMark) -> Result<Option<Self>> {
        let counts = sys::file_system(held.as_fd())
            .is_ok_and(|system| OF_ONE_KERNEL.contains(&system.number));
        if !counts {
            return Ok(None);
        }
        let until = Instant::now() + PATIENCE;
        loop {
            match while_no_fork(|| Self::attempt(held, mark)) {
                Ok(lock) => return Ok(Some(lock)),
                Err(Errno::WOULDBLOCK) if Instant::now() >= until => return Err(busy(held)),
                Err(Errno::WOULDBLOCK) => std::thread::sleep(PAUSE),
                Err(Errno::INTR) => {}
                // A user who may not read the directory; a sandbox.
                Err(_) => return Ok(None),
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

fn busy(held: &Held) -> Error {
    let what = "another process has a lock on the directory itself";
    Error::new("lock directory", held.path(), io::Error::new(ErrorKind::ResourceBusy, what))
        .advise("end that process, which `lslocks` shows; a removed lock file lets nobody in")
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
