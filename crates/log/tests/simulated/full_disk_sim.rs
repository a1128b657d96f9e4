//! A disk that is really full, simulated: where an overwrite needs room, and where a name does.
//!
//! *Owns*: opening, reading, shortening and closing with no byte free, in each way of writing, and
//! every crash meanwhile. *May not touch*: the crate's insides. On real file systems:
//! `full_disk.rs`.

#![allow(clippy::unwrap_used, reason = "the helpers of a test are a test too")]

use crate::history::{open, record, small};
use inkstone::{Access, Durability, Error, Log, Lsn, Options, Preparation};
use inkstone_format::frame_bytes;
use inkstone_io::{Directory, File, OpenFile, SyncKind};
use inkstone_sim::{DiskOptions, Effect, Fault, OperationKind, SimDisk, errno};

/// Room for a log and more.
const CAPACITY_BYTES: u64 = 4 << 20;
const ROOM: &str = "inkstone.room";
const RECORDS: u64 = 320;
/// Crashes that are tried at each moment.
const SAMPLES: u64 = 4;

fn disk(seed: u64, options: DiskOptions) -> SimDisk {
    SimDisk::new(seed, DiskOptions { capacity_bytes: Some(CAPACITY_BYTES), ..options })
}

fn copies() -> DiskOptions {
    DiskOptions { copy_on_write: true, ..DiskOptions::default() }
}

/// Takes all the room that there is, durably.
fn fill(disk: &SimDisk) {
    let others = disk.directory("/others");
    let free = others.free_bytes().unwrap();
    if free == 0 {
        return;
    }
    let file =
        others.open(&format!("ballast {}", disk.operations()), &OpenFile::new_file()).unwrap();
    file.prepare(Preparation::Fallocate, free).unwrap();
    file.sync(SyncKind::All).unwrap();
    others.sync().unwrap();
    assert_eq!(others.free_bytes().unwrap(), 0);
}

/// Gives it back.
fn free(disk: &SimDisk) {
    let others = disk.directory("/others");
    for name in others.list().unwrap() {
        others.remove(&name).unwrap();
    }
    others.sync().unwrap();
}

fn ways() -> Vec<Options> {
    let mut ways = Vec::new();
    for access in [Access::Buffered, Access::Direct] {
        for durability in [
            Durability::Fdatasync,
            Durability::Fsync,
            Durability::RwfDsync,
            Durability::ODsync,
            Durability::OSync,
        ] {
            let preparation =
                if ways.len() % 2 == 0 { Preparation::Fallocate } else { Preparation::Zeros };
            let way = small().access(access).durability(durability).preparation(preparation);
            ways.push(way.free_segments_max(ways.len() % 3).pad_groups(ways.len() % 4 == 3));
        }
    }
    ways
}

/// A log that holds `RECORDS`, in a directory that has no byte free.
fn full_log(disk: &SimDisk, options: &Options) -> Log {
    let log = open(disk, options.clone()).unwrap();
    for lsn in 1..=RECORDS {
        assert_eq!(log.append_durable(&record(lsn)).unwrap().get(), lsn);
    }
    fill(disk);
    log
}

fn check(log: &Log, first: u64, last: u64) {
    assert_eq!((log.first().get(), log.last().get(), log.durable().get()), (first, last, last));
    let mut next = first;
    for shown in log.reader().records(log.first()) {
        let shown = shown.unwrap();
        assert_eq!((shown.lsn.get(), &shown.bytes), (next, &record(next)));
        next += 1;
    }
    assert_eq!(next, last + 1);
}

/// After any crash now, with the disk full, the log opens, shows this, and continues when there is
/// room.
fn check_crashes(disk: &SimDisk, options: &Options, first: u64, last: u64) {
    for sample in 0..SAMPLES {
        let found = disk.crash(sample);
        let log =
            open(&found, options.clone()).unwrap_or_else(|why| panic!("crash {sample}: {why}"));
        check(&log, first, last);
        free(&found);
        assert_eq!(
            log.append_durable(&record(last + 1)).unwrap().get(),
            last + 1,
            "crash {sample}"
        );
        log.abandon();
        let log = open(&found.crash(sample), options.clone()).unwrap();
        check(&log, first, last + 1);
    }
}

