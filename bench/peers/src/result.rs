//! What a run came to, as data: the table reads only this, and the JSON is this.
//!
//! *Owns*: arms, their rates and ratios. *May not touch*: measuring, showing. Intervals are those
//! of `inkstone-lab`.

use inkstone_lab::result::{Relative, Round};
use inkstone_lab::stats::{median, relative};
use serde::Serialize;

/// One run of the program.
#[derive(Debug, Serialize)]
pub struct RunResult {
    /// Machine, place and way of writing, in words.
    pub machine: Vec<String>,
    pub rounds: u32,
    pub seconds: f64,
    pub seed: u64,
    /// Engines that were not measured at all, and why.
    pub left_out: Vec<String>,
    pub loads: Vec<LoadResult>,
}

/// One load, with all who took part.
#[derive(Debug, Serialize)]
pub struct LoadResult {
    /// Its name on the command line.
    pub name: String,
    pub title: String,
    pub unit: Unit,
    /// Payload.
    pub record_bytes: u64,
    pub arms: Vec<Arm>,
    /// Why there are none, or what to know.
    pub notes: Vec<String>,
}

/// What the figures of a load are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Unit {
    /// Each round has records and their time.
    RecordsPerS,
    /// Each round has one time.
    Milliseconds,
    /// Each round has one number of bytes, where others have nanoseconds.
    Mib,
}

/// One contestant of a load.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Arm {
    pub name: String,
    /// How it is made durable and fast.
    pub how: String,
    /// Why it has no figures, or none that count.
    pub failed: Option<String>,
    pub rounds: Vec<Round>,
    /// CPU time of the process in each round.
    pub cpu_ns: Vec<u64>,
    /// The p99 of each round, as a time of one commit.
    pub p99_rounds: Vec<Round>,
    /// Groups that the engine wrote in all rounds, if it tells.
    pub groups: Option<u64>,
    /// Of all rounds, where each append is waited for.
    pub p50_ns: Option<u64>,
    pub p99_ns: Option<u64>,
    /// Of all rounds together, by the device's own counters: everything that anybody asked of it.
    pub device: Option<DeviceBill>,
    /// Records read back after the rounds, each compared; `None` for a floor.
    pub checked_records: Option<u64>,
    /// What the engine says of itself.
    pub notes: Option<String>,
}

/// What the device was asked for, as the kernel counts requests.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct DeviceBill {
    /// A request for a flush is one of them, with no bytes, also where several become one flush.
    pub writes: u64,
    pub write_bytes: u64,
    pub flushes: u64,
    pub reads: u64,
    pub read_bytes: u64,
}

impl DeviceBill {
    pub fn add(&mut self, more: &Self) {
        self.writes += more.writes;
        self.write_bytes += more.write_bytes;
        self.flushes += more.flushes;
        self.reads += more.reads;
        self.read_bytes += more.read_bytes;
    }
}

impl Arm {
    pub fn new(name: &str) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    pub fn failed(name: &str, error: &anyhow::Error) -> Self {
        let mut arm = Self::new(name);
        arm.fail(error);
        arm
    }

    /// Nothing of it counts any more: an engine whose records are not there has not been fast.
    pub fn fail(&mut self, error: &anyhow::Error) {
        self.failed = Some(format!("{error:#}"));
    }

    pub fn counts(&self) -> bool {
        self.failed.is_none() && self.commits() > 0
    }

    pub fn commits(&self) -> u64 {
        self.rounds.iter().map(|round| round.commits).sum()
    }

    /// Records a second: the median of the rounds.
    pub fn per_s(&self) -> Option<f64> {
        let usable = self.rounds.iter().filter(|round| round.commits > 0);
        median(&usable.map(|round| 1e9 / round.per_commit_ns()).collect::<Vec<_>>())
    }

    /// A total as a share of each record.
    pub fn per_commit(&self, total: u64) -> f64 {
        total as f64 / self.commits().max(1) as f64
    }

    /// The one figure of each round, in order of size.
    pub fn figures(&self) -> Vec<u64> {
        let mut all: Vec<_> = self.rounds.iter().map(|round| round.total_ns).collect();
        all.sort_unstable();
        all
    }

    /// What the device was asked for by one group, in words.
    pub fn per_group(&self) -> Option<String> {
        let (device, groups) = (self.device?, self.groups? as f64);
        let (flushes, writes) = (device.flushes, device.writes.saturating_sub(device.flushes));
        Some(format!(
            "{}: {:.1} records, {:.3} writes and {:.3} flushes a group",
            self.name,
            self.commits() as f64 / groups,
            writes as f64 / groups,
            flushes as f64 / groups
        ))
    }

    pub fn cpu_ns_per_commit(&self) -> f64 {
        self.per_commit(self.cpu_ns.iter().sum())
    }

    /// How many times as fast as `base`, paired by round.
    pub fn speed_over(&self, base: &Self, seed: u64) -> Option<Relative> {
        relative(&base.rounds, &self.rounds, seed)
    }
}

impl LoadResult {
    /// An arm that counts.
    pub fn arm(&self, name: &str) -> Option<&Arm> {
        self.arms.iter().find(|arm| arm.name == name && arm.counts())
    }
}
