//! Where a device has a volatile cache and FUA, the log tries with its first commits which of two
//! durable ways is faster: on disks with clocks of their own, over whole openings.
//!
//! *Owns*: what is kept, after how many commits, and that nothing is tried elsewhere. When a trial
//! is decided: `commit/trial.rs`. That no cut of the power tells the ways apart: the proof.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use inkstone::system::Strategy;
use inkstone::{Access, Durability, Event, Log, Options, Trial, Tried};
use inkstone_sim::{Counters, DiskOptions, SimDisk, Times};

const OPENINGS: u64 = 100;

/// A write and a flush take 200 us together, and a FUA write takes so long.
fn times(fua_us: u64) -> Option<Times> {
    let [write, flush, fua_write] = [20, 180, fua_us].map(Duration::from_micros);
    Some(Times { write, flush, fua_write })
}

fn disk(seed: u64, fua_us: u64) -> SimDisk {
    let options = DiskOptions { times: times(fua_us), writeback_ppm: 0, ..DiskOptions::default() };
    SimDisk::new(seed, options)
}

fn options() -> Options {
    Options::new().segment_bytes(64 << 10).record_bytes_max(8 << 10).own_thread(false)
}

/// A log, and what its trials have found.
struct Opened {
    log: Log,
    disk: SimDisk,
    found: Arc<Mutex<Vec<Tried>>>,
}

impl Opened {
    fn on(disk: SimDisk, options: Options) -> Self {
        let found = Arc::<Mutex<Vec<Tried>>>::default();
        let told = Arc::clone(&found);
        let options = options.listener(move |event| {
            if let Event::Tried(tried) = event {
                told.lock().unwrap().push(*tried);
            }
        });
        let log = Log::open_in(&disk.directory("/log"), options).unwrap();
        Self { log, disk, found }
    }

    fn found(&self) -> Vec<Tried> {
        self.found.lock().unwrap().clone()
    }

    /// Commits small records until another trial is over; returns what it has found.
    fn until_tried(&self) -> Tried {
        let before = self.found().len();
        for _ in 0..2000 {
            self.log.append_durable(&[7; 100]).unwrap();
            if let Some(tried) = self.found().get(before) {
                return *tried;
            }
        }
        panic!("no trial ends in 2000 commits: {}", self.log.choice());
    }

    /// How a commit of so many bytes becomes durable.
    fn durability_of_a_commit(&self, bytes: usize) -> Durability {
        let before = self.disk.counters();
        self.log.append_durable(&vec![7; bytes]).unwrap();
        let Counters { fua_writes, dsync_writes, data_syncs, flushes, .. } =
            self.disk.counters().since(&before);
        match (fua_writes, dsync_writes, data_syncs, flushes) {
            (1, 1, 0, 0) => Durability::RwfDsync,
            (0, 0, 1, 1) => Durability::Fdatasync,
            other => panic!("a commit that is neither: {other:?}"),
        }
    }
}

/// What is kept in each of so many openings on such a device, and the commits of all trials.
fn kept(fua_us: u64, openings: u64) -> (usize, usize) {
    kept_with(options, fua_us, openings)
}

fn kept_with(options: fn() -> Options, fua_us: u64, openings: u64) -> (usize, usize) {
    let (mut syncs, mut commits) = (0, 0);
    for seed in 0..openings {
        let opened = Opened::on(disk(seed, fua_us), options());
        let tried = opened.until_tried();
        // Now and then a record crosses from one block to the next, and does not count.
        let records = opened.log.stats().records as usize;
        let counted = 2 * tried.pairs;
        assert!((counted..=counted + 2).contains(&records), "{records} commits for {counted}");
        assert_eq!(opened.durability_of_a_commit(100), tried.kept);
        syncs += usize::from(tried.kept == Durability::Fdatasync);
        commits += 2 * tried.pairs;
    }
    println!("FUA write {fua_us} us: {syncs} of {openings} take a sync, {commits} commits");
    (syncs, commits)
}

#[test]
fn a_device_whose_fua_write_is_three_times_as_slow_gets_a_write_and_a_sync() {
    let (syncs, commits) = kept(600, OPENINGS);
    assert_eq!(syncs, 100, "of 100 openings");
    assert!(commits < 100 * 32, "{commits} commits");
}

#[test]
fn a_device_whose_fua_write_is_twice_as_fast_keeps_it() {
    let (syncs, commits) = kept(100, OPENINGS);
    assert_eq!(syncs, 0, "of 100 openings");
    assert!(commits < 100 * 48, "{commits} commits");
}

#[test]
fn where_both_take_as_long_the_rules_way_is_kept() {
    let (syncs, commits) = kept(200, 10 * OPENINGS);
    assert!(syncs <= 10, "{syncs} of 1000 openings");
    assert!(commits <= 1000 * 64, "{commits} commits");
}

