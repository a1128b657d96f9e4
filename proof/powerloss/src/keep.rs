//! Keeping what a broken promise left behind, so that people can examine it.
//!
//! *Owns*: copying a directory as it is. *May not touch*: the directory that is copied.

use std::fs;
use std::path::{Path, PathBuf};

/// Copies the directory `from` to a new one in `parent` and returns its path: `name`, or `name`
/// with a number.
pub fn keep(from: &Path, parent: &Path, name: &str) -> Result<PathBuf, String> {
    let mut kept = parent.join(name);
    let mut number = 1;
    // Copies of earlier runs stay as they are.
    while kept.exists() {
        number += 1;
        kept = parent.join(format!("{name}-{number}"));
    }
    copy_directory(from, &kept).map(|()| kept)
}

/// Says what is broken in the directory `from`, and where a copy of it is.
pub fn kept(from: &Path, parent: &Path, name: &str, what: &str) -> String {
    match keep(from, parent, name) {
        Ok(kept) => format!("{what}; a copy of the directory is in {}", kept.display()),
        Err(error) => format!("{what}; the directory could not be copied: {error}"),
    }
}

fn copy_directory(from: &Path, to: &Path) -> Result<(), String> {
    let fail = |path: &Path, error: std::io::Error| format!("copy {}: {error}", path.display());
    fs::create_dir_all(to).map_err(|error| fail(to, error))?;
    for entry in fs::read_dir(from).map_err(|error| fail(from, error))? {
        let entry = entry.map_err(|error| fail(from, error))?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type().map_err(|error| fail(&source, error))?.is_dir() {
            copy_directory(&source, &target)?;
        } else {
            fs::copy(&source, &target).map_err(|error| fail(&source, error))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_the_same_and_takes_no_others_place() {
        let directory = std::env::temp_dir().join(format!("inkstone-keep-{}", std::process::id()));
        fs::create_dir_all(directory.join("log/inside")).expect("directories");
        fs::write(directory.join("log/inside/file"), b"bytes").expect("a file");
        for name in ["kept", "kept-2"] {
            let kept = keep(&directory.join("log"), &directory, "kept").expect("a copy");
            assert_eq!(kept, directory.join(name));
            assert_eq!(fs::read(kept.join("inside/file")).expect("its file"), b"bytes");
        }
        fs::remove_dir_all(&directory).expect("removed");
    }
}
