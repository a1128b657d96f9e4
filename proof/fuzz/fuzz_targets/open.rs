//! A directory of any bytes through the front door: opening may refuse; what opens can be read,
//! appended to, closed and opened again, and then shows the same and what was appended. And the log
//! agrees with the format's own survey of the same bytes, which is another piece of code over the
//! same tables.

#![no_main]

use std::sync::Arc;

use inkstone::{Error, Log, Lsn, Options};
use inkstone_format::{SegmentNumber, Verdict};
use inkstone_fuzz::survey::{Survey, survey};
use inkstone_fuzz::{Image, images, mutate};
use inkstone_io::{Directory, File, OpenFile, SyncKind};
use inkstone_sim::{DiskOptions, SimDisk};
use libfuzzer_sys::{fuzz_mutator, fuzz_target, fuzzer_mutate};

fuzz_mutator!(|input: &mut [u8], len: usize, max_len: usize, seed: u32| {
    mutate(input, len, max_len, seed, fuzzer_mutate)
});

fuzz_target!(|input: &[u8]| {
    let disk = SimDisk::new(1, DiskOptions { writeback_ppm: 0, ..DiskOptions::default() });
    let directory = disk.directory("/log");
    let images = images(input);
    for (number, bytes) in &images {
        let name = format!("{number:020}.ink");
        let file = directory.open(&name, &OpenFile::new_file()).expect("numbers are different");
        file.write_at(bytes, 0).expect("no fault is planned");
        file.sync(SyncKind::All).expect("no fault is planned");
    }
    directory.sync().expect("no fault is planned");
    let found = surveyed(&images);
    let is_corrupt = matches!(found.verdict, Verdict::Corrupt(_));
    let log = match open(&disk) {
        Ok(log) => log,
        Err(Error::Corrupt(why)) => {
            return assert!(is_corrupt, "{why}, and yet the survey says {}", found.row);
        }
        Err(error @ Error::UnknownVersion { .. }) => {
            let is_unknown = matches!(found.verdict, Verdict::Unknown);
            return assert!(
                is_unknown || is_corrupt,
                "{error}, and yet the survey says {}",
                found.row
            );
        }
        // Nothing is said of its records then.
        Err(Error::UsedUp | Error::OtherKind { .. }) => return,
        Err(error) => panic!("{error}"),
    };
    let (shown, is_whole) = read(&log);
    // Opening reads the head only: what is wrong before it shows when it is read; unless no record
    // is wrong, only what lies behind the last one of an older segment (a promise, padding).
    assert!(is_whole || is_corrupt, "the survey says {}, the log {}", found.row, log.recovery());
    if is_whole && is_corrupt {
        let damaged = found.at.map(|at| at.segment);
        let head = log.recovery().end.map(|end| end.segment);
        assert!(
            damaged < head,
            "the survey says {} at {damaged:?}, the log {}",
            found.row,
            log.recovery()
        );
    }
    if is_whole && !is_corrupt {
        assert_eq!((log.first(), log.last().next()), (found.first_live, Some(found.next_lsn)));
        assert_eq!(shown.len() as u64, found.records);
    }
    let mut appended = Vec::new();
    for record in [&b"one"[..], &[7; 5000], b""] {
        match log.append_durable(record) {
            Ok(lsn) => appended.push((lsn, record.to_vec())),
            Err(Error::UsedUp) => break,
            Err(error) => panic!("{error}"),
        }
    }
    let (first, last) = (log.first(), log.last());
    log.close().expect("no fault is planned");
    let log = match open(&disk) {
        Ok(log) => log,
        Err(Error::UsedUp) => return,
        Err(error) => panic!("it opened before, and now: {error}"),
    };
    assert!(log.recovery().clean || appended.is_empty(), "{}", log.recovery());
    assert_eq!((log.first(), log.last()), (first, last));
    let (again, is_whole_again) = read(&log);
    assert_eq!(is_whole, is_whole_again);
    if is_whole {
        let expected: Vec<_> = shown.iter().chain(&appended).collect();
        let other = again.iter().zip(&expected).find(|(now, then)| now != *then);
        assert!(
            again.len() == expected.len() && other.is_none(),
            "{} records, expected {}: {other:?}",
            again.len(),
            expected.len()
        );
    }
    log.abandon();
});

fn surveyed(images: &[Image]) -> Survey {
    let files = images.iter().map(|(number, bytes)| {
        (SegmentNumber::new(*number).expect("numbers are from 1"), &bytes[..])
    });
    survey(&files.collect::<Vec<_>>(), &mut |_, _| {})
}

fn open(disk: &SimDisk) -> Result<Log, Error> {
    let options =
        Options::new().segment_bytes(64 << 10).record_bytes_max(8 << 10).buffer_bytes(16 << 10);
    Log::open_in(Arc::new(disk.directory("/log")), options.own_thread(false))
}

/// The records, and whether all of them could be read: damage in older segments is found by reading
/// them.
fn read(log: &Log) -> (Vec<(Lsn, Vec<u8>)>, bool) {
    let mut shown = Vec::new();
    for record in log.reader().records(log.first()) {
        match record {
            Ok(record) => shown.push((record.lsn, record.bytes)),
            Err(Error::Corrupt(_)) => return (shown, false),
            Err(error) => panic!("{error}"),
        }
    }
    let next = log.first().get() + shown.len() as u64;
    assert_eq!(next, log.durable().get() + 1, "as many records as the watermark says");
    (shown, true)
}
