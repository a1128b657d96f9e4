//! One follower of a log: it reads everything that is appended, and counts what it sees.
//!
//! *Owns*: the loop of a follower, in this process or in another, and what it checks. *May not
//! touch*: the load, the figures.

use std::io::{BufRead, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use inkstone::{Lsn, Options, Reader};
use inkstone_host::{Usage, monotonic_ns};
use serde::{Deserialize, Serialize};

use crate::histogram::Recorder;
use crate::result::Histogram;

/// Bytes at the beginning of a record that say when its append began.
pub(crate) const STAMP_BYTES: usize = 8;
/// How quickly a follower to whom no record comes notices that it is to end.
const NOTICE: Duration = Duration::from_millis(20);
/// How long a follower waits for a record that it should see.
const PATIENCE: Duration = Duration::from_secs(30);

/// What a follower is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Task {
    /// The first record that it reads. It belongs to no load: when it was seen, the follower is
    /// ready.
    pub from: u64,
    /// It takes the time of each record whose LSN is a multiple of this; 0 = of none.
    pub every: u64,
}

/// What a follower saw.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Seen {
    /// Records, each once and in order.
    pub records: u64,
    /// Times from before an append until the follower had the record.
    pub latency: Histogram,
    /// Processor time since it was ready.
    pub cpu_ns: u64,
}

/// The last record that a follower is to see: not known while the load runs.
#[derive(Debug)]
pub struct Until(AtomicU64);

impl Until {
    /// The load runs.
    pub fn open() -> Self {
        Self(AtomicU64::new(u64::MAX))
    }

    /// The load has ended with this record; 0 = it failed, and nothing more is to be seen.
    pub fn set(&self, last: u64) {
        self.0.store(last, Ordering::Release);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Reads from `task.from` until the record that `until` names. `ready` is called when the first
/// record was seen, `usage` says how much processor time the follower has used.
///
/// # Errors
/// In words: one of the log; a record that is not the next one; a record that does not come.
pub fn follow(
    reader: &Reader,
    task: &Task,
    until: &Until,
    usage: impl Fn() -> Usage,
    ready: impl FnOnce(),
) -> Result<Seen, String> {
    let mut cursor = reader.from(Lsn::new(task.from));
    let mut ready = Some(ready);
    let mut latency = Recorder::new();
    let (mut expected, mut before, mut idle_since) = (task.from, usage(), None);
    while expected <= until.get() {
        let next = if idle_since.is_some() { cursor.next_within(NOTICE) } else { cursor.next() };
        let Some(record) = next.map_err(|error| error.to_string())? else {
            let since: Instant = *idle_since.get_or_insert_with(Instant::now);
            if since.elapsed() > PATIENCE {
                return Err(format!("a follower waited for record {expected}, which did not come"));
            }
            continue;
        };
        idle_since = None;
        let lsn = record.lsn.get();
        if lsn != expected {
            return Err(format!("a follower saw record {lsn} where {expected} comes next"));
        }
        if let Some(ready) = ready.take() {
            before = usage();
            ready();
        } else if task.every > 0 && lsn.is_multiple_of(task.every) {
            let stamp =
                record.bytes.first_chunk::<STAMP_BYTES>().map(|bytes| u64::from_le_bytes(*bytes));
            // 0: it belongs to no load.
            stamp
                .filter(|&at_ns| at_ns > 0)
                .inspect(|at_ns| latency.record(monotonic_ns() - at_ns));
        }
        expected += 1;
    }
    let used = usage().since(&before);
    let cpu_ns = used.user_ns + used.system_ns;
    Ok(Seen { records: expected - task.from, latency: latency.finish(), cpu_ns })
}

/// A process that follows the log of another one. It writes `ready` when it has seen its first
/// record, reads the last LSN from `input`, and writes what it saw, as JSON, or the error.
///
/// # Errors
/// The log cannot be opened, or nobody reads `output`; in words.
pub fn follow_other(
    directory: &Path,
    task: &Task,
    input: impl BufRead + Send + 'static,
    mut output: impl Write,
) -> Result<(), String> {
    let reader = Reader::open(directory, &Options::new()).map_err(|error| error.to_string())?;
    let until = std::sync::Arc::new(Until::open());
    let told = std::sync::Arc::clone(&until);
    std::thread::spawn(move || {
        let line = input.lines().next().and_then(Result::ok);
        told.set(line.and_then(|line| line.trim().parse().ok()).unwrap_or(0));
    });
    let mut said = Ok(());
    let mut say = |line: &str| writeln!(output, "{line}").and_then(|()| output.flush());
    let seen = follow(&reader, task, &until, inkstone_host::process_usage, || said = say("ready"));
    let json =
        seen.and_then(|seen| serde_json::to_string(&seen).map_err(|error| error.to_string()));
    said.and_then(|()| say(&json.unwrap_or_else(|why| format!("error: {why}"))))
        .map_err(|error| format!("the output has no reader: {error}"))
}
