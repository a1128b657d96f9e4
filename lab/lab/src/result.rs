//! The result of a run of the lab: the contract between measuring and showing. Tables and exports
//! read only this.
//!
//! *Owns*: the data, its units and its schema version. *May not touch*: how it is measured or
//! printed. Every duration is in nanoseconds (`_ns`), every size in bytes. A field that was not
//! measured is `None`, never 0.

use serde::{Deserialize, Serialize};

use crate::experiment::ExperimentResult;
use crate::over_time::Slice;
pub use crate::preamble::{Machine, Preamble};
pub(crate) use crate::relative::FEW_ROUNDS;
pub use crate::relative::{Relative, Verdict};

/// Raised whenever the meaning or the name of a field changes.
pub const SCHEMA_VERSION: u32 = 2;

/// The result of one invocation of the lab.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LabResult {
    /// What it begins with; in the JSON its fields are those of the result.
    #[serde(flatten)]
    pub preamble: Preamble,
    /// The cost of measuring itself. It is shown, and not subtracted anywhere.
    pub harness: HarnessCost,
    /// The measured runs, one per place and experiment.
    pub runs: Vec<Run>,
    /// Experiments whose rows are not commits of a cell, one per place and experiment.
    #[serde(default)]
    pub experiments: Vec<ExperimentResult>,
    /// The fallocate atlas, one per place.
    pub fallocate: Vec<FallocateAtlas>,
    /// What a reader should know before believing the rest.
    pub warnings: Vec<Warning>,
}

impl LabResult {
    /// Whether anything was measured.
    pub fn has_content(&self) -> bool {
        let mut cells = self.runs.iter().flat_map(|run| &run.cells);
        let mut rows = self.experiments.iter().flat_map(|experiment| &experiment.rows);
        cells.any(|cell| cell.outcome.measured().is_some())
            || rows.any(|row| !row.samples.is_empty())
            || !self.fallocate.is_empty()
    }
}

/// The cost of the harness itself.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct HarnessCost {
    /// One measured commit that does no I/O: clocks and histograms, median.
    pub commit_ns: f64,
    /// One reading of the clock.
    pub clock_ns: f64,
}

/// Where the files of a run are.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Place {
    /// Its name in tables: `.`, or `ext4, direct loop`.
    pub name: String,
    /// The directory.
    pub directory: String,
    /// File system: `ext4`.
    pub file_system: String,
    /// Mount options, as the kernel prints them.
    pub mount_options: String,
    /// ext4: whether it has a journal. `None` elsewhere, or if unknown.
    pub journal: Option<bool>,
    /// Whether an overwrite goes to another place: `no`, `shared extents only`, `always`.
    pub copy_on_write: String,
    /// The block device's name: `vda`. `None` where there is none (tmpfs, network).
    pub device: Option<String>,
    /// `write back` or `write through`.
    pub write_cache: Option<String>,
    /// Whether the device has FUA.
    pub fua: Option<bool>,
    /// I/O scheduler in use.
    pub scheduler: Option<String>,
    /// Model of the device, where sysfs has one.
    pub model: Option<String>,
    /// Whether it spins.
    pub rotational: Option<bool>,
    /// Offset alignment for O_DIRECT in bytes; 0 = no O_DIRECT; `None` = unknown.
    pub direct_align_bytes: Option<u32>,
    /// Whether the device can write zeros for `WRITE_ZEROES`.
    pub write_zeroes: Option<bool>,
    /// For a loop device: its backing file and whether it is opened directly.
    pub loop_backing: Option<String>,
    /// The place below a loop device.
    pub host: Option<Box<Place>>,
}

/// A set of cells measured side by side in one place.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Run {
    /// Short name: `quick`, `e1-removed`, `write`.
    pub name: String,
    /// One line for people.
    pub title: String,
    /// Where.
    pub place: Place,
    /// Name of the cell that the others are compared with.
    pub baseline: Option<String>,
    /// Planned rounds.
    pub rounds: u32,
    /// Whether the order of arms was random in each round.
    pub random_order: bool,
    /// Seed of that order and of the bytes written.
    pub seed: u64,
    /// The cells in the planned order.
    pub cells: Vec<CellResult>,
    /// What it means, in words.
    pub finding: Option<Finding>,
    /// What a reader should know about this run: missing rights, states that could not be checked.
    pub notes: Vec<String>,
}

