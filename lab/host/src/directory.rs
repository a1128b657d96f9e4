//! The directory in which a lab works.
//!
//! *Owns*: nothing but which type its files have. *May not touch*: what [`OsDirectory`] does.

use std::ops::Deref;
use std::path::PathBuf;

use inkstone_io::{OpenFile, OsDirectory, Result};

use crate::lab_file::LabFile;

/// An [`OsDirectory`] whose files are [`LabFile`]s. Everything but opening is that of
/// [`OsDirectory`].
#[derive(Debug)]
pub struct LabDirectory(OsDirectory);

impl LabDirectory {
    /// Opens an existing directory.
    ///
    /// # Errors
    /// As [`OsDirectory::open`].
    pub fn at(path: impl Into<PathBuf>) -> Result<Self> {
        OsDirectory::open(path).map(Self)
    }

    /// Opens or creates a plain file.
    ///
    /// # Errors
    /// As [`LabFile::open_in`].
    pub fn open(&self, name: &str, how: &OpenFile) -> Result<LabFile> {
        LabFile::open_in(&self.0, name, how)
    }
}

impl Deref for LabDirectory {
    type Target = OsDirectory;

    fn deref(&self) -> &OsDirectory {
        &self.0
    }
}
