//! The seam to the disk: opening a log file, and the operations on an open one; reading what a file
//! holds at some place.
//!
//! *Owns*: the two traits and their implementation over [`inkstone_io::AppendFile`]. *May not
//! touch*: when to write what. A test, or a program with its own place for log lines, implements
//! them differently ([`Builder::open_on`](crate::Builder::open_on)).

use std::fmt;
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};

use inkstone_io::{AppendFacts, AppendFile, Directory as _, Error, OpenFile, OsDirectory, Result};

/// How often a file that is renamed meanwhile is looked for.
const LOOKS_MAX: usize = 10;

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
        AppendFile::sync(self)
    }
}

/// A place in a file of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) device: u64,
    pub(crate) inode: u64,
    pub(crate) offset: u64,
}

impl Place {
    pub(crate) fn end_of(facts: AppendFacts) -> Self {
        Self { device: facts.device, inode: facts.inode, offset: facts.len_bytes }
    }

    /// The file that it is in.
    pub(crate) fn file(self) -> (u64, u64) {
        (self.device, self.inode)
    }

    pub(crate) fn is_in(self, facts: AppendFacts) -> bool {
        self.file() == Place::end_of(facts).file()
    }
}

/// Up to this many bytes of the file from this place on.
pub(crate) fn read(
    directory: &OsDirectory,
    name: &str,
    offset: u64,
    most: usize,
) -> Result<Vec<u8>> {
    let file = directory.open(name, &OpenFile::existing().read_only())?;
    let failed = |source| Error::new("read log", directory.path().join(name), source).at(offset);
    let mut bytes = vec![0; most];
    let mut len = 0;
    while len < most {
        match file.std_file().read_at(&mut bytes[len..], offset + len as u64) {
            Ok(0) => break,
            Ok(count) => len += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(failed(error)),
        }
    }
    bytes.truncate(len);
    Ok(bytes)
}

/// The last byte of the open file, if it has any. Its name may have changed, may change while this
/// looks, and another file may have the log's name.
///
/// # Errors
/// `NotFound`: the file cannot be found.
pub(crate) fn last_byte(
    directory: &OsDirectory,
    name: &str,
    facts: AppendFacts,
) -> io::Result<Option<u8>> {
    let Some(at) = facts.len_bytes.checked_sub(1) else { return Ok(None) };
    for _ in 0..LOOKS_MAX {
        let Some((name, _)) = find(directory, name, facts.inode) else { break };
        let file = match directory.open(&name, &OpenFile::existing().read_only()) {
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            opened => opened.map_err(io::Error::other)?,
        };
        // The name may lead to another file by now.
        if file.std_file().metadata().is_ok_and(|opened| opened.ino() == facts.inode) {
            let mut last = [0];
            file.std_file().read_exact_at(&mut last, at)?;
            return Ok(Some(last[0]));
        }
    }
    Err(ErrorKind::NotFound.into())
}

/// The log's file with this inode, by its name, which may have changed.
pub(crate) fn find(
    directory: &OsDirectory,
    name: &str,
    inode: u64,
) -> Option<(String, AppendFacts)> {
    let facts = |name: &str| {
        let named = directory.look(name).ok().flatten();
        named.map(|named| named.facts).filter(|facts| facts.inode == inode)
    };
    if let Some(facts) = facts(name) {
        return Some((name.to_owned(), facts));
    }
    let others = directory.plain_files_of(name).ok()?;
    others.into_iter().find_map(|other| facts(&other).map(|facts| (other, facts)))
}
