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
