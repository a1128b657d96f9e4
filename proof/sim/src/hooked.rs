//! A directory of a simulated disk with a hook around each call: for tests that look on, hold a
//! call, refuse it, or switch threads.
//!
//! *Owns*: passing the calls on. *May not touch*: what the disk does; a hook decides only when a
//! call goes on, and whether.

use std::path::Path;
use std::sync::Arc;

use inkstone_io::{
    Capabilities, Completion, Directory, Engine, EngineKind, File, FileFacts, OpenFile, Operation,
    Preparation, Request, Result, SharedPage, SharedPageReader, SyncKind,
};

use crate::directory::{SimDirectory, SimLock};
use crate::engine::SimEngine;
use crate::file::SimFile;

/// A call, before it is passed on.
#[derive(Debug)]
pub enum Call<'a> {
    Open {
        name: &'a str,
        how: &'a OpenFile,
    },
    /// [`Directory::rename`] or [`Directory::rename_new`].
    Rename {
        to: &'a str,
    },
    Remove {
        name: &'a str,
    },
    List,
    SyncNames,
    Lock {
        name: &'a str,
    },
    LockedBy {
        name: &'a str,
    },
    /// A call of a [`File`] that is not made by an engine.
    OfFile {
        path: &'a Path,
        call: FileCall,
    },
    Submit {
        path: &'a Path,
        operation: &'a Operation,
    },
    Complete,
}

impl Call<'_> {
    /// Whether it is a call of the directory itself, about names.
    pub fn is_about_names(&self) -> bool {
        !matches!(self, Self::OfFile { .. } | Self::Submit { .. } | Self::Complete)
    }
}

/// Which call of a [`File`]. Questions that no disk is asked for (its size, its facts) have no
/// hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileCall {
    CheckTakesChanges,
    SetLen,
    Read,
    Write,
    Sync,
    Prepare,
}

/// What happens around the calls.
pub trait Hook: Send + Sync + 'static {
    /// Called before each call, on its thread and under no lock of the disk.
    ///
    /// # Errors
    /// Is the call's answer; it does not reach the disk then.
    fn before(&self, call: &Call<'_>) -> Result<()>;

    /// Called after each call that reached the disk.
    fn after(&self) {}

    /// Whether the directory says that this process is a forked child, although the disk refuses
    /// nothing.
    fn is_forked(&self) -> bool {
        false
    }

    /// What the directory says that its file system can do.
    fn capabilities(&self) -> Option<Capabilities> {
        None
    }

    /// Where the holder of the directory's locks publishes.
    fn shared_page(&self) -> Option<Arc<SharedPage>> {
        None
    }

    /// The same for a reader.
    fn read_shared_page(&self) -> Option<SharedPageReader> {
        None
    }
}

fn around<T>(hook: &impl Hook, call: &Call<'_>, run: impl FnOnce() -> Result<T>) -> Result<T> {
    hook.before(call)?;
    let done = run();
    hook.after();
    done
}

/// Calls that are passed on: without the hook, or with the hook told of them as this call.
macro_rules! pass_on {
    ($(fn $call:ident(&self $(, $name:ident: $type:ty)*) -> $answer:ty;)*) => {
        $(fn $call(&self $(, $name: $type)*) -> $answer {
            self.inner.$call($($name),*)
        })*
    };
    ($(fn $call:ident(&self $(, $name:ident: $type:ty)*) -> $answer:ty as $told:expr;)*) => {
        $(fn $call(&self $(, $name: $type)*) -> $answer {
            self.around($told, || self.inner.$call($($name),*))
        })*
    };
}

/// A directory with a hook. Clones are the same directory.
#[derive(Debug)]
pub struct Hooked<H> {
    inner: SimDirectory,
    hook: Arc<H>,
}

impl<H> Clone for Hooked<H> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), hook: Arc::clone(&self.hook) }
    }
}

#[derive(Debug)]
pub struct HookedFile<H> {
    inner: Arc<SimFile>,
    hook: Arc<H>,
}

#[derive(Debug)]
pub struct HookedEngine<H> {
    inner: SimEngine,
    hook: Arc<H>,
}

