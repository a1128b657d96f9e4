//! A directory that is held open, and the calls relative to it: they reach the same files wherever
//! it is moved, and whatever its path leads to by then.
//!
//! *Owns*: the descriptor, and the calls on names in it. *May not touch*: what the names mean; the
//! path, except for messages.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, RenameFlags, Stat, fcntl_getfl, fcntl_setfl, fstat,
    mkdirat, openat, renameat, renameat_with, statat, unlinkat,
};

use crate::descriptor::above_standard;
use crate::error::{Error, Result, is_not_here};
use crate::sys::{self, BTRFS, EXT4};
use crate::transfer::retry;

/// The flags with which a directory is opened.
const OPEN: OFlags = OFlags::DIRECTORY.union(OFlags::CLOEXEC);

/// Where the name leads by which a file was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OwnName {
    /// To the file, which has no other name.
    Alone,
    /// To the file, which has other names too (hard links).
    Linked,
    /// To no file, or to another one: the file was removed, moved or replaced.
    Lost,
}

/// A directory held open.
#[derive(Debug)]
pub(crate) struct Held {
    descriptor: OwnedFd,
    /// As it was opened.
    path: PathBuf,
    /// It may be listed and synced. A user who may only search it has a descriptor that can do
    /// neither.
    is_readable: bool,
}

