//! A device that is read in pieces, for what is known of file systems' layouts.
//!
//! *Owns*: reading, the errors of what is read, and what is said of a journal's place. *May not
//! touch*: any write, and what the bytes mean.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use inkstone_io::transfer::retry;
use inkstone_io::{DeviceNumber, Error, Result};

/// Where a file system keeps its journal or log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogPlace {
    /// It has none, or is of a kind that is not read here.
    None,
    /// On its own device, in these byte ranges, in order. Where that is a partition, trace events
    /// count from the start of its disk: add the partition's `start`.
    Inside(Vec<Range<u64>>),
    /// It is all of another device.
    Outside(DeviceNumber),
}

/// A device that is read in pieces.
pub(super) struct Disk<'a> {
    file: File,
    path: &'a Path,
}

impl<'a> Disk<'a> {
    /// Opens a device for reading.
    pub(super) fn open(path: &'a Path) -> Result<Self> {
        let file = retry(|| File::open(path)).map_err(|error| {
            Error::new("open", path, error)
                .advise("reading a device as it is needs root, and some sandboxes refuse even that")
        })?;
        Ok(Self { file, path })
    }

    /// The bytes at `offset`.
    pub(super) fn read(&self, offset: u64, length: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        let read = self.file.read_exact_at(&mut bytes, offset);
        read.map_err(|error| {
            Error::new("read a file system's layout", self.path, error).at(offset)
        })?;
        Ok(bytes)
    }

    /// The error of a device without the expected contents.
    pub(super) fn invalid(&self, offset: u64, what: impl Into<String>) -> Error {
        let what = io::Error::new(io::ErrorKind::InvalidData, what.into());
        Error::new("read a file system's layout", self.path, what).at(offset)
    }

    /// The error of a layout that is not understood here.
    pub(super) fn unsupported(&self, what: impl Into<String>) -> Error {
        Error::unsupported("read a file system's layout", self.path, what)
    }
}

/// `N` bytes of `bytes` at `offset`; zeros where there are none, which every later check refuses.
pub(super) fn piece<const N: usize>(bytes: &[u8], offset: usize) -> [u8; N] {
    bytes.get(offset..).and_then(|rest| rest.first_chunk::<N>()).copied().unwrap_or([0; N])
}
