//! Rounds, one after the other, their histories judged, and the summary.
//!
//! *Owns*: what a round is, clusters and their renewal, what is kept of a failure. *May not touch*:
//! how faults are carried out, how a history is judged.
//!
//! In a round clients work while a plan goes wrong around them. Then everything is mended, and each
//! key is read, also those of the round before: what was acknowledged then must have outlived this
//! round too. At last all nodes must have the same state.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;

use crate::clients::{Clients, Load};
use crate::cluster::{Cluster, ClusterOptions, Trap};
use crate::faults::{ByKind, Fault, Kinds, Plan, plan};
use crate::history::{Counts, History};
use crate::judge::{Judge, Verdict};

/// Clients go on for this long after all is mended.
const QUIET_AFTER: Duration = Duration::from_millis(150);

#[derive(Debug, Clone)]
pub struct RunOptions {
    pub cluster: ClusterOptions,
    pub kinds: Kinds,
    pub rounds: u64,
    /// The number of the first one: a round of another run follows from the seed and its number.
    pub first_round: u64,
    /// No round begins after this time.
    pub time: Option<Duration>,
    /// A new cluster after so many rounds, so that old keys do not pile up.
    pub renew: u64,
    /// What clients do; the keys and the seed are those of each round.
    pub load: Load,
    pub keys: u64,
    /// Where a failure is kept.
    pub keep: PathBuf,
}

#[derive(Debug, Default)]
pub struct Summary {
    pub rounds: u64,
    pub by_kind: ByKind,
    pub counts: Counts,
    /// Histories that are linearizable.
    pub sound: u64,
    /// Histories of which the checker does not know in its time.
    pub undecided: Vec<String>,
    /// Broken promises, in words, with where they are kept.
    pub broken: Vec<String>,
    /// The longest time from a mending until all keys were read and all nodes had the same state.
    pub mended_in: Duration,
    pub took: Duration,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counts { done, not_done, unknown } = self.counts;
        writeln!(f, "{} rounds in {:.0} s", self.rounds, self.took.as_secs_f64())?;
        let kinds: Vec<_> =
            self.by_kind.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
        writeln!(f, "faults: {}", if kinds.is_empty() { "none".into() } else { kinds.join(", ") })?;
        writeln!(f, "operations: {done} done, {not_done} not done, {unknown} unknown")?;
        let longest_ms = self.mended_in.as_millis();
        writeln!(f, "answers and equal states after each mending: {longest_ms} ms at the longest")?;
        let (sound, undecided, bad) = (self.sound, self.undecided.len(), self.broken.len());
        writeln!(f, "histories: {sound} linearizable, {undecided} undecided, {bad} bad")?;
        self.undecided.iter().try_for_each(|words| writeln!(f, "UNDECIDED: {words}"))?;
        self.broken.iter().try_for_each(|words| writeln!(f, "BROKEN: {words}"))
    }
}

/// A round that is under way, or waits for the judge.
struct Round {
    number: u64,
    plan: Plan,
    load: Load,
    history: Arc<History>,
    story: Vec<String>,
}

struct Run<'a> {
    options: &'a RunOptions,
    judge: &'a Judge,
    /// For histories and pictures; removed at the end.
    work: &'a Path,
    runtime: Runtime,
    start: Instant,
    summary: Summary,
}

/// Carries out the rounds until there were enough or a promise is broken.
pub fn run(options: &RunOptions, judge: &Judge, work: &Path) -> Result<Summary, String> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(|error| format!("tokio: {error}"))?;
    let (start, summary) = (Instant::now(), Summary::default());
    let mut run = Run { options, judge, work, runtime, start, summary };
    let end = options.first_round + options.rounds;
    let mut number = options.first_round;
    while number < end && run.goes_on() {
        number = run.one_cluster(number, end.min(number + options.renew))?;
    }
    run.summary.took = start.elapsed();
    Ok(run.summary)
}

