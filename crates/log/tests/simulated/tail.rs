//! The tail: what was written last is read from memory, by followers and by LSN, and nothing else
//! changes by that.
//!
//! *Owns*: reads counted while a follower keeps up, followers that fall behind and come back,
//! memory bounded, cuts and failures with a follower. Allocations are counted in `allocations.rs`,
//! interleavings explored by `.ci/explore`.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::caught::{LOST, SAMPLES, WRONG, check_cut};
use crate::history::{Told, disk, open, record, small};
use inkstone::{Cursor, Error, Log, Lsn, Options};
use inkstone_sim::shrink::seeds;
use inkstone_sim::{
    AfterEffect, Counters, DiskOptions, Effect, Fault, OperationKind, SimDisk, errno,
};

/// A group of this is handed over, not copied, where the tail has a mebibyte.
const LARGE: usize = 30_000;

fn next(cursor: &mut Cursor) -> Option<(u64, Vec<u8>)> {
    cursor.next().unwrap().map(|record| (record.lsn.get(), record.bytes.to_vec()))
}

/// Small groups are copied and large ones handed over; batches, padding, control groups and segment
/// changes come in between.
#[test]
fn a_follower_that_keeps_up_and_a_get_of_what_is_new_read_nothing() {
    for pads in [false, true] {
        let disk = SimDisk::new(1, DiskOptions { writeback_ppm: 0, ..DiskOptions::default() });
        let options = small().record_bytes_max(LARGE).buffer_bytes(64 << 10).tail_bytes(1 << 20);
        let log = open(&disk, options.pad_groups(pads)).unwrap();
        let reader = log.reader();
        let mut cursor = reader.from(Lsn::FIRST);
        let mut written = Vec::new();
        while log.stats().segments < 12 {
            let first = written.len();
            let count = if first % 7 == 3 { 3 } else { 1 };
            let is_large = first % 17 == 0;
            written.extend((0..count).map(|_| {
                if is_large { vec![first as u8; LARGE / count - 100] } else { record(first as u64) }
            }));
            log.append_batch(&written[first..]).unwrap().wait().unwrap();
            if first % 40 == 30 {
                log.truncate_before(Lsn::new(first as u64 - 20)).unwrap();
            }
            let before = disk.counters();
            for (lsn, bytes) in (1..).zip(&written).skip(first) {
                assert_eq!(next(&mut cursor).as_ref(), Some(&(lsn, bytes.clone())));
            }
            assert!(cursor.next().unwrap().is_none());
            assert_eq!(
                disk.counters().since(&before),
                Counters::default(),
                "pads: {pads}, after {first}"
            );
            for index in [written.len() - 1, first.saturating_sub(9)] {
                assert!(reader.get(Lsn::new(index as u64 + 1)).unwrap() == written[index]);
            }
            // A file may be opened, in case it is needed.
            assert_eq!(disk.counters().since(&before).reads, 0, "get after {first}");
        }
        assert!(written.len() > 100, "{}", written.len());
    }
}

/// One write and one sync, as without a reader.
#[test]
fn a_follower_adds_no_operation_to_a_commit() {
    let cost = |follows: bool| {
        let disk = SimDisk::new(1, DiskOptions { writeback_ppm: 0, ..DiskOptions::default() });
        let log = open(&disk, small()).unwrap();
        let mut cursor = follows.then(|| log.reader().from(Lsn::FIRST));
        let before = disk.counters();
        for lsn in 1..=1000 {
            log.append_durable(&record(lsn)).unwrap();
            if let Some(cursor) = &mut cursor {
                assert_eq!(next(cursor), Some((lsn, record(lsn))));
            }
        }
        disk.counters().since(&before)
    };
    let alone = cost(false);
    assert!(alone.writes > 1000 && alone.reads == 0, "{alone:?}");
    assert_eq!(cost(true), alone);
}

