//! Whole files that are wrong: how an opening judges them.
//!
//! *Owns*: files of other logs, renamed, missing, empty, blank, foreign and unreadable files, an
//! unknown version. Damage to bytes is in `damage.rs`.

#![allow(clippy::unwrap_used, reason = "the helpers of a test are a test too")]

use std::path::PathBuf;
use std::sync::Arc;

use crate::every_kind::{HEAD, LAST, OLD, every_kind, record_of};
use crate::history::{
    LOG, Told, append, check, check_with, name, open, read_file, record, small, write_file,
};
use inkstone::{Error, Log, Lsn, Reader, Reason, Verdict, inspect};
use inkstone_format::HeaderBlock;
use inkstone_format::checksum::crc32c;
use inkstone_format::limits::{HEADER_BYTES, HEADER_COPY_BYTES};
use inkstone_io::{Directory, File, OpenFile};
use inkstone_sim::{DiskOptions, Effect, Fault, OperationKind, SimDisk, errno};

/// The files of the disk but for the lock.
fn files(disk: &SimDisk) -> Vec<(PathBuf, Vec<u8>)> {
    disk.image().into_iter().filter(|(path, _)| !path.ends_with("inkstone.lock")).collect()
}

/// The opening is refused for this reason, and touches nothing.
#[track_caller]
fn refused(disk: &SimDisk, reason: Reason) {
    let before = files(disk);
    match open(disk, small()) {
        Err(Error::Corrupt(corruption)) => assert_eq!(corruption.reason, reason, "{corruption}"),
        other => panic!("{other:?}"),
    }
    assert!(files(disk) == before, "a refused opening has changed a file");
}

/// The opening shows everything, and a record can be appended and found again.
#[track_caller]
fn sound(disk: &SimDisk) {
    check_with(disk, small(), Told::all(LAST), record_of).unwrap();
    let log = open(disk, small()).unwrap();
    log.append_durable(&record_of(LAST + 1)).unwrap();
    log.close().unwrap();
    check_with(disk, small(), Told::all(LAST + 1), record_of).unwrap();
}

#[test]
fn a_file_of_another_log_is_refused() {
    // The same history, and another log.
    let other = SimDisk::new(77, DiskOptions::default());
    let log = open(&other, small()).unwrap();
    append(&log, 1, 100).unwrap();
    log.close().unwrap();
    for (theirs, ours) in [(1, 1), (2, 2), (2, 3), (1, 9)] {
        let disk = every_kind();
        let bytes = read_file(&other.directory(LOG), &name(theirs));
        let directory = disk.directory(LOG);
        let _ = directory.remove(&name(ours));
        write_file(&directory, &name(ours), 0, &bytes);
        refused(&disk, Reason::ForeignLog);
        // Nobody is told that records are lost, or to remove a file: nothing is damaged.
        let to = || Ok(Arc::new(disk.directory("/saved")));
        let salvaged = inspect::salvage_in(&directory, to, &small());
        let opened = Log::open_in(Arc::new(disk.directory(LOG)), small()).map(drop);
        let report = inspect::verify_in(&directory).unwrap();
        assert!(report.savable.is_none() && report.is_of_two_logs());
        for error in [salvaged.map(drop).unwrap_err(), opened.unwrap_err()] {
            let said = error.to_string();
            assert!(said.matches("of the files here: 0000").count() == 2, "{said}");
            assert!(said.contains("move the files") && !said.contains("salvage"), "{said}");
        }
    }
}

#[test]
fn renamed_segments_are_refused() {
    let rename = |pairs: &[(&str, &str)]| {
        let disk = every_kind();
        let directory = disk.directory(LOG);
        pairs.iter().for_each(|(from, to)| directory.rename(from, to).unwrap());
        disk
    };
    let (one, two, three) = (name(OLD), name(HEAD), name(3));
    refused(&rename(&[(&one, "x"), (&two, &one), ("x", &two)]), Reason::Misplaced);
    refused(&rename(&[(&two, &three)]), Reason::MissingSegment);
    refused(&rename(&[(&one, &three)]), Reason::MissingSegment);
    // The head alone, under the number of the one before: it speaks of a later one.
    refused(&rename(&[(&two, &one)]), Reason::Misplaced);
}

