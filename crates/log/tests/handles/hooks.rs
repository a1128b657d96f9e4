//! Listeners: no lock of the log is held while one runs, and one that panics, or drops the log,
//! leaves it in order.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::task::{Poll, Waker};
use std::time::Duration;

use crate::wakers::{HOUR, counting, doing, failing_write, patient, pending, poll, sim_log};
use crate::watch::{ENOUGH, becomes, must_end};
use inkstone::{BoxedListener, Error, Event, Log, Lsn, Options, SealedSegment};
use inkstone_host::in_forked_child;
use inkstone_sim::{DiskOptions, SimDisk};

/// A listener that, for each event, calls the log and lets another thread append before it
/// continues.
fn meddling(
    log: &Arc<OnceLock<Weak<Log>>>,
    is_inside: &Arc<AtomicBool>,
) -> (impl Fn(&Event) + Send + Sync + 'static, Receiver<(String, bool)>) {
    let log = Arc::clone(log);
    let (tell, told): (Sender<(String, bool)>, _) = channel();
    let tell = Mutex::new(tell);
    let is_inside = Arc::clone(is_inside);
    let listener = move |event: &Event| {
        let name =
            format!("{event:?}").split([' ', '(', '{']).next().unwrap_or_default().to_owned();
        let Some(log) = log.get().and_then(Weak::upgrade) else { return };
        // What the other thread does makes events as well.
        if is_inside.swap(true, Ordering::SeqCst) {
            return;
        }
        let _ = (log.last(), log.stats(), log.first(), log.durable(), log.reader().get(Lsn::FIRST));
        let (done, is_done) = channel();
        std::thread::spawn(move || {
            let appended = log.append_durable(b"while a hook runs");
            let _ = done.send(matches!(appended, Ok(_) | Err(Error::Poisoned(_))));
        });
        let is_free = is_done.recv_timeout(Duration::from_secs(10)).unwrap_or(false);
        is_inside.store(false, Ordering::SeqCst);
        let _ = tell.lock().expect("sound").send((name, is_free));
    };
    (listener, told)
}

#[test]
fn a_hook_holds_nothing_of_the_log_whatever_it_is_told() {
    must_end("a hook", || {
        let slot = Arc::new(OnceLock::new());
        let is_inside = Arc::default();
        let (listener, told) = meddling(&slot, &is_inside);
        let options = Options::new()
            .segment_bytes(64 << 10)
            .record_bytes_max(16 << 10)
            .buffer_bytes(16 << 10)
            .slow_commit(Duration::ZERO)
            .disk_budget_bytes(400 << 10)
            .listener(listener);
        let (disk, log) = sim_log(options);
        slot.set(Arc::downgrade(&log)).expect("once");
        let mut seen: Vec<(String, bool)> = Vec::new();
        let record = vec![3; 8000];
        let has_seen =
            |seen: &[(String, bool)], name: &str| seen.iter().any(|(other, _)| other == name);
        for _ in 0..2000 {
            match log.append_durable(&record) {
                Ok(last) => log.truncate_before(last).expect("truncated"),
                Err(error) => assert!(matches!(error, Error::NoRoom { .. }), "{error}"),
            }
            seen.extend(told.try_iter());
            if ["SlowCommit", "SegmentSealed"].iter().all(|name| has_seen(&seen, name)) {
                break;
            }
        }
        // The seals of the segments that were left are written by then.
        std::thread::sleep(Duration::from_millis(50));
        assert!(becomes(|| !is_inside.load(Ordering::SeqCst)));
        disk.inject(failing_write());
        log.append_durable(&record).expect_err("a write fails");
        seen.extend(told.try_iter());
        for (name, is_free) in &seen {
            assert!(is_free, "{name}: nobody else could append while the hook ran");
        }
        for name in ["SlowCommit", "SegmentSealed", "Poisoned"] {
            assert!(has_seen(&seen, name), "{name} was never told: {seen:?}");
        }
    });
}

#[test]
fn a_hook_that_panics_on_the_logs_own_thread_poisons_and_followers_learn_of_it() {
    must_end("a panic of a hook", || {
        let options = Options::small().slow_commit(Duration::ZERO).listener(|event: &Event| {
            let is_own = std::thread::current().name() == Some("inkstone");
            if is_own && matches!(event, Event::SlowCommit { .. }) {
                std::panic::resume_unwind(Box::new("a hook's"));
            }
        });
        for _ in 0..20 {
            let (_disk, log) = sim_log(options.clone());
            let reader = log.reader();
            let followers: Vec<_> = (0..2)
                .map(|_| {
                    let reader = reader.clone();
                    std::thread::spawn(move || {
                        let mut cursor = reader.from(Lsn::new(2));
                        cursor.next_within(HOUR).map(|record| record.map(|record| record.lsn))
                    })
                })
                .collect();
            drop(log.append(b"committed by the log's own thread").expect("appended"));
            for follower in followers {
                let answer = follower.join().expect("no panic");
                assert!(matches!(answer, Err(Error::Poisoned(_))), "{answer:?}");
            }
            assert!(matches!(log.append_durable(b"more"), Err(Error::Poisoned(_))));
        }
    });
}

