//! The mistakes about threads: the explorer must find each.
//!
//! *Owns*: which they are, and how each is to show itself. *May not touch*: what a mistake does
//! (`proof/mistakes/` at the root of the repository), what a schedule is.

use std::time::Duration;

use inkstone::mistake::Mistake;
use inkstone_io::NamedChoice;
use inkstone_raft::mistake::Mistake as RaftMistake;
use inkstone_streams::mistake::Mistake as StreamsMistake;
use inkstone_subject::states::clauses::{CALLED, LEFT, NOW, REASON, REFUSED, SEEN};

use crate::ledger::Kind;
use crate::plan::{Plan, Subject};
use crate::{Failure, Task, explore};

/// Mistakes about threads, and how each is to show itself.
const ABOUT_THREADS: &[(Mistake, &[Kind])] = &[
    (
        Mistake::TurnNotHanded,
        &[Kind::Lost, Kind::Wrong, Kind::Panic, Kind::NotShown, Kind::FalseCorrupt],
    ),
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

const OF_RAFT: &[(RaftMistake, &[Kind])] = &[
    (RaftMistake::CallbackOutOfOrder, &[Kind::Broken(CALLED)]),
    (RaftMistake::CallbackBesideAnother, &[Kind::OutOfOrder, Kind::Broken(CALLED)]),
    (RaftMistake::CallbackForgotten, &[Kind::Uncalled, Kind::Hang, Kind::Broken(CALLED)]),
    (RaftMistake::CallbackEarly, &[Kind::Broken(LEFT)]),
    (RaftMistake::VoteNotSynced, &[Kind::Broken(LEFT)]),
    (RaftMistake::TruncationNotSynced, &[Kind::Broken(LEFT)]),
    // The raft log itself checks that its memory has no gap.
    (
        RaftMistake::ServedAboveTruncation,
        &[Kind::Broken(SEEN), Kind::Broken(NOW), Kind::WrongError, Kind::Panic],
    ),
    // It may ask for a record that is not durable yet, and was in memory before; and where the
    // older moment had fewer entries, the answer ends before the newer ones.
    (RaftMistake::ReadAtTwoInstants, &[Kind::Broken(SEEN), Kind::WrongError]),
    (RaftMistake::GroupReadBefore, OPENED_BEFORE),
    (RaftMistake::StateGoesEarly, OPENED_BEFORE),
];

/// A group shows what it was before its last calls, and then takes others for them.
const OPENED_BEFORE: &[Kind] = &[
    Kind::Broken(NOW),
    Kind::Broken(SEEN),
    Kind::Broken(LEFT),
    Kind::Broken(REASON),
    Kind::Broken(REFUSED),
    Kind::WrongError,
];

const OF_STREAMS: &[(StreamsMistake, &[Kind])] = &[
    (StreamsMistake::FollowerSleepsLate, &[Kind::Hang]),
    (StreamsMistake::EndNotAwaited, &[Kind::Hang]),
    (StreamsMistake::CutNotMarked, &[Kind::CutUntold]),
    // The record that a reader is led to is not durable yet.
    (StreamsMistake::IndexBeforeDurable, &[Kind::Broken(SEEN), Kind::WrongError]),
    (StreamsMistake::TruncatedIsMoved, &[Kind::Panic]),
    (
        StreamsMistake::SourceRemovedEarly,
        &[Kind::Broken(LEFT), Kind::FalseCorrupt, Kind::Broken(SEEN), Kind::WrongError],
    ),
    (StreamsMistake::NoteApart, &[Kind::Broken(LEFT)]),
];

/// The plan with the mistake of this name, if there is one: those of a raft log and of
/// streams stand in lists of their own.
pub fn plan_of(name: &str) -> Option<Plan> {
    if let Some((mistake, _)) = OF_RAFT.iter().find(|(mistake, _)| mistake.to_string() == name) {
        let (subject, raft_mistake) = (Subject::Raft, Some(*mistake));
        return Some(Plan { subject, raft_mistake, ..Plan::default() });
    }
    if let Some((mistake, _)) = OF_STREAMS.iter().find(|(mistake, _)| mistake.to_string() == name) {
        let (subject, streams_mistake) = (Subject::Streams, Some(*mistake));
        return Some(Plan { subject, streams_mistake, ..Plan::default() });
    }
    name.parse().ok().map(|mistake| Plan { mistake: Some(mistake), ..Plan::default() })
}

/// Whether each is found, and in the way that it must show itself.
pub fn find(names: Option<&str>, threads: usize, time: Duration) -> bool {
    let of_log = ABOUT_THREADS.iter().map(|(mistake, kinds)| (mistake.name().to_owned(), kinds));
    let of_raft = OF_RAFT.iter().map(|(mistake, kinds)| (mistake.to_string(), kinds));
    let of_streams = OF_STREAMS.iter().map(|(mistake, kinds)| (mistake.to_string(), kinds));
    let wanted =
        |name: &str| names.is_none_or(|names| names.split(',').any(|wanted| wanted == name));
    let mut counts = (0, 0);
    println!("{:24} {:>9} {:>7}  how it showed", "mistake", "schedules", "seconds");
    let all = of_log.chain(of_raft).chain(of_streams);
    for (name, kinds) in all.filter(|(name, _)| wanted(name)) {
        let task = Task {
            plan: plan_of(&name).expect("it is in one of the lists"),
            // Windows in which the rarest ones are soon found.
            from: if name == "GroupReadBefore" { 305_000 } else { 161_000 },
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
            Some(Failure { seed, broken }) => (
                false,
                format!("NOT AS IT SHOULD: {:?}, seed {seed}: {}", broken.kind, broken.what),
            ),
            None => (false, "NOT FOUND".into()),
        };
        if is_found {
            counts.0 += 1
        } else {
            counts.1 += 1
        }
        println!("{:24} {:9} {seconds:7.1}  {how}", name, outcome.schedules);
    }
    println!("{} mistakes found, {} not", counts.0, counts.1);
    counts.1 == 0
}
