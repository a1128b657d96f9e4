//! Readers on a simulated disk: what they show beside a writer and after his death, and what they
//! make of cuts, of files that are used again, of damage.
//!
//! *Owns*: each of these by itself. Real directories and processes are in `beside.rs`, histories in
//! `meddled.rs`.

#![allow(clippy::unwrap_used, reason = "the helpers of a test are a test too")]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use crate::gate::{Gate, behind};
pub(super) use crate::history::small;
use crate::watched::{Call, watched};
use inkstone::inspect::{Entry, Kind, dump_in, look_in, verify_in};
use inkstone::{Cursor, Directory, Error, Log, Lsn, Options, Reader, Verdict};
use inkstone_io::{File as _, OpenFile};
use inkstone_sim::hooked::{FileCall, Hook};
use inkstone_sim::shrink::seeds;
use inkstone_sim::{
    AfterEffect, DirectoryOrder, DiskOptions, Effect, Fault, NewBlocks, OperationKind, SimDisk,
    errno,
};

pub(super) fn record(lsn: u64, salt: u64) -> Vec<u8> {
    (0..lsn * 151 % 2500 + 1).map(|at| (at ^ lsn ^ (salt << 4)) as u8).collect()
}

pub(super) fn open(disk: &SimDisk, options: Options) -> Log {
    Log::open_in(Arc::new(disk.directory("/log")), options).unwrap()
}

pub(super) fn read(disk: &SimDisk) -> Reader {
    Reader::open_in(Arc::new(disk.directory("/log")), small()).unwrap()
}

pub(super) fn append(log: &Log, lsns: std::ops::RangeInclusive<u64>, salt: u64) {
    for lsn in lsns {
        assert_eq!(log.append_durable(&record(lsn, salt)).unwrap().get(), lsn);
    }
}

/// Everything that a cursor shows from its position on.
pub(super) fn shown(cursor: &mut Cursor) -> Vec<(u64, Vec<u8>)> {
    let mut all = Vec::new();
    while let Some(record) = cursor.next().unwrap() {
        all.push((record.lsn.get(), record.bytes.to_vec()));
    }
    all
}

pub(super) fn is_log(shown: &[(u64, Vec<u8>)], from: u64, salt: u64) -> bool {
    (from..).zip(shown).all(|(lsn, (found, bytes))| *found == lsn && *bytes == record(lsn, salt))
}

pub(super) fn nasty(seed: u64) -> DiskOptions {
    let [zeros, garbage, stale] = [NewBlocks::Zeros, NewBlocks::Garbage, NewBlocks::Stale];
    DiskOptions {
        new_blocks: [zeros, garbage, stale][(seed % 3) as usize],
        directory_order: if seed.is_multiple_of(5) {
            DirectoryOrder::Prefix
        } else {
            DirectoryOrder::Any
        },
        sector_bytes: if seed.is_multiple_of(7) { 4096 } else { 512 },
        writeback_ppm: if seed.is_multiple_of(2) { 0 } else { 50_000 },
        has_direct: !seed.is_multiple_of(11),
        ..DiskOptions::default()
    }
}

#[test]
fn reading_writes_nothing_and_costs_nothing_while_nothing_happens() {
    let disk = SimDisk::new(1, DiskOptions::default());
    let log = open(&disk, small());
    append(&log, 1..=100, 0);
    log.truncate_before(Lsn::new(60)).unwrap();
    let check = |end: u64| {
        let (image, before) = (disk.image(), disk.counters());
        let reader = read(&disk);
        let mut cursor = reader.from(Lsn::new(60));
        assert_eq!(shown(&mut cursor).last().unwrap().0, end);
        assert!(cursor.next_within(std::time::Duration::from_millis(5)).unwrap().is_none());
        let done = disk.counters().since(&before);
        assert!(done.reads > 0);
        let changes = [
            done.creations,
            done.renames,
            done.removals,
            done.writes,
            done.allocations,
            done.resizes,
        ];
        // One for the names that the opening shows.
        assert_eq!((changes, done.locks, done.directory_syncs), ([0; 6], 0, 1));
        assert!(disk.image() == image);
        let before = disk.counters();
        assert!(cursor.next().unwrap().is_none());
        let done = disk.counters().since(&before);
        assert_eq!(
            (done.syncs(), done.opens),
            (0, 0),
            "it is recovered again though nobody was there"
        );
    };
    check(100);
    log.abandon();
    check(100);
    // As an interrupted creation leaves it.
    let disk = SimDisk::new(1, DiskOptions::default());
    let file =
        disk.directory("/log").open("00000000000000000001.ink", &OpenFile::new_file()).unwrap();
    drop(file);
    let image = disk.image();
    let opened = Reader::open_in(Arc::new(disk.directory("/log")), small());
    assert!(matches!(opened, Err(Error::Corrupt(_) | Error::NoLog { .. })), "{opened:?}");
    assert!(disk.image() == image);
}