#[test]
fn a_missing_segment_is_refused_wherever_it_was() {
    let long = || {
        let disk = SimDisk::new(3, DiskOptions::default());
        let log = open(&disk, small()).unwrap();
        append(&log, 1, 400).unwrap();
        assert!(directory_segments(&disk) >= 4);
        log.close().unwrap();
        disk
    };
    let segments = directory_segments(&long());
    for missing in 1..=segments {
        let disk = long();
        disk.directory(LOG).remove(&name(missing)).unwrap();
        refused(&disk, Reason::MissingSegment);
    }
    // All of them are gone: only the caller can know it.
    let disk = long();
    (1..=segments).for_each(|number| disk.directory(LOG).remove(&name(number)).unwrap());
    let expecting = small().expect_durable(Lsn::new(400));
    assert!(matches!(open(&disk, expecting), Err(Error::Corrupt(_))));
    assert!(open(&disk, small()).unwrap().recovery().created);
}

fn directory_segments(disk: &SimDisk) -> u64 {
    disk.directory(LOG).list().unwrap().iter().filter(|name| name.ends_with(".ink")).count() as u64
}

#[test]
fn empty_and_blank_files() {
    // An empty file with a segment's name: a segment has its full size before it has its name.
    for number in [OLD, HEAD, 3] {
        let disk = every_kind();
        let directory = disk.directory(LOG);
        let _ = directory.remove(&name(number));
        write_file(&directory, &name(number), 0, &[]);
        refused(&disk, if number == OLD { Reason::MissingSegment } else { Reason::FileShort });
    }
    // What was being made when the power went, or is kept for its blocks, is no part of the log.
    for extension in ["new", "free"] {
        for bytes in [&[][..], &[7; 5000]] {
            let disk = every_kind();
            write_file(&disk.directory(LOG), &format!("{:020}.{extension}", 3), 0, bytes);
            sound(&disk);
        }
    }
    // A blank segment above the head: the power went before its header was there.
    let disk = every_kind();
    write_file(&disk.directory(LOG), &name(3), 0, &vec![0; 64 << 10]);
    sound(&disk);
    // Blank where there was a head.
    let disk = every_kind();
    write_file(&disk.directory(LOG), &name(HEAD), 0, &vec![0; 64 << 10]);
    refused(&disk, Reason::MissingSegment);
}

/// Cuts a segment's file short, as somebody may who copies a log while it is made.
fn cut_short(disk: &SimDisk, number: u64, bytes: u64) {
    disk.directory(LOG).open(&name(number), &OpenFile::existing()).unwrap().set_len(bytes).unwrap();
}

