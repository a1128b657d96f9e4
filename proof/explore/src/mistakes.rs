//! The mistakes about threads: the explorer must find each.
//!
//! *Owns*: which they are, and how each is to show itself. *May not touch*: what a mistake does
//! (`proof/mistakes/` at the root of the repository), what a schedule is.

use std::time::Duration;

use inkstone::mistake::Mistake;
use inkstone_io::NamedChoice;
use inkstone_raft::mistake::Mistake as RaftMistake;
use inkstone_streams::mistake::Mistake as StreamsMistake;
use inkstone_subject::log::clauses as log;
use inkstone_subject::promise;
use inkstone_subject::states::clauses::{self as states, CALLED, LEFT, NOW, REASON, REFUSED, SEEN};

use crate::broken::Kind;
use crate::plan::{Plan, Subject};
use crate::{Failure, Task, explore};

/// Mistakes about threads, and how each is to show itself.
const ABOUT_THREADS: &[(Mistake, &[Kind])] = &[
    (Mistake::TurnNotHanded, &[NOT_THERE, OTHER_BYTES, TWICE, Kind::Panic, ANSWERED, NOT_SOUND]),
    (Mistake::WatermarkEarly, &[NOT_THERE, ANSWERED]),
    (Mistake::WatermarkOnFailure, &[NOT_THERE, ANSWERED]),
    (Mistake::WatermarkOffByOne, &[NOT_THERE, ANSWERED]),
    (Mistake::FollowerToldOk, &[NOT_THERE, ANSWERED]),
    (Mistake::SyncForgets, &[NOT_THERE, ANSWERED, Kind::Hang]),
    (Mistake::BatchSplit, &[Kind::Broken(log::SPLIT), TWICE]),
    (Mistake::CutUntold, &[Kind::Broken(log::TOLD), Kind::Hang, NOT_THERE, ANSWERED]),
    (Mistake::CutKeepsPlace, &[ANSWERED]),
    (Mistake::StaleWindow, &[ANSWERED]),
    (Mistake::ReadsPastWatermark, &[NOT_THERE, ANSWERED]),
    (Mistake::TruncatedShown, &[ANSWERED]),
    (Mistake::RecyclesPinned, &[Kind::Pinned]),
    (Mistake::WakesUnderLock, &[Kind::Hang]),
    (Mistake::CutFuturesForgotten, &[Kind::Hang]),
    // A reader goes by a watermark that is not the new head's: it shows too much, or too little.
    (Mistake::ChangeBeforeWatermark, &[NOT_THERE, ANSWERED]),
    (Mistake::PlaceNotAskedAgain, &[NOT_THERE, ANSWERED]),
    (Mistake::ForkMarkNotAsked, &[Kind::Forked, Kind::Hang]),
    (Mistake::ChildPromises, &[Kind::Forked]),
    (Mistake::WakeUpLost, &[Kind::Hang]),
    (Mistake::PoisonUntold, &[Kind::Hang]),
    (Mistake::AwaitedEarly, &[NOT_THERE, ANSWERED]),
    (Mistake::TailAboveWatermark, &[NOT_THERE, ANSWERED]),
    (Mistake::TailKeptOverCut, &[NOT_THERE, ANSWERED]),
];

/// What was acknowledged or shown is not there, or not on the medium.
const NOT_THERE: Kind = Kind::Broken(log::LOST);
/// A reader is shown something else than what is there, or an error.
const ANSWERED: Kind = Kind::Broken(log::ASKED);
const OTHER_BYTES: Kind = Kind::Broken(log::WRONG);
/// Two records have one LSN, or an append gets LSNs that are not one behind the other.
const TWICE: Kind = Kind::Broken(log::GIVES);
const NOT_SOUND: Kind = Kind::Broken(log::FALSE_CORRUPT);

const OF_RAFT: &[(RaftMistake, &[Kind])] = &[
    // The last one that waits may not be durable yet.
    (RaftMistake::CallbackOutOfOrder, &[Kind::Broken(CALLED), Kind::Broken(LEFT)]),
    (RaftMistake::CallbackForgotten, &[Kind::Uncalled, Kind::Hang, Kind::Broken(CALLED)]),
    // It comes before those that wait.
    (RaftMistake::CallbackEarly, &[Kind::Broken(CALLED), Kind::Broken(LEFT)]),
    (RaftMistake::VoteNotSynced, &[Kind::Broken(LEFT)]),
    (RaftMistake::VoteShownEarly, &[Kind::Broken(LEFT)]),
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
            // A window in which the rarest one is soon found: change-before-watermark is in one of
            // 47,000 schedules. The next rarest, CallbackForgotten, is in one of some thousands.
            from: 714_500,
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
        let subject = plan_of(&name).expect("as above").subject;
        if let Some(Failure { broken, .. }) = outcome.failures.first().filter(|_| is_found) {
            let (page, promise) = promise_of(subject, broken.kind);
            println!("caught|{page}|{promise}|the explorer|{name}");
            counts.0 += 1
        } else {
            counts.1 += 1
        }
        println!("{:24} {:9} {seconds:7.1}  {how}", name, outcome.schedules);
    }
    println!("{} mistakes found, {} not", counts.0, counts.1);
    counts.1 == 0
}

/// Which promise of which page is broken so.
fn promise_of(subject: Subject, kind: Kind) -> (&'static str, &'static str) {
    let (page, promises) = match subject {
        Subject::Log => ("durability.md", log::PROMISES),
        Subject::Raft => ("raft.md", states::PROMISES),
        Subject::Streams => ("streams.md", states::PROMISES),
    };
    let promise = match kind {
        Kind::Broken(clause) => promise(promises, clause),
        Kind::Hang => "Every call ends",
        Kind::CutUntold => "A cursor hears of every truncation",
        Kind::OutOfOrder | Kind::Uncalled => "Callbacks come in order, each once",
        Kind::Forked => "A forked child changes nothing",
        Kind::Pinned => "What is held stays",
        Kind::FalseCorrupt => "A crash leaves what some call led to",
        Kind::Wrong | Kind::WrongError => "A reader sees what some call led to",
        Kind::Panic => "its own checks",
    };
    (page, promise)
}
