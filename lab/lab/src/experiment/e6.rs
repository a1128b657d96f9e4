//! The load that article 5 suggests for a device, with fio on the same file beside it, as a check
//! of the lab; two threads on one descriptor; calls that are refused.
//!
//! *Owns*: fio's `rw=rw` made again, running fio, the other two. *May not touch*: the loop
//! (`flight`), the rounds.
//!
//! `rw=rw`: each job has a position to read and a position to write; both begin at the start of the
//! file and advance block by block. Which comes next is drawn. After as many blocks as the file
//! has, both begin again. As published, each job has 16 requests in flight through io_uring.

use std::fs::File as StdFile;
use std::io::{Seek, SeekFrom, Write};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use inkstone_host::LabFile;
use inkstone_io::{
    Access, AlignedBuf, DioAlignment, Directory, Durability, EngineKind, File, OpenFile, Persist,
};
use serde_json::Value;

use crate::atlas::short_answer;
use crate::crowd::together;
use crate::result::{Table, Unit, Way, figure};
use crate::rounds::{Frame, Running, Sample, Scene, TakesTurns, Trial, Turn, each, usage_figures};
use crate::stage::{Session, WayError};

use super::flight::{Flight, Source, Work, flights, fly, latency_of};
use super::pattern;
use super::scratch::{fill, written_file};

/// What of the load may be smaller.
#[derive(Debug, Clone)]
struct Plan {
    /// Bytes of the file.
    file_bytes: u64,
    /// Jobs, each a thread.
    jobs: usize,
    /// Requests that a job has in flight, if its engine can.
    depth: usize,
    /// The longest turn; fio needs a limit too.
    turn_max: Duration,
}

const BLOCK_BYTES: u64 = 4096;
const FILE: &str = "mixed";
/// The file of fio's report.
const REPORT: &str = "mixed-fio.json";

/// The load over a file of this size, with fio beside it, in turns of at most so many seconds:
/// small turns are long, so that their fixed costs do not distort the comparison.
pub(super) fn mixed(file_bytes: u64, turn_s: u64) -> Trial {
    load(Plan { file_bytes, jobs: 8, depth: 16, turn_max: Duration::from_secs(turn_s) })
}

fn load(plan: Plan) -> Trial {
    Trial::new("mixed", (2, plan.file_bytes, 15.0), move |scene| {
        if scene.site.capabilities.direct == DioAlignment::Refused {
            let file_system = &scene.site.capabilities.mount.file_system;
            return Err(WayError::Invalid(format!(
                "this load needs O_DIRECT, which {file_system} does not have here: take another \
                 directory"
            )));
        }
        let seed = scene.pace.seed;
        drop(written_file(scene.session, FILE, plan.file_bytes, Access::Direct, seed)?);
        let found = vec![beside_fio(scene, &plan)];
        scene.session.clear(FILE)?;
        Ok(found)
    })
}

const OURS: &str = "inkstone";
const FIO: &str = "fio";

fn beside_fio(scene: &mut Scene<'_>, plan: &Plan) -> Table {
    let fio = fio_version();
    let seed = scene.pace.seed;
    let theirs = fio.clone().map_err(WayError::Invalid).map(|_| {
        each(move |turn| {
            refill(turn.session, plan.file_bytes, turn.seed)?;
            let (reads, writes, total_ns) = parse_fio(&run_fio(turn, plan)?)?;
            let share = 100.0 * reads as f64 / (reads + writes) as f64;
            let figures = vec![figure("reads", Unit::Percent, share)];
            Ok(Sample::of(reads + writes, total_ns).with(figures))
        })
    });
    let flights = flights(plan.jobs, EngineKind::Uring, plan.depth, BLOCK_BYTES as usize);
    let ours = flights.map(|flights| Ours { flights, plan: plan.clone(), seed });
    let ways = vec![Running::new(FIO, FIO, None, theirs), Running::new(OURS, OURS, None, ours)];
    let frame = Frame::of(
        "mixed",
        format!(
            "4 KiB, half reads and half durable writes, O_DIRECT + O_SYNC, {} jobs, {} in flight \
             in each, through io_uring",
            plan.jobs, plan.depth
        ),
        Unit::OperationsPerS,
        if fio.is_ok() { FIO } else { OURS },
    );
    let turn = scene.pace.turn(ways.len());
    let mut found = scene.measure(frame, ways);
    found.notes = vec![
        format!("fio: {}", fio_arguments(plan, turn).join(" ")),
        "inkstone checks every byte that it reads, fio checks none; both run their jobs as threads \
         of one process"
            .into(),
    ];
    found.notes.extend(fio.ok().map(|version| format!("beside it: {version}")));
    found
}