impl Held {
    /// Opens a directory.
    ///
    /// # Errors
    /// It is missing, is not a directory, or may not be searched.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        Self::open_at(CWD, path, path)
    }

    fn open_at(directory: impl AsFd, name: &Path, path: &Path) -> Result<Self> {
        let open = |flags| {
            retry(|| above_standard(openat(&directory, name, flags | OPEN, Mode::empty())?))
        };
        let (opened, is_readable) = match open(OFlags::RDONLY) {
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                (open(sys::SEARCH_ONLY), false)
            }
            answer => (answer, true),
        };
        match opened {
            Ok(descriptor) => Ok(Self { descriptor, path: path.to_path_buf(), is_readable }),
            Err(error) if error.kind() == ErrorKind::NotADirectory => {
                Err(Error::invalid("open directory", path, "it is not a directory"))
            }
            Err(source) => {
                let is_missing = source.kind() == ErrorKind::NotFound;
                let error = Error::new("open directory", path, source);
                Err(if is_missing {
                    error.advise("check the path, or create it first")
                } else {
                    error
                })
            }
        }
    }

    /// Opens a directory, and creates it and its missing parents with this mode (less the umask).
    /// From the top down, each is durable before the next is made, and each is made in the very
    /// directory that is then synced.
    ///
    /// So an existing directory has durable parents, and only its own name may still wait for a
    /// sync, if its creator is at work right now or was killed between its two calls. This call
    /// makes that sync.
    ///
    /// # Errors
    /// A part of the path is not a directory, or could not be created or synced. What was created
    /// before stays. `NotFound` if a parent is missing and they are not to be made.
    pub(crate) fn create(
        path: &Path,
        mode: u32,
        makes_parents: bool,
        sync: &mut impl FnMut(&Self) -> Result<()>,
    ) -> Result<Self> {
        // `/`, and paths that end with `..`: they cannot be created.
        let Some(name) = path.file_name() else { return Self::open(path) };
        let above = match path.parent() {
            Some(above) if !above.as_os_str().is_empty() => above,
            _ => Path::new("."),
        };
        let parent = match Self::open(above) {
            Err(error) if error.kind() == ErrorKind::NotFound && makes_parents => {
                Self::create(above, mode, makes_parents, sync)?
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Err(could_not_create(path, &error).advise(
                    "mount the file system that belongs above it, or create the directories above \
                     it",
                ));
            }
            answer => answer.map_err(|error| could_not_create(path, &error))?,
        };
        let name = Path::new(name);
        let made = retry(|| Ok(mkdirat(&parent.descriptor, name, sys::mode(mode))?));
        let opened = Self::open_at(&parent.descriptor, name, path);
        match (made, opened) {
            (Ok(()), opened) => {
                sync(&parent)?;
                opened
            }
            (Err(_), Ok(opened)) => match sync(&parent) {
                // This user may not read the parent or not write there, so it has not created
                // anything in it.
                Err(error) if may_not_write(&error) => Ok(opened),
                synced => synced.map(|()| opened),
            },
            // It exists, so the error of the opening counts: too many files are open, or it may not
            // be searched.
            (Err(source), Err(error)) if source.kind() == ErrorKind::AlreadyExists => Err(error),
            (Err(source), Err(_)) => {
                Err(could_not_create(path, &Error::new("mkdir", path, source)))
            }
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The path of a name in it, for messages.
    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// An error about a name in it; the error says so if the directory itself was removed.
    pub(crate) fn failed(&self, operation: &'static str, name: &str, source: io::Error) -> Error {
        let is_missing = source.kind() == ErrorKind::NotFound;
        let error = Error::new(operation, self.join(name), source);
        if is_missing && self.is_removed() {
            error.advise(
                "its directory was removed while it was open: close it, and open it again by a \
                 path that exists",
            )
        } else {
            error
        }
    }

    /// Whether it was removed: nothing can be created in it then.
    pub(crate) fn is_removed(&self) -> bool {
        fstat(&self.descriptor).is_ok_and(|facts| facts.st_nlink == 0)
    }

    /// Opens or creates a plain file in it. Does not follow a link, and refuses anything else of
    /// that name, without waiting for the other end of a pipe.
    pub(crate) fn open_file(&self, name: &str, flags: OFlags, mode: u32) -> io::Result<File> {
        self.open_plain(name, flags | OFlags::NOFOLLOW, mode)
    }

    /// As [`Held::open_file`], but follows a link.
    pub(crate) fn open_plain(&self, name: &str, flags: OFlags, mode: u32) -> io::Result<File> {
        let flags = flags | OFlags::NOCTTY | OFlags::CLOEXEC;
        let mode = sys::mode(mode);
        let open = |flags| retry(|| above_standard(openat(&self.descriptor, name, flags, mode)?));
        let file = match open(flags | OFlags::NONBLOCK) {
            // Another process has a lease on the file. The kernel has asked for its release, and a
            // blocking opening waits for that.
            Err(error) if error.kind() == ErrorKind::WouldBlock && self.is_file(name)? => {
                open(flags)?
            }
            Err(error) if error.raw_os_error() == Some(libc::ELOOP) => {
                return Err(no_file("a symbolic link"));
            }
            // The answer for a pipe without a reader, and for a socket.
            Err(error) if error.raw_os_error() == Some(libc::ENXIO) => {
                return Err(no_file("a pipe or socket"));
            }
            answer => answer?,
        };
        match FileType::from_raw_mode(fstat(&file)?.st_mode) {
            FileType::RegularFile => {}
            FileType::Directory => return Err(no_file("a directory")),
            FileType::Fifo => return Err(no_file("a pipe")),
            _ => return Err(no_file("a device or socket")),
        }
        // The flag was for the opening only: io_uring would not wait for such a file. All else
        // does, so where a sandbox refuses the call, the flag stays.
        let _ = fcntl_getfl(&file).and_then(|flags| fcntl_setfl(&file, flags - OFlags::NONBLOCK));
        Ok(file.into())
    }

    /// Whether the name is that of a plain file; a link is not followed.
    pub(crate) fn is_file(&self, name: &str) -> io::Result<bool> {
        Ok(FileType::from_raw_mode(self.facts(name)?.st_mode) == FileType::RegularFile)
    }

    /// The facts of what has this name; a link is not followed.
    pub(crate) fn facts(&self, name: &str) -> io::Result<Stat> {
        retry(|| Ok(statat(&self.descriptor, name, AtFlags::SYMLINK_NOFOLLOW)?))
    }

    /// True if this name leads to the open file; a link is not followed.
    pub(crate) fn is_name_of(&self, name: &str, file: &File) -> io::Result<bool> {
        Ok(self.own_name(name, file)? != OwnName::Lost)
    }

    /// Where this name leads, by which the file was opened; a link is not followed.
    pub(crate) fn own_name(&self, name: &str, file: &File) -> io::Result<OwnName> {
        let opened = sys::identity(&retry(|| Ok(fstat(file)?))?);
        match self.facts(name) {
            Ok(facts) if sys::identity(&facts) != opened => Ok(OwnName::Lost),
            Ok(facts) if facts.st_nlink > 1 => Ok(OwnName::Linked),
            Ok(_) => Ok(OwnName::Alone),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(OwnName::Lost),
            Err(error) => Err(error),
        }
    }

    /// Which file the name leads to: its device and inode.
    #[cfg(target_os = "linux")]
    pub(crate) fn identity(&self, name: &str) -> io::Result<(u64, u64)> {
        let facts = retry(|| Ok(statat(&self.descriptor, name, AtFlags::empty())?))?;
        Ok(sys::identity(&facts))
    }

    /// Renames within it, and replaces a file of the new name.
    pub(crate) fn rename(&self, from: &str, to: &str) -> Result<()> {
        retry(|| Ok(renameat(&self.descriptor, from, &self.descriptor, to)?))
            .map_err(|source| self.failed("rename", from, source))
    }

    /// Renames within it. If a file of the new name exists, that is an error (`AlreadyExists`), and
    /// both stay.
    pub(crate) fn rename_new(&self, from: &str, to: &str) -> Result<()> {
        let here = &self.descriptor;
        let failed = |source: io::Error| {
            let is_there = source.kind() == ErrorKind::AlreadyExists;
            let error = self.failed("rename", from, source);
            if is_there {
                error.advise(format!("{} exists and was left alone", self.join(to).display()))
            } else {
                error
            }
        };
        match retry(|| Ok(renameat_with(here, from, here, to, RenameFlags::NOREPLACE)?)) {
            // A file system or a sandbox without the flag: check first.
            Err(error) if is_not_here(&error) => {
                match statat(here, to, AtFlags::SYMLINK_NOFOLLOW) {
                    Ok(_) => Err(failed(ErrorKind::AlreadyExists.into())),
                    Err(rustix::io::Errno::NOENT) => self.rename(from, to),
                    Err(error) => Err(failed(error.into())),
                }
            }
            answer => answer.map_err(failed),
        }
    }

    pub(crate) fn remove(&self, name: &str) -> Result<()> {
        retry(|| Ok(unlinkat(&self.descriptor, name, AtFlags::empty())?))
            .map_err(|source| self.failed("unlink", name, source))
    }

    /// The same directory through a new descriptor, for reading.
    pub(crate) fn fresh(&self) -> io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OPEN;
        retry(|| above_standard(openat(&self.descriptor, ".", flags, Mode::empty())?))
    }

    /// The names of its plain files that begin so, sorted.
    pub(crate) fn plain_files(&self, begin: &str) -> Result<Vec<String>> {
        self.names(|name, kind| match kind {
            // First: there may be many others.
            _ if !name.starts_with(begin) => false,
            FileType::RegularFile => true,
            // Some file systems do not report the type here. The file may be gone by now.
            FileType::Unknown => self.is_file(name).unwrap_or(false),
            _ => false,
        })
    }

    /// The names in it, sorted, whatever they are those of.
    pub(crate) fn list(&self) -> Result<Vec<String>> {
        self.names(|name, _| name != "." && name != "..")
    }

    /// The names that are wanted, sorted. Each listing has its own position.
    fn names(&self, is_wanted: impl Fn(&str, FileType) -> bool) -> Result<Vec<String>> {
        let failed = |source| self.failed("list directory", "", source);
        let entries =
            Dir::new(self.fresh().map_err(failed)?).map_err(|error| failed(error.into()))?;
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|error| failed(error.into()))?;
            // A name that is not UTF-8 is not one of ours.
            let Ok(name) = entry.file_name().to_str() else { continue };
            if is_wanted(name, entry.file_type()) {
                names.push(name.to_owned());
            }
        }
        // For a removed directory the kernel returns an error that looks like the end of the list.
        if names.is_empty() && self.is_removed() {
            return Err(failed(ErrorKind::NotFound.into()));
        }
        names.sort_unstable();
        Ok(names)
    }

    /// Makes creations, renames and removals in it durable. Always through the same descriptor: it
    /// was open before the changes, so the kernel reports every error of theirs to it. On a file
    /// system that is mounted read-only there is nothing to do.
    pub(crate) fn sync(&self) -> Result<()> {
        let failed = |source| self.failed("fsync directory", "", source);
        if !self.is_readable {
            // This fails as the first opening did, or the directory may be read by now.
            let opened = self.fresh().map_err(failed)?;
            return retry(|| sys::sync_directory(opened.as_fd())).map_err(failed);
        }
        match retry(|| sys::sync_directory(self.descriptor.as_fd())) {
            Err(error) if is_clean_by_mount(&self.descriptor, &error) => Ok(()),
            answer => answer.map_err(failed),
        }
    }

    /// Syncs its whole file system.
    pub(crate) fn sync_file_system(&self) -> Result<()> {
        retry(|| sys::sync_file_system(self.descriptor.as_fd()))
            .map_err(|source| self.failed("syncfs", "", source))
    }
}

