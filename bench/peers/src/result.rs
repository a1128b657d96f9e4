//! What a run came to, as data: the table reads only this, and the JSON is this.
//!
//! *Owns*: arms, their rates and ratios. *May not touch*: measuring, showing. Intervals are those
//! of `inkstone-lab`.

use inkstone_lab::histogram::Recorder;
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
    /// Of each round, where each append is waited for.
    pub latencies: Vec<Latency>,
    /// Of each round, groups that the engine made durable, if it tells.
    pub groups: Vec<u64>,
    /// Of each round, where somebody follows.
    pub followed: Vec<Followed>,
    pub p50_ns: Option<u64>,
    pub p99_ns: Option<u64>,
    /// Of all rounds together, by the device's own counters: everything that anybody asked of it.
    pub device: Option<DeviceBill>,
    /// Records read back after the rounds, each compared; `None` for a floor.
    pub checked_records: Option<u64>,
    /// What the engine says of itself.
    pub notes: Option<String>,
}

/// How long the appends of a round took.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Latency {
    pub p50_ns: u64,
    pub p99_ns: u64,
    pub p999_ns: u64,
}

impl Latency {
    pub fn of(all: &Recorder) -> Self {
        let all = all.finish();
        Self { p50_ns: all.p50_ns, p99_ns: all.p99_ns, p999_ns: all.p999_ns }
    }
}

/// What the followers of a round saw and cost.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Followed {
    pub followers: u64,
    /// Records, of all followers together.
    pub records: u64,
    /// In the same process: from before an append until its record was seen. In another one: from
    /// its return.
    pub seen: Latency,
    /// Processor time, of all followers together.
    pub cpu_ns: u64,
    /// How long after the writers the last follower was done.
    pub behind_ns: u64,
    /// Calls that read: of the whole process, if the followers are in it, else of the follower's.
    pub reads: Option<u64>,
    pub read_bytes: Option<u64>,
    /// Bytes that were fetched from the device for them.
    pub device_bytes: Option<u64>,
    /// What the records take in the engine's files, if it tells.
    pub log_bytes: Option<u64>,
    /// Of a follower in another process to whom nothing comes.
    pub idle_wakeups_per_s: Option<f64>,
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

    pub fn cpu_ns_per_commit(&self) -> f64 {
        self.per_commit(self.cpu_ns.iter().sum())
    }

    /// How many times as fast as `base`, paired by round.
    pub fn speed_over(&self, base: &Self, seed: u64) -> Option<Relative> {
        relative(&base.rounds, &self.rounds, seed)
    }

    /// How many times as fast as `base`, if the processor time of the followers were given back: on
    /// so many processors they have used that share of the round.
    pub fn allowed_speed_over(&self, base: &Self, cpus: usize, seed: u64) -> Option<Relative> {
        let allowed = |(round, followed): (&Round, &Followed)| {
            let share =
                followed.cpu_ns as f64 / (round.total_ns.max(1) as f64 * cpus.max(1) as f64);
            Round { total_ns: (round.total_ns as f64 * (1.0 - share.min(1.0))) as u64, ..*round }
        };
        let rounds: Vec<Round> = self.rounds.iter().zip(&self.followed).map(allowed).collect();
        relative(&base.rounds, &rounds, seed)
    }
}

/// Of all rounds with followers; what an engine or a kernel does not tell is `None`.
#[derive(Debug, Clone, Copy)]
pub struct FollowedTotal {
    /// Medians of the rounds.
    pub seen: Latency,
    pub cpu_ns_per_record: f64,
    /// Of one processor, for one follower.
    pub cpu_share: f64,
    pub reads_per_record: Option<f64>,
    pub read_bytes_per_record: Option<f64>,
    pub device_bytes_per_record: Option<f64>,
    pub read_bytes_per_log_byte: Option<f64>,
    pub behind_ns: u64,
    pub idle_wakeups_per_s: Option<f64>,
}

impl Arm {
    pub fn followed_total(&self) -> Option<FollowedTotal> {
        let all = &self.followed;
        let sum = |of: fn(&Followed) -> Option<u64>| {
            all.iter().map(of).sum::<Option<u64>>().map(|sum| sum as f64)
        };
        let middle =
            |of: &dyn Fn(&Followed) -> f64| median(&all.iter().map(of).collect::<Vec<_>>());
        let records = sum(|one| Some(one.records)).filter(|&records| records > 0.0)?;
        let time_ns: f64 = self
            .rounds
            .iter()
            .zip(all)
            .map(|(round, one)| (round.total_ns * one.followers) as f64)
            .sum();
        let cpu_ns = sum(|one| Some(one.cpu_ns))?;
        let idle: Option<Vec<f64>> = all.iter().map(|one| one.idle_wakeups_per_s).collect();
        Some(FollowedTotal {
            seen: Latency {
                p50_ns: middle(&|one| one.seen.p50_ns as f64)? as u64,
                p99_ns: middle(&|one| one.seen.p99_ns as f64)? as u64,
                p999_ns: middle(&|one| one.seen.p999_ns as f64)? as u64,
            },
            cpu_ns_per_record: cpu_ns / records,
            cpu_share: cpu_ns / time_ns.max(1.0),
            reads_per_record: sum(|one| one.reads).map(|reads| reads / records),
            read_bytes_per_record: sum(|one| one.read_bytes).map(|bytes| bytes / records),
            device_bytes_per_record: sum(|one| one.device_bytes).map(|bytes| bytes / records),
            read_bytes_per_log_byte: sum(|one| one.read_bytes)
                .zip(sum(|one| one.log_bytes))
                .map(|(read, log)| read / log.max(1.0)),
            behind_ns: middle(&|one| one.behind_ns as f64)? as u64,
            idle_wakeups_per_s: idle.and_then(|idle| median(&idle)),
        })
    }
}

impl LoadResult {
    /// An arm that counts.
    pub fn arm(&self, name: &str) -> Option<&Arm> {
        self.arms.iter().find(|arm| arm.name == name && arm.counts())
    }
}
