//! Keeping what a broken promise left behind, so that people can examine it.
//!
//! *Owns*: copying a directory as it is. *May not touch*: the directory that is copied.

use std::fs;
use std::os::unix::fs::symlink;
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
        let kind = entry.file_type().map_err(|error| fail(&source, error))?;
        if kind.is_dir() {
            copy_directory(&source, &target)?;
        } else if kind.is_symlink() {
            let linked = fs::read_link(&source).and_then(|to| symlink(to, &target));
            linked.map_err(|error| fail(&source, error))?;
        } else if kind.is_file() {
            fs::copy(&source, &target).map_err(|error| fail(&source, error))?;
        }
        // A socket has no bytes, and opening a pipe would wait for its writer.
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

    /// Programs leave locks that are links to nowhere, sockets, and pipes that nobody writes to.
    #[test]
    fn what_is_no_file_keeps_nothing_from_being_kept() {
        let directory = std::env::temp_dir().join(format!("inkstone-odd-{}", std::process::id()));
        let log = directory.join("log");
        fs::create_dir_all(&log).expect("directories");
        fs::write(log.join("file"), b"bytes").expect("a file");
        std::os::unix::fs::symlink("nowhere", log.join("lock")).expect("a link");
        let socket = std::os::unix::net::UnixListener::bind(log.join("socket")).expect("a socket");
        let made = std::process::Command::new("mkfifo").arg(log.join("pipe")).status();
        assert!(made.expect("mkfifo").success());
        let kept = keep(&log, &directory, "kept").expect("a copy");
        assert_eq!(fs::read(kept.join("file")).expect("its file"), b"bytes");
        assert_eq!(fs::read_link(kept.join("lock")).expect("its link"), Path::new("nowhere"));
        assert_eq!(fs::read_dir(&kept).expect("a directory").count(), 2);
        drop(socket);
        fs::remove_dir_all(&directory).expect("removed");
    }
}
