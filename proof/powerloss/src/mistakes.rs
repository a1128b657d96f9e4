//! A test of the labs: which of them notices which mistake that is built into the log, and after
//! how many states.
//!
//! *Owns*: the labs by name, how each is run over seeds with a mistake built in, the table of what
//! they found. *May not touch*: how a mistake is built in (`mistake.rs`), how a lab judges.

use std::fmt::{self, Display, Formatter};
use std::panic::{AssertUnwindSafe, catch_unwind};

use inkstone_io::NamedChoice;
use inkstone_sim::{AfterEffect, Effect, Fault, FaultRates, OperationKind, SimDisk, errno};

use crate::history::{Op, history, rough};
use crate::mistake::Mistake;
use crate::sim::class::LITTLE;
use crate::sim::explore::{Effort, Explorer, open};
use crate::sim::fault::{FaultyRun, Trouble};
use crate::sim::killed::Killed;
use crate::sim::lies;
use crate::sim::readers::Readers;
use crate::sim::run::Run;
use crate::sim::threads;
use crate::sim::variant::{SEGMENT_BYTES, Variant, variant};

/// Mistakes about threads, which the labs here cannot catch: the explorer does
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

inkstone_io::named_choice! {
    /// A lab that knows nothing of the built-in mistakes.
    Lab, "lab" {
        Explore = "explore", "histories of every operation, crashed at every instant";
        Recovery = "recovery", "crashed again, while the log is opened and afterwards";
        Rough = "rough", "histories that continue after power cuts, with records that fit where others were";
        Killed = "killed", "a process killed at any call, then a power cut";
        Faults = "faults", "errors at any operation";
        Full = "full", "a full disk, or a used-up budget";
        Lies = "lies", "a write that is lost or lands elsewhere";
        Rot = "rot", "bits that change at rest";
        Readers = "readers", "readers and an archiver beside the writer, and a second writer";
        Threads = "threads", "threads that append while the power is cut; depends on the scheduler";
    }
}

/// A broken promise, and how long it took to find.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caught {
    /// Disks (for readers: rounds of checks) that were judged before it.
    pub states: u64,
    pub seed: u64,
    pub why: String,
}

/// How much is tried before a lab counts as not noticing.
#[derive(Debug, Clone, Copy)]
pub struct Bound {
    pub seeds: u64,
    /// States; the history that passes this number is the last.
    pub states: u64,
}

/// Where five independent hunts of a lab begin.
pub const STARTS: [u64; 5] = [1, 10_001, 20_001, 30_001, 40_001];

/// A lab catches a mistake if all five hunts see a promise broken within this...
const BOUND: Bound = Bound { seeds: 400, states: 3_000 };

/// ...or, where no lab does, within this.
const FAR: Bound = Bound { seeds: 4_000, states: 60_000 };

/// The threads lab has about ten times as many states per seed as the others.
pub const THREADS: Bound = Bound { seeds: 16, states: 20_000 };

/// A lab that catches a mistake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Catch {
    pub lab: Lab,
    /// States until the first broken promise, from each of [`STARTS`].
    pub states: [u64; 5],
}

impl Lab {
    /// Whether everything follows from the seed. With threads, only the fact that a mistake is
    /// caught does not vary.
    pub fn is_of_the_seed(self) -> bool {
        self != Self::Threads
    }
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
        match self.lab.is_of_the_seed() {
            true => write!(f, "{} {} ({})", self.lab, self.states[0], self.median()),
            false => write!(f, "{}", self.lab),
        }
    }
}

/// The labs that catch `mistake`.
pub fn catches(mistake: Mistake) -> Vec<Catch> {
    let within = |bound| {
        Lab::ALL.iter().filter_map(|&lab| caught_by(lab, mistake, bound)).collect::<Vec<_>>()
    };
    match within(BOUND) {
        none if none.is_empty() => within(FAR),
        some => some,
    }
}