#[test]
fn a_log_on_a_full_copy_on_write_disk_is_opened_read_and_shortened() {
    for (number, options) in ways().into_iter().enumerate() {
        let disk = disk(number as u64, copies());
        let log = full_log(&disk, &options);
        check(&log, 1, RECORDS);
        log.truncate_before(Lsn::new(20)).unwrap_or_else(|why| panic!("{number}: {why}"));
        check(&log, 20, RECORDS);
        if number % 2 == 0 {
            log.close().unwrap_or_else(|why| panic!("{number}: {why}"))
        } else {
            log.abandon()
        }
        let mut first = 20;
        for round in 0..4 {
            // What was freed has been taken by others, but for what the log has kept.
            fill(&disk);
            check_crashes(&disk, &options, first, RECORDS);
            let log = open(&disk, options.clone())
                .unwrap_or_else(|why| panic!("{number} {round}: {why}"));
            assert!(!log.recovery().waits_for_room, "{number} {round}");
            check(&log, first, RECORDS);
            first += 70;
            log.truncate_before(Lsn::new(first))
                .unwrap_or_else(|why| panic!("{number} {round}: {why}"));
            check(&log, first, RECORDS);
            check_crashes(&disk, &options, first, RECORDS);
            log.close().unwrap_or_else(|why| panic!("{number} {round}: {why}"));
        }
        free(&disk);
        let log = open(&disk, options).unwrap();
        assert_eq!(log.append_durable(&record(RECORDS + 1)).unwrap().get(), RECORDS + 1);
        log.close().unwrap();
    }
}

/// No room is reserved and nothing can be written: all can be read, writes are refused, and later
/// the log continues.
#[test]
fn a_log_without_any_room_is_read_and_goes_on_when_there_is_some() {
    for (number, options) in ways().into_iter().enumerate() {
        let disk = disk(number as u64, copies());
        full_log(&disk, &options).abandon();
        let directory = disk.directory(crate::history::LOG);
        for name in directory.list().unwrap() {
            if name == ROOM || name.ends_with(".free") {
                directory.remove(&name).unwrap();
            }
        }
        fill(&disk);
        disk.record_epochs();
        for round in 0..3 {
            let log = open(&disk, options.clone())
                .unwrap_or_else(|why| panic!("{number} {round}: {why}"));
            assert!(log.recovery().waits_for_room, "{number} {round}");
            check(&log, 1, RECORDS);
            let refused = [
                log.append(b"no").map(drop),
                log.try_append(b"no").map(drop),
                log.append_batch(&[b"no", b"no"]).map(drop),
                log.truncate_before(Lsn::new(9)),
                log.truncate_after(Lsn::new(9)),
            ];
            for (call, refused) in refused.into_iter().enumerate() {
                match refused {
                    Err(error @ Error::NoRoom { .. }) if error.is_retryable() => {}
                    other => panic!("{number} {round}: call {call} gave {other:?}"),
                }
            }
            assert_eq!(
                log.sync().unwrap().get(),
                RECORDS,
                "nothing is appended, and all is durable"
            );
            check(&log, 1, RECORDS);
            check_crashes(&disk, &options, 1, RECORDS);
            for cut in disk.take_epochs() {
                let log = open(&cut.sample(round), options.clone()).unwrap();
                check(&log, 1, RECORDS);
            }
            if round == 2 {
                free(&disk);
                assert_eq!(log.append_durable(&record(RECORDS + 1)).unwrap().get(), RECORDS + 1);
                log.truncate_before(Lsn::new(9)).unwrap();
                check(&log, 9, RECORDS + 1);
            }
            log.close().unwrap_or_else(|why| panic!("{number} {round}: {why}"));
        }
        let log = open(&disk, options).unwrap();
        assert!(log.recovery().clean, "{}", log.recovery());
        check(&log, 9, RECORDS + 1);
    }
}

