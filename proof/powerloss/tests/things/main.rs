//! Streams, a raft log, and three raft groups in one log, walked in each class of `sim/things.rs`.
//!
//! *Owns*: their options, and what is special in a history of streams. *May not touch*: what goes
//! wrong in which class; what may be found (`inkstone_subject`).
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
use inkstone_powerloss::sim::tally::Tally;
use inkstone_powerloss::sim::things::{Class, look_at};
use inkstone_sim::SimDisk;
use inkstone_streams::Streams;
use inkstone_subject::raft::RaftSubject;
use inkstone_subject::streams::{Habit, StreamsSubject};
use inkstone_subject::{Broken, clause};

/// What is special in a history of streams alone, each with what goes wrong.
const OF_STREAMS: [(&str, Class, Habit); 3] = [
    ("Large", Class::Cut, Habit::Large),
    ("High", Class::Cut, Habit::High),
    ("Dying", Class::Cut, Habit::Dying),
];
/// Beyond twice what lives.
const SEGMENTS_MAX: u64 = 4;
const SEGMENT_BYTES: u64 = 64 << 10;

fn pads(seed: u64) -> bool {
    seed % 5 == 4
}

fn log(seed: u64) -> inkstone::Options {
    inkstone::Options::small().own_thread(false).pad_groups(pads(seed))
}

fn streams(class: Class, habit: Habit, seed: u64) -> (Tally, Result<(), Broken>) {
    let subject = StreamsSubject::new(log(seed), habit);
    // Each state of large batches has all their records.
    let length = if habit == Habit::Large { 40 } else { 150 };
    class.walk(&subject, subject.new_past(), (seed, length), |disk| match class {
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
    class.walk(&subject, subject.new_past(), (seed, 150), |_| Ok(()))
}

fn each_class(usual: u64, make: impl Fn(Class, u64) -> (Tally, Result<(), Broken>)) {
    for class in Class::ALL {
        look_at(&format!("{class:?}"), usual, |seed| make(class, seed)).unwrap();
    }
}

#[test]
fn every_crash_leaves_streams_as_the_contract_allows() {
    each_class(2_000, |class, seed| streams(class, Habit::Usual, seed));
    for (name, class, habit) in OF_STREAMS {
        let usual = if habit == Habit::Large { 500 } else { 2_000 };
        look_at(name, usual, |seed| streams(class, habit, seed)).unwrap();
    }
}

#[test]
fn every_crash_leaves_a_raft_log_as_the_contract_allows() {
    each_class(6_000, |class, seed| raft(None, class, seed));
}

#[test]
fn every_crash_leaves_all_groups_as_they_were_at_one_moment() {
    each_class(4_000, |class, seed| raft(Some(3), class, seed));
}