fn caught_by(lab: Lab, mistake: Mistake, bound: Bound) -> Option<Catch> {
    let bound = if lab.is_of_the_seed() { bound } else { THREADS };
    let mut states = [0; 5];
    for (states, start) in states.iter_mut().zip(STARTS) {
        *states = hunt(lab, Some(mistake), start, bound)?.states;
    }
    Some(Catch { lab, states })
}

/// Runs a lab over the seeds from `first` on, until it finds a broken promise. Without a mistake it
/// never does.
pub fn hunt(lab: Lab, mistake: Option<Mistake>, first: u64, bound: Bound) -> Option<Caught> {
    let mut states = 0;
    for seed in first..first + bound.seeds {
        let result = catch_unwind(AssertUnwindSafe(|| one(lab, mistake, seed, &mut states)));
        let result = result.unwrap_or_else(|_| Err("it panics".into()));
        if let Err(why) = result {
            return Some(Caught { states: states.max(1), seed, why });
        }
        if states > bound.states {
            break;
        }
    }
    None
}

/// Runs a lab on one seed, and adds to `states`.
fn one(lab: Lab, mistake: Option<Mistake>, seed: u64, states: &mut u64) -> Result<(), String> {
    let variant = variant(seed).making(mistake);
    let effort = |samples, deep| Effort { samples, all_of: samples as usize, deep };
    match lab {
        Lab::Explore => run(variant, seed, effort(2, 0), &history(seed, 16), states),
        Lab::Recovery => run(variant, seed, effort(1, 2), &history(seed, 16), states),
        Lab::Rough => run(variant, seed, effort(1, 0), &rough(seed, 16), states),
        Lab::Killed => {
            let mut killed = Killed::new(Explorer::new(variant, effort(2, 0), seed));
            let result = killed.all(&history(seed, 16));
            *states += killed.explorer.states + 1;
            result
        }
        Lab::Faults => faults(variant, seed, states),
        Lab::Full => full(seed, mistake, states),
        Lab::Lies => lie(&variant, seed, states),
        Lab::Rot => {
            *states += 1;
            lies::rots(seed, &variant, &history(seed, 14), 10, states)
        }
        Lab::Readers => {
            let mut readers = Readers::begin(seed, variant)?;
            let result = readers.all(&history(seed, 24));
            *states += readers.looks + 1;
            result
        }
        Lab::Threads => threads::run(seed, &variant, 2).map(|more| *states += more),
    }
}

fn run(
    variant: Variant,
    seed: u64,
    effort: Effort,
    operations: &[Op],
    states: &mut u64,
) -> Result<(), String> {
    let mut run = Run::begin(Explorer::new(variant, effort, seed))?;
    let result = run.steps(operations);
    *states += run.explorer.states;
    result
}

fn faulty(
    disk: SimDisk,
    variant: Variant,
    seed: u64,
    trouble: Trouble,
    operations: &[Op],
    states: &mut u64,
) -> Result<FaultyRun, String> {
    let mut run = FaultyRun::begin(disk, Explorer::new(variant, LITTLE, seed), trouble)?;
    let result = run.all(operations);
    *states += run.inner.explorer.states;
    result.map(|()| run)
}

/// A history in which a close has unsynced records to lose.
fn with_something_let_go(seed: u64) -> Vec<Op> {
    let operations = history(seed, 24).into_iter().flat_map(|operation| match operation {
        Op::Reopen | Op::Drop => vec![Op::LetGo(5000), Op::Reopen],
        other => vec![other],
    });
    operations.collect()
}

