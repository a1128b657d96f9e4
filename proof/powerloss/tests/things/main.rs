//! Streams, a raft log, and three raft groups in one log, walked as the log is: crashed within and
//! after every call, on disks that fail or are full, killed, crashed again while they recover, and
//! with a bit that rots.
//!
//! *Owns*: what goes wrong in which class. *May not touch*: what may be found
//! (`inkstone_subject`).
//!
//! `INKSTONE_STATES=1000000 cargo test --release -p inkstone-powerloss --test things` looks at that
//! many states of each class; `INKSTONE_SEED` says where to begin, and `INKSTONE_CLASS=High` names
//! the one class that is walked.

#![allow(clippy::unwrap_used, reason = "the helpers of a test are a test too")]

#[cfg(inkstone_mistakes)]
mod mistaken;

use std::sync::Arc;

use inkstone_io::OpenFile;
use inkstone_io::seam::{Directory as _, File as _};
use inkstone_powerloss::sim::PATH;
use inkstone_powerloss::sim::prove::prove;
use inkstone_powerloss::sim::space::Pick;
use inkstone_powerloss::sim::tally::Tally;
use inkstone_powerloss::sim::walk::Walk;
use inkstone_powerloss::sim::way::{Cuts, Effort, Way, Wrong};
use inkstone_sim::{AfterEffect, DiskOptions, FaultRates, SimDisk};
use inkstone_streams::Streams;
use inkstone_subject::raft::RaftSubject;
use inkstone_subject::states::past::Past;
use inkstone_subject::states::{Called, Op, history};
use inkstone_subject::streams::{Habit, StreamsSubject};
use inkstone_subject::{Broken, End, Step, Subject, clause};

/// What goes wrong beside the power, or what is special in a history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    Cut,
    Fails,
    Full,
    Killed,
    /// A bit rots.
    Rot,
    /// Each opening makes a few calls.
    Brief,
    Large,
    High,
    Dying,
}

const CLASSES: [Class; 5] = [Class::Cut, Class::Fails, Class::Full, Class::Killed, Class::Rot];
const OF_STREAMS: [Class; 4] = [Class::Brief, Class::Large, Class::High, Class::Dying];
/// Beyond twice what lives.
const SEGMENTS_MAX: u64 = 4;
const SEGMENT_BYTES: u64 = 64 << 10;

fn pads(seed: u64) -> bool {
    seed % 5 == 4
}

fn log(seed: u64) -> inkstone::Options {
    inkstone::Options::small().own_thread(false).pad_groups(pads(seed))
}

fn disk(class: Class, seed: u64) -> SimDisk {
    // Not `ReportsLater`: a sync that lies is beyond any log.
    let after = [AfterEffect::RevertsToOld, AfterEffect::KeepsNew][(seed % 2) as usize];
    let mut options = DiskOptions { after_effect: Some(after), ..DiskOptions::default() };
    match class {
        Class::Fails => {
            let (sync_error_ppm, write_error_ppm) = (20_000, 5_000);
            options.rates = FaultRates { sync_error_ppm, write_error_ppm, ..FaultRates::default() };
        }
        Class::Full => options.capacity_bytes = Some((256 << 10) + (seed % 8) * (16 << 10)),
        _ => {}
    }
    SimDisk::new(seed, options)
}

