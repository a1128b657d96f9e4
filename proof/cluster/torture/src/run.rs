//! Rounds, one after the other, their histories judged meanwhile, and the summary.
//!
//! *Owns*: clusters and their renewal, the judge's thread, what is kept of a failure, the sum of it
//! all. *May not touch*: what a round does.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;

use crate::cluster::{Cluster, ClusterOptions, Trap};
use crate::faults::{ByKind, Kinds, plan};
use crate::history::{Counts, History};
use crate::judge::{Judge, Verdict};
use crate::round::{self, Reach, Round, Written};
use crate::workload::Load;

/// Histories that may wait for the judge before the rounds wait for it.
const WAITING_MAX: usize = 8;

/// What is to be done.
#[derive(Debug, Clone)]
pub struct RunOptions {
    /// The cluster.
    pub cluster: ClusterOptions,
    /// The faults.
    pub kinds: Kinds,
    /// Rounds.
    pub rounds: u64,
    /// The number of the first one: a round of another run follows from the seed and its number.
    pub first_round: u64,
    /// No round begins after this time.
    pub time: Option<Duration>,
    /// A new cluster after so many rounds, so that old keys do not pile up.
    pub renew: u64,
    /// Clients.
    pub clients: u32,
    /// Keys of a round.
    pub keys: usize,
    /// The mean pause of a client.
    pub pause: Duration,
    /// Where a failure is kept.
    pub keep: PathBuf,
    /// The command that repeats the run, without its first round.
    pub command: String,
}

/// What was seen.
#[derive(Debug, Default)]
pub struct Summary {
    /// Rounds that were carried out.
    pub rounds: u64,
    /// Faults.
    pub by_kind: ByKind,
    /// What clients heard.
    pub counts: Counts,
    /// Histories that are linearizable.
    pub sound: u64,
    /// Histories of which the checker does not know in its time.
    pub undecided: Vec<String>,
    /// Broken promises, in words, with where they are kept.
    pub broken: Vec<String>,
    /// Packets that were lost, late or doubled on purpose, and all that arrived.
    pub packets: [u64; 4],
    /// The longest time from a mending until all keys were read and all nodes had the same state.
    pub mended_in: Duration,
    /// The time.
    pub took: Duration,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counts { done, not_done, unknown } = self.counts;
        writeln!(f, "{} rounds in {:.0} s", self.rounds, self.took.as_secs_f64())?;
        let kinds: Vec<_> =
            self.by_kind.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
        writeln!(f, "faults: {}", if kinds.is_empty() { "none".into() } else { kinds.join(", ") })?;
        let [arrived, lost, late, twice] = self.packets;
        writeln!(f, "packets: {arrived} arrived, {lost} lost, {late} late, {twice} twice")?;
        writeln!(f, "operations: {done} done, {not_done} not done, {unknown} unknown")?;
        let longest_ms = self.mended_in.as_millis();
        writeln!(f, "answers and equal states after each mending: {longest_ms} ms at the longest")?;
        let bad = self.broken.len();
        writeln!(
            f,
            "histories: {} linearizable, {} undecided, {bad} bad",
            self.sound,
            self.undecided.len()
        )?;
        self.undecided.iter().try_for_each(|words| writeln!(f, "UNDECIDED: {words}"))?;
        self.broken.iter().try_for_each(|words| writeln!(f, "BROKEN: {words}"))
    }
}

/// A history's way to the judge and back.
struct Court {
    sender: Option<SyncSender<Written>>,
    verdicts: Receiver<(Written, Result<Verdict, String>, PathBuf)>,
    thread: Option<JoinHandle<()>>,
    open: usize,
}

impl Court {
    fn new(judge: Judge, work: &Path) -> Self {
        let (sender, cases) = sync_channel::<Written>(WAITING_MAX);
        let (tell, verdicts) = std::sync::mpsc::channel();
        let work = work.to_path_buf();
        let thread = std::thread::spawn(move || {
            for written in cases {
                let picture = work.join(format!("round-{}.html", written.number));
                let verdict =
                    written.history.finish().and_then(|history| judge.judge(history, &picture));
                if tell.send((written, verdict, picture)).is_err() {
                    return;
                }
            }
        });
        Self { sender: Some(sender), verdicts, thread: Some(thread), open: 0 }
    }

    fn submit(&mut self, written: Written) {
        self.open += 1;
        // Its thread lives as long as this.
        let _ = self.sender.as_ref().map(|sender| sender.send(written));
    }

    fn end(&mut self) {
        drop(self.sender.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Run<'a> {
    options: &'a RunOptions,
    /// For histories and pictures; removed at the end.
    work: &'a Path,
    summary: Summary,
    court: Court,
}

/// Carries out the rounds until there were enough or a promise is broken.
///
/// # Errors
/// This machine fails us.
pub fn run<R: Reach>(
    options: &RunOptions,
    judge: Judge,
    work: &Path,
    reach: impl Fn(&Cluster, &Runtime) -> R,
) -> Result<Summary, String> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(|error| format!("tokio: {error}"))?;
    let start = Instant::now();
    let mut run =
        Run { options, work, summary: Summary::default(), court: Court::new(judge, work) };
    let end = options.first_round + options.rounds;
    let mut number = options.first_round;
    while number < end && run.summary.broken.is_empty() && !run.is_late(start) {
        let lasts = options.renew.min(end - number);
        number = run.one_cluster(&runtime, &reach, number, number + lasts, start)?;
    }
    run.court.end();
    run.hear()?;
    run.summary.took = start.elapsed();
    Ok(run.summary)
}

/// The seed of a round.
fn seed_of(seed: u64, round: u64) -> u64 {
    fastrand::Rng::with_seed(seed ^ round.wrapping_mul(0xA24B_AED4_963E_E407)).u64(..)
}

impl Run<'_> {
    fn is_late(&self, start: Instant) -> bool {
        self.options.time.is_some_and(|time| start.elapsed() > time)
    }

