//! Deleting a directory with all in it, and nothing else.
//!
//! *Owns*: the walk. *May not touch*: what a symbolic link points to, and any file system mounted
//! below. The standard library's `remove_dir_all` keeps the first promise but walks into mounts.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags};

use inkstone_io::transfer::retry;
use inkstone_io::{Error, Result};

/// Deeper directories than a lab ever makes; each level holds a file open.
const DEPTH_MAX: u32 = 64;

/// Deletes all in `dir`, `last` after everything else, then `dir` itself.
pub(super) fn remove_tree(dir: &Path, last: &str) -> Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = retry(|| Ok(rustix::fs::open(dir, flags, Mode::empty())?));
    let fd = fd.map_err(|error| Error::new("open", dir, error))?;
    empty(fd.as_fd(), dir, Some(last), 0)?;
    let file = dir.join(last);
    match std::fs::remove_file(&file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(Error::new("delete", &file, error));
        }
        _ => {}
    }
    // Not recursive: anything that was put here since stays, and the error names it.
    std::fs::remove_dir(dir).map_err(|error| Error::new("delete", dir, error))
}

fn empty(fd: BorrowedFd<'_>, path: &Path, keep: Option<&str>, depth: u32) -> Result<()> {
    let fail = |operation, path: PathBuf, error: io::Error| Error::new(operation, path, error);
    if depth > DEPTH_MAX {
        return Err(Error::invalid(
            "delete",
            path,
            format!("more than {DEPTH_MAX} directories deep"),
        ));
    }
    // All names first: some file systems lose their place when entries go while they are listed.
    let listed = retry(|| Ok(Dir::read_from(fd)?.collect::<rustix::io::Result<Vec<_>>>()?));
    for entry in listed.map_err(|error| fail("list", path.to_path_buf(), error))? {
        let name = entry.file_name();
        let bytes = name.to_bytes();
        if bytes == b"." || bytes == b".." || keep.is_some_and(|keep| keep.as_bytes() == bytes) {
            continue;
        }
        let child_path = path.join(std::ffi::OsStr::from_bytes(bytes));
        let found = retry(|| Ok(rustix::fs::statat(fd, name, AtFlags::SYMLINK_NOFOLLOW)?));
        let found = found.map_err(|error| fail("stat", child_path.clone(), error))?;
        let mut how = AtFlags::empty();
        if FileType::from_raw_mode(found.st_mode) == FileType::Directory {
            let child = open_below(fd, name).map_err(|error| {
                let error = fail("open", child_path.clone(), error);
                match error.raw_os_error() {
                    Some(libc::EXDEV) => error.advise("a file system is mounted there: unmount it"),
                    _ => error,
                }
            })?;
            empty(child.as_fd(), &child_path, None, depth + 1)?;
            how = AtFlags::REMOVEDIR;
        }
        retry(|| Ok(rustix::fs::unlinkat(fd, name, how)?))
            .map_err(|error| fail("delete", child_path, error))?;
    }
    Ok(())
}

/// Opens a directory in `parent` if it is on the same mount.
fn open_below(parent: BorrowedFd<'_>, name: &CStr) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_XDEV | ResolveFlags::NO_SYMLINKS;
    match retry(|| Ok(rustix::fs::openat2(parent, name, flags, Mode::empty(), resolve)?)) {
        // Before Linux 5.6, or a container's filter of system calls: another device is all that can
        // be seen then.
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)) => {
            let child = retry(|| Ok(rustix::fs::openat(parent, name, flags, Mode::empty())?))?;
            let same = device_of(parent)? == device_of(child.as_fd())?;
            if same { Ok(child) } else { Err(io::Error::from_raw_os_error(libc::EXDEV)) }
        }
        answer => answer,
    }
}

fn device_of(fd: BorrowedFd<'_>) -> io::Result<u64> {
    use std::os::unix::fs::MetadataExt;
    Ok(File::from(fd.try_clone_to_owned()?).metadata()?.dev())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn deletes_all_below_and_nothing_that_links_point_to() {
        let outside = tempfile::tempdir().expect("a directory");
        fs::write(outside.path().join("keep"), "x").expect("a file");
        let parent = tempfile::tempdir().expect("a directory");
        let dir = parent.path().join("dir");
        fs::create_dir_all(dir.join("a/b/c")).expect("directories");
        fs::write(dir.join("a/b/file"), "x").expect("a file");
        fs::write(dir.join("lock"), "x").expect("a file");
        symlink(outside.path(), dir.join("a/link")).expect("a link");
        symlink("/nonexistent", dir.join("dangling")).expect("a link");
        remove_tree(&dir, "lock").expect("removed");
        assert!(!dir.exists());
        // A link in place of the directory itself is refused.
        symlink(outside.path(), &dir).expect("a link");
        assert!(remove_tree(&dir, "lock").is_err());
        assert!(outside.path().join("keep").exists());
    }

    #[test]
    fn too_deep_is_an_error() {
        let parent = tempfile::tempdir().expect("a directory");
        let dir = parent.path().join("dir");
        let deep: PathBuf = (0..DEPTH_MAX + 2).fold(dir.clone(), |path, _| path.join("d"));
        fs::create_dir_all(&deep).expect("directories");
        let error = remove_tree(&dir, "lock").expect_err("too deep");
        assert!(error.to_string().contains("deep"), "{error}");
    }
}
