//! What a log may give up, by how much of it is to be kept.
//!
//! *Owns*: from a size, a number or an age to the first record that is kept. *May not touch*: the log; `truncate_before` gives up.
//!
//! By bytes and by age whole segments are given up, since only whole files are room for others, and only files have times. What was
//! asked to be kept is kept: what goes is what is surely not needed for it. The last segment always stays.
//!
//! **Times.** Appends go forward: a record is not younger than the last change of its segment's file, nor than that of any later
//! segment, nor than now. A clock may have been wrong, so a time counts only where nothing speaks against it:
//! - One later than now, or earlier than that of an older segment, is no evidence. Its segment is as young as the next later one
//!   whose time is, or as now. A clock that was behind so makes nothing look older than it is.
//! - A clock that was ahead makes what came after it look younger, until its time has passed too: nothing is kept for ever.
//!
//! What this cannot know: that a clock was behind while the oldest segment that is left was written, or by so little that the order
//! holds; and that the clock is ahead now. Copying the files without their times makes all of them young. A power cut may set a file's
//! time back by as long as the file system keeps times in memory: seconds, or with the mount option `lazytime` hours.

use std::path::{Path, PathBuf};
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

/// What is kept of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// The first record that is kept, for `truncate_before`; the first that there is where all are kept.
    pub first: Lsn,
    /// Segments' files that were changed in the future, by this machine's clock: it is behind now, or was ahead. Their times
    /// were not believed, and more may be kept than asked for.
    pub of_the_future: Vec<PathBuf>,
}

/// The first record of the log in `path` that is kept, for `truncate_before`; the first that there is where all are kept. Nothing
/// is changed. The log may be written meanwhile.
///
/// # Errors
/// As [`super::look`]; [`Error::Corrupt`] where the log is damaged: what can be given up cannot be told then; [`Error::Invalid`]
/// where files have no times.
pub fn first_to_keep(path: impl AsRef<Path>, keep: Keep) -> Result<Lsn> {
    what_to_keep(path, keep).map(|kept| kept.first)
}

/// [`first_to_keep`], with what there is to say of the files' times.
///
/// # Errors
/// As [`first_to_keep`].
pub fn what_to_keep(path: impl AsRef<Path>, keep: Keep) -> Result<Kept> {
    what_to_keep_in(&OsDirectory::open(path.as_ref())?, keep, SystemTime::now())
}

/// [`first_to_keep`] in any directory behind the seam of `inkstone-io`, at the time `now`.
///
/// # Errors
/// As [`first_to_keep`].
pub fn first_to_keep_in<D: Directory>(directory: &D, keep: Keep, now: SystemTime) -> Result<Lsn> {
    what_to_keep_in(directory, keep, now).map(|kept| kept.first)
}

fn what_to_keep_in<D: Directory>(directory: &D, keep: Keep, now: SystemTime) -> Result<Kept> {
    let report = look_in(directory)?;
    let mut of_the_future = Vec::new();
    if let Some(damage) = report.damage.first() {
        return Err(damage.clone().into());
    }
    let first = match keep {
        Keep::Records(count) => Lsn::new((report.last.get() + 1).saturating_sub(count)),
        Keep::Bytes(bytes) => first_of(&report, by_bytes(&report, bytes)),
        Keep::For(age) => {
            let times = times(directory, &report)?;
            let newest = report.segments.iter().rev();
            let ahead = newest.zip(&times).filter(|(_, time)| **time > now);
            of_the_future = ahead.map(|(segment, _)| segment.path.clone()).collect();
            first_of(&report, by_age(&times, age, now))
        }
    };
    // A log that ends before its first record is empty.
    Ok(Kept { first: first.max(report.first), of_the_future })
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

/// When the segments' files were changed last, the newest segment first.
fn times<D: Directory>(directory: &D, report: &Report) -> Result<Vec<SystemTime>> {
    let mut times = Vec::with_capacity(report.segments.len());
    for segment in report.segments.iter().rev() {
        let file = match directory.open(&names::segment(segment.number), &OpenFile::existing().read_only()) {
            // Its writer has given it up, and so all that are older.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => break,
            answer => answer?,
        };
        let Some(modified) = file.facts()?.modified else {
            let why =
                format!("{}: files have no times here; keep by bytes or by records", report.path.display());
            return Err(Error::Invalid(why));
        };
        times.push(modified);
    }
    Ok(times)
}

/// How many segments are kept, by their files' times, the newest segment first.
fn by_age(times: &[SystemTime], age: Duration, now: SystemTime) -> usize {
    let mut highest = None;
    let oldest_first = times.iter().rev().map(|&time| {
        let counts = time <= now && highest.is_none_or(|highest| time >= highest);
        highest = if counts { Some(time) } else { highest };
        counts
    });
    let counts: Vec<bool> = oldest_first.collect();
    let mut not_after = now;
    let is_kept = |(index, (time, counts)): (usize, (&SystemTime, &bool))| {
        if *counts {
            not_after = *time;
        }
        index == 0 || now.duration_since(not_after).is_ok_and(|old| old <= age)
    };
    times.iter().zip(counts.iter().rev()).enumerate().map(is_kept).take_while(|is_kept| *is_kept).count()
}
