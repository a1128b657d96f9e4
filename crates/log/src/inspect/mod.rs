//! Inspects a log's files from outside: whole or damaged, beside a living writer or without one.
//!
//! *Owns*: `verify`, `look`, `dump`, `salvage`, `copy`, which the commands `verify`, `info`,
//! `dump`, `salvage` and `copy` show. *May not touch*: the inspected log: it writes no byte of it
//! and takes no lock. Only `salvage` and `copy` write, into a new log elsewhere.
//!
//! The questions and their order are those of recovery (`recovery/headers.rs`,
//! `recovery/recover.rs`, docs/format.md), but asked of every segment instead of the last.
//! Inspection does not stop at the first damage: it reads every link and segment that it can.

mod copy;
mod dump;
mod making;
mod report;
mod retention;
mod salvage;
mod spans;
mod strip;
mod survey;
mod verify;

use std::path::Path;
use std::sync::atomic::AtomicBool;

use inkstone_io::{AnyDirectory, Directory as _};

pub use copy::{Copied, copy, copy_in, copy_until};
pub use dump::{Dump, Entry, dump, dump_in};
pub use inkstone_format::{
    Batch, Control, Copies, EpochIs, Evidence, Fault, Found, GroupHeader, HeaderBlock,
    HeaderTraces, Identity, Kind, Place, Predecessor, Promise, PromiseReason, Roll, SegmentHeader,
    Stop, Tail,
};
pub use report::{Counts, FileState, Gap, OtherFile, Report, Savable, SegmentReport, SegmentState};
pub use retention::{Keep, Kept, first_to_keep, first_to_keep_in, what_to_keep};
pub use salvage::{Run, Salvage, salvage, salvage_in, salvage_until};
pub use survey::look_in;
pub use verify::{verify, verify_in, verify_until};

use crate::choice::Choice;
use crate::directory::{create_directory, find_directory};
#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;
use crate::names::newest_segment;
use crate::options::Options;
use crate::strategy::choose;

/// Reads the headers and the last segment of the log in `path`, and reports what an opening would
/// find.
///
/// # Errors
/// As [`verify`].
pub fn look(path: impl AsRef<Path>) -> Result<Report> {
    look_in(&find_directory(path)?)
}

/// As [`look`], but stops soon after `stop` has become true.
///
/// # Errors
/// As [`look`]; [`Error::Stopped`].
pub fn look_until(path: impl AsRef<Path>, stop: &AtomicBool) -> Result<Report> {
    let directory = AnyDirectory::new(find_directory(path)?);
    survey::steady(&directory, survey::Depth::Ends, stop).map(|surveyed| surveyed.report)
}

/// The way of writing that a log in `path` uses where its options leave it open, and why. Nothing
/// is made for it if there is a log: on a frozen file system that would wait until it thaws.
///
/// # Errors
/// When the directory is missing.
pub fn choice(path: impl AsRef<Path>) -> Result<Choice> {
    let directory = find_directory(path)?;
    let found = match newest_segment(&directory.list()?) {
        Some(name) => Some(directory.capabilities_by(name)?),
        None => directory.capabilities()?,
    };
    choose(&Options::default(), found.as_ref())
}

/// The directory in which a new log is made.
fn new_directory(path: &Path, options: &Options) -> Result<AnyDirectory> {
    Ok(AnyDirectory::new(create_directory(path, options)?))
}

/// Options for a new log that can hold every record of this one, and is for the same.
fn options_for(options: &Options, report: &Report) -> Options {
    use inkstone_format::frame_bytes;
    use inkstone_format::limits::{BLOCK_BYTES, RECORD_BYTES_MAX, SEGMENT_BYTES_MAX};

    let sizes = report.segments.iter().map(|segment| segment.header.segment_bytes);
    let largest_segment_bytes = sizes.max().unwrap_or(0);
    // A segment that lost its header is reported with the size of its file, which may be any.
    let largest = largest_segment_bytes.min(SEGMENT_BYTES_MAX).next_multiple_of(BLOCK_BYTES as u64);
    let bytes = options.segment_bytes.max(largest);
    let room = crate::options::record_room(bytes) as usize;
    let record = (room - frame_bytes(0)).min(RECORD_BYTES_MAX) / 8 * 8;
    let options =
        options.clone().segment_bytes(bytes).record_bytes_max(record.max(options.record_bytes_max));
    match report.segments.iter().rfind(|segment| segment.state != SegmentState::HeaderLost) {
        Some(known) => options.kind(known.header.kind).owner(known.header.owner),
        None => options,
    }
}
