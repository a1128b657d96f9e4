//! The report of `inkstone watch`, for people and programs.
//!
//! *Owns*: the schema of the JSON. *May not touch*: how the data was found.

use std::collections::BTreeMap;

use serde::Serialize;

use super::advice::Advice;
use super::cause::Cause;
use super::slow_report::SlowReport;
use super::syncs::How;
use super::tally::{SyncBill, SyncTime};

/// The version of the JSON's schema.
pub const WATCH_SCHEMA_VERSION: u32 = 1;

/// What was seen of a program.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct WatchReport {
    /// The version of this schema.
    pub schema_version: u32,
    /// What was watched, in words.
    pub program: String,
    /// How long it was watched, in seconds, without pauses of the trace.
    pub seconds: f64,
    /// The most important finding, as a sentence.
    pub finding: String,
    /// The synced files, ordered by the total time of their syncs, longest first.
    pub files: Vec<FileReport>,
    /// How many more synced files are not listed.
    pub files_left_out: usize,
    /// What slow calls waited for, if that was asked.
    pub slow: Option<SlowReport>,
    /// The disks below them.
    pub disks: Vec<DiskReport>,
    /// What limits these figures.
    pub warnings: Vec<String>,
    /// How many events were lost. If any were, there are no bills.
    pub lost_events: u64,
}

/// A file that was synced.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct FileReport {
    /// Its path.
    pub path: String,
    /// The disk.
    pub device: String,
    /// How many more files with names of this kind came and went, and are in this row.
    pub more_files: usize,
    /// The syncs, by how they were asked for.
    pub calls: BTreeMap<How, Calls>,
    /// Bytes that the program wrote for each sync; `None` where its calls do not show it.
    pub bytes_between: Option<u64>,
    /// The bill of one sync; `None` if events were lost, or the disk could not be traced.
    pub bill: Option<SyncBill>,
    /// Where the time of one sync went.
    pub time: Option<SyncTime>,
    /// The same of the slowest hundredth of them.
    pub slowest: Option<SyncTime>,
    /// Why its syncs cost what they do.
    pub cause: Cause,
    /// The same as a sentence.
    pub why: String,
    /// The setting that would help, if the program has one.
    pub advice: Option<Advice>,
}

/// Syncs of one kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Calls {
    /// How many.
    pub calls: u64,
    /// How many returned an error.
    pub failed: u64,
    /// How many each second.
    pub per_second: f64,
    /// The median, in microseconds.
    pub p50_us: f64,
    /// The 99th percentile, in microseconds.
    pub p99_us: f64,
    /// The longest, in microseconds.
    pub max_us: f64,
}

/// A disk: what matters for syncs.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct DiskReport {
    /// Its name.
    pub device: String,
    /// The file system on it.
    pub file_system: String,
    /// Where it is mounted.
    pub mounted: String,
    /// The options of the mount.
    pub options: String,
    /// Whether it has a volatile cache, so that a sync needs a flush.
    pub volatile_cache: bool,
    /// Whether it can write past its cache (FUA).
    pub fua: bool,
    /// The share of the time in which it had a request, from 0 to 1.
    pub busy: f64,
}
