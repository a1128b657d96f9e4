//! A hook around each call of a directory of a simulated disk and of its files
//! ([`crate::SimDirectory::hooked`]): for tests that look on, hold a call, refuse it, or switch
//! threads.
//!
//! *Owns*: the calls that a hook sees, and its answers. *May not touch*: what the disk does; a hook
//! decides only when a call goes on, and whether.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use inkstone_io::{Capabilities, OpenFile, Result, SharedPage, SharedPageReader};

/// A call, before it is passed on.
#[derive(Debug)]
pub enum Call<'a> {
    Open {
        name: &'a str,
        how: &'a OpenFile,
    },
    /// `rename` or `rename_new`.
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
    /// A call of a file, apart from a write.
    OfFile {
        path: &'a Path,
        call: FileCall,
    },
    /// A write; with `is_dsync` one that is durable on return.
    Write {
        path: &'a Path,
        bytes: &'a [u8],
        offset: u64,
        is_dsync: bool,
    },
    /// A write has begun and may have reached the disk, but has not returned.
    DuringWrite,
    /// A sync has begun: what is written from now on it does not cover.
    DuringSync,
}

impl Call<'_> {
    /// Whether it is a call of the directory itself, about names.
    pub fn is_about_names(&self) -> bool {
        !matches!(
            self,
            Self::OfFile { .. } | Self::Write { .. } | Self::DuringWrite | Self::DuringSync
        )
    }
}

/// Which call of a file. Questions that no disk is asked for (its size, its facts) have no
/// hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileCall {
    CheckTakesChanges,
    SetLen,
    Read,
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

/// The hook of a directory and its files, if it has one.
#[derive(Clone, Default)]
pub(crate) struct Hooked(pub(crate) Option<Arc<dyn Hook>>);

impl Hooked {
    pub(crate) fn around<T>(&self, call: &Call<'_>, run: impl FnOnce() -> Result<T>) -> Result<T> {
        let Some(hook) = &self.0 else { return run() };
        hook.before(call)?;
        let done = run();
        hook.after();
        done
    }

    /// In the middle of a call, which cannot be refused any more. No lock of the disk is held.
    pub(crate) fn during(&self, call: &Call<'_>) {
        if let Some(hook) = &self.0 {
            let refused = hook.before(call);
            assert!(refused.is_ok(), "a call that has begun was refused: {refused:?}");
            hook.after();
        }
    }
}

impl fmt::Debug for Hooked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hooked({})", self.0.is_some())
    }
}
