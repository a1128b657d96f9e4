//! Explores interleavings of the log's threads: `.ci/explore`, or `cargo run --release -- --help`
//! in this directory.
//!
//! *Owns*: the command line, how many schedules, on how many threads of the system, and what is
//! said of them. *May not touch*: what a schedule is.

#[cfg(not(inkstone_explore))]
compile_error!(
    "build it in the directory `explore`: its .cargo/config.toml sets --cfg inkstone_explore (or \
     set it in RUSTFLAGS)"
);

mod broken;
mod disk;
mod ear;
#[cfg(inkstone_mistakes)]
mod mistakes;
mod models;
mod plan;
mod raft;
mod reading;
mod run;
mod scheduler;
mod setup;
mod streams;
mod tasks;
mod templates;
mod world;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use shuttle::{Config, FailurePersistence, MaxSteps, Runner};

use broken::{Broken, Kind, note_broken, take_broken};
use plan::{Plan, Subject};
use scheduler::{Seeds, seed};

/// A schedule has some hundreds of steps, few have more than ten thousand: this many are a thread
/// that never comes to an end.
const STEPS_MAX: usize = 200_000;
const STACK_BYTES: usize = 256 << 10;
const HELP: &str = "usage: inkstone-explore [--raft|--streams] [--schedules N] [--from SEED] \
     [--threads N] [--seconds N] [--mistake NAME]
       inkstone-explore [--raft|--streams] --seed SEED [--mistake NAME]
                                                                one schedule, and what happens in it
       inkstone-explore --mistakes [NAME,NAME...]               each is to be found
--raft: a raft log, or several in one log, --streams: a log with streams; none: a log.
The log has mistakes in the copy alone that `.ci/mistaken` makes.";

fn config() -> Config {
    let mut config = Config::new();
    config.stack_size = STACK_BYTES;
    config.failure_persistence = FailurePersistence::None;
    config.max_steps = MaxSteps::FailAfter(STEPS_MAX);
    config.silence_warnings = true;
    config
}

struct Failure {
    seed: u64,
    broken: Broken,
}

struct Task {
    plan: Plan,
    from: u64,
    schedules: u64,
    threads: usize,
    time: Duration,
    one_is_enough: bool,
    shows_progress: bool,
}

struct Outcome {
    schedules: u64,
    failures: Vec<Failure>,
    took: Duration,
}

/// What the threads of the system share that explore.
struct Progress {
    task: Task,
    started: Instant,
    begun: AtomicU64,
    stop: AtomicBool,
    failures: Mutex<Vec<Failure>>,
}

impl Progress {
    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
            || self.begun.load(Ordering::Relaxed) >= self.task.schedules
            || self.started.elapsed() >= self.task.time
    }

    fn next_seed(&self) -> Option<u64> {
        if self.is_over() {
            return None;
        }
        let index = self.begun.fetch_add(1, Ordering::Relaxed);
        if index < self.task.schedules {
            return Some(self.task.from + index);
        }
        self.begun.fetch_sub(1, Ordering::Relaxed);
        None
    }

    fn failures(&self) -> MutexGuard<'_, Vec<Failure>> {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Explores until something fails, or nothing is left to do. All schedules share the memory for
    /// their threads' stacks.
    fn run(self: &Arc<Self>) {
        /// A log that is broken everywhere need not be told of a thousand times.
        const FAILURES_MAX: usize = 20;
        let (theirs, plan) = (Arc::clone(self), self.task.plan);
        let runner = Runner::new(Seeds::new(move || theirs.next_seed()), config());
        let ended = catch_unwind(AssertUnwindSafe(|| {
            runner.run(move || match plan.subject {
                Subject::Log => run::one(seed(), plan),
                Subject::Raft => raft::one(seed(), plan),
                Subject::Streams => streams::one(seed(), plan),
            })
        }));
        let broken = match (ended, take_broken()) {
            (Ok(_), None) => return,
            (_, Some(broken)) => broken,
            (Err(_), None) => {
                Broken { kind: Kind::Panic, what: "a planned panic went too far".into() }
            }
        };
        let mut failures = self.failures();
        failures.push(Failure { seed: seed(), broken });
        if self.task.one_is_enough || failures.len() >= FAILURES_MAX {
            self.stop.store(true, Ordering::Relaxed);
        }
    }

    fn say(&self) {
        let (begun, seconds) =
            (self.begun.load(Ordering::Relaxed), self.started.elapsed().as_secs_f64());
        eprintln!(
            "{begun} of {} schedules, {:.0} a second",
            self.task.schedules,
            begun as f64 / seconds
        );
    }
}

