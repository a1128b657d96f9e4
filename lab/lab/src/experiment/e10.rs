//! E10: the practice (article 2): what a lone durable writer pays when its segment is full and it
//! continues in the next one.
//!
//! *Owns*: the ways of getting a next segment, with plain files, and our log beside them. *May not
//! touch*: the log's insides.
//!
//! Every way makes each write durable in the same manner, and renames or creates durably (the
//! directory is synced) before it writes into the new file. A helper thread does the rest:
//! preparing files ahead and removing old ones.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use inkstone_host::{LabFile, monotonic_ns};
use inkstone_io::{
    Access, AlignedBuf, Directory, File, NamedChoice, OpenFile, Preparation, SyncKind,
};

use crate::histogram::Recorder;
use crate::log::load::Loaded;
use crate::log::options;
use crate::pass::Limits;
use crate::result::{Figure, Unit, Way, figure};
use crate::rounds::{Frame, Running, Sample, Scene, TakesTurns, Trial, Turn, timed};
use crate::stage::{Session, WayError, incompressible};
use crate::writing::size_name;

use super::reading::can_direct;
use super::scratch::written_file;

/// The load.
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
    let plan = Plan { segment_bytes, changes };
    let room_bytes = (2 * LIVE * plan.segment_bytes).max(256 << 20);
    Trial::new("practice", (NextSegment::ALL.len() + 1, room_bytes, 25.0), move |scene| {
        let is_direct = can_direct(scene.site).is_ok();
        let access = if is_direct { Access::Direct } else { Access::Buffered };
        let seed = scene.pace.seed;
        let plain = |&next: &NextSegment| {
            Running::of(next.name(), "plain files", Plain::new(next, access, plan, seed))
        };
        let mut ways: Vec<Running<'_>> = NextSegment::ALL.iter().map(plain).collect();
        ways.push(Running::new("inkstone", "log", None, ours(scene, plan)));
        let frame = Frame::of(
            "practice",
            format!(
                "A lone writer of durable 4 KiB ({access}, fdatasync) whose segments of {} change",
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
        Background = "prepare ahead, rename",
            "a thread fills the next file with zeros before it is needed";
        Recycle = "recycle by rename", "the oldest file, renamed and overwritten";
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
    access: Access,
    plan: Plan,
    block: AlignedBuf,
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
    fn new(next: NextSegment, access: Access, plan: Plan, seed: u64) -> Self {
        let block = incompressible(BLOCK_BYTES as usize, seed);
        Self { next, access, plan, block, latency: Recorder::new() }
    }

    fn open(&self, session: &Session<'_>, name: &str, is_new: bool) -> Result<LabFile, WayError> {
        let how = if is_new { OpenFile::new_file() } else { OpenFile::existing() };
        Ok(session.directory.open(name, &how.access(self.access))?)
    }

    /// The file of segment `number`, ready to be written.
    fn change(
        &self,
        session: &Session<'_>,
        number: u64,
        jobs: &mpsc::Sender<Job>,
        ready: &mpsc::Receiver<Result<(), WayError>>,
        counted: &mut Counted,
    ) -> Result<LabFile, WayError> {
        let name = segment(number);
        let file = match self.next {
            NextSegment::Create => self.open(session, &name, true)?,
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
            file.write_at(&self.block, within * BLOCK_BYTES)?;
            file.sync(SyncKind::Data)?;
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
            let bytes = self.plan.segment_bytes;
            drop(written_file(session, &segment(number), bytes, self.access, 1)?);
        }
        let (jobs, to_do) = mpsc::channel::<Job>();
        let (done, ready) = mpsc::channel();
        let (access, bytes) = (self.access, self.plan.segment_bytes);
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
        for name in session.directory.plain_files()? {
            if name.starts_with("practice-") {
                session.remove(&name)?;
            }
        }
        let counted = counted?;
        self.latency.merge(&latency);
        let change = crate::stats::median(&counted.change_ns);
        let change = change.map(|median| figure("a change", Unit::Ns, median));
        let mut figures: Vec<Figure> = change.into_iter().chain([tail(&latency)]).collect();
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
        for &next in NextSegment::ALL {
            let mut way = Plain::new(next, Access::Buffered, plan, 1);
            let turn = Turn { session: &session, time: Duration::MAX, seed: 1 };
            let sample = way.turn(&turn).unwrap_or_else(|error| panic!("{next}: {error}"));
            assert_eq!(sample.amount, 24, "{next}");
            assert_eq!(way.latency.count(), 24, "{next}");
            assert!(sample.figures.iter().any(|figure| figure.name == "a change"), "{next}");
            assert_eq!(files.list().expect("names"), Vec::<String>::new(), "{next}");
        }
    }

    #[test]
    fn every_way_runs_beside_our_log() {
        let found = crate::experiment::testing::check(&practice(64 << 10, 2), &["practice"]);
        let ours = found[0].way("inkstone").expect("our log");
        assert!(found[0].ways.len() == 4 && ours.is_measured(), "{ours:?}");
    }
}