impl Run<'_> {
    fn goes_on(&self) -> bool {
        let is_late = self.options.time.is_some_and(|time| self.start.elapsed() > time);
        self.summary.broken.is_empty() && !is_late
    }

    /// Rounds of one cluster, from one number to another. Returns the number of the next one.
    fn one_cluster(&mut self, from: u64, to: u64) -> Result<u64, String> {
        let mut cluster = match Cluster::make(&self.options.cluster) {
            Ok(cluster) => cluster,
            Err(Trap::Machine(why)) => return Err(why),
            Err(Trap::Broken(why)) => {
                let kept = self.keep(from, &[], &[]);
                self.summary.broken.push(format!("a new cluster does not start: {why}; {kept}"));
                return Ok(from);
            }
        };
        let clients = Clients::new(&cluster.addresses(), &self.runtime);
        let (mut before, mut number): (Option<Round>, _) = (None, from);
        while number < to && self.goes_on() {
            let mut round = self.new_round(number)?;
            let done = self.round(&mut cluster, &clients, &mut round, before.as_ref());
            self.summary.rounds += 1;
            match done {
                Ok(()) => (),
                Err(Trap::Machine(why)) => return Err(format!("round {number}: {why}")),
                Err(Trap::Broken(why)) => {
                    let files = [round.history.finish()?.to_path_buf()];
                    let kept = self.keep(number, &round.story, &files);
                    let missing = cluster.keep_directories(&self.place(number)).join("; ");
                    self.summary.broken.push(format!("round {number}: {why}; {kept} {missing}"));
                }
            }
            if let Some(before) = before.replace(round) {
                self.judge(&before)?;
            }
            number += 1;
        }
        if let Some(last) = before {
            self.judge(&last)?;
        }
        cluster.remove()?;
        Ok(number)
    }

    fn new_round(&self, number: u64) -> Result<Round, String> {
        let options = self.options;
        let seed = options.cluster.seed ^ number.wrapping_mul(0xA24B_AED4_963E_E407);
        let seed = fastrand::Rng::with_seed(seed).u64(..);
        let keys = (0..options.keys).map(|key| format!("r{number}k{key}")).collect();
        Ok(Round {
            number,
            plan: plan(&options.kinds, options.cluster.nodes, seed),
            load: Load { keys, seed: seed ^ 0x6C6F, ..options.load.clone() },
            history: Arc::new(History::create(&self.work.join(format!("round-{number}.jsonl")))?),
            story: Vec::new(),
        })
    }

    fn round(
        &mut self,
        cluster: &mut Cluster,
        clients: &Clients,
        round: &mut Round,
        before: Option<&Round>,
    ) -> Result<(), Trap> {
        let stop = Arc::new(AtomicBool::new(false));
        cluster.begin_story();
        let working = {
            let _inside = self.runtime.enter();
            clients.start(&round.load, &round.history, &stop)
        };
        let mut done = self.carry_out(cluster, clients, &round.plan);
        let mended = Instant::now();
        if done.is_ok() {
            std::thread::sleep(QUIET_AFTER);
        }
        stop.store(true, Ordering::Relaxed);
        self.runtime.block_on(working.join_all());
        let patience = self.options.cluster.patience;
        if done.is_ok() {
            done = self
                .runtime
                .block_on(async {
                    for one in std::iter::once(&*round).chain(before) {
                        let read = clients.read_all(&one.load.keys, &one.history, patience).await;
                        read.map_err(|why| {
                            format!("all is mended, every node listens, and nobody answers: {why}")
                        })?;
                    }
                    clients.wait_until_same(patience).await
                })
                .map_err(Trap::Broken);
        }
        self.summary.mended_in = self.summary.mended_in.max(mended.elapsed());
        round.story = cluster.take_story();
        done
    }

    fn carry_out(
        &mut self,
        cluster: &mut Cluster,
        clients: &Clients,
        plan: &Plan,
    ) -> Result<(), Trap> {
        let start = Instant::now();
        let begins = |(place, fault): (usize, &Fault)| (fault.begins, place, true);
        let ends = |(place, fault): (usize, &Fault)| (fault.ends, place, false);
        let faults = || plan.faults.iter().enumerate();
        let mut steps: Vec<_> = faults().map(begins).chain(faults().map(ends)).collect();
        steps.sort_by_key(|(at, ..)| *at);
        let mut hit = vec![0; plan.faults.len()];
        for (at, place, is_begin) in steps {
            std::thread::sleep(at.saturating_sub(start.elapsed()));
            let fault = &plan.faults[place];
            if is_begin {
                hit[place] = cluster.begin(fault, &|| clients.leader())?;
                *self.summary.by_kind.entry(fault.kind).or_default() += 1;
            } else {
                cluster.end(fault, hit[place])?;
            }
        }
        std::thread::sleep(plan.ends.saturating_sub(start.elapsed()));
        cluster.mend(plan.faults.first().map_or(0, |fault| fault.seed))
    }

    /// Has a history judged to which nothing comes any more.
    fn judge(&mut self, round: &Round) -> Result<(), String> {
        let (number, history) = (round.number, round.history.finish()?);
        let picture = self.work.join(format!("round-{number}.html"));
        self.summary.counts.add(round.history.counts());
        match self.judge.judge(history, &picture)? {
            Verdict::Sound => {
                self.summary.sound += 1;
                std::fs::remove_file(history)
                    .map_err(|error| format!("{}: {error}", history.display()))?;
            }
            Verdict::Undecided(why) => {
                let kept = self.keep(number, &round.story, &[history.to_path_buf()]);
                self.summary.undecided.push(format!("round {number}: {why}; {kept}"));
            }
            Verdict::Broken => {
                let kept = self.keep(number, &round.story, &[history.to_path_buf(), picture]);
                let why = format!("round {number}: the history is not linearizable; {kept}");
                self.summary.broken.push(why);
            }
        }
        Ok(())
    }

    fn place(&self, number: u64) -> PathBuf {
        let ClusterOptions { kind, nodes, seed, .. } = &self.options.cluster;
        self.options.keep.join(format!("{kind}-{nodes}-nodes-seed-{seed}-round-{number}"))
    }

    /// Keeps what a failure has left: the story, the history, its picture, what the nodes have
    /// said. Says where.
    fn keep(&self, number: u64, story: &[String], files: &[PathBuf]) -> String {
        let place = self.place(number);
        let kept = || -> std::io::Result<()> {
            std::fs::create_dir_all(&place)?;
            let command = std::env::args().collect::<Vec<_>>().join(" ");
            let again = format!("again: {command} --first-round {number} --rounds 1");
            std::fs::write(place.join("story.txt"), format!("{again}\n{}\n", story.join("\n")))?;
            let logs = std::fs::read_dir(&self.options.cluster.logs)?.flatten();
            for file in files.iter().cloned().chain(logs.map(|entry| entry.path())) {
                if let Some(name) = file.file_name().filter(|_| file.is_file()) {
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
