//! A directory of the operating system.
//!
//! *Owns*: a directory that is held open, the permissions of files created in it, and the refusal
//! of every change in a forked child. *May not touch*: what files hold. Its path is for messages:
//! after the opening no call uses it.

use std::io::ErrorKind;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::fstatvfs;

use crate::capability::Capabilities;
use crate::directory_lock::DirectoryLock;
use crate::error::{Error, Result};
use crate::file::OsFile;
use crate::fork::ForkMark;
use crate::held::Held;
use crate::likeness::Likeness;
use crate::lock::{self, OsLock};
use crate::seam::{Directory, OpenFile};
use crate::sys;
use crate::transfer::retry;
use crate::{SharedPage, SharedPageReader};

/// By default only the owner may read and write the files that are created.
pub const FILE_MODE: u32 = 0o600;
/// No file system of Linux has longer names.
const NAME_BYTES_MAX: usize = 255;

/// The identity of a directory, whatever path leads to it. The first two numbers are not enough:
/// both are used again, by the next file system that is mounted and the next directory that is
/// made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DirectoryIdentity {
    /// The number of its file system, while that is mounted.
    pub device: u64,
    /// Its own number there.
    pub inode: u64,
    /// When it was made, in nanoseconds since 1970; 0 if that is unknown.
    pub born_nanos: u64,
    /// The file system's own number (`f_fsid`), which many make from its UUID; 0 where it has none.
    pub system: u64,
}

/// A directory of the operating system, held open. Every call goes to the directory that was
/// opened, even if it is renamed, its path leads elsewhere by now, another file system is mounted
/// over it, or the process changes its working directory.
#[derive(Debug, Clone)]
pub struct OsDirectory {
    held: Arc<Held>,
    mark: ForkMark,
    /// As it was asked for.
    file_mode: Option<u32>,
    like: Option<Likeness>,
}

