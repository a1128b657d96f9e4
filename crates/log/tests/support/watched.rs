//! A directory with a hook before each call that is about names.
//!
//! *Owns*: passing the calls on. *May not touch*: what the hook does.

use std::path::Path;
use std::sync::Arc;

use inkstone::Directory;
use inkstone_io::{Bulletin, Capabilities, EngineKind, OpenFile, Result};
use inkstone_sim::{SimDirectory, SimEngine, SimFile, SimLock};

/// A call, before it is passed on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Call {
    Open { name: String, how: OpenFile },
    Rename { to: String },
    Remove { name: String },
    List,
    Sync,
    Lock { name: String },
    LockedBy { name: String },
}

type Onlooker = Box<dyn Fn(Call) + Send + Sync>;

pub(crate) struct Watched {
    inner: SimDirectory,
    onlooker: Onlooker,
    bulletin: Option<Arc<Bulletin>>,
}

impl Watched {
    pub(crate) fn new(inner: SimDirectory, onlooker: impl Fn(Call) + Send + Sync + 'static) -> Self {
        Self { inner, onlooker: Box::new(onlooker), bulletin: None }
    }

    /// A log in it posts there.
    #[allow(dead_code, reason = "not every test looks at what is posted")]
    pub(crate) fn posting(self, bulletin: Arc<Bulletin>) -> Self {
        Self { bulletin: Some(bulletin), ..self }
    }
}

impl Directory for Watched {
    type File = SimFile;
    type Engine = SimEngine;
    type Lock = SimLock;

    fn path(&self) -> &Path {
        self.inner.path()
    }

    fn open(&self, name: &str, how: &OpenFile) -> Result<SimFile> {
        (self.onlooker)(Call::Open { name: name.to_owned(), how: *how });
        self.inner.open(name, how)
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        (self.onlooker)(Call::Rename { to: to.to_owned() });
        self.inner.rename(from, to)
    }

    fn rename_new(&self, from: &str, to: &str) -> Result<()> {
        (self.onlooker)(Call::Rename { to: to.to_owned() });
        self.inner.rename_new(from, to)
    }

    fn remove(&self, name: &str) -> Result<()> {
        (self.onlooker)(Call::Remove { name: name.to_owned() });
        self.inner.remove(name)
    }

    fn list(&self) -> Result<Vec<String>> {
        (self.onlooker)(Call::List);
        self.inner.list()
    }

    fn sync(&self) -> Result<()> {
        (self.onlooker)(Call::Sync);
        self.inner.sync()
    }

    fn lock(&self, name: &str) -> Result<Option<SimLock>> {
        (self.onlooker)(Call::Lock { name: name.to_owned() });
        self.inner.lock(name)
    }

    fn locked_by(&self, name: &str) -> Result<Option<String>> {
        (self.onlooker)(Call::LockedBy { name: name.to_owned() });
        self.inner.locked_by(name)
    }

    fn bulletin(&self, _lock: &SimLock) -> Option<Arc<Bulletin>> {
        self.bulletin.clone()
    }

    fn overwrites_need_room(&self, found: Option<&Capabilities>) -> bool {
        self.inner.overwrites_need_room(found)
    }

    fn free_bytes(&self) -> Result<u64> {
        self.inner.free_bytes()
    }

    fn random_bytes(&self) -> Result<[u8; 16]> {
        self.inner.random_bytes()
    }

    fn engine(&self, kind: EngineKind, depth: usize) -> Result<SimEngine> {
        self.inner.engine(kind, depth)
    }
}
