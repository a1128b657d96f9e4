//! A copy of a log beside a living writer: a new log with the same records under the same LSNs.
//!
//! *Owns*: that. *May not touch*: the log that is copied; it reads it as any reader does.
//!
//! The copy is a log of its own, with an id of its own: two directories that call themselves the same log are the
//! beginning of a misfortune. Whether records were appended as one batch is not kept.

use std::path::Path;

use inkstone_format::Lsn;

use super::{empty_directory, look, options_for};
use crate::error::{Error, Result};
use crate::log::Log;
use crate::options::Options;
use crate::reader::Reader;

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
/// # Errors
/// [`Error::Invalid`] when there is a log in `to` already; [`Error::GivenUp`] when records were given up before they were
/// copied (remove `to` and copy again); as [`Reader::open`], [`Log::open`] and [`Log::append`].
///
/// # Durability
/// On `Ok` the copy is on stable storage, and closed.
pub fn copy(from: impl AsRef<Path>, to: impl AsRef<Path>, options: &Options) -> Result<Copied> {
    let (from, to) = (from.as_ref(), to.as_ref());
    let largest = look(from)?.segments.iter().map(|segment| segment.header.segment_bytes).max().unwrap_or(0);
    let reader = Reader::open(from, &Options::new())?;
    let directory = empty_directory(to, options)?;
    let (first, mut last) = (reader.first(), reader.durable());
    let options = options_for(options, largest).create(true).begin_at(first);
    let log = Log::open_in(directory, options)?;
    let mut cursor = reader.from(first);
    let mut copied = Copied { first, last: first.before().unwrap_or(Lsn::ZERO), records: 0 };
    while copied.last < last {
        match cursor.next() {
            Ok(Some(record)) => {
                // Nobody waits for it: `close` makes all of it durable.
                drop(log.append(record.bytes)?);
                copied.last = record.lsn;
                copied.records += 1;
            }
            Ok(None) => break,
            // The copy must not have what the log has no more.
            Err(Error::Cut { last: left, .. }) => {
                log.truncate_after(left)?;
                copied.records -= copied.last.get() - left.get();
                copied.last = left;
                last = last.min(left);
            }
            Err(error) => return Err(error),
        }
    }
    log.close()?;
    Ok(copied)
}