/// What cursors hold that have stopped is counted, and takes from the others only what it must.
#[test]
fn memory_is_bounded_also_by_readers_that_hold_some() {
    const TAIL: usize = 64 << 10;
    let disk = disk(3);
    let log = open(&disk, small().tail_bytes(TAIL)).unwrap();
    assert_eq!(log.stats().tail_bytes, 0);
    (1..=50).for_each(|lsn| drop(log.append(&record(lsn)).unwrap()));
    log.sync().unwrap();
    assert_eq!(log.stats().tail_bytes, 0, "nobody reads");
    let reader = log.reader();
    let mut held = Vec::new();
    let (mut last, mut most) = (50, 0);
    let mut append = |count: u64| {
        for _ in 0..count {
            last += 1;
            log.append_durable(&record(last)).unwrap();
            most = most.max(log.stats().tail_bytes);
        }
        (last, std::mem::take(&mut most))
    };
    assert!((TAIL as u64 / 2..=TAIL as u64).contains(&append(400).1), "without readers");
    for _ in 0..40 {
        let (last, _) = append(20);
        let mut cursor = reader.from(Lsn::new(last - 1));
        assert_eq!(next(&mut cursor), Some((last - 1, record(last - 1))));
        held.push(cursor);
    }
    // A chunk is a sixteenth; one is kept in any case.
    let chunk = TAIL as u64 / 16;
    let (last, most) = append(400);
    assert!(most > TAIL as u64 && most <= 42 * chunk, "{most}");
    let mut cursor = reader.from(Lsn::new(last));
    let before = disk.counters();
    assert_eq!(next(&mut cursor), Some((last, record(last))));
    assert_eq!(disk.counters().since(&before).reads, 0, "the newest group is there in any case");
    held.clear();
    drop(cursor);
    append(400);
    assert!(append(1).1 <= TAIL as u64, "given back");
}

/// A log with cursors at several paces, and what it should show.
struct Model {
    disk: SimDisk,
    log: Log,
    random: fastrand::Rng,
    /// Every record that was not truncated.
    records: BTreeMap<u64, Vec<u8>>,
    count: u64,
    cursors: Vec<(Cursor, u64)>,
    /// Records shown without a read of a file, and with one.
    shown: (u64, u64),
    /// The highest that was shown since the last cut.
    seen: u64,
    /// What a cut was to leave that failed: a crash may find it done.
    cut_in_doubt: u64,
}

impl Model {
    fn new(seed: u64, options: Options) -> Self {
        let disk = disk(seed);
        let log = open(&disk, options).unwrap();
        let reader = log.reader();
        let cursors = (0..3).map(|_| (reader.from(Lsn::FIRST), 1)).collect();
        let random = fastrand::Rng::with_seed(seed);
        Self {
            disk,
            log,
            random,
            records: BTreeMap::new(),
            count: 0,
            cursors,
            shown: (0, 0),
            seen: 0,
            cut_in_doubt: u64::MAX,
        }
    }

    fn bytes(&mut self) -> Vec<u8> {
        self.count += 1;
        let len = match self.random.u8(..12) {
            0 => self.random.usize(2000..7000),
            _ => self.random.usize(8..300),
        };
        (0..len as u64)
            .map(|at| ((at * 31) ^ (self.count * 97) ^ (self.count >> 5)) as u8)
            .collect()
    }

    fn append(&mut self, count: u64) -> Result<(), Error> {
        for _ in 0..count {
            let bytes = self.bytes();
            drop(self.log.append(&bytes)?);
            self.records.insert(self.log.last().get(), bytes);
        }
        Ok(())
    }

    fn read(&mut self, index: usize, most: u64) -> Result<(), String> {
        for _ in 0..most {
            let (cursor, expected) = &mut self.cursors[index];
            let before = self.disk.counters();
            match cursor.next() {
                Ok(None) => {
                    if *expected <= self.log.durable().get() {
                        return Err(format!("record {expected} is durable and not shown"));
                    }
                    return Ok(());
                }
                Ok(Some(shown)) => {
                    let lsn = shown.lsn.get();
                    if lsn != *expected {
                        return Err(format!("record {lsn} is shown where {expected} comes next"));
                    }
                    if self.records.get(&lsn).is_none_or(|bytes| bytes != shown.bytes) {
                        return Err(format!("record {lsn} {WRONG}"));
                    }
                    if lsn > self.log.durable().get() {
                        return Err(format!("record {lsn} is shown above the watermark"));
                    }
                    *expected += 1;
                    self.seen = self.seen.max(lsn);
                    let is_read = self.disk.counters().since(&before).reads > 0;
                    if is_read { self.shown.1 += 1 } else { self.shown.0 += 1 }
                }
                Err(Error::TruncatedBefore { first, .. }) => {
                    assert!(first.get() > *expected);
                    cursor.seek(first);
                    *expected = first.get();
                }
                Err(Error::TruncatedAfter { last, .. }) => {
                    assert!(last.get() < *expected);
                    *expected = last.get() + 1;
                }
                Err(error) => return Err(error.to_string()),
            }
        }
        Ok(())
    }

