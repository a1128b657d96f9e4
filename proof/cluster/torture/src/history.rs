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

use serde::Serialize;

/// What a client asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Call {
    /// This piece alone is under the key from now on.
    Put {
        /// The key.
        key: String,
        /// The piece, without line feeds.
        value: String,
    },
    /// Adds a piece at the end of what is under the key.
    Append {
        /// The key.
        key: String,
        /// The piece, without line feeds.
        value: String,
    },
    /// Reads a key.
    Get {
        /// The key.
        key: String,
    },
}

/// What a client heard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Heard {
    /// It is done; a get has found this: each piece with a line feed behind it.
    Done(Option<String>),
    /// It certainly did not happen, and never will.
    NotDone,
    /// It may have happened, or happen later.
    Unknown,
}

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
    /// All of them.
    pub fn all(&self) -> u64 {
        self.done + self.not_done + self.unknown
    }

    /// Adds others.
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

/// A history that is being written.
pub struct History {
    path: PathBuf,
    start: Instant,
    state: Mutex<State>,
}

impl History {
    /// A new file.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub fn create(path: &Path) -> io::Result<Self> {
        let out = BufWriter::new(File::create(path)?);
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
    pub fn invoke(&self, client: u32, call: &Call) -> u64 {
        // Before the call, also if the lock is waited for: an interval may be too long, never too
        // short.
        let at_ns = self.now_ns();
        let mut state = self.lock();
        state.operations += 1;
        let operation = state.operations;
        let (call, key, value) = match call {
            Call::Put { key, value } => ("put", key, value.as_str()),
            Call::Append { key, value } => ("append", key, value.as_str()),
            Call::Get { key } => ("get", key, ""),
        };
        state.write(&Line::Invoke { operation, client, at_ns, call, key, value });
        operation
    }

    /// A client has heard this of its operation.
    pub fn complete(&self, client: u32, operation: u64, heard: &Heard) {
        let mut state = self.lock();
        let (outcome, found) = match heard {
            Heard::Done(found) => ("done", found.as_deref()),
            Heard::NotDone => ("not-done", None),
            Heard::Unknown => ("unknown", None),
        };
        let counts = &mut state.counts;
        *match heard {
            Heard::Done(_) => &mut counts.done,
            Heard::NotDone => &mut counts.not_done,
            Heard::Unknown => &mut counts.unknown,
        } += 1;
        // After the answer, and with the lock: the last instant that can be meant.
        let at_ns = self.now_ns();
        state.write(&Line::Complete { operation, client, at_ns, outcome, found });
    }

    /// What came of the operations so far.
    pub fn counts(&self) -> Counts {
        self.lock().counts
    }

    /// Writes everything to the file, and returns its path.
    ///
    /// # Errors
    /// A line could not be written.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_say_what_the_checker_reads() {
        let path = std::env::temp_dir().join(format!("inkstone-history-{}", std::process::id()));
        let history = History::create(&path).expect("a file");
        let put = history.invoke(3, &Call::Put { key: "k".into(), value: "v".into() });
        let get = history.invoke(4, &Call::Get { key: "k".into() });
        history.complete(4, get, &Heard::Done(Some("v".into())));
        history.complete(3, put, &Heard::Unknown);
        assert_eq!(history.counts(), Counts { done: 1, not_done: 0, unknown: 1 });
        history.finish().expect("written");
        let text = std::fs::read_to_string(&path).expect("the file");
        std::fs::remove_file(&path).expect("removed");
        let lines: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        let words = |at: usize, name: &str| lines[at][name].as_str().map(str::to_string);
        assert_eq!(
            (words(0, "event"), words(0, "call")),
            (Some("invoke".into()), Some("put".into()))
        );
        assert_eq!(
            (words(2, "found"), words(3, "outcome")),
            (Some("v".into()), Some("unknown".into()))
        );
        assert_eq!(
            (lines[3]["operation"].as_u64(), lines[3]["client"].as_u64()),
            (Some(1), Some(3))
        );
        let times: Vec<_> =
            lines.iter().map(|line| line["at_ns"].as_u64().expect("a time")).collect();
        assert!(times.is_sorted(), "{times:?}");
    }
}
