//! A disk that is really full: a small file system on a loop device.

#![allow(clippy::unwrap_used, reason = "the helpers of a test are a test too")]

#[path = "../../io/tests/host_support/mod.rs"]
mod host_support;

use std::fs::File;
use std::io::Write as _;
use std::path::Path;

use host_support::{EXT4, FileSystem, XFS, XFS_MIB, can_run};
use inkstone::{Error, Log, Lsn, Options};
use inkstone_io::free_bytes;

fn options() -> Options {
    Options::new().segment_bytes(4 << 20).record_bytes_max(1 << 20)
}

/// Takes all the room there is, to the last block.
fn fill(directory: &Path) {
    let mut file = File::create(directory.join("ballast")).unwrap();
    let mut piece = 1 << 20;
    while piece > 0 {
        match file.write(&vec![1; piece]).and_then(|written| file.sync_data().map(|()| written)) {
            Ok(written) if written > 0 => {}
            _ => piece /= 2,
        }
    }
}

fn record(lsn: u64) -> Vec<u8> {
    vec![lsn as u8; 50_000]
}

fn check(log: &Log, first: u64, last: u64) {
    let mut next = first;
    for shown in log.reader().records(log.first()) {
        let shown = shown.unwrap();
        assert_eq!((shown.lsn.get(), &shown.bytes), (next, &record(next)));
        next += 1;
    }
    assert_eq!(next, last + 1);
}

/// Appends until there is no room; gives the last LSN.
fn append_until_full(log: &Log) -> u64 {
    loop {
        let next = log.last().get() + 1;
        match log.append_durable(&record(next)) {
            Ok(lsn) => assert_eq!(lsn.get(), next),
            Err(error) => {
                assert!(matches!(error, Error::NoRoom { .. }), "{error}");
                assert!(
                    error.is_retryable() && error.to_string().contains("no room for a segment of"),
                    "{error}"
                );
                return next - 1;
            }
        }
    }
}

fn full_disk(kind: &str, mib: usize, args: &[&str]) {
    let made = FileSystem::new(kind, mib, args);
    let path = made.target().join("log");
    let log = Log::open(&path, options()).unwrap();
    for lsn in 1..=300 {
        assert_eq!(log.append_durable(&record(lsn)).unwrap().get(), lsn);
    }
    fill(made.target());
    append_until_full(&log);
    // xfs gives back room that it had kept for growing files; then that is taken too.
    fill(made.target());
    let last = append_until_full(&log);
    assert!(last >= 300, "{last}");
    assert_eq!(log.durable().get(), last, "nothing is lost and nothing poisoned");
    check(&log, 1, last);
    log.close().unwrap();
    // With no byte free it opens, is read, is truncated, and goes on in the blocks that this has freed.
    assert!(free_bytes(made.target()).unwrap() < 4 << 20);
    for round in 0..3 {
        let log = Log::open(&path, options()).unwrap();
        let last = log.last().get();
        check(&log, log.first().get(), last);
        log.truncate_before(Lsn::new(last - 5)).unwrap();
        check(&log, last - 5, last);
        for lsn in last + 1..=last + 20 {
            assert_eq!(log.append_durable(&record(lsn)).unwrap().get(), lsn, "round {round}");
        }
        log.close().unwrap();
    }
    // Killed without a word, it is the same.
    let log = Log::open(&path, options()).unwrap();
    let last = log.last().get();
    log.abandon();
    let log = Log::open(&path, options()).unwrap();
    check(&log, log.first().get(), last);
    drop(log);
    made.remove();
}

#[test]
fn a_full_ext4_loses_nothing_and_goes_on_when_there_is_room() {
    if can_run("a_full_ext4", &["mkfs.ext4"]) {
        full_disk("ext4", 64, EXT4);
    }
}

#[test]
fn a_full_xfs_loses_nothing_and_goes_on_when_there_is_room() {
    if can_run("a_full_xfs", &["mkfs.xfs"]) {
        full_disk("xfs", XFS_MIB, XFS);
    }
}
