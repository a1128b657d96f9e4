//! In the steady state neither an append nor waiting for it allocates, and a log takes no more
//! memory the larger it is: counted, in all threads of the process.

#![allow(clippy::unwrap_used, reason = "the helpers of a test are a test too")]

use std::alloc::System;
use std::future::Future;
use std::io::IoSlice;
use std::path::Path;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Wake, Waker};
use std::time::{Duration, Instant};

use inkstone::{Log, Lsn, Options, Parts};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// One test at a time: allocations are counted for the whole process.
static TURN: Mutex<()> = Mutex::new(());

/// The test's own harness, and a thread that is started, allocate a few times.
const HARNESS: usize = 20;

/// A log that has been used for a while: the first segments are small, and a test of one of 63 MiB
/// stays within it.
fn used_log(directory: &Path, options: Options) -> Log {
    let log = Log::open(directory.join("log"), options.buffer_bytes(256 << 10)).unwrap();
    while log.stats().segments < 10 {
        drop(log.append(&[7; 4096]).unwrap());
    }
    log.sync().unwrap();
    log
}

/// The allocations of `work` once it was done before, and the log's threads came to rest: the
/// fewest of up to three times, since what other threads allocate meanwhile counts too. A time in
/// which a segment changed does not count.
fn counted(log: &Log, max: usize, settle: fn(&Log), mut work: impl FnMut(&Log)) -> usize {
    work(log);
    let mut fewest = usize::MAX;
    for _ in 0..3 {
        log.sync().unwrap();
        settle(log);
        let (before, segments) = (ALLOCATOR.stats(), log.stats().segments);
        work(log);
        log.sync().unwrap();
        let after = ALLOCATOR.stats();
        let count =
            after.allocations + after.reallocations - before.allocations - before.reallocations;
        if log.stats().segments == segments {
            fewest = fewest.min(count);
        }
        if fewest < max {
            break;
        }
    }
    fewest
}

