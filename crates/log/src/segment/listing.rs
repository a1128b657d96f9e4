//! The files of a log's directory, by their names.
//!
//! *Owns*: which names are there. *May not touch*: what is in the files.

use inkstone_format::SegmentNumber;
use inkstone_io::AnyDirectory;

use crate::error::{Error, Result};
use crate::names::{self, FileName};

/// The files of a directory, by their names.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    pub(crate) segments: Vec<SegmentNumber>,
    pub(crate) free: Vec<SegmentNumber>,
    pub(crate) unfinished: Vec<SegmentNumber>,
    /// The file of reserved room is there.
    pub(crate) room: bool,
    /// The mark of an unfinished copy is there.
    pub(crate) is_incomplete: bool,
}

impl Listing {
    /// The files of a directory that may hold a log.
    ///
    /// # Errors
    /// [`Error::Incomplete`] if it holds an unfinished copy.
    pub(crate) fn of(directory: &AnyDirectory) -> Result<Self> {
        let listing = Self::of_any(directory)?;
        if listing.is_incomplete {
            return Err(Error::Incomplete { path: directory.path().to_path_buf() });
        }
        Ok(listing)
    }

    /// The same, for the copy itself.
    pub(crate) fn of_any(directory: &AnyDirectory) -> Result<Self> {
        let mut listing = Self::default();
        for name in directory.list()? {
            match names::parse(&name) {
                Some(FileName::Segment(number)) => listing.segments.push(number),
                Some(FileName::Free(number)) => listing.free.push(number),
                Some(FileName::New(number)) => listing.unfinished.push(number),
                None if name == names::INCOMPLETE => listing.is_incomplete = true,
                None => listing.room |= name == names::ROOM,
            }
        }
        Ok(listing)
    }

    /// The highest segment number in the directory, also of former segments.
    pub(crate) fn highest(&self) -> Option<SegmentNumber> {
        self.segments.iter().chain(&self.free).max().copied()
    }
}
