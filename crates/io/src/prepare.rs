//! Prepares the blocks of a file: every mode of fallocate, and zeros that are really written.
//!
//! *Owns*: the calls and their flags. *May not touch*: when to prepare what; the log and the lab decide that. Only *written*
//! blocks can be overwritten without a metadata change: fallocate reserves them unwritten (docs/lab.md shows what that costs).

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::buffer::AlignedBuf;
use crate::error::{Error, Result};
use crate::named_choice;
use crate::strategy::{Access, NamedChoice, Preparation};
use crate::sys;
use crate::transfer::{Direction, Transfer, retry};

/// Zeros are written in pieces of this size: large enough for any device's bandwidth, small in memory.
const ZEROS_CHUNK_BYTES: u64 = 1 << 20;

named_choice! {
    /// Every mode of fallocate that the kernel has, as one call each.
    FallocateMode, "fallocate mode" {
        Plain = "mode-0", "reserve blocks, grow the file";
        KeepSize = "keep-size", "reserve blocks, keep the size";
        PunchHole = "punch-hole", "free blocks, read as zeros";
        CollapseRange = "collapse-range", "remove a range, the rest moves down";
        ZeroRange = "zero-range", "read as zeros, blocks reserved";
        ZeroRangeKeepSize = "zero-range-keep-size", "read as zeros, keep the size";
        InsertRange = "insert-range", "insert a range, the rest moves up";
        UnshareRange = "unshare-range", "copy shared blocks so that writing cannot fail for room";
        WriteZeroes = "write-zeroes", "zeros written by the device (Linux 6.17)";
        Posix = "posix-fallocate", "posix_fallocate of the C library";
    }
}

impl FallocateMode {
    /// Makes the call on `offset..offset + len_bytes` of `file`.
    ///
    /// # Errors
    /// What the file system answers: `is_unsupported()` if it lacks the mode, `ENOSPC` with advice if it is full.
    pub fn call(self, file: &File, path: &Path, offset: u64, len_bytes: u64) -> Result<()> {
        retry(|| sys::fallocate(file.as_fd(), self, offset, len_bytes)).map_err(|source| {
            let full = source.kind() == io::ErrorKind::StorageFull;
            let error = Error::new(self.name(), path, source).at(offset);
            if full {
                error.advise(format!("{len_bytes} bytes were asked for: free some space"))
            } else {
                error
            }
        })
    }
}

/// Prepares the first `len_bytes` of the file; preparations in steps do nothing here. `again` opens the same file for writing
/// with the given flags.
pub(crate) fn prepare(
    file: &File,
    path: &Path,
    access: Access,
    way: Preparation,
    len_bytes: u64,
    again: &dyn Fn(i32) -> io::Result<File>,
) -> Result<()> {
    let mode = match way {
        Preparation::None | Preparation::FallocateSteps | Preparation::KeepSizeSteps => return Ok(()),
        Preparation::Sparse => {
            let grown = retry(|| file.set_len(len_bytes));
            return grown.map_err(|source| Error::new("ftruncate", path, source).at(len_bytes));
        }
        Preparation::Zeros => return write_zeros(path, access, len_bytes, again),
        Preparation::Fallocate => FallocateMode::Plain,
        Preparation::KeepSize => FallocateMode::KeepSize,
        Preparation::PosixFallocate => FallocateMode::Posix,
        Preparation::ZeroRange => FallocateMode::ZeroRange,
        Preparation::WriteZeroes => FallocateMode::WriteZeroes,
    };
    mode.call(file, path, 0, len_bytes)
}

/// Reserves one step of a file that is prepared in steps.
pub(crate) fn extend(file: &File, path: &Path, way: Preparation, offset: u64, len_bytes: u64) -> Result<()> {
    match way {
        Preparation::FallocateSteps => FallocateMode::Plain.call(file, path, offset, len_bytes),
        Preparation::KeepSizeSteps => FallocateMode::KeepSize.call(file, path, offset, len_bytes),
        other => Err(Error::invalid("extend", path, format!("preparation {other} is not done in steps"))),
    }
}

/// Writes zeros over the first `len_bytes` and syncs once.
///
/// Through a new descriptor: one that was opened with `O_DSYNC` would sync each piece. In the file's own access mode: after
/// direct zeros the page cache is cold, and a small buffered overwrite would have to read first.
fn write_zeros(
    path: &Path,
    access: Access,
    len_bytes: u64,
    again: &dyn Fn(i32) -> io::Result<File>,
) -> Result<()> {
    let direct = access == Access::Direct;
    let flags = if direct { sys::O_DIRECT.unwrap_or(0) } else { 0 };
    let file = again(flags).map_err(|source| Error::new("open to write zeros", path, source))?;
    if direct && !len_bytes.is_multiple_of(512) {
        return Err(Error::invalid(
            "write zeros",
            path,
            format!("{len_bytes} bytes are not a multiple of 512"),
        ));
    }
    let chunk = ZEROS_CHUNK_BYTES.min(len_bytes.max(1));
    let zeros = AlignedBuf::zeroed(chunk as usize);
    let mut at = 0;
    while at < len_bytes {
        let len = chunk.min(len_bytes - at) as usize;
        write_all(&file, path, &zeros[..len], at)?;
        at += len as u64;
    }
    retry(|| file.sync_all()).map_err(|source| Error::new("fsync after zeros", path, source))
}

/// `pwrite` of all of `bytes`.
pub(crate) fn write_all(file: &File, path: &Path, bytes: &[u8], offset: u64) -> Result<()> {
    Transfer::new(bytes.len())
        .run(Direction::Write, |done| file.write_at(&bytes[done..], offset + done as u64))
        .map(drop)
        .map_err(|source| Error::new("pwrite", path, source).at(offset))
}
