//! The load that the article suggests for a device, and fio with the same options on the same file
//! beside it, as a check of the lab.
//!
//! *Owns*: a reimplementation of fio's `rw=rw`, and running fio. *May not touch*: the loop
//! (`flight`), the rounds.
//!
//! `rw=rw`: each job has a position to read and a position to write; both begin at the start of the
//! file and advance block by block. Which comes next is drawn. After as many blocks as the file
//! has, both begin again. The published load uses io_uring with 16 requests in flight in each job.
//! Beside it the same load runs with one blocking call after the other (fio's psync), which no
//! article has.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use inkstone_host::LabFile;
use inkstone_io::{Access, DioAlignment, Directory, Durability, EngineKind, OpenFile, Persist};
use serde::Deserialize;

use crate::finding::place_words;
use crate::progress::Progress;
use crate::result::{Finding, Histogram};
use crate::site::Site;
use crate::stage::{CellError, Session};
use crate::table::numbers::sig3;

use super::definition::{Experiment, OwnCommand, Scene, Setting, Size};
use super::flight::{Flight, Source, Work, fly, latency_of};
use super::rounds::{Arm, Frame, Pace, Row, Sample, Turn, figure, measure, usage_figures};
use super::scratch::{fill, written_file};
use super::words::{compared, median_of, row};
use super::{ExperimentResult, pattern};

/// What to measure.
#[derive(Debug, Clone)]
pub struct MixedPlan {
    /// Bytes of the file.
    pub file_bytes: u64,
    /// Jobs, each a thread.
    pub jobs: usize,
    /// Requests that a job has in flight, if its engine can.
    pub depth: usize,
    /// Whether to run it with an asynchronous engine too, as published.
    pub asynchronous: bool,
    /// The longest turn; fio needs a limit too.
    pub turn_max: Duration,
}

const BLOCK_BYTES: u64 = 4096;
const FILE: &str = "mixed";
/// The file of fio's report.
const REPORT: &str = "mixed-fio.json";

impl Default for MixedPlan {
    /// The published options, over 64 MiB.
    fn default() -> Self {
        Self {
            file_bytes: 64 << 20,
            jobs: 8,
            depth: 16,
            asynchronous: true,
            turn_max: Duration::from_secs(10),
        }
    }
}

impl Experiment for MixedPlan {
    fn name(&self) -> &'static str {
        "mixed"
    }

    /// Published are a file of 10 GiB and 60 s per turn.
    fn sized(size: Size) -> Self {
        let usual = Self { file_bytes: size.file_bytes(), ..Self::default() };
        match size {
            Size::Published => {
                Self { file_bytes: 10 << 30, turn_max: Duration::from_secs(60), ..usual }
            }
            Size::Quick => Self { asynchronous: false, ..usual },
            _ => usual,
        }
    }

    fn command(&self) -> Option<OwnCommand> {
        Some(OwnCommand {
            help: "The fio load that an article suggests, half reads and half durable writes, beside fio itself (E6)",
            subject: "Reads and durable writes together",
            // Long turns, so that the fixed costs of a turn do not distort the comparison with fio.
            seconds: 60,
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
        2 * (1 + usize::from(self.asynchronous))
    }

    /// Measures with one request in flight in each job, and with several.
    fn measure(&self, scene: Scene<'_>) -> Result<Vec<ExperimentResult>, CellError> {
        let Scene { site, session, pace, progress } = scene;
        if site.capabilities.direct == DioAlignment::Refused {
            let file_system = &site.capabilities.mount.file_system;
            return Err(CellError::Invalid(format!(
                "this load needs O_DIRECT, which {file_system} does not have here: take another directory"
            )));
        }
        drop(written_file(session, FILE, self.file_bytes, Access::Direct, pace.seed)?);
        let fio = fio_version();
        let ways: &[Way] =
            if self.asynchronous { &[Way::Ring, Way::Blocking] } else { &[Way::Blocking] };
        let budget = pace.budget.map(|budget| budget / ways.len() as u32);
        let pace = Pace { budget, ..*pace };
        let mut found = Vec::new();
        for &way in ways {
            if session.check().is_ok() {
                found.push(one(site, session, self, &pace, (way, &fio), progress));
            }
        }
        session.clear(FILE)?;
        Ok(found)
    }
}

/// How a job makes its calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// One after the other.
    Blocking,
    /// Several in flight through io_uring.
    Ring,
}

