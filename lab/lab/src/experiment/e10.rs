//! E10: the practice (article 2): what a lone durable writer pays when its segment is full and it
//! continues in the next one.
//!
//! *Owns*: the ways of getting a next segment, with plain files, and our log beside them. *May not
//! touch*: the log's insides.
//!
//! Every way makes each write durable in the same manner, and renames or creates durably (the
//! directory is synced) before it writes into the new file. A helper thread does the rest:
//! preparing files ahead and removing old ones.

use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use inkstone_host::{LabEngine, LabFile, monotonic_ns};
use inkstone_io::{
    Access, AlignedBuf, Directory, Engine, EngineKind, File, NamedChoice, OpenFile, Operation,
    Preparation, Request,
};

use crate::histogram::Recorder;
use crate::log::load::Loaded;
use crate::log::options;
use crate::pass::Limits;
use crate::result::{Figure, Unit, Way, figure};
use crate::rounds::{Frame, Running, Sample, Scene, TakesTurns, Trial, Turn, timed};
use crate::stage::{Session, WayError, incompressible};
use crate::writing::size_name;

use super::scratch::DurableWay;

/// What of the load may be smaller.
#[derive(Debug, Clone, Copy)]
struct Plan {
    /// Bytes of a segment.
    segment_bytes: u64,
    /// Segment changes in a turn, if there is time for them.
    changes: u64,
}

const BLOCK_BYTES: u64 = 4096;
/// Segments that a way has at the same time: the active one, the next, and those before.
const LIVE: u64 = 4;
/// A record of our log that fills a block together with the headers of its frame and its group.
const RECORD_BYTES: u64 = 4000;
const LOG: &str = "practice-log";
/// The longest time for ageing the log, on a slow disk.
const AGE_MAX: Duration = Duration::from_secs(3);

/// So many changes between segments of this size. With 1 MiB a segment has 256 writes, so the
/// 99.9th percentile is a change. Published are 16 changes of 64 MiB: 1 GiB.
pub(super) fn practice(segment_bytes: u64, changes: u64) -> Trial {
    load(Plan { segment_bytes, changes })
}

fn load(plan: Plan) -> Trial {
    let room_bytes = (2 * LIVE * plan.segment_bytes).max(256 << 20);
    Trial::new("practice", (NextSegment::ALL.len() + 1, room_bytes, 25.0), move |scene| {
        let way = DurableWay::of(scene.site);
        let seed = scene.pace.seed;
        let plain = |&next: &NextSegment| {
            Running::new(next.name(), "plain files", None, Plain::new(next, way, plan, seed))
        };
        let mut ways: Vec<Running<'_>> = NextSegment::ALL.iter().map(plain).collect();
        ways.push(Running::new("inkstone", "log", None, ours(scene, plan)));
        let frame = Frame::of(
            "practice",
            format!(
                "A lone writer of durable 4 KiB ({}) whose segments of {} change",
                way.words,
                size_name(plan.segment_bytes)
            ),
            Unit::OperationsPerS,
            NextSegment::Create.name(),
        );
        let mut found = scene.measure(frame, ways);
        found.notes = vec![
            "a change: the time from the last write of one segment until the next segment can take \
             a write; it is part of the latency of the write that waits for it"
                .into(),
            format!(
                "inkstone: the log with records of {RECORD_BYTES} B in segments of the same size; \
                 its changes are not timed separately"
            ),
        ];
        Ok(vec![found])
    })
}

inkstone_io::named_choice! {
    /// Where the next segment comes from.
    NextSegment, "way" {
        Create = "create on demand", "a new file, which grows with each write";
        Fallocate = "create + fallocate", "a new file, its blocks reserved when it is needed";
        Zeros = "create + zeros", "a new file, filled with zeros when it is needed";
        Background = "prepare ahead, rename",
            "a thread fills the next file with zeros before it is needed";
        Recycle = "recycle by rename", "the oldest file, renamed and overwritten";
        None = "no change", "one file, overwritten again and again";
    }
}

/// A job of the helper thread.
enum Job {
    /// Fill a new file of this name with zeros, and report when it is done.
    Prepare(String),
    Remove(String),
}

/// A writer on plain files.
struct Plain {
    next: NextSegment,
    way: DurableWay,
    plan: Plan,
    engine: LabEngine,
    buffer: Option<AlignedBuf>,
    latency: Recorder,
}

/// The counts of a turn.
#[derive(Default)]
struct Counted {
    writes: u64,
    change_ns: Vec<f64>,
    waited: u64,
    total_ns: u64,
}

impl Plain {
    fn new(next: NextSegment, way: DurableWay, plan: Plan, seed: u64) -> Result<Self, WayError> {
        let engine = LabEngine::open(EngineKind::Caller, 1)?;
        let buffer = Some(incompressible(BLOCK_BYTES as usize, seed));
        Ok(Self { next, way, plan, engine, buffer, latency: Recorder::new() })
    }