/// Our own jobs.
struct Ours {
    flights: Vec<Flight>,
    plan: Plan,
    /// The seed of the bytes.
    seed: u64,
}

fn open(session: &Session<'_>, durability: Durability) -> Result<LabFile, WayError> {
    let how = OpenFile::existing().access(Access::Direct).durability(durability);
    Ok(session.directory.open(FILE, &how)?)
}

/// Rewrites the file, since fio leaves its own bytes. Also done before fio's turns, so that both
/// find the device after the same work.
fn refill(session: &Session<'_>, file_bytes: u64, seed: u64) -> Result<(), WayError> {
    fill(session, &open(session, Durability::None)?, file_bytes, seed)
}

impl TakesTurns for Ours {
    fn turn(&mut self, turn: &Turn<'_>) -> Result<Sample, WayError> {
        refill(turn.session, self.plan.file_bytes, self.seed)?;
        let file = Arc::new(open(turn.session, Durability::OSync)?);
        let turn = Turn { time: turn.time.min(self.plan.turn_max), ..*turn };
        let (blocks, seed) = (self.plan.file_bytes / BLOCK_BYTES, self.seed);
        let flown = fly(&mut self.flights, &turn, &file, |index| {
            let random = fastrand::Rng::with_seed(turn.seed ^ (index as u64 + 1));
            Job { blocks, seed, random, next: [0; 2], done: 0 }
        })?;
        Ok(Sample::of(flown.operations, flown.total_ns).with(usage_figures(
            &flown.usage,
            flown.operations,
            Unit::PerOp,
            Unit::NsPerOp,
        )))
    }

    fn finish(&mut self, way: &mut Way, _: &mut Vec<String>) {
        way.latency = latency_of(&self.flights);
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

    fn done(&mut self, work: &Work, buffer: &[u8]) -> Result<(), WayError> {
        if work.write.is_some() {
            return Ok(());
        }
        pattern::check(buffer, work.offset, self.seed).map_err(WayError::Invalid)
    }
}

/// How often the user's wish to stop is checked while fio runs.
const LOOK: Duration = Duration::from_millis(20);

/// Runs fio to its end, or until the user wants to stop; returns its report.
fn run_fio(turn: &Turn<'_>, plan: &Plan) -> Result<String, WayError> {
    let failed = |what: &str, error: std::io::Error| WayError::Invalid(format!("{what}: {error}"));
    let directory = turn.session.directory.path();
    let mut child = Command::new(FIO)
        .args(fio_arguments(plan, turn.time))
        .arg(format!("--output={REPORT}"))
        .current_dir(directory)
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
                return Err(WayError::Interrupted);
            }
            None => std::thread::sleep(LOOK),
        }
    };
    turn.session.check()?;
    let report = directory.join(REPORT);
    let text = std::fs::read_to_string(&report).unwrap_or_default();
    let _ = std::fs::remove_file(&report);
    if !status.success() {
        let first = text.lines().next().unwrap_or("no message");
        return Err(WayError::Invalid(format!("fio ended with {status}: {first}")));
    }
    Ok(text)
}

fn fio_arguments(plan: &Plan, time: Duration) -> Vec<String> {
    let runtime_ms = time.min(plan.turn_max).as_millis().max(1);
    let words = format!(
        "--name=mixed --rw=rw --rwmixread=50 --bs=4096 --direct=1 --sync=1 --thread \
         --group_reporting --time_based --fallocate=none --allow_file_create=0 \
         --output-format=json --filename={FILE} --size={} --numjobs={} --iodepth={} \
         --ioengine=io_uring --runtime={runtime_ms}ms",
        plan.file_bytes, plan.jobs, plan.depth
    );
    words.split(' ').map(str::to_owned).collect()
}

