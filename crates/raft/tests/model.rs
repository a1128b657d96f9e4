//! The whole contract against a model, with the power cut within and after every call, and again
//! after what was found, two deep.
//!
//! `INKSTONE_RAFT_STATES=1000000 cargo test --release -p inkstone-raft --test model` looks at that
//! many states.

#![allow(clippy::unwrap_used, reason = "the helpers of a test are a test too")]

#[path = "support/explore.rs"]
mod explore;

use explore::{Effort, Tally, explore, small};

#[test]
fn every_crash_leaves_what_the_contract_allows() {
    let wanted =
        std::env::var("INKSTONE_RAFT_STATES").map_or(30_000, |states| states.parse().unwrap());
    let mut tally = Tally::default();
    let mut seed = 0;
    while tally.states < wanted {
        let effort = Effort { calls: 60, samples: 2, deep: 12 };
        if let Err(why) = explore(seed, &small(), effort, &mut tally) {
            panic!("{why}\n{tally:?}");
        }
        seed += 1;
        if wanted > 100_000 && seed % 100 == 0 {
            println!("{tally:?}");
        }
    }
    println!("{seed} histories, {tally:?}");
    assert!(
        tally.deeper > wanted / 100 && tally.refused > 10 && tally.rolls > 10 && tally.failed > 2,
        "{tally:?}"
    );
}
