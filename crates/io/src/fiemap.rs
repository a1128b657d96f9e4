//! FIEMAP: which kinds of blocks a file has, and each of its extents for who wants to see them.
//!
//! *Owns*: the walk from batch to batch. *May not touch*: the file's content. A log asks for the
//! kinds alone; labs make a map of the extents, in `inkstone-host`.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use crate::error::{Error, Result};
use crate::sys::{self, FIEMAP_BATCH, FIEMAP_EXTENT_LAST, Fiemap};
pub use crate::sys::{
    FIEMAP_EXTENT_DATA_INLINE, FIEMAP_EXTENT_DELALLOC, FIEMAP_EXTENT_ENCODED, FIEMAP_EXTENT_SHARED,
    FIEMAP_EXTENT_UNKNOWN, FIEMAP_EXTENT_UNWRITTEN, FIEMAP_FLAG_SYNC, FiemapExtent,
};
use crate::transfer::retry;

/// Which kinds of extents a file has; all false if the file system does not report them. If a
/// sandbox forbids to ask, it is taken to share blocks and to have unwritten ones.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Kinds {
    /// Another file shares some of the blocks.
    pub(crate) shared: bool,
    /// Some blocks are reserved and were never written.
    pub(crate) unwritten: bool,
    /// Some bytes have no blocks.
    pub(crate) holes: bool,
}

/// The kinds of extents of a file of `len` bytes. Delayed data is not written out: an extent that
/// it is about to replace may still count.
pub(crate) fn kinds(file: &File, path: &Path, len: u64) -> Result<Kinds> {
    let mut kinds = Kinds::default();
    let mut end = 0;
    let walked = walk(file, path, 0, |batch| {
        let any = |flag| batch.iter().any(|extent| extent.flags & flag != 0);
        kinds.shared |= any(FIEMAP_EXTENT_SHARED);
        kinds.unwritten |= any(FIEMAP_EXTENT_UNWRITTEN);
        for extent in batch {
            kinds.holes |= extent.logical > end;
            end = extent.logical.saturating_add(extent.length);
        }
        !(kinds.shared && kinds.unwritten && kinds.holes)
    });
    match walked {
        Err(error) if error.is_unsupported() => Ok(Kinds::default()),
        // A sandbox refuses the question, not the file system: the file may be anything.
        Err(error) if error.is_not_here() => {
            Ok(Kinds { shared: true, unwritten: true, holes: false })
        }
        walked => walked.map(|()| Kinds { holes: kinds.holes || end < len, ..kinds }),
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
