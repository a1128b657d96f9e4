//! Writers that come, go, fail and die between any two steps of a reader or of `verify`; and what a
//! reader has shown, after any crash.
//!
//! *Owns*: what happens before the n-th call of a directory, a file or an engine, and the histories
//! that are run in it. *May not touch*: what is counted (`beside_sim.rs`).

#![allow(clippy::unwrap_used, reason = "the helpers of a test are a test too")]

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::history::small;
use inkstone::inspect::verify_in;
use inkstone::{Access, Cursor, Directory as _, Durability, Error, Log, Lsn, Options, Reader};
use inkstone_sim::hooked::{Call, Hook};
use inkstone_sim::{
    AfterEffect, DiskOptions, Effect, Fault, OperationKind, SimDirectory, SimDisk, errno,
};

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

/// What no reader may do fails the test.
impl Hook for Plan {
    fn before(&self, call: &Call<'_>) -> inkstone_io::Result<()> {
        match call {
            Call::Open { name, how } => {
                assert!(how.read_only && !how.create_new, "a reader that opens {name} to write");
            }
            Call::Rename { .. } | Call::Remove { .. } | Call::Lock { .. } => {
                panic!("a reader's {call:?}")
            }
            _ => {}
        }
        self.step();
        Ok(())
    }
}

/// A reader's directory, in which that happens.
fn meddled(disk: &SimDisk, plan: &Arc<Plan>) -> Arc<SimDirectory> {
    Arc::new(disk.directory("/log").hooked(Arc::clone(plan)))
}

/// What record `lsn` holds, written after `salt` cuts.
fn record(lsn: u64, salt: u64) -> Vec<u8> {
    let mut bytes: Vec<_> =
        (0..lsn * 151 % 2500).map(|at| (at ^ lsn ^ (salt << 4)) as u8).collect();
    bytes.extend(salt.to_le_bytes());
    bytes
}

/// After how many cuts it was written.
fn salt_of(lsn: u64, bytes: &[u8]) -> u64 {
    let salt = u64::from_le_bytes(bytes[bytes.len() - 8..].try_into().unwrap());
    assert!(bytes == record(lsn, salt), "LSN {lsn}");
    salt
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
    /// Begins segments.
    Rolls,
    /// Truncates nearly everything from the front, and uses all its segments again.
    Recycles,
    /// Leaves so many fifths, and continues.
    Cuts(u64),
    /// Dies, and another writer continues.
    Follows,
    /// Begins a segment, whose sync with this number fails.
    FailsToRoll(u64),
    /// Cuts, and the sync of the new segment's header fails.
    FailsToCut,
    /// Cuts, and so many bytes of the new segment's header find room.
    IsRefusedToCut(usize),
    /// A commit fails. Its record is no [`record`].
    FailsToCommit(AfterEffect),
}

const DEEDS: [Deed; 19] = [
    Deed::Comes,
    Deed::ComesAndGoes,
    Deed::ComesUnsynced,
    Deed::Dies,
    Deed::Closes,
    Deed::Rolls,
    Deed::Recycles,
    Deed::Cuts(1),
    Deed::Cuts(3),
    Deed::Follows,
    Deed::FailsToRoll(1),
    Deed::FailsToRoll(2),
    Deed::FailsToRoll(3),
    Deed::FailsToCut,
    Deed::IsRefusedToCut(512),
    Deed::IsRefusedToCut(2048),
    Deed::IsRefusedToCut(4000),
    Deed::FailsToCommit(AfterEffect::KeepsNew),
    Deed::FailsToCommit(AfterEffect::RevertsToOld),
];

fn fails(after: AfterEffect) -> Fault {
    Fault::new(Effect::SyncFails(errno::EIO, after)).on(OperationKind::Sync)
}

/// A log that others read, and its writer.
#[derive(Clone)]
struct Scene {
    disk: SimDisk,
    options: Options,
    held: Arc<Mutex<Option<Log>>>,
    /// What a cut was to leave: who looked before it has shown more, and it may have failed.
    doubt: Arc<AtomicU64>,
}