impl OsDirectory {
    /// Opens an existing directory.
    ///
    /// # Errors
    /// When it is missing, is not a directory, or may not be searched.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self> {
        Self::of(Held::open(&path.into())?)
    }

    /// Opens a directory, and creates it with its missing parents, for its owner alone (mode 0700).
    /// Each creation is durable on return.
    ///
    /// # Errors
    /// A part of the path is not a directory, or could not be created or synced. What was created
    /// before stays.
    pub fn create(path: impl Into<PathBuf>) -> Result<Self> {
        Self::create_with_mode(path, None)
    }

    /// As [`OsDirectory::create`], for files of this mode ([`OsDirectory::file_mode`]), if there is
    /// one. Users who may read such files may search the created directories: 0640 gives 0750.
    ///
    /// # Errors
    /// As [`OsDirectory::create`].
    pub fn create_with_mode(
        path: impl Into<PathBuf>,
        file_mode: impl Into<Option<u32>>,
    ) -> Result<Self> {
        Self::create_at(&path.into(), file_mode.into(), true)
    }

    /// As [`OsDirectory::create_with_mode`], but creates no directory above it: where one is
    /// missing, a file system may not be mounted.
    ///
    /// # Errors
    /// As [`OsDirectory::create`]; of the kind `NotFound` when a directory above it is missing.
    pub fn create_in_parent(
        path: impl Into<PathBuf>,
        file_mode: impl Into<Option<u32>>,
    ) -> Result<Self> {
        Self::create_at(&path.into(), file_mode.into(), false)
    }

    fn create_at(path: &Path, file_mode: Option<u32>, makes_parents: bool) -> Result<Self> {
        let read = file_mode.unwrap_or(FILE_MODE);
        let searched = read | (read & 0o444) >> 2;
        let held = Held::create(path, searched & 0o777, makes_parents, &mut Held::sync)?;
        Ok(Self { file_mode, ..Self::of(held)? })
    }

    /// The highest directory above `path` that is missing: [`OsDirectory::create`] would make it
    /// and all below it. `None` if only `path` itself may be missing.
    pub fn missing_above(path: &Path) -> Option<&Path> {
        let is_missing = |above: &&Path| {
            let found = std::fs::metadata(above);
            found.is_err_and(|error| error.kind() == ErrorKind::NotFound)
        };
        let above = path.ancestors().skip(1).take_while(|above| !above.as_os_str().is_empty());
        above.take_while(is_missing).last()
    }

    /// The permissions of the files that are created from now on, 0600 by default: the nine bits of
    /// `chmod`, of which the umask of the process clears some as usual. Existing files keep theirs.
    #[must_use]
    pub fn file_mode(self, file_mode: u32) -> Self {
        Self { file_mode: Some(file_mode & 0o777), ..self }
    }

    fn of(held: Held) -> Result<Self> {
        Ok(Self { held: Arc::new(held), mark: ForkMark::new()?, file_mode: None, like: None })
    }

    /// The mode with which a file is created.
    fn new_mode(&self) -> u32 {
        self.file_mode.or(self.like.map(|like| like.mode)).unwrap_or(FILE_MODE)
    }

    /// Gives a new file to whom the files here belong.
    fn give(&self, file: &std::fs::File, name: &str) -> Result<()> {
        let Some(like) = &self.like else { return Ok(()) };
        like.give(file, &self.held.join(name), self.file_mode.is_none()).inspect_err(|_| {
            // Nobody has it yet.
            let _ = self.held.remove(name);
        })
    }

    /// Whether it was removed since it was opened: then nothing can be created in it, and its path
    /// does not lead to it.
    pub fn is_removed(&self) -> bool {
        self.held.is_removed()
    }

    /// How many bytes the name of a file in it may have.
    pub fn name_bytes_max(&self) -> usize {
        let told = fstatvfs(&*self.held).map_or(0, |system| system.f_namemax);
        usize::try_from(told)
            .ok()
            .filter(|most| (1..NAME_BYTES_MAX).contains(most))
            .unwrap_or(NAME_BYTES_MAX)
    }

    /// The names of its plain files, sorted.
    ///
    /// # Errors
    /// What the file system answers.
    pub fn plain_files(&self) -> Result<Vec<String>> {
        self.held.plain_files("")
    }

    /// The names of its plain files that begin so, sorted. Other files take no memory.
    ///
    /// # Errors
    /// What the file system answers.
    pub fn plain_files_of(&self, begin: &str) -> Result<Vec<String>> {
        self.held.plain_files(begin)
    }

    /// As [`Directory::capabilities`], but asks a file that is there, so that none is made. Whether
    /// it takes `RWF_DSYNC` is not known then: it is taken to do so.
    ///
    /// # Errors
    /// As [`Directory::capabilities`].
    pub fn capabilities_by(&self, name: &str) -> Result<Capabilities> {
        self.check_name(name)?;
        Capabilities::of_file(&self.held, name)
    }

    /// Its identity, whatever path leads to it.
    ///
    /// # Errors
    /// What the file system answers.
    pub fn identity(&self) -> Result<DirectoryIdentity> {
        let facts = rustix::fs::fstat(&*self.held);
        let facts = facts.map_err(|error| Error::new("fstat", self.held.path(), error))?;
        let (device, inode) = sys::identity(&facts);
        // A sandbox may refuse either call: then it does so for every process of the log.
        let born_nanos = sys::born_nanos(self.held.as_fd()).unwrap_or(0);
        let system = fstatvfs(&*self.held).map_or(0, |system| system.f_fsid);
        Ok(DirectoryIdentity { device, inode, born_nanos, system })
    }

    #[cfg(feature = "text-log")]
    pub(crate) fn held(&self) -> &Arc<Held> {
        &self.held
    }

    #[cfg(feature = "text-log")]
    pub(crate) fn mode_of_files(&self) -> u32 {
        self.new_mode()
    }

    /// Refuses a change in a forked child, and a name that leads out of the directory.
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
    type Lock = OsLock;

    fn path(&self) -> &Path {
        self.held.path()
    }

    fn open(&self, name: &str, how: &OpenFile) -> Result<OsFile> {
        self.check_name(name)?;
        if !how.read_only {
            self.check_change("open", name)?;
        }
        let file = OsFile::open_in(&self.held, name, how, self.new_mode(), self.mark)?;
        if how.create_new {
            self.give(file.std_file(), name)?;
        }
        Ok(file)
    }

    fn files_like(&self, name: &str) -> Result<Option<Self>> {
        let like = Likeness::of(&self.held, name)?;
        Ok(like.map(|like| Self { like: Some(like), ..self.clone() }))
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

    fn sync_file_system(&self) -> Result<()> {
        if self.mark.is_child() {
            return Err(Error::forked("syncfs", self.held.path()));
        }
        self.held.sync_file_system()
    }

    fn lock(&self, name: &str) -> Result<Option<OsLock>> {
        self.check_change("lock", name)?;
        let give = |file: &_| self.give(file, name);
        OsLock::take(&self.held, name, self.new_mode(), self.mark, &give)
    }

    fn lock_itself(&self) -> Result<Option<DirectoryLock>> {
        self.check_change("lock", "itself")?;
        DirectoryLock::take(&self.held, self.mark)
    }

    fn locked_by(&self, name: &str) -> Result<Option<String>> {
        self.check_name(name)?;
        lock::holder(&self.held, name)
    }

    fn shared_page(&self, lock: &OsLock) -> Option<Arc<SharedPage>> {
        lock.shared_page().cloned()
    }

    fn read_shared_page(&self, name: &str) -> Option<SharedPageReader> {
        self.check_name(name).ok()?;
        lock::shared_page_of_holder(&self.held, name)
    }

    #[inline]
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
        retry(|| sys::random_bytes(&mut bytes))
            .map_err(|source| Error::new("get random bytes for", self.held.path(), source))?;
        Ok(bytes)
    }
}
