//! A disk that is really full: a small file system on a loop device.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;

use crate::host_support::{BTRFS, EXT4, FileSystem, XFS, XFS_MIB, can_run, run};
use inkstone::{Error, Log, Lsn, Options};
use inkstone_io::free_bytes;

fn options() -> Options {
    Options::new().segment_bytes(4 << 20).record_bytes_max(1 << 20)
}

/// Takes all the room there is, to the last block; more than it has taken before.
fn fill(directory: &Path) {
    let mut file =
        File::options().create(true).append(true).open(directory.join("ballast")).unwrap();
    let mut piece = 1 << 20;
    while piece > 0 {
        match file.write(&vec![1; piece]).and_then(|written| file.sync_data().map(|()| written)) {
            Ok(written) if written > 0 => {}
            _ => piece /= 2,
        }
    }
}

/// btrfs gives the blocks of removed files back with the end of its transaction, which this waits
/// for.
fn sync(directory: &Path) {
    run("sync", &["-f", directory.to_str().unwrap()]);
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
                // Of the smallest segment that holds the record.
                assert!(
                    error.is_retryable() && error.to_string().contains("no room for 81920 bytes"),
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
    drop(log);
    // With no byte free it can be opened, read and truncated, and continues in the blocks that this
    // has freed.
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
        drop(log);
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
#[ignore = "needs root and mkfs.ext4"]
fn a_full_ext4_loses_nothing_and_goes_on_when_there_is_room() {
    if can_run("a_full_ext4", &["mkfs.ext4"]) {
        full_disk("ext4", 64, EXT4);
    }
}

#[test]
#[ignore = "needs root and mkfs.xfs"]
fn a_full_xfs_loses_nothing_and_goes_on_when_there_is_room() {
    if can_run("a_full_xfs", &["mkfs.xfs"]) {
        full_disk("xfs", XFS_MIB, XFS);
    }
}

/// Only a poison may be named by closing.
fn close(log: Log) {
    if let Err(error) = log.close() {
        assert!(matches!(error, Error::Poisoned(_)), "{error}");
    }
}

/// On btrfs an overwrite needs room. What is appended poisons; everything else works.
#[test]
#[ignore = "needs root and mkfs.btrfs"]
fn a_full_btrfs_is_opened_read_and_shortened() {
    if !can_run("a_full_btrfs", &["mkfs.btrfs"]) {
        return;
    }
    for mixed in [false, true] {
        let args: Vec<_> = BTRFS.iter().copied().chain(mixed.then_some("--mixed")).collect();
        let made = FileSystem::new("btrfs", 256, &args);
        let path = made.target().join("log");
        let log = Log::open(&path, options()).unwrap();
        for lsn in 1..=600 {
            assert_eq!(log.append_durable(&record(lsn)).unwrap().get(), lsn);
        }
        fill(made.target());
        close(log);
        for round in 0..4 {
            fill(made.target());
            let log =
                Log::open(&path, options()).unwrap_or_else(|why| panic!("{mixed} {round}: {why}"));
            let last = log.last().get();
            check(&log, log.first().get(), last);
            let first = log.first().get() + 90;
            let kept_bytes =
                std::fs::metadata(path.join("inkstone.room")).map_or(0, |room| room.len());
            match log.truncate_before(Lsn::new(first)) {
                Ok(()) => check(&log, first, last),
                // `fill` has taken what the round before had freed, and this opening has used the
                // kept room up.
                Err(Error::NoRoom { .. }) if round > 0 && kept_bytes < 1 << 20 => {
                    println!(
                        "mixed {mixed}, round {round}: refused with {kept_bytes} bytes of kept room"
                    );
                    check(&log, log.first().get(), last);
                }
                Err(why) => panic!("mixed {mixed}, round {round}, {kept_bytes} bytes kept: {why}"),
            }
            if round % 2 == 0 { close(log) } else { log.abandon() }
        }
        // Nothing is kept, and others have all the room.
        // Closed in order: a killed writer's files that were ready would be room.
        close(Log::open(&path, options()).unwrap());
        let _ = std::fs::remove_file(path.join("inkstone.room"));
        // What the last blocks of the ballast were copied from comes back with the transaction too.
        for _ in 0..3 {
            fill(made.target());
            sync(made.target());
        }
        let log = Log::open(&path, options()).unwrap();
        let (first, last) = (log.first().get(), log.last().get());
        check(&log, first, last);
        assert!(
            log.recovery().waits_for_room || mixed,
            "where data has room of its own, none is left"
        );
        if log.recovery().waits_for_room {
            let error = log.append(&record(last + 1)).unwrap_err();
            assert!(matches!(error, Error::NoRoom { .. }), "{error}");
            let error = log.truncate_before(Lsn::new(first + 1)).unwrap_err();
            assert!(matches!(error, Error::NoRoom { .. }), "{error}");
        }
        std::fs::remove_file(made.target().join("ballast")).unwrap();
        // The log syncs the file system before it gives its first group up, but not for a group of
        // records: after a removal the user syncs (docs/durability.md, "A full disk").
        sync(made.target());
        assert_eq!(log.append_durable(&record(last + 1)).unwrap().get(), last + 1, "there is room");
        check(&log, first, last + 1);
        log.close().unwrap();
        drop(log);
        made.remove();
    }
}
