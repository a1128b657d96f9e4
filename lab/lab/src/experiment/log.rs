//! A key-value store's log, as published: threads that each wait for their 128-byte record, on our
//! log compared with the floor.
//!
//! *Owns*: turning a row of the bench into rows of an experiment. *May not touch*: the measuring,
//! which is in [`crate::bench::rows`].

use std::time::Duration;

use crate::bench::company::Program;
use crate::bench::result::BenchRow;
use crate::bench::{BenchPlan, Load, rows};
use crate::cell::size_name;
use crate::finding::place_words;
use crate::result::{Finding, Round};
use crate::site::Site;
use crate::stage::CellError;
use crate::stats::relative;
use crate::table::numbers::sig3;

use super::definition::{Experiment, OwnCommand, Scene, Size};
use super::preallocation::{ROWS as PREALLOCATION_ROWS, preallocation};
use super::rounds::{Pace, figure, steps_of};
use super::{ExperimentResult, ExperimentRow};

/// What to measure.
#[derive(Debug, Clone)]
pub struct LogPlan {
    /// Threads, each of which waits for its record.
    pub threads: u32,
    /// Bytes of a record.
    pub record_bytes: u64,
    /// The most records of each thread in a turn; `None`: limited by time only.
    pub turn_records: Option<u64>,
    /// Time for the log and its floor if there is no budget.
    pub time: Duration,
}

impl Default for LogPlan {
    /// The published load: 8 threads, 128 B.
    fn default() -> Self {
        Self { threads: 8, record_bytes: 128, turn_records: None, time: TIME }
    }
}

pub(super) const PUBLISHED_RECORDS: u64 = 1_000;
/// Without a budget: the published run has 1,000 synced records per thread, which takes less on any
/// disk.
const TIME: Duration = Duration::from_secs(10);
/// The log's share of the budget; its floor gets the same share again.
const SHARE: f64 = 0.21;
/// The share of the ways with and without blocks reserved ahead.
const PREALLOCATION_SHARE: f64 = 0.5;

impl Experiment for LogPlan {
    fn name(&self) -> &'static str {
        "log"
    }

    /// Published is `fillsync` of 1,000,000, which writes 1,000 records per thread.
    fn sized(size: Size) -> Self {
        let turn_records = (size == Size::Published).then_some(PUBLISHED_RECORDS);
        Self { turn_records, ..Self::default() }
    }

    fn command(&self) -> Option<OwnCommand> {
        Some(OwnCommand {
            help: "The log of a key-value store: 8 threads wait for 128-byte records, on our log and on a bare file, with blocks reserved and not (E5)",
            subject: "A key-value store's log",
            seconds: 16,
            weight: 3.0,
        })
    }

    /// First its log, later two logs at a time and a plain file.
    fn room_needed_bytes(&self) -> u64 {
        3 * crate::bench::ROOM_NEEDED_BYTES
    }

    fn rows(&self) -> usize {
        PREALLOCATION_ROWS
    }

    /// The log and its floor are one step: they have their own rounds.
    fn steps(&self, pace: &Pace) -> u64 {
        1 + steps_of(pace, self.rows())
    }

    /// Measures the load on the log, and the floor; then with blocks reserved ahead and without.
    fn measure(&self, scene: Scene<'_>) -> Result<Vec<ExperimentResult>, CellError> {
        let Scene { site, session, pace, progress } = scene;
        let bench = BenchPlan {
            loads: vec![Load::Closed(self.threads)],
            record_bytes: vec![self.record_bytes],
            time: pace.budget.map_or(self.time, |budget| budget.mul_f64(SHARE)),
            bill_commits: 0,
            changes: false,
            seed: pace.seed,
            twins: pace.twins,
            records: self.turn_records,
            company: Vec::new(),
            program: Program::default(),
        };
        progress.step("the log and its floor");
        let row = rows::row(site, session, &bench, Load::Closed(self.threads), self.record_bytes);
        let mut found = vec![beside_floor(site, self, pace, &row)];
        if session.check().is_ok() {
            let budget = pace.budget.map(|budget| budget.mul_f64(PREALLOCATION_SHARE));
            found.push(preallocation(site, session, self, &Pace { budget, ..*pace }, progress)?);
        }
        Ok(found)
    }
}

