//! Processes that fork while they have a log open: the child touches nothing, and the parent
//! continues as if there were no child.

#[path = "support/watch.rs"]
mod watch;

use std::future::Future;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::pin::{Pin, pin};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use inkstone::{Error, Log, Lsn, Options, Reader};
use inkstone_host::{Signal, alone, fork_child, in_forked_child, signal_process};
use watch::{ENOUGH, becomes, must_end};

fn record(number: u64) -> Vec<u8> {
    format!("record {number}").into_bytes()
}

fn append(log: &Log, numbers: std::ops::RangeInclusive<u64>) {
    for number in numbers {
        let lsn = log.append_durable(&record(number)).expect("durable");
        assert_eq!(lsn, Lsn::new(number));
    }
}

/// The records of the log, and whether it was closed cleanly.
fn shown(path: &Path) -> (Vec<Vec<u8>>, bool) {
    let log = Log::open(path, Options::small()).expect("opened");
    let records =
        log.reader().records(Lsn::FIRST).map(|record| record.expect("read").bytes).collect();
    (records, log.recovery().clean)
}

#[test]
fn a_childs_drop_writes_nothing_over_what_the_parent_goes_on_to_write() {
    for own_thread in [true, false] {
        must_end("a child that drops the log", move || {
            let place = tempfile::tempdir().expect("a directory");
            let (path, go) = (place.path().join("log"), place.path().join("go"));
            let mut log =
                Some(Log::open(&path, Options::small().own_thread(own_thread)).expect("opened"));
            append(log.as_ref().expect("open"), 1..=3);
            let child = fork_child(|| {
                let went_on = becomes(|| go.exists());
                // The child's own copy.
                drop(log.take());
                u8::from(went_on)
            });
            append(log.as_ref().expect("open"), 4..=8);
            std::fs::write(&go, "").expect("written");
            assert_eq!(child.and_then(|child| child.wait()).expect("a child"), 1);
            assert_eq!(shown_by_copy(&path), 8, "what the medium has, as after a power cut");
            append(log.as_ref().expect("open"), 9..=9);
            log.take().expect("open").close().expect("closed");
            let (records, is_clean) = shown(&path);
            assert_eq!(records, (1..=9).map(record).collect::<Vec<_>>());
            assert!(is_clean);
        });
    }
}

/// Whether a future is ready at once, with the error of a forked child.
fn polled_once<T>(future: impl Future<Output = Result<T, Error>>) -> bool {
    let polled = pin!(future).poll(&mut Context::from_waker(Waker::noop()));
    matches!(polled, Poll::Ready(Err(Error::Forked { .. })))
}

/// How many records a copy of the log's files shows.
fn shown_by_copy(path: &Path) -> usize {
    let copy = tempfile::tempdir().expect("a directory");
    for entry in std::fs::read_dir(path).expect("listed") {
        let entry = entry.expect("listed");
        std::fs::copy(entry.path(), copy.path().join(entry.file_name())).expect("copied");
    }
    shown(copy.path()).0.len()
}

