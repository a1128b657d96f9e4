//! One row: a load on a log, alternating round by round with the bare overwrite of a written file.
//!
//! *Owns*: the order and pairing of rounds. *May not touch*: the loops (`load`, `crate::pass`), the
//! comparison (`crate::stats`).

use std::sync::Arc;
use std::time::Duration;

use inkstone::Log;
use inkstone_host::{BlockStat, LabEngine, LabFile, block_stat};
use inkstone_io::{AlignedBuf, Directory, Preparation, Reuse};

use crate::cell::Cell;
use crate::pass::{Limits, Recorders, Writer};
use crate::result::Round;
use crate::site::Site;
use crate::stage::{CellError, Session, incompressible, stage};
use crate::stats::relative;

use super::bill::{by_counters, by_trace};
use super::load::{Slice, Task, Worker};
use super::result::{BenchRow, Floor, LogCounts};
use super::{BenchPlan, FLOOR_BYTES, KEEP_BYTES, Load, SEGMENT_BYTES, open, options, refused};

/// A round is short, so that both sides of a pair see the disk in the same state; many rounds make
/// the interval narrow.
const ROUND: Duration = Duration::from_millis(80);
const ROUNDS_MIN: u32 = 5;
const ROUNDS_MAX: u32 = 200;
/// Before the first round: warms caches, buffers, and the log's estimate of a commit.
const WARM_UP: Duration = Duration::from_millis(100);
/// A bill of many slow commits ends after this time.
const BILL_TIME: Duration = Duration::from_secs(60);

/// Rounds, and the time of each, that make up this time.
pub(super) fn rounds_of(time: Duration, round: Duration) -> (u32, Duration) {
    let rounds = (time.as_nanos() / round.as_nanos().max(1)) as u32;
    let rounds = rounds.clamp(ROUNDS_MIN, ROUNDS_MAX);
    (rounds, time / rounds)
}

/// The number of steps of a row, for progress.
pub fn steps_of(plan: &BenchPlan) -> u64 {
    (plan.loads.len() * plan.record_bytes.len()) as u64
}

/// Measures one row. A failure becomes the row's reason; rounds measured before Ctrl-C are kept.
pub fn row(
    site: &Site,
    session: &Session<'_>,
    plan: &BenchPlan,
    load: Load,
    record_bytes: u64,
) -> BenchRow {
    let threads = if let Load::Closed(threads) = load { threads } else { 0 };
    let mut row = BenchRow { load: load.to_string(), threads, record_bytes, ..BenchRow::default() };
    let name = format!("log-{}-{record_bytes}", load.to_string().replace(' ', "-"));
    let path = site.directory.path().join(&name);
    let done = open(&path, options(SEGMENT_BYTES, record_bytes)).and_then(|log| {
        row.strategy = log.choice().to_string();
        let task =
            Task { log: &log, path: &path, load, keep_bytes: KEEP_BYTES, stop: session.stop };
        let measured = measure(site, session, plan, &task, &mut row);
        log.close().map_err(refused).and(measured)
    });
    match done {
        Ok(()) | Err(CellError::Interrupted) => {}
        Err(error) => row.failed = Some(error.to_string()),
    }
    // The working directory's removal takes what cannot be removed here.
    let _ = std::fs::remove_dir_all(&path);
    row
}

fn measure(
    site: &Site,
    session: &Session<'_>,
    plan: &BenchPlan,
    task: &Task<'_>,
    row: &mut BenchRow,
) -> Result<(), CellError> {
    let mut workers = Worker::all(task.load, row.record_bytes, plan.seed);
    let before = counts(task.log);
    task.run(&mut workers, Limits { commits: u64::MAX, time: WARM_UP })?;
    workers.iter_mut().for_each(|worker| worker.latency.clear());
    let warm = counts(task.log).since(&before);
    let mut floor = FloorArm::new(session, task, &warm)?;
    let timed = rounds(site, session, plan, task, &mut workers, &mut floor, row);
    let (mut all, rest) = match workers.split_first() {
        Some((first, rest)) => (first.latency.clone(), rest),
        None => return timed,
    };
    rest.iter().for_each(|worker| all.merge(&worker.latency));
    row.latency = all.finish();
    row.floor = Some(floor.finish(task.load, row, plan.seed));
    floor.remove(session);
    timed?;
    if plan.bill_commits > 0 && site.trace.is_ok() && site.capabilities.device.is_some() {
        let limits = Limits { commits: plan.bill_commits, time: BILL_TIME };
        row.bill = Some(by_trace(site, task, &mut workers, limits)?);
    }
    Ok(())
}

