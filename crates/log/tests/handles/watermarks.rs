//! Awaiting the watermark, and records as they become durable: who is woken, when, and what is left
//! of who leaves. Counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Poll, Wake, Waker};

use crate::wakers::{
    HOUR, block_on, counting, failing_write, patient, pending, poll, poll_once, sim_log,
};
use crate::watch::{ENOUGH, must_end};
use inkstone::{DurableAt, Error, Log, Lsn, Options, Reader, Watermarks};
use inkstone_sim::SimDisk;

type SimLog = Arc<Log>;

fn append(log: &Log, count: u64) {
    (0..count).for_each(|_| _ = log.append(b"a record").expect("appended"));
}

fn commit(log: &Log, count: u64) {
    append(log, count);
    log.sync().expect("synced");
}

fn count(woken: &AtomicUsize) -> usize {
    woken.load(Ordering::SeqCst)
}

/// What a task was told, in a word.
fn word(outcome: Poll<Result<(), Error>>) -> String {
    match outcome {
        Poll::Pending => "pending".into(),
        Poll::Ready(Ok(())) => "durable".into(),
        Poll::Ready(Err(Error::TruncatedAfter { lsn, last })) => format!("{lsn} cut after {last}"),
        Poll::Ready(Err(Error::Closed)) => "closed".into(),
        Poll::Ready(Err(Error::Poisoned(_))) => "poisoned".into(),
        Poll::Ready(Err(other)) => other.to_string(),
    }
}

/// What happens to a log of three records, the first of which is durable; what is told who awaits
/// LSN 2, 3 and 9.
type End = fn(&SimDisk, SimLog);
const ENDS: [(&str, [&str; 3], End); 7] = [
    ("a commit", ["durable", "durable", "pending"], |_, log| _ = log.sync().expect("synced")),
    ("a cut", ["durable", "3 cut after 2", "9 cut after 2"], |_, log| {
        log.truncate_after(Lsn::new(2)).expect("cut");
    }),
    // They are other records.
    (
        "a cut, and more records than before",
        ["durable", "3 cut after 2", "9 cut after 2"],
        |_, log| {
            log.truncate_after(Lsn::new(2)).expect("cut");
            commit(&log, 20);
        },
    ),
    ("truncation before", ["durable", "durable", "pending"], |_, log| {
        log.truncate_before(Lsn::new(4)).expect("truncated");
    }),
    ("closing", ["durable", "durable", "closed"], |_, log| log.close().expect("closed")),
    ("a poison", ["poisoned", "poisoned", "poisoned"], |disk, log| {
        disk.inject(failing_write());
        log.sync().expect_err("a write fails");
    }),
    ("being abandoned", ["closed", "closed", "closed"], |_, log| {
        Arc::into_inner(log).expect("the last owner").abandon();
    }),
];

#[test]
fn who_awaits_an_lsn_is_woken_once_and_told_what_became_of_it() {
    for (end, expected, act) in ENDS {
        must_end(end, move || {
            let (disk, log) = sim_log(patient());
            log.append_durable(b"first").expect("durable");
            append(&log, 2);
            let mut tasks = [2, 3, 9].map(|lsn| (log.durable_at(Lsn::new(lsn)), counting()));
            for (future, (waker, _)) in &mut tasks {
                assert!(
                    poll(future, waker).is_pending() && poll(future, waker).is_pending(),
                    "{end}"
                );
            }
            // Dropping it would close it.
            let _open = (end != "being abandoned").then(|| Arc::clone(&log));
            act(&disk, log);
            let told = tasks.each_mut().map(|(future, (waker, woken))| {
                let was_woken = count(woken);
                let told = word(poll(future, waker));
                assert_eq!(was_woken, usize::from(told != "pending"), "{end}: {told}");
                told
            });
            assert_eq!(told, expected, "{end}");
        });
    }
}

