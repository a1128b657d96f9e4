//! What the subcommands for logs say of errors and doubts.
//!
//! *Owns*: what to do about an error. *May not touch*: when it comes.

use std::path::Path;

use inkstone::Error;

use crate::place;

/// Says on stderr what a reader could not make sure of.
pub(super) fn tell_doubts(doubts: &[String]) {
    for doubt in doubts {
        complain!("warning: {doubt}");
    }
}

/// Says on stderr what a power loss takes in a directory where a log is written.
pub(super) fn tell_of_place(directory: &Path) {
    place::warnings(directory).iter().for_each(|warning| complain!("{warning}"));
}

/// The error, with what to do about it.
pub(super) fn said(error: Error) -> anyhow::Error {
    said_of(error, "`inkstone append` creates a log")
}

/// As [`said`]; `created` says how a log of this kind comes to be, for one that is missing.
pub(super) fn said_of(error: Error, created: &str) -> anyhow::Error {
    let cure = match &error {
        Error::NoLog { path, missing: Some(missing) } => {
            return anyhow::anyhow!(
                "no log was created in {}, since there is no directory {}: mount the file system \
                 that belongs there, or create the directory (--parents does)",
                path.display(),
                missing.display()
            );
        }
        Error::NoLog { path, missing: None } => return no_log(path, created),
        Error::Locked { path, .. } => Some(format!(
            "`inkstone cat` and `inkstone copy {} NEW` work beside it",
            path.display()
        )),
        // The library's advice names an option of the library.
        Error::TooLarge { bytes, limit_bytes } => {
            return anyhow::anyhow!(
                "a record of {bytes} bytes is too large: the limit of this log is {limit_bytes} \
                 bytes; raise --record-max"
            );
        }
        Error::OtherKind { path, .. } => {
            Some(format!("`inkstone info {}` shows any log", path.display()))
        }
        _ => None,
    };
    match cure {
        // Its text has the cause already.
        Some(cure) => anyhow::anyhow!("{error}; {cure}"),
        None => error.into(),
    }
}

/// As [`said`], of a log with streams.
pub(super) fn said_of_streams(error: inkstone_streams::Error, directory: &Path) -> anyhow::Error {
    let path = directory.display();
    match error {
        inkstone_streams::Error::Log(error @ Error::Stopped) => error.into(),
        inkstone_streams::Error::Log(error) => said_of(
            error,
            "`inkstone append --stream ID --create FIRST` creates a log with streams",
        ),
        inkstone_streams::Error::NoStream { stream } => anyhow::anyhow!(
            "there is no stream {stream} in {path}: `inkstone streams {path}` lists those that are \
             there; `inkstone append {path} --stream {stream} --create FIRST` creates it"
        ),
        inkstone_streams::Error::TooLarge { bytes, limit_bytes } => anyhow::anyhow!(
            "the record takes {bytes} bytes, and the largest may take {limit_bytes}: raise \
             --record-max"
        ),
        error => error.into(),
    }
}

/// The same words whether the directory or only the log is missing: the path is said once.
fn no_log(path: &Path, created: &str) -> anyhow::Error {
    let what = if path.is_dir() { "log in" } else { "directory" };
    anyhow::anyhow!("there is no {what} {}: check the path; {created}", path.display())
}
