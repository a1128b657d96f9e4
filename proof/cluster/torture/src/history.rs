//! What clients asked and what they heard, as lines of JSON.
//!
//! *Owns*: the file and the clock of a history. *May not touch*: the cluster; whether the history
//! is right (`checker/` judges that).
//!
//! A line is written before each call and after each answer, so a history is whole up to the
//! instant at which a run is killed.

use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use replicated_log::client::Outcome;
use replicated_log::types::{Request, Value};
use serde::Serialize;

#[derive(Debug, Clone)]
pub enum Asked {
    Change(Request),
    Get(String),
}

/// What a client heard: what is done, and of a get what it has found.
pub type Heard = Outcome<Option<Value>>;

#[derive(Serialize)]
#[serde(tag = "event", rename_all = "lowercase")]
enum Line<'a> {
    Invoke { operation: u64, client: u32, at_ns: u64, call: &'a str, key: &'a str, value: &'a str },
    Complete { operation: u64, client: u32, at_ns: u64, outcome: &'a str, found: Option<&'a str> },
}

/// How many operations came to what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Those that are done.
    pub done: u64,
    /// Those that certainly did not happen.
    pub not_done: u64,
    /// Those of which nobody knows.
    pub unknown: u64,
}

impl Counts {
    pub fn add(&mut self, others: Counts) {
        self.done += others.done;
        self.not_done += others.not_done;
        self.unknown += others.unknown;
    }
}

struct State {
    out: BufWriter<File>,
    operations: u64,
    counts: Counts,
    /// The first failure: a history with a hole must not be judged.
    failed: Option<String>,
}

pub struct History {
    path: PathBuf,
    start: Instant,
    state: Mutex<State>,
}

impl History {
    pub fn create(path: &Path) -> Result<Self, String> {
        let file = File::create(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let out = BufWriter::new(file);
        let state = State { out, operations: 0, counts: Counts::default(), failed: None };
        Ok(Self { path: path.to_path_buf(), start: Instant::now(), state: Mutex::new(state) })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now_ns(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    /// A client is about to call. Returns the operation's number.
    pub fn invoke(&self, client: u32, asked: &Asked) -> u64 {
        // Before the call, also if the lock is waited for: an interval may be too long, never too
        // short.
        let at_ns = self.now_ns();
        let (call, (key, value)) = match asked {
            Asked::Change(request @ Request::Put { .. }) => ("put", request.parts()),
            Asked::Change(request @ Request::Append { .. }) => ("append", request.parts()),
            Asked::Get(key) => ("get", (key.as_str(), &bytes::Bytes::new())),
        };
        let value = &String::from_utf8_lossy(value);
        let mut state = self.lock();
        state.operations += 1;
        let operation = state.operations;
        state.write(&Line::Invoke { operation, client, at_ns, call, key, value });
        operation
    }

    /// A client has heard this of its operation.
    pub fn complete(&self, client: u32, operation: u64, heard: &Heard) {
        // What no client has written is shown as it is: the checker refuses it.
        let line = |piece: &bytes::Bytes| format!("{}\n", String::from_utf8_lossy(piece));
        let mut state = self.lock();
        let counts = &mut state.counts;
        let (outcome, count, found) = match heard {
            Outcome::Done(found) => {
                let found = found.as_ref().map(|pieces| pieces.iter().map(line).collect());
                ("done", &mut counts.done, found)
            }
            Outcome::NotDone(_) => ("not-done", &mut counts.not_done, None),
            Outcome::Unknown(_) => ("unknown", &mut counts.unknown, None),
        };
        *count += 1;
        let found: Option<String> = found;
        // After the answer, and with the lock: the last instant that can be meant.
        let at_ns = self.now_ns();
        let found = found.as_deref();
        state.write(&Line::Complete { operation, client, at_ns, outcome, found });
    }

    /// What came of the operations so far.
    pub fn counts(&self) -> Counts {
        self.lock().counts
    }

    /// Writes everything to the file, and returns its path.
    pub fn finish(&self) -> Result<&Path, String> {
        let mut state = self.lock();
        if let Err(error) = state.out.flush() {
            state.failed.get_or_insert_with(|| error.to_string());
        }
        match &state.failed {
            Some(why) => Err(format!("{}: {why}", self.path.display())),
            None => Ok(&self.path),
        }
    }
}

impl State {
    fn write(&mut self, line: &Line<'_>) {
        let written = serde_json::to_writer(&mut self.out, line).map_err(io::Error::from);
        if let Err(error) = written.and_then(|()| self.out.write_all(b"\n")) {
            self.failed.get_or_insert_with(|| error.to_string());
        }
    }
}
