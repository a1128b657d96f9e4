//! Which records of a log may be truncated, given how much of it is to be kept.
//!
//! *Owns*: the way from a size, a count or an age to the first record to keep. *May not touch*: the
//! log; the caller truncates.
//!
//! By bytes and by age only whole segments are truncated, since only whole files free space, and
//! only files have times. At least what was asked for is kept. The last segment always stays.
//!
//! **Times.** Appends go forward: a record is not younger than the last change of its segment's
//! file, nor than that of any later segment, nor than now. A clock may have been wrong:
//! [`inkstone_io::kept_by_age`] says which times count, and what cannot be detected. A power cut
//! may set a file's time back by as long as the file system keeps times in memory: seconds, or
//! hours with the mount option `lazytime`.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use inkstone_format::Lsn;
use inkstone_io::{AnyDirectory, OpenFile, kept_by_age, since_start};

use super::look_in;
use super::report::{Report, SegmentReport};
use crate::directory::find_directory;
use crate::error::{Error, Result};
use crate::names;

/// How much of a log is to be kept, at least.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Keep {
    /// The newest segments that together have at least this many bytes.
    Bytes(u64),
    /// This many of the newest records.
    Records(u64),
    /// Every record that was appended within this time.
    For(Duration),
}

/// What is kept of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Kept {
    /// The first record to keep, for `truncate_before`; the first record of the log if all are
    /// kept.
    pub first: Lsn,
    /// Segment files whose time lies in the future of this machine's clock: the clock is behind
    /// now, or was ahead. Their times were not used, so more may be kept than asked for.
    pub of_the_future: Vec<PathBuf>,
    /// The files' times jump by so much, which is longer than the log can have lived: a clock was
    /// behind. Nothing goes for that.
    pub jump: Option<Duration>,
}

/// The first record to keep of the log in `path`, for `truncate_before`; the first record of the
/// log if all are kept. Changes nothing. A writer may append meanwhile.
///
/// # Errors
/// As [`super::look`]; [`Error::Corrupt`] when the log is damaged, so that it is unknown what may
/// be truncated; [`Error::Invalid`] when files have no times.
pub fn first_to_keep(path: impl AsRef<Path>, keep: Keep) -> Result<Lsn> {
    what_to_keep(path, keep).map(|kept| kept.first)
}

/// As [`first_to_keep`], and also names the files whose times were not used.
///
/// # Errors
/// As [`first_to_keep`].
pub fn what_to_keep(path: impl AsRef<Path>, keep: Keep) -> Result<Kept> {
    what_to_keep_in(&AnyDirectory::new(find_directory(path)?), keep, SystemTime::now)
}

/// As [`first_to_keep`], in any directory ([`AnyDirectory`]), at the time `now`.
///
/// # Errors
/// As [`first_to_keep`].
pub fn first_to_keep_in(
    directory: impl Into<AnyDirectory>,
    keep: Keep,
    now: SystemTime,
) -> Result<Lsn> {
    what_to_keep_in(&directory.into(), keep, || now).map(|kept| kept.first)
}

fn what_to_keep_in(
    directory: &AnyDirectory,
    keep: Keep,
    clock: impl FnOnce() -> SystemTime,
) -> Result<Kept> {
    let report = look_in(directory.clone())?;
    let (mut of_the_future, mut jump) = (Vec::new(), None);
    if let Some(damage) = report.damage.first() {
        return Err(damage.clone().into());
    }
    let first = match keep {
        Keep::Records(count) => newest_records(&report, count),
        Keep::Bytes(bytes) => first_of(&report, by_bytes(&report, bytes)),
        Keep::For(age) => {
            let times = times(directory, &report)?;
            // Asked after the files: a writer may change them until then, and what it changes is
            // not of the future.
            let now = clock();
            let newest = report.segments.iter().rev();
            let ahead = newest.zip(&times).filter(|(_, time)| **time > now);
            of_the_future = ahead.map(|(segment, _)| segment.path.clone()).collect();
            let kept = kept_by_age(&times, age, now, since_start());
            jump = kept.jump;
            first_of(&report, kept.count)
        }
    };
    // A log that ends before its first record is empty.
    Ok(Kept { first: first.max(report.first), of_the_future, jump })
}

/// The first of so many of the newest records. What is lost is none.
fn newest_records(report: &Report, count: u64) -> Lsn {
    let (mut end, mut left) = (report.last.get() + 1, count);
    let gaps: Vec<_> = report.gaps().collect();
    for gap in gaps.iter().rev() {
        let behind = end - (gap.last.get() + 1);
        if left <= behind {
            break;
        }
        (end, left) = (gap.first.get(), left - behind);
    }
    Lsn::new(end.saturating_sub(left))
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
fn times(directory: &AnyDirectory, report: &Report) -> Result<Vec<SystemTime>> {
    let mut times = Vec::with_capacity(report.segments.len());
    for segment in report.segments.iter().rev() {
        let file = match directory
            .open(&names::segment(segment.number), &OpenFile::existing().read_only())
        {
            // The writer has truncated it, and with it all older ones.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => break,
            answer => answer?,
        };
        let Some(modified) = file.facts()?.modified else {
            let why = format!(
                "{}: files have no times here; keep by bytes or by records",
                report.path.display()
            );
            return Err(Error::Invalid(why));
        };
        times.push(modified);
    }
    Ok(times)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Log, Options};

    #[test]
    fn what_a_writer_changes_meanwhile_is_not_of_the_future() {
        let scratch = tempfile::tempdir().expect("a directory");
        let path = scratch.path().join("log");
        let log = Log::open(&path, Options::new().own_thread(false)).expect("a log");
        log.append_durable(b"before").expect("durable");
        let clock = || {
            let now = SystemTime::now();
            // Longer than the steps in which a file's time goes on.
            std::thread::sleep(Duration::from_millis(30));
            log.append_durable(b"meanwhile").expect("durable");
            now
        };
        let directory = AnyDirectory::new(find_directory(&path).expect("the log's"));
        let kept =
            what_to_keep_in(&directory, Keep::For(Duration::from_secs(9)), clock).expect("kept");
        assert_eq!(kept, Kept { first: Lsn::FIRST, of_the_future: Vec::new(), jump: None });
        let early = SystemTime::now() - Duration::from_secs(60);
        let kept =
            what_to_keep_in(&directory, Keep::For(Duration::from_secs(9)), || early).expect("kept");
        assert_eq!(kept.of_the_future.len(), 1, "a clock that is behind");
    }
}