    fn get(&mut self) -> Result<(), String> {
        let lsn = self.log.last().get().saturating_sub(self.random.u64(..60)).max(1);
        match (self.log.reader().get(Lsn::new(lsn)), self.records.get(&lsn)) {
            (Ok(bytes), Some(wanted)) if bytes == *wanted && lsn <= self.log.durable().get() => {
                Ok(())
            }
            (Err(Error::NotYet { .. }), _) if lsn > self.log.durable().get() => Ok(()),
            (Err(Error::TruncatedBefore { .. }), _) if lsn < self.log.first().get() => Ok(()),
            (found, _) => Err(format!("get of record {lsn}: {:?}", found.map(|bytes| bytes.len()))),
        }
    }

    /// One random thing; an error of the log itself ends the history.
    fn step(&mut self) -> Result<Result<(), Error>, String> {
        let index = self.random.usize(..3);
        let done = match self.random.u8(..40) {
            0..=11 => {
                let count = self.random.u64(1..20);
                self.append(count)
            }
            12..=19 => {
                let appended = self.append(1);
                appended.and_then(|()| self.log.sync().map(drop))
            }
            20 => {
                let batch: Vec<_> =
                    (0..self.random.usize(2..6)).map(|_| vec![self.random.u8(..); 50]).collect();
                let first = self.log.last().get() + 1;
                let done = self.log.append_batch(&batch).map(drop);
                if done.is_ok() {
                    self.records.extend((first..).zip(batch));
                }
                done
            }
            21 if self.random.bool() => {
                let last = self.log.last().get().saturating_sub(self.random.u64(..80));
                let last = last.max(self.log.first().get().saturating_sub(1));
                let done = self.log.truncate_after(Lsn::new(last));
                if done.is_ok() {
                    drop(self.records.split_off(&(last + 1)));
                    self.seen = self.seen.min(last);
                } else {
                    self.cut_in_doubt = last;
                }
                done
            }
            22 => {
                let first = self.log.last().get().saturating_sub(self.random.u64(..200)).max(1);
                self.log.truncate_before(Lsn::new(first))
            }
            23 => self.log.prepare_now(),
            24..=28 => {
                self.get()?;
                Ok(())
            }
            // The first one mostly keeps up; the last one mostly does not.
            29..=34 => {
                self.read(0, u64::MAX)?;
                Ok(())
            }
            35..=37 => {
                let most = self.random.u64(1..60);
                self.read(index, most)?;
                Ok(())
            }
            38 => {
                self.read(2, u64::MAX)?;
                Ok(())
            }
            _ => self.log.sync().map(drop),
        };
        Ok(done)
    }

    /// After a crash, what was shown and what was durable is there.
    fn check_crash(&self, options: &Options, seed: u64) -> Result<(), String> {
        self.disk.clear_faults();
        let cut = self.disk.power_cut();
        let told = self.log.durable().get().max(self.seen).min(self.cut_in_doubt);
        for sample in 0..SAMPLES {
            let found = open(&cut.sample(seed ^ sample << 20), options.clone())
                .map_err(|error| format!("it does not open: {error}"))?;
            let mut last = found.first().get() - 1;
            for shown in found.reader().records(found.first()) {
                let shown = shown.map_err(|error| format!("a record cannot be read: {error}"))?;
                last = shown.lsn.get();
                if self.records.get(&last) != Some(&shown.bytes) {
                    return Err(format!("record {last} {WRONG}"));
                }
            }
            if last < told {
                return Err(format!("{told} {LOST} {last} are there"));
            }
            found.abandon();
        }
        Ok(())
    }
}

