//! Records that are appended in parts: the same records, bytes on disk and errors as if the parts
//! had been joined.

use std::io::IoSlice;
use std::sync::Arc;
use std::task::Waker;

use crate::wakers::{block_on, patient, poll_once, sim_log};
use inkstone::{Error, Log, Lsn, Options, Parts};
use inkstone_sim::{DiskOptions, SimDisk};

/// A record cut into so many parts at random, some of them empty.
fn cut<'a>(record: &'a [u8], random: &mut fastrand::Rng) -> Vec<IoSlice<'a>> {
    let mut at: Vec<_> = (0..random.usize(..8)).map(|_| random.usize(..=record.len())).collect();
    at.sort_unstable();
    at.push(record.len());
    let mut from = 0;
    let parts = at.into_iter().map(|to| &record[std::mem::replace(&mut from, to)..to]);
    parts.map(IoSlice::new).collect()
}

fn files(disk: &SimDisk) -> Vec<(String, Vec<u8>)> {
    use inkstone_io::{Directory, File, OpenFile};
    let directory = disk.directory("/log");
    let mut names = directory.list().expect("listed");
    names.sort();
    let read = |name: &String| {
        let file = directory.open(name, &OpenFile::existing().read_only()).expect("opened");
        let mut bytes = vec![0; file.len_bytes().expect("known") as usize];
        file.read_at(&mut bytes, 0).expect("read");
        bytes
    };
    names.iter().map(|name| (name.clone(), read(name))).collect()
}

#[test]
fn the_bytes_on_disk_are_those_of_the_parts_joined() {
    let mut random = fastrand::Rng::with_seed(11);
    let logs = [0, 1].map(|_| {
        let disk = SimDisk::new(7, DiskOptions::default());
        let log = Log::open_in(Arc::new(disk.directory("/log")), patient()).expect("opened");
        (disk, log)
    });
    let [(whole_disk, whole), (disk, log)] = &logs;
    let sizes = [0, 0, 1, 7, 8, 9, 100, 767, 768, 3000, 5000];
    for round in 0..300 {
        let records: Vec<Vec<u8>> = (0..random.usize(1..4))
            .map(|_| (0..sizes[random.usize(..sizes.len())]).map(|_| random.u8(..)).collect())
            .collect();
        let parts: Vec<_> = records.iter().map(|record| cut(record, &mut random)).collect();
        let slices: Vec<_> = parts.iter().map(|parts| Parts(parts)).collect();
        let (joined, in_parts) = match round % 4 {
            0 => (whole.append(&records[0]), log.append(&slices[0])),
            1 => (whole.try_append(&records[0]), log.try_append(&slices[0])),
            2 => (whole.append(&records[0]), block_on(log.append_async(&slices[0]))),
            _ => (whole.append_batch(&records), log.append_batch(&slices)),
        };
        let (joined, in_parts) = (joined.expect("appended"), in_parts.expect("appended"));
        assert_eq!((joined.first_lsn(), joined.lsn()), (in_parts.first_lsn(), in_parts.lsn()));
        let lsn = in_parts.first_lsn();
        if round % 5 == 0 {
            joined.wait().expect("durable");
            in_parts.wait().expect("durable");
            let bytes = log.reader().get(lsn).expect("read");
            assert_eq!(bytes, records[0], "round {round}");
        } else {
            drop((joined, in_parts));
        }
    }
    for (_, log) in &logs {
        log.close().expect("closed");
    }
    assert!(log.stats().segments > 1);
    assert_eq!(
        (log.stats().records, log.stats().record_bytes),
        (whole.stats().records, whole.stats().record_bytes)
    );
    let (expected, found) = (files(whole_disk), files(disk));
    assert_eq!(expected.len(), found.len());
    for (expected, found) in expected.iter().zip(&found) {
        assert!(expected == found, "{} and {} differ", expected.0, found.0);
    }
}