/// btrfs may refuse a write until the transaction ends in which others have removed their files.
#[test]
fn a_group_is_written_once_more_before_it_waits_for_room() {
    let refuse = |disk: &SimDisk| {
        let write = Fault::new(Effect::Error(errno::ENOSPC)).on(OperationKind::Write);
        disk.inject(write.file(".ink").times(1));
    };
    for (number, options) in ways().into_iter().enumerate() {
        let disk = disk(number as u64, copies());
        // Nothing is kept that the log could release.
        let options = options.free_segments_max(0);
        full_log(&disk, &options).close().unwrap();
        let _ = disk.directory(crate::history::LOG).remove(ROOM);
        fill(&disk);
        let log = open(&disk, options.clone()).unwrap();
        assert!(log.recovery().waits_for_room, "{number}");
        free(&disk);
        refuse(&disk);
        assert_eq!(log.append_durable(&record(RECORDS + 1)).unwrap().get(), RECORDS + 1);
        log.close().unwrap();
    }
}

/// A new name may need room where an overwrite needs none (xfs).
#[test]
fn names_that_need_room_stop_nobody() {
    for (number, options) in ways().into_iter().enumerate() {
        for copy_on_write in [false, true] {
            let kind =
                DiskOptions { names_need_room: true, copy_on_write, ..DiskOptions::default() };
            let disk = disk(number as u64, kind);
            let log = full_log(&disk, &options);
            let reader = log.reader();
            let mut records = reader.records(log.first());
            records.next().unwrap().unwrap();
            log.truncate_before(Lsn::new(200)).unwrap_or_else(|why| panic!("{number}: {why}"));
            check(&log, 200, RECORDS);
            fill(&disk);
            // The reader held them until now: closing releases them.
            drop(records);
            drop(reader);
            log.close().unwrap_or_else(|why| panic!("{number}: {why}"));
            fill(&disk);
            let log = open(&disk, options.clone()).unwrap_or_else(|why| panic!("{number}: {why}"));
            check(&log, 200, RECORDS);
            log.close().unwrap_or_else(|why| panic!("{number}: {why}"));
        }
    }
}

/// The header of the next segment is an overwrite too, where the segment's blocks were another
/// one's.
#[test]
fn a_header_that_finds_no_room_leaves_the_log_as_it_was() {
    let mut refused = 0;
    for (number, options) in ways().into_iter().enumerate() {
        for has_room in [true, false] {
            let options = options.clone().free_segments_max(1);
            let disk = disk(number as u64, copies());
            let log = full_log(&disk, &options);
            log.truncate_before(Lsn::new(200)).unwrap_or_else(|why| panic!("{number}: {why}"));
            if !has_room {
                let _ = disk.directory(crate::history::LOG).remove(ROOM);
            }
            fill(&disk);
            let mut last = RECORDS;
            match log.truncate_after(Lsn::new(290)) {
                Ok(()) => last = 290,
                Err(Error::NoRoom { .. }) if !has_room => refused += 1,
                Err(why) => panic!("{number} {has_room}: {why}"),
            }
            check(&log, 200, last);
            check_crashes(&disk, &options, 200, last);
            free(&disk);
            log.truncate_after(Lsn::new(280))
                .unwrap_or_else(|why| panic!("{number} {has_room}: {why}"));
            assert_eq!(log.append_durable(&record(281)).unwrap().get(), 281);
            check(&log, 200, 281);
            check_crashes(&disk, &options, 200, 281);
            log.close().unwrap();
        }
    }
    assert!(refused > 0, "no header found no room: the test tries nothing");
}

