//! A directory of the operating system behind the seam.
//!
//! *Owns*: opening, renaming, removing, listing, and the directory's own sync. *May not touch*: what files hold.

use std::fs;
use std::path::{Path, PathBuf};

use crate::engine::OsEngine;
use crate::error::{Error, Result};
use crate::file::OsFile;
use crate::seam::{Directory, OpenFile};
use crate::strategy::EngineKind;
use crate::transfer::retry;

/// A directory of the operating system.
#[derive(Debug)]
pub struct OsDirectory {
    path: PathBuf,
}

impl OsDirectory {
    /// An existing directory.
    ///
    /// # Errors
    /// When it is missing, no directory, or may not be looked into.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self> {
        let path = path.into();
        let metadata = fs::metadata(&path).map_err(|source| Error::new("open directory", &path, source))?;
        if !metadata.is_dir() {
            return Err(Error::invalid("open directory", &path, "it is not a directory"));
        }
        Ok(Self { path })
    }

    fn join(&self, name: &str) -> Result<PathBuf> {
        if name.is_empty() || name.contains('/') || name == "." || name == ".." {
            return Err(Error::invalid(
                "open",
                self.path.join(name),
                "a file's name has no slash and is not empty",
            ));
        }
        Ok(self.path.join(name))
    }
}

/// Makes creations, renames and removals in the directory durable.
///
/// # Errors
/// What the file system answers.
pub fn sync_directory(path: &Path) -> Result<()> {
    let directory = fs::File::open(path).map_err(|source| Error::new("open directory", path, source))?;
    retry(|| directory.sync_all()).map_err(|source| Error::new("fsync directory", path, source))
}

impl Directory for OsDirectory {
    type File = OsFile;
    type Engine = OsEngine;

    fn path(&self) -> &Path {
        &self.path
    }

    fn open(&self, name: &str, how: &OpenFile) -> Result<OsFile> {
        OsFile::open(&self.join(name)?, how)
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        let (from, to) = (self.join(from)?, self.join(to)?);
        fs::rename(&from, &to).map_err(|source| Error::new("rename", &from, source))
    }

    fn remove(&self, name: &str) -> Result<()> {
        let path = self.join(name)?;
        fs::remove_file(&path).map_err(|source| Error::new("unlink", &path, source))
    }

    fn list(&self) -> Result<Vec<String>> {
        let failed = |source| Error::new("list directory", &self.path, source);
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            if entry.file_type().map_err(failed)?.is_file() {
                // A name that is no UTF-8 is none of ours.
                names.extend(entry.file_name().into_string());
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    fn sync(&self) -> Result<()> {
        sync_directory(&self.path)
    }

    fn engine(&self, kind: EngineKind, depth: usize) -> Result<OsEngine> {
        OsEngine::open(kind, depth)
    }
}
