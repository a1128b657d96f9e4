//! What a user does with a log, on a real directory.

use std::sync::Arc;
use std::time::Duration;

use inkstone::{Access, Error, Log, Lsn, Options, Preparation};
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
fn what_was_appended_is_read_back_after_reopening() {
    for access in [Access::Buffered, Access::Direct] {
        for pad in [false, true] {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("log");
            let options = small().access(access).pad_groups(pad);
            let mut last = 0;
            for _ in 0..4 {
                let log = Log::open(&path, options.clone()).unwrap();
                assert_eq!(log.recovery().last.get(), last, "{:?}", log.recovery());
                check(&log, 1, last);
                for _ in 0..60 {
                    last += 1;
                    assert_eq!(log.append_durable(&record(last)).unwrap().get(), last);
                }
                check(&log, 1, last);
                assert_eq!(log.reader().get(Lsn::new(last / 2)).unwrap(), record(last / 2));
                log.close().unwrap();
            }
            let log = Log::open(&path, options).unwrap();
            assert!(log.recovery().clean, "{}", log.recovery());
            assert!(log.recovery().segments > 4);
        }
    }
}

#[test]
fn batches_large_records_and_truncation_at_both_ends() {
    let directory = tempfile::tempdir().unwrap();
    let log = Log::open(directory.path(), small()).unwrap();
    let records: Vec<_> = (1..=100).map(record).collect();
    for pair in records.chunks(2) {
        let append = log.append_batch(pair).unwrap();
        assert_eq!(append.lsn().get(), append.first_lsn().get() + 1);
    }
    assert_eq!(log.sync().unwrap().get(), 100);
    check(&log, 1, 100);
    log.truncate_before(Lsn::new(40)).unwrap();
    check(&log, 40, 100);
    assert!(matches!(log.reader().get(Lsn::new(39)), Err(Error::TruncatedBefore { .. })));
    let mut beyond = log.reader().from(Lsn::new(90));
    beyond.next().unwrap().unwrap();
    log.truncate_after(Lsn::new(70)).unwrap();
    assert!(matches!(beyond.next(), Err(Error::TruncatedAfter { .. })));
    assert!(beyond.next().unwrap().is_none());
    check(&log, 40, 70);
    for lsn in 71..=200 {
        drop(log.append(&record(lsn)).unwrap());
    }
    log.sync().unwrap();
    check(&log, 40, 200);
    log.truncate_before(Lsn::new(201)).unwrap();
    log.truncate_after(Lsn::new(200)).unwrap();
    assert!(log.append(&vec![0; 8193]).is_err());
    drop(log);
    let log = Log::open(directory.path(), small()).unwrap();
    assert_eq!((log.first().get(), log.last().get()), (201, 200));
    log.truncate_before(Lsn::new(201)).unwrap();
    check(&log, 201, 200);
    assert!(matches!(Log::open(directory.path(), small()), Err(Error::Locked { .. })));
}

#[test]
fn threads_share_flushes_and_a_follower_sees_everything() {
    let directory = tempfile::tempdir().unwrap();
    let options = small().preparation(Preparation::Fallocate);
    let log = Arc::new(Log::open(directory.path(), options).unwrap());
    let reader = log.reader();
    std::thread::scope(|scope| {
        for thread in 0..8_u8 {
            let log = &log;
            scope.spawn(move || {
                for number in 0..200_u8 {
                    log.append_durable(&[thread, number]).unwrap();
                }
            });
        }
        scope.spawn(|| {
            let mut next = [0; 8];
            for shown in reader.follow(Lsn::FIRST).take(1600) {
                let bytes = shown.unwrap().bytes;
                assert_eq!(next[usize::from(bytes[0])], bytes[1]);
                next[usize::from(bytes[0])] += 1;
            }
        });
    });
    assert_eq!(log.durable().get(), 1600);
}

#[test]
fn handles_that_nobody_waits_for_become_durable_and_futures_are_woken() {
    let directory = tempfile::tempdir().unwrap();
    let log = Log::open(directory.path(), small().idle(Duration::from_millis(5))).unwrap();
    drop(log.append(b"let go").unwrap());
    let mut cursor = log.reader().from(Lsn::FIRST);
    assert_eq!(cursor.next_within(Duration::from_secs(60)).unwrap().unwrap().bytes, b"let go");
    let lsn = block_on(log.append(b"awaited").unwrap()).unwrap();
    assert_eq!(lsn.get(), 2);
    let append = block_on(log.append_async(b"and this")).unwrap();
    assert_eq!(block_on(append).unwrap().get(), 3);
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
    assert_eq!(block_on(lost).unwrap().get(), 3);
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

/// The smallest runtime there is.
fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Arc::new(Unpark(std::thread::current())).into();
    let mut context = std::task::Context::from_waker(&waker);
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            std::task::Poll::Ready(output) => return output,
            std::task::Poll::Pending => std::thread::park(),
        }
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
