//! The directory of a log, held open.
//!
//! *Owns*: the directory, and when it is opened again by its path. *May not touch*: files.
//!
//! Rotating, compressing and removing happen in the directory that was opened, wherever its path leads by then: another directory
//! under that path may hold another log. It is opened again by its path when the caller asks to reopen the file by its name, and
//! when the directory was removed.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use inkstone_io::{OsDirectory, Result};

/// By default the umask alone decides who may read a text log.
pub(crate) const FILE_MODE: u32 = 0o666;

/// A log's directory.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    /// Mode of the files created in it.
    file_mode: u32,
    held: Mutex<Arc<OsDirectory>>,
}

impl Folder {
    pub(crate) fn open(path: PathBuf, file_mode: u32) -> Result<Self> {
        let held = Mutex::new(Arc::new(OsDirectory::open(&path)?.file_mode(file_mode)));
        Ok(Self { path, file_mode, held })
    }

    /// Its path when it was opened; for messages.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The directory, for calls that belong together.
    pub(crate) fn get(&self) -> Arc<OsDirectory> {
        Arc::clone(&self.held.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Switches to the directory that its path leads to now; keeps the old one if there is none.
    pub(crate) fn look_again(&self) {
        if let Ok(found) = OsDirectory::open(&self.path) {
            let found = found.file_mode(self.file_mode);
            *self.held.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(found);
        }
    }
}