/// One history.
fn walk<T: Called>(
    subject: &impl Subject<Op = Op, Past = Past<T>>,
    first: &Past<T>,
    (class, seed): (Class, u64),
    at_end: impl FnOnce(&SimDisk) -> Result<(), Broken>,
) -> (Tally, Result<(), Broken>) {
    let wrong = match class {
        Class::Fails => Wrong::Fails { retries: false },
        Class::Full => Wrong::Full,
        Class::Killed => Wrong::Kills,
        _ => Wrong::Nothing,
    };
    let mut way = Way { wrong, ..Way::new(Effort { samples: 1, all_of: 0, deep: 12 }) };
    if class == Class::Rot {
        let effort = Effort { samples: 1000, all_of: 0, deep: 0 };
        way = Way { pick: Pick::Rot, cuts: Cuts::AtEnd, ..Way::new(effort) };
    }
    // Each state has all its records.
    let length = if class == Class::Large { 40 } else { 150 };
    let mut steps = history(seed, length, class == Class::Full);
    if matches!(class, Class::Fails | Class::Full) {
        steps.retain(|step| !matches!(step, Step::PowerCut(_)));
    }
    if class == Class::Brief {
        let end = |at: usize| Step::End(if at.is_multiple_of(3) { End::Kill } else { End::Close });
        let parts = steps.chunks(1 + (seed % 4) as usize).enumerate();
        steps = parts.flat_map(|(at, part)| part.iter().cloned().chain([end(at)])).collect();
    }
    // Everything must work again when nothing fails any more.
    let [probe, kill] = [Step::Do(Op::Probe), Step::End(End::Kill)];
    steps.extend([Step::Calm, Step::Room, probe.clone(), kill, probe, Step::End(End::Close)]);
    let disk = disk(class, seed);
    let mut walk = Walk::new(subject.clone(), disk, first.clone(), steps, way, seed);
    let result = prove(&mut walk, &mut |_, _| {}).and_then(|()| at_end(&walk.disk));
    (walk.tally, result.map_err(|broken| broken.at(format_args!("{class:?}, seed {seed}"))))
}

/// Walks a class until so many states were seen.
fn look_at(class: Class, usual: u64, make: impl Fn(u64) -> (Tally, Result<(), Broken>)) {
    if std::env::var("INKSTONE_CLASS").is_ok_and(|only| only != format!("{class:?}")) {
        return;
    }
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
    assert!(class == Class::Rot || tally.depths[1] > wanted / 100, "{tally:?}");
}

fn streams(class: Class, seed: u64) -> (Tally, Result<(), Broken>) {
    let habit = match class {
        Class::Large => Habit::Large,
        Class::High => Habit::High,
        Class::Dying => Habit::Dying,
        _ => Habit::Usual,
    };
    let subject = StreamsSubject::new(log(seed), habit);
    walk(&subject, &subject.new_past(), (class, seed), |disk| match class {
        Class::Full => Ok(()),
        _ if pads(seed) => Ok(()),
        _ => check_size(&subject, disk),
    })
}

/// After a history: the disk holds what docs/streams.md says, once nothing is to be moved. Not so
/// where groups are padded, and where large records do not fill their segments ([`Op::Fill`]).
fn check_size(subject: &StreamsSubject, disk: &SimDisk) -> Result<(), Broken> {
    let directory = Arc::new(disk.directory(PATH));
    let streams = Streams::open_in(Arc::clone(&directory), subject.options().clone()).unwrap();
    while streams.move_some().unwrap() {}
    let stats = streams.stats();
    streams.close().unwrap();
    let bytes = |name: &String| {
        let file = directory.open(name, &OpenFile::existing().read_only());
        file.and_then(|file| file.len_bytes()).unwrap()
    };
    let holds: u64 = directory.list().unwrap().iter().map(bytes).sum();
    let most = 2 * (stats.live_bytes + stats.table_bytes) + SEGMENTS_MAX * SEGMENT_BYTES;
    clause("size", holds <= most, || format!("{holds} bytes, and {most} may be: {stats:?}"))
}

fn raft(groups: Option<usize>, class: Class, seed: u64) -> (Tally, Result<(), Broken>) {
    let subject = RaftSubject::new(log(seed), groups);
    walk(&subject, &subject.new_past(), (class, seed), |_| Ok(()))
}

#[test]
fn every_crash_leaves_streams_as_the_contract_allows() {
    for class in CLASSES.into_iter().chain(OF_STREAMS) {
        let usual = if class == Class::Large { 500 } else { 2_000 };
        look_at(class, usual, |seed| streams(class, seed));
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