#[test]
fn every_call_of_a_child_is_an_error_of_its_own_and_takes_no_lock() {
    must_end("the calls of a child", || {
        let place = tempfile::tempdir().expect("a directory");
        let path = place.path().join("log");
        let mut log = Some(Log::open(&path, Options::small()).expect("opened"));
        append(log.as_ref().expect("open"), 1..=3);
        let reader = log.as_ref().expect("open").reader();
        let other_reader = Reader::open(&path, &Options::small()).expect("opened");
        let mut cursor = reader.from(Lsn::FIRST);
        assert!(cursor.next().expect("read").is_some());
        let handle = log
            .as_ref()
            .expect("open")
            .append(b"let go by the child")
            .expect("appended")
            .into_owned();
        let awaited = log
            .as_ref()
            .expect("open")
            .append(b"awaited by the child")
            .expect("appended")
            .into_owned();
        // Polled by the parent, dropped by the child as well.
        let mut pending_at = log.as_ref().expect("open").durable_at(Lsn::new(99));
        let polled = Pin::new(&mut pending_at).poll(&mut Context::from_waker(Waker::noop()));
        assert!(polled.is_pending());
        let mut pending_at = Some(pending_at);
        let mut handles = Some((handle, awaited));
        let code = in_forked_child(|| {
            let mut said = Vec::new();
            let mut ask = |what: &'static str, is_forked: bool| said.push((what, is_forked));
            {
                let log = log.as_ref().expect("open");
                ask("append", forked(&log.append(b"x").map(drop)));
                ask("append_batch", forked(&log.append_batch(&[b"x", b"y"]).map(drop)));
                ask("try_append", forked(&log.try_append(b"x").map(drop)));
                ask("append_durable", forked(&log.append_durable(b"x")));
                ask("append_async", polled_once(log.append_async(b"x")));
                ask("durable_at", polled_once(log.durable_at(Lsn::FIRST)));
                ask("changed", polled_once(log.watermarks().changed()));
                ask("sync", forked(&log.sync()));
                ask("truncate_before", forked(&log.truncate_before(Lsn::new(2))));
                ask("truncate_after", forked(&log.truncate_after(Lsn::new(2))));
                ask("reader", forked(&log.reader().get(Lsn::FIRST)));
                ask("durable", log.durable() >= Lsn::new(3) && log.last() == log.durable());
                ask("first", log.first() > log.last());
                ask("stats", log.stats().records == 0);
            }
            ask("get", forked(&reader.get(Lsn::FIRST)));
            ask("get of a reader of its own", forked(&other_reader.get(Lsn::FIRST)));
            ask("records", reader.records(Lsn::FIRST).next().is_some_and(|read| forked(&read)));
            ask("next", forked(&cursor.next().map(drop)));
            ask("next_async", polled_once(cursor.next_async()));
            ask("next_within", forked(&cursor.next_within(Duration::from_secs(3600)).map(drop)));
            let (handle, mut awaited) = handles.take().expect("two");
            ask("wait", forked(&handle.wait()));
            let polled = Pin::new(&mut awaited).poll(&mut Context::from_waker(Waker::noop()));
            ask("await", matches!(polled, Poll::Ready(Err(Error::Forked { .. }))));
            drop((awaited, pending_at.take()));
            ask("close", forked(&log.take().expect("open").close()));
            let wrong: Vec<_> = said.iter().filter(|(_, is_forked)| !is_forked).collect();
            wrong.iter().for_each(|(what, _)| eprintln!("not an error of its own: {what}"));
            u8::from(!wrong.is_empty())
        });
        assert_eq!(code.expect("a child"), 0);
        let (handle, awaited) = handles.take().expect("two");
        handle.wait().expect("durable");
        awaited.wait().expect("durable");
        append(log.as_ref().expect("open"), 6..=7);
        log.take().expect("open").close().expect("closed");
        assert_eq!(shown(&path).0.len(), 7);
    });
}

fn forked<T>(answer: &Result<T, Error>) -> bool {
    matches!(answer, Err(Error::Forked { .. }))
}

/// The fork comes at once: a thread of the parent's log that was still starting would leave the
/// child with a lock of the standard library.
#[test]
fn a_child_may_have_logs_of_its_own() {
    if !alone("a_child_may_have_logs_of_its_own") {
        return;
    }
    let place = tempfile::tempdir().expect("a directory");
    for round in 0..200 {
        let (path, own) = (place.path().join("log"), place.path().join(format!("own{round}")));
        let log = Log::open(&path, Options::small()).expect("opened");
        let child = fork_child(|| {
            let is_locked = matches!(Log::open(&path, Options::small()), Err(Error::Locked { .. }));
            let log = Log::open(&own, Options::small()).expect("opened");
            append(&log, 1..=3);
            log.close().expect("closed");
            u8::from(is_locked)
        });
        let child = child.expect("a child");
        let id = child.id();
        must_end("a child's own log", move || {
            assert_eq!(child.wait().expect("an end"), 1, "round {round}, process {id}");
        });
        assert_eq!(shown(&own).0.len(), 3);
        log.append_durable(b"the parent's").expect("durable");
    }
}

