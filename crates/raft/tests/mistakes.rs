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
use inkstone_raft::{EntryId, Leader, NewEntry, Options, RaftLog};
use inkstone_sim::{DiskOptions, SimDisk};

/// Explores seeds until a promise is seen broken; says how, and after how many states.
fn caught_in(mistake: Mistake, home: &Home) {
    let effort = Effort { calls: 60, samples: 2, deep: 12 };
    let mut tally = Tally::default();
    for seed in 0..400 {
        set(Some(mistake));
        let explored = explore(seed, home, effort, &mut tally);
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

/// On a full disk a purge frees what it purges, and nothing else.
#[test]
fn an_entry_that_is_freed_on_a_full_disk_although_it_is_kept() {
    for mistake in [None, Some(Mistake::KeptIsFreed)] {
        set(mistake);
        let capacity_bytes = Some(600 << 10);
        let disk = SimDisk::new(5, DiskOptions { capacity_bytes, ..DiskOptions::default() });
        let options = Options::new().log(inkstone::Options::small().own_thread(false));
        let raft = RaftLog::open_in(std::sync::Arc::new(disk.directory("/raft")), options).unwrap();
        let (leader, mut next) = (Leader::of_term(1), 1);
        for bytes in [6000, 100, 0] {
            let payload = vec![7; bytes];
            let entry = |index| NewEntry { leader: &leader, index, payload: &payload };
            while raft.append(&[entry(next)], |_| {}).is_ok() {
                next += 1;
            }
        }
        raft.save_committed(next - 1).unwrap();
        raft.purge(&EntryId::new(leader.clone(), next / 4)).unwrap();
        let is_kept = raft.bounds().unwrap().first == next / 4 + 1;
        assert_eq!(is_kept, mistake.is_none(), "{mistake:?}");
        set(None);
    }
}
