//! A load on a log, alternating round by round with the bare overwrite of a written file: the
//! floor, which no log can be below.
//!
//! *Owns*: what both do in their turns. *May not touch*: the order of turns (`crate::rounds`), the
//! loops (`load`, `crate::pass`).

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use inkstone::Log;
use inkstone_host::{BlockStat, LabEngine, LabFile, block_stat};
use inkstone_io::{Directory, Preparation, Reuse};

use crate::finding::finding;
use crate::pass::{Limits, Recorders, Writer};
use crate::result::{Table, Unit, Way, figure};
use crate::rounds::{Frame, Pace, Running, Sample, Scene, TakesTurns, Turn};
use crate::site::Site;
use crate::stage::{Session, WayError, incompressible, stage};
use crate::stats::relative;
use crate::writing::{Writing, size_name};

use super::load::{Loaded, Ran, Slice};
use super::{FLOOR_BYTES, KEEP_BYTES, SEGMENT_BYTES, options};

/// A turn is short, so that both see the disk in the same state; many rounds make the interval
/// narrow.
const TURN: Duration = Duration::from_millis(80);
const ROUNDS_MIN: u32 = 5;
const ROUNDS_MAX: u32 = 200;
/// Before the first round: warms caches, buffers, and the log's estimate of a commit.
const WARM_UP: Duration = Duration::from_millis(100);

/// The name of the floor.
pub(crate) const FLOOR: &str = "raw floor";

/// A load, and for how long.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Question<'a> {
    /// The name of the table, and of the log in it.
    pub(crate) names: (&'a str, &'a str),
    pub(crate) threads: u32,
    pub(crate) record_bytes: u64,
    /// How long to measure the log; the floor takes the same time again.
    pub(crate) time: Duration,
    /// Ends a turn after this many records of each thread instead.
    pub(crate) records: Option<u64>,
}

/// Rounds, and the time of a turn, that make up this time.
fn rounds_of(time: Duration) -> (u32, Duration) {
    let rounds = (time.as_nanos() / TURN.as_nanos()) as u32;
    let rounds = rounds.clamp(ROUNDS_MIN, ROUNDS_MAX);
    (rounds, time / rounds)
}

/// Measures the log beside its floor.
pub(crate) fn beside_floor(scene: &mut Scene<'_>, question: &Question<'_>) -> Table {
    let Question { names: (name, ours), threads, record_bytes, time, records } = *question;
    let seed = scene.pace.seed;
    let (rounds, turn) = match records {
        Some(_) => (ROUNDS_MIN, Duration::MAX),
        None => rounds_of(time),
    };
    let last = Rc::new(std::cell::Cell::new(TURN));
    let log = OnLog::new(scene.site, scene.session, question, turn, (seed, Rc::clone(&last)));
    let (log, floor) = match log {
        Ok((log, warm)) => {
            let floor = Floor::new(scene.session, &log.loaded.log, &warm, (turn, last));
            (Ok(log), floor)
        }
        Err(error) => {
            let why = "the log could not be measured, and the floor needs it as its pair";
            (Err(error), Err(WayError::Invalid(why.into())))
        }
    };
    let ways =
        vec![Running::new(FLOOR, "floor", None, floor), Running::new(ours, "log", None, log)];
    let title = format!(
        "{threads} threads, records of {}, each durable before its append returns",
        size_name(record_bytes)
    );
    let frame = Frame::of(name, title, Unit::OperationsPerS, FLOOR);
    let pace = Pace { rounds, budget: None, seed };
    let mut table = scene.measure_at(&pace, frame, ways);
    carry(&mut table, ours);
    table.notes.insert(
        0,
        "raw floor: one thread overwrites a written file in the log's own way; each write has as \
         many bytes as a group of the log, and counts as many records; if other processes use the \
         CPUs, the log's threads get more of them than the floor's one thread"
            .into(),
    );
    table
}

/// A write of the floor counts as a group: it has as many bytes, so it could carry as many records.
fn carry(table: &mut Table, ours: &str) {
    let per_group = table.way(ours).and_then(|way| way.figure("records per flush"));
    let Some(per_group) = per_group else { return };
    let seed = table.seed;
    let [floor, log] = table.ways.as_mut_slice() else { return };
    for round in &mut floor.rounds {
        round.commits = (round.commits as f64 * per_group) as u64;
    }
    log.relative = relative(&floor.rounds, &log.rounds, seed);
    table.finding = finding(table);
}

/// The load on the log.
struct OnLog<'a> {
    loaded: Loaded,
    site: &'a Site,
    limits: Limits,
    /// What the timed turns showed, and the device's counters meanwhile.
    seen: Ran,
    counted: BlockStat,
    /// How long the last turn took.
    last: Rc<std::cell::Cell<Duration>>,
}

impl<'a> OnLog<'a> {
    /// Opens the log and warms it up; also returns what it did meanwhile.
    fn new(
        site: &'a Site,
        session: &'a Session<'a>,
        question: &Question<'_>,
        time: Duration,
        (seed, last): (u64, Rc<std::cell::Cell<Duration>>),
    ) -> Result<(Self, Ran), WayError> {
        let Question { threads, record_bytes, records, .. } = *question;
        let name = format!("log-{threads}-{record_bytes}");
        let path = session.directory.path().join(name);
        let options = options(SEGMENT_BYTES, record_bytes);
        let mut loaded = Loaded::open(path, options, threads, record_bytes, KEEP_BYTES, seed)?;
        let commits = records.map_or(u64::MAX, |records| records * u64::from(threads));
        let warm = loaded.run(session.stop, Limits { commits: u64::MAX, time: WARM_UP })?;
        let limits = Limits { commits, time };
        let (seen, counted) = (Ran::default(), BlockStat::default());
        Ok((Self { loaded, site, limits, seen, counted, last }, warm))
    }
}