/// As many forks, beside as many threads that append.
const FORKS: u64 = 1000;
const THREADS: u64 = 4;

#[test]
fn a_thousand_forks_beside_four_threads_lose_nothing() {
    let place = tempfile::tempdir().expect("a directory");
    let path = place.path().join("log");
    let mut log = Some(Log::open(&path, Options::small()).expect("opened"));
    let is_over = AtomicBool::new(false);
    let (children, acknowledged) = std::thread::scope(|scope| {
        let open = log.as_ref().expect("open");
        let is_over = &is_over;
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                scope.spawn(move || {
                    let mut acknowledged = Vec::new();
                    while !is_over.load(Ordering::Relaxed) {
                        let record =
                            [thread.to_le_bytes(), (acknowledged.len() as u64).to_le_bytes()]
                                .concat();
                        acknowledged.push((open.append_durable(&record).expect("durable"), record));
                    }
                    acknowledged
                })
            })
            .collect();
        let children: Vec<_> = (0..FORKS)
            .map(|_| {
                // The child has its copy of the only owner.
                let copy = open;
                in_forked_child(|| {
                    u8::from(forked(&copy.append_durable(b"x")) && forked(&copy.sync()))
                })
            })
            .collect();
        is_over.store(true, Ordering::Relaxed);
        let acknowledged: Vec<_> =
            threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect();
        (children, acknowledged)
    });
    let right = children.iter().filter(|code| matches!(code, Ok(1))).count();
    assert_eq!(right as u64, FORKS);
    // One that drops the log, with the threads at rest and without.
    assert_eq!(in_forked_child(|| u8::from(log.take().is_some())).expect("a child"), 1);
    drop(log.take());
    let (records, is_clean) = shown(&path);
    assert!(is_clean);
    for (lsn, record) in &acknowledged {
        let index = usize::try_from(lsn.get()).expect("few") - 1;
        assert_eq!(records.get(index), Some(record), "LSN {lsn} was acknowledged");
    }
    assert_eq!(records.len(), acknowledged.len());
}

const ROLE: &str = "INKSTONE_FORKS_PARENT";

/// A process of its own: it opens the log, forks a child that lives on, and waits to be killed.
fn parent(path: &Path) -> ! {
    let log = Log::open(path, Options::small()).expect("opened");
    append(&log, 1..=3);
    let child = fork_child(|| {
        std::thread::sleep(2 * ENOUGH);
        0
    });
    println!("child {}", child.expect("a child").id());
    loop {
        std::thread::sleep(Duration::from_secs(60));
    }
}

#[test]
fn the_lock_does_not_outlive_its_owner_in_a_child() {
    if let Some(path) = std::env::var_os(ROLE) {
        parent(Path::new(&path));
    }
    let place = tempfile::tempdir().expect("a directory");
    let path = place.path().join("log");
    let this = std::env::current_exe().expect("this program");
    let mut parent = Command::new(this)
        .args(["--exact", "the_lock_does_not_outlive_its_owner_in_a_child", "--nocapture"])
        .env(ROLE, &path)
        .stdout(Stdio::piped())
        .spawn()
        .expect("started");
    let lines = BufReader::new(parent.stdout.take().expect("piped")).lines();
    let child = lines
        .map(|line| line.expect("read"))
        .find_map(|line| line.split_once("child ")?.1.parse::<u32>().ok())
        .expect("the parent says who its child is");
    assert!(matches!(Log::open(&path, Options::small()), Err(Error::Locked { .. })));
    signal_process(parent.id(), Signal::Kill).expect("killed");
    parent.wait().expect("ended");
    // A child that is still on its way out of `fork` has its copy of the lock.
    let mut opened = Log::open(&path, Options::small());
    let until = Instant::now() + ENOUGH;
    while matches!(opened, Err(Error::Locked { .. })) && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(5));
        opened = Log::open(&path, Options::small());
    }
    let lives = Path::new(&format!("/proc/{child}")).exists();
    signal_process(child, Signal::Kill).expect("killed");
    assert!(lives, "the child was to live on");
    assert_eq!(opened.expect("the lock is free").last(), Lsn::new(3));
}
