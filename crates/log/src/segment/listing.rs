//! The files of a log's directory, by their names.
//!
//! *Owns*: which names are there. *May not touch*: what is in the files.

use inkstone_format::SegmentNumber;
use inkstone_io::Directory;

use crate::error::{Error, Result};
use crate::names::{self, FileName};

/// What a directory holds by its files' names.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    pub(crate) segments: Vec<SegmentNumber>,
    pub(crate) free: Vec<SegmentNumber>,
    pub(crate) unfinished: Vec<SegmentNumber>,
    /// The file that keeps room is there.
    pub(crate) room: bool,
    /// A copy into the directory has not ended.
    pub(crate) is_incomplete: bool,
}

impl Listing {
    /// What lies in a directory that may hold a log.
    ///
    /// # Errors
    /// [`Error::Incomplete`] where a copy has not ended.
    pub(crate) fn of<D: Directory>(directory: &D) -> Result<Self> {
        let listing = Self::of_any(directory)?;
        if listing.is_incomplete {
            return Err(Error::Incomplete { path: directory.path().to_path_buf() });
        }
        Ok(listing)
    }

    /// The same, for whoever is making that copy.
    pub(crate) fn of_any<D: Directory>(directory: &D) -> Result<Self> {
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

    /// The highest number that any segment has ever had, as far as the directory knows.
    pub(crate) fn highest(&self) -> Option<SegmentNumber> {
        self.segments.iter().chain(&self.free).max().copied()
    }
}
