//! A seed is a history: the same one each time, also after others, and another seed is another one.

use replicated_log_simulation::mistake::Mistake;
use replicated_log_simulation::round::run;

/// A failure that no seed repeats helps nobody.
fn replays() -> bool {
    if cfg!(not(tokio_unstable)) {
        println!(
            "NOT RUN: tokio takes its random numbers from the seed only with --cfg tokio_unstable; \
             .ci/simulate builds so"
        );
    }
    cfg!(tokio_unstable)
}

#[test]
fn the_same_seed_gives_the_same_history() {
    if !replays() {
        return;
    }
    let once: Vec<u64> = (1..=12).map(|seed| run(seed, None, false).hash).collect();
    let again: Vec<u64> = (1..=12).rev().map(|seed| run(seed, None, false).hash).rev().collect();
    assert_eq!(once, again);
    let mut others = once.clone();
    others.sort_unstable();
    others.dedup();
    assert_eq!(others.len(), once.len(), "each seed has a history of its own");
}

/// In another process hash maps have other orders and memory has other places.
#[test]
fn the_same_seed_says_the_same_in_another_process() {
    if !replays() {
        return;
    }
    let said = |seed: u64| {
        let mut simulate = std::process::Command::new(env!("CARGO_BIN_EXE_simulate"));
        let output = simulate.args(["--seed", &seed.to_string()]).output().unwrap();
        assert!(output.status.success(), "seed {seed}");
        output.stdout
    };
    for seed in [2, 5, 11] {
        let once = said(seed);
        assert!(
            once.iter().filter(|byte| **byte == b'\n').count() > 100,
            "seed {seed} says what happens"
        );
        assert!(once == said(seed), "seed {seed} has two histories");
    }
}

#[test]
fn a_read_that_asks_nobody_is_caught() {
    if !replays() {
        return;
    }
    assert!((1..=100).any(|seed| !run(seed, Some(Mistake::StaleRead), false).broken.is_empty()));
}