/// Alternates log and floor, in random order within each round.
fn rounds(
    site: &Site,
    session: &Session<'_>,
    plan: &BenchPlan,
    task: &Task<'_>,
    workers: &mut [Worker],
    floor: &mut FloorArm,
    row: &mut BenchRow,
) -> Result<(), CellError> {
    let mut random = fastrand::Rng::with_seed(plan.seed);
    let (mut rounds, mut time) = rounds_of(plan.time, ROUND);
    let mut limits = Limits { commits: u64::MAX, time };
    if let Some(records) = plan.records {
        rounds = ROUNDS_MIN;
        limits = Limits { commits: records * workers.len() as u64, time: Duration::MAX };
    }
    let device = site.capabilities.device.as_ref();
    let stat = || block_stat(device?.number).ok();
    let mut counted = device.map(|_| BlockStat::default());
    let mut ended = Ok(());
    for number in 0..rounds {
        let log_first = random.bool();
        if !log_first {
            floor.round(session, number, 0, time)?;
        }
        let (before, stat_before) = (counts(task.log), stat());
        let slice = task.run(workers, limits);
        let span = stat().zip(stat_before).map(|(after, before)| after.since(&before));
        let log = counts(task.log).since(&before);
        counted = counted.zip(span).map(|(sum, span)| added(&sum, &span));
        match slice {
            Ok(slice) => {
                row.rounds.push(round(number, u32::from(!log_first), &slice));
                if plan.records.is_some() {
                    // The floor gets the same time.
                    time = Duration::from_nanos(slice.total_ns);
                }
            }
            Err(error) => {
                ended = Err(error);
                break;
            }
        }
        row.cpu_ns += slice.map_or(0, |slice| slice.cpu_ns);
        row.log.add(&log);
        floor.groups.push(log.groups);
        if log_first {
            floor.round(session, number, 1, time)?;
        }
    }
    row.bill = counted.map(|counted| by_counters(&counted, row.commits(), row.log.segments));
    ended
}

pub(super) fn round(number: u32, turn: u32, slice: &Slice) -> Round {
    Round { number, turn, commits: slice.commits, total_ns: slice.total_ns, ..Round::default() }
}

fn added(sum: &BlockStat, span: &BlockStat) -> BlockStat {
    BlockStat {
        reads: sum.reads + span.reads,
        read_sectors: sum.read_sectors + span.read_sectors,
        writes: sum.writes + span.writes,
        write_sectors: sum.write_sectors + span.write_sectors,
        flushes: span.flushes.map(|flushes| flushes + sum.flushes.unwrap_or(0)),
        ..*span
    }
}

/// The log's current statistics.
pub(super) fn counts(log: &Log) -> LogCounts {
    let stats = log.stats();
    LogCounts {
        records: stats.records,
        groups: stats.groups,
        group_bytes: stats.group_bytes,
        segments: stats.segments,
        segments_fallocated: stats.segments_fallocated,
        pool_empty: stats.pool_empty,
        prepared_bytes: stats.prepared_bytes,
        sleeps_at_once: stats.sleeps_at_once,
        rested_us: stats.rested_us,
    }
}

impl LogCounts {
    /// What happened between `before` and these.
    pub(super) fn since(&self, before: &Self) -> Self {
        Self {
            records: self.records - before.records,
            groups: self.groups - before.groups,
            group_bytes: self.group_bytes - before.group_bytes,
            segments: self.segments - before.segments,
            segments_fallocated: self.segments_fallocated - before.segments_fallocated,
            pool_empty: self.pool_empty - before.pool_empty,
            prepared_bytes: self.prepared_bytes - before.prepared_bytes,
            sleeps_at_once: self.sleeps_at_once - before.sleeps_at_once,
            rested_us: self.rested_us - before.rested_us,
        }
    }

