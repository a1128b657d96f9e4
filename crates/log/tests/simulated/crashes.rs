//! Every crash that the simulated disk can think of, against the public log: nothing acknowledged
//! is lost, nothing shown is taken back, nothing comes that was not appended.
//!
//! *Owns*: which histories are run, and how many states of a disk must have been looked at. *May
//! not touch*: the crate's insides.
//!
//! A state is one disk found after a power cut, opened and wholly read, compared with the model. At
//! least, by test:
//!
//! | test | states |
//! |---|---|
//! | every operation, crashed at every epoch | 95 000 |
//! | crashes while recovering | 135 000 |
//! | every subset where items are few | 75 000 |
//! | segments filled to the last byte | 7 500 |
//! | an error at every operation | 120 000 |
//! | faults at any time | 55 000 |
//! | a full disk | 32 000 |
//! | a bit that rots | 6 000 |
//! | a device that lies once | 1 500 |
//! | threads that append while the power goes | 4 000 |
//! | together | 531 000 |

#![allow(clippy::unwrap_used, reason = "the helpers of a test are a test too")]

use std::sync::Arc;

use inkstone::{Error, Log, Lsn};
use inkstone_powerloss::history::{Op, history};
use inkstone_powerloss::sim::explore::{Effort, Explorer, PATH};
use inkstone_powerloss::sim::fault::{FaultyRun, Trouble};
use inkstone_powerloss::sim::lies::{self, Seen};
use inkstone_powerloss::sim::run::Run;
use inkstone_powerloss::sim::threads;
use inkstone_powerloss::sim::variant::{RECORD_BYTES_MAX, SEGMENT_BYTES, Variant, small, variant};
use inkstone_sim::shrink::{SEED_VARIABLE, TestName, check, seeds};
use inkstone_sim::{
    AfterEffect, DiskOptions, Effect, Fault, FaultRates, OperationKind, SimDisk, errno,
};

/// Where a history fails at many places, a little is looked at in each.
const LITTLE: Effort = Effort { samples: 1, all_of: 0, deep: 7 };

/// A history that fails is made short, and said with the command that runs it.
fn must_hold(
    test: &'static str,
    seed: u64,
    operations: &[Op],
    about: &dyn std::fmt::Debug,
    run: impl FnMut(&[Op], u64) -> Result<(), String>,
) {
    let name = TestName { package: env!("CARGO_PKG_NAME"), target: Some("crashes"), test };
    if let Err(failure) = check(name, seed, operations, run) {
        panic!("{failure}\n{about:?}\n{:?}", variant(seed));
    }
}

/// A test that checks fewer states than it claims is no test.
fn at_least(minimum: u64, states: u64) {
    assert!(
        states >= minimum || std::env::var(SEED_VARIABLE).is_ok(),
        "{states} states, not {minimum}"
    );
}

/// Runs random histories, crashed at every instant.
fn explore(
    test: &'static str,
    seeds: impl Iterator<Item = u64>,
    length: usize,
    effort: Effort,
) -> u64 {
    let mut states = 0;
    for seed in seeds {
        must_hold(test, seed, &history(seed, length), &effort, |operations, seed| {
            states += Run::begin(Explorer::new(variant(seed), effort, seed))?.all(operations)?;
            Ok(())
        });
    }
    states
}

#[test]
fn every_operation_crashed_at_every_epoch() {
    let effort = Effort { samples: 3, all_of: 2, deep: 0 };
    at_least(95_000, explore("every_operation_crashed_at_every_epoch", seeds(1, 1000), 16, effort));
}

#[test]
fn crashes_while_recovering() {
    let effort = Effort { samples: 1, all_of: 1, deep: 2 };
    at_least(135_000, explore("crashes_while_recovering", seeds(10_001, 360), 16, effort));
}

#[test]
fn every_subset_where_items_are_few() {
    let effort = Effort { samples: 2, all_of: 8, deep: 17 };
    at_least(75_000, explore("every_subset_where_items_are_few", seeds(50_001, 42), 8, effort));
}

/// The last record ends exactly where records may end, or a few bytes before or behind it.
#[test]
fn segments_filled_to_the_last_byte() {
    let mut states = 0;
    for (number, size) in (20_200..20_300).step_by(4).enumerate() {
        let seed = 90_001 + number as u64;
        let ends = [Op::Kill, Op::Append(size), Op::LetGo(3), Op::Reopen, Op::TruncateAfter(255)];
        let mut operations = vec![Op::Append(RECORD_BYTES_MAX), Op::Append(size), Op::Append(0)];
        operations.push(ends[number % ends.len()].clone());
        operations.extend([
            Op::TruncateAfter(120),
            Op::Append(size),
            Op::TruncateBefore(255),
            Op::Append(1),
        ]);
        let Variant { mut disk, options, .. } = variant(seed);
        disk.garbage_at_crash = false;
        let options = options.segment_bytes(SEGMENT_BYTES).pad_groups(false);
        let variant = Variant::new(disk, options);
        let effort = Effort { samples: 2, all_of: 4, deep: 5 };
        must_hold(
            "segments_filled_to_the_last_byte",
            seed,
            &operations,
            &size,
            |operations, seed| {
                states +=
                    Run::begin(Explorer::new(variant.clone(), effort, seed))?.all(operations)?;
                Ok(())
            },
        );
    }
    at_least(7_500, states);
}