const OURS: &str = "inkstone";
const FIO: &str = "fio";

fn one(
    site: &Site,
    session: &Session<'_>,
    plan: &MixedPlan,
    pace: &Pace,
    (way, fio): (Way, &Result<String, String>),
    progress: &mut Progress,
) -> ExperimentResult {
    let directory = site.directory.path();
    let theirs = fio.clone().map_err(CellError::Invalid).map(|_| Fio::new(directory, plan, way));
    let ours = Ours::new(session, plan, way, pace.seed);
    let rows = vec![Row::new(FIO, FIO, None, theirs), Row::new(OURS, OURS, None, ours)];
    let flight = match way {
        Way::Blocking => "one blocking call after the other in each".into(),
        Way::Ring => format!("{} in flight in each, through io_uring", plan.depth),
    };
    let frame = Frame {
        name: if way == Way::Blocking { "mixed" } else { "mixed-async" },
        title: format!(
            "4 KiB, half reads and half durable writes, O_DIRECT + O_SYNC, {} jobs, {flight}",
            plan.jobs
        ),
        x_name: None,
        unit: "operations/s",
        baseline: if fio.is_ok() { FIO.into() } else { OURS.into() },
    };
    let mut found = measure(site, session, pace, &frame, rows, progress);
    found.notes = vec![
        format!("fio: {}", fio_arguments(plan, way, pace.turn(2)).join(" ")),
        "inkstone checks every byte that it reads, fio checks none; both run their jobs as threads of one process"
            .into(),
    ];
    found.notes.extend(fio.clone().ok().map(|version| format!("beside it: {version}")));
    found.finding = finding(&found);
    found
}

/// Our own jobs.
struct Ours {
    flights: Vec<Flight>,
    blocks: u64,
    /// The seed of the bytes.
    seed: u64,
    turn_max: Duration,
}

impl Ours {
    fn new(
        session: &Session<'_>,
        plan: &MixedPlan,
        way: Way,
        seed: u64,
    ) -> Result<Self, CellError> {
        session.check()?;
        let (kind, depth) = match way {
            Way::Blocking => (EngineKind::Caller, 1),
            Way::Ring => (EngineKind::Uring, plan.depth),
        };
        let job = |_| Flight::new(kind, depth, BLOCK_BYTES as usize, &[0]);
        let flights = (0..plan.jobs).map(job).collect::<Result<_, _>>()?;
        Ok(Self { flights, blocks: plan.file_bytes / BLOCK_BYTES, seed, turn_max: plan.turn_max })
    }
}

fn open(session: &Session<'_>, durability: Durability) -> Result<LabFile, CellError> {
    let how = OpenFile::existing().access(Access::Direct).durability(durability);
    Ok(session.directory.open(FILE, &how)?)
}

/// Rewrites the file, since fio leaves its own bytes. Also done before fio's turns, so that both
/// find the device after the same work.
fn refill(session: &Session<'_>, file_bytes: u64, seed: u64) -> Result<(), CellError> {
    fill(session, &open(session, Durability::None)?, file_bytes, seed)
}

impl Arm for Ours {
    fn turn(&mut self, turn: &Turn<'_>) -> Result<Sample, CellError> {
        refill(turn.session, self.blocks * BLOCK_BYTES, self.seed)?;
        let file = Arc::new(open(turn.session, Durability::OSync)?);
        let turn = Turn { time: turn.time.min(self.turn_max), ..*turn };
        let (blocks, seed) = (self.blocks, self.seed);
        let flown = fly(&mut self.flights, &turn, &file, |index| {
            let random = fastrand::Rng::with_seed(turn.seed ^ (index as u64 + 1));
            Job { blocks, seed, random, next: [0; 2], done: 0 }
        })?;
        Ok(Sample {
            amount: flown.operations,
            total_ns: flown.total_ns,
            figures: usage_figures(&flown.usage, flown.operations),
        })
    }

    fn latency(&self) -> Option<Histogram> {
        latency_of(&self.flights)
    }
}

/// One of our jobs.
struct Job {
    blocks: u64,
    seed: u64,
    random: fastrand::Rng,
    /// The next block to read and to write.
    next: [u64; 2],
    done: u64,
}

