//! The mistakes of this copy that a directory can make for the log: it lies about what it has done.
//!
//! *Owns*: what each of these lies is. *May not touch*: the log, which cannot tell this directory
//! from the one behind it.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use inkstone_io::{
    Access, AlignedBuf, AnyDirectory, AnyLock, Capabilities, Directory, Durability, File, FileFacts,
    OpenFile, OwnName, Preparation, Result, SharedPage, SharedPageReader, SyncKind,
};

use crate::mistake::Mistake::{self, *};
use crate::options::Options;

/// The directory, which lies if a mistake is asked for that is a lie.
pub(crate) fn around(directory: AnyDirectory, options: &Options) -> AnyDirectory {
    match options.mistake() {
        Some(lie) => {
            let writing = Arc::new(Mutex::new(Writing { is_first: true, skips_sync: false }));
            let renamed = Mutex::default();
            AnyDirectory::new(Lying { inner: directory, lie, renamed, writing })
        }
        None => directory,
    }
}

/// The calls of a directory, or of a file, that tell the truth.
macro_rules! truly {
    ($(fn $call:ident(&self $(, $name:ident: $type:ty)*) -> $answer:ty;)*) => {
        $(fn $call(&self $(, $name: $type)*) -> $answer {
            self.inner.$call($($name),*)
        })*
    };
}

struct Lying {
    inner: AnyDirectory,
    lie: Mistake,
    /// The last name that a file got since the opening.
    renamed: Mutex<Option<String>>,
    writing: Arc<Mutex<Writing>>,
}

struct LyingFile {
    inner: Arc<dyn File>,
    lie: Mistake,
    is_read_only: bool,
    writing: Arc<Mutex<Writing>>,
}

/// What the log has written through this directory.
struct Writing {
    /// No group was written yet.
    is_first: bool,
    /// The next sync is left out.
    skips_sync: bool,
}

impl Lying {
    fn is_renamed(&self, name: &str) -> bool {
        self.renamed.lock().unwrap_or_else(PoisonError::into_inner).as_deref() == Some(name)
    }
}

impl Directory for Lying {
    type File = LyingFile;
    type Lock = AnyLock;

    fn open(&self, name: &str, how: &OpenFile) -> Result<LyingFile> {
        let Self { inner, lie, .. } = self;
        let how = match lie {
            ReadsPageCache if how.read_only => how.access(Access::Buffered),
            FlagForgotten if !self.is_renamed(name) => how.durability(Durability::None),
            _ => *how,
        };
        let file = inner.open(name, &how)?;
        if *lie == RenamedFirst && self.is_renamed(name) {
            file.sync(SyncKind::All)?;
        }
        let writing = Arc::clone(&self.writing);
        Ok(LyingFile { inner: file, lie: *lie, is_read_only: how.read_only, writing })
    }

    fn sync(&self) -> Result<()> {
        let is_renamed = self.renamed.lock().unwrap_or_else(PoisonError::into_inner).is_some();
        if self.lie == NoDirectorySync && is_renamed { Ok(()) } else { self.inner.sync() }
    }

    fn lock(&self, name: &str) -> Result<Option<AnyLock>> {
        if self.lie == LockFileRemoved {
            let _ = self.inner.remove(name);
        }
        self.inner.lock(name)
    }

    fn rename_new(&self, from: &str, to: &str) -> Result<()> {
        self.inner.rename_new(from, to)?;
        *self.renamed.lock().unwrap_or_else(PoisonError::into_inner) = Some(to.to_owned());
        Ok(())
    }

    fn shared_page(&self, lock: &AnyLock) -> Option<Arc<SharedPage>> {
        lock.shared_page().cloned()
    }

    truly! {
        fn path(&self) -> &Path;
        fn rename(&self, from: &str, to: &str) -> Result<()>;
        fn remove(&self, name: &str) -> Result<()>;
        fn list(&self) -> Result<Vec<String>>;
        fn locked_by(&self, name: &str) -> Result<Option<String>>;
        fn read_shared_page(&self, name: &str) -> Option<SharedPageReader>;
        fn is_forked(&self) -> bool;
        fn free_bytes(&self) -> Result<u64>;
        fn capabilities(&self) -> Result<Option<Capabilities>>;
        fn overwrites_need_room(&self, found: Option<&Capabilities>) -> bool;
        fn random_bytes(&self) -> Result<[u8; 16]>;
        fn has_reading_threads(&self) -> bool;
    }
}

impl File for LyingFile {
    fn sync(&self, kind: SyncKind) -> Result<()> {
        if !self.is_read_only && std::mem::take(&mut self.writing().skips_sync) {
            return Ok(());
        }
        match (self.lie, self.is_read_only) {
            (ShowsUnsynced, true) | (ZerosUnsynced | RenamedFirst, false) => Ok(()),
            (SyncErrorIgnored, false) => {
                let _ = self.inner.sync(kind);
                Ok(())
            }
            (_, false) => self.retried(self.inner.sync(kind)),
            _ => self.inner.sync(kind),
        }
    }

    fn forget_cached(&self) -> Result<()> {
        if self.lie == ReadsPageCache { Ok(()) } else { self.inner.forget_cached() }
    }

    fn prepare(&self, preparation: Preparation, len_bytes: u64) -> Result<()> {
        match self.lie {
            SizeNotAllocated => self.inner.set_len(len_bytes),
            _ => self.inner.prepare(preparation, len_bytes),
        }
    }

    truly! {
        fn path(&self) -> &Path;
        fn len_bytes(&self) -> Result<u64>;
        fn facts(&self) -> Result<FileFacts>;
        fn own_name(&self) -> OwnName;
        fn check_takes_changes(&self) -> Result<()>;
        fn set_len(&self, len_bytes: u64) -> Result<()>;
        fn is_cached(&self) -> Result<bool>;
        fn clock(&self) -> Duration;
        fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize>;
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        self.before_a_write(bytes, offset);
        self.retried(self.inner.write_at(bytes, offset))
    }

    fn write_dsync(&self, bytes: &[u8], offset: u64) -> Result<()> {
        if self.before_a_write(bytes, offset) {
            self.writing().skips_sync = false;
            return self.inner.write_at(bytes, offset);
        }
        self.retried(self.inner.write_dsync(bytes, offset))
    }
}

impl LyingFile {
    fn writing(&self) -> MutexGuard<'_, Writing> {
        self.writing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What comes before a write, whose outcome nobody hears of. Whether the sync of the write is
    /// left out.
    fn before_a_write(&self, bytes: &[u8], offset: u64) -> bool {
        let clears = bytes.iter().all(|byte| *byte == 0);
        let mut writing = self.writing();
        let is_first = writing.is_first && offset > 0;
        writing.is_first &= clears || offset == 0;
        let is_left_out = match self.lie {
            NoSync => true,
            EpochNotSynced => is_first,
            HeaderNotSynced => offset == 0,
            _ => false,
        };
        writing.skips_sync |= is_left_out || self.lie == SyncsFirst;
        drop(writing);
        if self.lie == SyncsFirst {
            let _ = self.inner.sync(SyncKind::Data);
        }
        if self.lie == TailRewritten && offset > 0 && !clears {
            let _ = self.inner.write_at(&AlignedBuf::zeroed(4096), offset);
        }
        is_left_out
    }

    fn retried(&self, done: Result<()>) -> Result<()> {
        match done {
            Err(_) if self.lie == RetriesSync => self.inner.sync(SyncKind::All),
            done => done,
        }
    }
}