/// One cell of a run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CellResult {
    /// Its name, unique in the run.
    pub name: String,
    /// What it is.
    pub what: CellDescription,
    /// Its outcome.
    pub outcome: Outcome,
}

/// A cell's coordinates, by their names on the command line.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CellDescription {
    /// See `inkstone_io::Preparation`.
    pub preparation: String,
    /// `new` or `reuse`.
    pub reuse: String,
    /// See `inkstone_io::Access`.
    pub access: String,
    /// See `inkstone_io::Durability`.
    pub durability: String,
    /// See `inkstone_io::EngineKind`.
    pub engine: String,
    /// Bytes per write, which is a commit.
    pub write_bytes: u64,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// `first` or `second`.
    pub pass: String,
    /// `warm` or `cold`.
    pub cache: String,
}

/// The outcome of a cell.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Outcome {
    /// It ran.
    Measured(Box<Measured>),
    /// It could not run, or its file was not in its claimed state.
    Invalid {
        /// Why.
        reason: String,
    },
    /// The run ended before it was measured.
    NotRun,
}

impl Outcome {
    /// The measurement, if there is one.
    pub fn measured(&self) -> Option<&Measured> {
        match self {
            Self::Measured(measured) => Some(measured),
            Self::Invalid { .. } | Self::NotRun => None,
        }
    }
}

/// A measured cell.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Measured {
    /// Each round, in the order it ran.
    pub rounds: Vec<Round>,
    /// Preparation times, one value per round.
    pub preparation: Histogram,
    /// The write call (and with it the sync, where the write carries its durability).
    pub write: Histogram,
    /// The sync call; empty where the write carries its durability.
    pub sync: Histogram,
    /// Time from before the write to the acknowledgement.
    pub commit: Histogram,
    /// Latency over time: for each round its slices, each (time that its commits took together,
    /// median and highest of a commit) in ns.
    #[serde(default)]
    pub over_time: Vec<Vec<Slice>>,
    /// Compared with the baseline of the run; `None` for the baseline itself.
    pub relative: Option<Relative>,
    /// The requests to the device per commit, from a separate round that is not timed.
    pub bill: Option<Bill>,
    /// Whether the observed flushes cover the acknowledgements.
    pub durable: DurableFinding,
    /// Page faults per write in the measuring thread (minor, major); for access mmap.
    pub faults_per_write: Option<(f64, f64)>,
}

/// One round of one cell.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct Round {
    /// Which round of the run.
    pub number: u32,
    /// The cell's position in that round's order.
    pub turn: u32,
    /// Commits acknowledged.
    pub commits: u64,
    /// Their time, from before the first write to the last acknowledgement and the closing sync.
    pub total_ns: u64,
    /// Of that, the one sync at the end of a pass without a sync per write.
    pub closing_sync_ns: u64,
    /// The preparation before, not part of `total_ns`.
    pub preparation_ns: u64,
}

impl Round {
    /// Nanoseconds per commit.
    pub fn per_commit_ns(&self) -> f64 {
        self.total_ns as f64 / self.commits.max(1) as f64
    }
}

/// A latency histogram with its raw buckets.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Histogram {
    /// Values recorded.
    pub count: u64,
    /// Smallest.
    pub min_ns: u64,
    /// Largest.
    pub max_ns: u64,
    /// Mean.
    pub mean_ns: f64,
    /// Median.
    pub p50_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// 99.9th percentile.
    pub p999_ns: u64,
    /// (highest value of the bucket in ns, count), for every bucket that is not empty; 3
    /// significant digits.
    pub buckets: Vec<(u64, u64)>,
}

/// What the block layer showed of a cell's acknowledgements.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum DurableFinding {
    /// It does not claim durability.
    NotClaimed,
    /// Every commit seen in the trace had its data and a flush (or FUA) completed before its
    /// acknowledgement.
    Seen {
        /// Commits for which that is certain.
        commits: u64,
    },
    /// The shared counters of the device show at least one flush per acknowledgement: consistent,
    /// not proof.
    Consistent {
        /// Flushes counted.
        flushes: u64,
        /// Commits acknowledged.
        commits: u64,
    },
    /// It claims durability, but the observed flushes do not cover its acknowledgements.
    NotCovered {
        /// What is missing.
        reason: String,
    },
    /// It cannot be observed here.
    NotVisible {
        /// Why.
        reason: String,
    },
}

