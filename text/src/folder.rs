//! The directory of a log, held open, and the locks that keep a second writer away.
//!
//! *Owns*: the directory, and opening it again by its path; the lock of the current file, and of
//! the next one while a rotation is under way. *May not touch*: what files hold; how long an
//! opening waits ([`opening`](crate::opening)).
//!
//! Rotating, compressing and removing happen in the directory that was opened, wherever its path
//! leads by then: another directory under that path may hold another log. It is opened again by its
//! path when the caller asks to reopen the file by its name, and when the directory was removed.
//!
//! The lock is on the file that has the log's name. A rotation locks the next file before it
//! renames the current one, and an opening that finds no file of the log's name looks for that lock
//! first: so there is no moment in which another writer could come in between.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use inkstone_io::{Directory as _, Error, OsDirectory, Result, Taken, WriterLock};

use crate::event::{Event, Events};

/// By default the umask alone decides who may read a text log.
pub(crate) const FILE_MODE: u32 = 0o666;

/// A log's directory.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    /// The name of the log's file.
    log: String,
    held: Mutex<Arc<OsDirectory>>,
}

impl Folder {
    pub(crate) fn open(path: PathBuf, log: &str) -> Result<Self> {
        let held = Mutex::new(Arc::new(Self::open_at(&path)?));
        Ok(Self { path, log: log.to_owned(), held })
    }

    fn open_at(path: &Path) -> Result<OsDirectory> {
        Ok(OsDirectory::open(path)?.file_mode(FILE_MODE))
    }

    pub(crate) fn log(&self) -> &str {
        &self.log
    }

    /// Its path when it was opened; for messages.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn lock(&self) -> MutexGuard<'_, Arc<OsDirectory>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The directory, for calls that belong together.
    pub(crate) fn get(&self) -> Arc<OsDirectory> {
        Arc::clone(&self.lock())
    }

    /// Switches to the directory that its path leads to now, whatever is in it; keeps the old one
    /// if there is none.
    pub(crate) fn look_again(&self) {
        if let Ok(found) = Self::open_at(&self.path) {
            *self.lock() = Arc::new(found);
        }
    }
}

/// The locks of one log.
#[derive(Debug, Default)]
pub(crate) struct Alone {
    current: Option<WriterLock>,
    /// That of the next file, until it has the log's name.
    next: Option<WriterLock>,
    /// The event that there are no locks was sent.
    is_told: bool,
}

impl Alone {
    /// Whether this log has the lock of the file that it has opened by its name.
    pub(crate) fn has(&mut self, file: (u64, u64)) -> bool {
        let is_of = |lock: &Option<WriterLock>| {
            lock.as_ref().map(WriterLock::device_and_inode) == Some(file)
        };
        if is_of(&self.next) {
            self.current = self.next.take();
        }
        is_of(&self.current)
    }

    /// Takes the lock of the file of this name. True: taken, and the name may lead elsewhere by
    /// now. False: this log has it already, or there is nothing to lock, or no way to: an event
    /// says so once.
    ///
    /// # Errors
    /// Another writer has it ([`is_others`]), or what the file system answers.
    pub(crate) fn take(
        &mut self,
        directory: &OsDirectory,
        name: &str,
        events: &Events,
    ) -> Result<bool> {
        match WriterLock::take(directory, name, self.current.as_ref())? {
            Taken::Locked(lock) => self.current = Some(lock),
            Taken::Others => return Err(others(&directory.path().join(name))),
            Taken::Same | Taken::NoFile => return Ok(false),
            Taken::NoLocks(error) => {
                if !std::mem::replace(&mut self.is_told, true) {
                    let advice =
                        "lines are written, but nothing keeps a second writer away: start none";
                    events.tell(&Event::HousekeepingFailed(&error.advise(advice)));
                }
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Takes the lock of the next file, if there is one under this name.
    ///
    /// # Errors
    /// Another writer is just rotating this log ([`is_others`]), or what the file system answers.
    pub(crate) fn take_next(
        &mut self,
        directory: &OsDirectory,
        next: &str,
        name: &str,
    ) -> Result<()> {
        match WriterLock::take(directory, next, self.next.as_ref())? {
            Taken::Locked(lock) => self.next = Some(lock),
            Taken::Others => return Err(others(&directory.path().join(name))),
            Taken::Same | Taken::NoFile | Taken::NoLocks(_) => {}
        }
        Ok(())
    }

    /// No rotation is under way.
    pub(crate) fn let_next_go(&mut self) {
        self.next = None;
    }
}

/// The error for a log that another writer has.
pub(crate) fn others(log: &Path) -> Error {
    let why = io::Error::new(ErrorKind::ResourceBusy, "another writer has it open");
    Error::new("open log", log, why)
        .advise("end that one first, or choose another file; `fuser -v` names it")
}

/// Whether it is the error for a log that another writer has.
pub(crate) fn is_others(error: &Error) -> bool {
    error.kind() == ErrorKind::ResourceBusy && error.raw_os_error().is_none()
}
