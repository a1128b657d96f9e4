//! One writer for each log.
//!
//! *Owns*: the lock of the current file, and of the next one while a rotation is under way; how a
//! second writer is refused. *May not touch*: the files; how long an opening waits
//! ([`crate::opening`]).
//!
//! The lock is on the file that has the log's name. A rotation locks the next file before it
//! renames the current one, and an opening that finds no file of the log's name looks for that lock
//! first: so there is no moment in which another writer could come in between.

use std::io::{self, ErrorKind};
use std::path::Path;

use inkstone_io::{Directory as _, Error, OsDirectory, Result, Taken, WriterLock};

use crate::event::{Event, Events};

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

    /// The disk of the files is away.
    pub(crate) fn let_go(&mut self) {
        (self.current, self.next) = (None, None);
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
