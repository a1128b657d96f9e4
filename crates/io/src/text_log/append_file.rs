//! A file that is only appended to, and is text at every moment: for log lines.
//!
//! *Owns*: appending, the identity of the file. *May not touch*: lines.
//!
//! It is opened with `O_APPEND`: a truncation by another program (`copytruncate`) leaves no hole,
//! and other programs that append overwrite nothing.

use std::fs::{File, Metadata, Permissions};
use std::io::{self, Write as _};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustix::fs::{AtFlags, OFlags, fstatvfs, statat};

use crate::directory::{FILE_MODE, OsDirectory};
use crate::error::{Error, Result};
use crate::sys;
use crate::transfer::retry;

/// With so many bytes free, bytes are not what is missing: a buffer has a quarter of them.
const MUCH: u64 = 1 << 20;
/// The bits that a log's file may get from the mode of another: not those that make a program run
/// as its owner.
const MODE_GIVEN: u32 = 0o777;

/// The identity and the size of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AppendFacts {
    /// The file system's number.
    pub device: u64,
    /// The file's number in it.
    pub inode: u64,
    /// Its size in bytes.
    pub len_bytes: u64,
    /// How many names it has; 0 if it was removed, so that what is written to it is lost.
    pub names: u64,
    /// When it was last written.
    pub modified: SystemTime,
}

impl AppendFacts {
    fn of_stat(stat: &rustix::fs::Stat) -> Self {
        let (device, inode) = sys::identity(stat);
        Self {
            device,
            inode,
            len_bytes: u64::try_from(stat.st_size).unwrap_or(0),
            names: sys::names_and_mode(stat).0,
            modified: SystemTime::UNIX_EPOCH + sys::modified(stat),
        }
    }

    fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            len_bytes: metadata.len(),
            names: metadata.nlink(),
            modified: metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH),
        }
    }
}

/// The owner and the permissions of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    /// The user's number.
    pub user: u32,
    /// The group's number.
    pub group: u32,
    /// The twelve bits of `chmod`.
    pub mode: u32,
}

impl Owner {
    /// Those of an open file, whatever its name leads to by now.
    pub fn of(metadata: &Metadata) -> Self {
        Self { user: metadata.uid(), group: metadata.gid(), mode: metadata.mode() & 0o7777 }
    }
}

/// A file opened for appending.
#[derive(Debug)]
pub struct AppendFile {
    file: File,
    path: PathBuf,
}

/// The entry of a name in a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Named {
    /// Its identity; for a link, that of the link itself.
    pub facts: AppendFacts,
    /// Its owner.
    pub owner: Owner,
}

impl OsDirectory {
    /// The entry of this name in the directory, if there is one; a link is not followed.
    ///
    /// # Errors
    /// What the file system answers.
    pub fn look(&self, name: &str) -> Result<Option<Named>> {
        self.check_name(name)?;
        let held = self.held();
        match retry(|| Ok(statat(held.as_fd(), name, AtFlags::SYMLINK_NOFOLLOW)?)) {
            Ok(stat) => {
                let mode = sys::names_and_mode(&stat).1;
                let owner = Owner { user: stat.st_uid, group: stat.st_gid, mode };
                Ok(Some(Named { facts: AppendFacts::of_stat(&stat), owner }))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(held.failed("stat", name, source)),
        }
    }
}

impl AppendFile {
    /// Opens the file of this name in the directory, or creates it empty. The name is durable after
    /// a sync of the directory.
    ///
    /// # Errors
    /// It is not a plain file (a link, or a pipe, which is refused without waiting); or what the
    /// file system answers.
    pub fn open(directory: &OsDirectory, name: &str) -> Result<Self> {
        let advice = "check that its directory exists and belongs to you";
        let mode = directory.mode_of_files();
        Self::open_with(directory, name, "open log", OFlags::CREATE, mode)
            .map_err(|error| if error.is_full() { error } else { error.advise(advice) })
    }

    /// Creates it, for this user alone until it is given to its owner ([`AppendFile::give_to`]);
    /// the name must be free.
    ///
    /// # Errors
    /// The name is in use, or what the file system answers.
    pub fn create_private(directory: &OsDirectory, name: &str) -> Result<Self> {
        Self::open_with(directory, name, "create log", OFlags::CREATE | OFlags::EXCL, FILE_MODE)
    }

    pub(crate) fn open_with(
        directory: &OsDirectory,
        name: &str,
        operation: &'static str,
        flags: OFlags,
        mode: u32,
    ) -> Result<Self> {
        directory.check_change(operation, name)?;
        let held = directory.held();
        let flags = flags | OFlags::WRONLY | OFlags::APPEND | OFlags::NOFOLLOW;
        let file = held.open_plain(name, flags, mode);
        let file = file.map_err(|source| {
            let error = Error::new(operation, held.join(name), source);
            if error.is_full() { say_what_is_full(error, held.as_fd()) } else { error }
        })?;
        Ok(Self { file, path: held.join(name) })
    }

    pub(crate) fn into_file(self) -> File {
        self.file
    }

    /// The file itself, for code that writes through [`std::io::Write`].
    pub fn std_file(&self) -> &File {
        &self.file
    }

