//! The exclusive lock on a file, by open file description: whoever has it, in whichever process or thread.
//!
//! *Owns*: the lock file's descriptor and the note in it. *May not touch*: other files; whether a lock means a writer.
//!
//! A lock of the older kind belongs to the process and is lost when the process closes *any* descriptor of the file;
//! `flock` is emulated by the other kind on some network file systems. A lock of the open file description has neither
//! flaw, and `F_OFD_GETLK` asks for it without taking it.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::sys;
use crate::transfer::retry;

/// As much of a note as is read.
const NOTE_MAX_BYTES: usize = 100;
/// What is said of a holder who left no note.
const NO_NOTE: &str = "another process";

/// The exclusive lock on a file; released when dropped.
#[derive(Debug)]
pub struct OsLock {
    file: File,
    path: PathBuf,
    /// Who took it. A child that was forked shares the lock and must not give it back.
    process: u32,
}

impl OsLock {
    /// The file that is locked.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// `None` if somebody else has it.
    pub(crate) fn take(path: &Path) -> Result<Option<Self>> {
        let file = open(path, true).map_err(|source| {
            Error::new("open lock", path, source).advise("choose a directory that you may write to")
        })?;
        match retry(|| sys::set_description_lock(file.as_fd(), libc::F_WRLCK)) {
            Ok(()) => {}
            Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => {
                return Ok(None);
            }
            Err(source) => return Err(no_locks(path, source)),
        }
        let lock = Self { file, path: path.to_path_buf(), process: std::process::id() };
        lock.leave_note();
        Ok(Some(lock))
    }

    /// For people only, so it may fail: on a full disk there is no block for it. Then nobody else's note is to stay.
    fn leave_note(&self) {
        let note = format!("process {}\n", self.process);
        let is_left = retry(|| self.file.write_all_at(note.as_bytes(), 0)).is_ok();
        let len = if is_left { note.len() as u64 } else { 0 };
        // Written first, cut after: who reads in between finds the note in the first line.
        let _ = retry(|| self.file.set_len(len));
    }
}

impl Drop for OsLock {
    fn drop(&mut self) {
        // Closing is not enough: a child between fork and exec has the open file description too.
        if self.process == std::process::id() {
            let _ = retry(|| sys::set_description_lock(self.file.as_fd(), libc::F_UNLCK));
        }
    }
}

/// Who holds the lock on the file, in words; `None` if nobody.
pub(crate) fn holder(path: &Path) -> Result<Option<String>> {
    let file = match open(path, false) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => {
            let advice = "ask as a user who may read the lock file";
            return Err(Error::new("open lock", path, source).advise(advice));
        }
    };
    let is_locked =
        retry(|| sys::is_locked_by_other(file.as_fd())).map_err(|source| no_locks(path, source))?;
    Ok(is_locked.then(|| note_in(&file)))
}

fn note_in(file: &File) -> String {
    let mut bytes = [0; NOTE_MAX_BYTES];
    let count = retry(|| file.read_at(&mut bytes, 0)).unwrap_or(0);
    let text = String::from_utf8_lossy(&bytes[..count]);
    let line = text.lines().next().unwrap_or_default().trim();
    // What is in the file may be anybody's: nothing that a terminal would obey.
    let is_plain = !line.is_empty() && line.chars().all(|char| !char.is_control());
    if is_plain { line.to_owned() } else { NO_NOTE.to_owned() }
}

fn no_locks(path: &Path, source: io::Error) -> Error {
    Error::new("lock", path, source).advise("choose a directory on a file system with record locks")
}

/// Opens a lock file, but nothing that only pretends to be one: no link, no pipe to wait at.
fn open(path: &Path, to_take: bool) -> io::Result<File> {
    let how = || {
        OpenOptions::new()
            .read(true)
            .write(to_take)
            .create(to_take)
            .truncate(false)
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC)
            .open(path)
    };
    let file = retry(how)?;
    if file.metadata()?.is_file() {
        return Ok(file);
    }
    Err(io::Error::new(io::ErrorKind::InvalidData, "the lock is no plain file"))
}
