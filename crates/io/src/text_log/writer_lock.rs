//! The lock that keeps a second writer away from a log's file.
//!
//! *Owns*: taking it, and the file that has it. *May not touch*: what the file holds; when it is
//! taken, and what for.
//!
//! It is on the file, not beside it: who may write the log may lock it, nothing is left behind, and
//! a second name of the file (a hard link) leads to the same lock. It moves with the file when that
//! is renamed, so whoever has the lock of the *name* opens the name again behind it.

use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;

use rustix::fs::OFlags;

use crate::directory::OsDirectory;
use crate::error::{Error, Result};
use crate::fork::ForkMark;
use crate::lock::LockedFile;
use crate::sys::LockedBytes;
use crate::text_log::append_file::AppendFile;

/// The exclusive lock on a log's file; released when dropped, and not kept by a forked child.
#[derive(Debug)]
pub struct WriterLock {
    // Released when it is dropped.
    _locked: LockedFile,
    device: u64,
    inode: u64,
}

/// The answer to an attempt to take the lock.
#[derive(Debug)]
pub enum Taken {
    /// It was free.
    Locked(WriterLock),
    /// It is the one that the caller has already.
    Same,
    /// Another writer has it, in this process or another one.
    Others,
    /// There is no file of this name.
    NoFile,
    /// This file system has no locks, or this process may take none (a sandbox, a security module).
    NoLocks(Error),
}

impl WriterLock {
    /// Takes the lock of the file of this name, without waiting; `own`: the lock that the caller
    /// has already.
    ///
    /// # Errors
    /// The name leads to something else than a plain file, or what the file system answers.
    pub fn take(directory: &OsDirectory, name: &str, own: Option<&Self>) -> Result<Taken> {
        let open = || AppendFile::open_with(directory, name, "lock log", OFlags::empty(), 0);
        let identity = |file: &File| file.metadata().map(|facts| (facts.dev(), facts.ino()));
        let failed = |source| Error::new("fstat", directory.held().join(name), source);
        let first = match open() {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Taken::NoFile),
            opened => opened?,
        };
        // Its own lock would be in its way.
        let here = identity(first.std_file()).map_err(failed)?;
        if own.is_some_and(|own| own.device_and_inode() == here) {
            return Ok(Taken::Same);
        }
        let path = directory.held().join(name);
        let again = || open().map(AppendFile::into_file);
        match LockedFile::take(&path, LockedBytes::FarAway, ForkMark::new()?, again) {
            Ok(Some(locked)) => {
                let (device, inode) = identity(locked.file()).map_err(failed)?;
                Ok(Taken::Locked(Self { _locked: locked, device, inode }))
            }
            Ok(None) => Ok(Taken::Others),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Taken::NoFile),
            Err(error) if error.is_without_locks() => Ok(Taken::NoLocks(error)),
            Err(error) => Err(error),
        }
    }

    /// The file that has the lock, by the number of its file system and its own there.
    pub fn device_and_inode(&self) -> (u64, u64) {
        (self.device, self.inode)
    }
}