/// Faults by rate; or by plan, where a failed operation is retried at once, or not.
fn faults(mut variant: Variant, seed: u64, states: &mut u64) -> Result<(), String> {
    let mut rng = fastrand::Rng::with_seed(seed ^ 0x6661_756C_7473_2121);
    let operations = with_something_let_go(seed);
    let after = [AfterEffect::KeepsNew, AfterEffect::RevertsToOld][rng.usize(..2)];
    if rng.u8(..3) == 0 {
        variant.disk.rates = FaultRates {
            read_error_ppm: 5_000,
            write_error_ppm: 20_000,
            sync_error_ppm: 20_000,
            directory_error_ppm: 10_000,
            no_space_ppm: 20_000,
            short_ppm: 100_000,
        };
        variant.disk.after_effect = Some(after);
        let disk = SimDisk::new(seed, variant.disk);
        return faulty(disk, variant, seed, Trouble::Often, &operations, states).map(drop);
    }
    let trouble = [Trouble::Once, Trouble::Often][rng.usize(..2)];
    let disk = SimDisk::new(seed, variant.disk);
    let count = if trouble == Trouble::Once { 1 } else { 4 };
    for turn in 0..count {
        let fault = match rng.u8(..4) {
            0 | 1 => Fault::new(Effect::SyncFails(errno::EIO, after)).on(OperationKind::Sync),
            2 => Fault::new(Effect::ShortThenError(700, errno::EIO)).on(OperationKind::Write),
            _ => Fault::new(Effect::Error(errno::EIO)),
        };
        disk.inject(fault.nth(20 * turn + rng.u64(1..40)));
    }
    faulty(disk, variant, seed, trouble, &operations, states).map(drop)
}

/// A full disk poisons nothing, and a budget is kept.
fn full(seed: u64, mistake: Option<Mistake>, states: &mut u64) -> Result<(), String> {
    let Variant { mut disk, options, .. } = variant(seed);
    let room = SEGMENT_BYTES * (2 + seed % 3) + 4096 * (seed % 16);
    // With padding, four openings of a full disk use up the room that a segment reserves for
    // control groups.
    let pad = seed.is_multiple_of(3);
    disk.garbage_at_crash = false;
    disk.capacity_bytes = Some(room);
    let options = options.segment_bytes(SEGMENT_BYTES).pad_groups(pad);
    let mut operations = history(seed, 30);
    operations.retain(|operation| !pad || !matches!(operation, Op::Reopen | Op::Drop | Op::Kill));
    let variant = Variant::new(disk, options).making(mistake);
    let disk = SimDisk::new(seed, disk);
    let run = faulty(disk, variant.clone(), seed, Trouble::Full, &operations, states)?;
    if run.poisoned > 0 {
        return Err("a full disk poisons the log".into());
    }
    *states += 1;
    budget(seed, variant, room)
}

/// On a disk with enough room a log keeps to its budget, whichever thread prepares files.
fn budget(seed: u64, mut variant: Variant, room: u64) -> Result<(), String> {
    variant.disk.capacity_bytes = None;
    variant.options = variant.options.disk_budget_bytes(room);
    let disk = SimDisk::new(seed, variant.disk);
    let log = open(&disk, &variant).map_err(|error| error.to_string())?;
    for step in 0..12 {
        // Without room this returns an error, which is right.
        let _ = log.prepare_now();
        let _ = log.append_durable(&[7; 20_000]);
        if step % 4 == 3 {
            log.truncate_before(log.last()).map_err(|error| error.to_string())?;
        }
        let used: u64 = disk.image().iter().map(|(_, bytes)| bytes.len() as u64).sum();
        if used > room {
            return Err(format!("{used} bytes of a budget of {room}"));
        }
    }
    Ok(())
}

fn lie(variant: &Variant, seed: u64, states: &mut u64) -> Result<(), String> {
    let operations = history(seed, 10);
    for turn in 0..8 {
        let mut rng = fastrand::Rng::with_seed(seed ^ (turn << 32));
        let file = rng.bool().then(|| format!("{:020}.ink", rng.u64(1..4)));
        let misdirected = Effect::Misdirected { file, offset: rng.u64(..14) * 4096 };
        let effect = if rng.u8(..3) == 0 { misdirected } else { Effect::LostWrite };
        let disk = SimDisk::new(seed, variant.disk);
        disk.inject(Fault::new(effect).on(OperationKind::Write).nth(rng.u64(1..30)));
        *states += 1;
        lies::tell(&disk, variant, &operations)?;
    }
    *states += 2;
    lies::last_record(seed, variant)?;
    lies::last_truncation(seed, variant)
}
