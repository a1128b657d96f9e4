//! A log's files looked at from outside: whole or damaged, beside a living writer or without one.
//!
//! *Owns*: `verify`, `look`, `dump`, `salvage`, `copy`: what the command of the same names shows. *May not touch*: the
//! log that is looked at: not a byte of it is written, no lock is taken. Only `salvage` and `copy` write, into a new log
//! elsewhere.
//!
//! The questions and their order are those of recovery (`recovery/recover.rs`, docs/format.md), asked of every segment instead of
//! the last, and not given up at the first damage: each link and each segment that can be read is.

mod copy;
mod dump;
mod making;
mod pieces;
mod report;
mod retention;
mod salvage;
mod strip;
mod survey;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use inkstone_io::{Directory as _, OsDirectory};

pub use copy::{Copied, copy, copy_in, copy_until};
pub use dump::{Dump, Entry, dump, dump_in};
pub use inkstone_format::{
    Batch, Control, Copies, Evidence, GroupHeader, HeaderBlock, Kind, Promise, PromiseReason, Roll,
    SegmentHeader, Version,
};
pub use report::{Counts, FileState, OtherFile, Report, SegmentReport, SegmentState};
pub use retention::{Keep, Kept, first_to_keep, first_to_keep_in, what_to_keep};
pub use salvage::{Gap, Run, Salvage, salvage, salvage_in, salvage_until};
pub use survey::{look_in, verify_in};

use crate::choice::Choice;
#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;
use crate::options::Options;
use crate::strategy::choose;
use crate::strategy::tuned::Stored;

/// Reads the whole log in `path` and reports on every segment, and every damaged place that can be known.
///
/// Beside a living writer damage counts only if a second look finds it in the same place: the files change while they
/// are read.
///
/// # Errors
/// [`Error::NoLog`]; [`Error::UnknownVersion`] where a newer program has written; what the file system answers. Damage is
/// no error: it is in the report.
pub fn verify(path: impl AsRef<Path>) -> Result<Report> {
    verify_in(&OsDirectory::open(path.as_ref())?)
}

/// [`verify`] that stops soon after `stop` has become true.
///
/// # Errors
/// As [`verify`]; [`Error::Stopped`].
pub fn verify_until(path: impl AsRef<Path>, stop: &AtomicBool) -> Result<Report> {
    let directory = OsDirectory::open(path.as_ref())?;
    survey::steady(&directory, survey::Depth::Everything, stop).map(|surveyed| surveyed.report)
}

/// Reads the headers of the log in `path` and its last segment: what an opening would find.
///
/// # Errors
/// As [`verify`].
pub fn look(path: impl AsRef<Path>) -> Result<Report> {
    look_in(&OsDirectory::open(path.as_ref())?)
}

/// [`look`] that stops soon after `stop` has become true.
///
/// # Errors
/// As [`look`]; [`Error::Stopped`].
pub fn look_until(path: impl AsRef<Path>, stop: &AtomicBool) -> Result<Report> {
    let directory = OsDirectory::open(path.as_ref())?;
    survey::steady(&directory, survey::Depth::Ends, stop).map(|surveyed| surveyed.report)
}

/// The way of writing that a log in `path` gets where its options leave it open, as tuned or by rule, and why.
///
/// # Errors
/// When the directory is missing.
pub fn choice(path: impl AsRef<Path>) -> Result<Choice> {
    let directory = OsDirectory::open(path.as_ref())?;
    let found = directory.capabilities()?;
    choose(&Options::default(), found.as_ref(), Stored::of(&directory, found.as_ref()))
}

/// Where a new log is to be made.
fn new_directory(path: &Path, options: &Options) -> Result<Arc<OsDirectory>> {
    Ok(Arc::new(OsDirectory::create_with_mode(path, options.file_mode)?))
}

/// Options for a new log that takes every record of one whose largest segment has so many bytes.
fn options_for(options: &Options, largest_segment_bytes: u64) -> Options {
    use inkstone_format::frame_bytes;
    use inkstone_format::limits::{BLOCK_BYTES, RECORD_BYTES_MAX, SEGMENT_BYTES_MAX};

    // Where a header is lost the size is that of the file, which may be any.
    let largest = largest_segment_bytes.min(SEGMENT_BYTES_MAX).next_multiple_of(BLOCK_BYTES as u64);
    let bytes = options.segment_bytes.max(largest);
    let room = crate::options::record_room(bytes) as usize;
    let record = (room - frame_bytes(0)).min(RECORD_BYTES_MAX) / 8 * 8;
    options.clone().segment_bytes(bytes).record_bytes_max(record.max(options.record_bytes_max))
}
