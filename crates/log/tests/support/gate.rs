//! A simulated directory whose files can be held in the middle of a write, so that two threads
//! overlap as the test wants, not as the scheduler decides. It remembers every write.
//!
//! *Owns*: the gate. *May not touch*: what is written; all of it is passed on to the simulated
//! disk.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex};

use inkstone_io::{BLOCK_BYTES, Capabilities, Result};
use inkstone_sim::SimDirectory;
use inkstone_sim::hooked::{Call, Hook};

/// Holds the next write until it is released.
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
    /// A write is being held: it has begun and not returned.
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

    fn note(&self, path: &Path, bytes: &[u8], offset: u64) {
        // Blocks of zeros behind a group are cleared, not written: there is nothing in them to
        // lose.
        let blocks = bytes.chunks(BLOCK_BYTES);
        let cleared = blocks.rev().take_while(|block| block.iter().all(|byte| *byte == 0)).count();
        let len = (bytes.len() - cleared * BLOCK_BYTES) as u64;
        self.writes.lock().unwrap().push(Write { path: path.to_path_buf(), offset, len });
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

/// Lets each write pass the gate between its beginning and its end.
#[derive(Debug)]
struct AtGate {
    gate: Arc<Gate>,
    capabilities: Option<Capabilities>,
}

impl Hook for AtGate {
    fn before(&self, call: &Call<'_>) -> Result<()> {
        match call {
            Call::Write { path, bytes, offset, .. } => self.gate.note(path, bytes, *offset),
            Call::DuringWrite => self.gate.pass(),
            _ => {}
        }
        Ok(())
    }

    fn capabilities(&self) -> Option<Capabilities> {
        self.capabilities.clone()
    }
}

/// A simulated directory behind a gate.
pub(crate) fn behind(gate: &Arc<Gate>, inner: SimDirectory) -> SimDirectory {
    behind_on(gate, inner, None)
}

/// One that says that it is in this file system.
pub(crate) fn behind_on(
    gate: &Arc<Gate>,
    inner: SimDirectory,
    capabilities: Option<Capabilities>,
) -> SimDirectory {
    inner.hooked(Arc::new(AtGate { gate: Arc::clone(gate), capabilities }))
}