    pub(super) fn add(&mut self, more: &Self) {
        self.records += more.records;
        self.groups += more.groups;
        self.group_bytes += more.group_bytes;
        self.segments += more.segments;
        self.segments_fallocated += more.segments_fallocated;
        self.pool_empty += more.pool_empty;
        self.prepared_bytes += more.prepared_bytes;
        self.sleeps_at_once += more.sleeps_at_once;
        self.rested_us += more.rested_us;
    }
}

/// The bare overwrite: writes its own, already written file from front to back again and again.
struct FloorArm {
    cell: Cell,
    name: String,
    file: Arc<LabFile>,
    writer: Writer<LabEngine>,
    recorders: Recorders,
    rounds: Vec<Round>,
    /// Groups of the log in each of its rounds.
    groups: Vec<u64>,
}

impl FloorArm {
    /// A floor with as many bytes per write as the log's groups in the warm-up.
    fn new(session: &Session<'_>, task: &Task<'_>, warm: &LogCounts) -> Result<Self, CellError> {
        const BLOCK_BYTES: u64 = inkstone_io::BLOCK_BYTES as u64;
        let mean = warm.group_bytes as f64 / warm.groups.max(1) as f64 / BLOCK_BYTES as f64;
        let write_bytes = (mean.round() as u64).max(1) * BLOCK_BYTES;
        let mut strategy = task.log.choice().strategy;
        (strategy.preparation, strategy.reuse) = (Preparation::None, Reuse::Reuse);
        let file_bytes = (FLOOR_BYTES / write_bytes).max(1) * write_bytes;
        let cell = Cell { write_bytes, file_bytes, ..Cell::of(strategy) };
        let name = format!("floor-{write_bytes}");
        let payload: AlignedBuf = incompressible((2 << 20).max(write_bytes as usize), 1);
        let staged = stage(session, &cell, &name, &payload)?;
        let writer = Writer::for_cell(&cell, &payload)?;
        let (recorders, rounds, groups) = (Recorders::new(), Vec::new(), Vec::new());
        Ok(Self { cell, name, file: staged.file, writer, recorders, rounds, groups })
    }

    fn round(
        &mut self,
        session: &Session<'_>,
        number: u32,
        turn: u32,
        time: Duration,
    ) -> Result<(), CellError> {
        let mut round = Round { number, turn, ..Round::default() };
        while round.total_ns < time.as_nanos() as u64 {
            let left = time - Duration::from_nanos(round.total_ns);
            let limits = Limits { commits: u64::MAX, time: left };
            let totals = self.writer.run(
                session,
                &self.cell,
                &self.file,
                limits,
                &mut self.recorders,
                None,
            )?;
            round.commits += totals.commits;
            round.total_ns += totals.total_ns;
        }
        self.rounds.push(round);
        Ok(())
    }

    /// Compares a write of the floor with a commit if one thread waits for each record, and with a
    /// group otherwise.
    fn finish(&self, load: Load, row: &BenchRow, seed: u64) -> Floor {
        let log: Vec<Round> = match load {
            Load::Closed(1) => row.rounds.clone(),
            _ => row
                .rounds
                .iter()
                .zip(&self.groups)
                .map(|(round, &groups)| Round { commits: groups, ..*round })
                .collect(),
        };
        Floor {
            write_bytes: self.cell.write_bytes,
            ratio: relative(&self.rounds, &log, seed),
            rounds: self.rounds.clone(),
            latency: self.recorders.commit.finish(),
        }
    }

    fn remove(&self, session: &Session<'_>) {
        // The working directory's removal takes what cannot be removed here.
        let _ = session.clear(&self.name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_are_short_and_never_too_few() {
        assert_eq!(rounds_of(Duration::from_secs(2), ROUND), (25, Duration::from_millis(80)));
        assert_eq!(rounds_of(Duration::from_millis(50), ROUND), (5, Duration::from_millis(10)));
        assert_eq!(rounds_of(Duration::from_secs(40), ROUND), (200, Duration::from_millis(200)));
    }
}
