//! What a log may give up, by how much of it is to be kept.
//!
//! *Owns*: from a size, a number or an age to the first record that is kept. *May not touch*: the log; `truncate_before` gives up.
//!
//! By bytes and by age whole segments are given up, since only whole files are room for others, and only files have times. What was
//! asked to be kept is kept: what goes is what is surely not needed for it. The last segment always stays.
//!
//! **Times.** A record is not younger than the last change of its segment's file, nor than that of any later segment, nor than
//! now. So a clock that was ahead once keeps nothing for ever: the segments after it say better. Copying the files without
//! their times makes all of them young. A power cut may set a file's time back by as long as the file system keeps times in memory: seconds, or
//! with the mount option `lazytime` hours.

use std::path::Path;
use std::time::{Duration, SystemTime};

use inkstone_format::Lsn;
use inkstone_io::{Directory, File as _, OpenFile, OsDirectory};

use super::look_in;
use super::report::{Report, SegmentReport};
use crate::error::{Error, Result};
use crate::names;

/// What is to be kept of a log, at the least.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// The newest segments that have so many bytes together.
    Bytes(u64),
    /// So many of the newest records.
    Records(u64),
    /// Every record that was appended within this time.
    For(Duration),
}

/// The first record of the log in `path` that is kept, for `truncate_before`; the first that there is where all are kept. Nothing
/// is changed. The log may be written meanwhile.
///
/// # Errors
/// As [`super::look`]; [`Error::Corrupt`] where the log is damaged: what can be given up cannot be told then; [`Error::Invalid`]
/// where files have no times.
pub fn first_to_keep(path: impl AsRef<Path>, keep: Keep) -> Result<Lsn> {
    first_to_keep_in(&OsDirectory::open(path.as_ref())?, keep, SystemTime::now())
}

/// [`first_to_keep`] in any directory behind the seam of `inkstone-io`, at the time `now`.
///
/// # Errors
/// As [`first_to_keep`].
pub fn first_to_keep_in<D: Directory>(directory: &D, keep: Keep, now: SystemTime) -> Result<Lsn> {
    let report = look_in(directory)?;
    if let Some(damage) = report.damage.first() {
        return Err(damage.clone().into());
    }
    let first = match keep {
        Keep::Records(count) => Lsn::new((report.last.get() + 1).saturating_sub(count)),
        Keep::Bytes(bytes) => first_of(&report, by_bytes(&report, bytes)),
        Keep::For(age) => first_of(&report, by_age(directory, &report, age, now)?),
    };
    // A log that ends before its first record is empty.
    Ok(first.max(report.first))
}

fn first_of(report: &Report, kept: usize) -> Lsn {
    let index = report.segments.len().saturating_sub(kept.max(1));
    report.segments.get(index).map_or(report.first, |segment| segment.first)
}

/// How many segments are kept.
fn by_bytes(report: &Report, bytes: u64) -> usize {
    let mut left = bytes;
    let is_needed = |segment: &&SegmentReport| {
        let is_needed = left > 0;
        left = left.saturating_sub(segment.end);
        is_needed
    };
    report.segments.iter().rev().take_while(is_needed).count()
}

/// How many segments are kept.
fn by_age<D: Directory>(directory: &D, report: &Report, age: Duration, now: SystemTime) -> Result<usize> {
    let mut not_after = now;
    let mut kept = 0;
    for segment in report.segments.iter().rev() {
        let file = match directory.open(&names::segment(segment.number), &OpenFile::existing().read_only()) {
            // Its writer has given it up.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => break,
            answer => answer?,
        };
        let Some(modified) = file.facts()?.modified else {
            let why =
                format!("{}: files have no times here: keep by bytes or by records", report.path.display());
            return Err(Error::Invalid(why));
        };
        not_after = not_after.min(modified);
        if kept > 0 && now.duration_since(not_after).is_ok_and(|old| old > age) {
            break;
        }
        kept += 1;
    }
    Ok(kept)
}
