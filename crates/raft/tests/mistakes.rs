//! Every mistake that can be built in is caught by the model, and the same seeds are sound without
//! it.
//!
//! *Owns*: which mistakes there are, and how many states it takes. *May not touch*: the crate's
//! insides.

#![cfg(inkstone_mistakes)]
#![allow(clippy::unwrap_used, reason = "the helpers of a test are a test too")]

#[path = "support/explore.rs"]
mod explore;

use explore::{Effort, Home, Tally, explore, groups, small};
use inkstone_raft::mistake::{Mistake, set};

/// Explores seeds until a promise is seen broken; says how, and after how many states.
fn caught_in(mistake: Mistake, home: &Home) {
    let effort = Effort { calls: 60, samples: 2, deep: 12 };
    let mistaken = match home.clone() {
        Home::Alone(options) => Home::Alone(options.with_mistake(mistake)),
        groups => groups,
    };
    let mut tally = Tally::default();
    for seed in 0..400 {
        set(Some(mistake));
        let explored = explore(seed, &mistaken, effort, &mut tally);
        set(None);
        let Err(why) = explored else { continue };
        println!("{mistake}: {} states: {}", tally.states, why.lines().next().unwrap_or_default());
        let mut sound = Tally::default();
        for seed in 0..=seed {
            explore(seed, home, effort, &mut sound).expect("the same history without the mistake");
        }
        return;
    }
    panic!("{mistake} was not caught in {tally:?}");
}

/// Of one raft log, and of groups in one log.
fn caught(mistake: Mistake) {
    caught_in(mistake, &small());
    caught_in(mistake, &groups());
}

#[test]
fn a_vote_that_is_not_synced() {
    caught(Mistake::VoteNotSynced);
}

#[test]
fn a_vote_that_is_synced_before_the_truncation_it_follows() {
    caught_in(Mistake::VoteBeforeTruncation, &small());
}

#[test]
fn a_callback_before_its_entries_are_durable() {
    caught(Mistake::CallbackEarly);
}

#[test]
fn callbacks_out_of_order() {
    caught(Mistake::CallbackOutOfOrder);
}

#[test]
fn a_truncation_that_is_not_synced() {
    caught(Mistake::TruncationNotSynced);
}

#[test]
fn a_front_that_is_truncated_before_the_state_at_the_new_front_is_durable() {
    caught_in(Mistake::PurgeBeforeState, &small());
}

#[test]
fn committed_believed_beyond_the_last_entry() {
    caught(Mistake::CommittedBeyondEnd);
}

#[test]
fn an_entry_served_above_a_truncation() {
    caught(Mistake::ServedAboveTruncation);
}

#[test]
fn a_run_of_terms_that_outlives_its_truncation() {
    caught(Mistake::LeadersNotTruncated);
}