/// It is being made ready by another thread, which takes memory for that.
fn wait_for_the_next_segment(log: &Log) {
    while log.stats().ready == 0 {
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Waits until no thread has allocated for a while. A file is ready before the preparer's step
/// ends, and the test's own harness starts a thread when a test ends: on a busy machine both fell
/// into what was counted.
fn wait_for_quiet() {
    let allocations = || ALLOCATOR.stats().allocations;
    let mut before = allocations();
    loop {
        std::thread::sleep(Duration::from_millis(50));
        let now = allocations();
        if now == before {
            return;
        }
        before = now;
    }
}

/// Waits until the threads of the logs and readers of earlier tests have ended: they give memory
/// back at their end. On a busy machine what they had was counted as in use before a test, and a
/// test found too little more.
fn wait_for_threads_of_other_logs() {
    let is_ours = |task: std::io::Result<std::fs::DirEntry>| {
        let name = task.and_then(|task| std::fs::read_to_string(task.path().join("comm")));
        name.is_ok_and(|name| name.starts_with("inkstone"))
    };
    while std::fs::read_dir("/proc/self/task").is_ok_and(|mut tasks| tasks.any(is_ours)) {
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Bytes that are allocated now.
fn bytes_in_use() -> usize {
    let stats = ALLOCATOR.stats();
    stats.bytes_allocated - stats.bytes_deallocated
}

/// What the log, a cursor and `get` may take together beside the buffers that were asked for.
const MEMORY_BYTES_MAX: usize = 32 << 20;

#[test]
fn memory_does_not_grow_with_the_log() {
    const BUFFER_BYTES: usize = 256 << 10;
    const RECORDS: u64 = 24_000;
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    wait_for_threads_of_other_logs();
    let directory = tempfile::tempdir().unwrap();
    let before = bytes_in_use();
    let used = || bytes_in_use() - before;
    let log =
        Log::open(directory.path().join("log"), Options::new().buffer_bytes(BUFFER_BYTES)).unwrap();
    let reader = log.reader();
    let mut most = Vec::new();
    // 94 MiB each: twice as long a log at the second time.
    for _ in 0..2 {
        let mut part = 0;
        let first = log.last().next().unwrap();
        for number in 0..RECORDS {
            drop(log.append(&[7; 4096]).unwrap());
            part = if number % 256 == 0 { part.max(used()) } else { part };
        }
        let last = log.sync().unwrap();
        let mut cursor = reader.from(first);
        while let Some(record) = cursor.next().unwrap() {
            part = if record.lsn.get() % 256 == 0 { part.max(used()) } else { part };
        }
        for lsn in (1..=last.get()).step_by(97) {
            assert_eq!(reader.get(Lsn::new(lsn)).unwrap(), [7; 4096]);
            part = part.max(used());
        }
        most.push(part);
    }
    println!("most bytes in use: {most:?}");
    assert!(most[0] > 2 * BUFFER_BYTES, "not counted: {most:?}");
    assert!(most.iter().all(|most| *most <= 2 * BUFFER_BYTES + MEMORY_BYTES_MAX), "{most:?}");
    // Marks of twice as many records, at 24 bytes for 2 KiB.
    assert!(most[1] <= most[0] + (4 << 20), "{most:?}");
    log.close().unwrap();
}

/// Threads that read ahead, in this process.
fn reading_threads() -> usize {
    let names = std::fs::read_dir("/proc/self/task").unwrap();
    let names =
        names.filter_map(|task| std::fs::read_to_string(task.unwrap().path().join("comm")).ok());
    names.filter(|comm| comm.starts_with("inkstone-pool")).count()
}

/// Whether there are none, or soon: one that was joined is still seen for a moment.
fn no_reading_threads() -> bool {
    let until = Instant::now() + Duration::from_secs(10);
    while reading_threads() > 0 && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
    reading_threads() == 0
}

#[test]
fn who_follows_a_log_to_its_end_gives_back_what_that_took() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    wait_for_threads_of_other_logs();
    let directory = tempfile::tempdir().unwrap();
    let log =
        Log::open(directory.path().join("log"), Options::new().buffer_bytes(256 << 10)).unwrap();
    while log.stats().segments < 4 {
        drop(log.append(&[7; 4096]).unwrap());
    }
    log.sync().unwrap();
    wait_for_the_next_segment(&log);
    let reader = log.reader();
    let before = bytes_in_use();
    let mut cursor = reader.from(Lsn::FIRST);
    let (mut most_bytes, mut most_threads) = (0, 0);
    while let Some(record) = cursor.next().unwrap() {
        if record.lsn.get() % 256 == 0 {
            most_bytes = most_bytes.max(bytes_in_use().saturating_sub(before));
            most_threads = most_threads.max(reading_threads());
        }
    }
    let bytes = bytes_in_use().saturating_sub(before);
    println!("on the way {most_bytes} bytes and {most_threads} threads, at the end {bytes} bytes");
    assert!(
        most_bytes > 4 << 20 && most_threads > 0,
        "read without reading ahead: {most_bytes}, {most_threads}"
    );
    assert!(
        bytes < 1 << 20 && no_reading_threads(),
        "kept at the end: {bytes} bytes, {} threads",
        reading_threads()
    );
    // It continues, through a segment that is full by then.
    let (shown, segments) = (cursor.next_lsn(), log.stats().segments);
    while log.stats().segments < segments + 2 {
        drop(log.append(&[8; 4096]).unwrap());
    }
    let last = log.sync().unwrap();
    for lsn in shown.get()..=last.get() {
        let record = cursor.next().unwrap().unwrap();
        assert_eq!((record.lsn, record.bytes), (Lsn::new(lsn), &[8; 4096][..]));
    }
    assert!(cursor.next().unwrap().is_none());
    assert!(no_reading_threads(), "threads kept at the second end");
    log.close().unwrap();
}

/// The buffers have their usual size again after two small ones.
#[test]
fn memory_after_a_large_record_is_what_it_was() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    wait_for_threads_of_other_logs();
    let directory = tempfile::tempdir().unwrap();
    // Without threads: on a busy machine the promise of an idle log would be the next small group.
    let options = Options::new().buffer_bytes(64 << 10).own_thread(false);
    let log = Log::open(directory.path().join("log"), options).unwrap();
    let small = || (0..2).for_each(|_| _ = log.append_durable(&[7; 100]).unwrap());
    small();
    let before = bytes_in_use();
    for large in 1..=2 {
        (0..large).for_each(|_| _ = log.append_durable(&vec![7; 3 << 20]).unwrap());
        assert!(bytes_in_use() > before + (2 << 20), "the buffers of large records are not kept");
        small();
        let after = bytes_in_use();
        assert!(
            after < before + (1 << 20),
            "{before} bytes in use before, {after} after {large} large records"
        );
    }
    log.close().unwrap();
}

/// The queue of tasks kept the room of all that had ever waited at once: 95 MiB for a million.
#[test]
fn memory_after_many_cancelled_waits_is_what_it_was() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    wait_for_threads_of_other_logs();
    let directory = tempfile::tempdir().unwrap();
    let log = Log::open(directory.path().join("log"), Options::small()).unwrap();
    let before = bytes_in_use();
    let mut waits: Vec<_> = (0..100_000).map(|_| log.durable_at(Lsn::new(1 << 40))).collect();
    let mut context = Context::from_waker(Waker::noop());
    assert!(waits.iter_mut().all(|wait| Pin::new(wait).poll(&mut context).is_pending()));
    assert!(bytes_in_use() > before + (5 << 20), "the waits take room");
    drop(waits);
    let kept = bytes_in_use().saturating_sub(before);
    assert!(kept < 64 << 10, "{kept} bytes are kept");
    log.close().unwrap();
}

/// Wakes the thread that polls.
struct Unparks(std::thread::Thread);

impl Wake for Unparks {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Some fifty times through both buffers.
fn records_that_nobody_waits_for(log: &Log) {
    (0..160_000).for_each(|_| drop(log.append(&[7; 128]).unwrap()));
}

fn a_lone_writer_that_waits(log: &Log) {
    (0..500).for_each(|_| _ = log.append_durable(&[7; 128]).unwrap());
}

/// They are larger than the buffers, which keep the size to which they have grown.
fn large_records(log: &Log) {
    let record = vec![7; 300 << 10];
    (0..40).for_each(|_| _ = log.append_durable(&record).unwrap());
}

fn four_writers_that_wait_together(log: &Log) {
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                (0..500).for_each(|_| {
                    log.append(&[7; 128]).unwrap().wait().unwrap();
                })
            });
        }
    });
}