impl Source for Job {
    fn next(&mut self, buffer: &mut [u8]) -> Option<Work> {
        if self.done == self.blocks {
            (self.done, self.next) = (0, [0; 2]);
        }
        self.done += 1;
        let writes = self.random.bool();
        let block = &mut self.next[usize::from(writes)];
        let offset = *block * BLOCK_BYTES;
        *block += 1;
        if writes {
            pattern::fill(&mut buffer[..BLOCK_BYTES as usize], offset, self.seed);
        }
        // The file is opened with O_SYNC.
        Some(Work { offset, len: BLOCK_BYTES as usize, write: writes.then_some(Persist::Later) })
    }

    fn done(&mut self, work: &Work, buffer: &[u8]) -> Result<(), CellError> {
        if work.write.is_some() {
            return Ok(());
        }
        pattern::check(buffer, work.offset, self.seed).map_err(CellError::Invalid)
    }
}

/// fio's jobs.
struct Fio {
    directory: PathBuf,
    plan: MixedPlan,
    way: Way,
}

/// How often the user's wish to stop is checked while fio runs.
const LOOK: Duration = Duration::from_millis(20);

impl Fio {
    fn new(directory: &Path, plan: &MixedPlan, way: Way) -> Self {
        Self { directory: directory.to_path_buf(), plan: plan.clone(), way }
    }

    /// Runs it to its end, or until the user wants to stop.
    fn run(&self, turn: &Turn<'_>) -> Result<String, CellError> {
        let failed =
            |what: &str, error: std::io::Error| CellError::Invalid(format!("{what}: {error}"));
        let mut child = Command::new(FIO)
            .args(fio_arguments(&self.plan, self.way, turn.time))
            .arg(format!("--output={REPORT}"))
            .current_dir(&self.directory)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| failed("start fio", error))?;
        let status = loop {
            match child.try_wait().map_err(|error| failed("wait for fio", error))? {
                Some(status) => break status,
                None if turn.session.check().is_err() => {
                    // Its jobs are threads and end with it.
                    let _ = child.kill();
                    let _ = child.wait();
                    return Err(CellError::Interrupted);
                }
                None => std::thread::sleep(LOOK),
            }
        };
        turn.session.check()?;
        let report = self.directory.join(REPORT);
        let text = std::fs::read_to_string(&report).unwrap_or_default();
        let _ = std::fs::remove_file(&report);
        if !status.success() {
            let first = text.lines().next().unwrap_or("no message");
            return Err(CellError::Invalid(format!("fio ended with {status}: {first}")));
        }
        Ok(text)
    }
}

fn fio_arguments(plan: &MixedPlan, way: Way, time: Duration) -> Vec<String> {
    let engine = if way == Way::Blocking { "psync" } else { "io_uring" };
    let runtime_ms = time.min(plan.turn_max).as_millis().max(1);
    [
        "--name=mixed --rw=rw --rwmixread=50 --bs=4096 --direct=1 --sync=1 --thread --group_reporting --time_based",
        "--fallocate=none --allow_file_create=0 --output-format=json",
    ]
    .iter()
    .flat_map(|words| words.split(' '))
    .map(str::to_owned)
    .chain([
        format!("--filename={FILE}"),
        format!("--size={}", plan.file_bytes),
        format!("--numjobs={}", plan.jobs),
        format!("--iodepth={}", plan.depth),
        format!("--ioengine={engine}"),
        format!("--runtime={runtime_ms}ms"),
    ])
    .collect()
}

/// The part of fio's report that is read.
#[derive(Debug, Deserialize)]
struct FioReport {
    jobs: Vec<FioJob>,
}

#[derive(Debug, Deserialize)]
struct FioJob {
    error: i64,
    read: FioSide,
    write: FioSide,
}

#[derive(Debug, Deserialize)]
struct FioSide {
    total_ios: u64,
    /// Milliseconds.
    runtime: u64,
}

/// Operations and their time.
fn parse_fio(text: &str) -> Result<(u64, u64, u64), CellError> {
    let bad = |why: String| CellError::Invalid(format!("fio's report cannot be read: {why}"));
    // fio may print notes before it.
    let json = text.find('{').map(|at| &text[at..]).unwrap_or_default();
    let report: FioReport = serde_json::from_str(json).map_err(|error| bad(error.to_string()))?;
    let [job] = report.jobs.as_slice() else {
        return Err(bad(format!("{} groups of jobs instead of 1", report.jobs.len())));
    };
    if job.error != 0 {
        return Err(CellError::Invalid(format!("fio's jobs failed with error {}", job.error)));
    }
    let ms = job.read.runtime.max(job.write.runtime);
    if ms == 0 || job.read.total_ios + job.write.total_ios == 0 {
        return Err(bad("it did nothing".into()));
    }
    Ok((job.read.total_ios, job.write.total_ios, ms * 1_000_000))
}