#[test]
fn nobody_is_sent_to_salvage_where_there_is_no_record() {
    for bytes in [0, 1, 2048, 4095, 4096, 4097, 5000, 8192, 20_000] {
        let disk = SimDisk::new(bytes, DiskOptions::default());
        open(&disk, small()).unwrap().close().unwrap();
        cut_short(&disk, 1, bytes);
        let said = [
            open(&disk, small()).unwrap_err(),
            Reader::open_in(Arc::new(disk.directory(LOG)), small()).unwrap_err(),
            inspect::salvage_in(
                Arc::new(disk.directory(LOG)),
                || Ok(Arc::new(disk.directory("/saved"))),
                &small(),
            )
            .unwrap_err(),
        ];
        for error in said {
            assert!(error.corruption().is_some_and(|damage| damage.cure == inkstone::Cure::Backup));
            let said = error.to_string();
            assert!(said.contains("no record was found") && !said.contains("salvage"), "{said}");
        }
        // What the message says.
        disk.directory(LOG).remove(&name(1)).unwrap();
        assert!(open(&disk, small()).unwrap().recovery().created);
    }
    // With records before the cut, in this segment or in another, there is something to salvage.
    for (records, is_last, bytes) in [(20, true, 6000), (400, true, 4096), (400, false, 0)] {
        let disk = SimDisk::new(records, DiskOptions::default());
        let log = open(&disk, small()).unwrap();
        append(&log, 1, records).unwrap();
        log.close().unwrap();
        cut_short(&disk, if is_last { directory_segments(&disk) } else { 1 }, bytes);
        let said = open(&disk, small()).unwrap_err().to_string();
        assert!(said.contains("`inkstone salvage` saves"), "{said}");
    }
    // In one group, which nothing promises.
    let disk = SimDisk::new(3, DiskOptions::default());
    let log = open(&disk, small()).unwrap();
    (1..20).for_each(|lsn| drop(log.append(&record(lsn)).unwrap()));
    log.append_durable(&record(20)).unwrap();
    log.abandon();
    cut_short(&disk, 1, 8192);
    let said = open(&disk, small()).unwrap_err().to_string();
    assert!(said.contains("`inkstone salvage` saves"), "{said}");
}

#[test]
fn foreign_names_are_left_alone() {
    let disk = every_kind();
    let names = [
        "notes.txt",
        "3.ink",
        "00000000000000000000.ink",
        "00000000000000000003.ink.bak",
        ".hidden",
    ];
    for name in names {
        write_file(&disk.directory(LOG), name, 0, b"mine");
    }
    sound(&disk);
    for name in names {
        assert_eq!(read_file(&disk.directory(LOG), name), b"mine");
    }
}

/// No call reports damage or an unused file, and none changes anything.
#[track_caller]
fn refused_as_unknown(disk: &SimDisk, name: &str) {
    let before = files(disk);
    let directory = || Arc::new(disk.directory(LOG));
    let elsewhere = || Ok(Arc::new(disk.directory("/elsewhere")));
    for refused in [
        open(disk, small()).map(drop),
        Reader::open_in(directory(), small()).map(drop),
        inspect::verify_in(&*directory()).map(drop),
        inspect::look_in(&*directory()).map(drop),
        inspect::dump_in(directory(), 0).map(drop),
        inspect::salvage_in(&*directory(), elsewhere, &small()).map(drop),
    ] {
        let Err(Error::UnknownVersion { path, version, flags }) = &refused else {
            panic!("{refused:?}")
        };
        assert!(
            path.ends_with(name) && matches!((version, flags), (77, 0) | (1, 1)),
            "{refused:?}"
        );
        let text = refused.unwrap_err().to_string();
        let is_told = text.contains("knows only version 1") && !text.contains("corrupt");
        assert!(is_told, "{text}");
    }
    assert!(files(disk) == before, "who refuses a directory has changed a file");
}

#[test]
fn a_version_that_is_not_known_is_refused_wherever_it_is() {
    for number in [OLD, HEAD, 3] {
        for (at, value) in [(8, 77), (12, 1)] {
            let disk = every_kind();
            let directory = disk.directory(LOG);
            let mut bytes = read_file(&directory, &name(number.min(HEAD)));
            for copy in [0, 2048] {
                bytes[copy + at] = value;
                let sum_at = copy + HEADER_COPY_BYTES - 4;
                let sum = crc32c(&bytes[copy..sum_at]);
                bytes[sum_at..sum_at + 4].copy_from_slice(&sum.to_le_bytes());
            }
            write_file(&directory, &name(number), 0, &bytes);
            refused_as_unknown(&disk, &name(number));
        }
    }
}