impl Scene {
    fn new(seed: u64, options: Options) -> Self {
        let disk = SimDisk::new(seed, DiskOptions { writeback_ppm: 0, ..DiskOptions::default() });
        Self { disk, options, held: Arc::default(), doubt: Arc::new(AtomicU64::new(u64::MAX)) }
    }

    fn open(&self) -> Log {
        Log::open_in(Arc::new(self.disk.directory("/log")), self.options.clone()).unwrap()
    }

    /// A reader of what is on this disk.
    fn read(&self, disk: &SimDisk) -> Reader {
        Reader::open_in(Arc::new(disk.directory("/log")), self.options.clone()).unwrap()
    }

    fn kill(&self) {
        self.held.lock().unwrap().take().into_iter().for_each(Log::abandon);
    }

    /// What the writer does, which comes if there is none.
    fn write(&self, work: impl FnOnce(&Log)) {
        work(self.held.lock().unwrap().get_or_insert_with(|| self.open()));
    }

    fn append(&self, count: u64, salt: u64) {
        self.write(|log| append(log, count, salt));
    }

    /// Leaves so many fifths.
    fn cut(&self, fifths: u64) -> inkstone::Result<()> {
        let mut result = Ok(());
        self.write(|log| {
            let (first, last) = (log.first().get(), log.last().get());
            let left = first + (last - first) * fifths / 5;
            result = log.truncate_after(Lsn::new(left));
            self.doubt.store(left, Ordering::Relaxed);
        });
        result
    }

    fn close(&self) {
        self.held.lock().unwrap().take().into_iter().for_each(|log| log.close().unwrap());
    }

    /// The name of the file that the next segment will have.
    fn next_file(&self) -> String {
        let names = self.disk.directory("/log").list().unwrap();
        let numbers = names.iter().filter_map(|name| name.strip_suffix(".ink")?.parse().ok());
        format!("{:020}.ink", numbers.max().unwrap_or(0_u64) + 1)
    }

    fn act(&self, deed: Deed, salt: u64) {
        let disk = &self.disk;
        match deed {
            Deed::Comes => self.append(1, salt),
            Deed::ComesAndGoes => {
                self.append(40, salt);
                self.close();
            }
            Deed::ComesUnsynced => {
                self.close();
                let log = self.open();
                disk.inject(Fault::new(Effect::LostSync).on(OperationKind::Sync));
                append(&log, 1, salt);
                log.abandon();
            }
            Deed::Dies => self.kill(),
            Deed::Closes => self.close(),
            Deed::Rolls => self.append(80, salt),
            Deed::Recycles => {
                for _ in 0..3 {
                    self.write(|log| log.truncate_before(log.last()).unwrap());
                    self.append(80, salt);
                }
            }
            Deed::Cuts(fifths) => {
                self.cut(fifths).unwrap();
                // More than were there.
                self.append(80, salt);
                self.doubt.store(u64::MAX, Ordering::Relaxed);
            }
            Deed::Follows => {
                self.kill();
                self.append(3, salt);
            }
            Deed::FailsToRoll(nth) => {
                self.write(|log| {
                    disk.inject(fails(AfterEffect::KeepsNew).file(&self.next_file()).nth(nth));
                    let next = || record(log.last().get() + 1, salt);
                    (0..80).find(|_| log.append_durable(&next()).is_err());
                });
                disk.clear_faults();
            }
            Deed::FailsToCut => {
                self.write(|_| disk.inject(fails(AfterEffect::KeepsNew).file(".ink")));
                let _ = self.cut(3);
                disk.clear_faults();
            }
            Deed::IsRefusedToCut(bytes) => {
                self.write(|_| {
                    let short = Fault::new(Effect::ShortThenError(bytes, errno::ENOSPC));
                    disk.inject(short.on(OperationKind::Write).file(&self.next_file()));
                });
                let _ = self.cut(3);
                disk.clear_faults();
                // A header that was written in part in a file of the pool poisons.
                let mut is_poisoned = false;
                self.write(|log| is_poisoned = log.sync().is_err());
                if is_poisoned {
                    self.kill();
                }
                self.append(3, salt);
            }
            Deed::FailsToCommit(after) => {
                self.write(|log| {
                    disk.inject(fails(after));
                    log.append_durable(&[9; 700]).expect_err("its sync fails");
                });
            }
        }
    }
}

