//! Reading by LSN and reading ahead: what comes is what was appended, or the error that names the
//! place; and a read that fails among several in flight takes nothing with it that came before.
//!
//! *Owns*: what `Reader::get` shows, cursors with several reads in flight, `verify` with several
//! threads. What a search costs is `finding.rs`; reading beside a living writer of another process
//! is `beside_sim.rs`.

use std::path::PathBuf;
use std::sync::Arc;

use crate::history::{LOG, name, small};
use inkstone::{Error, Log, Lsn, Options, Reader, inspect};
use inkstone_io::{Access, File as _, OpenFile, OsFile, SyncKind};
use inkstone_sim::shrink::seeds;
use inkstone_sim::{
    DiskOptions, Effect, Fate, Fault, Item, ItemKind, OperationKind, SimDisk, errno,
};

const KIB: usize = 1 << 10;
const SEGMENT: u64 = 2 << 20;

fn options() -> Options {
    Options::new()
        .segment_bytes(SEGMENT)
        .record_bytes_max(1 << 20)
        .buffer_bytes(64 * KIB)
        .own_thread(false)
}

/// Mostly small; one in fifty across a piece that is read.
fn record(lsn: u64) -> Vec<u8> {
    let len = if lsn % 50 == 7 { 150_000 } else { 100 + lsn * 131 % 900 };
    (0..len).map(|at| (at ^ (lsn * 7)) as u8).collect()
}

fn open(disk: &SimDisk) -> Log {
    Log::open_in(Arc::new(disk.directory(LOG)), options()).unwrap()
}

fn read(disk: &SimDisk) -> Reader {
    Reader::open_in(Arc::new(disk.directory(LOG)), options()).unwrap()
}

/// A closed log of several segments, read by several reads in flight.
fn large(last: u64) -> SimDisk {
    let disk = SimDisk::new(3, DiskOptions::default());
    let log = open(&disk);
    for lsn in 1..=last {
        let append = log.append(&record(lsn)).unwrap();
        if lsn % 13 == 0 {
            append.wait().unwrap();
        }
    }
    log.close().unwrap();
    disk
}

fn check_all(reader: &Reader, first: u64, last: u64) {
    let mut cursor = reader.from(Lsn::new(first));
    for lsn in first..=last {
        let shown = cursor.next().unwrap().unwrap();
        assert_eq!(shown.lsn.get(), lsn);
        assert!(shown.bytes == record(lsn), "record {lsn}");
    }
    assert!(cursor.next().unwrap().is_none());
}

#[test]
fn every_record_is_found_by_its_lsn_in_any_order() {
    const LAST: u64 = 3000;
    let disk = large(LAST);
    let reader = read(&disk);
    check_all(&reader, 1, LAST);
    let mut random = fastrand::Rng::with_seed(5);
    for _ in 0..2 * LAST {
        let lsn = random.u64(1..=LAST);
        assert!(reader.get(Lsn::new(lsn)).unwrap() == record(lsn), "record {lsn}");
    }
    // In order and backwards, by readers that know nothing yet.
    for reader in [read(&disk), read(&disk)] {
        (1..=LAST).for_each(|lsn| assert!(reader.get(Lsn::new(lsn)).unwrap() == record(lsn)));
    }
    let reader = read(&disk);
    (1..=LAST).rev().for_each(|lsn| assert!(reader.get(Lsn::new(lsn)).unwrap() == record(lsn)));
    assert!(matches!(reader.get(Lsn::new(LAST + 1)), Err(Error::NotYet { .. })));
    assert!(matches!(reader.get(Lsn::ZERO), Err(Error::Invalid(_))), "no record has it");
}

