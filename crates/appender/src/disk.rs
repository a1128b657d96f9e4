//! The seam to the disk: opening a log file, and what is done with an open one.
//!
//! *Owns*: the two traits and their form over [`inkstone_io::AppendFile`]. *May not touch*: when to write what.
//! A test, or a program with a place of its own for log lines, puts something else here ([`crate::Builder::open_on`]).

use std::fmt;

use inkstone_io::{AppendFacts, AppendFile, OsDirectory, Result, SyncKind};

/// Opens log files.
pub trait Disk: Send + 'static {
    /// Opens the file of this name for appending, creating it if it is not there. The directory is held open: a file opened
    /// by a path made of it and the name may be another one.
    ///
    /// # Errors
    /// It could not be opened; it will be tried again.
    fn open(&self, directory: &OsDirectory, name: &str) -> Result<Box<dyn LogFile>>;
}

/// An open log file.
pub trait LogFile: Send + fmt::Debug {
    /// Writes from the front of `bytes`, once; says how many were taken.
    ///
    /// # Errors
    /// None was taken; it will be tried again.
    fn append(&self, bytes: &[u8]) -> Result<usize>;

    /// Who the file is, and how far it has come.
    ///
    /// # Errors
    /// The file system did not answer; the call will be made again.
    fn facts(&self) -> Result<AppendFacts>;

    /// Makes what was appended durable.
    ///
    /// # Errors
    /// It may be lost; it is not tried again.
    fn sync(&self) -> Result<()>;

    /// Reserves blocks for the first so many bytes, without changing the size. Does nothing unless it is said.
    ///
    /// # Errors
    /// Told, and written all the same.
    fn reserve(&self, len_bytes: u64) -> Result<()> {
        let _ = len_bytes;
        Ok(())
    }

    /// Gives back what was reserved behind the end.
    ///
    /// # Errors
    /// Told only.
    fn give_back(&self) -> Result<()> {
        Ok(())
    }
}

/// Files of the operating system.
#[derive(Debug, Clone, Copy, Default)]
pub struct OsDisk;

impl Disk for OsDisk {
    fn open(&self, directory: &OsDirectory, name: &str) -> Result<Box<dyn LogFile>> {
        Ok(Box::new(AppendFile::open(directory, name)?))
    }
}

impl LogFile for AppendFile {
    fn append(&self, bytes: &[u8]) -> Result<usize> {
        AppendFile::append(self, bytes)
    }

    fn facts(&self) -> Result<AppendFacts> {
        AppendFile::facts(self)
    }

    fn sync(&self) -> Result<()> {
        AppendFile::sync(self, SyncKind::Data)
    }

    fn reserve(&self, len_bytes: u64) -> Result<()> {
        AppendFile::reserve(self, len_bytes)
    }

    fn give_back(&self) -> Result<()> {
        AppendFile::give_back(self)
    }
}