/// Requests and their bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Requests.
    pub requests: u64,
    /// Bytes in them.
    pub bytes: u64,
}

impl Tally {
    /// Counts one more.
    pub fn add(&mut self, bytes: u64) {
        self.requests += 1;
        self.bytes += bytes;
    }
}

/// The cost of a number of commits at the block layer.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Bill {
    /// From tracepoints (exact) or from the device's counters (shared with the whole machine).
    pub source: BillSource,
    /// Commits in it.
    pub commits: u64,
    /// One per device: the file system's own first, the host's below a loop device next.
    pub layers: Vec<LayerBill>,
    /// Trace events that the kernel dropped; if any, the bill is not complete.
    pub lost_events: u64,
    /// io_uring requests that the kernel handed to a worker thread.
    pub uring_punts: Option<u64>,
    /// A few commits, request by request.
    pub timeline: Vec<TimelineCommit>,
    /// What a reader should know about this bill.
    pub notes: Vec<String>,
}

/// Where a bill's counts come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BillSource {
    /// The kernel's tracepoints.
    Trace,
    /// `/sys/block/*/stat`: requests, sectors and flushes of the whole device, from all processes.
    SharedCounters,
}

/// One device's part of a bill. Totals over all commits.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct LayerBill {
    /// Device name: `loop0`.
    pub device: String,
    /// What it is to the file: `file system` or `host of loop0`.
    pub role: String,
    /// Whether others have files on this file system, so that its journal is shared.
    #[serde(default)]
    pub shared: bool,
    /// Reads of the file's own blocks.
    pub data_reads: Tally,
    /// Other reads by this process, or on a file system of our own.
    pub other_reads: Tally,
    /// Reads of other processes on a device that is shared with them.
    pub foreign_reads: Tally,
    /// Writes of the file's own blocks.
    pub data_writes: Tally,
    /// Journal or log writes of a transaction that a commit waited for.
    pub journal_writes: Tally,
    /// Journal or log writes that a timer started.
    pub timer_journal_writes: Tally,
    /// Journal or log writes of transactions that neither a timer nor one of our commits started.
    pub other_journal_writes: Tally,
    /// Metadata written outside the journal.
    pub metadata_writes: Tally,
    /// Zeroing commands.
    pub zeroing: Tally,
    /// Discards.
    pub discards: Tally,
    /// Other writes by the kernel, of unknown origin.
    pub unattributed_writes: Tally,
    /// Writes of other processes on a device that is shared with them.
    #[serde(default)]
    pub foreign_writes: Tally,
    /// Discards and zeroing for others.
    #[serde(default)]
    pub foreign_other: Tally,
    /// Cache flush commands that the device received for us; with shared counters, for all
    /// processes.
    pub flushes: u64,
    /// Flush commands that it received for others alone.
    #[serde(default)]
    pub foreign_flushes: u64,
    /// Our writes with FUA.
    pub fua_writes: u64,
    /// All writes of all processes, of all kinds.
    pub all_writes: Tally,
    /// All reads of all processes.
    pub all_reads: Tally,
    /// Who submitted what, most first.
    pub submitters: Vec<Submitter>,
    /// The same span by the device's own counters.
    pub cross_check: Option<CrossCheck>,
    /// Some of what could not be attributed, in words.
    pub unattributed: Vec<String>,
}

impl LayerBill {
    /// Writes for the commits: data, their journal, metadata that they or a file system of our own
    /// wrote. With shared counters all writes.
    pub fn own_writes(&self, source: BillSource) -> Tally {
        if source == BillSource::SharedCounters {
            return self.all_writes;
        }
        let own = [self.data_writes, self.journal_writes, self.metadata_writes];
        Tally {
            requests: own.iter().map(|tally| tally.requests).sum(),
            bytes: own.iter().map(|tally| tally.bytes).sum(),
        }
    }
}

