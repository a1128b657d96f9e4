//! What a group-committing engine relies on: durable writes per second by how many are in flight, and bytes per second by the size
//! of each.
//!
//! *Owns*: the two curves. *May not touch*: how a row is measured side by side with others (`rounds`), the loop (`flight`).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use inkstone_host::LabFile;
use inkstone_io::{EngineKind, Persist};

use crate::cell::size_name;
use crate::finding::place_words;
use crate::progress::Progress;
use crate::result::{Finding, Histogram};
use crate::site::Site;
use crate::stage::{CellError, Session, incompressible};
use crate::table::numbers::{bytes, sig3};

use super::flight::{Flight, Source, Work, fly, latency_of, one_thread, threads};
use super::rounds::{Arm, Frame, Pace, Row, Sample, Turn, measure, steps_of, usage_figures};
use super::scratch::{DurableWay, written_file};
use super::words::{compared, median_of, row};
use super::{Experiment, knee_of};

/// What to measure.
#[derive(Debug, Clone)]
pub struct DepthPlan {
    /// Bytes of the file that is overwritten from front to back.
    pub file_bytes: u64,
    /// Writes in flight.
    pub depths: Vec<usize>,
    /// Bytes of one write, one in flight.
    pub sizes: Vec<u64>,
}

const BLOCK_BYTES: u64 = 4096;
const FILE: &str = "depth";
/// The share of the budget for the curve over depths: it has twice as many rows.
const DEPTH_SHARE: f64 = 0.6;

impl Default for DepthPlan {
    /// 64 MiB; 1 to 64 in flight, 4 KiB to 4 MiB.
    fn default() -> Self {
        Self {
            file_bytes: 64 << 20,
            depths: (0..7).map(|power| 1 << power).collect(),
            sizes: (12..=22).step_by(2).map(|power| 1 << power).collect(),
        }
    }
}

impl DepthPlan {
    /// The same with a file of 1 GiB, as in the other published experiments.
    pub fn published() -> Self {
        Self { file_bytes: 1 << 30, ..Self::default() }
    }

    pub(crate) fn steps(&self, pace: &Pace) -> u64 {
        steps_of(pace, 2 * self.depths.len() + self.sizes.len())
    }
}

/// Measures both curves.
pub(crate) fn depth(
    site: &Site,
    session: &Session<'_>,
    plan: &DepthPlan,
    pace: &Pace,
    progress: &mut Progress,
) -> Result<Vec<Experiment>, CellError> {
    let way = DurableWay::of(site);
    let file = Arc::new(written_file(session, FILE, plan.file_bytes, way.access, pace.seed)?);
    let part = |share: f64| Pace { budget: pace.budget.map(|budget| budget.mul_f64(share)), ..*pace };
    let depths = by_depth(site, session, plan, &part(DEPTH_SHARE), way, &file, progress);
    let mut found = vec![depths];
    if session.check().is_ok() {
        found.push(by_size(site, session, plan, &part(1.0 - DEPTH_SHARE), way, &file, progress));
    }
    session.clear(FILE)?;
    Ok(found)
}

fn by_depth(
    site: &Site,
    session: &Session<'_>,
    plan: &DepthPlan,
    pace: &Pace,
    way: DurableWay,
    file: &Arc<LabFile>,
    progress: &mut Progress,
) -> Experiment {
    let payload = incompressible(BLOCK_BYTES as usize, pace.seed);
    let arm = |flights: Result<Vec<Flight>, CellError>| {
        flights.map(|flights| Overwriting::new(flights, file, plan.file_bytes, BLOCK_BYTES, way.persist()))
    };
    let mut rows = Vec::new();
    for &depth in &plan.depths {
        let flights = threads(depth, BLOCK_BYTES as usize, &payload);
        rows.push(Row::new(name("threads", depth), "threads", Some(depth as f64), arm(flights)));
    }
    for &depth in &plan.depths {
        let flights = one_thread(EngineKind::Uring, depth, BLOCK_BYTES as usize, &payload);
        rows.push(Row::new(name("io_uring", depth), "io_uring", Some(depth as f64), arm(flights)));
    }
    let frame = Frame {
        name: "depth",
        title: format!("Durable 4 KiB overwrites ({}) by the number in flight", way.words),
        x_name: Some("writes in flight"),
        unit: "operations/s",
        baseline: plan.depths.first().map(|&depth| name("threads", depth)).unwrap_or_default(),
    };
    let mut found = measure(site, session, pace, &frame, rows, progress);
    found.notes.push(
        "io_uring: one thread with this many writes in flight; threads: this many threads, each with one blocking write".into(),
    );
    found.finding = depth_finding(&found);
    found
}

fn name(series: &str, depth: usize) -> String {
    format!("{series}, {depth} in flight")
}

