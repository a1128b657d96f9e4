//! Calls at the ends of every range: each succeeds, or returns its own error. Nothing panics,
//! nothing hangs, and the log continues.
//!
//! *Owns*: the extremes. *May not touch*: what is in between.

#![allow(clippy::unwrap_used)] // A test may fail so.

use std::future::Future;
use std::io::IoSlice;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use inkstone::{Append, Error, Log, Lsn, Options, Parts, Reader, Result};
use inkstone_sim::{DiskOptions, SimDirectory, SimDisk};

fn directory() -> Arc<SimDirectory> {
    Arc::new(SimDisk::new(7, DiskOptions::default()).directory("/log"))
}

fn quiet() -> Options {
    Options::small().own_thread(false)
}

/// What a future says when it is asked once.
fn asked_once<T>(future: impl Future<Output = T>) -> Poll<T> {
    pin!(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// Each size is the largest, or one byte more.
#[test]
fn the_limit_of_a_record_and_of_a_batch_is_exact() {
    const MOST: usize = 8 << 10;
    let log = Log::open_in(directory(), quiet().record_bytes_max(MOST)).unwrap();
    let bytes = vec![7; MOST + 1];
    let now = |future| match asked_once(future) {
        Poll::Ready(result) => result,
        Poll::Pending => panic!("it waits"),
    };
    let is_exact = |bytes: usize, result: Result<Append<'_>>| match result.map(drop) {
        Ok(()) => assert!(bytes <= MOST, "{bytes}"),
        Err(Error::TooLarge { bytes: told, limit_bytes }) => {
            assert_eq!((told, limit_bytes), (bytes as u64, MOST as u64));
            assert!(bytes > MOST, "{bytes}");
        }
        Err(other) => panic!("{other}"),
    };
    for size in [MOST, MOST + 1] {
        let record = &bytes[..size];
        let parts = [IoSlice::new(&record[..1]), IoSlice::new(&record[1..])];
        is_exact(size, log.append(record));
        is_exact(size, log.append(&Parts(&parts)));
        is_exact(size, log.try_append(record));
        is_exact(size, now(log.append_async(record)));
        is_exact(size, log.append_batch(&[record]));
        log.sync().unwrap();
    }
    // Two records of a multiple of 8 bytes: the next larger batch has 8 bytes more.
    for more in [0, 1] {
        let (one, other) = (&bytes[..1000], &bytes[..MOST - 1000 - 2 * 24 + more]);
        let counted = (1000 + 24) + (other.len() + 24).next_multiple_of(8);
        assert_eq!(counted, MOST + 8 * more);
        let parts = [[IoSlice::new(one)], [IoSlice::new(other)]];
        is_exact(counted, log.append_batch(&[one, other]));
        is_exact(counted, log.append_batch(&[Parts(&parts[0]), Parts(&parts[1])]));
        log.sync().unwrap();
    }
    log.close().unwrap();
}

#[test]
fn the_last_lsns_are_given_out_and_then_there_are_none() {
    let last = Lsn::new(u64::MAX - 1);
    for (begin, count) in [(u64::MAX - 4, 4), (u64::MAX - 1, 1), (u64::MAX, 0)] {
        let directory = directory();
        let options = quiet().begin_at(Lsn::new(begin));
        let log = Log::open_in(Arc::clone(&directory), options.clone()).unwrap();
        // A batch that does not fit below the last LSN leaves no trace of itself.
        let refused = log.append_batch(&[[7u8; 8]; 5]).map(drop).unwrap_err();
        assert!(matches!(refused, Error::UsedUp), "{refused:?}");
        for _ in 0..count {
            log.append_durable(b"one of the last").unwrap();
        }
        for refused in [
            log.append(b"no number is left").map(drop),
            log.append_durable(b"no number is left").map(drop),
            log.try_append(b"no number is left").map(drop),
            log.append_batch(&[b"none", b"none"]).map(drop),
        ] {
            assert!(matches!(refused, Err(Error::UsedUp)), "{refused:?}");
        }
        let Poll::Ready(refused) = asked_once(log.append_async(b"none")) else {
            panic!("it waits")
        };
        assert!(matches!(refused.map(drop), Err(Error::UsedUp)));
        assert_eq!((log.sync().unwrap(), log.last()), (last, last));
        let reader = log.reader();
        assert_eq!(reader.records(Lsn::new(begin)).filter(|record| record.is_ok()).count(), count);
        assert!(matches!(reader.get(Lsn::new(u64::MAX)), Err(Error::NotYet { .. })));
        if count > 1 {
            log.truncate_before(last).unwrap();
            log.truncate_after(Lsn::new(last.get() - 1)).unwrap();
            log.append_durable(b"again").unwrap();
        }
        log.truncate_before(Lsn::new(u64::MAX)).unwrap();
        log.close().unwrap();
        let log = Log::open_in(directory, options).unwrap();
        assert_eq!((log.first(), log.last()), (Lsn::new(u64::MAX), last));
        log.close().unwrap();
    }
}

/// 0 is what an append that failed leaves.
fn no_record_has_lsn_zero(reader: &Reader) {
    let mut sought = reader.from(Lsn::FIRST);
    sought.seek(Lsn::ZERO);
    let answers = [
        reader.get(Lsn::ZERO).map(drop),
        reader.from(Lsn::ZERO).next().map(drop),
        sought.next().map(drop),
        sought.next_within(Duration::MAX).map(drop),
        reader.records(Lsn::ZERO).next().expect("an answer").map(drop),
        reader.follow(Lsn::ZERO).next().expect("an answer").map(drop),
    ];
    for answer in answers {
        assert!(matches!(&answer, Err(Error::Invalid(why)) if why.contains("LSN 0")), "{answer:?}");
    }
}

#[test]
fn every_lsn_can_be_asked_for() {
    let directory = directory();
    let log = Log::open_in(Arc::clone(&directory), quiet()).unwrap();
    (0..9).for_each(|_| drop(log.append(b"record").unwrap()));
    log.sync().unwrap();
    // Its group promises those before it: that is what a reader beside the writer sees.
    log.append_durable(b"the tenth").unwrap();
    let most = Lsn::new(u64::MAX);
    for reader in [log.reader(), Reader::open_in(Arc::clone(&directory), quiet()).unwrap()] {
        for lsn in [most, Lsn::new(u64::MAX - 1), Lsn::new(1 << 63)] {
            assert!(matches!(reader.get(lsn), Err(Error::NotYet { .. })));
            assert_eq!(reader.records(lsn).count(), 0);
            let mut cursor = reader.from(Lsn::FIRST);
            cursor.next().unwrap();
            cursor.seek(lsn);
            assert!(
                cursor.next().unwrap().is_none()
                    && cursor.next_within(Duration::ZERO).unwrap().is_none()
            );
            cursor.seek(Lsn::FIRST);
            assert!(cursor.next_within(Duration::MAX).unwrap().is_some(), "it is there");
        }
        no_record_has_lsn_zero(&reader);
    }
    for refused in
        [log.truncate_before(most), log.truncate_after(most), log.truncate_before(Lsn::new(12))]
    {
        assert!(matches!(refused, Err(Error::NotYet { .. })), "{refused:?}");
    }
    log.truncate_before(Lsn::ZERO).unwrap();
    log.truncate_after(Lsn::ZERO).unwrap();
    log.append_durable(b"anew").unwrap();
    log.close().unwrap();
    for known in [most, Lsn::new(2)] {
        let refused = Log::open_in(Arc::clone(&directory), quiet().expect_durable(known)).map(drop);
        assert!(matches!(refused, Err(Error::Corrupt(_))), "{refused:?}");
        let refused =
            Reader::open_in(Arc::clone(&directory), quiet().expect_durable(known)).map(drop);
        assert!(matches!(refused, Err(Error::Corrupt(_))), "{refused:?}");
    }
    Log::open_in(directory, quiet().expect_durable(Lsn::FIRST)).unwrap().close().unwrap();
}

#[test]
fn no_time_is_too_long_or_too_short() {
    for time in
        [Duration::MAX, Duration::from_secs(u64::MAX), Duration::from_secs(1 << 62), Duration::ZERO]
    {
        let options = Options::small().slow_commit(time).disk_budget_bytes(u64::MAX);
        for options in [options.clone(), options.periodic(time)] {
            let log = Log::open_in(directory(), options).unwrap();
            drop(log.append(b"let go").unwrap());
            let kept = log.append(b"kept").unwrap();
            assert!(matches!(asked_once(log.append_async(b"polled")), Poll::Ready(Ok(_))));
            kept.wait().unwrap();
            log.sync().unwrap();
            let mut cursor = log.reader().from(Lsn::FIRST);
            for _ in 0..3 {
                assert!(cursor.next_within(time.max(Duration::from_secs(9))).unwrap().is_some());
            }
            // By now the log's own thread sleeps, with its timer set.
            std::thread::sleep(Duration::from_millis(5));
            log.close().unwrap();
        }
    }
}
