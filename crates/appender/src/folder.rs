//! The directory that a log lies in, held open.
//!
//! *Owns*: the directory, and when it is looked for again by its path. *May not touch*: files.
//!
//! Rotating, compressing and removing happen in the directory that was opened, wherever its path leads by then: in another
//! one of that path there may be another log. It is looked for again when somebody asks for the file to be opened again by
//! its name, and when it was removed.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use inkstone_io::{OsDirectory, Result};

/// Files of a text log are for whoever the umask lets read them, unless somebody says otherwise.
pub(crate) const FILE_MODE: u32 = 0o666;

/// A log's directory.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    /// Of the files that are created in it.
    file_mode: u32,
    held: Mutex<Arc<OsDirectory>>,
}

impl Folder {
    pub(crate) fn open(path: PathBuf, file_mode: u32) -> Result<Self> {
        let held = Mutex::new(Arc::new(OsDirectory::open(&path)?.file_mode(file_mode)));
        Ok(Self { path, file_mode, held })
    }

    /// As it was opened; for messages.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The directory, for a few calls that belong together.
    pub(crate) fn get(&self) -> Arc<OsDirectory> {
        Arc::clone(&self.held.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes the directory that its path leads to now. Where there is none, the old one is kept.
    pub(crate) fn look_again(&self) {
        if let Ok(found) = OsDirectory::open(&self.path) {
            let found = found.file_mode(self.file_mode);
            *self.held.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(found);
        }
    }
}
