//! A test of the labs: which class of faults notices which mistake that is built into the log, and
//! after how many states.
//!
//! *Owns*: hunting over seeds, and what a hunt found. *May not touch*: how a mistake is built in
//! (`mistake.rs`), what a class is about (`sim/class.rs`).

use std::fmt::{self, Display, Formatter};
use std::sync::Arc;

use inkstone_io::NamedChoice;

use crate::mistake::Mistake;
use crate::sim::class::{FaultClass, Look, Unit};
use crate::sim::lab::attempt;

/// Mistakes about threads, which no class here catches: the explorer does
/// (proof/powerloss/mistakes.md).
#[cfg(inkstone_mistakes)]
pub const EXPLORED: [Mistake; 8] = [
    Mistake::WakesUnderLock,
    Mistake::CutFuturesForgotten,
    Mistake::ChangeBeforeWatermark,
    Mistake::PlaceNotAskedAgain,
    Mistake::ForkMarkNotAsked,
    Mistake::ChildPromises,
    Mistake::WakeUpLost,
    Mistake::PoisonUntold,
];

/// A broken promise, and how long it took to find.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caught {
    /// Disks (for readers: rounds of checks) that were judged before it.
    pub states: u64,
    pub seed: u64,
    pub why: String,
}

/// How much is tried before a class counts as not noticing.
#[derive(Debug, Clone, Copy)]
pub struct Bound {
    pub seeds: u64,
    /// States; the history that passes this number is the last.
    pub states: u64,
}

/// Where five independent hunts of a class begin.
pub const STARTS: [u64; 5] = [1, 10_001, 20_001, 30_001, 40_001];

/// A class catches a mistake if all five hunts see a promise broken within this...
const BOUND: Bound = Bound { seeds: 400, states: 3_000 };

/// ...or, where no class does, within this.
const FAR: Bound = Bound { seeds: 4_000, states: 60_000 };

/// The class of threads has about ten times as many states per seed as the others.
pub const THREADS: Bound = Bound { seeds: 16, states: 20_000 };

/// The hunt begins with classes that differ most from each other...
const FIRST: [FaultClass; 8] = [
    FaultClass::Torn512,
    FaultClass::Recovery,
    FaultClass::Rough,
    FaultClass::Killed,
    FaultClass::Faults,
    FaultClass::Full,
    FaultClass::Readers,
    FaultClass::Lying,
];

/// ...and ends when so many have caught the mistake.
const TOLD: usize = 5;

/// A class that catches a mistake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Catch {
    pub class: FaultClass,
    /// States until the first broken promise, from each of [`STARTS`].
    pub states: [u64; 5],
}

impl Catch {
    /// The median of the five.
    pub fn median(&self) -> u64 {
        let mut states = self.states;
        states.sort_unstable();
        states[2]
    }
}

impl Display for Catch {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.class.is_of_the_seed() {
            true => write!(f, "{} {} ({})", self.class, self.states[0], self.median()),
            false => write!(f, "{}", self.class),
        }
    }
}

/// Classes that catch `mistake`.
pub fn catches(mistake: Mistake) -> Vec<Catch> {
    let others = FaultClass::ALL.iter().filter(|class| !FIRST.contains(class));
    let classes: Vec<_> = FIRST.iter().chain(others).collect();
    let within = |bound| {
        let caught = classes.iter().filter_map(|class| caught_by(**class, mistake, bound));
        caught.take(TOLD).collect::<Vec<_>>()
    };
    match within(BOUND) {
        none if none.is_empty() => within(FAR),
        some => some,
    }
}

fn caught_by(class: FaultClass, mistake: Mistake, bound: Bound) -> Option<Catch> {
    let bound = if class.is_of_the_seed() { bound } else { THREADS };
    let mut states = [0; 5];
    for (states, start) in states.iter_mut().zip(STARTS) {
        *states = hunt(class, Some(mistake), start, bound)?.states;
    }
    Some(Catch { class, states })
}

/// Runs a class over the seeds from `first` on, until it finds a broken promise. Without a mistake
/// it never does.
pub fn hunt(
    class: FaultClass,
    mistake: Option<Mistake>,
    first: u64,
    bound: Bound,
) -> Option<Caught> {
    let mut states = 0;
    for seed in first..first + bound.seeds {
        let unit = Unit { class, seed, look: Look::Glance, mistake, stop: Arc::default() };
        let (looked, result) = attempt(&unit, &unit.history());
        states += looked.states;
        if let Err(why) = result {
            return Some(Caught { states: states.max(1), seed, why });
        }
        if states > bound.states {
            break;
        }
    }
    None
}