impl Arm for Fio {
    fn turn(&mut self, turn: &Turn<'_>) -> Result<Sample, CellError> {
        refill(turn.session, self.plan.file_bytes, turn.seed)?;
        let (reads, writes, total_ns) = parse_fio(&self.run(turn)?)?;
        let share = 100.0 * reads as f64 / (reads + writes) as f64;
        Ok(Sample { amount: reads + writes, total_ns, figures: vec![figure("reads", "%", share)] })
    }
}

/// Its version, or why it cannot be run.
fn fio_version() -> Result<String, String> {
    let answer = Command::new(FIO).arg("--version").stdin(Stdio::null()).output();
    match answer {
        Ok(output) if output.status.success() => {
            Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
        }
        Ok(output) => Err(format!("fio does not run here: {}", output.status)),
        Err(_) => {
            Err("fio is not installed (package fio), so nothing is measured beside our load".into())
        }
    }
}

/// How close our figure must be to fio's.
const NEAR: std::ops::RangeInclusive<f64> = 0.85..=1.15;

fn finding(found: &ExperimentResult) -> Option<Finding> {
    let ours = row(found, OURS)?;
    let rate = sig3(median_of(ours)?);
    let place = place_words(&found.place);
    let sentence = match &ours.relative {
        Some(relative) => {
            let is_near = |ratio: f64| NEAR.contains(&ratio);
            let all = relative.interval().map(|(low, high)| is_near(low) && is_near(high));
            let how = match (is_near(relative.speedup), all) {
                (true, Some(true)) => "within 15%, and so is the interval",
                (true, Some(false)) => {
                    "within 15%, but the interval is wider: it takes more rounds or a quieter machine to be sure"
                }
                (true, None) => "within 15%, but in too few rounds to be sure",
                (false, None) => "more than 15% away, but in too few rounds to be sure",
                (false, Some(_)) => "more than 15% away",
            };
            let beside = compared(Some(relative), FIO);
            format!(
                "On {place} this load does {rate} operations a second, compared with fio on the same file: {beside}, {how}."
            )
        }
        None => {
            format!(
                "On {place} this load does {rate} operations a second; there was no fio to check it."
            )
        }
    };
    Some(Finding { sentence, ..Finding::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fios_report_is_read_and_its_failures_are_told() {
        let report = |error: i64, ios: u64| {
            format!(
                r#"note: both iodepth >= 1 and synchronous I/O engine are selected
                {{"fio version": "fio-3.33", "jobs": [{{"jobname": "mixed", "error": {error},
                "read": {{"total_ios": {ios}, "runtime": 505}}, "write": {{"total_ios": {ios}, "runtime": 504}}}}]}}"#
            )
        };
        assert_eq!(parse_fio(&report(0, 10)).expect("a report"), (10, 10, 505_000_000));
        assert!(parse_fio(&report(5, 10)).expect_err("failed").to_string().contains("error 5"));
        assert!(parse_fio(&report(0, 0)).expect_err("nothing").to_string().contains("nothing"));
        for bad in ["", "fio: pid 1, got signal", r#"{"jobs": []}"#] {
            assert!(parse_fio(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_job_reads_and_writes_in_order_and_begins_again() {
        let random = fastrand::Rng::with_seed(3);
        let mut job = Job { blocks: 64, seed: 1, random, next: [0; 2], done: 0 };
        let mut buffer = vec![0; BLOCK_BYTES as usize];
        for _ in 0..3 {
            let mut seen = [Vec::new(), Vec::new()];
            for _ in 0..64 {
                let work = job.next(&mut buffer).expect("endless");
                seen[usize::from(work.write.is_some())].push(work.offset / BLOCK_BYTES);
                if work.write.is_some() {
                    assert_eq!(pattern::check(&buffer, work.offset, 1), Ok(()));
                }
            }
            for blocks in &seen {
                assert!(
                    !blocks.is_empty() && (0..).zip(blocks).all(|(wanted, &block)| wanted == block)
                );
            }
        }
    }
}
