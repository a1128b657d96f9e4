//! The walks catch these mutations, and the same histories are sound without them. The explorer
//! (`proof/explore`) and `damaged.rs` of the streams catch others.
//!
//! *Owns*: which mutations, and counting states. *May not touch*: what one does
//! (`proof/mistakes/`).

use std::fmt::Display;
use std::panic::catch_unwind;

use inkstone_subject::promise;
use inkstone_subject::states::clauses::PROMISES;

use inkstone_raft::mistake::{Mistake as RaftMistake, set as set_of_raft};
use inkstone_streams::mistake::{Mistake as StreamsMistake, set as set_of_streams};

use super::*;

/// Walks a class, from a seed on, until a promise is seen broken; says how, and after how many
/// states. A check of the crate that ends the program catches a mistake, too.
fn caught<M: Display + Copy>(
    mistake: M,
    set: fn(Option<M>),
    (class, from): (Class, u64),
    page: &str,
    make: fn(Class, u64) -> (Tally, Result<(), Broken>),
) {
    PROMISES.iter().for_each(|(promise, _)| println!("promise|{page}|{promise}"));
    let mut states = 0;
    for seed in from..from + 200 {
        set(Some(mistake));
        let walked = catch_unwind(|| make(class, seed));
        set(None);
        let why = match walked {
            Ok((tally, found)) => {
                states += tally.states;
                let Err(why) = found else { continue };
                why
            }
            Err(_) => Broken::new("panic", "a panic"),
        };
        println!("{mistake}: {states} states: {}", why.what.lines().last().unwrap_or_default());
        let promise = promise(PROMISES, why.clause);
        println!("caught|{page}|{promise}|sim, {class:?}|{mistake}");
        make(class, seed).1.expect("the same history without the mistake");
        return;
    }
    panic!("{mistake} was not caught in {states} states");
}

#[test]
fn of_streams() {
    use StreamsMistake as M;
    let usual = |class, seed| streams(class, Habit::Usual, seed);
    for (mistake, class, from) in [
        (M::SourceRemovedEarly, Class::Cut, 0),
        (M::DirectoryLeavesOut, Class::Cut, 0),
        (M::NoteApart, Class::Cut, 0),
        // Only a removal between two pieces of one table comes back: in one history of eight.
        (M::RemovedComesBack, Class::Cut, 2),
        (M::TableForgets, Class::Cut, 0),
        (M::TableBelievedEarly, Class::Cut, 0),
        // In one history of twenty.
        (M::FrontBehindOpening, Class::Fails, 8),
        (M::CutNotMarked, Class::Cut, 0),
    ] {
        caught(mistake, set_of_streams, (class, from), "streams.md", usual);
    }
}

const OF_RAFT: [RaftMistake; 7] = [
    RaftMistake::VoteNotSynced,
    RaftMistake::CallbackEarly,
    RaftMistake::CallbackOutOfOrder,
    RaftMistake::TruncationNotSynced,
    RaftMistake::CommittedBeyondEnd,
    RaftMistake::ServedAboveTruncation,
    RaftMistake::LeadersNotTruncated,
];

#[test]
fn of_a_raft_log() {
    let alone = |class, seed| raft(None, class, seed);
    for mistake in OF_RAFT {
        caught(mistake, set_of_raft, (Class::Cut, 0), "raft.md", alone);
    }
    caught(RaftMistake::KeptIsFreed, set_of_raft, (Class::Full, 0), "raft.md", alone);
}

#[test]
fn of_raft_groups() {
    let three = |class, seed| raft(Some(3), class, seed);
    for mistake in OF_RAFT {
        caught(mistake, set_of_raft, (Class::Cut, 0), "raft.md", three);
    }
    caught(RaftMistake::BatchInParts, set_of_raft, (Class::Cut, 0), "raft.md", three);
}