/// A crash leaves a torn group, and another epoch is written over it, with records of the same size
/// at the same places. The disk loses one write of that epoch, so that the torn group shows there:
/// a search that begins in it shows no record that is not part of the log.
#[test]
fn a_lost_write_over_a_torn_group_is_damage_also_where_a_search_begins() {
    const KEPT: u64 = 100;
    const GROUP: u64 = 60;
    let record = |lsn: u64, epoch: u8| [&[epoch; 400][..], &lsn.to_le_bytes()].concat();
    let options = || options().buffer_bytes(1 << 20).access(Access::Direct);
    let open = |disk: &SimDisk| Log::open_in(Arc::new(disk.directory(LOG)), options()).unwrap();
    let append = |log: &Log, lsns: std::ops::RangeInclusive<u64>, epoch: u8| {
        let appends: Vec<_> = lsns.map(|lsn| log.append(&record(lsn, epoch)).unwrap()).collect();
        appends.into_iter().for_each(|append| assert!(append.wait().is_ok()));
    };
    let disk = SimDisk::new(1, DiskOptions::default());
    let log = open(&disk);
    append(&log, 1..=KEPT, 1);
    disk.record_epochs();
    append(&log, KEPT + 1..=1400, 1);
    log.abandon();
    let in_flight = disk.take_epochs().pop().unwrap();
    let place = |item: &Item| match item.what {
        ItemKind::Sector { offset, .. } => offset,
        _ => 0,
    };
    let first = in_flight.items().iter().map(place).min().unwrap();
    let disk = in_flight.state(|_, item| match place(item) < first + 4096 {
        true => Fate::Dropped,
        false => Fate::Kept,
    });
    let log = open(&disk);
    assert_eq!(log.last().get(), KEPT);
    let mut last = KEPT;
    for group in 1..60 {
        if group == 5 {
            disk.inject(Fault::new(Effect::LostWrite).on(OperationKind::Write));
        }
        append(&log, last + 1..=last + GROUP, 2);
        last += GROUP;
    }
    log.close().unwrap();
    let mut damaged = 0;
    for lsn in (1..=1400).step_by(3) {
        match read(&disk).get(Lsn::new(lsn)) {
            Ok(shown) => assert!(shown == record(lsn, 1 + u8::from(lsn > KEPT)), "record {lsn}"),
            Err(Error::Corrupt(_)) => damaged += 1,
            Err(error) => panic!("record {lsn}: {error}"),
        }
    }
    assert!(damaged >= GROUP / 3 - 1, "{damaged}");
}

/// Reads past the first few are in flight together; one of them fails.
#[test]
fn a_read_that_fails_among_several_takes_nothing_before_it() {
    const LAST: u64 = 3000;
    let mut failed = 0;
    for nth in [4, 9, 11, 14] {
        let disk = large(LAST);
        // A reader beside another process would read again by itself.
        let log = open(&disk);
        let mut cursor = log.reader().from(Lsn::FIRST);
        let mut next = 1;
        disk.inject(
            Fault::new(Effect::Error(errno::EIO)).on(OperationKind::Read).file(".ink").nth(nth),
        );
        let mut failures = 0;
        while next <= LAST {
            match cursor.next() {
                Ok(shown) => {
                    let shown = shown.unwrap();
                    assert!(
                        shown.lsn.get() == next && shown.bytes == record(next),
                        "record {next}"
                    );
                    next += 1;
                }
                Err(Error::Io(error)) => {
                    assert!(
                        error.path().to_string_lossy().ends_with(".ink")
                            && error.offset().is_some(),
                        "{error}"
                    );
                    failures += 1;
                }
                Err(error) => panic!("{error}"),
            }
        }
        assert!(failures <= 1, "{failures}");
        failed += failures;
    }
    assert!(failed >= 3, "{failed} reads failed");
}

/// A closed log in a real directory, in which bits flip.
struct Flippable {
    directory: tempfile::TempDir,
}

impl Flippable {
    const LAST: u64 = 2500;

    fn new() -> Self {
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let log = Log::open(directory.path().join("log"), options()).unwrap();
        (1..=Self::LAST).for_each(|lsn| drop(log.append(&record(lsn)).unwrap()));
        log.close().unwrap();
        Self { directory }
    }

    fn segment(&self, number: u64) -> OsFile {
        let path = self.directory.path().join("log").join(name(number));
        OsFile::open(&path, &OpenFile::existing()).unwrap()
    }

    /// Not in the first segment that is read: its threads come while it is.
    fn flip(&self, at: u64, bit: u8) {
        let file = self.segment(3);
        let mut byte = [0];
        file.read_at(&mut byte, at).unwrap();
        file.write_at(&[byte[0] ^ bit], at).unwrap();
        file.sync(SyncKind::All).unwrap();
    }

    /// Where reading all of it finds damage; an error if it shows what was never appended.
    fn read(&self, options: &Options, is_cached: bool) -> Result<Option<(PathBuf, u64)>, String> {
        for number in 1..=6 {
            let file = self.segment(number);
            if is_cached {
                file.read_at(&mut vec![0; SEGMENT as usize], 0).unwrap();
            } else {
                file.forget_cached().unwrap();
            }
        }
        let reader = Reader::open(self.directory.path().join("log"), options).unwrap();
        let mut cursor = reader.from(Lsn::FIRST);
        for lsn in 1..=Self::LAST {
            match cursor.next() {
                Ok(shown) if shown.is_some_and(|shown| shown.bytes == record(lsn)) => {}
                Ok(_) => return Err(format!("record {lsn} was never appended")),
                Err(error) => {
                    return Ok(error.corruption().map(|found| (found.path.clone(), found.offset)));
                }
            }
        }
        Ok(None)
    }

