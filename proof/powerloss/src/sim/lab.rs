//! Many seeds of many classes on several cores, and the result of the results.
//!
//! *Owns*: which thread runs which seeds, when a run ends, shortening failures, the result.
//! *May not touch*: what a class is about (`class.rs`), the terminal.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use inkstone_io::NamedChoice;
use inkstone_sim::shrink::shrink;

use super::class::{FaultClass, Look, Unit};
use super::tally::Tally;
use crate::result::{Class, RunResult, Violation};
use inkstone_subject::Broken;
use inkstone_subject::log::history::Step;
use inkstone_subject::mistake::Mistake;

/// The time that an unfinished seed counts for when time is shared out.
const BEGUN: Duration = Duration::from_secs(1);
/// How often the caller gets the progress.
const TICK: Duration = Duration::from_millis(200);

/// When a run ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// After this many seeds of every class.
    Seeds(u64),
    /// When this many states were opened; seeds that have begun are finished.
    States(u64),
    /// After this time; seeds that have begun are stopped.
    Time(Duration),
}

#[derive(Debug, Clone)]
pub struct Plan {
    pub seed: u64,
    pub until: Until,
    pub classes: Vec<FaultClass>,
    /// How many threads run seeds.
    pub jobs: usize,
    /// Cuts with up to this many items are checked completely.
    pub all_of: usize,
    pub mistake: Option<Mistake>,
    /// Only these operations of each history, by number: used to repeat a shortened failure.
    pub operations: Option<Vec<usize>>,
    /// The command, for the result.
    pub command: String,
}

/// The progress of a run.
#[derive(Debug, Clone, Copy)]
pub struct Now {
    /// States opened in the seeds that are done.
    pub states: u64,
    /// Seeds of a class that are done.
    pub units: u64,
    /// Since the start.
    pub elapsed: Duration,
}

#[derive(Debug)]
pub struct Report {
    /// For machines and people.
    pub result: RunResult,
    /// The counts, class by class.
    pub looked: Vec<(FaultClass, Tally)>,
    pub is_cut_short: bool,
}

/// What several threads share.
struct Shared<'p> {
    plan: &'p Plan,
    board: Mutex<Board>,
    /// Stops the units that are running.
    stop: Arc<AtomicBool>,
}

struct Board {
    /// Of each class.
    turns: Vec<Turns>,
    states: u64,
    units: u64,
    /// Threads that still take seeds.
    busy: usize,
    failed: Option<(Unit, Broken)>,
}

/// How many turns a class has had, and what they have checked.
#[derive(Debug, Clone, Copy, Default)]
struct Turns {
    seeds: u64,
    running: u32,
    spent: Duration,
    looked: Tally,
}

/// glibc returns freed memory of 128 KiB and more to the kernel at once, until a larger piece was
/// freed: from then on it keeps as much. Each state allocates and frees some buffers, and without
/// this most of the time would go into page faults.
fn keep_freed_memory() {
    drop(std::hint::black_box(vec![1_u8; 24 << 20]));
}

/// Runs a plan. `stop` ends it early; `tell` gets the progress, some times a second.
pub fn run(plan: &Plan, stop: &AtomicBool, tell: &mut dyn FnMut(Now)) -> Report {
    keep_freed_memory();
    let started = Instant::now();
    let turns = vec![Turns::default(); plan.classes.len()];
    let board = Board { turns, states: 0, units: 0, busy: plan.jobs, failed: None };
    let shared = Shared { plan, board: Mutex::new(board), stop: Arc::default() };
    std::thread::scope(|scope| {
        for _ in 0..plan.jobs {
            scope.spawn(|| shared.work());
        }
        loop {
            let elapsed = started.elapsed();
            if stop.load(Ordering::Relaxed)
                || matches!(plan.until, Until::Time(time) if elapsed >= time)
            {
                shared.stop.store(true, Ordering::Relaxed);
            }
            let Board { states, units, busy, .. } = *shared.board();
            if busy == 0 {
                return;
            }
            tell(Now { states, units, elapsed });
            std::thread::park_timeout(TICK.min(Duration::from_millis(5 + units)));
        }
    });
    let Shared { board, .. } = shared;
    let Board { turns, failed, .. } = board.into_inner().unwrap_or_else(PoisonError::into_inner);
    let violations = failed.into_iter().map(|(unit, why)| plan.violation(&unit, why, stop));
    let violations = violations.collect();
    plan.report(&turns, violations, stop.load(Ordering::Relaxed), started.elapsed())
}

impl Shared<'_> {
    fn board(&self) -> MutexGuard<'_, Board> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The class whose turn it is, and its seed. If seeds are counted, each class gets the same
    /// number; otherwise each gets the same time, since a seed of one class may take a thousand
    /// times as long as one of another.
    fn take_turn(&self) -> Option<(usize, u64)> {
        let mut board = self.board();
        let is_done = match self.plan.until {
            Until::Seeds(seeds) => board.turns.iter().all(|turns| turns.seeds >= seeds),
            Until::States(states) => board.states >= states,
            Until::Time(_) => false,
        };
        if is_done || self.stop.load(Ordering::Relaxed) {
            return None;
        }
        let by_seeds = matches!(self.plan.until, Until::Seeds(_));
        let (class, turn) = board.turns.iter_mut().enumerate().min_by_key(|(_, turns)| {
            let time = if by_seeds { Duration::ZERO } else { turns.spent + BEGUN * turns.running };
            (time, turns.seeds)
        })?;
        let seed = self.plan.seed.wrapping_add(turn.seeds);
        turn.seeds += 1;
        turn.running += 1;
        Some((class, seed))
    }

    /// Takes one seed of one class after the other.
    fn work(&self) {
        while let Some((class, seed)) = self.take_turn() {
            let unit = self.plan.unit(self.plan.classes[class], seed, &self.stop);
            let started = Instant::now();
            let (looked, result) = attempt(&unit, &self.plan.operations_of(&unit));
            let took = started.elapsed();
            let mut board = self.board();
            board.states += looked.states;
            board.units += 1;
            let turns = &mut board.turns[class];
            turns.running -= 1;
            turns.spent += took;
            turns.looked.add(&looked);
            if let Err(why) = result {
                board.failed.get_or_insert((unit, why));
                self.stop.store(true, Ordering::Relaxed);
            }
        }
        self.board().busy -= 1;
    }
}

