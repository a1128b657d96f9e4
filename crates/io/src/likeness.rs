//! Whose a new file is: that of the files beside it.
//!
//! *Owns*: owner, group and permissions of an existing file, and giving them to a new one. *May not
//! touch*: names, contents, which file is the example.
//!
//! A program that root runs once would otherwise leave files that lock the owner of the others out.

use std::fs::{File, Permissions};
use std::io::{self, ErrorKind};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{PermissionsExt, fchown};
use std::path::Path;

use rustix::fs::{FileType, Stat, fstat};
use rustix::process::{getegid, geteuid, getgroups};

use crate::error::{Error, Result};
use crate::held::Held;
use crate::sys;
use crate::transfer::retry;

/// The permissions that are given: not the bits that make a program run as its owner.
const MODE: u32 = 0o777;
/// With these everybody in the group of a file may use it, whoever has made it; or everybody.
const GROUP_READS_AND_WRITES: u32 = 0o060;
const ALL_READ_AND_WRITE: u32 = 0o006;

/// Owner, group and permissions of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Likeness {
    /// `None`: its group shares its files, whose owners differ.
    user: Option<u32>,
    group: u32,
    pub(crate) mode: u32,
}

impl Likeness {
    /// That of the plain file with this name; `None` if there is none.
    ///
    /// # Errors
    /// This process can make no files like it. What the file system answers.
    pub(crate) fn of(held: &Held, name: &str) -> Result<Option<Self>> {
        let facts = match held.facts(name) {
            Ok(facts) => facts,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(held.failed("stat", name, source)),
        };
        if FileType::from_raw_mode(facts.st_mode) != FileType::RegularFile {
            return Ok(None);
        }
        let (user, group, mode) = (facts.st_uid, facts.st_gid, mode_of(&facts));
        let me = geteuid();
        if me.as_raw() == user {
            return Ok(Some(Self { user: Some(user), group, mode }));
        }
        let why = if me.is_root() {
            match try_to_give(held, user) {
                Ok(()) => return Ok(Some(Self { user: Some(user), group, mode })),
                Err(source) => {
                    format!("its owner is user {user}, and a file was refused: {source}")
                }
            }
        } else if shares(mode, group) {
            return Ok(Some(Self { user: None, group, mode }));
        } else {
            format!("it belongs to user {user}, and this process is user {}", me.as_raw())
        };
        let source = io::Error::new(ErrorKind::PermissionDenied, why);
        Err(held
            .failed("make files like", name, source)
            .advise(format!("run this as user {user}, who could not use files of another user")))
    }

    /// Gives a new file owner and group; and the permissions, if they are to be the same. A process
    /// that has given up root since keeps its new files. If the file cannot be given to the group,
    /// the group gets no more rights than all users.
    ///
    /// # Errors
    /// The file system refuses it.
    pub(crate) fn give(&self, file: &File, path: &Path, with_mode: bool) -> Result<()> {
        let now = fstat(file).map_err(|source| Error::new("fstat", path, source))?;
        let user = self.user.filter(|user| *user != now.st_uid && geteuid().is_root());
        let mut mode = if with_mode { self.mode } else { mode_of(&now) };
        if now.st_gid != self.group && retry(|| fchown(file, None, Some(self.group))).is_err() {
            mode = mode & !0o070 | (mode & 0o007) << 3;
        }
        if user.is_some() {
            retry(|| fchown(file, user, None)).map_err(|source| {
                Error::new("fchown", path, source)
                    .advise("run this as the user who owns the files beside it")
            })?;
        }
        // Last: a change of the owner clears some bits.
        if mode_of(&now) != mode {
            retry(|| file.set_permissions(Permissions::from_mode(mode)))
                .map_err(|source| Error::new("fchmod", path, source))?;
        }
        Ok(())
    }
}

/// Whether root may give a file here to this user: not without the capability, nor where the user
/// is unknown (a container). Where no file without a name can be made, the first file shows it.
fn try_to_give(held: &Held, user: u32) -> io::Result<()> {
    match sys::unnamed_file(held.as_fd(), 0) {
        Ok(file) => retry(|| fchown(&file, Some(user), None)),
        Err(_) => Ok(()),
    }
}

fn mode_of(facts: &Stat) -> u32 {
    sys::names_and_mode(facts).1 & MODE
}

/// Whether everybody who may use such a file may use one of this process, too.
fn shares(mode: u32, group: u32) -> bool {
    let is_in = || {
        let groups = getgroups().unwrap_or_default();
        getegid().as_raw() == group || groups.iter().any(|one| one.as_raw() == group)
    };
    mode & ALL_READ_AND_WRITE == ALL_READ_AND_WRITE
        || mode & GROUP_READS_AND_WRITES == GROUP_READS_AND_WRITES && is_in()
}