/// What happened in runs in which something failed.
#[derive(Debug, Default)]
struct Count {
    states: u64,
    refused: u64,
    poisoned: u64,
}

impl Count {
    fn run(
        &mut self,
        seed: u64,
        disk: &SimDisk,
        variant: &Variant,
        trouble: Trouble,
        operations: &[Op],
    ) -> Result<(), String> {
        let explorer = Explorer::new(variant.clone(), LITTLE, seed);
        let mut run = FaultyRun::begin(disk.clone(), explorer, trouble)?;
        run.all(operations)?;
        self.states += run.inner.explorer.states;
        self.refused += run.refused;
        self.poisoned += run.poisoned;
        Ok(())
    }
}

#[test]
fn an_error_at_every_operation() {
    let mut count = Count::default();
    let effects = [
        (None, Effect::Error(errno::EIO)),
        (None, Effect::Error(errno::ENOSPC)),
        (Some(OperationKind::Sync), Effect::SyncFails(errno::EIO, AfterEffect::RevertsToOld)),
        (Some(OperationKind::Write), Effect::ShortThenError(700, errno::EIO)),
    ];
    for seed in seeds(20_001, 3) {
        let (operations, variant) = (history(seed, 12), variant(seed));
        for (kind, effect) in &effects {
            let mut nth = 0;
            let mut is_hit = true;
            while is_hit {
                nth += 1;
                let fault = Fault::new(effect.clone()).nth(nth);
                let fault = kind.map_or(fault.clone(), |kind| fault.on(kind));
                must_hold(
                    "an_error_at_every_operation",
                    seed,
                    &operations,
                    &fault,
                    |operations, seed| {
                        let disk = SimDisk::new(seed, variant.disk);
                        disk.inject(fault.clone());
                        count.run(seed, &disk, &variant, Trouble::Once, operations)?;
                        is_hit = !disk.history().is_empty();
                        Ok(())
                    },
                );
            }
        }
    }
    at_least(120_000, count.states);
    at_least(60, count.poisoned);
    at_least(20, count.refused);
}

#[test]
fn faults_at_any_time() {
    let mut count = Count::default();
    let rates = FaultRates {
        read_error_ppm: 5_000,
        write_error_ppm: 20_000,
        sync_error_ppm: 20_000,
        directory_error_ppm: 10_000,
        no_space_ppm: 20_000,
        short_ppm: 100_000,
    };
    for seed in seeds(30_001, 150) {
        let mut variant = variant(seed);
        variant.disk.rates = rates;
        // Not `ReportsLater`: a sync that lies is beyond any log.
        let after =
            if seed.is_multiple_of(2) { AfterEffect::KeepsNew } else { AfterEffect::RevertsToOld };
        variant.disk.after_effect = Some(after);
        must_hold("faults_at_any_time", seed, &history(seed, 30), &after, |operations, seed| {
            count.run(seed, &SimDisk::new(seed, variant.disk), &variant, Trouble::Often, operations)
        });
    }
    at_least(55_000, count.states);
    at_least(100, count.poisoned);
    at_least(30, count.refused);
}

#[test]
fn a_full_disk() {
    let mut count = Count::default();
    for seed in seeds(40_001, 100) {
        let Variant { mut disk, options, .. } = variant(seed);
        disk.capacity_bytes = Some(SEGMENT_BYTES * (2 + seed % 3) + 4096 * (seed % 16));
        // Padded, four openings of a full disk use up what a segment keeps for control groups.
        disk.garbage_at_crash = false;
        let options = options.segment_bytes(SEGMENT_BYTES).pad_groups(false);
        let variant = Variant::new(disk, options);
        must_hold("a_full_disk", seed, &history(seed, 30), &disk, |operations, seed| {
            count.run(seed, &SimDisk::new(seed, disk), &variant, Trouble::Full, operations)
        });
    }
    at_least(32_000, count.states);
    at_least(200, count.refused);
    assert_eq!(count.poisoned, 0, "no room for a segment is no reason to refuse everything");
}