#[test]
fn a_device_that_changes_while_the_log_runs_is_tried_again() {
    for seed in 0..OPENINGS {
        let opened = Opened::on(disk(seed, 100), options());
        assert_eq!(opened.until_tried().kept, Durability::RwfDsync, "seed {seed}");
        opened.disk.change_options(|options| options.times = times(600));
        let segments = opened.log.stats().segments;
        assert_eq!(opened.until_tried().kept, Durability::Fdatasync, "seed {seed}");
        assert!(opened.log.stats().segments > segments, "at a change of the segment");
        assert_eq!(opened.durability_of_a_commit(100), Durability::Fdatasync);
        // Now the sync is what is slow.
        opened.disk.change_options(|options| {
            options.times = times(600).map(|times| Times { flush: 20 * times.flush, ..times });
        });
        assert_eq!(opened.until_tried().kept, Durability::RwfDsync, "seed {seed}");
        assert_eq!(opened.durability_of_a_commit(100), Durability::RwfDsync);
    }
}

#[test]
fn a_device_that_stays_as_it_is_is_tried_once() {
    for (seed, fua_us) in [(1, 600), (2, 100), (3, 200)] {
        let opened = Opened::on(disk(seed, fua_us), options());
        while opened.log.stats().segments < 20 {
            opened.log.append_durable(&[7; 100]).unwrap();
        }
        assert_eq!(opened.found().len(), 1, "FUA write {fua_us} us");
    }
}

#[test]
fn the_choice_says_what_is_tried_and_what_was_found() {
    let opened = Opened::on(disk(1, 600), options());
    let choice = opened.log.choice();
    assert_eq!(
        (choice.trial, choice.strategy.durability),
        (Some(Trial::Runs), Durability::RwfDsync)
    );
    assert!(choice.reason.ends_with("is faster than a write and an fdatasync"), "{choice}");
    let tried = opened.until_tried();
    let choice = opened.log.choice();
    assert_eq!(choice.trial, Some(Trial::Found(tried)));
    assert_eq!(choice.strategy.durability, Durability::Fdatasync);
    assert!(choice.reason.ends_with("so fdatasync is kept"), "{choice}");
    assert!(tried.rwf_dsync > 2 * tried.fdatasync, "{tried}");
}

/// Only commits of one block are compared. Larger ones, and those of the log's own, take the way
/// that is kept.
#[test]
fn larger_commits_take_the_kept_way_and_do_not_count() {
    let opened = Opened::on(disk(1, 600), options());
    for _ in 0..5 {
        assert_eq!(opened.durability_of_a_commit(5000), Durability::RwfDsync);
    }
    assert_eq!(opened.found(), []);
    opened.until_tried();
    assert_eq!(opened.durability_of_a_commit(5000), Durability::Fdatasync);
}

#[test]
fn nothing_is_tried_where_the_rule_knows_or_the_options_say() {
    let fua = disk(1, 600);
    let plain = disk(2, 600);
    plain.change_options(|options| options.has_fua = false);
    let told_nothing = disk(3, 600);
    told_nothing.change_options(|options| options.times = None);
    let cached = disk(4, 600);
    cached.change_options(|options| options.has_direct = false);
    let direct = |options: Options| options.access(Access::Direct);
    for (disk, options) in [
        (&plain, options()),
        (&told_nothing, direct(options())),
        (&cached, options()),
        (&fua, options().durability(Durability::RwfDsync)),
        (&fua, options().durability(Durability::Fdatasync)),
        (&fua, options().access(Access::Buffered)),
    ] {
        let opened = Opened::on(disk.clone(), options);
        let choice = opened.log.choice();
        assert_eq!(choice.trial, None, "{choice}");
        for _ in 0..100 {
            opened.log.append_durable(&[7; 100]).unwrap();
        }
        assert_eq!(opened.found(), [], "{choice}");
        let Strategy { durability, .. } = opened.log.choice().strategy;
        let before = disk.counters();
        opened.log.append_durable(&[7; 100]).unwrap();
        let cost = disk.counters().since(&before);
        let by_flag = u64::from(durability == Durability::RwfDsync);
        assert_eq!((cost.dsync_writes, cost.data_syncs), (by_flag, 1 - by_flag), "{choice}");
        opened.log.close().unwrap();
    }
    // Direct access, as the rule says, too, leaves the durability open.
    assert_eq!(Opened::on(fua, direct(options())).log.choice().trial, Some(Trial::Runs));
}

#[cfg(inkstone_mistakes)]
mod mistaken {
    use inkstone::mistake::Mistake;

    use super::*;

    #[test]
    fn a_trial_that_keeps_the_slower_way_is_caught() {
        let mistaken = || options().with_mistake(Mistake::TrialKeepsSlower);
        assert_eq!(kept_with(mistaken, 600, 10).0, 0);
        assert_eq!(kept_with(mistaken, 100, 10).0, 10);
    }
}
