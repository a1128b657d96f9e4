//! Processes that fork while they have a log open, where the child touches nothing and the parent
//! continues as if there were no child; and one that becomes another program.
//!
//! *Owns*: processes that it starts and ends. *May not touch*: what a lock is (`crates/io`).

#[path = "support/watch.rs"]
mod watch;

use std::future::Future;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::pin::{Pin, pin};
use std::process::Command;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use inkstone::{Error, Log, Lsn, Options, Reader};
use inkstone_host::{Signal, alone, fork_child, in_forked_child, signal_process};
use watch::{becomes, must_end};

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

/// Whether a future is ready at once, with the error of a forked child.
fn polled_once<T>(future: impl Future<Output = Result<T, Error>>) -> bool {
    let polled = pin!(future).poll(&mut Context::from_waker(Waker::noop()));
    matches!(polled, Poll::Ready(Err(Error::Forked { .. })))
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

#[test]
fn a_writer_that_becomes_another_program_gives_the_lock_back_and_loses_nothing_acknowledged() {
    let test =
        "a_writer_that_becomes_another_program_gives_the_lock_back_and_loses_nothing_acknowledged";
    if !alone(test) {
        return;
    }
    let place = tempfile::tempdir().expect("a directory");
    let path = place.path().join("log");
    let child = fork_child(|| {
        let log = Log::open(&path, Options::small()).expect("opened");
        append(&log, 1..=3);
        drop(log.append(b"nobody waits for it"));
        let _ = Command::new("sleep").arg("60").exec();
        1
    });
    let child = child.expect("a child");
    let is_another = || {
        let name = std::fs::read_to_string(format!("/proc/{}/comm", child.id()));
        name.is_ok_and(|name| name == "sleep\n")
    };
    assert!(becomes(is_another));
    // The kernel changes the name first, and lets the locks go a moment later.
    let is_locked = || matches!(Log::open(&path, Options::small()), Err(Error::Locked { .. }));
    assert!(becomes(|| !is_locked()) && is_another(), "the other program was to live on");
    signal_process(child.id(), Signal::Kill).expect("killed");
    child.wait().expect_err("a signal ended it");
    let last = Log::open(&path, Options::small()).expect("opened").last().get();
    assert!((3..=4).contains(&last), "{last}");
}