fn by_size(
    site: &Site,
    session: &Session<'_>,
    plan: &DepthPlan,
    pace: &Pace,
    way: DurableWay,
    file: &Arc<LabFile>,
    progress: &mut Progress,
) -> Experiment {
    let payload = incompressible(1 << 20, pace.seed);
    let sizes = plan.sizes.iter().filter(|&&size| size <= plan.file_bytes);
    let rows = sizes.map(|&size| {
        let arm = threads(1, size as usize, &payload)
            .map(|flights| Overwriting::new(flights, file, plan.file_bytes, size, way.persist()));
        let arm = arm.map(|arm| Overwriting { counts_bytes: true, ..arm });
        Row::new(size_name(size), "one write in flight", Some(size as f64), arm)
    });
    let frame = Frame {
        name: "depth-size",
        title: format!("Durable overwrites ({}), one in flight, by size", way.words),
        x_name: Some("bytes per write"),
        unit: "bytes/s",
        baseline: plan.sizes.first().map(|&size| size_name(size)).unwrap_or_default(),
    };
    let mut found = measure(site, session, pace, &frame, rows.collect(), progress);
    found.finding = size_finding(&found);
    found
}

/// Overwrites its file from front to back, again and again.
struct Overwriting {
    flights: Vec<Flight>,
    file: Arc<LabFile>,
    write_bytes: u64,
    writes: u64,
    persist: Persist,
    counts_bytes: bool,
}

impl Overwriting {
    fn new(
        flights: Vec<Flight>,
        file: &Arc<LabFile>,
        file_bytes: u64,
        write_bytes: u64,
        persist: Persist,
    ) -> Self {
        let writes = (file_bytes / write_bytes).max(1);
        Self { flights, file: Arc::clone(file), write_bytes, writes, persist, counts_bytes: false }
    }
}

/// A number of writes that all flights share.
struct Next<'a> {
    number: &'a AtomicU64,
    limit: u64,
    writes: u64,
    write_bytes: u64,
    persist: Persist,
}

impl Source for Next<'_> {
    fn next(&mut self, _: &mut [u8]) -> Option<Work> {
        let number = self.number.fetch_add(1, Ordering::Relaxed);
        let offset = number % self.writes * self.write_bytes;
        let work = Work { offset, len: self.write_bytes as usize, write: Some(self.persist) };
        (number < self.limit).then_some(work)
    }

    fn done(&mut self, _: &Work, _: &[u8]) -> Result<(), CellError> {
        Ok(())
    }
}

impl Arm for Overwriting {
    fn turn(&mut self, turn: &Turn<'_>) -> Result<Sample, CellError> {
        let Self { writes, write_bytes, persist, .. } = *self;
        // Without a budget a turn is one pass over the file.
        let limit = if turn.time < Duration::MAX { u64::MAX } else { writes };
        let number = AtomicU64::new(0);
        let source = |_| Next { number: &number, limit, writes, write_bytes, persist };
        let flown = fly(&mut self.flights, turn, &self.file, source)?;
        let per_operation = if self.counts_bytes { write_bytes } else { 1 };
        let mut figures = usage_figures(&flown.usage, flown.operations);
        figures.retain(|figure| figure.name != "user time");
        Ok(Sample { amount: flown.operations * per_operation, total_ns: flown.total_ns, figures })
    }

    fn latency(&self) -> Option<Histogram> {
        latency_of(&self.flights)
    }
}

fn depth_finding(found: &Experiment) -> Option<Finding> {
    let base = found.baseline.as_deref()?;
    let best = super::words::best(found)?;
    let alone = median_of(row(found, base)?)?;
    let bend = match knee_of(found, &best.series) {
        Some(knee) => format!("beyond {knee:.0} in flight it no longer rises"),
        None => "it rises up to there".into(),
    };
    let also = super::words::also(found, best, None);
    let sentence = format!(
        "On {}, durable 4 KiB writes one at a time reach {} a second, and `{}`{also} {}: {}; {bend}.",
        place_words(&found.place),
        sig3(alone),
        best.name,
        sig3(median_of(best)?),
        compared(best.relative.as_ref(), base),
    );
    let best = also.is_empty().then(|| best.name.clone());
    Some(Finding { sentence, best, naive: Some(base.into()), ..Finding::default() })
}

fn size_finding(found: &Experiment) -> Option<Finding> {
    let small = found.rows.iter().find(|row| row.latency.as_ref().is_some_and(|l| l.count > 0))?;
    let best = super::words::best(found)?;
    let p50_us = |row: &super::ExperimentRow| Some(row.latency.as_ref()?.p50_ns as f64 / 1e3);
    // The largest write that still takes less than twice the time of the smallest.
    let cheap = found.rows.iter().rev().find(|row| p50_us(row) < p50_us(small).map(|us| us * 2.0))?;
    let also = super::words::also(found, best, None);
    let sentence = format!(
        "A durable write of {} takes {} us; one of {} takes {} us, less than twice as long, so a group may be that large; \
         the best rate, {}B a second, comes with writes of {}{also}.",
        small.name,
        sig3(p50_us(small)?),
        cheap.name,
        sig3(p50_us(cheap)?),
        bytes(median_of(best)?),
        best.name,
    );
    let best = also.is_empty().then(|| best.name.clone());
    Some(Finding { sentence, best, ..Finding::default() })
}