#[test]
fn a_future_is_woken_when_the_logs_own_thread_ends_by_a_panic() {
    must_end("a panic of a hook", || {
        let known = Arc::new(OnceLock::<Weak<Log>>::new());
        let (theirs, (left, found)) = (Arc::clone(&known), channel());
        let left = Mutex::new(left);
        let options = Options::small().slow_commit(Duration::ZERO);
        let options = options.listener(move |event: &Event| {
            let is_own = std::thread::current().name() == Some("inkstone");
            if is_own && matches!(event, Event::SlowCommit { .. }) {
                // Only this thread would commit it, and this thread is about to end.
                let log = theirs.get().and_then(Weak::upgrade).expect("the log is open");
                let (waker, count) = counting();
                let _ = left.lock().expect("sound").send((pending(&log, &waker), count));
                std::panic::resume_unwind(Box::new("a hook's"));
            }
        });
        let (_disk, log) = sim_log(options);
        known.set(Arc::downgrade(&log)).expect("set once");
        drop(log.append(b"committed by the log's own thread").expect("appended"));
        let (mut future, count) = found.recv().expect("the hook ran");
        // Nothing else is asked of the log meanwhile.
        while count.load(Ordering::SeqCst) == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        let answer = poll(&mut future, Waker::noop());
        assert!(matches!(answer, Poll::Ready(Err(Error::Poisoned(_)))), "{answer:?}");
    });
}

#[test]
fn a_hook_that_panics_on_a_callers_thread_reaches_the_caller_and_the_log_goes_on() {
    must_end("a panic of a hook", || {
        let is_on = Arc::new(AtomicBool::new(false));
        let theirs = Arc::clone(&is_on);
        let options = patient().slow_commit(Duration::ZERO).listener(move |event: &Event| {
            if matches!(event, Event::SlowCommit { .. }) && theirs.swap(false, Ordering::SeqCst) {
                std::panic::resume_unwind(Box::new("a hook's"));
            }
        });
        let (_disk, log) = sim_log(options);
        is_on.store(true, Ordering::SeqCst);
        let caller =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| log.append_durable(b"one")));
        assert!(caller.is_err());
        assert_eq!(log.durable(), Lsn::FIRST, "it was durable before the hook was told");
        log.append_durable(b"two").expect("the log goes on");
    });
}

/// The lock is free when the log is dropped, so a thread of its own that lived on could write
/// beside the next writer.
#[test]
fn a_panic_in_a_waker_or_a_listener_while_the_log_is_dropped_leaves_no_thread_behind() {
    for in_listener in [false, true] {
        must_end("dropping the log", move || {
            let is_armed = Arc::new(AtomicBool::new(false));
            let theirs = Arc::clone(&is_armed);
            let panics = move || {
                if theirs.swap(false, Ordering::SeqCst) {
                    std::panic::resume_unwind(Box::new("planned"));
                }
            };
            let in_hook = panics.clone();
            let options = patient().slow_commit(Duration::ZERO).listener(move |_| {
                if in_listener {
                    in_hook();
                }
            });
            let directory = Arc::new(SimDisk::new(1, DiskOptions::default()).directory("/log"));
            let log = Log::open_in(Arc::clone(&directory), options).expect("opened");
            let in_waker = move || {
                if !in_listener {
                    panics();
                }
            };
            let append = pending(&log, &doing(in_waker));
            is_armed.store(true, Ordering::SeqCst);
            let dropped = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(log)));
            dropped.expect_err("the panic goes on when the log has ended");
            drop(append);
            assert_eq!(
                Arc::strong_count(&directory),
                1,
                "a thread of the log holds its directory (listener: {in_listener})"
            );
        });
    }
}