impl<H: Hook> Hooked<H> {
    /// Calls the hook around each call of this directory, of its files and of its engines.
    pub fn new(inner: SimDirectory, hook: Arc<H>) -> Self {
        Self { inner, hook }
    }

    pub fn hook(&self) -> &H {
        &self.hook
    }

    fn around<T>(&self, call: Call<'_>, run: impl FnOnce() -> Result<T>) -> Result<T> {
        around(&*self.hook, &call, run)
    }
}

impl<H: Hook> Directory for Hooked<H> {
    type File = HookedFile<H>;
    type Engine = HookedEngine<H>;
    type Lock = SimLock;

    fn open(&self, name: &str, how: &OpenFile) -> Result<HookedFile<H>> {
        let inner = self.around(Call::Open { name, how }, || self.inner.open(name, how))?;
        Ok(HookedFile { inner: Arc::new(inner), hook: Arc::clone(&self.hook) })
    }

    pass_on! {
        fn rename(&self, from: &str, to: &str) -> Result<()> as Call::Rename { to };
        fn rename_new(&self, from: &str, to: &str) -> Result<()> as Call::Rename { to };
        fn remove(&self, name: &str) -> Result<()> as Call::Remove { name };
        fn list(&self) -> Result<Vec<String>> as Call::List;
        fn sync(&self) -> Result<()> as Call::SyncNames;
        fn lock(&self, name: &str) -> Result<Option<SimLock>> as Call::Lock { name };
        fn locked_by(&self, name: &str) -> Result<Option<String>> as Call::LockedBy { name };
    }

    pass_on! {
        fn path(&self) -> &Path;
        fn free_bytes(&self) -> Result<u64>;
        fn random_bytes(&self) -> Result<[u8; 16]>;
        fn overwrites_need_room(&self, found: Option<&Capabilities>) -> bool;
    }

    fn shared_page(&self, _lock: &SimLock) -> Option<Arc<SharedPage>> {
        self.hook.shared_page()
    }

    fn read_shared_page(&self, _name: &str) -> Option<SharedPageReader> {
        self.hook.read_shared_page()
    }

    fn is_forked(&self) -> bool {
        self.hook.is_forked() || self.inner.is_forked()
    }

    fn capabilities(&self) -> Result<Option<Capabilities>> {
        Ok(self.hook.capabilities())
    }

    fn engine(&self, kind: EngineKind, depth: usize) -> Result<HookedEngine<H>> {
        Ok(HookedEngine { inner: self.inner.engine(kind, depth)?, hook: Arc::clone(&self.hook) })
    }
}

impl<H: Hook> HookedFile<H> {
    fn around<T>(&self, call: FileCall, run: impl FnOnce() -> Result<T>) -> Result<T> {
        around(&*self.hook, &Call::OfFile { path: self.inner.path(), call }, run)
    }
}

impl<H: Hook> File for HookedFile<H> {
    pass_on! {
        fn check_takes_changes(&self) -> Result<()> as FileCall::CheckTakesChanges;
        fn set_len(&self, len_bytes: u64) -> Result<()> as FileCall::SetLen;
        fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> as FileCall::Read;
        fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()> as FileCall::Write;
        fn sync(&self, kind: SyncKind) -> Result<()> as FileCall::Sync;
        fn prepare(&self, how: Preparation, len_bytes: u64) -> Result<()> as FileCall::Prepare;
    }

    pass_on! {
        fn path(&self) -> &Path;
        fn len_bytes(&self) -> Result<u64>;
        fn facts(&self) -> Result<FileFacts>;
        fn forget_cached(&self) -> Result<()>;
        fn is_cached(&self) -> Result<bool>;
    }
}

impl<H: Hook> Engine for HookedEngine<H> {
    type File = HookedFile<H>;

    fn submit(&mut self, request: Request<HookedFile<H>>) -> Result<()> {
        let Request { token, file, operation } = request;
        self.hook.before(&Call::Submit { path: file.path(), operation: &operation })?;
        let file = Arc::clone(&file.inner);
        let submitted = self.inner.submit(Request { token, file, operation });
        self.hook.after();
        submitted
    }

    fn complete(&mut self) -> Result<Option<Completion>> {
        around(&*self.hook, &Call::Complete, || self.inner.complete())
    }

    fn in_flight(&self) -> usize {
        self.inner.in_flight()
    }
}