const TASKS: usize = 64;

fn futures_that_are_awaited_together(log: &Log) {
    let waker = Waker::from(Arc::new(Unparks(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut pending = Vec::with_capacity(TASKS);
    for _ in 0..50 {
        pending.extend((0..TASKS).map(|_| log.append(&[7; 128]).unwrap()));
        while !pending.is_empty() {
            pending.retain_mut(|append| Pin::new(append).poll(&mut context).is_pending());
            if !pending.is_empty() {
                std::thread::park();
            }
        }
    }
}

fn records_in_parts(log: &Log) {
    let (header, body) = ([7; 20], [8; 108]);
    for _ in 0..20_000 {
        drop(log.append(&Parts(&[IoSlice::new(&header), IoSlice::new(&body)])).unwrap());
    }
}

/// By the LSN, by the watermark, by the record.
fn tasks_that_await_the_watermark(log: &Log) {
    let mut context = Context::from_waker(Waker::noop());
    let mut cursor = log.reader().from(log.last().next().unwrap());
    let mut watermarks = log.watermarks();
    let mut pending = Vec::with_capacity(TASKS);
    for _ in 0..50 {
        let lsn = log.append(&[7; 128]).unwrap().lsn();
        pending
            .extend((0..TASKS).map(|task| log.durable_at(Lsn::new(lsn.get() + task as u64 % 2))));
        let mut asleep = 0;
        let (mut is_shown, mut is_told) = (false, false);
        // The log's own thread may commit at any moment.
        while !(is_shown && is_told) {
            pending.retain_mut(|future| Pin::new(future).poll(&mut context).is_pending());
            asleep += pending.len();
            is_shown = is_shown || pin!(cursor.next_async()).poll(&mut context).is_ready();
            is_told = is_told || pin!(watermarks.changed()).poll(&mut context).is_ready();
            log.sync().unwrap();
        }
        // Those that are not reached are dropped.
        pending.clear();
        assert!(asleep >= TASKS / 2, "none was ever asleep");
    }
}

/// Small groups are copied into chunks that are used again: four times through the tail.
fn a_lone_writer_and_a_follower(log: &Log) {
    let mut cursor = log.reader().from(log.last().next().unwrap());
    for _ in 0..1000 {
        let lsn = log.append_durable(&[7; 4096 * 4]).unwrap();
        assert_eq!(cursor.next().unwrap().map(|record| record.lsn), Some(lsn));
    }
}

type Work = (&'static str, usize, fn(&Log));

#[test]
fn the_steady_state_allocates_nothing() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let directory = tempfile::tempdir().unwrap();
    let log = used_log(directory.path(), Options::new());
    let settle = |log: &Log| {
        wait_for_the_next_segment(log);
        wait_for_quiet();
    };
    // What is done, and by how many threads. A log keeps a tail from the first cursor on: what has
    // one comes last.
    let works: [Work; 8] = [
        ("160,000 records that nobody waits for", 1, records_that_nobody_waits_for),
        ("500 commits of a lone writer", 1, a_lone_writer_that_waits),
        ("40 records of 300 KiB", 1, large_records),
        ("2,000 commits by four threads", 4, four_writers_that_wait_together),
        ("3,200 futures", 1, futures_that_are_awaited_together),
        ("20,000 records in two parts", 1, records_in_parts),
        ("3,200 tasks that await the watermark", 1, tasks_that_await_the_watermark),
        ("1,000 commits with a follower", 1, a_lone_writer_and_a_follower),
    ];
    for (what, threads, work) in works {
        let max = HARNESS * threads;
        let count = counted(&log, max, settle, work);
        println!("{what}: {count} allocations");
        assert!(count < max, "{what}: {count} allocations");
    }
    log.close().unwrap();
}