/// Runs a unit; a panic is a failure like any other.
pub fn attempt(unit: &Unit, steps: &[Step]) -> (Tally, Result<(), Broken>) {
    let ran = catch_unwind(AssertUnwindSafe(|| unit.run(steps)));
    ran.unwrap_or_else(|panic| {
        let words = panic.downcast_ref::<String>().map(String::as_str);
        let words = words.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
        (Tally::default(), Err(Broken::new("panic", format!("a panic: {words}"))))
    })
}

fn chosen(all: &[Step], numbers: &[usize]) -> Vec<Step> {
    numbers.iter().filter_map(|&number| all.get(number).cloned()).collect()
}

impl Plan {
    fn unit(&self, class: FaultClass, seed: u64, stop: &Arc<AtomicBool>) -> Unit {
        let look = Look::Whole(self.all_of);
        Unit { class, seed, look, mistake: self.mistake, stop: Arc::clone(stop) }
    }

    fn operations_of(&self, unit: &Unit) -> Vec<Step> {
        let all = unit.history();
        self.operations.as_ref().map_or_else(|| all.clone(), |numbers| chosen(&all, numbers))
    }

    /// Shortens a failure, and describes it with the command that repeats it.
    fn violation(&self, unit: &Unit, why: Broken, stop: &AtomicBool) -> Violation {
        let unit = Unit { stop: Arc::default(), ..unit.clone() };
        let all = unit.history();
        let mut numbers = self.operations.clone().unwrap_or_else(|| (0..all.len()).collect());
        let mut reason = why;
        // What threads do depends on the scheduler too: such a failure cannot be shortened.
        if unit.class.is_of_the_seed() {
            numbers = shrink(&numbers, |fewer| {
                if stop.load(Ordering::Relaxed) {
                    return false;
                }
                match attempt(&unit, &chosen(&all, fewer)).1 {
                    Ok(()) => false,
                    Err(other) => {
                        reason = other;
                        true
                    }
                }
            });
        }
        let left = chosen(&all, &numbers);
        let variant = unit.variant();
        let what = format!(
            "{}, seed {:#x}: {reason}\n{} of {} operations suffice: {left:?}\n{:?}\n{:?}",
            unit.class,
            unit.seed,
            left.len(),
            all.len(),
            variant.disk,
            variant.log.options
        );
        Violation { what, command: self.command_for(&unit, &numbers) }
    }

    fn command_for(&self, unit: &Unit, numbers: &[usize]) -> String {
        let mut command = format!(
            "inkstone powerloss sim --seed {:#x} --seeds 1 --class {}",
            unit.seed, unit.class
        );
        if self.all_of != ALL_OF {
            command += &format!(" --all-of {}", self.all_of);
        }
        if let Some(mistake) = self.mistake {
            command += &format!(" --mistake {mistake}");
        }
        if unit.class.is_of_the_seed() {
            let list: Vec<_> = numbers.iter().map(ToString::to_string).collect();
            command += " --operations ";
            command += &if list.is_empty() { "none".to_owned() } else { list.join(",") };
        }
        command
    }

    fn report(
        &self,
        turns: &[Turns],
        violations: Vec<Violation>,
        is_cut_short: bool,
        took: Duration,
    ) -> Report {
        let of_classes = || self.classes.iter().copied().zip(turns);
        let mut not_run = Vec::new();
        if is_cut_short {
            not_run.push("it was stopped early".to_owned());
        }
        let idle = of_classes().filter(|(_, turns)| turns.looked.states == 0);
        let idle: Vec<&str> = idle.map(|(class, _)| class.name()).collect();
        if !idle.is_empty() {
            not_run.push(format!("{}: there was no time for a state", idle.join(", ")));
        }
        let mistake = self
            .mistake
            .map_or_else(String::new, |mistake| format!(", with the mistake {mistake}"));
        let subject = format!("opened and read after the power was cut at any instant{mistake}");
        let command = self.command.clone();
        let result = RunResult {
            seed: self.seed,
            seeds: turns.iter().map(|turns| turns.seeds).max().unwrap_or(0),
            classes: of_classes().map(|(class, turns)| class_of(class, turns)).collect(),
            seconds: took.as_secs_f64(),
            violations,
            not_run,
            ..RunResult::begin("sim", "simulated disks".into(), subject, command)
        };
        let looked = of_classes().map(|(class, turns)| (class, turns.looked)).collect();
        Report { result, looked, is_cut_short }
    }
}

/// Cuts with up to this many items are checked completely: 65 536 states.
pub const ALL_OF: usize = 16;

fn class_of(class: FaultClass, turns: &Turns) -> Class {
    Class { name: class.name().to_owned(), states: turns.looked.states }
}