#[test]
fn a_device_that_lies_once() {
    let [mut states, mut told] = [0_u64; 2];
    for seed in seeds(60_001, 40) {
        let (operations, variant) = (history(seed, 10), variant(seed));
        for is_misdirected in [false, true] {
            let mut nth = 0;
            let mut is_hit = true;
            while is_hit {
                nth += 1;
                let mut rng = fastrand::Rng::with_seed(seed ^ nth);
                let file = rng.bool().then(|| format!("{:020}.ink", rng.u64(1..4)));
                let misdirected = Effect::Misdirected { file, offset: rng.u64(..14) * 4096 };
                let effect = if is_misdirected { misdirected } else { Effect::LostWrite };
                let fault = Fault::new(effect).on(OperationKind::Write).nth(nth);
                must_hold(
                    "a_device_that_lies_once",
                    seed,
                    &operations,
                    &fault,
                    |operations, seed| {
                        let disk = SimDisk::new(seed, variant.disk);
                        disk.inject(fault.clone());
                        let outcome = lies::tell(&disk, &variant, operations)?;
                        is_hit = !disk.history().is_empty();
                        told += u64::from(outcome.is_none_or(|(_, seen)| seen == Seen::Corrupt));
                        states += 1;
                        Ok(())
                    },
                );
            }
        }
    }
    at_least(1_500, states);
    at_least(500, told);
}

#[test]
fn a_bit_that_rots() {
    let [mut states, mut told] = [0_u64; 2];
    for seed in seeds(70_001, 60) {
        let variant = variant(seed);
        must_hold(
            "a_bit_that_rots",
            seed,
            &history(seed, 14),
            &variant.options,
            |operations, seed| {
                let disk = SimDisk::new(seed, variant.disk);
                let Some((model, Seen::Whole)) = lies::tell(&disk, &variant, operations)? else {
                    return Err("it is not whole".into());
                };
                let mut rng = fastrand::Rng::with_seed(seed);
                for _ in 0..100 {
                    let found = disk.crash(rng.u64(..));
                    let what = lies::rot(&found, &mut rng);
                    let seen = lies::look(&found, &variant, &model)
                        .map_err(|why| format!("{what}: {why}"))?;
                    if seen == Seen::Less {
                        return Err(format!("{what}, and something is missing"));
                    }
                    states += 1;
                    told += u64::from(seen == Seen::Corrupt);
                }
                Ok(())
            },
        );
    }
    at_least(6_000, states);
    at_least(3_000, told);
}

/// The scheduler has a say here: the seed alone does not bring a failure back.
#[test]
fn threads_that_append_while_the_power_goes() {
    let mut states = 0;
    for seed in seeds(80_001, 12) {
        let variant = variant(seed);
        match threads::run(seed, &variant, 4) {
            Ok(more) => states += more,
            Err(reason) => panic!("seed {seed:#x}: {reason}\n{variant:?}"),
        }
    }
    at_least(4_000, states);
}

/// A rename that failed left the new file in the way of every later attempt: the log took no more
/// until it was opened again, which is what `NoRoom` and its like promise not to need.
#[test]
fn a_rename_that_fails_is_tried_again_with_the_next_append() {
    for recycles in [false, true] {
        let disk = SimDisk::new(1, DiskOptions::default());
        let log = Log::open_in(Arc::new(disk.directory(PATH)), small()).unwrap();
        let record = [7; RECORD_BYTES_MAX];
        log.append_durable(&record).unwrap();
        if recycles {
            log.append_durable(&record).unwrap();
            log.truncate_before(Lsn::new(2)).unwrap();
        }
        disk.inject(Fault::new(Effect::Error(errno::EIO)).on(OperationKind::Rename));
        // The first attempt to take its file away fails too.
        disk.inject(Fault::new(Effect::Error(errno::EIO)).on(OperationKind::Remove));
        let made = disk.counters().creations;
        assert!(matches!(log.append(&record), Err(Error::Io(_))));
        let last = log.append_durable(&record).unwrap();
        assert_eq!(last, log.last());
        assert_eq!(
            disk.counters().creations - made,
            if recycles { 0 } else { 2 },
            "the file's blocks are not lost"
        );
        assert_eq!(log.reader().get(last).unwrap(), record);
    }
}

/// A device that fails a flush may have dropped the log's own writes from its cache, and the next
/// flush reports nothing about them. It does not matter that the flush was for a file that nothing
/// relies on yet. It does matter whether the disk was only full.
#[test]
fn a_failed_sync_of_a_file_made_ahead_poisons_and_a_full_disk_does_not() {
    for (errno, poisons) in [(errno::EIO, true), (errno::ENOSPC, false)] {
        let disk = SimDisk::new(1, DiskOptions::default());
        let log = Log::open_in(Arc::new(disk.directory(PATH)), small()).unwrap();
        log.append_durable(b"before").unwrap();
        disk.inject(Fault::new(Effect::Error(errno)).on(OperationKind::Sync).file(".new"));
        let error = log.prepare_now().unwrap_err();
        assert_eq!(matches!(error, Error::Poisoned(_)), poisons, "{error}");
        assert_eq!(log.append_durable(b"after").is_err(), poisons);
        assert_eq!(log.reader().get(Lsn::FIRST).unwrap(), b"before");
    }
}