impl TakesTurns for OnLog<'_> {
    fn turn(&mut self, turn: &Turn<'_>) -> Result<Sample, WayError> {
        let device = self.site.capabilities.device.as_ref();
        let stat = || block_stat(device?.number).ok();
        let before = stat();
        let ran = self.loaded.run(turn.session.stop, self.limits)?;
        let span = stat().zip(before).map(|(after, before)| after.since(&before));
        span.iter().for_each(|span| self.counted.add(span));
        self.seen.add(&ran);
        let Slice { commits, total_ns, cpu_ns } = ran.slice;
        self.last.set(Duration::from_nanos(total_ns));
        let cpu_ns = cpu_ns as f64 / commits.max(1) as f64;
        Ok(Sample::of(commits, total_ns).with(vec![figure("CPU time", Unit::NsPerOp, cpu_ns)]))
    }

    fn finish(&mut self, way: &mut Way, notes: &mut Vec<String>) {
        let Ran { slice, latency, groups, segments, pool_empty, .. } = &self.seen;
        way.latency = (latency.count() > 0).then(|| latency.finish());
        let per_flush = slice.commits as f64 / (*groups).max(1) as f64;
        way.figures.push(figure("records per flush", Unit::PerFlush, per_flush));
        if slice.commits > 0 && self.site.capabilities.device.is_some() {
            let per =
                |name, count: u64| figure(name, Unit::PerOp, count as f64 / slice.commits as f64);
            way.figures.push(per("~ writes", self.counted.writes));
            way.figures.extend(self.counted.flushes.map(|count| per("~ flushes", count)));
            way.figures.push(per("~ reads", self.counted.reads));
        }
        notes.push(format!("the log's way: {}", self.loaded.log.choice()));
        notes.push(format!("{segments} segment changes, {pool_empty} of them found no file ready"));
    }
}

/// The bare overwrite: writes its own, already written file from front to back again and again.
struct Floor<'a> {
    session: &'a Session<'a>,
    writing: Writing,
    name: String,
    file: Arc<LabFile>,
    writer: Writer<LabEngine>,
    recorders: Recorders,
    time: Duration,
    /// How long the log's last turn took.
    last: Rc<std::cell::Cell<Duration>>,
}

impl<'a> Floor<'a> {
    /// A floor with as many bytes per write as the log's groups in the warm-up.
    fn new(
        session: &'a Session<'a>,
        log: &Log,
        &Ran { groups, group_bytes, .. }: &Ran,
        (time, last): (Duration, Rc<std::cell::Cell<Duration>>),
    ) -> Result<Self, WayError> {
        const BLOCK_BYTES: u64 = inkstone_io::BLOCK_BYTES as u64;
        let mean = group_bytes as f64 / groups.max(1) as f64 / BLOCK_BYTES as f64;
        let write_bytes = (mean.round() as u64).max(1) * BLOCK_BYTES;
        let mut strategy = log.choice().strategy;
        (strategy.preparation, strategy.reuse) = (Preparation::None, Reuse::Reuse);
        let file_bytes = (FLOOR_BYTES / write_bytes).max(1) * write_bytes;
        let writing = Writing { write_bytes, file_bytes, ..Writing::of(strategy) };
        let name = format!("floor-{write_bytes}");
        let payload = incompressible((2 << 20).max(write_bytes as usize), 1);
        let file = stage(session, &writing, &name, &payload)?.file;
        let writer = Writer::for_way(&writing, &payload)?;
        let recorders = Recorders::default();
        Ok(Self { session, writing, name, file, writer, recorders, time, last })
    }
}

impl TakesTurns for Floor<'_> {
    fn turn(&mut self, _: &Turn<'_>) -> Result<Sample, WayError> {
        let time = if self.time == Duration::MAX { self.last.get() } else { self.time };
        let (mut commits, mut total_ns) = (0, 0);
        while total_ns < time.as_nanos() as u64 {
            let left = time - Duration::from_nanos(total_ns);
            let limits = Limits { commits: u64::MAX, time: left };
            let (writing, file) = (&self.writing, &self.file);
            let done =
                self.writer.run(self.session, writing, file, limits, &mut self.recorders, None)?;
            (commits, total_ns) = (commits + done.commits, total_ns + done.total_ns);
        }
        Ok(Sample::of(commits, total_ns))
    }

    fn finish(&mut self, way: &mut Way, _: &mut Vec<String>) {
        way.latency = Some(self.recorders.commit.finish());
        way.figures.push(figure("bytes per write", Unit::Bytes, self.writing.write_bytes as f64));
    }
}

impl Drop for Floor<'_> {
    fn drop(&mut self) {
        // The working directory's removal takes what cannot be removed here.
        let _ = self.session.clear(&self.name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_short_and_never_too_few() {
        assert_eq!(rounds_of(Duration::from_secs(2)), (25, Duration::from_millis(80)));
        assert_eq!(rounds_of(Duration::from_millis(50)), (5, Duration::from_millis(10)));
        assert_eq!(rounds_of(Duration::from_secs(40)), (200, Duration::from_millis(200)));
    }
}