/// A sync fails, the writer is killed, another writes other records in the same place: nothing of
/// the first is shown, though the reader has its bytes in memory.
#[test]
fn bytes_of_a_group_whose_sync_failed_are_never_shown() {
    for after in [AfterEffect::KeepsNew, AfterEffect::RevertsToOld] {
        for seed in seeds(1, 10) {
            let disk =
                SimDisk::new(seed, DiskOptions { writeback_ppm: 0, ..DiskOptions::default() });
            let log = open(&disk, small());
            append(&log, 1..=9, 0);
            let reader = read(&disk);
            let mut cursor = reader.from(Lsn::FIRST);
            assert_eq!(shown(&mut cursor).len(), 8);
            disk.inject(Fault::new(Effect::SyncFails(errno::EIO, after)).on(OperationKind::Sync));
            assert!(log.append_durable(&record(10, 0)).is_err());
            // The failed group promises the one before it, where it is still seen. Its own record
            // it may not show.
            let seen = shown(&mut cursor);
            assert!(is_log(&seen, 9, 0) && seen.len() <= 1, "{}", seen.len());
            let late = read(&disk);
            let mut beside = late.from(Lsn::FIRST);
            assert!(is_log(&shown(&mut beside), 1, 0));
            assert!(late.durable().get() <= 9);
            log.abandon();
            let log = open(&disk, small());
            assert_eq!(log.last().get(), 9);
            append(&log, 10..=12, 1);
            let next = cursor.next_lsn().get();
            let seen = [shown(&mut cursor), shown(&mut beside)];
            for (seen, from) in seen.iter().zip([next, late.durable().get() + 1]) {
                assert_eq!(seen.last().unwrap().0, 11, "{from}");
                let salt = |lsn| u64::from(lsn >= 10);
                assert!(
                    seen.iter().all(|(lsn, bytes)| *bytes == record(*lsn, salt(*lsn))),
                    "old bytes"
                );
            }
        }
    }
}

#[test]
fn a_damaged_segment_is_corrupt_beside_a_writer_and_without_one() {
    for lives in [true, false] {
        let disk = SimDisk::new(1, DiskOptions::default());
        let log = open(&disk, small());
        append(&log, 1..=100, 0);
        let whole = read(&disk);
        disk.rot("/log", "00000000000000000001.ink", 20_000, 1);
        let log = if lives {
            Some(log)
        } else {
            log.close().unwrap();
            None
        };
        for reader in [whole, read(&disk)] {
            let mut cursor = reader.from(Lsn::FIRST);
            let mut next = 1;
            let error = loop {
                match cursor.next() {
                    Ok(shown) => assert_eq!(shown.unwrap().bytes, record(next, 0)),
                    Err(error) => break error,
                }
                next += 1;
            };
            let damage = error.corruption().unwrap_or_else(|| panic!("{error}"));
            assert!(damage.path.ends_with("00000000000000000001.ink"), "{error}");
            assert_eq!(damage.lsn.map(Lsn::get), Some(next));
            // Behind it everything can be read.
            let behind = reader.from(Lsn::new(60)).next().unwrap().unwrap().bytes.to_vec();
            assert_eq!(behind, record(60, 0));
        }
        drop(log);
    }
    // In the head, below what was promised: opening says so.
    let disk = SimDisk::new(1, DiskOptions::default());
    let log = open(&disk, small());
    append(&log, 1..=10, 0);
    log.close().unwrap();
    disk.rot("/log", "00000000000000000001.ink", 6000, 1);
    let opened = Reader::open_in(Arc::new(disk.directory("/log")), small());
    assert!(matches!(opened, Err(Error::Corrupt(_))), "{opened:?}");
    let image = disk.image();
    let opened = Reader::open_in(Arc::new(disk.directory("/log")), small());
    assert!(opened.is_err() && disk.image() == image);
}