    /// Rounds of one cluster, from one number to another. Returns the number of the next one.
    fn one_cluster<R: Reach>(
        &mut self,
        runtime: &Runtime,
        reach: &impl Fn(&Cluster, &Runtime) -> R,
        from: u64,
        to: u64,
        start: Instant,
    ) -> Result<u64, String> {
        let mut cluster = match Cluster::make(&self.options.cluster) {
            Ok(cluster) => cluster,
            Err(Trap::Machine(why)) => return Err(why),
            Err(Trap::Broken(why)) => {
                let kept = self.keep(from, &[], &[]);
                self.summary.broken.push(format!("a new cluster does not start: {why}; {kept}"));
                return Ok(from);
            }
        };
        let door = reach(&cluster, runtime);
        let mut before: Option<Written> = None;
        let mut number = from;
        while number < to && self.summary.broken.is_empty() && !self.is_late(start) {
            let seed = seed_of(self.options.cluster.seed, number);
            let plan = plan(&self.options.kinds, self.options.cluster.nodes, seed);
            let keys = (0..self.options.keys).map(|key| format!("r{number}k{key}")).collect();
            let load = Load {
                clients: self.options.clients,
                keys,
                pause: self.options.pause,
                seed: seed ^ 0x6C6F,
            };
            let path = self.work.join(format!("round-{number}.jsonl"));
            let history =
                History::create(&path).map_err(|error| format!("{}: {error}", path.display()))?;
            let round = Round { number, plan, load, history: Arc::new(history) };
            let by_kind = &mut self.summary.by_kind;
            let (written, done) =
                round::run(&mut cluster, &door, runtime, &round, before.as_ref(), by_kind);
            self.summary.rounds += 1;
            self.summary.mended_in = self.summary.mended_in.max(written.mended_in);
            if let Err(trap) = done {
                let why = match trap {
                    Trap::Machine(why) => return Err(format!("round {number}: {why}")),
                    Trap::Broken(why) => why,
                };
                let kept = self.keep(number, &written.story, &cluster_files(&written, None));
                let missing = cluster.keep_directories(&self.place(number));
                let missing = if missing.is_empty() {
                    String::new()
                } else {
                    format!(" ({})", missing.join("; "))
                };
                self.summary.broken.push(format!("round {number}: {why}; {kept}{missing}"));
            }
            before.replace(written).into_iter().for_each(|written| self.court.submit(written));
            self.hear()?;
            number += 1;
        }
        before.into_iter().for_each(|written| self.court.submit(written));
        let carried = cluster.hosts().switch().carried();
        let now = [&carried.arrived, &carried.lost, &carried.late, &carried.twice];
        for (sum, counter) in self.summary.packets.iter_mut().zip(now) {
            *sum += counter.load(std::sync::atomic::Ordering::Relaxed);
        }
        cluster.remove()?;
        Ok(number)
    }

    /// Takes the verdicts that are there.
    fn hear(&mut self) -> Result<(), String> {
        while let Ok((written, verdict, picture)) = self.court.verdicts.try_recv() {
            self.court.open -= 1;
            self.summary.counts.add(written.history.counts());
            let number = written.number;
            match verdict? {
                Verdict::Sound => {
                    self.summary.sound += 1;
                    let history = written.history.finish()?;
                    std::fs::remove_file(history)
                        .map_err(|error| format!("{}: {error}", history.display()))?;
                }
                Verdict::Undecided(why) => {
                    let kept = self.keep(number, &written.story, &cluster_files(&written, None));
                    self.summary.undecided.push(format!("round {number}: {why}; {kept}"));
                }
                Verdict::Broken => {
                    let kept =
                        self.keep(number, &written.story, &cluster_files(&written, Some(&picture)));
                    let why = format!("round {number}: the history is not linearizable; {kept}");
                    self.summary.broken.push(why);
                }
            }
        }
        Ok(())
    }

    fn place(&self, number: u64) -> PathBuf {
        let cluster = &self.options.cluster;
        let name = format!(
            "{}-{}-nodes-seed-{}-round-{number}",
            cluster.kind, cluster.nodes, cluster.seed
        );
        self.options.keep.join(name)
    }

    /// Keeps what a failure has left: the story, the history, its picture, what the nodes have
    /// said. Says where.
    fn keep(&self, number: u64, story: &[String], files: &[PathBuf]) -> String {
        let place = self.place(number);
        let kept = || -> std::io::Result<()> {
            std::fs::create_dir_all(&place)?;
            let first = format!("{} --first-round {number} --rounds 1\n", self.options.command);
            std::fs::write(place.join("story.txt"), format!("{first}{}\n", story.join("\n")))?;
            let logs =
                std::fs::read_dir(&self.options.cluster.logs)?.flatten().map(|entry| entry.path());
            for file in files.iter().cloned().chain(logs.filter(|path| path.is_file())) {
                if let Some(name) = file.file_name() {
                    std::fs::copy(&file, place.join(name))?;
                }
            }
            Ok(())
        };
        match kept() {
            Ok(()) => format!("kept in {}", place.display()),
            Err(error) => format!("it could not be kept in {}: {error}", place.display()),
        }
    }
}

fn cluster_files(written: &Written, picture: Option<&Path>) -> Vec<PathBuf> {
    let history = written.history.finish().ok().map(Path::to_path_buf);
    let picture = picture.filter(|picture| picture.exists()).map(Path::to_path_buf);
    history.into_iter().chain(picture).collect()
}