/// Requests of one kind by one submitter.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Submitter {
    /// `this process`, or the name of the kernel thread or process.
    pub who: String,
    /// `data write`, `journal write`, `flush`, ...
    pub what: String,
    /// The count.
    pub tally: Tally,
}

/// The trace against the device's own counters over the same span.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CrossCheck {
    /// Flush commands in the trace.
    pub traced_flushes: u64,
    /// Flushes in `/sys/block/*/stat`.
    pub counted_flushes: u64,
    /// Sectors written in the trace.
    pub traced_write_sectors: u64,
    /// Sectors written by the counters.
    pub counted_write_sectors: u64,
    /// Sectors read in the trace.
    pub traced_read_sectors: u64,
    /// Sectors read by the counters.
    pub counted_read_sectors: u64,
}

/// One commit, request by request.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TimelineCommit {
    /// Which commit of the pass.
    pub number: u64,
    /// From its start to its acknowledgement.
    pub total_ns: u64,
    /// Its requests, by time.
    pub requests: Vec<TimelineRequest>,
}

/// One request of a timeline.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TimelineRequest {
    /// Device name.
    pub device: String,
    /// Issued to the device, after the commit's start.
    pub issued_ns: u64,
    /// Completed by the device; `None` if that was not seen before the next commit.
    pub completed_ns: Option<u64>,
    /// `data write`, `journal write`, `flush`, ...
    pub what: String,
    /// First sector (512 B units).
    pub sector: u64,
    /// Bytes.
    pub bytes: u64,
    /// Flags as the kernel prints them.
    pub flags: String,
    /// Who submitted it.
    pub who: String,
}

/// Every mode of fallocate in one place.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct FallocateAtlas {
    /// Where.
    pub place: Place,
    /// One per mode and range.
    pub cells: Vec<FallocateCell>,
    /// Zeroing a file of this size by writing, by ZERO_RANGE, by WRITE_ZEROES.
    pub zeroing: Vec<ZeroingCell>,
}

/// One call of fallocate, before and after.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FallocateCell {
    /// The mode's name.
    pub mode: String,
    /// Offset of the range.
    pub offset_bytes: u64,
    /// Length of the range.
    pub len_bytes: u64,
    /// `Ok`, or the kernel's error (`EOPNOTSUPP: ...`).
    pub answer: String,
    /// Whether the call succeeded.
    pub done: bool,
    /// The file before.
    pub before: FileFacts,
    /// The file after.
    pub after: FileFacts,
}

/// A file as the file system shows it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileFacts {
    /// `st_size`.
    pub size_bytes: u64,
    /// `st_blocks`, in units of 512 B.
    pub blocks: u64,
    /// Extents, each with offset and length: `0B+8KiB written`.
    pub extents: Vec<String>,
    /// The bytes read back, as runs: `8192 x data`, `57344 x zero`.
    pub content: Vec<String>,
}

/// One way of zeroing a file.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ZeroingCell {
    /// `zeros written`, `ZERO_RANGE`, ...
    pub way: String,
    /// Bytes zeroed.
    pub len_bytes: u64,
    /// The call alone and the sync after it; `None` with the reason in `answer`.
    pub call_ns: Option<u64>,
    /// The sync after it.
    pub sync_ns: Option<u64>,
    /// `Ok` or the kernel's error.
    pub answer: String,
    /// What the blocks are afterwards.
    pub blocks_are: String,
}

/// The lab's conclusion.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Finding {
    /// One sentence: which durable way is fastest here, and how many times as fast as the naive
    /// one; or why none is named.
    pub sentence: String,
    /// Why, if the bills show it: what a commit costs at the device, before and after.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// What to do, if a way is faster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
    /// Name of the fastest durable cell that is shown to be faster than the naive one.
    pub best: Option<String>,
    /// Name of the naive cell.
    pub naive: Option<String>,
    /// Best over naive, with its interval.
    pub speedup: Option<Relative>,
}

/// A warning for the reader, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Warning {
    /// A stable short name: `device-busy`.
    pub name: String,
    /// The problem.
    pub text: String,
    /// What to do.
    pub cure: String,
}
