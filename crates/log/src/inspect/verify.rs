//! Reads a whole log, and counts what could be saved of a damaged one.
//!
//! *Owns*: the three forms of `verify`. *May not touch*: what damage is (`survey.rs`), what can be
//! saved (`salvage.rs`).

use std::path::Path;
use std::sync::atomic::AtomicBool;

use inkstone_io::AnyDirectory;

use super::report::Report;
use super::salvage::savable;
use super::survey::{Depth, steady};
use crate::directory::find_directory;
#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;

/// Reads the whole log in `path` and reports every segment and every damaged place that can be
/// found.
///
/// Beside a living writer the files change while they are read, so damage counts only if a second
/// pass finds it in the same place.
///
/// # Errors
/// [`Error::NoLog`]; [`Error::UnknownVersion`] where a newer program has written; errors of the
/// file system, of the kind `ResourceBusy` where a writer changes the files faster than they can be
/// read. Damage is not an error: it is in the report.
pub fn verify(path: impl AsRef<Path>) -> Result<Report> {
    verify_in(&find_directory(path)?)
}

/// As [`verify`], but stops soon after `stop` has become true.
///
/// # Errors
/// As [`verify`]; [`Error::Stopped`].
pub fn verify_until(path: impl AsRef<Path>, stop: &AtomicBool) -> Result<Report> {
    all_of(&AnyDirectory::new(find_directory(path)?), stop)
}

/// As [`verify`], in any directory ([`AnyDirectory`]).
///
/// # Errors
/// As [`verify`].
pub fn verify_in(directory: impl Into<AnyDirectory>) -> Result<Report> {
    all_of(&directory.into(), &AtomicBool::new(false))
}

fn all_of(directory: &AnyDirectory, stop: &AtomicBool) -> Result<Report> {
    let mut surveyed = steady(directory, Depth::Everything, stop)?;
    // Beside a writer nothing can be salvaged, and files go while they are read. Of two logs in one
    // directory nobody knows which is meant.
    let report = &surveyed.report;
    if !report.is_intact() && report.writer.is_none() && !report.is_of_two_logs() {
        surveyed.report.savable = Some(savable(directory, &surveyed, stop)?);
    }
    Ok(surveyed.report)
}