    /// Creates a written file with the size of a segment.
    fn written(&self, session: &Session<'_>, name: &str) -> Result<LabFile, WayError> {
        super::scratch::written_file(session, name, self.plan.segment_bytes, self.way.access, 1)
    }

    fn open(
        &self,
        session: &Session<'_>,
        name: &str,
        is_new: bool,
    ) -> Result<Arc<LabFile>, WayError> {
        let how = if is_new { OpenFile::new_file() } else { OpenFile::existing() };
        Ok(Arc::new(session.directory.open(name, &how.access(self.way.access))?))
    }

    /// The file of segment `number`, ready to be written.
    fn change(
        &self,
        session: &Session<'_>,
        number: u64,
        jobs: &mpsc::Sender<Job>,
        ready: &mpsc::Receiver<Result<(), WayError>>,
        counted: &mut Counted,
    ) -> Result<Arc<LabFile>, WayError> {
        let name = segment(number);
        let file = match self.next {
            NextSegment::None => return self.open(session, &segment(0), false),
            NextSegment::Create => self.open(session, &name, true)?,
            NextSegment::Fallocate | NextSegment::Zeros => {
                let file = self.open(session, &name, true)?;
                let how = if self.next == NextSegment::Zeros {
                    Preparation::Zeros
                } else {
                    Preparation::Fallocate
                };
                file.prepare(how, self.plan.segment_bytes)?;
                file
            }
            NextSegment::Background => {
                let answer = ready.try_recv().or_else(|_| {
                    counted.waited += 1;
                    ready.recv()
                });
                answer.map_err(|_| WayError::Invalid("the helper thread has ended".into()))??;
                session.directory.rename(PREPARED, &name)?;
                self.open(session, &name, false)?
            }
            NextSegment::Recycle => {
                session.directory.rename(&segment(number - LIVE), &name)?;
                self.open(session, &name, false)?
            }
        };
        session.directory.sync()?;
        let helper_gone = |_| WayError::Invalid("the helper thread has ended".into());
        if self.next == NextSegment::Background {
            jobs.send(Job::Prepare(PREPARED.into())).map_err(helper_gone)?;
        }
        if self.next != NextSegment::Recycle {
            jobs.send(Job::Remove(segment(number - LIVE))).map_err(helper_gone)?;
        }
        Ok(file)
    }

    fn write(&mut self, file: &Arc<LabFile>, offset: u64) -> Result<(), WayError> {
        let Some(buffer) = self.buffer.take() else {
            return Err(WayError::Invalid("a buffer did not come back from the engine".into()));
        };
        let len = buffer.len();
        let operation = Operation::Write { buffer, len, offset, persist: self.way.persist() };
        let completion =
            self.engine.run(Request { token: 0, file: Arc::clone(file), operation })?;
        self.buffer = completion.buffer;
        completion.result?;
        Ok(())
    }

    fn writes(
        &mut self,
        turn: &Turn<'_>,
        jobs: &mpsc::Sender<Job>,
        ready: &mpsc::Receiver<Result<(), WayError>>,
        latency: &mut Recorder,
    ) -> Result<Counted, WayError> {
        let per_segment = self.plan.segment_bytes / BLOCK_BYTES;
        let limit = per_segment * self.plan.changes;
        let mut counted = Counted::default();
        let mut file = self.open(turn.session, &segment(LIVE - 1), false)?;
        let begin_ns = monotonic_ns();
        let end_ns = turn.end_ns(begin_ns);
        let mut now_ns = begin_ns;
        while counted.writes < limit && now_ns < end_ns {
            turn.session.check()?;
            let start_ns = now_ns;
            let within = counted.writes % per_segment;
            if within == 0 {
                let number = LIVE + counted.writes / per_segment;
                file = self.change(turn.session, number, jobs, ready, &mut counted)?;
                counted.change_ns.push((monotonic_ns() - start_ns) as f64);
            }
            self.write(&file, within * BLOCK_BYTES)?;
            now_ns = monotonic_ns();
            latency.record(now_ns - start_ns);
            counted.writes += 1;
        }
        counted.total_ns = now_ns - begin_ns;
        Ok(counted)
    }
}

const PREPARED: &str = "practice-next";

fn segment(number: u64) -> String {
    format!("practice-{number}")
}

