//! The directory of a log, by its path: found, or created.
//!
//! *Owns*: what a missing directory is. *May not touch*: the files in it.

use std::io::ErrorKind::NotFound;
use std::path::Path;

use inkstone_io::{AnyDirectory, OsDirectory};

use crate::error::{Error, Result};
use crate::names::{LOCK, newest_segment};
use crate::options::Options;

/// The directory of a log that is not to be created.
///
/// # Errors
/// [`Error::NoLog`] when the directory is missing, as when only the log in it is; what the file
/// system answers.
pub fn find_directory(path: impl AsRef<Path>) -> Result<OsDirectory> {
    let path = path.as_ref();
    OsDirectory::open(path).map_err(|error| match error.kind() {
        NotFound => Error::NoLog { path: path.to_path_buf(), missing: None },
        _ => error.into(),
    })
}

/// The same directory. What is created there belongs to whom the log's files belong, also where
/// another user opens the log: root, for a moment.
///
/// # Errors
/// This user can make no such files; what the file system answers.
pub(crate) fn for_files_of_the_log(directory: AnyDirectory) -> Result<AnyDirectory> {
    let names = directory.list()?;
    let example = newest_segment(&names).unwrap_or(LOCK);
    Ok(directory.files_like(example)?.unwrap_or(directory))
}

/// The directory in which a log is made, which may be there already.
///
/// # Errors
/// [`Error::NoLog`] when a directory above it is missing, and the options do not permit to create
/// that; what the file system answers.
pub(crate) fn create_directory(path: &Path, options: &Options) -> Result<OsDirectory> {
    if options.create_parents {
        return Ok(OsDirectory::create_with_mode(path, options.file_mode)?);
    }
    OsDirectory::create_in_parent(path, options.file_mode).map_err(|error| {
        let missing = OsDirectory::missing_above(path).filter(|_| error.kind() == NotFound);
        match missing.map(Path::to_path_buf) {
            Some(missing) => Error::NoLog { path: path.to_path_buf(), missing: Some(missing) },
            None => error.into(),
        }
    })
}
