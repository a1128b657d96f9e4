//! What a group-committing engine relies on: durable writes per second by how many are in flight,
//! and bytes per second by the size of each.
//!
//! *Owns*: the two curves. *May not touch*: how a row is measured side by side with others
//! (`rounds`), the loop (`flight`).

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

use super::definition::{Experiment, OwnCommand, Scene, Setting, Size};
use super::flight::{Flight, Source, Work, fly, latency_of, one_thread, threads};
use super::rounds::{Arm, Frame, Pace, Row, Sample, Turn, measure, usage_figures};
use super::scratch::{DurableWay, written_file};
use super::words::{compared, median_of, row};
use super::{ExperimentResult, knee_of};

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

impl Experiment for DepthPlan {
    fn name(&self) -> &'static str {
        "depth"
    }

    fn sized(size: Size) -> Self {
        Self { file_bytes: size.file_bytes(), ..Self::default() }
    }

    fn command(&self) -> Option<OwnCommand> {
        Some(OwnCommand {
            help: "Durable writes per second by the number in flight, and bytes per second by write size",
            subject: "Durable writes by depth and size",
            seconds: 25,
            weight: 5.0,
        })
    }

    fn settings(&mut self) -> Vec<Setting<'_>> {
        vec![Setting::file_bytes(&mut self.file_bytes)]
    }

    fn room_needed_bytes(&self) -> u64 {
        self.file_bytes
    }

    fn rows(&self) -> usize {
        2 * self.depths.len() + self.sizes.len()
    }

    /// Measures both curves.
    fn measure(&self, scene: Scene<'_>) -> Result<Vec<ExperimentResult>, CellError> {
        let Scene { site, session, pace, progress } = scene;
        let way = DurableWay::of(site);
        let file = Arc::new(written_file(session, FILE, self.file_bytes, way.access, pace.seed)?);
        let curve = Curve { plan: self, site, session, way, file: &file };
        let part =
            |share: f64| Pace { budget: pace.budget.map(|budget| budget.mul_f64(share)), ..*pace };
        let mut found = vec![curve.by_depth(&part(DEPTH_SHARE), progress)];
        if session.check().is_ok() {
            found.push(curve.by_size(&part(1.0 - DEPTH_SHARE), progress));
        }
        session.clear(FILE)?;
        Ok(found)
    }
}

/// What both curves have in common.
struct Curve<'a> {
    plan: &'a DepthPlan,
    site: &'a Site,
    session: &'a Session<'a>,
    way: DurableWay,
    file: &'a Arc<LabFile>,
}

impl<'a> Curve<'a> {
    /// A point of a curve; flights that could not be created are the reason why it has no figures.
    fn row(
        &self,
        (name, series, x): (String, &str, u64),
        flights: Result<Vec<Flight>, CellError>,
        (write_bytes, counts_bytes): (u64, bool),
    ) -> Row<'a> {
        let writes = (self.plan.file_bytes / write_bytes).max(1);
        let arm = flights.map(|flights| Overwriting {
            flights,
            file: Arc::clone(self.file),
            write_bytes,
            writes,
            persist: self.way.persist(),
            counts_bytes,
        });
        Row::new(name, series, Some(x as f64), arm)
    }

    fn by_depth(&self, pace: &Pace, progress: &mut Progress) -> ExperimentResult {
        let payload = incompressible(BLOCK_BYTES as usize, pace.seed);
        let depths = &self.plan.depths;
        let row = |series: &str, depth: usize, flights| {
            self.row((name(series, depth), series, depth as u64), flights, (BLOCK_BYTES, false))
        };
        let threads = depths
            .iter()
            .map(|&depth| row("threads", depth, threads(depth, BLOCK_BYTES as usize, &payload)));
        let ring = |depth| one_thread(EngineKind::Uring, depth, BLOCK_BYTES as usize, &payload);
        let ring = depths.iter().map(|&depth| row("io_uring", depth, ring(depth)));
        let frame = Frame {
            name: "depth",
            title: format!("Durable 4 KiB overwrites ({}) by the number in flight", self.way.words),
            x_name: Some("writes in flight"),
            unit: "operations/s",
            baseline: depths.first().map(|&depth| name("threads", depth)).unwrap_or_default(),
        };
        let mut found =
            measure(self.site, self.session, pace, &frame, threads.chain(ring).collect(), progress);
        found.notes.push(
            "io_uring: one thread with this many writes in flight; threads: this many threads, each with one blocking write".into(),
        );
        found.finding = depth_finding(&found);
        found
    }

    fn by_size(&self, pace: &Pace, progress: &mut Progress) -> ExperimentResult {
        let payload = incompressible(1 << 20, pace.seed);
        let sizes = self.plan.sizes.iter().filter(|&&size| size <= self.plan.file_bytes);
        let rows = sizes.map(|&size| {
            let flights = threads(1, size as usize, &payload);
            self.row((size_name(size), "one write in flight", size), flights, (size, true))
        });
        let frame = Frame {
            name: "depth-size",
            title: format!("Durable overwrites ({}), one in flight, by size", self.way.words),
            x_name: Some("bytes per write"),
            unit: "bytes/s",
            baseline: self.plan.sizes.first().map(|&size| size_name(size)).unwrap_or_default(),
        };
        let mut found = measure(self.site, self.session, pace, &frame, rows.collect(), progress);
        found.finding = size_finding(&found);
        found
    }
}

fn name(series: &str, depth: usize) -> String {
    format!("{series}, {depth} in flight")
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

fn depth_finding(found: &ExperimentResult) -> Option<Finding> {
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

fn size_finding(found: &ExperimentResult) -> Option<Finding> {
    let small = found.rows.iter().find(|row| row.latency.as_ref().is_some_and(|l| l.count > 0))?;
    let best = super::words::best(found)?;
    let p50_us = |row: &super::ExperimentRow| Some(row.latency.as_ref()?.p50_ns as f64 / 1e3);
    // The largest write that still takes less than twice the time of the smallest.
    let cheap =
        found.rows.iter().rev().find(|row| p50_us(row) < p50_us(small).map(|us| us * 2.0))?;
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
