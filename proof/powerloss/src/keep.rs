//! Keeping what a broken promise left behind, so that people can examine it.
//!
//! *Owns*: the copy. *May not touch*: the directory that is copied.

use std::path::Path;
use std::process::Command;

/// Says what is broken in the directory `from`, and where a copy of it is: in `parent`, called
/// `name`, or `name` with a number. Copies of earlier runs stay as they are.
pub fn kept(from: &Path, parent: &Path, name: &str, what: &str) -> String {
    let names = (2..).map(|number| format!("{name}-{number}"));
    let mut places = std::iter::once(name.to_owned()).chain(names).map(|name| parent.join(name));
    let Some(to) = places.find(|place| !place.exists()) else { return what.into() };
    // `cp` also keeps links to nowhere, sockets, and pipes that nobody writes to.
    match Command::new("cp").arg("-a").arg(from).arg(&to).output() {
        Ok(copied) if copied.status.success() => {
            format!("{what}; a copy of the directory is in {}", to.display())
        }
        Ok(copied) => {
            let why = String::from_utf8_lossy(&copied.stderr);
            format!("{what}; the directory could not be copied: {}", why.trim())
        }
        Err(error) => format!("{what}; the directory could not be copied: cp: {error}"),
    }
}