    /// Reads with a flipped bit. Without a mistake, the damage is reported where `verify` finds it.
    fn read_flipped(
        &self,
        options: &Options,
        is_cached: bool,
        seed: u64,
        is_sound: bool,
    ) -> Result<(), String> {
        let at = fastrand::Rng::with_seed(seed).u64(4096..SEGMENT - 300_000);
        self.flip(at, 1 << (seed % 8));
        let told = self.read(options, is_cached);
        if is_sound {
            let found = inspect::verify(self.directory.path().join("log")).unwrap();
            let damage = found.damage.first().unwrap();
            assert_eq!(
                told,
                Ok(Some((damage.path.clone(), damage.offset))),
                "seed {seed}, byte {at}"
            );
        }
        self.flip(at, 1 << (seed % 8));
        told.map(drop)
    }
}

/// On real threads, in the page cache and past it: whichever thread checks the sum.
#[test]
fn a_flipped_bit_is_reported_where_verify_finds_it() {
    let log = Flippable::new();
    for is_cached in [false, true] {
        assert_eq!(log.read(&small(), is_cached), Ok(None));
        for seed in seeds(1, 30) {
            log.read_flipped(&small(), is_cached, seed, true).unwrap();
        }
    }
}

/// Twenty segments are enough for two threads.
#[test]
fn verify_finds_the_same_in_the_same_order_with_several_threads() {
    let disk = large(20_000);
    let directory = disk.directory(LOG);
    let whole = inspect::verify_in(&directory).unwrap();
    assert!(whole.damage.is_empty() && whole.last.get() == 20_000);
    assert!(whole.segments.len() as u64 * SEGMENT > 16 << 20, "too small for two threads");
    let numbers: Vec<u64> = whole.segments.iter().map(|segment| segment.number.get()).collect();
    let records: u64 = whole.segments.iter().map(|segment| segment.counts.records).sum();
    assert_eq!(records, 20_000);
    assert!(numbers.is_sorted());
    let damaged = [numbers[1], numbers[4], numbers[5], numbers[8]];
    for number in damaged {
        disk.rot(LOG, &name(number), 300_000, 1);
        disk.rot(LOG, &name(number), 900_000, 1);
    }
    let found = inspect::verify_in(&directory).unwrap();
    let places: Vec<_> =
        found.damage.iter().map(|place| (place.segment.unwrap().get(), place.offset)).collect();
    let mut sorted = places.clone();
    sorted.sort_unstable();
    assert_eq!(places, sorted);
    for number in damaged {
        assert!(places.iter().any(|(segment, _)| *segment == number), "{number} of {places:?}");
    }
    assert!(places.iter().all(|(segment, _)| damaged.contains(segment)), "{places:?}");
}

#[cfg(inkstone_mistakes)]
mod mistaken {
    use inkstone::mistake::Mistake;

    use super::*;
    use crate::history::{disk, with};
    use crate::mistaken::{WRONG, caught};

    #[test]
    fn a_get_that_sums_nothing_shows_what_was_never_appended() {
        caught(Mistake::GetUnsummed, WRONG, |mistake, seed| {
            let disk = disk(seed);
            let log = Log::open_in(Arc::new(disk.directory(LOG)), with(mistake)).unwrap();
            let bytes = vec![5; 3000];
            (1..=3).for_each(|lsn| assert_eq!(log.append_durable(&bytes).unwrap().get(), lsn));
            disk.rot(LOG, &name(1), 4096 + 3500 + seed % 2000, 1 << (seed % 8));
            match log.reader().get(Lsn::new(2)) {
                Ok(shown) if shown != bytes => Err(format!("record 2 {WRONG}")),
                Ok(_) => Ok(()),
                Err(Error::Corrupt(_)) => Ok(()),
                Err(error) => Err(error.to_string()),
            }
        });
    }

    /// The threads that read do check sums: if they leave one out, it is checked nowhere.
    #[test]
    fn reading_ahead_without_sums_shows_what_was_never_appended() {
        let log = Flippable::new();
        for is_cached in [false, true] {
            caught(Mistake::AheadUnsummed, WRONG, |mistake, seed| {
                log.read_flipped(&with(mistake), is_cached, seed, mistake.is_none())
            });
        }
    }
}