#[test]
fn what_is_known_is_told_at_the_first_poll() {
    let (_disk, log) = sim_log(patient());
    commit(&log, 3);
    let mut before_the_cut = log.durable_at(Lsn::new(3));
    assert_eq!(word(poll(&mut log.durable_at(Lsn::ZERO), Waker::noop())), "durable");
    assert_eq!(word(poll(&mut log.durable_at(Lsn::new(3)), Waker::noop())), "durable");
    log.truncate_after(Lsn::new(2)).expect("cut");
    commit(&log, 5);
    assert_eq!(word(poll(&mut before_the_cut, Waker::noop())), "3 cut after 2");
    assert_eq!(word(poll(&mut log.durable_at(Lsn::new(3)), Waker::noop())), "durable");
    log.close().expect("closed");
    assert_eq!(word(poll(&mut log.durable_at(Lsn::new(3)), Waker::noop())), "durable");
    assert_eq!(word(poll(&mut log.durable_at(Lsn::new(99)), Waker::noop())), "closed");
}

/// Ten thousand tasks, a hundred records a group: who is not reached is not woken.
#[test]
fn only_those_are_woken_whose_lsn_is_reached() {
    const TASKS: u64 = 10_000;
    let (_disk, log) = sim_log(patient());
    let (waker, woken) = counting();
    // From the last to the first, and every other one again.
    let mut futures: Vec<_> = (1..=TASKS).rev().map(|lsn| log.durable_at(Lsn::new(lsn))).collect();
    futures.iter_mut().for_each(|future| assert!(poll(future, &waker).is_pending()));
    futures.iter_mut().step_by(2).for_each(|future| assert!(poll(future, &waker).is_pending()));
    for group in 1..=TASKS / 100 {
        commit(&log, 100);
        assert_eq!(count(&woken) as u64, group * 100);
    }
    assert!(futures.iter_mut().all(|future| poll(future, Waker::noop()).is_ready()));
}

/// The counts are those of the commit rule: who is counted is waited for.
#[test]
fn a_dropped_future_is_counted_as_a_waiter_no_more() {
    let (_disk, log) = sim_log(patient());
    log.append_durable(b"first").expect("durable");
    let waiters = |log: &Log| log.stats().waiters;
    let before = waiters(&log);
    let mut appends: Vec<_> = (0..8).map(|_| pending(&log, Waker::noop())).collect();
    let last = log.last();
    let mut watermarks: Vec<_> = (0..8).map(|_| log.durable_at(last)).collect();
    watermarks.iter_mut().for_each(|future| assert!(poll(future, Waker::noop()).is_pending()));
    // Those who read are not counted at all.
    let mut ahead = log.durable_at(Lsn::new(1000));
    assert!(poll(&mut ahead, Waker::noop()).is_pending());
    assert!(poll_once(log.watermarks().changed(), Waker::noop()).is_none());
    appends.truncate(3);
    watermarks.truncate(2);
    // One waits as a thread after it was polled: it is one waiter. The others, and `sync`.
    let waits = appends.pop().expect("three");
    std::thread::scope(|scope| {
        let sync = scope.spawn(|| log.sync().expect("synced"));
        waits.wait().expect("durable");
        sync.join().expect("no panic");
    });
    let counted = waiters(&log) - before;
    // Either of the two threads may come when the group is durable.
    assert!((5..=6).contains(&counted), "{counted} waiters");
    // In a group that is closed there is nothing to take back.
    let before = waiters(&log);
    drop((appends, watermarks));
    log.append_durable(b"a lone one").expect("durable");
    assert_eq!(waiters(&log) - before, 1);
}

#[test]
fn the_logs_own_thread_commits_what_is_awaited_by_its_lsn() {
    must_end("awaiting an LSN", || {
        for _ in 0..20 {
            // A handle that is kept asks for nothing, and a new log has nothing to promise.
            let (_disk, log) = sim_log(Options::small());
            let kept = log.append(b"its handle is kept").expect("appended");
            block_on(log.durable_at(kept.lsn())).expect("durable");
            assert_eq!(log.durable(), kept.lsn());
            std::mem::forget(kept);
        }
    });
}

