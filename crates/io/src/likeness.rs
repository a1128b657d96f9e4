//! Whose a new file is: that of the files beside it.
//!
//! *Owns*: owner, group and permissions of an existing file, and giving them to a new one. *May not
//! touch*: names, contents, which file is the example.
//!
//! A program that root runs once would otherwise leave files that lock the owner of the others out.

use std::fs::{File, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{PermissionsExt, fchown};
use std::path::Path;

use rustix::fs::{FileType, fstat};
use rustix::process::geteuid;

use crate::error::{Error, Result};
use crate::held::Held;
use crate::transfer::retry;

/// The permissions that are given: not the bits that make a program run as its owner.
const MODE: u32 = 0o777;
/// With these everybody in the group of a file may use it, whoever has made it.
const GROUP_READS_AND_WRITES: u32 = 0o060;

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
        let (user, group, mode) = (facts.st_uid, facts.st_gid, facts.st_mode & MODE);
        let me = geteuid();
        if me.is_root() || me.as_raw() == user {
            return Ok(Some(Self { user: Some(user), group, mode }));
        }
        if mode & GROUP_READS_AND_WRITES == GROUP_READS_AND_WRITES {
            return Ok(Some(Self { user: None, group, mode }));
        }
        let why = format!("it belongs to user {user}, and this process is user {}", me.as_raw());
        let source = io::Error::new(ErrorKind::PermissionDenied, why);
        Err(held
            .failed("make files like", name, source)
            .advise(format!("run this as user {user}, who could not use files of another user")))
    }

    /// Gives a new file owner and group; and the permissions, if they are to be the same. A process
    /// that has given up root since keeps its new files.
    ///
    /// # Errors
    /// The file system refuses it.
    pub(crate) fn give(&self, file: &File, path: &Path, with_mode: bool) -> Result<()> {
        let now = fstat(file).map_err(|source| Error::new("fstat", path, source))?;
        let user = self.user.filter(|user| *user != now.st_uid);
        let group = Some(self.group).filter(|group| *group != now.st_gid);
        let has_given_up_root = user.is_some() && !geteuid().is_root();
        if !has_given_up_root && (user.is_some() || group.is_some()) {
            retry(|| fchown(file, user, group)).map_err(|source| {
                Error::new("fchown", path, source)
                    .advise("run this as the user who owns the files beside it")
            })?;
        }
        // Last: a change of the owner clears some bits.
        if with_mode && now.st_mode & MODE != self.mode {
            retry(|| file.set_permissions(Permissions::from_mode(self.mode)))
                .map_err(|source| Error::new("fchmod", path, source))?;
        }
        Ok(())
    }
}
