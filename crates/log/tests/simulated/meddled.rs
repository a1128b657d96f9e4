//! Writers that come, go and die between any two steps of a reader; and what a reader has shown,
//! after any crash.
//!
//! *Owns*: what happens before the n-th operation of a directory, and the histories that are run in
//! it.

#![allow(clippy::unwrap_used, reason = "the helpers of a test are a test too")]

use std::sync::{Arc, Mutex};

use super::beside_sim::{nasty, open, read, small};
use crate::watched::{Call, watched};
use inkstone::{Error, Log, Lsn, Reader};
use inkstone_sim::shrink::seeds;
use inkstone_sim::{DiskOptions, Effect, Fault, OperationKind, SimDirectory, SimDisk};

type Action = Box<dyn FnOnce() + Send>;

/// What happens before the operation with a number.
struct Plan(Mutex<(u64, Option<Action>)>);

impl Plan {
    fn new(before: u64, action: impl FnOnce() + Send + 'static) -> Arc<Self> {
        Arc::new(Self(Mutex::new((before, Some(Box::new(action))))))
    }

    fn is_done(&self) -> bool {
        self.0.lock().unwrap().1.is_none()
    }

    fn step(&self) {
        let action = {
            let mut plan = self.0.lock().unwrap();
            plan.0 = plan.0.saturating_sub(1);
            if plan.0 == 0 { plan.1.take() } else { None }
        };
        if let Some(action) = action {
            action();
        }
    }
}

/// A reader's directory, in which that happens; what no reader may do fails the test.
fn meddled(disk: &SimDisk, plan: &Arc<Plan>) -> Arc<SimDirectory> {
    let plan = Arc::clone(plan);
    let onlooker = move |call: &Call<'_>| {
        match call {
            Call::Open { name, how } => {
                assert!(how.read_only && !how.create_new, "a reader that opens {name} to write");
            }
            Call::List | Call::SyncNames | Call::LockedBy { .. } => {}
            _ => panic!("a reader's {call:?}"),
        }
        plan.step();
    };
    Arc::new(watched(disk.directory("/log"), onlooker))
}

/// What record `lsn` holds, written after `salt` cuts.
fn record(lsn: u64, salt: u64) -> Vec<u8> {
    let mut bytes: Vec<_> =
        (0..lsn * 151 % 2500).map(|at| (at ^ lsn ^ (salt << 4)) as u8).collect();
    bytes.extend(salt.to_le_bytes());
    bytes
}

fn is_record(lsn: u64, bytes: &[u8]) -> bool {
    let salt = u64::from_le_bytes(bytes[bytes.len() - 8..].try_into().unwrap());
    bytes == record(lsn, salt)
}

fn append(log: &Log, count: u64, salt: u64) {
    for _ in 0..count {
        let lsn = log.last().get() + 1;
        log.append_durable(&record(lsn, salt)).unwrap();
    }
}

/// What happens to the log in between.
#[derive(Debug, Clone, Copy)]
enum Deed {
    /// A writer comes and stays.
    Comes,
    /// Comes, appends, closes.
    ComesAndGoes,
    /// Comes, appends without a sync, and is killed.
    ComesUnsynced,
    /// The present writer is killed.
    Dies,
    /// The present writer closes the log.
    Closes,
    /// Truncates nearly everything from the front, and uses all its segments again.
    Recycles,
    /// Truncates a third from the end, and continues.
    Cuts,
    /// Dies, and another writer continues.
    Follows,
}

const DEEDS: [Deed; 8] = [
    Deed::Comes,
    Deed::ComesAndGoes,
    Deed::ComesUnsynced,
    Deed::Dies,
    Deed::Closes,
    Deed::Recycles,
    Deed::Cuts,
    Deed::Follows,
];

type Held = Arc<Mutex<Option<Log>>>;

fn writer<'a>(held: &'a mut Option<Log>, disk: &SimDisk) -> &'a Log {
    held.get_or_insert_with(|| open(disk, small()))
}

fn abandon(held: &mut Option<Log>) {
    if let Some(log) = held.take() {
        log.abandon();
    }
}

fn close(held: &mut Option<Log>) {
    if let Some(log) = held.take() {
        log.close().unwrap();
    }
}

fn act(deed: Deed, disk: &SimDisk, held: &Held) {
    let mut held = held.lock().unwrap();
    match deed {
        Deed::Comes => append(writer(&mut held, disk), 1, 0),
        Deed::ComesAndGoes => {
            append(writer(&mut held, disk), 40, 0);
            held.take().unwrap().close().unwrap();
        }
        Deed::ComesUnsynced => {
            close(&mut held);
            let log = open(disk, small());
            disk.inject(Fault::new(Effect::LostSync).on(OperationKind::Sync));
            append(&log, 1, 0);
            log.abandon();
        }
        Deed::Dies => abandon(&mut held),
        Deed::Closes => close(&mut held),
        Deed::Recycles => {
            let log = writer(&mut held, disk);
            for _ in 0..3 {
                log.truncate_before(log.last()).unwrap();
                append(log, 80, 0);
            }
        }
        Deed::Cuts => {
            let log = writer(&mut held, disk);
            let (first, last) = (log.first().get(), log.last().get());
            log.truncate_after(Lsn::new(last - (last - first) / 3)).unwrap();
            append(log, 50, 1);
        }
        Deed::Follows => {
            abandon(&mut held);
            append(writer(&mut held, disk), 3, 0);
        }
    }
}

