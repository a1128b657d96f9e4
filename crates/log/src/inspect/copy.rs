//! Copies a log, also beside a living writer, into a new log with the same records under the same
//! LSNs.
//!
//! *Owns*: copying. *May not touch*: the source log; it is read as any reader reads it.
//!
//! The copy is a separate log with its own id, since two directories with one log id could be mixed
//! up. The copy does not keep which records were appended as one batch.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use inkstone_format::Lsn;
use inkstone_io::AnyDirectory;

use super::making::Making;
use super::report::Gap;
use super::survey::{Depth, steady};
use super::{new_directory, options_for};
use crate::directory::find_directory;
use crate::error::{Error, Result};
use crate::options::Options;
use crate::read::reader::Reader;

/// What was copied.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Copied {
    /// The first record of both logs.
    pub first: Lsn,
    /// The last record that was copied; one below `first` if there was none.
    pub last: Lsn,
    /// The number of copied records.
    pub records: u64,
    /// What could not be made sure of in the old log, a sentence each
    /// ([`Recovery::doubts`](crate::Recovery::doubts)).
    pub doubts: Vec<String>,
}

/// Copies the records of the log in `from` that are durable now into a new log in `to`; each keeps
/// its LSN. A writer may append meanwhile; then "durable now" is what a [`Reader`] sees that opens
/// now, which may lack the writer's latest group. `options` apply to the new log; its segments and
/// records may become as large as those of the old log if they are larger.
///
/// Opening the copy before it is complete is [`Error::Incomplete`]. A copy that fails removes its
/// files; the files of a copy that was killed are removed by the next copy into the same directory.
///
/// # Errors
/// [`Error::Invalid`] when `to` already holds a log, or a file with a name that the copy needs
/// (`salvage.json` too); [`Error::Locked`] when another copy into `to` is running;
/// [`Error::TruncatedBefore`] when records were truncated before they were copied (copy again); as
/// [`Reader::open`], [`Log::open`](crate::Log::open) and [`Log::append`](crate::Log::append).
///
/// # Durability
/// On `Ok` the copy is on stable storage, and closed.
pub fn copy(from: impl AsRef<Path>, to: impl AsRef<Path>, options: &Options) -> Result<Copied> {
    copy_until(from, to, options, &AtomicBool::new(false))
}

/// As [`copy`], but stops soon after `stop` has become true.
///
/// # Errors
/// As [`copy`]; [`Error::Stopped`], and then only the directory and its lock file are left.
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
    copy_in(&find_directory(from)?, || new_directory(to, options), options, stop)
}

/// As [`copy_until`], between any two directories ([`AnyDirectory`]); `to` is called once the old
/// log can be read.
///
/// # Errors
/// As [`copy_until`].
///
/// # Durability
/// As [`copy`].
pub fn copy_in<N: Into<AnyDirectory>>(
    from: impl Into<AnyDirectory>,
    to: impl FnOnce() -> Result<N>,
    options: &Options,
    stop: &AtomicBool,
) -> Result<Copied> {
    let from = from.into();
    let looked = steady(&from, Depth::Ends, stop)?.report;
    let reader = Reader::open_in(from, Options::new())?;
    let first = reader.first();
    let lost_to = reader.recovery().and_then(|recovery| recovery.lost_to);
    let options = options_for(options, &looked).begin_at(first);
    let making = Making::begin(to()?.into(), options, lost_to)?;
    let copied = fill(&reader, first, &making, stop)?;
    making.finish(None)?;
    Ok(copied)
}

/// Appends what is durable now.
fn fill(reader: &Reader, first: Lsn, making: &Making, stop: &AtomicBool) -> Result<Copied> {
    let log = making.log()?;
    let mut last = reader.durable();
    let mut cursor = reader.from(first);
    let doubts = reader.recovery().map_or_else(Vec::new, |recovery| recovery.doubts);
    let mut gaps = Vec::new();
    let mut copied =
        Copied { first, last: first.before().unwrap_or(Lsn::ZERO), records: 0, doubts };
    while copied.last < last {
        if stop.load(Ordering::Relaxed) {
            return Err(Error::Stopped);
        }
        match cursor.next() {
            Ok(Some(record)) => {
                // No wait: closing makes all of it durable.
                drop(log.append(record.bytes)?);
                copied.last = record.lsn;
            }
            Ok(None) => break,
            // A gap stays a gap.
            Err(Error::Lost { first, last }) => {
                making.lose_before(last.next().ok_or(Error::UsedUp)?)?;
                copied.last = last;
                gaps.push(Gap { first, last });
            }
            // The copy must not keep records that the log no longer has.
            Err(Error::TruncatedAfter { last: left, .. }) => {
                // Records before the first one are no matter of the copy.
                let left = left.max(first.before().unwrap_or(Lsn::ZERO));
                cursor.seek(left.next().unwrap_or(first));
                log.truncate_after(left)?;
                gaps.retain(|gap| gap.last <= left);
                copied.last = left;
                last = last.min(left);
            }
            Err(error) => return Err(error),
        }
    }
    let lost: u64 = gaps.iter().map(Gap::records).sum();
    copied.records = copied.last.get() + 1 - first.get() - lost;
    Ok(copied)
}