/// The salt of each record.
type Records = BTreeMap<u64, u64>;

/// What a reader was told.
#[derive(Default)]
struct Told {
    records: Vec<(u64, u64)>,
    /// The last LSNs that cuts have left.
    cuts: Vec<u64>,
}

impl Told {
    /// Reads to the end, with an error for each truncation; returns the last LSN.
    fn read_on(&mut self, cursor: &mut Cursor) -> u64 {
        let mut expected = cursor.next_lsn().get();
        loop {
            match cursor.next() {
                Ok(Some(shown)) => {
                    assert_eq!(shown.lsn.get(), expected);
                    self.records.push((expected, salt_of(expected, shown.bytes)));
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
                    self.cuts.push(last.get());
                    expected = last.get() + 1;
                }
                Err(error) => panic!("LSN {expected}: {error}"),
            }
        }
    }

    /// Every record was the log's before or after, and every cut was one.
    fn check(&self, before: &Records, after: &Records) {
        for (lsn, salt) in &self.records {
            let is_known = [before, after].iter().any(|one| one.get(lsn) == Some(salt));
            assert!(is_known, "LSN {lsn} is of another generation: {salt}");
        }
        for last in &self.cuts {
            let next = last + 1;
            let is_cut = before.get(&next) != after.get(&next);
            assert!(is_cut, "records after {last} were told to be cut, and are there");
        }
    }
}

/// What must be there after any crash, once it was shown.
fn check_crashes(scene: &Scene, seed: u64, last: u64) {
    for sample in 0..2 {
        let reader = scene.read(&scene.disk.crash(seed << 8 | sample));
        let least = last.min(scene.doubt.load(Ordering::Relaxed));
        assert!(reader.durable().get() >= least, "{} of {last} are there", reader.durable());
        let read = Told::default().read_on(&mut reader.from(reader.first()));
        assert_eq!(read, reader.durable().get());
    }
}

/// A log of several segments, one of which a cut has begun: the one before it has more records,
/// which are gone. And its writer, if it is to live.
fn scene(seed: u64, options: &Options, is_living: bool) -> (Scene, Records) {
    let scene = Scene::new(seed, options.clone());
    scene.append(70, 0);
    scene.write(|log| log.truncate_after(Lsn::new(25)).unwrap());
    scene.append(75, 1);
    if !is_living {
        scene.kill();
    }
    (scene, (1..=25).map(|lsn| (lsn, 0)).chain((26..=100).map(|lsn| (lsn, 1))).collect())
}

/// The deed is done before the call with this number.
fn planned(scene: &Scene, deed: Deed, before: u64) -> Arc<Plan> {
    let theirs = scene.clone();
    Plan::new(before, move || theirs.act(deed, 2))
}