/// Reads to the end, with an error for each truncation; returns the last LSN.
fn read_on(cursor: &mut inkstone::Cursor) -> u64 {
    let mut expected = cursor.next_lsn().get();
    loop {
        match cursor.next() {
            Ok(Some(shown)) => {
                assert_eq!(shown.lsn.get(), expected);
                assert!(is_record(expected, shown.bytes), "LSN {expected}");
                expected += 1;
            }
            Ok(None) => return expected - 1,
            Err(Error::TruncatedBefore { lsn, first }) => {
                assert!(lsn.get() == expected && first > lsn);
                expected = first.get();
                cursor.seek(first);
            }
            Err(Error::TruncatedAfter { lsn, last }) => {
                assert!(lsn.get() == expected && last < lsn);
                expected = last.get() + 1;
            }
            Err(error) => panic!("LSN {expected}: {error}"),
        }
    }
}

/// What must be there after any crash, once it was shown.
fn check_crashes(disk: &SimDisk, seed: u64, last: u64) {
    for sample in 0..4 {
        let found = disk.crash(seed << 8 | sample);
        let reader = read(&found);
        assert!(reader.durable().get() >= last, "{} of {last} are there", reader.durable());
        assert_eq!(read_on(&mut reader.from(reader.first())), reader.durable().get());
    }
}

/// Runs a history up to where the reader opens, with `deed` before its operation `before`. Gives
/// whether it came to that.
fn run(deed: Deed, before: u64, is_living: bool) -> bool {
    let disk = SimDisk::new(before, DiskOptions { writeback_ppm: 0, ..DiskOptions::default() });
    let held: Held = Arc::new(Mutex::new(None));
    append(writer(&mut held.lock().unwrap(), &disk), 100, 0);
    if !is_living {
        held.lock().unwrap().take().unwrap().abandon();
    }
    let plan = {
        let (disk, held) = (disk.clone(), Arc::clone(&held));
        Plan::new(before, move || act(deed, &disk, &held))
    };
    let reader = Reader::open_in(meddled(&disk, &plan), small());
    let reader =
        reader.unwrap_or_else(|error| panic!("{deed:?} before {before}, {is_living}: {error}"));
    let was_in_opening = plan.is_done();
    let durable = reader.durable().get();
    if was_in_opening {
        check_crashes(&disk, before, durable);
    }
    let mut cursor = reader.from(Lsn::FIRST);
    let last = read_on(&mut cursor);
    if !plan.is_done() {
        return false;
    }
    check_crashes(&disk, before, last);
    // In the end everything is seen.
    let writer_has = held.lock().unwrap().take().map(|log| {
        let last = log.last();
        log.abandon();
        last.get()
    });
    let last = read_on(&mut cursor);
    assert_eq!(last, read(&disk).durable().get(), "{deed:?} before {before}, {is_living}");
    assert!(writer_has.is_none_or(|has| has == last), "{deed:?} before {before}, {is_living}");
    true
}

#[test]
fn whatever_happens_between_two_steps_of_a_reader_it_shows_the_log() {
    let mut runs = 0;
    for deed in DEEDS {
        for is_living in [false, true] {
            for before in 1.. {
                if !run(deed, before, is_living) {
                    break;
                }
                runs += 1;
            }
        }
    }
    // A reader takes some dozen steps, so this is every one of them.
    assert!(runs > 100, "{runs}");
}

/// A random history with a reader that reads after every step, and power losses after every read.
fn history(seed: u64) -> u64 {
    let mut random = fastrand::Rng::with_seed(seed);
    let disk = SimDisk::new(seed, nasty(seed));
    let held: Held = Arc::new(Mutex::new(None));
    append(writer(&mut held.lock().unwrap(), &disk), 30, 0);
    let reader = read(&disk);
    let mut cursor = reader.from(Lsn::FIRST);
    let mut states = 0;
    for _ in 0..8 {
        let deed = DEEDS[random.usize(0..DEEDS.len())];
        act(deed, &disk, &held);
        let late = read(&disk);
        let last = read_on(&mut cursor).max(late.durable().get());
        for _ in 0..15 {
            let found = disk.crash(random.u64(..));
            let again = read(&found);
            assert!(
                again.durable().get() >= last,
                "seed {seed}, {deed:?}: {} of {last}",
                again.durable()
            );
            assert_eq!(read_on(&mut again.from(again.first())), again.durable().get());
            // And once more: what this one has shown.
            let twice = read(&found.crash(random.u64(..)));
            assert!(twice.durable() >= again.durable(), "seed {seed}, {deed:?}: two deep");
            states += 2;
        }
    }
    states
}

#[test]
fn what_was_shown_is_there_after_any_crash() {
    let states: u64 = seeds(1, 25).map(history).sum();
    assert!(states >= 5000 || std::env::var("INKSTONE_SEED").is_ok(), "{states}");
}