impl AsFd for Held {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

fn no_file(what: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, format!("it is {what}, and no plain file"))
}

fn may_not_write(error: &Error) -> bool {
    let harmless = [libc::EACCES, libc::EPERM, libc::EROFS, libc::EINVAL];
    error.raw_os_error().is_some_and(|code| harmless.contains(&code))
}

fn could_not_create(path: &Path, cause: &Error) -> Error {
    let source = match cause.raw_os_error() {
        Some(code) => io::Error::from_raw_os_error(code),
        None => io::Error::new(cause.kind(), cause.to_string()),
    };
    Error::new("create directory", path, source)
        .advise("choose a path whose parents are directories that you may write to")
}

/// Whether a failed sync on a read-only file system means that nothing is dirty. File systems that
/// never write (squashfs, erofs, iso9660) have no sync and answer `EINVAL`; bcachefs answers
/// `EROFS`. ext4 and btrfs answer 0 on a read-only mount, and `EROFS` only after an error has
/// *turned* them read-only: then pages in memory may never have reached the device.
fn says_nothing_is_dirty(code: i32, file_system: u32) -> bool {
    let turns_read_only = [EXT4, BTRFS];
    code == libc::EINVAL || (code == libc::EROFS && !turns_read_only.contains(&file_system))
}

/// Whether this answer to a sync only means that the file system is mounted read-only, so that
/// nothing is dirty.
pub(crate) fn is_clean_by_mount(open: impl AsFd, answer: &io::Error) -> bool {
    let Some(code @ (libc::EINVAL | libc::EROFS)) = answer.raw_os_error() else { return false };
    let (Ok(mount), Ok(kind)) = (rustix::fs::fstatvfs(&open), sys::file_system(open.as_fd()))
    else {
        return false;
    };
    let is_read_only = mount.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY);
    is_read_only && says_nothing_is_dirty(code, kind.number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_creation_is_durable_before_the_next() {
        let above = tempfile::tempdir().expect("a directory");
        let path = above.path().join("a/b/c");
        let mut synced = Vec::new();
        let mut sync = |parent: &Held| {
            let made = ["a", "a/b", "a/b/c"]
                .iter()
                .filter(|part| above.path().join(part).exists())
                .count();
            synced.push((parent.path().to_path_buf(), made));
            Ok(())
        };
        Held::create(&path, 0o700, true, &mut sync).expect("created");
        // Again: the last name could be that of a creator that has not made its sync yet.
        Held::create(&path, 0o700, true, &mut sync).expect("found");
        // The directory above existed before the first was made in it.
        let expected = [("", 1), ("a", 2), ("a/b", 3), ("a/b", 3)]
            .map(|(parent, made)| (above.path().join(parent), made));
        assert_eq!(synced.len(), 4, "{synced:?}");
        assert!(synced.iter().zip(&expected).all(|(found, wanted)| found == wanted), "{synced:?}");
    }

    #[test]
    fn a_creation_that_cannot_be_synced_fails_and_one_that_was_there_need_not_be_ours() {
        let above = tempfile::tempdir().expect("a directory");
        let path = above.path().join("a");
        let fail = |code: i32| {
            move |parent: &Held| {
                Err(Error::new("x", parent.path(), io::Error::from_raw_os_error(code)))
            }
        };
        assert!(Held::create(&path, 0o700, true, &mut fail(libc::EACCES)).is_err());
        assert!(path.exists());
        Held::create(&path, 0o700, true, &mut fail(libc::EACCES)).expect("another user's");
        assert!(Held::create(&path, 0o700, true, &mut fail(libc::EIO)).is_err());
    }

    #[test]
    fn a_rename_that_is_not_to_replace_does_not() {
        let above = tempfile::tempdir().expect("a directory");
        let held = Held::open(above.path()).expect("held");
        let (one, two) = (above.path().join("one"), above.path().join("two"));
        std::fs::write(&one, "1").expect("written");
        std::fs::write(&two, "2").expect("written");
        let error = held.rename_new("one", "two").expect_err("it is there");
        assert_eq!(error.kind(), ErrorKind::AlreadyExists);
        assert!(error.to_string().contains("two exists and was left alone"), "{error}");
        assert_eq!(std::fs::read(&two).expect("read"), b"2");
        assert_eq!(std::fs::read(&one).expect("read"), b"1");
        held.remove("two").expect("removed");
        held.rename_new("one", "two").expect("renamed");
        assert_eq!(std::fs::read(&two).expect("read"), b"1");
    }

    #[test]
    fn a_file_system_that_an_error_turned_read_only_is_not_clean() {
        let (squashfs, bcachefs) = (0x7371_7368, 0xCA45_1A4E);
        assert!(
            says_nothing_is_dirty(libc::EINVAL, squashfs)
                && says_nothing_is_dirty(libc::EROFS, bcachefs)
        );
        assert!(
            !says_nothing_is_dirty(libc::EROFS, EXT4) && !says_nothing_is_dirty(libc::EROFS, BTRFS)
        );
        assert!(!says_nothing_is_dirty(libc::EIO, squashfs));
    }
}
