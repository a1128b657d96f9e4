//! The directory of a log, held open.
//!
//! *Owns*: the directory, when it is opened again by its path, and letting it go while its disk is
//! away. *May not touch*: what files hold.
//!
//! Rotating, compressing and removing happen in the directory that was opened, wherever its path
//! leads by then: another directory under that path may hold another log. It is opened again by its
//! path when the caller asks to reopen the file by its name, when the directory was removed, and
//! when its disk failed and is not there any more. In that case nothing of the disk stays open, so
//! that it can be unmounted, and another one that is mounted in its place counts only if it has the
//! log's file: until then the path leads to the empty directory below.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use inkstone_io::{Directory as _, Error, OpenFile, OsDirectory, Result};

/// By default the umask alone decides who may read a text log.
pub(crate) const FILE_MODE: u32 = 0o666;
/// How often a log looks for its directory while the disk is away.
pub(crate) const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A log's directory.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    /// Mode of the files created in it.
    file_mode: u32,
    held: Mutex<Held>,
}

#[derive(Debug)]
enum Held {
    Here(Arc<OsDirectory>),
    Away { log: String, looked: Instant, why: Error },
}

impl Folder {
    pub(crate) fn open(path: PathBuf, file_mode: u32) -> Result<Self> {
        let held = Mutex::new(Held::Here(Arc::new(OsDirectory::open(&path)?.file_mode(file_mode))));
        Ok(Self { path, file_mode, held })
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
        let (log, looked, last) = match &*held {
            Held::Here(directory) => return Ok(Arc::clone(directory)),
            Held::Away { log, looked, why } => (log.clone(), *looked, why.clone()),
        };
        if looked.elapsed() < LOOK_EVERY {
            return Err(last);
        }
        match self.find(&log) {
            Ok(found) => {
                let found = Arc::new(found);
                *held = Held::Here(Arc::clone(&found));
                Ok(found)
            }
            Err(why) => {
                *held = Held::Away { log, looked: Instant::now(), why: why.clone() };
                Err(why)
            }
        }
    }

    /// Switches to the directory that its path leads to now, whatever is in it; keeps the old one
    /// if there is none.
    pub(crate) fn look_again(&self) {
        if let Ok(found) = OsDirectory::open(&self.path) {
            let found = found.file_mode(self.file_mode);
            *self.held.lock().unwrap_or_else(PoisonError::into_inner) = Held::Here(Arc::new(found));
        }
    }

    /// After a failure of the disk: looks whether the path still leads to this directory, and
    /// whether the log's file can still be opened in it. If not, lets the directory go and returns
    /// true: it is looked for from now on.
    pub(crate) fn is_let_go(&self, log: &str, why: &Error) -> bool {
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
            match found.open(log, &OpenFile::existing().read_only()) {
                Err(error) if error.is_disk_gone() => Err(error),
                _ => Ok(is_same),
            }
        });
        if matches!(opened, Ok(true)) {
            return false;
        }
        // Looked for at once: a server that was started again has it already.
        let looked = Instant::now().checked_sub(LOOK_EVERY).unwrap_or_else(Instant::now);
        *held = Held::Away { log: log.to_owned(), looked, why: why.clone() };
        true
    }

    /// The directory that the path leads to now, if it has the log's file.
    fn find(&self, log: &str) -> Result<OsDirectory> {
        let found = OsDirectory::open(&self.path)?.file_mode(self.file_mode);
        found.open(log, &OpenFile::existing().read_only()).map_err(|error| {
            if error.kind() != io::ErrorKind::NotFound {
                return error;
            }
            let why = io::Error::new(io::ErrorKind::NotFound, "its disk is away, and no such file is there now");
            Error::new("open log", self.path.join(log), why).advise(
                "mount the disk; or, to go on in what is there now, create the file or have the log reopened (a HUP)",
            )
        })?;
        Ok(found)
    }
}
