//! Callbacks of records: each is called once, in order, with what became of its record, and while
//! nothing of the log is locked. And closing a log that others use.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;
use std::time::Duration;

use crate::wakers::{ENDS, failing_write, patient, sim_log};
use crate::watch::{ENOUGH, becomes, must_end};
use inkstone::{Error, Log, Lsn, Options};

type Told = (Result<Lsn, Error>, ThreadId);

/// Appends a record whose callback sends its outcome and its thread.
fn tells(log: &Log, tell: &Sender<Told>) -> Lsn {
    let append = log.append(b"a record with a callback").expect("appended");
    let (lsn, tell) = (append.lsn(), tell.clone());
    append.on_durable(move |outcome| {
        let _ = tell.send((outcome, std::thread::current().id()));
    });
    lsn
}

#[test]
fn each_is_called_once_whatever_becomes_of_its_record() {
    for (end, is_durable, act) in ENDS {
        must_end(end, move || {
            let (disk, log) = sim_log(patient());
            log.append_durable(b"first").expect("durable");
            let (tell, told) = channel();
            let lsns: Vec<_> = (0..5).map(|_| tells(&log, &tell)).collect();
            drop(tell);
            assert!(told.try_recv().is_err(), "{end}: called before it is decided");
            act(&disk, log);
            // The channel ends when every callback has been called or dropped.
            let outcomes: Vec<_> = told.into_iter().map(|(outcome, _)| outcome).collect();
            assert_eq!(outcomes.len(), lsns.len(), "{end}: one is not called, or twice");
            for (outcome, lsn) in outcomes.into_iter().zip(lsns) {
                assert_eq!(outcome.as_ref().ok(), is_durable.then_some(&lsn), "{end}: {outcome:?}");
            }
        });
    }
}

#[test]
fn they_are_called_one_at_a_time_in_the_order_of_their_lsns() {
    must_end("the order", || {
        let (_disk, log) = sim_log(Options::small());
        let called = Arc::new(Mutex::new(Vec::new()));
        let inside = Arc::new(AtomicUsize::new(0));
        // One after the other from many threads, so that each is registered in the order of LSNs;
        // they race with the commits.
        let turn = Mutex::new(());
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for number in 0..200 {
                        let _turn = turn.lock().expect("sound");
                        let append = log.append(&[1; 100]).expect("appended");
                        let (called, inside) = (Arc::clone(&called), Arc::clone(&inside));
                        append.on_durable(move |outcome| {
                            assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two at a time");
                            called.lock().expect("sound").push(outcome.expect("durable"));
                            inside.fetch_sub(1, Ordering::SeqCst);
                        });
                        if number % 10 == 0 {
                            log.sync().expect("synced");
                        }
                    }
                });
            }
        });
        log.close().expect("closed");
        assert!(becomes(|| called.lock().expect("sound").len() == 800), "{:?}", called.lock());
        assert!(called.lock().expect("sound").is_sorted());
    });
}

#[test]
fn a_panic_disturbs_nothing() {
    must_end("a panic", || {
        for own_thread in [false, true] {
            let (_disk, log) = sim_log(Options::small().own_thread(own_thread));
            let (tell, told) = channel();
            tells(&log, &tell);
            for _ in 0..2 {
                let append = log.append(b"its callback panics").expect("appended");
                append.on_durable(|_| std::panic::resume_unwind(Box::new("a callback's")));
            }
            let last = tells(&log, &tell);
            if !own_thread {
                log.sync().expect("the caller does not see it");
            }
            let told: Vec<_> =
                (0..2).map(|_| told.recv_timeout(ENOUGH).expect("called").0).collect();
            assert_eq!(told.last().and_then(|outcome| outcome.clone().ok()), Some(last));
            log.append_durable(b"and the log goes on").expect("durable");
            log.close().expect("closed");
        }
    });
}