/// Reads, writes, and their time.
fn parse_fio(text: &str) -> Result<(u64, u64, u64), WayError> {
    let bad = |why: String| WayError::Invalid(format!("fio's report cannot be read: {why}"));
    // fio may print notes before it.
    let json = text.find('{').map(|at| &text[at..]).unwrap_or_default();
    let report: Value = serde_json::from_str(json).map_err(|error| bad(error.to_string()))?;
    // All jobs are one group.
    let job = &report["jobs"][0];
    let error = job["error"].as_i64().ok_or_else(|| bad("it has no jobs".into()))?;
    if error != 0 {
        return Err(WayError::Invalid(format!("fio's jobs failed with error {error}")));
    }
    let of = |side: &str, what: &str| job[side][what].as_u64().unwrap_or(0);
    let (reads, writes) = (of("read", "total_ios"), of("write", "total_ios"));
    let ms = of("read", "runtime").max(of("write", "runtime"));
    if ms == 0 || reads + writes == 0 {
        return Err(bad("it did nothing".into()));
    }
    Ok((reads, writes, ms * 1_000_000))
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

const SHARED: &str = "shared-offset";
const RECORD_BYTES: usize = 64;
const THREADS: usize = 2;
/// Records of the file; each thread writes half of them. So many take longer than one turn of a
/// processor, if there is only one.
const RECORDS: u64 = 65_536;

/// Two threads that write through one descriptor, each its own half of a file, with lseek and write
/// and with pwrite: counted, not timed.
pub(super) fn shared_offset() -> Trial {
    Trial::new("shared-offset", (2, RECORDS * RECORD_BYTES as u64, 2.0), |scene| {
        let way = |name: &str, seeks| {
            Running::of(name, "records", each(move |turn| halves(turn.session, seeks)))
        };
        let ways = vec![way("lseek + write", true), way("pwrite", false)];
        let frame = Frame::of(
            "shared-offset",
            "65,536 records of 64 bytes by two threads through one descriptor, each its own half",
            Unit::RecordsAstray,
            "",
        );
        let found = scene.count(frame, ways);
        scene.session.clear(SHARED)?;
        Ok(vec![found])
    })
}

const REFUSED: &str = "refusals";

/// What the kernel answers to calls that the articles say it refuses: facts, without rounds.
pub(super) fn refusals() -> Trial {
    Trial::new("refusals", (3, 1 << 20, 0.2), |scene| {
        const OFF: u64 = 100;
        let (session, place) = (scene.session, &scene.site.place);
        let file = written_file(session, REFUSED, 1 << 16, Access::Buffered, 1)?;
        drop(file);
        let open = |access| {
            let how = OpenFile::existing().access(access);
            Ok::<_, WayError>(session.directory.open(REFUSED, &how)?)
        };
        let direct = || {
            super::reading::can_direct(scene.site)?;
            let block = AlignedBuf::zeroed(BLOCK_BYTES as usize);
            Ok(open(Access::Direct)?.write_at(&block, OFF))
        };
        let mapped = || {
            let file = open(Access::Mmap)?;
            file.map(1 << 16)?;
            Ok(file.sync_mapped_exactly(OFF, BLOCK_BYTES as usize))
        };
        let row = |name: &str, answer: Result<inkstone_io::Result<()>, WayError>| match answer {
            Err(why) => Way { name: name.into(), missing: Some(why.reason()), ..Way::default() },
            Ok(answer) => Way {
                name: name.into(),
                figures: vec![figure("refused", Unit::Calls, f64::from(u8::from(answer.is_err())))],
                facts: vec![(
                    "answer".into(),
                    answer.map_or_else(|error| short_answer(&error), |()| "ok".into()),
                )],
                ..Way::default()
            },
        };
        let found = match place.direct_align_bytes {
            None => Way { missing: Some("the kernel does not tell it".into()), ..Way::default() },
            Some(bytes) => Way {
                figures: vec![figure("alignment", Unit::Bytes, f64::from(bytes))],
                facts: vec![("answer".into(), format!("multiples of {bytes} B"))],
                ..Way::default()
            },
        };
        let mut ways = vec![
            Way { name: "O_DIRECT, as found".into(), ..found },
            row("O_DIRECT, 100 B off", direct()),
            row("msync, 100 B off", mapped()),
        ];
        ways.retain(|way| scene.wants("refusals", &way.name));
        session.clear(REFUSED)?;
        Ok(vec![Table {
            name: "refusals".into(),
            title: "Calls that are not aligned, and what the kernel answers".into(),
            place: place.clone(),
            unit: Unit::Calls,
            ways,
            ..Table::default()
        }])
    })
}

fn halves(session: &Session<'_>, seeks: bool) -> Result<Sample, WayError> {
    let file = session.new_file(SHARED, &OpenFile::new_file())?;
    file.set_len(RECORDS * RECORD_BYTES as u64)?;
    together(&mut [(); THREADS], |thread, ()| {
        let mut record = [0; RECORD_BYTES];
        let half = RECORDS / THREADS as u64;
        for number in thread as u64 * half..(thread as u64 + 1) * half {
            session.check()?;
            record[..8].copy_from_slice(&(number + 1).to_le_bytes());
            let offset = number * RECORD_BYTES as u64;
            if seeks {
                seek_and_write(&file, &record, offset)?;
            } else {
                file.write_at(&record, offset)?;
            }
        }
        Ok(())
    })?;
    Ok(Sample::counted(misplaced(&file)?))
}

/// Two calls on the descriptor that both threads share. The access `seek` of a way holds a lock
/// over both, as a program must.
fn seek_and_write(file: &LabFile, record: &[u8], offset: u64) -> Result<(), WayError> {
    let mut shared: &StdFile = file.std_file();
    let sought = shared.seek(SeekFrom::Start(offset)).and_then(|_| shared.write_all(record));
    sought.map_err(|error| inkstone_io::Error::new("lseek and write", file.path(), error).into())
}

fn misplaced(file: &LabFile) -> Result<u64, WayError> {
    let mut all = AlignedBuf::zeroed(RECORDS as usize * RECORD_BYTES);
    file.read_at(&mut all, 0)?;
    let is_astray = |(number, record): &(u64, &[u8])| record[..8] != number.to_le_bytes();
    Ok((1..).zip(all.chunks(RECORD_BYTES)).filter(is_astray).count() as u64)
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
                "read": {{"total_ios": {ios}, "runtime": 505}},
                "write": {{"total_ios": {ios}, "runtime": 504}}}}]}}"#
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

    #[test]
    fn the_load_runs_with_fio_or_without() {
        use crate::experiment::testing::{not_run, run};
        let turn_max = Duration::from_secs(1);
        let plan = Plan { file_bytes: 256 << 10, jobs: 2, depth: 4, turn_max };
        let found = match run(&load(plan), Some(Duration::from_secs(2))) {
            Err(error) if error.to_string().contains("O_DIRECT") => {
                return not_run("mixed", &error.to_string());
            }
            found => found.expect("a result"),
        };
        for one in &found {
            let ours = one.way(OURS).expect("ours");
            assert!(ours.is_measured(), "{ours:?}");
            if let Some(reason) = one.way(FIO).and_then(|fio| fio.missing.as_ref()) {
                not_run("mixed beside fio", reason);
            }
        }
    }

    #[test]
    fn two_threads_on_one_descriptor_lose_records_with_lseek_and_none_with_pwrite() {
        let found = crate::experiment::testing::run(&shared_offset(), None).expect("a result");
        let most = |name: &str| {
            let way = found[0].way(name).expect("a way");
            way.rounds.iter().map(|round| round.value(found[0].unit)).fold(0.0, f64::max)
        };
        assert!(most("lseek + write") > 0.0 && most("pwrite") == 0.0, "{found:?}");
    }
}