/// The room that is kept counts in the log's budget, and is the first that goes for it.
#[test]
fn room_that_is_kept_takes_no_segment_from_the_budget() {
    let disk = SimDisk::new(1, copies());
    let segments = |bytes: u64| small().disk_budget_bytes(bytes).free_segments_max(0);
    // Room for six segments, and one byte less than room for the seventh.
    let options = segments(7 * (64 << 10) - 1);
    let log = open(&disk, options.clone()).unwrap();
    assert!(disk.directory(crate::history::LOG).list().unwrap().contains(&ROOM.to_owned()));
    let mut last = 0;
    while log.append_durable(&record(last + 1)).is_ok() {
        last += 1;
    }
    let names = disk.directory(crate::history::LOG).list().unwrap();
    assert_eq!(names.iter().filter(|name| name.ends_with(".ink")).count(), 6, "{names:?}");
    assert!(!names.contains(&ROOM.to_owned()), "{names:?}");
    check(&log, 1, last);
    log.close().unwrap();
    let log = open(&disk, options).unwrap();
    check(&log, 1, last);
    // A larger budget has room for it again.
    log.close().unwrap();
    drop(open(&disk, segments(16 << 20)).unwrap());
    assert!(disk.directory(crate::history::LOG).list().unwrap().contains(&ROOM.to_owned()));
}

/// Records of all sizes in all budgets, over many rolls: once the older ones are truncated, each
/// finds room.
#[test]
fn a_budget_that_is_accepted_never_sticks() {
    let mut rng = fastrand::Rng::with_seed(59);
    let (mut logs, mut rolls) = (0, 0);
    for round in 0..80 {
        let largest = 1 << rng.u32(6..=20);
        let least = frame_bytes(largest) as u64 + (48 << 10);
        let segment_bytes = (least << rng.u32(0..3)).next_multiple_of(4096).max(64 << 10);
        let budget = segment_bytes + rng.u64(0..=segment_bytes) / [1, 16][round % 2];
        let options = small()
            .segment_bytes(segment_bytes)
            .record_bytes_max(largest)
            .disk_budget_bytes(budget)
            .pad_groups(rng.bool());
        if options.check().is_err() {
            continue;
        }
        logs += 1;
        let disk = SimDisk::new(1, [DiskOptions::default(), copies()][rng.usize(0..2)]);
        let mut log = open(&disk, options.clone()).unwrap();
        for step in 0..60 {
            let bytes = if rng.bool() { largest } else { rng.usize(0..=largest) };
            let what = format!("{bytes} of {largest} bytes, segments {segment_bytes}, {budget}");
            let last = log.append_durable(&vec![7; bytes]).unwrap_or_else(|why| {
                panic!("round {round}, step {step}: {what}: {why}");
            });
            // The last record stays, or is cut.
            log.truncate_before(last).unwrap();
            match rng.u32(0..8) {
                0 => log.truncate_after(last.before().unwrap()).unwrap(),
                1 => drop(log.prepare_now()),
                _ => {}
            }
            if rng.u32(0..6) == 0 {
                rolls += log.stats().segments;
                log.close().unwrap();
                log = open(&disk, options.clone()).unwrap();
            }
        }
        rolls += log.stats().segments;
    }
    assert!(logs > 40 && rolls > 500, "{logs} logs, {rolls} rolls");
}

/// A log that was moved from a file system where overwrites need room, and one whose file of
/// reserved room was made larger.
#[test]
fn room_that_is_not_needed_is_given_back() {
    let room_bytes = |disk: &SimDisk| {
        let opened = disk.directory(crate::history::LOG).open(ROOM, &OpenFile::existing());
        opened.ok().map(|file| file.len_bytes().unwrap())
    };
    let [needs_none, needs_some] = [DiskOptions::default(), copies()].map(|kind| disk(1, kind));
    for disk in [&needs_none, &needs_some] {
        open(disk, small()).unwrap().close().unwrap();
        for bytes in [0, 2 << 20] {
            let _ = disk.directory(crate::history::LOG).remove(ROOM);
            let file =
                disk.directory(crate::history::LOG).open(ROOM, &OpenFile::new_file()).unwrap();
            if bytes > 0 {
                file.prepare(Preparation::Fallocate, bytes).unwrap();
            }
            drop(file);
            open(disk, small()).unwrap().close().unwrap();
            let left = room_bytes(disk);
            let is_right = if std::ptr::eq(disk, &needs_none) {
                left.is_none()
            } else {
                left.is_some_and(|left| left > 0 && left <= 1 << 20)
            };
            assert!(is_right, "of {bytes} there are {left:?}");
        }
    }
}
