//! A log that is upgraded segment by segment: its older segments are of version 1 of the format,
//! its newer ones of a version 2 that only the copy of the tree has that `.ci/mistaken` makes.
//! Everything that reads a log reads both, and recovers from a crash in either.
//!
//! *Owns*: logs of both versions. *May not touch*: bytes; the test of the same name in
//! `crates/format` does.

use std::sync::Arc;
use std::time::Duration;

use crate::history::{LOG, Told, append, check_with, disk, open, record, small};
use inkstone::inspect::{dump_in, salvage_in, verify_in};
use inkstone::{Log, Lsn, Options, Reader};
use inkstone_format::Version;
use inkstone_sim::{Fate, SimDirectory, SimDisk};

fn options(version: Version) -> Options {
    small().with_version(version)
}

fn directory(disk: &SimDisk) -> Arc<SimDirectory> {
    Arc::new(disk.directory(LOG))
}

/// Appends and makes durable records up to `last`.
fn append_to(log: &Log, last: u64) {
    let first = log.last().get() + 1;
    (first..=last).for_each(|lsn| drop(log.append(&record(lsn)).unwrap()));
    log.sync().unwrap();
}

/// A log of 500 records: begun in version 1, gone on with in version 2 over the files of version 1,
/// then in both in turn.
fn mixed(disk: &SimDisk) {
    let log = open(disk, options(Version::One)).unwrap();
    append_to(&log, 200);
    log.truncate_before(Lsn::new(150)).unwrap();
    log.close().unwrap();
    for (version, last) in [(Version::Two, 350), (Version::One, 400), (Version::Two, 500)] {
        let log = open(disk, options(version)).unwrap();
        append_to(&log, last);
        log.close().unwrap();
    }
}

/// The versions of the log's segments, and that nothing is wrong with it.
fn versions(disk: &SimDisk) -> Vec<Version> {
    let report = verify_in(&*directory(disk)).unwrap();
    assert!(report.is_intact(), "{:?}", report.damage);
    report.segments.iter().map(|segment| segment.header.version).collect()
}

fn shows(reader: &Reader, first: u64, last: u64) {
    let mut next = first;
    for shown in reader.records(Lsn::new(first)) {
        let shown = shown.unwrap();
        assert!((shown.lsn.get(), &shown.bytes) == (next, &record(next)), "LSN {next}");
        next += 1;
    }
    assert_eq!(next, last + 1);
    for lsn in (first..=last).rev().step_by(7).chain(first..=last) {
        assert!(reader.get(Lsn::new(lsn)).unwrap() == record(lsn), "LSN {lsn}");
    }
}

#[test]
fn segments_of_both_versions_are_read_as_one_log() {
    let disk = disk(0);
    mixed(&disk);
    let found = versions(&disk);
    assert!(!found.is_sorted() && found.len() > 4, "{found:?}");
    shows(&Reader::open_in(directory(&disk), small()).unwrap(), 150, 500);
    // An opening that begins no segment continues in the version of the last one.
    let log = open(&disk, options(Version::One)).unwrap();
    append_to(&log, 503);
    shows(&log.reader(), 150, 503);
    assert_eq!(versions(&disk), found);
    let last = |from: u64| Lsn::new(from);
    for left in [480, 380, 300, 160] {
        log.truncate_after(last(left)).unwrap();
        shows(&log.reader(), 150, left);
        append_to(&log, left + 20);
    }
    log.truncate_before(last(170)).unwrap();
    shows(&log.reader(), 170, 180);
    log.close().unwrap();
    shows(&Reader::open_in(directory(&disk), small()).unwrap(), 170, 180);
    let frames = dump_in(directory(&disk), 0).unwrap().filter(|entry| entry.is_ok()).count();
    assert!(frames > 11);
}

#[test]
fn a_reader_follows_a_log_through_its_upgrade() {
    let disk = disk(1);
    let log = open(&disk, options(Version::One)).unwrap();
    append_to(&log, 20);
    let beside = Reader::open_in(directory(&disk), small()).unwrap();
    let mut cursor = beside.from(Lsn::FIRST);
    let mut next = 1;
    let mut log = Some(log);
    for (version, last) in
        [(Version::One, 100), (Version::Two, 300), (Version::One, 420), (Version::Two, 600)]
    {
        log.take().unwrap().close().unwrap();
        let writer = open(&disk, options(version)).unwrap();
        let mut own = writer.reader().from(Lsn::new(next));
        for to in (next..=last).step_by(30).chain([last]) {
            append_to(&writer, to);
            while let Some(shown) = cursor.next().unwrap() {
                assert!((shown.lsn.get(), shown.bytes) == (next, &record(next)[..]), "LSN {next}");
                let shown = own.next_within(Duration::from_secs(9)).unwrap().unwrap();
                assert!((shown.lsn.get(), shown.bytes) == (next, &record(next)[..]), "LSN {next}");
                next += 1;
            }
        }
        log = Some(writer);
    }
    assert!(next > 500, "{next}");
    log.take().unwrap().close().unwrap();
    let found = versions(&disk);
    assert!(found.contains(&Version::One) && found.contains(&Version::Two), "{found:?}");
}

#[test]
fn what_is_damaged_in_either_version_is_salvaged_around() {
    let disk = disk(2);
    mixed(&disk);
    let report = verify_in(&*directory(&disk)).unwrap();
    for segment in &report.segments[..report.segments.len() - 1] {
        let copy = disk.crash_with(|_| Fate::Kept);
        let name = segment.path.file_name().unwrap().to_str().unwrap();
        // In the payload of some record in the middle, and both copies of the header.
        for at in [30_000, 10, 2058] {
            copy.rot(LOG, name, at, 0xff);
        }
        let found = verify_in(&*directory(&copy)).unwrap();
        assert!(!found.is_intact());
        let saved =
            salvage_in(&*directory(&copy), || Ok(Arc::new(copy.directory("/saved"))), &small())
                .unwrap();
        assert!(saved.records >= 340, "{} around {name}: {:?}", saved.records, saved.gaps);
        let log = Log::open_in(Arc::new(copy.directory("/saved")), small()).unwrap();
        let mut shown = log.reader().from(saved.runs[0].new_first);
        for run in &saved.runs {
            for lsn in run.first.get()..=run.last.get() {
                assert!(shown.next().unwrap().unwrap().bytes == record(lsn), "LSN {lsn}");
            }
        }
    }
}

#[test]
fn a_crash_during_the_upgrade_loses_nothing() {
    for seed in 0..60 {
        let disk = disk(seed);
        let log = open(&disk, options(Version::One)).unwrap();
        append_to(&log, 40 + seed * 3);
        log.abandon();
        let log = open(&disk, options(Version::Two)).unwrap();
        let acked = 130 + seed * 3;
        append_to(&log, acked);
        append(&log, acked + 1, acked + 5).unwrap_or_else(|error| panic!("{error}"));
        let last = log.last().get();
        log.abandon();
        let after = disk.crash(seed);
        check_with(&after, options(Version::One), Told { acked, appended: last }, record).unwrap();
        let log = open(&after, options(Version::Two)).unwrap();
        let last = log.last().get();
        append_to(&log, last + 100);
        shows(&log.reader(), 1, last + 100);
        log.close().unwrap();
    }
}
