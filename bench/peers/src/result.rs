//! What a run came to, as data: the table reads only this, and the JSON is this.
//!
//! *Owns*: arms, their rates and ratios. *May not touch*: measuring, showing. Intervals are those of `inkstone-lab`.

use inkstone_lab::result::{Relative, Round};
use inkstone_lab::stats::{median, relative};
use serde::Serialize;

use crate::asks::Answer;

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
    pub answers: Vec<Answer>,
}

/// One load, with all who took part.
#[derive(Debug, Serialize)]
pub struct LoadResult {
    /// Its name on the command line.
    pub name: String,
    pub title: String,
    /// Payload.
    pub record_bytes: u64,
    pub arms: Vec<Arm>,
    /// Why there are none, or what to know.
    pub notes: Vec<String>,
}

/// One contestant of a load.
#[derive(Debug, Default, Serialize)]
pub struct Arm {
    pub name: String,
    /// How it is made durable and fast.
    pub how: String,
    /// Why it has no figures, or none that count.
    pub failed: Option<String>,
    pub rounds: Vec<Round>,
    /// CPU time of the process in each round.
    pub cpu_ns: Vec<u64>,
    /// The 99.9th percentile of each round, where each append is waited for.
    pub p999_ns: Vec<u64>,
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

    /// Writes with bytes and flushes for each record. Where threads ask for flushes by themselves and the kernel makes one of
    /// several, what they asked for is still among the writes.
    pub fn writes_and_flushes(&self) -> Option<(f64, f64)> {
        let device = self.device?;
        let writes = device.writes.saturating_sub(device.flushes);
        Some((self.per_commit(writes), self.per_commit(device.flushes)))
    }

    pub fn cpu_ns_per_commit(&self) -> f64 {
        self.per_commit(self.cpu_ns.iter().sum())
    }

    /// How many times as fast as `base`, paired by round.
    pub fn speed_over(&self, base: &Self, seed: u64) -> Option<Relative> {
        relative(&base.rounds, &self.rounds, seed)
    }

    /// How many times as fast as so many records a second.
    pub fn speed_over_rate(&self, per_s: f64, seed: u64) -> Option<Relative> {
        let target = |round: &Round| Round { commits: per_s as u64, total_ns: 1_000_000_000, ..*round };
        relative(&self.rounds.iter().map(target).collect::<Vec<_>>(), &self.rounds, seed)
    }

    /// This one's CPU time per record over `base`'s, paired by round.
    pub fn cpu_over(&self, base: &Self, seed: u64) -> Option<Relative> {
        let costs = |arm: &Self| -> Vec<Round> {
            let cost = |(round, &cpu_ns): (&Round, &u64)| Round { total_ns: cpu_ns, ..*round };
            arm.rounds.iter().zip(&arm.cpu_ns).map(cost).collect()
        };
        relative(&costs(self), &costs(base), seed)
    }

    /// This one's 99.9th percentile over `base`'s, paired by round.
    pub fn p999_over(&self, base: &Self, seed: u64) -> Option<Relative> {
        let tails = |arm: &Self| -> Vec<Round> {
            let tail = |(round, &total_ns): (&Round, &u64)| Round { commits: 1, total_ns, ..*round };
            arm.rounds.iter().zip(&arm.p999_ns).map(tail).collect()
        };
        relative(&tails(self), &tails(base), seed)
    }
}

impl LoadResult {
    /// An arm that counts.
    pub fn arm(&self, name: &str) -> Option<&Arm> {
        self.arms.iter().find(|arm| arm.name == name && arm.counts())
    }

    /// The fastest of these that counts.
    pub fn fastest<'a>(&'a self, names: &[&str]) -> Option<&'a Arm> {
        let found = names.iter().filter_map(|name| self.arm(name));
        found.max_by(|a, b| a.per_s().unwrap_or(0.0).total_cmp(&b.per_s().unwrap_or(0.0)))
    }
}
