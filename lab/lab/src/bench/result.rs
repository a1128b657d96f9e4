//! The result of a bench of the log: the contract between measuring and printing, and the JSON
//! itself.
//!
//! *Owns*: the data, its units and its schema version. *May not touch*: how it is measured or
//! printed. Units as in [`crate::result`]: nanoseconds, bytes; what was not measured is `None`,
//! never 0.

use serde::{Deserialize, Serialize};

use crate::result::{
    BillSource, CrossCheck, Histogram, Place, Preamble, Relative, Round, Tally, Warning,
};

/// Raised whenever the meaning or the name of a field changes.
pub const BENCH_SCHEMA_VERSION: u32 = 1;

/// The result of one bench.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct BenchResult {
    /// What it begins with; in the JSON its fields are those of the result.
    #[serde(flatten)]
    pub preamble: Preamble,
    /// The place.
    pub place: Place,
    /// One row for each load and record size.
    pub rows: Vec<BenchRow>,
    /// A log that changes segments against one that does not.
    pub changes: Option<ChangePair>,
    /// What a reader should know before believing the rest.
    pub warnings: Vec<Warning>,
}

/// One load with one record size.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct BenchRow {
    /// `1 thread`, `asynchronous`.
    pub load: String,
    /// Threads that wait for each of their records; 0 for the asynchronous producer.
    pub threads: u32,
    /// Bytes of a record.
    pub record_bytes: u64,
    /// The way of writing that the log chose, and why.
    pub strategy: String,
    /// Why there are no figures.
    pub failed: Option<String>,
    /// Its rounds. A commit is one record acknowledged.
    pub rounds: Vec<Round>,
    /// Times from before an append until its acknowledgement; empty for the asynchronous producer.
    pub latency: Histogram,
    /// CPU time of the process, user and system, in all rounds.
    pub cpu_ns: u64,
    /// The log's own statistics of those rounds.
    pub log: LogCounts,
    /// The bare overwrite measured beside it.
    pub floor: Option<Floor>,
    /// The requests to the device.
    pub bill: Option<LogBill>,
}

/// The log's own statistics over the timed rounds of a row.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogCounts {
    /// Records appended.
    pub records: u64,
    /// Groups made durable.
    pub groups: u64,
    /// Bytes of the groups' blocks.
    pub group_bytes: u64,
    /// Segments started.
    pub segments: u64,
    /// Segments whose blocks were only reserved.
    pub segments_fallocated: u64,
    /// Segment changes that found no file ready.
    pub pool_empty: u64,
    /// Bytes of zeros written ahead.
    pub prepared_bytes: u64,
    /// Threads that slept at once, since yielding first did not pay.
    #[serde(default)]
    pub sleeps_at_once: u64,
    /// How long yielding did not pay, in microseconds.
    #[serde(default)]
    pub rested_us: u64,
}

/// The bare overwrite of a written file: same access, same durability, same bytes per write.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Floor {
    /// Bytes of one write: as many as the log writes for a group, in whole blocks.
    pub write_bytes: u64,
    /// Its rounds, each beside the row's round of the same number.
    pub rounds: Vec<Round>,
    /// Times of one write with its sync.
    pub latency: Histogram,
    /// The log's rate divided by the floor's: of commits if one thread waits for each, of groups
    /// otherwise.
    pub ratio: Option<Relative>,
}

/// The requests of a log to its device.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LogBill {
    /// Where the counts come from. By counters everything is under `data_writes`, `flushes` and
    /// `reads`, of all processes.
    pub source: BillSource,
    /// Commits that it covers.
    pub commits: u64,
    /// Segment changes among them.
    pub changes: u64,
    /// Data written by the threads that commit: groups, and at each segment change a header and a
    /// seal.
    pub data_writes: Tally,
    /// Flushes that those threads sent.
    pub flushes: u64,
    /// Reads by those threads.
    pub reads: Tally,
    /// Journal or log writes that a commit waited for.
    pub journal_writes: Tally,
    /// Metadata written by the threads that commit.
    pub metadata_writes: Tally,
    /// Requests apart from the commits: they prepare segments.
    pub apart: Apart,
    /// The trace against the device's own counters.
    pub cross_check: Option<CrossCheck>,
    /// Trace events that the kernel dropped: if any, the counts are too low.
    pub lost_events: u64,
    /// What could not be found out.
    pub notes: Vec<String>,
}

/// Requests that no commit made or waited for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Apart {
    /// Zeros, and other data by threads that do not commit.
    pub data_writes: Tally,
    /// Flushes by other threads: the preparation's syncs, the journal's commits.
    pub flushes: u64,
    /// Journal or log writes that a timer started.
    pub timer_journal_writes: Tally,
    /// Other journal or log writes: the preparation's sync of a file and of the directory.
    pub other_journal_writes: Tally,
    /// Metadata written in place.
    pub metadata_writes: Tally,
    /// Reads.
    pub reads: Tally,
    /// Zeroing commands and discards.
    pub zeroing: Tally,
}

/// Two lone writers side by side: one changes its segment all the time, one never.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct ChangePair {
    /// Why there are no figures.
    pub failed: Option<String>,
    /// Bytes of a record.
    pub record_bytes: u64,
    /// Segment size of the changing log.
    pub segment_bytes: u64,
    /// Changes in the timed rounds.
    pub changes: u64,
    /// Changes of the steady log, which should have none.
    pub changes_of_steady: u64,
    /// Time between two changes, in nanoseconds.
    pub every_ns: u64,
    /// Changes that found no file ready.
    pub pool_empty: u64,
    /// Rounds of the changing log.
    pub changing: Vec<Round>,
    /// Rounds of the steady log.
    pub steady: Vec<Round>,
    /// Latencies of the changing log.
    pub changing_latency: Histogram,
    /// Latencies of the steady log.
    pub steady_latency: Histogram,
    /// Throughput of the changing log divided by that of the steady one.
    pub throughput: Option<Relative>,
    /// The same for the 99.9th percentiles of each round: above 1, the changing log is slower.
    pub p999: Option<Relative>,
}

impl LogBill {
    /// A bill with all counts 0.
    pub(crate) fn empty(source: BillSource, commits: u64, changes: u64) -> Self {
        Self {
            source,
            commits,
            changes,
            data_writes: Tally::default(),
            flushes: 0,
            reads: Tally::default(),
            journal_writes: Tally::default(),
            metadata_writes: Tally::default(),
            apart: Apart::default(),
            cross_check: None,
            lost_events: 0,
            notes: Vec::new(),
        }
    }
}

impl BenchRow {
    /// Commits in all rounds.
    pub fn commits(&self) -> u64 {
        self.rounds.iter().map(|round| round.commits).sum()
    }
}

impl BenchResult {
    /// Whether anything was measured.
    pub fn has_content(&self) -> bool {
        self.rows.iter().any(|row| row.commits() > 0)
    }

    /// The whole result, on one line.
    ///
    /// # Errors
    /// Never, as long as every number has a form in JSON.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string(self).map(|text| text + "\n")
    }
}