#[test]
fn what_the_caller_knows_to_be_durable_must_be_there() {
    let disk = SimDisk::new(1, DiskOptions::default());
    let log = open(&disk, small());
    append(&log, 1..=10, 0);
    let open_expecting = |lsn| {
        let options = small().expect_durable(Lsn::new(lsn));
        Reader::open_in(Arc::new(disk.directory("/log")), options)
    };
    // The last is acknowledged and not promised: it is not shown, and not missed.
    assert_eq!(open_expecting(10).unwrap().durable().get(), 9);
    assert!(matches!(open_expecting(11), Err(Error::Corrupt(_))));
    log.abandon();
    assert_eq!(open_expecting(10).unwrap().durable().get(), 10);
    assert!(matches!(open_expecting(11), Err(Error::Corrupt(_))));
}

/// Without a shared page. The files that are only prepared are new, or were segments.
#[test]
fn a_look_reads_one_block_of_each_file_that_is_only_prepared() {
    for truncates in [false, true] {
        let disk = SimDisk::new(1, DiskOptions::default());
        let log = open(&disk, small());
        append(&log, 1..=100, 0);
        if truncates {
            log.truncate_before(Lsn::new(90)).unwrap();
        }
        let segments = || -> u64 {
            let names = disk.directory("/log").list().unwrap();
            names.iter().filter(|name| name.ends_with(".ink")).count() as u64
        };
        let (begun, made) = (segments(), disk.counters().creations);
        log.prepare_now().unwrap();
        let (prepared, made) = (segments() - begun, disk.counters().creations - made);
        assert!(prepared > 0 && (made < prepared) == truncates, "{prepared} prepared, {made} made");
        let mut cursor = read(&disk).from(Lsn::new(95));
        assert!(is_log(&shown(&mut cursor), 95, 0) && cursor.next_lsn().get() >= 100);
        let before = disk.counters();
        assert!(cursor.next().unwrap().is_none());
        let done = disk.counters().since(&before);
        assert_eq!((done.listings, done.opens, done.reads), (1, prepared, 1 + prepared));
    }
}

/// Without a shared page. A look and a cursor read it in pieces that are too small at first, four
/// times in all. What comes behind it in the file is zeros, or will be written again.
#[test]
fn a_reader_that_comes_right_behind_reads_no_further_than_what_is_durable() {
    const RECORD_BYTES: u64 = 700 << 10;
    let options = || small().segment_bytes(32 << 20).record_bytes_max(1 << 20);
    let disk = SimDisk::new(1, DiskOptions::default());
    let log = open(&disk, options());
    let append = |lsn: u64| log.append_durable(&vec![lsn as u8; RECORD_BYTES as usize]).unwrap();
    append(1);
    let reader = Reader::open_in(Arc::new(disk.directory("/log")), options()).unwrap();
    let mut cursor = reader.from(Lsn::FIRST);
    for lsn in 2..=30 {
        append(lsn);
        let before = disk.counters();
        assert_eq!(cursor.next().unwrap().map(|record| record.lsn.get()), Some(lsn - 1));
        let read = disk.counters().since(&before).read_bytes;
        assert!(read < RECORD_BYTES * 17 / 4, "{read} bytes for LSN {}", lsn - 1);
    }
}

/// Called before each call of a directory and its files.
struct Meanwhile<F>(F);

