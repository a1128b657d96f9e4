//! Prepares the blocks of a file: reserved by fallocate, or zeros that are really written, by the
//! device or by this process.
//!
//! *Owns*: the calls and their flags. *May not touch*: when to prepare what; the log decides that.
//! Only *written* blocks can be overwritten without a metadata change: fallocate reserves them
//! unwritten (docs/lab.md shows what that costs).

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::buffer::AlignedBuf;
use crate::error::{Error, Result};
use crate::strategy::{Access, Preparation};
use crate::sys;
pub(crate) use crate::sys::Allocate;
use crate::transfer::{Direction, Transfer, retry};

/// Zeros are written in pieces of this size: large enough for any device's bandwidth, small in
/// memory.
const ZEROS_CHUNK_BYTES: u64 = 1 << 20;

impl Allocate {
    /// Makes the call on the first `len_bytes` of `file`.
    pub(crate) fn call(self, file: &File, path: &Path, len_bytes: u64) -> Result<()> {
        let name = match self {
            Self::Grow => "fallocate",
            Self::WriteZeroes => "fallocate(WRITE_ZEROES)",
        };
        retry(|| sys::fallocate(file.as_fd(), self, len_bytes)).map_err(|source| {
            let full = source.kind() == io::ErrorKind::StorageFull;
            let error = Error::new(name, path, source).at(0);
            if full {
                error.advise(format!("{len_bytes} bytes were asked for: free some space"))
            } else {
                error
            }
        })
    }
}

/// Prepares the first `len_bytes` of the file. `again` opens the same file for writing
/// with the given flags.
pub(crate) fn prepare(
    file: &File,
    path: &Path,
    access: Access,
    way: Preparation,
    len_bytes: u64,
    again: &dyn Fn(i32) -> io::Result<File>,
) -> Result<()> {
    match way {
        Preparation::None => Ok(()),
        Preparation::Fallocate => Allocate::Grow.call(file, path, len_bytes),
        Preparation::WriteZeroes => Allocate::WriteZeroes.call(file, path, len_bytes),
        Preparation::Zeros => write_zeros(path, access, len_bytes, again),
        other => {
            let why = format!("only labs have preparation {other}, in inkstone-host");
            Err(Error::unsupported("prepare", path, why)
                .advise("use preparation zeros or fallocate"))
        }
    }
}

/// Writes zeros over the first `len_bytes` and syncs once.
///
/// Through a new descriptor: one that was opened with `O_DSYNC` would sync each piece. In the
/// file's own access mode: after direct zeros the page cache is cold, and a small buffered
/// overwrite would have to read first.
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
        Transfer::new(len)
            .run(Direction::Write, |done| file.write_at(&zeros[done..len], at + done as u64))
            .map_err(|source| Error::new("pwrite", path, source).at(at))?;
        at += len as u64;
    }
    retry(|| file.sync_all()).map_err(|source| Error::new("fsync after zeros", path, source))
}
