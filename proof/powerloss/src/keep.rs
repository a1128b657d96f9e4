//! Keeping what a broken promise left behind, so that people can examine it.
//!
//! *Owns*: the copy. *May not touch*: the directory that is copied.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Copies the directory `from` to a new one in `parent` and returns its path: `name`, or `name`
/// with a number, since copies of earlier runs stay as they are.
pub fn keep(from: &Path, parent: &Path, name: &str) -> Result<PathBuf, String> {
    let mut to = parent.join(name);
    for number in 2.. {
        if !to.exists() {
            break;
        }
        to = parent.join(format!("{name}-{number}"));
    }
    // `cp` also keeps links to nowhere, sockets, and pipes that nobody writes to.
    let copied = Command::new("cp").arg("-a").arg(from).arg(&to).output();
    let copied = copied.map_err(|error| format!("cp: {error}"))?;
    if copied.status.success() {
        return Ok(to);
    }
    Err(String::from_utf8_lossy(&copied.stderr).trim().to_owned())
}

/// Says what is broken in the directory `from`, and where a copy of it is.
pub fn kept(from: &Path, parent: &Path, name: &str, what: &str) -> String {
    match keep(from, parent, name) {
        Ok(kept) => format!("{what}; a copy of the directory is in {}", kept.display()),
        Err(error) => format!("{what}; the directory could not be copied: {error}"),
    }
}
