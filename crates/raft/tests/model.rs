//! The whole contract against a model, with the power cut within and after every call, and again
//! after what was found, two deep: of one raft log, and of three groups in one log, of which all
//! must be found as they were at one moment.
//!
//! `INKSTONE_RAFT_STATES=1000000 cargo test --release -p inkstone-raft --test model` looks at that
//! many states of each; `INKSTONE_SEED` says where to begin.

#![allow(clippy::unwrap_used, reason = "the helpers of a test are a test too")]

#[path = "support/explore.rs"]
mod explore;

use explore::{Effort, Home, Tally, explore, groups, small};

fn look_at(home: &Home, usual: u64, calls: usize) -> Tally {
    let wanted =
        std::env::var("INKSTONE_RAFT_STATES").map_or(usual, |states| states.parse().unwrap());
    let mut tally = Tally::default();
    let mut seed = std::env::var("INKSTONE_SEED").map_or(0_u64, |seed| seed.parse().unwrap());
    while tally.states < wanted {
        let effort = Effort { calls, samples: 2, deep: 12 };
        if let Err(why) = explore(seed, home, effort, &mut tally) {
            panic!("{why}\n{tally:?}");
        }
        seed += 1;
        if wanted > 100_000 && seed.is_multiple_of(100) {
            println!("{tally:?}");
        }
    }
    println!("up to seed {seed}, {tally:?}");
    let Tally { deeper, refused, rolls, failed, .. } = tally;
    assert!(deeper > wanted / 100 && refused > 10 && rolls > 10 && failed > 2, "{tally:?}");
    tally
}

#[test]
fn every_crash_leaves_what_the_contract_allows() {
    look_at(&small(), 30_000, 60);
}

#[test]
fn every_crash_leaves_all_groups_as_they_were_at_one_moment() {
    // Longer: several sections must be written before one is old enough to be emptied.
    let tally = look_at(&groups(), 15_000, 120);
    assert!(tally.moved > 100, "{tally:?}");
}