#[test]
fn no_part_is_an_empty_record() {
    let (_disk, log) = sim_log(patient());
    for parts in [&[][..], &[IoSlice::new(b"")], &[IoSlice::new(b""), IoSlice::new(b"")]] {
        let lsn = log.append(&Parts(parts)).expect("appended").wait().expect("durable");
        assert_eq!(log.reader().get(lsn).expect("read"), b"");
    }
}

/// Whatever refuses the record refuses it in parts, with the same words, and nothing is appended.
#[test]
fn the_errors_are_those_of_the_parts_joined() {
    const MOST: usize = 4 << 10;
    let same = |log: &Log, record: &[u8], parts: &[IoSlice<'_>]| {
        let parts = Parts(parts);
        let last = log.last();
        let joined = [
            log.append(record).map(drop),
            log.try_append(record).map(drop),
            poll_once(log.append_async(record), Waker::noop()).expect("ready").map(drop),
            log.append_batch(&[record]).map(drop),
            log.append_batch(&[record, record]).map(drop),
        ];
        let in_parts = [
            log.append(&parts).map(drop),
            log.try_append(&parts).map(drop),
            poll_once(log.append_async(&parts), Waker::noop()).expect("ready").map(drop),
            log.append_batch(&[parts]).map(drop),
            log.append_batch(&[parts, parts]).map(drop),
        ];
        for (joined, in_parts) in joined.into_iter().zip(in_parts) {
            let (joined, in_parts) = (joined.expect_err("refused"), in_parts.expect_err("refused"));
            assert_eq!(joined.to_string(), in_parts.to_string());
            assert_eq!(std::mem::discriminant(&joined), std::mem::discriminant(&in_parts));
        }
        assert_eq!(log.last(), last);
    };
    let (_disk, log) = sim_log(patient().record_bytes_max(MOST));
    let record = [5; MOST + 1];
    same(&log, &record, &[IoSlice::new(&record[..MOST]), IoSlice::new(b"\x05")]);
    assert!(log.append(&Parts(&[IoSlice::new(&record[..MOST])])).is_ok(), "just not too large");
    let empty = log.append_batch::<Parts<'_>>(&[]).map(drop).expect_err("empty");
    assert_eq!(
        empty.to_string(),
        log.append_batch::<&[u8]>(&[]).map(drop).expect_err("empty").to_string()
    );
    // The same memory again and again: more than there is memory.
    let large = vec![0; 64 << 20];
    let parts = vec![IoSlice::new(&large); 320];
    let bytes = 20 << 30;
    let refused = log.append(&Parts(&parts));
    assert!(matches!(refused, Err(Error::TooLarge { bytes: told, .. }) if told == bytes));
    log.close().expect("closed");
    same(&log, b"too late", &[IoSlice::new(b"too "), IoSlice::new(b"late")]);
}

/// Where the record waits for room, so do its parts; who gives up is forgotten.
#[test]
fn parts_wait_for_room_as_a_record_does() {
    let (_disk, log) = sim_log(Options::small().segment_bytes(1 << 20).buffer_bytes(8 << 10));
    let big = vec![7; 1500];
    let parts = [IoSlice::new(&big), IoSlice::new(&big)];
    let mut cancelled = 0;
    for _ in 0..2000 {
        let last = log.last();
        match poll_once(log.append_async(&Parts(&parts)), Waker::noop()) {
            Some(append) => _ = append.expect("appended"),
            None => {
                cancelled += 1;
                assert_eq!(log.last(), last, "a future that is dropped appends nothing");
                // Whether it has to wait, and how long, is the log's.
                drop(block_on(log.append_async(&Parts(&parts))).expect("appended"));
            }
        }
    }
    assert!(cancelled > 0, "nobody ever waited for room");
    let last = log.sync().expect("synced");
    let mut cursor = log.reader().from(Lsn::FIRST);
    while let Some(record) = cursor.next().expect("read") {
        assert!(record.bytes == [&big[..], &big].concat());
    }
    assert_eq!(cursor.next_lsn(), last.next().expect("there are LSNs left"));
}
