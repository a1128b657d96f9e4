//! A copy of a log beside a living writer: a new log with the same records under the same LSNs.
//!
//! *Owns*: that. *May not touch*: the log that is copied; it reads it as any reader does.
//!
//! The copy is a log of its own, with an id of its own: two directories that call themselves the same log are the
//! beginning of a misfortune. Whether records were appended as one batch is not kept.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use inkstone_format::Lsn;
use inkstone_io::{Directory, OsDirectory};

use super::making::Making;
use super::survey::{Depth, steady};
use super::{new_directory, options_for};
use crate::error::{Error, Result};
use crate::options::Options;
use crate::read::reader::Reader;

/// What was copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Copied {
    /// The first record of both logs.
    pub first: Lsn,
    /// The last that was copied; one below `first` if there was none.
    pub last: Lsn,
    /// How many.
    pub records: u64,
}

/// Copies the records of the log in `from`, as far as they are durable now, into a new log in `to`; each keeps its LSN.
/// The log may be written meanwhile. `options` are the new log's; segments and records may become as large as the old
/// log's, where that is more.
///
/// Until the copy is whole nobody can open it: [`Error::Incomplete`]. Where it fails, the log's files are removed; what a copy
/// that was killed has left is removed by the next one into the same directory.
///
/// # Errors
/// [`Error::Invalid`] when there is a log in `to` already, or a file with a name that is made there (`salvage.json` too);
/// [`Error::Locked`] when another copy is being made there;
/// [`Error::TruncatedBefore`] when records were given up before they were copied (copy again); as [`Reader::open`],
/// [`crate::Log::open`] and [`crate::Log::append`].
///
/// # Durability
/// On `Ok` the copy is on stable storage, and closed.
pub fn copy(from: impl AsRef<Path>, to: impl AsRef<Path>, options: &Options) -> Result<Copied> {
    copy_until(from, to, options, &AtomicBool::new(false))
}

/// [`copy`] that stops soon after `stop` has become true.
///
/// # Errors
/// As [`copy`]; [`Error::Stopped`], and then nothing was made but the directory and its lock.
///
/// # Durability
/// As [`copy`].
pub fn copy_until(
    from: impl AsRef<Path>,
    to: impl AsRef<Path>,
    options: &Options,
    stop: &AtomicBool,
) -> Result<Copied> {
    let to = to.as_ref();
    copy_in(Arc::new(OsDirectory::open(from.as_ref())?), || new_directory(to, options), options, stop)
}

/// [`copy_until`] between directories behind the seam of `inkstone-io`; the new one is asked for when the old one can be
/// read.
///
/// # Errors
/// As [`copy_until`].
///
/// # Durability
/// As [`copy`].
pub fn copy_in<D: Directory, N: Directory>(
    from: Arc<D>,
    to: impl FnOnce() -> Result<Arc<N>>,
    options: &Options,
    stop: &AtomicBool,
) -> Result<Copied> {
    let looked = steady(&*from, Depth::Ends, stop)?.report;
    let largest = looked.segments.iter().map(|segment| segment.header.segment_bytes).max().unwrap_or(0);
    let reader = Reader::open_in(from, Options::new())?;
    let first = reader.first();
    let making = Making::begin(to()?, options_for(options, largest).begin_at(first))?;
    let copied = fill(&reader, first, &making, stop)?;
    making.finish(None)?;
    Ok(copied)
}

/// Appends what is durable now.
fn fill<D: Directory, N: Directory>(
    reader: &Reader<D>,
    first: Lsn,
    making: &Making<N>,
    stop: &AtomicBool,
) -> Result<Copied> {
    let log = making.log()?;
    let mut last = reader.durable();
    let mut cursor = reader.from(first);
    let mut copied = Copied { first, last: first.before().unwrap_or(Lsn::ZERO), records: 0 };
    while copied.last < last {
        if stop.load(Ordering::Relaxed) {
            return Err(Error::Stopped);
        }
        match cursor.next() {
            Ok(Some(record)) => {
                // Nobody waits for it: closing makes all of it durable.
                drop(log.append(record.bytes)?);
                copied.last = record.lsn;
                copied.records += 1;
            }
            Ok(None) => break,
            // The copy must not have what the log has no more.
            Err(Error::TruncatedAfter { last: left, .. }) => {
                log.truncate_after(left)?;
                copied.records -= copied.last.get() - left.get();
                copied.last = left;
                last = last.min(left);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(copied)
}