/// A reader opens and reads to the end, with `deed` before its call `before`. Gives whether it came
/// to that.
fn read_beside(deed: Deed, before: u64, is_living: bool, options: &Options) -> bool {
    let (scene, was) = scene(before, options, is_living);
    let plan = planned(&scene, deed, before);
    let reader = Reader::open_in(meddled(&scene.disk, &plan), options.clone()).unwrap();
    if plan.is_done() {
        check_crashes(&scene, before, reader.durable().get());
    }
    let (mut cursor, mut told) = (reader.from(Lsn::FIRST), Told::default());
    let last = told.read_on(&mut cursor);
    if !plan.is_done() {
        return false;
    }
    check_crashes(&scene, before, last);
    scene.kill();
    if !is_living {
        // Who came and went meanwhile is seen without another one.
        let durable = scene.read(&scene.disk).durable().get();
        assert_eq!(told.read_on(&mut cursor), durable);
    }
    // Another writer goes on, in the place of a group that failed. Its last record is in no promise
    // until it closes the log.
    let log = scene.open();
    append(&log, 2, 3);
    let end = log.last().get();
    assert!(told.read_on(&mut cursor) >= end - 1);
    let own = log.reader().records(log.first()).map(Result::unwrap);
    let is: Records =
        own.map(|shown| (shown.lsn.get(), salt_of(shown.lsn.get(), &shown.bytes))).collect();
    log.close().unwrap();
    assert_eq!(told.read_on(&mut cursor), end);
    told.check(&was, &is);
    true
}

/// `verify` reads the log, with `deed` before its call `before`.
fn verify_beside(deed: Deed, before: u64, is_living: bool, options: &Options) -> bool {
    let (scene, _) = scene(before, options, is_living);
    let plan = planned(&scene, deed, before);
    match verify_in(meddled(&scene.disk, &plan)) {
        Ok(report) => {
            assert!(report.is_intact(), "{:?}", report.damage);
            assert_eq!(report.counts().records, report.last.get() + 1 - report.first.get());
        }
        // Each look met a file that was removed meanwhile.
        Err(Error::Io(error)) if error.kind() == std::io::ErrorKind::ResourceBusy => {}
        Err(error) => panic!("{error}"),
    }
    plan.is_done()
}

type Run = fn(Deed, u64, bool, &Options) -> bool;

/// Each deed before each step; gives how many runs that were.
fn each_step(run: Run, options: &Options) -> u64 {
    let mut runs = 0;
    for (deed, is_living) in DEEDS.into_iter().flat_map(|deed| [(deed, false), (deed, true)]) {
        for before in 1.. {
            let place = AssertUnwindSafe(|| run(deed, before, is_living, options));
            let has_come = catch_unwind(place).unwrap_or_else(|panic| {
                eprintln!("{deed:?} before call {before}, beside a writer: {is_living}");
                resume_unwind(panic)
            });
            if !has_come {
                break;
            }
            runs += 1;
        }
    }
    runs
}

/// Through the page cache and past it; each commit is made durable by a sync, which may fail.
fn ways() -> [Options; 2] {
    let way = |access| small().access(access).durability(Durability::Fdatasync);
    [Access::Buffered, Access::Direct].map(way)
}

#[test]
fn whatever_happens_between_two_steps_of_a_reader_it_shows_the_log() {
    for options in ways() {
        let runs = each_step(read_beside, &options);
        assert!(runs > 300, "{runs}");
    }
}

#[test]
fn whatever_happens_between_two_steps_of_verify_it_finds_no_damage() {
    let [options, _] = ways();
    let runs = each_step(verify_beside, &options);
    assert!(runs > 300, "{runs}");
}

#[cfg(inkstone_mistakes)]
mod mistaken {
    use inkstone::mistake::Mistake;

    use super::*;

    /// Whether a reader with this mistake shows what it may not.
    fn is_seen(mistake: Mistake) -> bool {
        ways().into_iter().any(|options| {
            let options = options.with_mistake(mistake);
            let runs = AssertUnwindSafe(|| each_step(read_beside, &options));
            catch_unwind(runs).is_err()
        })
    }

    #[test]
    fn a_reader_that_looks_too_little_is_caught_between_two_of_its_steps() {
        let missed: Vec<_> =
            [Mistake::HeaderBelieved, Mistake::UnsettledKept, Mistake::ObservedOnce]
                .into_iter()
                .filter(|mistake| !is_seen(*mistake))
                .collect();
        assert!(missed.is_empty(), "not caught: {missed:?}");
    }
}
