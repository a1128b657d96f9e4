//! FIEMAP: which kinds of blocks a file has, and each of its extents for who wants to see them.
//!
//! *Owns*: the layout of the kernel's structures and their numbers (from the kernel's uapi headers,
//! 6.18); the walk from batch to batch. *May not touch*: the file's content. A log asks for the
//! kinds alone; labs make a map of the extents, in `inkstone-host`.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use crate::error::{Error, Result};
use crate::sys;
use crate::transfer::retry;

/// A flag of the question: write delayed data out first, so that the answer is about the medium.
pub const FIEMAP_FLAG_SYNC: u32 = 0x1;
const FIEMAP_EXTENT_LAST: u32 = 0x1;
/// The place is not known yet.
pub const FIEMAP_EXTENT_UNKNOWN: u32 = 0x2;
/// Not allocated yet.
pub const FIEMAP_EXTENT_DELALLOC: u32 = 0x4;
/// Stored in another form: compressed, encrypted.
pub const FIEMAP_EXTENT_ENCODED: u32 = 0x8;
/// Stored beside the file's metadata.
pub const FIEMAP_EXTENT_DATA_INLINE: u32 = 0x200;
/// Reserved, and never written: reads as zeros.
pub const FIEMAP_EXTENT_UNWRITTEN: u32 = 0x800;
/// Shared with another file.
pub const FIEMAP_EXTENT_SHARED: u32 = 0x2000;

/// `struct fiemap_extent`: a run of a file's bytes.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct FiemapExtent {
    /// First byte in the file.
    pub logical: u64,
    /// First byte on the device, as the file system counts.
    pub physical: u64,
    /// Length in bytes.
    pub length: u64,
    reserved64: [u64; 2],
    /// `FIEMAP_EXTENT_...`.
    pub flags: u32,
    reserved: [u32; 3],
}

/// How many extents one FIEMAP call fetches.
const FIEMAP_BATCH: usize = 256;

/// `struct fiemap` with room for [`FIEMAP_BATCH`] extents.
#[repr(C)]
pub(crate) struct Fiemap {
    start: u64,
    length: u64,
    flags: u32,
    mapped_extents: u32,
    extent_count: u32,
    reserved: u32,
    extents: [FiemapExtent; FIEMAP_BATCH],
}

impl Fiemap {
    fn request(start: u64, length: u64, flags: u32) -> Box<Self> {
        Box::new(Self {
            start,
            length,
            flags,
            mapped_extents: 0,
            extent_count: FIEMAP_BATCH as u32,
            reserved: 0,
            extents: [FiemapExtent::default(); FIEMAP_BATCH],
        })
    }
}

/// Which kinds of extents a file has; all false if the file system does not report them, all true
/// if a sandbox forbids to ask.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Kinds {
    /// Another file shares some of the blocks.
    pub(crate) shared: bool,
    /// Some blocks are reserved and were never written.
    pub(crate) unwritten: bool,
}

/// The kinds of extents of a file. Delayed data is not written out: an extent that it is about to
/// replace may still count.
pub(crate) fn kinds(file: &File, path: &Path) -> Result<Kinds> {
    let mut kinds = Kinds::default();
    let walked = walk(file, path, 0, |batch| {
        let any = |flag| batch.iter().any(|extent| extent.flags & flag != 0);
        kinds.shared |= any(FIEMAP_EXTENT_SHARED);
        kinds.unwritten |= any(FIEMAP_EXTENT_UNWRITTEN);
        !(kinds.shared && kinds.unwritten)
    });
    match walked {
        Err(error) if error.is_unsupported() => Ok(Kinds::default()),
        // A sandbox refuses the question, not the file system: the file may be anything.
        Err(error) if error.is_not_here() => Ok(Kinds { shared: true, unwritten: true }),
        walked => walked.map(|()| kinds),
    }
}

/// Calls `visit` with the extents of the file, in order and batch by batch, until it wants no more.
/// `flags` is 0 or [`FIEMAP_FLAG_SYNC`].
///
/// # Errors
/// `is_unsupported()` if the file system has no FIEMAP (tmpfs); else what the kernel answers.
pub fn walk(
    file: &File,
    path: &Path,
    flags: u32,
    mut visit: impl FnMut(&[FiemapExtent]) -> bool,
) -> Result<()> {
    let mut start = 0;
    loop {
        let mut request = Fiemap::request(start, u64::MAX - start, flags);
        retry(|| sys::fiemap(file.as_fd(), &mut request))
            .map_err(|source| unsupported_or(path, source))?;
        let count = (request.mapped_extents as usize).min(FIEMAP_BATCH);
        let batch = &request.extents[..count];
        let Some(last) = batch.last() else { return Ok(()) };
        let next = last.logical.saturating_add(last.length);
        let is_last = last.flags & FIEMAP_EXTENT_LAST != 0 || next <= start;
        if !visit(batch) || is_last {
            return Ok(());
        }
        start = next;
    }
}

fn unsupported_or(path: &Path, source: io::Error) -> Error {
    match source.raw_os_error() {
        Some(libc::EOPNOTSUPP | libc::ENOTTY) => Error::unsupported(
            "FIEMAP",
            path,
            "this file system does not report where a file's blocks are",
        ),
        _ => Error::new("FIEMAP", path, source),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_structures_have_the_kernels_sizes() {
        assert_eq!(size_of::<FiemapExtent>(), 56);
        assert_eq!(size_of::<Fiemap>(), 32 + 56 * FIEMAP_BATCH);
    }
}
