//! The simulated disk with a scheduling point before and after each operation.
//!
//! *Owns*: where another thread may go on while one does I/O. *May not touch*: what the operations do. The simulator's own lock is
//! held within one call only, never over a switch.

use std::path::Path;
use std::sync::Arc;

use inkstone_io::{
    Completion, Directory, Engine, EngineKind, File, FileFacts, OpenFile, Operation, Preparation, Request,
    Result, SyncKind,
};
use inkstone_sim::{SimDirectory, SimEngine, SimFile};
use shuttle::sync::atomic::{AtomicBool, Ordering};

use crate::scheduler::at_io;

/// Another thread may go on here.
#[derive(Debug, Clone)]
struct Point(Option<Arc<AtomicBool>>);

impl Point {
    fn pass(&self) {
        if let Some(point) = &self.0 {
            at_io(|| _ = point.load(Ordering::SeqCst));
        }
    }

    fn around<T>(&self, run: impl FnOnce() -> T) -> T {
        self.pass();
        let done = run();
        self.pass();
        done
    }
}

/// A directory of a simulated disk.
#[derive(Debug, Clone)]
pub struct Stepped {
    inner: SimDirectory,
    point: Point,
    is_forked: Arc<std::sync::atomic::AtomicBool>,
}

impl Stepped {
    /// Operations are points where others may go on.
    pub fn new(inner: SimDirectory) -> Self {
        Self { inner, point: Point(Some(Arc::new(AtomicBool::new(false)))), is_forked: Arc::default() }
    }

    /// Operations are not: for looking at a disk when nobody else is left.
    pub fn alone(inner: SimDirectory) -> Self {
        Self { inner, point: Point(None), is_forked: Arc::default() }
    }

    /// From here on whoever asks is in a forked child, or is not. Nothing is refused but by the log: what it does, the disk shows.
    pub fn be_forked(&self, is_forked: bool) {
        self.is_forked.store(is_forked, Ordering::Relaxed);
    }
}

/// A file of it.
#[derive(Debug)]
pub struct SteppedFile {
    inner: Arc<SimFile>,
    point: Point,
}

/// An engine for it.
#[derive(Debug)]
pub struct SteppedEngine {
    inner: SimEngine,
    point: Point,
}

impl Directory for Stepped {
    type File = SteppedFile;
    type Engine = SteppedEngine;
    type Lock = <SimDirectory as Directory>::Lock;

    fn path(&self) -> &Path {
        self.inner.path()
    }

    fn open(&self, name: &str, how: &OpenFile) -> Result<SteppedFile> {
        let inner = Arc::new(self.point.around(|| self.inner.open(name, how))?);
        Ok(SteppedFile { inner, point: self.point.clone() })
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.point.around(|| self.inner.rename(from, to))
    }

    fn rename_new(&self, from: &str, to: &str) -> Result<()> {
        self.point.around(|| self.inner.rename_new(from, to))
    }

    fn is_forked(&self) -> bool {
        self.is_forked.load(Ordering::Relaxed)
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.point.around(|| self.inner.remove(name))
    }

    fn list(&self) -> Result<Vec<String>> {
        self.point.around(|| self.inner.list())
    }

    fn sync(&self) -> Result<()> {
        self.point.around(|| self.inner.sync())
    }

    fn lock(&self, name: &str) -> Result<Option<Self::Lock>> {
        self.point.around(|| self.inner.lock(name))
    }

    fn locked_by(&self, name: &str) -> Result<Option<String>> {
        self.point.around(|| self.inner.locked_by(name))
    }

    fn free_bytes(&self) -> Result<u64> {
        self.inner.free_bytes()
    }

    fn random_bytes(&self) -> Result<[u8; 16]> {
        self.inner.random_bytes()
    }

    fn engine(&self, kind: EngineKind, depth: usize) -> Result<SteppedEngine> {
        Ok(SteppedEngine { inner: self.inner.engine(kind, depth)?, point: self.point.clone() })
    }
}

impl File for SteppedFile {
    fn path(&self) -> &Path {
        self.inner.path()
    }

    fn len_bytes(&self) -> Result<u64> {
        self.inner.len_bytes()
    }

    fn facts(&self) -> Result<FileFacts> {
        self.inner.facts()
    }

    fn check_takes_changes(&self) -> Result<()> {
        self.point.around(|| self.inner.check_takes_changes())
    }

    fn set_len(&self, len_bytes: u64) -> Result<()> {
        self.point.around(|| self.inner.set_len(len_bytes))
    }

    fn forget_cached(&self) -> Result<()> {
        self.inner.forget_cached()
    }

    fn is_cached(&self) -> Result<bool> {
        self.inner.is_cached()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        self.point.around(|| self.inner.read_at(buffer, offset))
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        self.point.around(|| self.inner.write_at(bytes, offset))
    }

    fn sync(&self, kind: SyncKind) -> Result<()> {
        self.point.around(|| self.inner.sync(kind))
    }

    fn prepare(&self, preparation: Preparation, len_bytes: u64) -> Result<()> {
        self.point.around(|| self.inner.prepare(preparation, len_bytes))
    }
}

impl Engine for SteppedEngine {
    type File = SteppedFile;

    fn submit(&mut self, request: Request<SteppedFile>) -> Result<()> {
        let Request { token, file, operation } = request;
        let file = Arc::clone(&file.inner);
        let operation: Operation = operation;
        self.point.around(|| self.inner.submit(Request { token, file, operation }))
    }

    fn complete(&mut self) -> Result<Option<Completion>> {
        self.point.around(|| self.inner.complete())
    }

    fn in_flight(&self) -> usize {
        self.inner.in_flight()
    }
}