fn options_of(seed: u64) -> Options {
    let tail_bytes = [0, 8 << 10, 32 << 10, 100 << 10, 256 << 10, 4 << 20][(seed % 6) as usize];
    small()
        .tail_bytes(tail_bytes)
        .pad_groups(seed.is_multiple_of(7))
        .free_segments_max((seed % 3) as usize)
}

#[test]
fn followers_that_fall_behind_and_come_back_miss_nothing_and_see_nothing_twice() {
    let (mut from_memory, mut from_files) = (0, 0);
    for seed in seeds(1, 90) {
        let options = options_of(seed);
        let mut model = Model::new(seed, options.clone());
        let fails_at = if seed % 3 == 0 { 150 } else { u64::MAX };
        let mut run = || -> Result<(), String> {
            for step in 0..250 {
                if step == fails_at {
                    let after =
                        [AfterEffect::KeepsNew, AfterEffect::RevertsToOld][(seed / 6 % 2) as usize];
                    let fault = match seed % 2 {
                        0 => {
                            Fault::new(Effect::SyncFails(errno::EIO, after)).on(OperationKind::Sync)
                        }
                        _ => Fault::new(Effect::Error(errno::EIO)).on(OperationKind::Write),
                    };
                    model.disk.inject(fault);
                }
                match model.step()? {
                    Ok(()) => {}
                    Err(Error::Poisoned(_)) if step >= fails_at => break,
                    Err(Error::Io(_)) if step >= fails_at => break,
                    Err(error) => return Err(error.to_string()),
                }
            }
            model.disk.clear_faults();
            (0..3).try_for_each(|index| model.read(index, u64::MAX))?;
            model.check_crash(&options, seed)
        };
        run().unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        if seed % 6 == 0 {
            assert!(model.shown.1 > 0, "without a tail");
        } else {
            from_memory += model.shown.0;
            from_files += model.shown.1;
        }
    }
    println!("{from_memory} records without a read, {from_files} with one");
    assert!(from_memory > 20_000 && from_files > 200, "{from_memory}, {from_files}");
}

/// A sync fails: the group is in no reader's hands.
fn with_a_failed_sync(options: Options, seed: u64) -> Result<(), String> {
    let disk = disk(seed);
    let log = open(&disk, options.clone()).unwrap();
    let mut cursor = log.reader().from(Lsn::FIRST);
    crate::history::append(&log, 1, 3)?;
    disk.inject(
        Fault::new(Effect::SyncFails(errno::EIO, AfterEffect::KeepsNew)).on(OperationKind::Sync),
    );
    assert!(log.append_durable(&record(4)).is_err());
    let mut shown = 0;
    while let Ok(Some(record)) = cursor.next() {
        shown = record.lsn.get();
    }
    for lsn in 1..=4 {
        shown = if log.reader().get(Lsn::new(lsn)).is_ok() { shown.max(lsn) } else { shown };
    }
    if shown < 3 {
        return Err(format!("only {shown} are shown"));
    }
    assert!(matches!(cursor.next_within(Duration::ZERO), Ok(Some(_)) | Err(Error::Poisoned(_))));
    log.abandon();
    disk.clear_faults();
    check_cut(&disk.power_cut(), &options, seed, Told { acked: shown, appended: 4 })
}

#[test]
fn a_group_whose_sync_failed_is_not_shown() {
    seeds(1, 30).for_each(|seed| with_a_failed_sync(small(), seed).unwrap());
}

/// Records that were cut off lie in several buffers of the tail; others get their LSNs.
fn with_a_cut(options: Options, seed: u64) -> Result<(), String> {
    let (disk, options) = (disk(seed), options.tail_bytes(128 << 10));
    let log = open(&disk, options).unwrap();
    let reader = log.reader();
    let mut cursor = reader.from(Lsn::FIRST);
    crate::history::append(&log, 1, 40 + seed)?;
    while cursor.next().map_err(|error| error.to_string())?.is_some() {}
    log.truncate_after(Lsn::new(20)).unwrap();
    let other = |lsn: u64| vec![!(lsn as u8); 100];
    (21..=40).for_each(|lsn| assert_eq!(log.append_durable(&other(lsn)).unwrap(), Lsn::new(lsn)));
    assert!(matches!(cursor.next(), Err(Error::TruncatedAfter { .. })));
    for lsn in 21..=40 {
        let shown = cursor.next().map_err(|error| error.to_string())?;
        if shown.is_none_or(|shown| shown.lsn.get() != lsn || shown.bytes != other(lsn)) {
            return Err(format!("record {lsn} {WRONG}"));
        }
        if reader.get(Lsn::new(lsn)).unwrap() != other(lsn) {
            return Err(format!("record {lsn} {WRONG}"));
        }
    }
    Ok(())
}