impl TakesTurns for Plain {
    fn turn(&mut self, turn: &Turn<'_>) -> Result<Sample, WayError> {
        let session = turn.session;
        // As in a service that has run for a while: all its segments exist and are written.
        for number in 0..LIVE {
            drop(self.written(session, &segment(number))?);
        }
        let (jobs, to_do) = mpsc::channel::<Job>();
        let (done, ready) = mpsc::channel();
        let (access, bytes) = (self.way.access, self.plan.segment_bytes);
        if self.next == NextSegment::Background {
            // Before the clock starts, the first one is ready, as every later one should be.
            prepare(session, PREPARED, access, bytes)?;
            let _ = done.send(Ok(()));
        }
        let mut latency = Recorder::new();
        let counted = thread::scope(|scope| {
            scope.spawn(move || help(session, &to_do, &done, access, bytes));
            let counted = self.writes(turn, &jobs, &ready, &mut latency);
            // The helper ends when the channel of jobs is closed.
            drop(jobs);
            counted
        });
        for name in session.directory.list()? {
            if name.starts_with("practice-") {
                session.remove(&name)?;
            }
        }
        let counted = counted?;
        self.latency.merge(&latency);
        let mut figures = Vec::new();
        if let Some(median) = crate::stats::median(&counted.change_ns)
            && self.next != NextSegment::None
        {
            figures.push(figure("a change", Unit::Ns, median));
        }
        figures.push(tail(&latency));
        if self.next == NextSegment::Background {
            let per = counted.waited as f64 / counted.change_ns.len().max(1) as f64;
            figures.push(figure("not ready in time", Unit::Percent, 100.0 * per));
        }
        Ok(Sample::of(counted.writes, counted.total_ns).with(figures))
    }

    fn finish(&mut self, way: &mut Way, _: &mut Vec<String>) {
        way.latency = Some(self.latency.finish());
    }
}

/// The tail of one round; the way's histogram has all rounds together.
fn tail(latency: &Recorder) -> Figure {
    figure("p99.9 of a round", Unit::Ns, latency.finish().p999_ns as f64)
}

/// The helper thread; it runs until the channel of jobs is closed.
fn help(
    session: &Session<'_>,
    to_do: &mpsc::Receiver<Job>,
    done: &mpsc::Sender<Result<(), WayError>>,
    access: Access,
    bytes: u64,
) {
    for job in to_do {
        match job {
            Job::Prepare(name) => {
                // A turn that has ended no longer receives.
                let _ = done.send(prepare(session, &name, access, bytes));
            }
            // The end of the turn removes what could not be removed here.
            Job::Remove(name) => drop(session.directory.remove(&name)),
        }
    }
}

/// Creates a file filled with zeros and syncs it. The later rename makes its name durable.
fn prepare(session: &Session<'_>, name: &str, access: Access, bytes: u64) -> Result<(), WayError> {
    let file = session.directory.open(name, &OpenFile::new_file().access(access))?;
    Ok(file.prepare(Preparation::Zeros, bytes)?)
}

/// A writer on our log.
fn ours<'a>(scene: &Scene<'a>, plan: Plan) -> Result<impl TakesTurns + 'a, WayError> {
    let options = options(plan.segment_bytes, RECORD_BYTES);
    let path = scene.site.directory.path().join(LOG);
    let keep_bytes = LIVE / 2 * plan.segment_bytes;
    let mut log = Loaded::open(path, options, 1, RECORD_BYTES, keep_bytes, scene.pace.seed)?;
    // A new log begins with smaller segments, and recycles one only when one is obsolete.
    let aged = (LIVE + 1) * plan.segment_bytes / BLOCK_BYTES;
    log.run(scene.session.stop, Limits { commits: aged, time: AGE_MAX })?;
    let commits = plan.changes * plan.segment_bytes / BLOCK_BYTES;
    Ok(timed(move |turn, latency| {
        let ran = log.run(turn.session.stop, Limits { commits, time: turn.time })?;
        latency.merge(&ran.latency);
        let mut figures = vec![tail(&ran.latency)];
        if ran.segments > 0 {
            let late = ran.pool_empty as f64 / ran.segments as f64;
            figures.push(figure("not ready in time", Unit::Percent, 100.0 * late));
        }
        Ok(Sample::of(ran.slice.commits, ran.slice.total_ns).with(figures))
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    use inkstone_host::LabDirectory;

    #[test]
    fn each_way_changes_as_often_as_it_should_and_leaves_nothing() {
        let directory = tempfile::tempdir().expect("a directory");
        let files = LabDirectory::at(directory.path()).expect("a directory");
        let stop = AtomicBool::new(false);
        let session = Session { directory: &files, stop: &stop, device: None };
        let plan = Plan { segment_bytes: 16 << 10, changes: 6 };
        let way = DurableWay { access: Access::Buffered, words: "buffered" };
        for &next in NextSegment::ALL {
            let mut way = Plain::new(next, way, plan, 1).expect("a way");
            let turn = Turn { session: &session, time: Duration::MAX, seed: 1 };
            let sample = way.turn(&turn).unwrap_or_else(|error| panic!("{next}: {error}"));
            assert_eq!(sample.amount, 24, "{next}");
            assert_eq!(way.latency.count(), 24, "{next}");
            let timed = sample.figures.iter().any(|figure| figure.name == "a change");
            assert_eq!(timed, next != NextSegment::None, "{next}");
            assert_eq!(files.list().expect("names"), Vec::<String>::new(), "{next}");
        }
    }

    #[test]
    fn every_way_runs_beside_our_log() {
        let plan = Plan { segment_bytes: 64 << 10, changes: 2 };
        let found = crate::experiment::testing::check(&load(plan), &["practice"]);
        let ours = found[0].way("inkstone").expect("our log");
        assert!(found[0].ways.len() == 7 && ours.is_measured(), "{ours:?}");
    }
}
