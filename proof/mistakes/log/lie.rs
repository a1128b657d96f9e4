//! The mistakes of this copy that a directory can make for the log: it lies about what it has done.
//!
//! *Owns*: what each of these lies is. *May not touch*: the log, which cannot tell this directory
//! from the one behind it.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use inkstone_io::{
    Access, AlignedBuf, AnyDirectory, AnyEngine, AnyLock, Capabilities, Completion, Directory,
    Durability, Engine, EngineKind, File, FileFacts, OpenFile, Operation, OwnName, Persist,
    Preparation,
    Request, Result, SharedPage, SharedPageReader, SyncKind,
};

use crate::mistake::Mistake::{self, *};
use crate::options::Options;

/// The directory, which lies if a mistake is asked for that is a lie.
pub(crate) fn around(directory: AnyDirectory, options: &Options) -> AnyDirectory {
    match options.mistake() {
        Some(lie) => AnyDirectory::new(Lying { inner: directory, lie, renamed: Mutex::default() }),
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
}

struct LyingFile {
    inner: Arc<dyn File>,
    lie: Mistake,
    is_read_only: bool,
}

struct LyingEngine {
    inner: AnyEngine,
    lie: Mistake,
    /// No group was written yet.
    is_first: bool,
    /// The next sync is left out.
    skips_sync: bool,
    /// Whether the operation in flight is a sync, and its file.
    last: Option<(bool, Arc<dyn File>)>,
    /// What is said to be done and was not.
    unsaid: VecDeque<Completion>,
}

impl Lying {
    fn is_renamed(&self, name: &str) -> bool {
        self.renamed.lock().unwrap_or_else(PoisonError::into_inner).as_deref() == Some(name)
    }
}

impl Directory for Lying {
    type File = LyingFile;
    type Engine = LyingEngine;
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
        Ok(LyingFile { inner: file, lie: *lie, is_read_only: how.read_only })
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

    fn engine(&self, kind: EngineKind, depth: usize) -> Result<LyingEngine> {
        Ok(LyingEngine {
            inner: self.inner.engine(kind, depth)?,
            lie: self.lie,
            is_first: true,
            skips_sync: false,
            last: None,
            unsaid: VecDeque::new(),
        })
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
    }
}

impl File for LyingFile {
    fn sync(&self, kind: SyncKind) -> Result<()> {
        match (self.lie, self.is_read_only) {
            (ShowsUnsynced, true) | (ZerosUnsynced | RenamedFirst, false) => Ok(()),
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
        fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize>;
        fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()>;
    }
}

impl LyingEngine {
    /// Another operation first, whose outcome nobody hears of.
    fn before(&mut self, file: &Arc<dyn File>, operation: Operation) {
        let _ = self.inner.run(Request { token: 0, file: Arc::clone(file), operation });
    }

    /// How a write becomes durable, which begins at this byte and clears a block, or does not.
    fn persist(&mut self, persist: Persist, offset: u64, clears: bool) -> Persist {
        let is_first = self.is_first && offset > 0;
        self.is_first &= clears;
        let is_left_out = match self.lie {
            NoSync => true,
            EpochNotSynced => is_first,
            HeaderNotSynced => offset == 0,
            _ => false,
        };
        self.skips_sync |= is_left_out || self.lie == SyncsFirst;
        if is_left_out { Persist::Later } else { persist }
    }
}

impl Engine for LyingEngine {
    type File = LyingFile;

    fn submit(&mut self, request: Request<LyingFile>) -> Result<()> {
        let Request { token, file, mut operation } = request;
        let file = Arc::clone(&file.inner);
        if let Operation::Write { buffer, len, offset, persist } = &mut operation {
            let clears = buffer[..*len].iter().all(|byte| *byte == 0);
            *persist = self.persist(*persist, *offset, clears);
            if self.lie == SyncsFirst {
                self.before(&file, Operation::Sync(SyncKind::Data));
            }
            if self.lie == TailRewritten && *offset > 0 && !clears {
                let (buffer, len, offset) = (AlignedBuf::zeroed(4096), 4096, *offset);
                let persist = Persist::Later;
                self.before(&file, Operation::Write { buffer, len, offset, persist });
            }
        }
        let is_sync = matches!(operation, Operation::Sync(_));
        if is_sync && std::mem::take(&mut self.skips_sync) {
            self.unsaid.push_back(Completion { token, buffer: None, result: Ok(0) });
            return Ok(());
        }
        let is_change = is_sync || matches!(operation, Operation::Write { .. });
        self.last = is_change.then(|| (is_sync, Arc::clone(&file)));
        self.inner.submit(Request { token, file, operation })
    }

    fn complete(&mut self) -> Result<Option<Completion>> {
        if let Some(unsaid) = self.unsaid.pop_front() {
            return Ok(Some(unsaid));
        }
        let mut done = self.inner.complete()?;
        if let (Some(Completion { result: result @ Err(_), .. }), Some((is_sync, file))) =
            (&mut done, self.last.take())
        {
            match self.lie {
                RetriesSync => *result = file.sync(SyncKind::All).map(|()| 0),
                SyncErrorIgnored if is_sync => *result = Ok(0),
                _ => {}
            }
        }
        Ok(done)
    }

    fn in_flight(&self) -> usize {
        self.unsaid.len() + self.inner.in_flight()
    }
}