#[test]
fn what_was_cut_off_is_not_shown_again() {
    seeds(1, 30).for_each(|seed| with_a_cut(small(), seed).unwrap());
}

/// On a real file: writers that wait, one that does not, followers that keep up and one that sleeps
/// now and then.
#[test]
fn followers_beside_writers_on_threads() {
    const EACH: u64 = 1500;
    let directory = tempfile::tempdir().unwrap();
    let options = Options::new()
        .buffer_bytes(128 << 10)
        .tail_bytes(1 << 20)
        .segment_bytes(4 << 20)
        .record_bytes_max(1 << 20);
    let log = Log::open(directory.path().join("log"), options).unwrap();
    let reader = log.reader();
    let (total, is_done) = (AtomicU64::new(0), AtomicBool::new(false));
    // Who wrote it, its number, and as many bytes more as these say.
    let bytes = |writer: u64, number: u64| {
        let mut bytes = [writer.to_le_bytes(), number.to_le_bytes()].concat();
        bytes.resize(
            16 + (number * 37 % 300) as usize + usize::from(number % 500 == 3) * 200_000,
            writer as u8,
        );
        bytes
    };
    let follow = |sleeps: bool| {
        let mut cursor = reader.from(Lsn::FIRST);
        let (mut next, mut of_writer) = (1, [0_u64; 4]);
        loop {
            let is_over = is_done.load(Ordering::Acquire);
            let Some(shown) = cursor.next_within(Duration::from_millis(20)).unwrap() else {
                if is_over && next > total.load(Ordering::Acquire) {
                    return of_writer;
                }
                continue;
            };
            assert_eq!(shown.lsn.get(), next);
            next += 1;
            let number =
                |at: usize| u64::from_le_bytes(shown.bytes[at..at + 8].try_into().unwrap());
            let (writer, count) = (number(0), number(8));
            assert_eq!(count, of_writer[writer as usize], "out of order");
            assert!(shown.bytes == bytes(writer, count), "record {}", next - 1);
            of_writer[writer as usize] += 1;
            if sleeps && next % 2000 == 0 {
                std::thread::sleep(Duration::from_millis(30));
            }
        }
    };
    std::thread::scope(|scope| {
        let followers: Vec<_> =
            [false, false, true].map(|sleeps| scope.spawn(move || follow(sleeps))).into();
        let log = &log;
        let writers: Vec<_> = (0..4)
            .map(|writer| {
                scope.spawn(move || {
                    let count = if writer == 3 { EACH * 20 } else { EACH };
                    for number in 0..count {
                        let append = log.append(&bytes(writer, number)).unwrap();
                        if writer != 3 {
                            append.wait().unwrap();
                        }
                    }
                    count
                })
            })
            .collect();
        let counts: Vec<u64> = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
        log.sync().unwrap();
        total.store(counts.iter().sum(), Ordering::Release);
        is_done.store(true, Ordering::Release);
        for follower in followers {
            assert_eq!(follower.join().unwrap().to_vec(), counts);
        }
    });
    log.close().unwrap();
}

#[cfg(inkstone_mistakes)]
mod mistaken {
    use inkstone::mistake::Mistake;

    use super::*;
    use crate::caught::caught;
    use crate::history::with;

    #[test]
    fn a_tail_that_shows_what_is_above_the_watermark_shows_what_is_lost() {
        caught(Mistake::TailAboveWatermark, &[LOST], |mistake, seed| {
            with_a_failed_sync(with(mistake), seed)
        });
    }

    #[test]
    fn a_tail_that_is_kept_over_a_cut_shows_what_was_cut_off() {
        caught(Mistake::TailKeptOverCut, &[WRONG], |mistake, seed| with_a_cut(with(mistake), seed));
    }
}