#[test]
fn a_periodic_log_does_not_call_durable_what_is_only_appended() {
    let (_disk, log) = sim_log(Options::small().periodic(HOUR));
    let lsn = log.append(b"a record").expect("appended").lsn();
    let mut future = log.durable_at(lsn);
    assert!(poll(&mut future, Waker::noop()).is_pending());
    log.sync().expect("synced");
    assert_eq!(word(poll(&mut future, Waker::noop())), "durable");
}

/// A waker that is counted as long as anybody has it.
#[derive(Default)]
struct Kept;

impl Wake for Kept {
    fn wake(self: Arc<Self>) {}
}

#[test]
fn a_future_that_is_dropped_leaves_nothing_behind() {
    // Two buffers of 8 KiB, and nobody who writes them.
    let (_disk, log) = sim_log(Options::small().periodic(HOUR).buffer_bytes(8 << 10));
    let kept = Arc::new(Kept);
    let waker = Waker::from(Arc::clone(&kept));
    let free = Arc::strong_count(&kept);
    let held = || Arc::strong_count(&kept) - free;
    let mut durable_at: [DurableAt; 3] = [1, 2, 1].map(|lsn| log.durable_at(Lsn::new(lsn)));
    durable_at.iter_mut().for_each(|future| assert!(poll(future, &waker).is_pending()));
    assert_eq!(held(), 3);
    drop(durable_at);
    assert_eq!(held(), 0, "durable_at");
    let mut watermarks = log.watermarks();
    assert!(poll_once(watermarks.changed(), &waker).is_none());
    assert_eq!(held(), 0, "changed");
    let mut cursor = log.reader().from(Lsn::FIRST);
    assert!(poll_once(cursor.next_async(), &waker).is_none());
    assert_eq!(held(), 0, "next_async");
    let (_disk, log) = sim_log(patient());
    let append = pending(&log, &waker);
    assert_eq!(held(), 1);
    drop(append);
    assert_eq!(held(), 0, "an append");
}

#[test]
fn a_watermark_is_the_newest_and_wakes_once() {
    let (_disk, log) = sim_log(patient());
    let mut watermarks = log.reader().watermarks().expect("this process writes it");
    // `None` while it is pending, and an error as LSN 99.
    let next = |watermarks: &mut Watermarks| {
        poll_once(watermarks.changed(), Waker::noop()).map(|told| told.map_or(99, Lsn::get))
    };
    assert_eq!((watermarks.last(), next(&mut watermarks)), (Lsn::ZERO, None));
    (0..3).for_each(|_| commit(&log, 4));
    assert_eq!(next(&mut watermarks), Some(12));
    assert_eq!((watermarks.last(), next(&mut watermarks)), (Lsn::new(12), None));
    let (waker, woken) = counting();
    let mut changed = Box::pin(watermarks.changed());
    assert!(poll(&mut changed, &waker).is_pending());
    append(&log, 1);
    assert_eq!(count(&woken), 0, "nothing is durable yet");
    (0..3).for_each(|_| commit(&log, 1));
    assert_eq!(count(&woken), 1, "it has not asked again");
    assert!(matches!(poll(&mut changed, &waker), Poll::Ready(Ok(lsn)) if lsn == Lsn::new(16)));
    drop(changed);
    log.truncate_after(Lsn::new(9)).expect("cut");
    assert_eq!(next(&mut watermarks), Some(9));
    // The same LSN after a cut is a change: it is another record.
    log.truncate_after(Lsn::new(8)).expect("cut");
    commit(&log, 1);
    assert_eq!(next(&mut watermarks), Some(9));
    log.truncate_before(Lsn::new(5)).expect("truncated");
    assert_eq!(next(&mut watermarks), None);
    append(&log, 1);
    log.close().expect("closed");
    assert_eq!(next(&mut watermarks), Some(10), "closing made it durable");
    assert!(matches!(poll_once(watermarks.changed(), Waker::noop()), Some(Err(Error::Closed))));
}

