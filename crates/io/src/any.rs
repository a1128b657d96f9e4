//! Directories and files whose kind is known only at run time.
//!
//! *Owns*: [`AnyDirectory`], which is made of every [`Directory`]. *May not touch*: the operating
//! system.
//!
//! The log is written over these, so that its code is made once and not again in each crate that
//! names a kind of directory. What a call through a table costs is nothing beside the system call
//! behind it.

use std::fmt;
use std::ops::Deref;
use std::path::Path;
use std::sync::{Arc, Weak};

use crate::capability::Capabilities;
use crate::error::Result;
use crate::seam::{Directory, File, Lock, OpenFile};
use crate::{DirectoryLock, SharedPage, SharedPageReader};

/// A lock on a file of an [`AnyDirectory`], with that of the directory itself where one counts;
/// released when it is dropped.
pub struct AnyLock {
    // Released first: the next holder takes the file first.
    _itself: Option<DirectoryLock>,
    lock: Arc<dyn Lock>,
    shared_page: Option<Arc<SharedPage>>,
}

/// Looks whether a lock still keeps others out, and does not keep it from being released.
#[derive(Debug, Default)]
pub struct LockWatch(Option<Weak<dyn Lock>>);

impl LockWatch {
    /// As [`Lock::check_named`]; `Ok` for a lock that was released.
    ///
    /// # Errors
    /// As [`Lock::check_named`].
    pub fn check_named(&self) -> Result<()> {
        let lock = self.0.as_ref().and_then(Weak::upgrade);
        lock.map_or(Ok(()), |lock| lock.check_named())
    }
}

impl AnyLock {
    /// A watch of this lock.
    pub fn watch(&self) -> LockWatch {
        LockWatch(Some(Arc::downgrade(&self.lock)))
    }

    /// The page on which the holder of this lock publishes to other processes
    /// ([`Directory::shared_page`]).
    pub fn shared_page(&self) -> Option<&Arc<SharedPage>> {
        self.shared_page.as_ref()
    }
}

impl Lock for AnyLock {
    fn check_named(&self) -> Result<()> {
        self.lock.check_named()
    }
}

impl fmt::Debug for AnyLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lock.fmt(f)
    }
}

/// A [`Directory`] of any kind, shared: an `Arc` of one becomes this by `into()`, and so does a
/// reference to one that can be cloned.
#[derive(Clone)]
pub struct AnyDirectory(Arc<dyn DirectoryCalls>);

impl AnyDirectory {
    /// Of this directory.
    pub fn new(directory: impl Directory) -> Self {
        Self(Arc::new(directory))
    }
}

impl<D: Directory> From<Arc<D>> for AnyDirectory {
    fn from(directory: Arc<D>) -> Self {
        Self(directory)
    }
}

impl<D: Directory + Clone> From<&D> for AnyDirectory {
    fn from(directory: &D) -> Self {
        Self::new(directory.clone())
    }
}

impl Deref for AnyDirectory {
    type Target = dyn DirectoryCalls;

    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}

impl fmt::Debug for AnyDirectory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AnyDirectory").field(&self.path()).finish()
    }
}

/// The calls of an [`AnyDirectory`]: each is [`Directory`]'s of the same name, and `lock` takes the
/// lock of the directory itself, too. Implement that trait, and you have these.
#[expect(missing_docs, reason = "each call is documented in `Directory`")]
#[expect(clippy::missing_errors_doc, reason = "each call is documented in `Directory`")]
pub trait DirectoryCalls: Send + Sync + 'static {
    fn path(&self) -> &Path;
    fn open(&self, name: &str, how: &OpenFile) -> Result<Arc<dyn File>>;
    fn files_like(&self, name: &str) -> Result<Option<AnyDirectory>>;
    fn rename(&self, from: &str, to: &str) -> Result<()>;
    fn rename_new(&self, from: &str, to: &str) -> Result<()>;
    fn remove(&self, name: &str) -> Result<()>;
    fn list(&self) -> Result<Vec<String>>;
    fn sync(&self) -> Result<()>;
    fn sync_file_system(&self) -> Result<()>;
    fn lock(&self, name: &str) -> Result<Option<AnyLock>>;
    fn locked_by(&self, name: &str) -> Result<Option<String>>;
    fn read_shared_page(&self, name: &str) -> Option<SharedPageReader>;
    fn is_forked(&self) -> bool;
    fn free_bytes(&self) -> Result<u64>;
    fn capabilities(&self) -> Result<Option<Capabilities>>;
    fn overwrites_need_room(&self, found: Option<&Capabilities>) -> bool;
    fn random_bytes(&self) -> Result<[u8; 16]>;
    fn has_reading_threads(&self) -> bool;
}

impl<D: Directory> DirectoryCalls for D {
    fn path(&self) -> &Path {
        Directory::path(self)
    }

    fn open(&self, name: &str, how: &OpenFile) -> Result<Arc<dyn File>> {
        Ok(Arc::new(Directory::open(self, name, how)?))
    }

    fn files_like(&self, name: &str) -> Result<Option<AnyDirectory>> {
        Ok(Directory::files_like(self, name)?.map(AnyDirectory::new))
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        Directory::rename(self, from, to)
    }

    fn rename_new(&self, from: &str, to: &str) -> Result<()> {
        Directory::rename_new(self, from, to)
    }

    fn remove(&self, name: &str) -> Result<()> {
        Directory::remove(self, name)
    }

    fn list(&self) -> Result<Vec<String>> {
        Directory::list(self)
    }

    fn sync(&self) -> Result<()> {
        Directory::sync(self)
    }

    fn sync_file_system(&self) -> Result<()> {
        Directory::sync_file_system(self)
    }

    fn lock(&self, name: &str) -> Result<Option<AnyLock>> {
        let Some(lock) = Directory::lock(self, name)? else { return Ok(None) };
        let _itself = self.lock_itself()?;
        Ok(Some(AnyLock { _itself, shared_page: self.shared_page(&lock), lock: Arc::new(lock) }))
    }

    fn locked_by(&self, name: &str) -> Result<Option<String>> {
        Directory::locked_by(self, name)
    }

    fn read_shared_page(&self, name: &str) -> Option<SharedPageReader> {
        Directory::read_shared_page(self, name)
    }

    fn is_forked(&self) -> bool {
        Directory::is_forked(self)
    }

    fn free_bytes(&self) -> Result<u64> {
        Directory::free_bytes(self)
    }

    fn capabilities(&self) -> Result<Option<Capabilities>> {
        Directory::capabilities(self)
    }

    fn overwrites_need_room(&self, found: Option<&Capabilities>) -> bool {
        Directory::overwrites_need_room(self, found)
    }

    fn random_bytes(&self) -> Result<[u8; 16]> {
        Directory::random_bytes(self)
    }

    fn has_reading_threads(&self) -> bool {
        Directory::has_reading_threads(self)
    }
}
