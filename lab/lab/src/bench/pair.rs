//! Two lone writers side by side: one whose segments are so small that they change all the time,
//! one that never changes.
//!
//! *Owns*: how large "small" is, and the pairing. *May not touch*: the loops (`load`), the
//! comparison (`crate::stats`).

use std::time::Duration;

use inkstone::Log;
use inkstone_io::Directory;

use crate::histogram::Recorder;
use crate::pass::Limits;
use crate::result::Round;
use crate::site::Site;
use crate::stage::{CellError, Session};
use crate::stats::relative;

use super::load::{Task, Worker};
use super::result::ChangePair;
use super::rows::{counts, rounds_of};
use super::{BenchPlan, Load, open, options, refused};

/// Several changes in each round, and enough commits for a 99.9th percentile.
const ROUND: Duration = Duration::from_millis(500);
/// How often the segment should change.
const EVERY: Duration = Duration::from_millis(100);
/// The smallest segment of a log.
const SEGMENT_BYTES_MIN: u64 = 64 << 10;
const SEGMENT_BYTES_MAX: u64 = 32 << 20;
/// About what a segment needs for its header and reserves for control groups.
const KEPT_BYTES: f64 = 28.0 * 1024.0;
/// About how many segments the changing log keeps.
const KEEP_SEGMENTS: u64 = 4;
/// How long to measure each log, as a multiple of a row.
const ROWS: u32 = 3;

/// The number of steps, for progress.
pub fn steps_of(plan: &BenchPlan) -> u64 {
    u64::from(plan.changes)
}

/// Measures both logs. `bytes_per_s` is how fast a lone writer's groups fill a segment here.
pub fn changes(
    site: &Site,
    session: &Session<'_>,
    plan: &BenchPlan,
    record_bytes: u64,
    bytes_per_s: f64,
) -> ChangePair {
    let time = plan.time * ROWS;
    let block = inkstone_io::BLOCK_BYTES as f64;
    let small = ((bytes_per_s * EVERY.as_secs_f64() + KEPT_BYTES) / block).round() * block;
    let small = (small as u64).clamp(SEGMENT_BYTES_MIN.max(8 * record_bytes), SEGMENT_BYTES_MAX);
    let mut pair = ChangePair { record_bytes, segment_bytes: small, ..ChangePair::default() };
    let (changing_path, steady_path) =
        (site.directory.path().join("log-changing"), site.directory.path().join("log-steady"));
    let done = open(&changing_path, options(small, record_bytes)).and_then(|changing| {
        let steady = open(&steady_path, options(SEGMENT_BYTES_MAX, record_bytes));
        let measured = steady.and_then(|steady| {
            let measured = grow(&steady, session, record_bytes)
                .and_then(|()| measure(session, plan, time, [&changing, &steady], &mut pair));
            steady.close().map_err(refused).and(measured)
        });
        changing.close().map_err(refused).and(measured)
    });
    match done {
        Ok(()) | Err(CellError::Interrupted) => {}
        Err(error) => pair.failed = Some(error.to_string()),
    }
    for path in [changing_path, steady_path] {
        // The working directory's removal takes what cannot be removed here.
        let _ = std::fs::remove_dir_all(path);
    }
    pair
}

/// Appends until the log is in its first segment of full size: a new log starts with smaller ones.
fn grow(log: &Log, session: &Session<'_>, record_bytes: u64) -> Result<(), CellError> {
    let record = vec![0; record_bytes as usize];
    for _ in 0..2 {
        super::await_ready(log);
        let begun = log.stats().segments;
        while log.stats().segments == begun {
            session.check()?;
            for _ in 0..64 {
                // A later record makes it durable.
                drop(log.append(&record).map_err(refused)?);
            }
        }
        log.sync().map_err(refused)?;
    }
    super::await_ready(log);
    Ok(())
}

fn measure(
    session: &Session<'_>,
    plan: &BenchPlan,
    time: Duration,
    logs: [&Log; 2],
    pair: &mut ChangePair,
) -> Result<(), CellError> {
    let mut random = fastrand::Rng::with_seed(plan.seed);
    let (rounds, time) = rounds_of(time, ROUND);
    let limits = Limits { commits: u64::MAX, time };
    let keeps = [KEEP_SEGMENTS * pair.segment_bytes, u64::MAX];
    let mut workers = [Worker::new(pair.record_bytes, 1), Worker::new(pair.record_bytes, 2)];
    let mut all = [Recorder::new(), Recorder::new()];
    let mut tails: [Vec<Round>; 2] = [Vec::new(), Vec::new()];
    let before = logs.map(counts);
    let mut ended = Ok(());
    'rounds: for number in 0..rounds {
        let first = usize::from(random.bool());
        for (turn, which) in [first, 1 - first].into_iter().enumerate() {
            let task = Task {
                log: logs[which],
                path: session.directory.path(),
                load: Load::Closed(1),
                keep_bytes: keeps[which],
                stop: session.stop,
            };
            let slice = match task.run(std::slice::from_mut(&mut workers[which]), limits) {
                Ok(slice) => slice,
                Err(error) => {
                    ended = Err(error);
                    break 'rounds;
                }
            };
            let latency = &mut workers[which].latency;
            let tail = Round {
                number,
                commits: 1,
                total_ns: latency.finish().p999_ns,
                ..Round::default()
            };
            tails[which].push(tail);
            all[which].merge(latency);
            latency.clear();
            let rounds = if which == 0 { &mut pair.changing } else { &mut pair.steady };
            rounds.push(Round {
                number,
                turn: turn as u32,
                commits: slice.commits,
                total_ns: slice.total_ns,
                ..Round::default()
            });
        }
    }
    let done = [0, 1].map(|which| counts(logs[which]).since(&before[which]));
    (pair.changes, pair.changes_of_steady, pair.pool_empty) =
        (done[0].segments, done[1].segments, done[0].pool_empty);
    let total_ns: u64 = pair.changing.iter().map(|round| round.total_ns).sum();
    pair.every_ns = total_ns / pair.changes.max(1);
    (pair.changing_latency, pair.steady_latency) = (all[0].finish(), all[1].finish());
    pair.throughput = relative(&pair.steady, &pair.changing, plan.seed);
    // The changing log is the baseline here, so that a longer tail gives a larger ratio.
    pair.p999 = relative(&tails[0], &tails[1], plan.seed);
    ended
}