fn beside_floor(site: &Site, plan: &LogPlan, pace: &Pace, row: &BenchRow) -> ExperimentResult {
    let per_group = row.commits() as f64 / row.log.groups.max(1) as f64;
    let floor = row.floor.as_ref();
    // A write of the floor counts as a group: it has as many bytes, so it could carry as many
    // records.
    let carried: Vec<Round> = floor.map_or_else(Vec::new, |floor| {
        let carry =
            |round: &Round| Round { commits: (round.commits as f64 * per_group) as u64, ..*round };
        floor.rounds.iter().map(carry).collect()
    });
    let per_s = |rounds: &[Round]| -> Vec<f64> {
        let rate = |round: &Round| round.commits as f64 * 1e9 / round.total_ns.max(1) as f64;
        rounds.iter().map(rate).collect()
    };
    let log = ExperimentRow {
        name: "inkstone".into(),
        series: "log".into(),
        invalid: row.failed.clone(),
        samples: per_s(&row.rounds),
        relative: relative(&carried, &row.rounds, pace.seed),
        twin: relative(&row.rounds, &row.again, pace.seed).filter(|_| !row.again.is_empty()),
        latency: (row.latency.count > 0).then(|| row.latency.clone()),
        figures: vec![
            figure("records per flush", "per flush", per_group),
            figure("CPU time", "ns per operation", row.cpu_ns as f64 / row.commits().max(1) as f64),
        ],
        ..ExperimentRow::default()
    };
    let write_bytes = floor.map_or(0, |floor| floor.write_bytes);
    let raw = ExperimentRow {
        name: FLOOR.into(),
        series: "floor".into(),
        invalid: floor
            .is_none()
            .then(|| "the log could not be measured, and the floor needs it as its pair".into()),
        samples: per_s(&carried),
        latency: floor.map(|floor| floor.latency.clone()),
        figures: vec![figure("bytes per write", "bytes", write_bytes as f64)],
        ..ExperimentRow::default()
    };
    let mut found = ExperimentResult {
        name: "log".into(),
        title: format!(
            "{} threads, records of {}, each durable before its append returns",
            plan.threads,
            size_name(plan.record_bytes)
        ),
        place: site.place.clone(),
        unit: "operations/s".into(),
        baseline: (!carried.is_empty()).then(|| FLOOR.into()),
        rounds: row.rounds.len() as u32,
        seed: pace.seed,
        rows: vec![raw, log],
        notes: vec![
            "raw floor: one thread overwrites a written file in the log's own way; each write has as many bytes as a group of the \
             log, and counts as many records; if other processes use the CPUs, the log's threads get more of them than the \
             floor's one thread"
                .into(),
            format!("the log's way: {}", row.strategy),
            match plan.turn_records {
                Some(records) => format!("{records} records a thread in each round; published: 1,000, once"),
                None => "published: 1,000 records a thread; here as many as fit into the time, which is more".into(),
            },
        ],
        ..ExperimentResult::default()
    };
    found.finding = finding(&found, per_group);
    found
}

const FLOOR: &str = "raw floor";

fn finding(found: &ExperimentResult, per_group: f64) -> Option<Finding> {
    let log = super::words::row(found, "inkstone")?;
    let sentence = format!(
        "On {} the log makes {} such records durable a second, {} per flush: {}.",
        place_words(&found.place),
        sig3(super::words::median_of(log)?),
        sig3(per_group),
        super::words::compared(log.relative.as_ref(), FLOOR),
    );
    Some(Finding { sentence, best: None, naive: None, ..Finding::default() })
}
