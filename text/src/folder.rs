//! The directory of a log, held open, and the locks that keep a second writer away.
//!
//! *Owns*: the directory, when it is opened again by its path, letting it go while its disk is
//! away; the lock of the current file, and of the next one while a rotation is under way. *May not
//! touch*: what files hold; how long an opening waits ([`opening`](crate::opening)).
//!
//! Rotating, compressing and removing happen in the directory that was opened, wherever its path
//! leads by then: another directory under that path may hold another log. It is opened again by its
//! path when the caller asks to reopen the file by its name, when the directory was removed, and
//! when its disk failed and is not there any more. In that case nothing of the disk stays open, so
//! that it can be unmounted, and another one that is mounted in its place counts only if it has the
//! log's file: until then the path leads to the empty directory below.
//!
//! The lock is on the file that has the log's name. A rotation locks the next file before it
//! renames the current one, and an opening that finds no file of the log's name looks for that lock
//! first: so there is no moment in which another writer could come in between.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use inkstone_io::{Directory as _, Error, OpenFile, OsDirectory, Result, Taken, WriterLock};

use crate::event::{Event, Events};

/// By default the umask alone decides who may read a text log.
pub(crate) const FILE_MODE: u32 = 0o666;
/// How often a log looks for its directory while the disk is away.
pub(crate) const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A log's directory.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    /// The name of the log's file.
    log: String,
    held: Mutex<Held>,
}

#[derive(Debug)]
enum Held {
    Here(Arc<OsDirectory>),
    Away { looked: Instant, why: Error },
}

impl Folder {
    pub(crate) fn open(path: PathBuf, log: &str) -> Result<Self> {
        let held = Mutex::new(Held::Here(Arc::new(OsDirectory::open(&path)?.file_mode(FILE_MODE))));
        Ok(Self { path, log: log.to_owned(), held })
    }

    pub(crate) fn log(&self) -> &str {
        &self.log
    }

    /// Its path when it was opened; for messages.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The directory, for calls that belong together.
    ///
    /// # Errors
    /// Its disk is away; looked for at most once a second.
    pub(crate) fn get(&self) -> Result<Arc<OsDirectory>> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        match &*held {
            Held::Here(directory) => return Ok(Arc::clone(directory)),
            Held::Away { looked, why } if looked.elapsed() < LOOK_EVERY => return Err(why.clone()),
            Held::Away { .. } => {}
        }
        let found = self.find().map(Arc::new);
        *held = match found.clone() {
            Ok(found) => Held::Here(found),
            Err(why) => Held::Away { looked: Instant::now(), why },
        };
        found
    }

    /// Switches to the directory that its path leads to now, whatever is in it; keeps the old one
    /// if there is none.
    pub(crate) fn look_again(&self) {
        if let Ok(found) = OsDirectory::open(&self.path) {
            let found = found.file_mode(FILE_MODE);
            *self.held.lock().unwrap_or_else(PoisonError::into_inner) = Held::Here(Arc::new(found));
        }
    }

    /// After a failure of the disk: looks whether the path still leads to this directory, and
    /// whether the log's file can still be opened in it. If not, lets the directory go and returns
    /// true: it is looked for from now on.
    pub(crate) fn is_let_go(&self, why: &Error) -> bool {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let Held::Here(directory) = &*held else { return true };
        let here = directory.identity();
        let is_same = |found: &OsDirectory| {
            matches!((&here, found.identity()), (Ok(here), Ok(found)) if *here == found)
                && !why.is_stale()
        };
        let opened = OsDirectory::open(&self.path).and_then(|found| {
            let is_same = is_same(&found);
            // A file that was moved away is no reason to leave a directory that is still there.
            match found.open(&self.log, &OpenFile::existing().read_only()) {
                Err(error) if error.is_disk_gone() => Err(error),
                _ => Ok(is_same),
            }
        });
        if matches!(opened, Ok(true)) {
            return false;
        }
        // Looked for at once: a server that was started again has it already.
        let looked = Instant::now().checked_sub(LOOK_EVERY).unwrap_or_else(Instant::now);
        *held = Held::Away { looked, why: why.clone() };
        true
    }

    /// The directory that the path leads to now, if it has the log's file.
    fn find(&self) -> Result<OsDirectory> {
        let found = OsDirectory::open(&self.path)?.file_mode(FILE_MODE);
        found.open(&self.log, &OpenFile::existing().read_only()).map_err(|error| {
            if error.kind() != ErrorKind::NotFound {
                return error;
            }
            let why = io::Error::new(
                ErrorKind::NotFound,
                "its disk is away, and no such file is \
                                                           there now",
            );
            Error::new("open log", self.path.join(&self.log), why).advise(
                "mount the disk; or, to go on in what is there now, create the file or have the \
                 log reopened (a HUP)",
            )
        })?;
        Ok(found)
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
