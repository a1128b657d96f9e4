//! The whole contract against a model, with the power cut within and after every call, and cut
//! again after each recovery, two deep.
//!
//! `INKSTONE_STREAMS_STATES=1000000 cargo test --release -p inkstone-streams --test model` tests
//! that many states.

#![allow(clippy::unwrap_used, reason = "the helpers of a test are a test too")]

#[path = "support/history.rs"]
mod history;
#[path = "support/model.rs"]
mod model;

use history::{Tally, explore};

#[test]
fn every_crash_leaves_what_the_contract_allows() {
    let wanted =
        std::env::var("INKSTONE_STREAMS_STATES").map_or(3_000, |states| states.parse().unwrap());
    let mut tally = Tally::default();
    let mut seed = std::env::var("INKSTONE_SEED").map_or(0, |seed| seed.parse().unwrap());
    let begin = seed;
    while tally.states < wanted {
        if let Err(why) = explore(seed, 150, &mut tally) {
            panic!("seed {seed}: {why}\n{tally:?}");
        }
        seed += 1;
        if wanted > 100_000 && seed.is_multiple_of(100) {
            println!("{tally:?}");
        }
    }
    println!("{} histories, {tally:?}", seed - begin);
    assert!(
        tally.deeper > wanted / 100 && tally.moved > 10 && tally.given_back > 5 && tally.failed > 2,
        "{tally:?}"
    );
}