#[test]
fn it_may_append_register_truncate_and_close() {
    must_end("using the log", || {
        for own_thread in [false, true] {
            let (disk, log) = sim_log(patient().own_thread(own_thread).buffer_bytes(8 << 10));
            let (tell, told) = channel();
            let theirs = Arc::clone(&log);
            log.append(b"the first").expect("appended").on_durable(move |outcome| {
                outcome.expect("durable");
                let inner = tell.clone();
                let log = Arc::clone(&theirs);
                theirs.append(b"the second").expect("appended").on_durable(move |outcome| {
                    let _ = inner.send(("the second", outcome));
                    log.close().expect("closed");
                    let inner = inner.clone();
                    assert!(matches!(log.append(b"too late"), Err(Error::Closed)));
                    let _ = inner.send(("closed", log.close().map(|()| log.durable())));
                });
                // More than both buffers hold.
                for _ in 0..20 {
                    drop(theirs.append(&[5; 3000]).expect("appended"));
                }
                theirs.sync().expect("synced");
                theirs.truncate_after(Lsn::new(2)).expect("cut");
                // The second is decided, and is called after this one.
                let _ = tell.send(("the first", Ok(theirs.last())));
            });
            // The log's own thread may have been here before, and then the callback has closed the
            // log.
            match log.sync() {
                Ok(_) => {}
                Err(closed) => assert!(own_thread && matches!(closed, Error::Closed), "{closed}"),
            }
            let told: Vec<_> =
                told.iter().map(|(what, lsn)| (what, lsn.expect("sound").get())).collect();
            assert_eq!(told, [("the first", 2), ("the second", 2), ("closed", 2)]);
            drop(log);
            let again = Log::open_in(Arc::new(disk.directory("/log")), Options::small())
                .expect("it is free");
            assert_eq!((again.last(), again.recovery().clean), (Lsn::new(2), true));
        }
    });
}

/// Everything that was appended before is durable, every waiter has an answer, and nothing is
/// appended afterwards.
#[test]
fn a_log_is_closed_while_others_use_it() {
    must_end("closing beside others", || {
        for round in 0..50 {
            let options = Options::small().own_thread(round % 2 == 0);
            let (disk, log) = sim_log(options);
            let acknowledged = AtomicUsize::new(0);
            let (tell, told) = channel();
            std::thread::scope(|scope| {
                for number in 0..4 {
                    let (log, acknowledged, tell) = (&log, &acknowledged, tell.clone());
                    scope.spawn(move || {
                        loop {
                            let append = match log.append(&[number; 300]) {
                                Ok(append) => append,
                                Err(Error::Closed) => break,
                                Err(error) => panic!("{error}"),
                            };
                            let lsn = append.lsn();
                            if number % 2 == 0 {
                                append
                                    .wait()
                                    .expect("what was appended before it began becomes durable");
                                acknowledged.fetch_max(lsn.get() as usize, Ordering::SeqCst);
                            } else {
                                let tell = tell.clone();
                                append.on_durable(move |outcome| _ = tell.send((lsn, outcome)));
                            }
                            if number == 3 {
                                let _ = log.truncate_before(log.durable());
                            }
                        }
                    });
                }
                scope.spawn(|| {
                    std::thread::sleep(Duration::from_micros(100 * round));
                    let closed: Vec<_> = std::thread::scope(|scope| {
                        let calls: Vec<_> = (0..2).map(|_| scope.spawn(|| log.close())).collect();
                        calls.into_iter().map(|call| call.join().expect("no panic")).collect()
                    });
                    assert!(closed.iter().any(Result::is_ok), "{closed:?}");
                    // It is free, although the log is not dropped yet.
                    let again = Log::open_in(Arc::new(disk.directory("/log")), Options::small());
                    let again = again.expect("the lock is free");
                    assert!(again.recovery().clean);
                    let acknowledged = acknowledged.load(Ordering::SeqCst) as u64;
                    assert!(
                        again.last().get() >= acknowledged,
                        "{} < {acknowledged}",
                        again.last()
                    );
                });
            });
            drop(tell);
            log.close().expect("the same again");
            for (lsn, outcome) in told {
                assert_eq!(outcome.expect("durable"), lsn);
            }
        }
    });
}

#[test]
fn a_closed_log_that_was_poisoned_says_so_each_time() {
    must_end("closing a poisoned log", || {
        let (disk, log) = sim_log(patient());
        let append = log.append(b"lost").expect("appended").into_owned();
        disk.inject(failing_write());
        for _ in 0..2 {
            assert!(matches!(log.close(), Err(Error::Poisoned(_))));
        }
        assert!(matches!(append.wait(), Err(Error::Poisoned(_))));
        assert!(matches!(log.append(b"another"), Err(Error::Poisoned(_))));
    });
}
