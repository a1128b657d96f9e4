//! What a user does with a log, on a real directory.

use std::sync::Arc;
use std::time::Duration;

use inkstone::{Error, Log, Lsn, Options};
use inkstone_sim::{DiskOptions, Effect, Fault, OperationKind, SimDisk, errno};

fn small() -> Options {
    Options::new().segment_bytes(64 << 10).record_bytes_max(8 << 10).buffer_bytes(16 << 10)
}

fn record(lsn: u64) -> Vec<u8> {
    (0..lsn * 37 % 3000).map(|at| (at ^ lsn) as u8).collect()
}

fn check(log: &Log, from: u64, to: u64) {
    let mut next = from;
    for shown in log.reader().records(Lsn::new(from)) {
        let shown = shown.unwrap();
        assert_eq!((shown.lsn.get(), &shown.bytes), (next, &record(next)), "LSN {next}");
        next += 1;
    }
    assert_eq!(next, to + 1);
}

#[test]
fn an_owned_handle_goes_anywhere_and_outlives_the_log() {
    let disk = SimDisk::new(1, DiskOptions::default());
    let log = Log::open_in(Arc::new(disk.directory("/log")), small()).unwrap();
    let [elsewhere, kept, lost] =
        [b"1", b"2", b"3"].map(|record| log.append(record).unwrap().into_owned());
    // By value: another thread gets it while this one holds the log.
    let waited =
        std::thread::spawn(move || (elsewhere.lsn(), elsewhere.wait().unwrap())).join().unwrap();
    assert_eq!(waited, (Lsn::FIRST, Lsn::FIRST));
    log.close().unwrap();
    assert_eq!(kept.wait().unwrap().get(), 2);
    assert_eq!(crate::wakers::block_on(lost).unwrap().get(), 3);
    let log = Log::open_in(Arc::new(disk.directory("/log")), small()).unwrap();
    assert_eq!(log.last().get(), 3);
    let never = log.append(b"4").unwrap().into_owned();
    log.abandon();
    let error = never.wait().expect_err("nothing was written");
    assert!(matches!(error, Error::Closed), "{error}");
}

/// A waiter that held the timer of one group and was still asleep kept the first waiter of the next
/// group from taking one: all threads slept until a fallback of a second woke them.
#[test]
fn nobody_who_waits_is_forgotten() {
    // A disk in memory: what is rare on a real one comes often enough.
    let disk = SimDisk::new(1, DiskOptions::default());
    let log = Log::open_in(Arc::new(disk.directory("/log")), small()).unwrap();
    for threads in [2, 3, 8, 16] {
        std::thread::scope(|scope| {
            for thread in 0..threads {
                let log = &log;
                scope.spawn(move || {
                    for number in 0..40_000 / threads {
                        log.append_durable(&[thread as u8, number as u8]).unwrap();
                    }
                });
            }
        });
        log.truncate_before(log.last()).unwrap();
    }
    assert_eq!(log.stats().missed_wakeups, 0);
}

/// What was wanted before a cut lies above every LSN after it: it must not hide what is wanted
/// then.
#[test]
fn what_is_let_go_after_a_cut_becomes_durable_too() {
    let directory = tempfile::tempdir().unwrap();
    let log = Log::open(directory.path(), small()).unwrap();
    for round in 1..20_u64 {
        for _ in 0..50 {
            drop(log.append(b"wanted before the cut").unwrap());
        }
        log.sync().unwrap();
        log.truncate_after(Lsn::new(round)).unwrap();
        let append = log.append(b"wanted after it").unwrap();
        let lsn = append.lsn();
        drop(append);
        let mut cursor = log.reader().from(lsn);
        let shown = cursor.next_within(Duration::from_secs(60)).unwrap();
        assert_eq!(shown.expect("the log's own thread has committed it").bytes, b"wanted after it");
    }
}

/// First blocks of many segments are read several at a time, and arrive in any order; one that
/// cannot be read is an error.
#[test]
fn a_log_of_many_segments_opens() {
    for seed in 0..8 {
        let disk = SimDisk::new(seed, DiskOptions::default());
        let directory = Arc::new(disk.directory("/log"));
        let log = Log::open_in(Arc::clone(&directory), small()).unwrap();
        for lsn in 1..=600 {
            drop(log.append(&record(lsn)).unwrap());
        }
        log.close().unwrap();
        let log = Log::open_in(Arc::clone(&directory), small()).unwrap();
        assert!(log.recovery().segments > 12, "{}", log.recovery());
        check(&log, 1, 600);
        log.close().unwrap();
        let number = 1 + seed % 12;
        let unreadable = Fault::new(Effect::Error(errno::EIO))
            .on(OperationKind::Read)
            .file(&format!("{number:020}.ink"));
        disk.inject(unreadable);
        match Log::open_in(directory, small()) {
            Err(Error::Io(error)) => {
                assert!(error.to_string().contains(&format!("{number:020}.ink")), "{error}")
            }
            other => panic!("{other:?}"),
        }
    }
}