impl<F: Fn(&Call<'_>) + Send + Sync + 'static> Hook for Meanwhile<F> {
    fn before(&self, call: &Call<'_>) -> inkstone_io::Result<()> {
        (self.0)(call);
        Ok(())
    }
}

/// A reader walks the last segment, and then asks whether it still is. Before the one or the other
/// the writer cuts, or begins a segment, also with a number above that of a file of another
/// program.
#[test]
fn a_segment_that_begins_during_a_look_is_found_and_no_cut_record_is_shown() {
    let walks = |call: &Call<'_>| matches!(call, Call::OfFile { call: FileCall::Read, .. });
    let asks = |call: &Call<'_>| matches!(call, Call::List);
    let moments: [fn(&Call<'_>) -> bool; 2] = [walks, asks];
    for (moment, (cuts, passes)) in moments.into_iter().flat_map(|moment| {
        [(true, false), (false, false), (false, true)].map(|deed| (moment, deed))
    }) {
        let disk = SimDisk::new(1, DiskOptions::default());
        let log = Arc::new(open(&disk, small()));
        append(&log, 1..=10, 0);
        let (writer, is_due) = (Arc::clone(&log), Arc::new(AtomicBool::new(false)));
        let (asked, place) = (Arc::clone(&is_due), disk.directory("/log"));
        let meanwhile = Meanwhile(move |call: &Call<'_>| {
            if !moment(call) || !asked.swap(false, Ordering::Relaxed) {
                return;
            }
            if cuts {
                writer.truncate_after(Lsn::new(5)).unwrap();
                append(&writer, 6..=8, 1);
                return;
            }
            if passes {
                let file = place.open("00000000000000000002.ink", &OpenFile::new_file()).unwrap();
                file.set_len(64 << 10).unwrap();
            }
            append(&writer, 13..=80, 0);
        });
        let directory = disk.directory("/log").hooked(Arc::new(meanwhile));
        let reader = Reader::open_in(Arc::new(directory), small()).unwrap();
        let mut cursor = reader.from(Lsn::FIRST);
        assert_eq!(shown(&mut cursor).len(), 9);
        append(&log, 11..=12, 0);
        is_due.store(true, Ordering::Relaxed);
        let next = cursor.next().map(|record| record.map(|record| record.lsn.get()));
        assert!(!is_due.load(Ordering::Relaxed), "the moment did not come");
        if cuts {
            let is_told =
                matches!(next, Err(Error::TruncatedAfter { last, .. }) if last.get() == 5);
            assert!(is_told, "{next:?}");
            let seen = shown(&mut cursor);
            assert!(is_log(&seen, 6, 1) && seen.len() == 2, "{}", seen.len());
        } else {
            assert_eq!((next.unwrap(), reader.durable().get()), (Some(10), 79), "{passes}");
            assert!(is_log(&shown(&mut cursor), 11, 0));
            assert_eq!(cursor.next_lsn().get(), 80);
        }
    }
}

/// The log's directory, for a look that takes longer than the writer takes for a segment, as on a
/// busy disk: between the listing and the reading the writer begins the next one, and then does
/// this.
fn written_during_looks(
    disk: &SimDisk,
    log: &Arc<Log>,
    then: fn(&Log),
) -> Arc<impl Directory + use<>> {
    let writer = Arc::clone(log);
    Arc::new(watched(disk.directory("/log"), move |call| {
        if matches!(call, Call::SyncNames) {
            let next = writer.last().get() + 1;
            append(&writer, next..=next + 80, 0);
            then(&writer);
        }
    }))
}

/// What was the last segment when the directory was listed is not the last any more when it is
/// read.
#[test]
fn a_writer_that_begins_a_segment_during_each_look_is_no_damage() {
    let disk = SimDisk::new(1, DiskOptions::default());
    let log = Arc::new(open(&disk, small()));
    append(&log, 1..=200, 0);
    let directory = written_during_looks(&disk, &log, |_| {});
    for look in [look_in, verify_in] {
        let (before, segments) =
            (log.last(), look_in(&disk.directory("/log")).unwrap().segments.len());
        let report = look(Arc::clone(&directory)).unwrap();
        assert!(report.is_intact(), "{:?}", report.damage);
        assert!(report.verdict == Verdict::End && report.row == "E1", "{}", report.row);
        assert!(
            report.last >= before && report.segments.len() >= segments,
            "{} of {before}",
            report.last
        );
        assert!(log.last() > report.last, "the writer did not go on");
    }
    let before = log.last().get() as usize;
    let dump = dump_in(Arc::clone(&directory), 0).unwrap();
    assert!(dump.damage().is_empty(), "{:?}", dump.damage());
    let entries: Vec<_> = dump.map(Result::unwrap).collect();
    let is_damage =
        |entry: &&Entry| matches!(entry, Entry::Stop { verdict: Verdict::Corrupt(_), .. });
    assert!(entries.iter().find(is_damage).is_none(), "{:?}", entries.iter().find(is_damage));
    let records = entries
        .iter()
        .filter(|entry| matches!(entry, Entry::Frame { kind: Kind::Record, .. }))
        .count();
    assert!(records >= before, "{records} of {before}");
}

/// The last segment says where the log begins, so it is read twice. It is sealed, or says more, in
/// between.
#[test]
fn a_last_segment_that_changes_between_its_two_readings_is_no_damage_and_is_counted_right() {
    let mut shown = 0;
    for nth in 2..=8 {
        for seals in [true, false] {
            let disk = SimDisk::new(1, DiskOptions::default());
            let log = Arc::new(open(&disk, small()));
            append(&log, 1..=130, 0);
            log.truncate_before(log.last()).unwrap();
            let (writer, opened) = (Arc::clone(&log), Mutex::new(BTreeMap::new()));
            let directory = Arc::new(watched(disk.directory("/log"), move |call| match call {
                Call::Open { name, .. } => {
                    let mut opened = opened.lock().unwrap();
                    let count: &mut u32 = opened.entry(name.to_string()).or_default();
                    *count += 1;
                    let next = writer.last().get() + 1;
                    if *count == nth {
                        append(&writer, next..=next + if seals { 80 } else { 3 }, 0);
                        writer.truncate_before(writer.last().before().unwrap()).unwrap();
                    }
                }
                Call::LockedBy { .. } => {
                    let next = writer.last().get() + 1;
                    append(&writer, next..=next + 2, 0);
                    writer.truncate_before(writer.last()).unwrap();
                }
                _ => {}
            }));
            let report = match verify_in(directory) {
                Ok(report) => report,
                // Each look met a file that was removed meanwhile.
                Err(Error::Io(error)) if error.kind() == std::io::ErrorKind::ResourceBusy => {
                    continue;
                }
                Err(error) => panic!("{nth}, {seals}: {error}"),
            };
            assert!(
                report.is_intact() && report.row != "S1",
                "{nth}, {seals}: {:?}",
                report.damage
            );
            shown += 1;
            let records = report.last.get() + 1 - report.first.get();
            assert_eq!(
                report.counts().records,
                records,
                "{nth}, {seals}: {} to {}",
                report.first,
                report.last
            );
        }
    }
    assert!(shown >= 7, "{shown} of 14 looks ended with a report");
}

/// After the listing the last segment is sealed, and a cut takes back the group that said where the
/// log begins.
#[test]
fn a_cut_meanwhile_brings_no_truncated_record_back() {
    let disk = SimDisk::new(1, DiskOptions::default());
    let log = Arc::new(open(&disk, small()));
    append(&log, 1..=33, 0);
    log.truncate_before(Lsn::new(30)).unwrap();
    let (writer, is_done) = (Arc::clone(&log), AtomicBool::new(false));
    let directory = Arc::new(watched(disk.directory("/log"), move |call| {
        if matches!(call, Call::SyncNames) && !is_done.swap(true, Ordering::Relaxed) {
            append(&writer, 34..=120, 0);
            writer.truncate_after(Lsn::new(32)).unwrap();
        }
    }));
    let report = verify_in(directory).unwrap();
    assert!(report.is_intact(), "{:?}", report.damage);
    assert_eq!((report.first.get(), report.last.get(), report.counts().records), (30, 32, 3));
}

#[test]
fn a_writer_that_removes_what_is_listed_before_it_is_read_is_named_and_no_damage() {
    let disk = SimDisk::new(1, DiskOptions::default());
    let log = Arc::new(open(&disk, small()));
    append(&log, 1..=200, 0);
    let directory =
        written_during_looks(&disk, &log, |writer| writer.truncate_before(writer.last()).unwrap());
    let error = verify_in(directory).unwrap_err().to_string();
    assert!(error.contains("try again when it writes less"), "{error}");
}

/// The committer writes a record that nobody waits for, and another one comes meanwhile.
#[test]
fn a_record_that_comes_during_the_write_before_a_promise_is_promised_too() {
    let (disk, gate) = (SimDisk::new(1, DiskOptions::default()), Arc::new(Gate::default()));
    let options = small().own_thread(true);
    let directory = behind(&gate, disk.directory("/log"));
    let log = Log::open_in(Arc::new(directory), options).unwrap();
    append(&log, 1..=1, 0);
    gate.shut();
    // A handle that is kept may be waited for: the committer leaves the record until it promises.
    let second = log.append(&record(2, 0)).unwrap();
    gate.wait_until_held();
    let third = log.append(&record(3, 0)).unwrap();
    gate.let_go();
    let mut cursor = read(&disk).from(Lsn::new(3));
    let last = cursor.next_within(std::time::Duration::from_secs(20)).unwrap();
    assert!(last.is_some_and(|last| last.bytes == record(3, 0)));
    drop((second, third));
}