/// The program of the follower is older than the one that continues the log.
#[test]
fn a_follower_is_told_when_a_newer_program_goes_on() {
    let disk = SimDisk::new(3, DiskOptions::default());
    let log = open(&disk, small()).unwrap();
    append(&log, 1, 20).unwrap_or_else(|error| panic!("{error}"));
    log.sync().unwrap();
    log.close().unwrap();
    let reader = Reader::open_in(Arc::new(disk.directory(LOG)), small()).unwrap();
    let mut cursor = reader.from(Lsn::FIRST);
    (0..20).for_each(|_| assert!(cursor.next().unwrap().is_some()));
    assert!(cursor.next().unwrap().is_none());
    let mut bytes = read_file(&disk.directory(LOG), &name(1));
    bytes[8] = 9;
    let sum_at = HEADER_COPY_BYTES - 4;
    let sum = crc32c(&bytes[..sum_at]);
    bytes[sum_at..sum_at + 4].copy_from_slice(&sum.to_le_bytes());
    write_file(&disk.directory(LOG), &name(2), 0, &bytes);
    let told = cursor.next().map(drop);
    assert!(matches!(told, Err(Error::UnknownVersion { version: 9, .. })), "{told:?}");
    assert!(reader.get(Lsn::new(7)).unwrap() == record(7), "what it knows it shows");
}

/// Two segments that both have the records from LSN 2 on: the truncated ones, and those that were
/// appended instead. No crash leaves that; the fuzzer found it, which corrects the sums of what it
/// changes.
#[test]
fn an_end_that_is_named_too_late_shows_nothing_that_was_cut_off() {
    let disk = SimDisk::new(3, DiskOptions::default());
    let log = open(&disk, small()).unwrap();
    let batch: Vec<_> = (1..=3).map(record).collect();
    log.append_batch(&batch).unwrap().wait().unwrap();
    let end = inspect::look_in(&disk.directory(LOG)).unwrap().end.unwrap().byte;
    log.truncate_after(Lsn::new(1)).unwrap();
    for lsn in [102, 103] {
        log.append_durable(&record(lsn)).unwrap();
    }
    log.close().unwrap();
    let directory = disk.directory(LOG);
    let mut block = [0; HEADER_BYTES];
    block.copy_from_slice(&read_file(&directory, &name(2))[..HEADER_BYTES]);
    let (found, cuts) = HeaderBlock::with_cuts(&block);
    let mut header = *found.header().unwrap();
    header.predecessor.as_mut().unwrap().byte = end;
    header.encode(&cuts.unwrap(), &mut block);
    write_file(&directory, &name(2), 0, &block);
    let found = inspect::verify_in(&directory).unwrap();
    assert!(found.verdict == Verdict::Corrupt(Reason::Link), "{found:?}");
    let read_only = Reader::open_in(Arc::new(directory), small()).unwrap();
    // Opening reads the last segment only, which is sound.
    let log = open(&disk, small()).unwrap();
    for reader in [read_only, log.reader()] {
        let shown: Vec<_> = reader.records(Lsn::FIRST).map(|next| next.unwrap().bytes).collect();
        assert!(shown == [1, 102, 103].map(record));
        assert_eq!(reader.get(Lsn::new(2)).unwrap(), record(102));
    }
    log.close().unwrap();
}

/// First blocks of many segments are read several at a time, and arrive in any order; one that
/// cannot be read is an error.
#[test]
fn a_log_of_many_segments_opens() {
    for seed in 0..8 {
        let disk = SimDisk::new(seed, DiskOptions::default());
        let log = open(&disk, small()).unwrap();
        append(&log, 1, 1500).unwrap();
        log.close().unwrap();
        assert!(directory_segments(&disk) > 10);
        check(&disk, small(), Told::all(1500)).unwrap();
        let unreadable = name(1 + seed);
        let fault = Fault::new(Effect::Error(errno::EIO)).on(OperationKind::Read);
        disk.inject(fault.file(&unreadable));
        let refused = open(&disk, small()).unwrap_err();
        assert!(matches!(refused, Error::Io(_)) && refused.to_string().contains(&unreadable));
    }
}