/// Each future is polled once and dropped if it is pending: no record is lost, and none comes
/// twice.
#[test]
fn a_cursor_that_is_awaited_and_cancelled_shows_every_record_once() {
    let (disk, log) = sim_log(patient());
    let mut cursor = log.reader().from(Lsn::FIRST);
    let mut shown = 0;
    for round in 0..200_u64 {
        let (waker, woken) = counting();
        while let Some(record) = poll_once(cursor.next_async(), &waker) {
            let record = record.expect("read");
            shown += 1;
            assert_eq!((record.lsn.get(), record.bytes), (shown, b"a record".as_slice()));
        }
        assert_eq!(shown, log.durable().get());
        append(&log, round % 3);
        assert!(poll_once(cursor.next_async(), &waker).is_none(), "shown before it is durable");
        let mut next = Box::pin(cursor.next_async());
        assert!(poll(&mut next, &waker).is_pending());
        // Into other segments too.
        commit(&log, round % 40);
        assert_eq!(count(&woken) as u64, u64::from(log.durable().get() > shown), "one group");
    }
    assert!(log.stats().segments > 2, "{} segments", log.stats().segments);
    // Whoever stood after the cut is woken, told once, and goes on.
    let (waker, woken) = counting();
    let mut cursor = log.reader().from(log.last().next().expect("there are LSNs left"));
    let mut next = Box::pin(cursor.next_async());
    assert!(poll(&mut next, &waker).is_pending());
    let last = Lsn::new(shown - 5);
    log.truncate_after(last).expect("cut");
    assert_eq!(count(&woken), 1);
    let Poll::Ready(Err(Error::TruncatedAfter { last: left, .. })) = poll(&mut next, &waker) else {
        panic!("the cut was not told");
    };
    assert_eq!(left, last);
    drop(next);
    commit(&log, 1);
    assert_eq!(
        block_on(cursor.next_async()).expect("read").lsn,
        last.next().expect("there is one")
    );
    // The last ones, and then that there will be no others.
    append(&log, 1);
    log.close().expect("closed");
    assert!(block_on(cursor.next_async()).is_ok());
    assert!(matches!(block_on(cursor.next_async()), Err(Error::Closed)));
    drop(disk);
}

#[test]
fn tasks_follow_a_writer_to_its_end() {
    must_end("following", || {
        const RECORDS: u64 = 500;
        let (_disk, log) = sim_log(Options::small());
        std::thread::scope(|scope| {
            for _ in 0..3 {
                let (mut cursor, mut watermarks) =
                    (log.reader().from(Lsn::FIRST), log.watermarks());
                scope.spawn(move || {
                    for lsn in 1..=RECORDS {
                        assert_eq!(block_on(cursor.next_async()).expect("read").lsn, Lsn::new(lsn));
                    }
                    assert!(matches!(block_on(cursor.next_async()), Err(Error::Closed)));
                });
                scope.spawn(move || {
                    let mut last = Lsn::ZERO;
                    while last < Lsn::new(RECORDS) {
                        let next = block_on(watermarks.changed()).expect("it rises");
                        assert!(next > last, "{next} after {last}");
                        last = next;
                    }
                });
            }
            (0..RECORDS).for_each(|_| _ = log.append_durable(b"a record").expect("durable"));
            log.close().expect("closed");
        });
    });
}

/// Nothing in this process is told when another one commits.
#[test]
fn a_reader_of_another_process_says_that_it_cannot_be_awaited() {
    let (disk, log) = sim_log(patient());
    commit(&log, 2);
    log.close().expect("closed");
    let reader =
        Reader::open_in(Arc::new(disk.directory("/log")), Options::small()).expect("opened");
    assert!(matches!(reader.watermarks(), Err(Error::Invalid(_))));
    let mut cursor = reader.from(Lsn::FIRST);
    for lsn in 1..=2 {
        assert_eq!(block_on(cursor.next_async()).expect("it need not wait").lsn, Lsn::new(lsn));
    }
    let error = block_on(cursor.next_async()).expect_err("it would wait");
    assert!(
        matches!(error, Error::Invalid(_)) && error.to_string().contains("next_within"),
        "{error}"
    );
    assert!(cursor.next_within(ENOUGH / 1000).expect("read").is_none());
}