#[test]
fn a_listener_that_drops_the_log_leaves_no_seal_to_be_written_after_its_end() {
    must_end("dropping the log in a listener", || {
        let disk = SimDisk::new(1, DiskOptions::default());
        let owner: Arc<Mutex<Option<Arc<Log>>>> = Arc::default();
        let second: Arc<Mutex<Option<Log>>> = Arc::default();
        let options =
            || Options::new().segment_bytes(64 << 10).record_bytes_max(4096).free_segments_max(16);
        let (go, may_go) = channel::<()>();
        let (may_go, count) = (Mutex::new(may_go), AtomicUsize::new(0));
        let listener = {
            let (disk, owner, second) = (disk.clone(), Arc::clone(&owner), Arc::clone(&second));
            move |event: &Event| {
                let Event::SegmentSealed(_) = event else { return };
                match count.fetch_add(1, Ordering::SeqCst) {
                    // Until more seals wait.
                    0 => _ = may_go.lock().expect("sound").recv_timeout(ENOUGH),
                    1 => {
                        drop(owner.lock().expect("sound").take());
                        let log = Log::open_in(Arc::new(disk.directory("/log")), options())
                            .expect("the lock is free");
                        log.truncate_before(log.last().next().expect("few")).expect("truncated");
                        (0..300).for_each(|_| _ = log.append_durable(&[1; 2000]).expect("durable"));
                        *second.lock().expect("sound") = Some(log);
                    }
                    _ => {}
                }
            }
        };
        let log = Log::open_in(Arc::new(disk.directory("/log")), options().listener(listener))
            .expect("opened");
        let before = log.stats().segments;
        while log.stats().segments < before + 3 {
            log.append_durable(&[7; 2000]).expect("durable");
        }
        *owner.lock().expect("sound") = Some(Arc::new(log));
        go.send(()).expect("somebody waits");
        assert!(becomes(|| second.lock().expect("sound").is_some()), "the second opening");
        // What the first one's thread still has to do is done by then.
        std::thread::sleep(Duration::from_millis(100));
        let log = second.lock().expect("sound").take().expect("opened");
        let shown = log
            .reader()
            .records(log.first())
            .inspect(|record| assert!(record.is_ok(), "{record:?}"))
            .count();
        assert_eq!(shown, 300);
        log.close().expect("closed");
    });
}

/// An archiver that takes its time, while the log is closed and opened again.
#[test]
fn a_held_segment_says_whether_its_file_was_kept() {
    let made = tempfile::tempdir().expect("a directory");
    for ends in [Log::abandon, |log: Log| log.close().expect("closed"), drop] {
        let held: Arc<Mutex<Vec<SealedSegment>>> = Arc::default();
        let holds = Arc::clone(&held);
        let options = Options::new()
            .segment_bytes(64 << 10)
            .record_bytes_max(32 << 10)
            .buffer_bytes(32 << 10);
        let listener = move |event: &Event| {
            if let Event::SegmentSealed(segment) = event {
                holds.lock().expect("sound").push(segment.clone());
            }
        };
        let log = Log::open(made.path(), options.clone().listener(listener)).expect("opened");
        let append = |log: &Log| {
            (0..20).for_each(|_| _ = log.append_durable(&[7; 20_000]).expect("durable"))
        };
        append(&log);
        assert!(becomes(|| !held.lock().expect("sound").is_empty()), "a segment was sealed");
        let segment = held.lock().expect("sound").remove(0);
        log.truncate_before(log.last()).expect("truncated");
        append(&log);
        assert!(segment.path.exists() && segment.is_kept());
        assert_eq!(in_forked_child(|| u8::from(segment.is_kept())).expect("a child"), 0);
        ends(log);
        assert!(!segment.is_kept() && !segment.clone().is_kept());
        held.lock().expect("sound").clear();
        // Another opening, perhaps another process's, uses it.
        let log = Log::open(made.path(), options).expect("opened");
        append(&log);
        log.close().expect("closed");
        assert!(!segment.path.exists() && !segment.is_kept());
    }
}

#[test]
fn a_listener_that_is_wrapped_is_called_through_what_is_around_it() {
    let (inner, outer) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (same_inner, same_outer) = (Arc::clone(&inner), Arc::clone(&outer));
    let around = move |listener: BoxedListener| -> BoxedListener {
        Arc::new(move |event: &Event| {
            same_outer.fetch_add(1, Ordering::SeqCst);
            listener(event);
        })
    };
    let options = Options::small().own_thread(false);
    let none = options.clone().wrap_listener(|_| panic!("there is no listener"));
    sim_log(none).1.close().expect("closed");
    let options = options.listener(move |_| {
        same_inner.fetch_add(1, Ordering::SeqCst);
    });
    let (_, log) = sim_log(options.wrap_listener(around));
    log.close().expect("closed");
    let counted = [&inner, &outer].map(|count| count.load(Ordering::SeqCst));
    assert!(counted[0] > 0 && counted[0] == counted[1], "{counted:?}");
}

#[test]
fn a_reader_knows_why_the_log_takes_no_more_records() {
    let (disk, log) = sim_log(Options::small().own_thread(false));
    let reader = log.reader();
    log.append_durable(b"durable").expect("appended");
    assert!(reader.end_of_log().is_none());
    disk.inject(failing_write());
    log.append_durable(b"lost").expect_err("the write fails");
    assert!(matches!(reader.end_of_log(), Some(Error::Poisoned(_))));
    assert_eq!(reader.get(Lsn::FIRST).expect("it is durable"), b"durable");
    let (_disk, log) = sim_log(Options::small());
    let reader = log.reader();
    log.close().expect("closed");
    assert!(matches!(reader.end_of_log(), Some(Error::Closed)));
}