fn explore(task: Task) -> Outcome {
    let (threads, shows_progress) = (task.threads, task.shows_progress);
    let progress = Arc::new(Progress {
        task,
        started: Instant::now(),
        begun: AtomicU64::new(0),
        stop: AtomicBool::new(false),
        failures: Mutex::default(),
    });
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while !progress.is_over() {
                    // A schedule that failed may leave its thread of the system unwinding: another
                    // one goes on.
                    std::thread::scope(|scope| {
                        scope.spawn(|| progress.run());
                    });
                }
            });
        }
        let mut said = Instant::now();
        while shows_progress && !progress.is_over() {
            std::thread::sleep(Duration::from_millis(20));
            if said.elapsed() >= Duration::from_secs(10) {
                said = Instant::now();
                progress.say();
            }
        }
    });
    let mut failures = std::mem::take(&mut *progress.failures());
    failures.sort_by_key(|failure| failure.seed);
    Outcome {
        schedules: progress.begun.load(Ordering::Relaxed),
        failures,
        took: progress.started.elapsed(),
    }
}

/// The first panic is the schedule's failure, whoever catches it. Those that are planned come
/// without this hook.
fn watch_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let text = panic.payload_as_str().unwrap_or("a panic without words").to_owned();
        let place = panic
            .location()
            .map_or_else(String::new, |place| format!(" ({}:{})", place.file(), place.line()));
        let is_hang = text.contains("deadlock!") || text.contains("max_steps");
        note_broken(if is_hang { Kind::Hang } else { Kind::Panic }, format!("{text}{place}"));
    }));
}

fn prepare() {
    let mut once = Some(0);
    Runner::new(Seeds::new(move || once.take()), config()).run(templates::make_templates);
    // After the first run: that one sets a hook of shuttle's own, which prints each panic.
    watch_panics();
}

fn report(outcome: &Outcome) {
    let mut kinds = BTreeMap::new();
    for Failure { seed, broken } in &outcome.failures {
        println!("seed {seed}: {:?}: {}", broken.kind, broken.what);
        println!(
            "    again, and what happens in it: (cd explore && cargo run --release -- --seed \
             {seed})"
        );
        *kinds.entry(broken.kind).or_insert(0) += 1;
    }
    if !kinds.is_empty() {
        println!("{kinds:?}");
    }
    let seconds = outcome.took.as_secs_f64();
    println!(
        "{} schedules explored, {} failed ({seconds:.1} s, {:.0} a second)",
        outcome.schedules,
        outcome.failures.len(),
        outcome.schedules as f64 / seconds
    );
}

fn main() -> ExitCode {
    let mut task = Task {
        plan: Plan::default(),
        from: 1,
        schedules: 100_000,
        threads: std::thread::available_parallelism().map_or(1, usize::from),
        time: Duration::from_secs(24 * 3600),
        one_is_enough: false,
        shows_progress: true,
    };
    #[cfg(inkstone_mistakes)]
    let mut mistakes = None;
    let mut is_timed = false;
    let mut arguments = std::env::args().skip(1).peekable();
    while let Some(argument) = arguments.next() {
        let subject = match argument.as_str() {
            "--raft" => Some(Subject::Raft),
            "--streams" => Some(Subject::Streams),
            _ => None,
        };
        if let Some(subject) = subject {
            task.plan.subject = subject;
            continue;
        }
        #[cfg(inkstone_mistakes)]
        if argument == "--mistakes" {
            mistakes = Some(arguments.next_if(|next| !next.starts_with("--")));
            continue;
        }
        let value = arguments.next();
        let number = value.as_deref().and_then(|value| value.parse::<u64>().ok());
        match (argument.as_str(), number) {
            ("--schedules", Some(number)) => task.schedules = number,
            ("--from", Some(number)) => task.from = number,
            ("--threads", Some(number)) => task.threads = number as usize,
            ("--seconds", Some(number)) => {
                (task.time, is_timed) = (Duration::from_secs(number), true);
            }
            ("--seed", Some(number)) => {
                (task.from, task.schedules, task.threads) = (number, 1, 1);
                task.plan.talks = true;
            }
            #[cfg(inkstone_mistakes)]
            ("--mistake", _) => match value.as_deref().and_then(mistakes::plan_of) {
                Some(plan) => task.plan = Plan { talks: task.plan.talks, ..plan },
                None => {
                    eprintln!("there is no mistake of that name\n{HELP}");
                    return ExitCode::from(2);
                }
            },
            _ => {
                eprintln!("{HELP}");
                return ExitCode::from(2);
            }
        }
    }
    prepare();
    #[cfg(inkstone_mistakes)]
    if let Some(names) = mistakes {
        let time = task.time.min(Duration::from_secs(60));
        return if mistakes::find(names.as_deref(), task.threads, time) {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        };
    }
    let wanted = task.schedules;
    let outcome = explore(task);
    report(&outcome);
    // A time that was asked for may end before the schedules do.
    let is_enough = outcome.schedules == wanted || is_timed && outcome.schedules > 0;
    if outcome.failures.is_empty() && is_enough { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
