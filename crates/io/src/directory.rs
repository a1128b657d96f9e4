//! A directory of the operating system behind the seam.
//!
//! *Owns*: a directory held open, who may open what is created in it, and the refusal of every change in a forked child.
//! *May not touch*: what files hold. Its path is for messages: after the opening no call goes by it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

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

    /// What it is, whatever path leads to it: the numbers of its file system and of itself in that.
    ///
    /// # Errors
    /// What the file system answers.
    pub fn identity(&self) -> Result<(u64, u64)> {
        let facts = rustix::fs::fstat(&*self.held);
        let facts = facts.map_err(|error| Error::new("fstat", self.held.path(), error))?;
        Ok((facts.st_dev, facts.st_ino))
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
