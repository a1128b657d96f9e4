//! Making a file's blocks ready: every mode of fallocate, and zeros really written.
//!
//! *Owns*: the calls and their flags. *May not touch*: when to prepare what; the log and the lab decide that.
//! Only blocks that are *written* can be overwritten without a metadata change: fallocate reserves them unwritten
//! (docs/lab.md shows what that costs on this disk).

use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{FallocateFlags, fallocate};

use crate::buffer::AlignedBuf;
use crate::error::{Error, Result};
use crate::strategy::{Access, NamedChoice, Preparation};
use crate::sys;
use crate::transfer::{Direction, Transfer, retry};

/// Zeros are written in pieces of this size: large enough for any device's bandwidth, small in memory.
const ZEROS_CHUNK_BYTES: u64 = 1 << 20;

/// Every mode of fallocate that the kernel has, as one call each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FallocateMode {
    /// Mode 0.
    Plain,
    /// `KEEP_SIZE`.
    KeepSize,
    /// `PUNCH_HOLE | KEEP_SIZE`.
    PunchHole,
    /// `COLLAPSE_RANGE`.
    CollapseRange,
    /// `ZERO_RANGE`.
    ZeroRange,
    /// `ZERO_RANGE | KEEP_SIZE`.
    ZeroRangeKeepSize,
    /// `INSERT_RANGE`.
    InsertRange,
    /// `UNSHARE_RANGE`.
    UnshareRange,
    /// `WRITE_ZEROES`.
    WriteZeroes,
    /// The C library's `posix_fallocate`.
    Posix,
}

impl NamedChoice for FallocateMode {
    const WHAT: &'static str = "fallocate mode";
    const ALL: &'static [Self] = &[
        Self::Plain,
        Self::KeepSize,
        Self::PunchHole,
        Self::CollapseRange,
        Self::ZeroRange,
        Self::ZeroRangeKeepSize,
        Self::InsertRange,
        Self::UnshareRange,
        Self::WriteZeroes,
        Self::Posix,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Plain => "mode-0",
            Self::KeepSize => "keep-size",
            Self::PunchHole => "punch-hole",
            Self::CollapseRange => "collapse-range",
            Self::ZeroRange => "zero-range",
            Self::ZeroRangeKeepSize => "zero-range-keep-size",
            Self::InsertRange => "insert-range",
            Self::UnshareRange => "unshare-range",
            Self::WriteZeroes => "write-zeroes",
            Self::Posix => "posix-fallocate",
        }
    }

    fn summary(self) -> &'static str {
        match self {
            Self::Plain => "reserve blocks, grow the file",
            Self::KeepSize => "reserve blocks, keep the size",
            Self::PunchHole => "give blocks back, read as zeros",
            Self::CollapseRange => "cut a range out, the rest moves down",
            Self::ZeroRange => "read as zeros, blocks reserved",
            Self::ZeroRangeKeepSize => "read as zeros, keep the size",
            Self::InsertRange => "push a range in, the rest moves up",
            Self::UnshareRange => "copy shared blocks so that writing cannot fail for room",
            Self::WriteZeroes => "zeros written by the device (Linux 6.17)",
            Self::Posix => "posix_fallocate of the C library",
        }
    }
}

impl fmt::Display for FallocateMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FallocateMode {
    fn flags(self) -> Option<FallocateFlags> {
        Some(match self {
            Self::Plain => FallocateFlags::empty(),
            Self::KeepSize => FallocateFlags::KEEP_SIZE,
            Self::PunchHole => FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
            Self::CollapseRange => FallocateFlags::COLLAPSE_RANGE,
            Self::ZeroRange => FallocateFlags::ZERO_RANGE,
            Self::ZeroRangeKeepSize => FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE,
            Self::InsertRange => FallocateFlags::INSERT_RANGE,
            Self::UnshareRange => FallocateFlags::UNSHARE_RANGE,
            Self::WriteZeroes => FallocateFlags::from_bits_retain(sys::FALLOC_FL_WRITE_ZEROES),
            Self::Posix => return None,
        })
    }

    /// Makes the call on `offset..offset + len_bytes` of `file`.
    ///
    /// # Errors
    /// What the file system answers: `is_unsupported()` where it lacks the mode, `ENOSPC` with advice when full.
    pub fn call(self, file: &File, path: &Path, offset: u64, len_bytes: u64) -> Result<()> {
        let answer = match self.flags() {
            Some(flags) => retry(|| fallocate(file, flags, offset, len_bytes).map_err(io::Error::from)),
            None => retry(|| sys::posix_fallocate(file.as_fd(), offset, len_bytes)),
        };
        answer.map_err(|source| {
            let full = source.kind() == io::ErrorKind::StorageFull;
            let error = Error::new(self.name(), path, source).at(offset);
            if full {
                error.advise(format!("{len_bytes} bytes were asked for: free some room"))
            } else {
                error
            }
        })
    }
}

/// Makes the first `len_bytes` of the file ready; the ways in steps do nothing here.
pub(crate) fn prepare(
    file: &File,
    path: &Path,
    access: Access,
    way: Preparation,
    len_bytes: u64,
) -> Result<()> {
    let mode = match way {
        Preparation::None | Preparation::FallocateSteps | Preparation::KeepSizeSteps => return Ok(()),
        Preparation::Zeros => return write_zeros(path, access, len_bytes),
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
        other => Err(Error::invalid("extend", path, format!("preparation {other} does not go in steps"))),
    }
}

/// Writes zeros over the first `len_bytes` and syncs once.
///
/// Through a descriptor of its own: on one opened with `O_DSYNC` each piece would be synced by itself. In the file's
/// own access mode: after direct zeros the page cache is cold, and a small buffered overwrite would have to read.
fn write_zeros(path: &Path, access: Access, len_bytes: u64) -> Result<()> {
    let direct = access == Access::Direct;
    let flags = if direct { libc::O_DIRECT } else { 0 };
    let file = retry(|| File::options().write(true).custom_flags(flags).open(path))
        .map_err(|source| Error::new("open to write zeros", path, source))?;
    if direct && !len_bytes.is_multiple_of(512) {
        return Err(Error::invalid("write zeros", path, format!("{len_bytes} bytes are no multiple of 512")));
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
