//! The seam to the disk: opening a log file, and the operations on an open one.
//!
//! *Owns*: the two traits and their implementation over [`inkstone_io::AppendFile`]. *May not
//! touch*: when to write what. A test, or a program with its own place for log lines, implements
//! them differently ([`crate::Builder::open_on`]).

use std::fmt;

use inkstone_io::{AppendFacts, AppendFile, OsDirectory, Result, SyncKind};

/// Opens log files.
pub trait Disk: Send + 'static {
    /// Opens the file of this name for appending; creates it if it is missing. Use the directory
    /// handle: a path built from it and the name may lead to another file.
    ///
    /// # Errors
    /// The file could not be opened. The log will try again.
    fn open(&self, directory: &OsDirectory, name: &str) -> Result<Box<dyn LogFile>>;
}

/// An open log file.
pub trait LogFile: Send + fmt::Debug {
    /// Writes once, from the front of `bytes`; returns how many bytes it wrote.
    ///
    /// # Errors
    /// Nothing was written. The log will try again.
    fn append(&self, bytes: &[u8]) -> Result<usize>;

    /// The identity of the file, and its size.
    ///
    /// # Errors
    /// The file system did not answer. The log will call again.
    fn facts(&self) -> Result<AppendFacts>;

    /// Makes everything appended durable.
    ///
    /// # Errors
    /// Appended bytes may be lost. The log does not try again.
    fn sync(&self) -> Result<()>;
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
}
