//! A directory of the operating system behind the seam.
//!
//! *Owns*: a directory held open, who may open what is created in it, and the refusal of every change in a forked child.
//! *May not touch*: what files hold. Its path is for messages: after the opening no call goes by it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, Statx, StatxFlags, fstatvfs, statx};

use crate::capability::Capabilities;
use crate::engine::OsEngine;
use crate::error::{Error, Result};
use crate::file::OsFile;
use crate::fork::ForkMark;
use crate::held::Held;
use crate::lock::{self, OsLock};
use crate::seam::{Directory, OpenFile};
use crate::strategy::EngineKind;
use crate::transfer::retry;

/// Files that are created are their owner's alone, unless somebody says otherwise.
pub const FILE_MODE: u32 = 0o600;

/// What a directory is, whatever path leads to it. The first two alone do not tell: both are used again, by the next file system
/// that is mounted and the next directory that is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DirectoryIdentity {
    /// The number of its file system, while that is mounted.
    pub device: u64,
    /// Its own number there.
    pub inode: u64,
    /// When it was made, in nanoseconds since 1970; 0 where that cannot be told.
    pub born_nanos: u64,
    /// The file system's own number (`f_fsid`), which many make from its UUID; 0 where it has none.
    pub system: u64,
}

/// A directory of the operating system, held open: it may be renamed, its path may come to lead elsewhere, something may be
/// mounted over it, the process may change its working directory, and every call still goes to the directory that was opened.
#[derive(Debug)]
pub struct OsDirectory {
    held: Arc<Held>,
    mark: ForkMark,
    file_mode: u32,
}

impl OsDirectory {
    /// An existing directory.
    ///
    /// # Errors
    /// When it is missing, no directory, or may not be searched.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self> {
        Self::of(Held::open(&path.into())?)
    }

    /// A directory that is created, with its missing parents, if it is not there: for its owner alone (mode 0700). Each
    /// creation is durable on return.
    ///
    /// # Errors
    /// A part of the path is no directory, or could not be created or synced. What was created before stays.
    pub fn create(path: impl Into<PathBuf>) -> Result<Self> {
        Self::create_with_mode(path, FILE_MODE)
    }

    /// As [`OsDirectory::create`], for files of this mode ([`OsDirectory::file_mode`]). The directories that are created may
    /// be searched by whoever may read such files: 0640 gives 0750.
    ///
    /// # Errors
    /// As [`OsDirectory::create`].
    pub fn create_with_mode(path: impl Into<PathBuf>, file_mode: u32) -> Result<Self> {
        let searched = file_mode | (file_mode & 0o444) >> 2;
        Self::of(Held::create(&path.into(), searched & 0o777, &mut Held::sync)?)
            .map(|directory| directory.file_mode(file_mode))
    }

    /// The permissions of the files that are created from here on, 0600 by default: the nine bits of `chmod`, from which
    /// the process's umask takes away as usual. Files that are there keep theirs.
    #[must_use]
    pub fn file_mode(self, file_mode: u32) -> Self {
        Self { file_mode: file_mode & 0o777, ..self }
    }

    fn of(held: Held) -> Result<Self> {
        Ok(Self { held: Arc::new(held), mark: ForkMark::new()?, file_mode: FILE_MODE })
    }

    /// Whether it was removed since it was opened: then nothing can be created in it, and nothing will be found by its path.
    pub fn is_removed(&self) -> bool {
        self.held.is_removed()
    }

    /// What it is, whatever path leads to it.
    ///
    /// # Errors
    /// What the file system answers.
    pub fn identity(&self) -> Result<DirectoryIdentity> {
        let facts = rustix::fs::fstat(&*self.held);
        let facts = facts.map_err(|error| Error::new("fstat", self.held.path(), error))?;
        // A sandbox may refuse either: then it does for every process of the log.
        let born = statx(&*self.held, "", AtFlags::EMPTY_PATH, StatxFlags::BTIME).ok();
        let born =
            born.filter(|born| StatxFlags::from_bits_retain(born.stx_mask).contains(StatxFlags::BTIME));
        let nanos = |born: &Statx| {
            let seconds = u64::try_from(born.stx_btime.tv_sec).unwrap_or(0);
            seconds.wrapping_mul(1_000_000_000).wrapping_add(u64::from(born.stx_btime.tv_nsec))
        };
        let system = fstatvfs(&*self.held).map_or(0, |system| system.f_fsid);
        Ok(DirectoryIdentity {
            device: facts.st_dev,
            inode: facts.st_ino,
            born_nanos: born.as_ref().map_or(0, nanos),
            system,
        })
    }

    pub(crate) fn held(&self) -> &Arc<Held> {
        &self.held
    }

    pub(crate) fn mode_of_files(&self) -> u32 {
        self.file_mode
    }

    /// Refuses a change in a forked child, and a name that leads elsewhere.
    pub(crate) fn check_change(&self, operation: &'static str, name: &str) -> Result<()> {
        if self.mark.is_child() {
            return Err(Error::forked(operation, self.held.join(name)));
        }
        self.check_name(name)
    }

    pub(crate) fn check_name(&self, name: &str) -> Result<()> {
        if name.is_empty() || name.contains(['/', '\0']) || name == "." || name == ".." {
            let why = "a file's name has no slash and is not empty";
            return Err(Error::invalid("open", self.held.join(name), why));
        }
        Ok(())
    }
}

impl Directory for OsDirectory {
    type File = OsFile;
    type Engine = OsEngine;
    type Lock = OsLock;

    fn path(&self) -> &Path {
        self.held.path()
    }

    fn open(&self, name: &str, how: &OpenFile) -> Result<OsFile> {
        self.check_name(name)?;
        if !how.read_only {
            self.check_change("open", name)?;
        }
        OsFile::open_in(&self.held, name, how, self.file_mode, self.mark)
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.check_change("rename", from)?;
        self.check_name(to)?;
        self.held.rename(from, to)
    }

    fn rename_new(&self, from: &str, to: &str) -> Result<()> {
        self.check_change("rename", from)?;
        self.check_name(to)?;
        self.held.rename_new(from, to)
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.check_change("unlink", name)?;
        self.held.remove(name)
    }

    fn list(&self) -> Result<Vec<String>> {
        self.held.list()
    }

    fn sync(&self) -> Result<()> {
        if self.mark.is_child() {
            return Err(Error::forked("fsync directory", self.held.path()));
        }
        self.held.sync()
    }

    fn lock(&self, name: &str) -> Result<Option<OsLock>> {
        self.check_change("lock", name)?;
        OsLock::take(&self.held, name, self.file_mode, self.mark)
    }

    fn locked_by(&self, name: &str) -> Result<Option<String>> {
        self.check_name(name)?;
        lock::holder(&self.held, name)
    }

    fn is_forked(&self) -> bool {
        self.mark.is_child()
    }

    fn free_bytes(&self) -> Result<u64> {
        crate::capability::free_bytes_of(&*self.held, self.held.path())
    }

    fn capabilities(&self) -> Result<Option<Capabilities>> {
        Capabilities::of_held(&self.held).map(Some)
    }

    fn random_bytes(&self) -> Result<[u8; 16]> {
        let mut bytes = [0; 16];
        // So few bytes come whole, or not at all.
        retry(|| {
            rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::empty()).map_err(Into::into)
        })
        .map_err(|source| Error::new("getrandom for", self.held.path(), source))?;
        Ok(bytes)
    }

    fn engine(&self, kind: EngineKind, depth: usize) -> Result<OsEngine> {
        OsEngine::open(kind, depth)
    }
}
