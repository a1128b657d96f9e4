//! A simulated directory whose engine can be held in the middle of a write, so that two threads overlap as the test wants, not as the
//! scheduler decides. It remembers every write.
//!
//! *Owns*: the gate. *May not touch*: what is written; all of it is passed on to the simulated disk.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex};

use inkstone_io::{
    BLOCK_BYTES, Capabilities, Completion, Directory, Engine, EngineKind, File as _, OpenFile, Operation,
    Request, Result,
};
use inkstone_sim::{SimDirectory, SimEngine, SimFile, SimLock};

/// Holds the next submitted write until it is released.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    state: Mutex<State>,
    changed: Condvar,
    writes: Mutex<Vec<Write>>,
}

/// A write that passed the gate, without the blocks that it clears behind its group.
#[allow(dead_code, reason = "not every test looks at its writes")]
#[derive(Debug, Clone)]
pub(crate) struct Write {
    pub(crate) path: PathBuf,
    pub(crate) offset: u64,
    pub(crate) len: u64,
}

#[derive(Debug, Default, PartialEq, Eq, Clone, Copy)]
enum State {
    #[default]
    Open,
    /// The next write will be held.
    Shut,
    /// A write is being held: submitted, not completed.
    Holds,
}

#[allow(dead_code, reason = "not every test that has a gate shuts it")]
impl Gate {
    /// The next write is held.
    pub(crate) fn shut(&self) {
        self.set(State::Shut);
    }

    /// Releases the held write and all later ones.
    pub(crate) fn let_go(&self) {
        self.set(State::Open);
    }

    /// Returns when a write is held.
    pub(crate) fn wait_until_held(&self) {
        let state = self.state.lock().unwrap();
        drop(self.changed.wait_while(state, |state| *state != State::Holds).unwrap());
    }

    /// Every write so far, in order.
    pub(crate) fn writes(&self) -> Vec<Write> {
        self.writes.lock().unwrap().clone()
    }

    fn note(&self, request: &Request<SimFile>) {
        if let Operation::Write { buffer, offset, len, .. } = &request.operation {
            let path = request.file.path().to_path_buf();
            // Blocks of zeros behind a group are cleared, not written: there is nothing in them to lose.
            let blocks = buffer[..*len].chunks(BLOCK_BYTES);
            let cleared = blocks.rev().take_while(|block| block.iter().all(|byte| *byte == 0)).count();
            let len = (len - cleared * BLOCK_BYTES) as u64;
            self.writes.lock().unwrap().push(Write { path, offset: *offset, len });
        }
    }

    fn set(&self, to: State) {
        *self.state.lock().unwrap() = to;
        self.changed.notify_all();
    }

    fn pass(&self) {
        let mut state = self.state.lock().unwrap();
        if *state == State::Shut {
            *state = State::Holds;
            self.changed.notify_all();
            drop(self.changed.wait_while(state, |state| *state == State::Holds).unwrap());
        }
    }
}

/// A simulated directory behind a gate.
#[derive(Debug)]
pub(crate) struct GateDirectory {
    inner: SimDirectory,
    gate: Arc<Gate>,
    capabilities: Option<Capabilities>,
}

impl GateDirectory {
    pub(crate) fn new(inner: SimDirectory, gate: Arc<Gate>) -> Self {
        Self { inner, gate, capabilities: None }
    }

    /// Says that it is in this file system.
    #[allow(dead_code, reason = "not every test that has a gate says where it is")]
    pub(crate) fn on(self, capabilities: Capabilities) -> Self {
        Self { capabilities: Some(capabilities), ..self }
    }
}

/// Its engine: every request passes the gate between its submission and its completion.
#[derive(Debug)]
pub(crate) struct GateEngine {
    inner: SimEngine,
    gate: Arc<Gate>,
}

impl Engine for GateEngine {
    type File = SimFile;

    fn submit(&mut self, request: Request<SimFile>) -> Result<()> {
        self.gate.note(&request);
        self.inner.submit(request)
    }

    fn complete(&mut self) -> Result<Option<Completion>> {
        self.gate.pass();
        self.inner.complete()
    }

    fn in_flight(&self) -> usize {
        self.inner.in_flight()
    }
}

impl Directory for GateDirectory {
    type File = SimFile;
    type Engine = GateEngine;
    type Lock = SimLock;

    fn path(&self) -> &Path {
        self.inner.path()
    }

    fn open(&self, name: &str, how: &OpenFile) -> Result<SimFile> {
        self.inner.open(name, how)
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.inner.rename(from, to)
    }

    fn rename_new(&self, from: &str, to: &str) -> Result<()> {
        self.inner.rename_new(from, to)
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.inner.remove(name)
    }

    fn list(&self) -> Result<Vec<String>> {
        self.inner.list()
    }

    fn sync(&self) -> Result<()> {
        self.inner.sync()
    }

    fn lock(&self, name: &str) -> Result<Option<SimLock>> {
        self.inner.lock(name)
    }

    fn locked_by(&self, name: &str) -> Result<Option<String>> {
        self.inner.locked_by(name)
    }

    fn is_forked(&self) -> bool {
        self.inner.is_forked()
    }

    fn free_bytes(&self) -> Result<u64> {
        self.inner.free_bytes()
    }

    fn random_bytes(&self) -> Result<[u8; 16]> {
        self.inner.random_bytes()
    }

    fn overwrites_need_room(&self, found: Option<&Capabilities>) -> bool {
        self.inner.overwrites_need_room(found)
    }

    fn capabilities(&self) -> Result<Option<Capabilities>> {
        Ok(self.capabilities.clone())
    }

    fn engine(&self, kind: EngineKind, depth: usize) -> Result<GateEngine> {
        Ok(GateEngine { inner: self.inner.engine(kind, depth)?, gate: Arc::clone(&self.gate) })
    }
}
