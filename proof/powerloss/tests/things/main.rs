//! Streams, a raft log, and three raft groups in one log, walked as the log is: crashed within and
//! after every call, on disks that fail or are full, killed, and crashed again while they recover.
//!
//! *Owns*: what goes wrong in which class. *May not touch*: what may be found
//! (`inkstone_subject`).
//!
//! `INKSTONE_STATES=1000000 cargo test --release -p inkstone-powerloss --test things` looks at that
//! many states of each class; `INKSTONE_SEED` says where to begin.

#![allow(clippy::unwrap_used, reason = "the helpers of a test are a test too")]

#[cfg(inkstone_mistakes)]
mod mistaken;

use inkstone_powerloss::sim::prove::prove;
use inkstone_powerloss::sim::tally::Tally;
use inkstone_powerloss::sim::walk::Walk;
use inkstone_powerloss::sim::way::{Effort, Way, Wrong};
use inkstone_sim::{AfterEffect, DiskOptions, FaultRates, SimDisk};
use inkstone_subject::raft::RaftSubject;
use inkstone_subject::states::past::Past;
use inkstone_subject::states::{Called, Op, history};
use inkstone_subject::streams::StreamsSubject;
use inkstone_subject::{Broken, End, Step, Subject};

/// What goes wrong beside the power.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    Cut,
    Fails,
    Full,
    Killed,
}

const CLASSES: [Class; 4] = [Class::Cut, Class::Fails, Class::Full, Class::Killed];

fn log(seed: u64) -> inkstone::Options {
    inkstone::Options::small().own_thread(false).pad_groups(seed % 5 == 4)
}

fn disk(class: Class, seed: u64) -> SimDisk {
    // Not `ReportsLater`: a sync that lies is beyond any log.
    let after = [AfterEffect::RevertsToOld, AfterEffect::KeepsNew][(seed % 2) as usize];
    let mut options = DiskOptions { after_effect: Some(after), ..DiskOptions::default() };
    match class {
        Class::Cut | Class::Killed => {}
        Class::Fails => {
            let (sync_error_ppm, write_error_ppm) = (20_000, 5_000);
            options.rates = FaultRates { sync_error_ppm, write_error_ppm, ..FaultRates::default() };
        }
        Class::Full => options.capacity_bytes = Some((256 << 10) + (seed % 8) * (16 << 10)),
    }
    SimDisk::new(seed, options)
}

/// One history.
fn walk<T: Called>(
    subject: &impl Subject<Op = Op, Past = Past<T>>,
    first: &Past<T>,
    class: Class,
    seed: u64,
) -> (Tally, Result<(), Broken>) {
    let wrong = match class {
        Class::Cut => Wrong::Nothing,
        Class::Fails => Wrong::Fails { retries: false },
        Class::Full => Wrong::Full,
        Class::Killed => Wrong::Kills,
    };
    let way = Way { wrong, ..Way::new(Effort { samples: 1, all_of: 0, deep: 12 }) };
    let mut steps = history(seed, 150, class == Class::Full);
    if matches!(class, Class::Fails | Class::Full) {
        steps.retain(|step| !matches!(step, Step::PowerCut(_)));
    }
    // Everything must work again when nothing fails any more.
    let [probe, kill] = [Step::Do(Op::Probe), Step::End(End::Kill)];
    steps.extend([Step::Calm, Step::Room, probe.clone(), kill, probe, Step::End(End::Close)]);
    let disk = disk(class, seed);
    let mut walk = Walk::new(subject.clone(), disk, first.clone(), steps, way, seed);
    let result = prove(&mut walk, &mut |_, _| {});
    (walk.tally, result.map_err(|broken| broken.at(format_args!("{class:?}, seed {seed}"))))
}

/// Walks a class until so many states were seen.
fn look_at(class: Class, usual: u64, make: impl Fn(u64) -> (Tally, Result<(), Broken>)) {
    let number = |name, or| std::env::var(name).map_or(or, |value| value.parse().unwrap());
    let (wanted, mut seed) = (number("INKSTONE_STATES", usual), number("INKSTONE_SEED", 0));
    let mut tally = Tally::default();
    while tally.states < wanted {
        let (seen, result) = make(seed);
        result.unwrap();
        tally.add(&seen);
        seed += 1;
    }
    println!("{class:?}: up to seed {seed}, {} states, {:?}", tally.states, tally.depths);
    assert!(tally.depths[1] > wanted / 100, "{tally:?}");
}

fn streams(class: Class, seed: u64) -> (Tally, Result<(), Broken>) {
    let subject = StreamsSubject::new(log(seed));
    walk(&subject, &subject.new_past(), class, seed)
}

fn raft(groups: Option<usize>, class: Class, seed: u64) -> (Tally, Result<(), Broken>) {
    let subject = RaftSubject::new(log(seed), groups);
    walk(&subject, &subject.new_past(), class, seed)
}

#[test]
fn every_crash_leaves_streams_as_the_contract_allows() {
    for class in CLASSES {
        look_at(class, 2_000, |seed| streams(class, seed));
    }
}

#[test]
fn every_crash_leaves_a_raft_log_as_the_contract_allows() {
    for class in CLASSES {
        look_at(class, 6_000, |seed| raft(None, class, seed));
    }
}

#[test]
fn every_crash_leaves_all_groups_as_they_were_at_one_moment() {
    for class in CLASSES {
        look_at(class, 4_000, |seed| raft(Some(3), class, seed));
    }
}