    /// Gives it this owner, group and mode, without the bits that make a program run as its owner.
    /// If it cannot be given to the group, the group gets no more rights than all users.
    ///
    /// # Errors
    /// Owner, group or mode could not be set: only root may change the owner, and other users only
    /// to groups of theirs.
    pub fn give_to(&self, owner: Owner) -> Result<()> {
        let now = self.file.metadata().map_err(|source| Error::new("fstat", &self.path, source))?;
        let mut mode = owner.mode & MODE_GIVEN;
        if (now.uid(), now.gid(), now.mode() & 0o7777) == (owner.user, owner.group, mode) {
            return Ok(());
        }
        let give = |user: Option<u32>, group: Option<u32>| {
            retry(|| fchown(&self.file, user, group))
                .map_err(|source| Error::new("fchown", &self.path, source))
                .map_err(|error| {
                    error.advise("the file has another owner or group than the one before it")
                })
        };
        let group = if now.gid() == owner.group { Ok(()) } else { give(None, Some(owner.group)) };
        let user = if now.uid() == owner.user { Ok(()) } else { give(Some(owner.user), None) };
        if group.is_err() {
            mode &= !0o070 | (mode & 0o007) << 3;
        }
        // Last: a change of the owner clears some bits of the mode.
        let mode = retry(|| self.file.set_permissions(Permissions::from_mode(mode)))
            .map_err(|source| Error::new("fchmod", &self.path, source));
        mode.and(group).and(user)
    }

    /// Its facts now.
    ///
    /// # Errors
    /// What the file system answers.
    pub fn facts(&self) -> Result<AppendFacts> {
        let metadata =
            self.file.metadata().map_err(|source| Error::new("fstat", &self.path, source))?;
        Ok(AppendFacts::of(&metadata))
    }

    /// Writes from the front of `bytes`, once; returns how many were written, 0 only for no bytes.
    /// Not durable on return.
    ///
    /// # Errors
    /// What the file system answers; then no byte was written.
    pub fn append(&self, bytes: &[u8]) -> Result<usize> {
        match retry(|| (&self.file).write(bytes)) {
            Ok(0) if !bytes.is_empty() => Err(io::Error::from(io::ErrorKind::WriteZero)),
            answer => answer,
        }
        .map_err(|source| {
            let error = Error::new("append", &self.path, source);
            match error.kind() {
                _ if error.is_full() => say_what_is_full(error, &self.file),
                io::ErrorKind::FileTooLarge => {
                    error.advise("raise the limit (ulimit -f), or move the file away")
                }
                _ => error.advise("if the disk was mounted afresh, have the log opened again"),
            }
        })
    }

    /// Makes all that was appended durable.
    ///
    /// # Errors
    /// After an error the state of what was appended since the last sync is unknown; do not retry.
    pub fn sync(&self) -> Result<()> {
        retry(|| self.file.sync_data())
            .map_err(|source| Error::new("fdatasync", &self.path, source))
    }
}

/// What to do about a full file system: bytes may be free, and something else used up.
fn say_what_is_full(error: Error, on: impl AsFd) -> Error {
    let facts = fstatvfs(on).ok();
    let has_bytes =
        facts.as_ref().is_some_and(|facts| facts.f_bavail.saturating_mul(facts.f_frsize) >= MUCH);
    let advice = match &facts {
        _ if error.kind() == io::ErrorKind::QuotaExceeded => {
            "a quota of the user, the group or the project is used up: free some of it, or raise it"
        }
        Some(facts) if has_bytes && facts.f_files > 0 && facts.f_favail == 0 => {
            "bytes are free, but no inode is left (`df -i`): remove some files"
        }
        _ if has_bytes => {
            "bytes are free, so a quota, or the room for metadata (btrfs), is used up: free some \
             of that"
        }
        _ => "free some space",
    };
    error.advise(format!("{advice}; writing then continues by itself"))
}

/// Gives the calling thread the lowest priority from now on: for work that no thread waits for.
///
/// # Errors
/// What the kernel answers.
pub fn let_others_go_first() -> Result<()> {
    sys::let_others_go_first()
        .map_err(|error| Error::new("setpriority", Path::new("this thread"), error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_given_to_another_with_its_mode() {
        let directory = tempfile::tempdir().expect("a directory");
        let held = OsDirectory::open(directory.path()).expect("held");
        let file = AppendFile::create_private(&held, "log").expect("created");
        let owner = || held.look("log").expect("looked").expect("there").owner;
        let mine = owner();
        assert_eq!(mine.mode & 0o077, 0);
        file.give_to(Owner { mode: 0o664, ..mine }).expect("mine to give");
        assert_eq!(owner().mode, 0o664);
        let others = Owner { user: 65534, group: 4, mode: 0o640 };
        match file.give_to(others) {
            Ok(()) => assert_eq!(owner(), others),
            Err(error) => {
                assert!(error.to_string().contains("fchown"), "{error}");
                assert_eq!(owner().mode & 0o070, 0, "not for a group that was not meant");
                eprintln!("NOT RUN: a file given to another user: that needs root");
            }
        }
    }
}
