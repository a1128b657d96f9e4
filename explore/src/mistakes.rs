//! The mistakes about threads: the explorer must find each.
//!
//! *Owns*: which they are, and how each is to show itself. *May not touch*: what a mistake does (`mistakes/` at the root of the
//! repository), what a schedule is.

use std::time::Duration;

use inkstone::mistake::Mistake;
use inkstone_io::NamedChoice;

use crate::ledger::Kind;
use crate::run::Plan;
use crate::{Failure, Task, explore};

/// Mistakes about threads, and how each is to show itself.
const ABOUT_THREADS: &[(Mistake, &[Kind])] = &[
    (Mistake::TurnNotHanded, &[Kind::Lost, Kind::Wrong, Kind::Panic, Kind::NotShown, Kind::FalseCorrupt]),
    (Mistake::WatermarkEarly, &[Kind::Lost, Kind::FalseCorrupt]),
    (Mistake::WatermarkOnFailure, &[Kind::Lost, Kind::FalseCorrupt]),
    (Mistake::WatermarkOffByOne, &[Kind::Lost, Kind::NotShown]),
    (Mistake::FollowerToldOk, &[Kind::Lost, Kind::NotShown]),
    (Mistake::SyncForgets, &[Kind::Lost, Kind::NotShown, Kind::Hang]),
    (Mistake::BatchSplit, &[Kind::Wrong]),
    (Mistake::CutUntold, &[Kind::CutUntold, Kind::Hang, Kind::Lost, Kind::Back, Kind::NotShown]),
    (Mistake::CutKeepsPlace, &[Kind::Back, Kind::FalseCorrupt, Kind::Wrong]),
    (Mistake::StaleWindow, &[Kind::FalseCorrupt]),
    (Mistake::ReadsPastWatermark, &[Kind::Lost, Kind::FalseCorrupt]),
    (Mistake::TruncatedShown, &[Kind::Back]),
    (Mistake::RecyclesPinned, &[Kind::Pinned]),
    (Mistake::WakesUnderLock, &[Kind::Hang]),
    (Mistake::CutFuturesForgotten, &[Kind::Hang]),
    // A reader goes by a watermark that is not the new head's: it shows too much, or too little.
    (
        Mistake::ChangeBeforeWatermark,
        &[Kind::Lost, Kind::Back, Kind::FalseCorrupt, Kind::Wrong, Kind::NotShown],
    ),
    (Mistake::PlaceNotAskedAgain, &[Kind::Lost, Kind::Back, Kind::FalseCorrupt, Kind::Wrong]),
    (Mistake::ForkMarkNotAsked, &[Kind::Forked, Kind::Hang]),
    (Mistake::ChildPromises, &[Kind::Forked]),
    (Mistake::WakeUpLost, &[Kind::Hang]),
    (Mistake::PoisonUntold, &[Kind::Hang]),
    (Mistake::AwaitedEarly, &[Kind::Lost, Kind::NotShown]),
    (Mistake::TailAboveWatermark, &[Kind::Lost, Kind::FalseCorrupt]),
    (Mistake::TailKeptOverCut, &[Kind::Back, Kind::Wrong, Kind::Lost]),
];

/// Whether each is found, and in the way that it must show itself.
pub fn find(names: Option<&str>, threads: usize, time: Duration) -> bool {
    let wanted =
        |mistake: &Mistake| names.is_none_or(|names| names.split(',').any(|name| name == mistake.name()));
    let mut counts = (0, 0);
    println!("{:24} {:>9} {:>7}  how it showed", "mistake", "schedules", "seconds");
    for (mistake, kinds) in ABOUT_THREADS.iter().filter(|(mistake, _)| wanted(mistake)) {
        let task = Task {
            plan: Plan { mistake: Some(*mistake), talks: false },
            // A window in which the rarest one is soon found.
            from: 161_000,
            schedules: u64::MAX / 2,
            threads,
            time,
            one_is_enough: true,
            shows_progress: false,
        };
        let outcome = explore(task);
        let seconds = outcome.took.as_secs_f64();
        let (is_found, how) = match outcome.failures.first() {
            Some(Failure { seed, broken }) if kinds.contains(&broken.kind) => {
                (true, format!("{:?}, seed {seed}: {}", broken.kind, broken.what))
            }
            Some(Failure { seed, broken }) => {
                (false, format!("NOT AS IT SHOULD: {:?}, seed {seed}: {}", broken.kind, broken.what))
            }
            None => (false, "NOT FOUND".into()),
        };
        if is_found {
            counts.0 += 1
        } else {
            counts.1 += 1
        }
        println!("{:24} {:9} {seconds:7.1}  {how}", mistake.name(), outcome.schedules);
    }
    println!("{} mistakes found, {} not", counts.0, counts.1);
    counts.1 == 0
}
