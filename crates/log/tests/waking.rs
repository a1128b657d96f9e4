//! Futures, wakers and hooks: who waits is woken, and what is the user's runs with no lock of the log held.

#[path = "support/watch.rs"]
mod watch;

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use inkstone::{Append, Error, Event, Log, Lsn, Options, Reader};
use inkstone_sim::{DiskOptions, Effect, Fault, OperationKind, SimDirectory, SimDisk};
use watch::{ENOUGH, becomes, must_end};

const HOUR: Duration = Duration::from_secs(3600);

fn sim_log(options: Options) -> (SimDisk, Arc<Log<SimDirectory>>) {
    let disk = SimDisk::new(1, DiskOptions::default());
    let log = Log::open_in(Arc::new(disk.directory("/log")), options).expect("opened");
    (disk, Arc::new(log))
}

fn failing_write() -> Fault {
    Fault::new(Effect::Error(5)).on(OperationKind::Write)
}

/// Nothing is committed but by who waits, syncs, cuts or closes.
fn patient() -> Options {
    Options::small().linger(HOUR).idle(HOUR)
}

type OnWake = dyn Fn() + Send + Sync;

/// A waker that does something.
struct Doing(Box<OnWake>);

impl Wake for Doing {
    fn wake(self: Arc<Self>) {
        (self.0)();
    }
}

fn doing(act: impl Fn() + Send + Sync + 'static) -> Waker {
    Waker::from(Arc::new(Doing(Box::new(act))))
}

fn counting() -> (Waker, Arc<AtomicUsize>) {
    let count = Arc::new(AtomicUsize::new(0));
    let theirs = Arc::clone(&count);
    (doing(move || _ = theirs.fetch_add(1, Ordering::SeqCst)), count)
}

fn poll<F: Future + Unpin>(future: &mut F, waker: &Waker) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(waker))
}

fn pending(log: &Log<SimDirectory>, waker: &Waker) -> Append<'static, SimDirectory> {
    let mut append = log.append(b"a record that is awaited").expect("appended").into_owned();
    assert!(poll(&mut append, waker).is_pending());
    append
}

/// Each way in which a future comes to its end, of a log with the futures' records gathered; the log, if it is still open.
type End = fn(&SimDisk, Arc<Log<SimDirectory>>) -> Option<Arc<Log<SimDirectory>>>;
const ENDS: [(&str, End); 5] = [
    ("a commit", |_, log| {
        log.sync().expect("synced");
        Some(log)
    }),
    ("a cut", |_, log| {
        log.truncate_after(Lsn::FIRST).expect("cut");
        Some(log)
    }),
    ("closing", |_, mut log| {
        // A waker may hold it for a moment.
        let log = loop {
            match Arc::try_unwrap(log) {
                Ok(log) => break log,
                Err(shared) => log = shared,
            }
        };
        log.close().expect("closed");
        None
    }),
    ("a poison", |disk, log| {
        disk.inject(failing_write());
        log.sync().expect_err("a write fails");
        Some(log)
    }),
    ("being abandoned", |_, log| {
        Arc::into_inner(log).expect("the last owner").abandon();
        None
    }),
];

#[test]
fn a_future_is_woken_and_ready_whatever_becomes_of_its_record() {
    for (end, act) in ENDS {
        must_end(end, move || {
            let (disk, log) = sim_log(patient());
            log.append_durable(b"first").expect("durable");
            let (waker, _) = counting();
            let (other, others) = counting();
            let mut append = pending(&log, &waker);
            // Another task polls it as well.
            assert!(poll(&mut append, &other).is_pending());
            let _open = act(&disk, log);
            assert!(others.load(Ordering::SeqCst) > 0, "{end}: the last who polled is not woken");
            assert!(poll(&mut append, &other).is_ready(), "{end}: it is decided");
        });
    }
}

#[test]
fn a_waker_may_ask_the_log_poll_inline_and_drop_other_handles() {
    for (end, act) in ENDS {
        must_end(end, move || {
            let (disk, log) = sim_log(patient());
            log.append_durable(b"first").expect("durable");
            let calls = Arc::new(AtomicUsize::new(0));
            let weak: Weak<Log<SimDirectory>> = Arc::downgrade(&log);
            // It asks the log.
            let asks = {
                let (weak, calls) = (weak.clone(), Arc::clone(&calls));
                doing(move || {
                    if let Some(log) = weak.upgrade() {
                        let _ = (log.last(), log.stats(), log.first(), log.durable());
                        let _ = log.reader().get(Lsn::FIRST);
                    }
                    calls.fetch_add(1, Ordering::SeqCst);
                })
            };
            let _asked = pending(&log, &asks);
            // It polls inline.
            let slot: Arc<Mutex<Option<Append<'static, SimDirectory>>>> = Arc::default();
            let polls = {
                let (slot, calls) = (Arc::clone(&slot), Arc::clone(&calls));
                doing(move || {
                    let taken = slot.lock().unwrap_or_else(PoisonError::into_inner).take();
                    if let Some(mut append) = taken {
                        assert!(
                            poll(&mut append, Waker::noop()).is_ready(),
                            "it is woken when it is decided"
                        );
                        calls.fetch_add(1, Ordering::SeqCst);
                    }
                })
            };
            *slot.lock().expect("sound") = Some(pending(&log, &polls));
            // It drops the last owner of another handle.
            let kept = Mutex::new(Some(log.append(b"another").expect("appended").into_owned()));
            let drops = {
                let calls = Arc::clone(&calls);
                doing(move || {
                    if let Some(append) = kept.lock().expect("sound").take() {
                        drop(append);
                        calls.fetch_add(1, Ordering::SeqCst);
                    }
                })
            };
            let _dropped = pending(&log, &drops);
            let _open = act(&disk, log);
            assert_eq!(calls.load(Ordering::SeqCst), 3, "{end}");
        });
    }
}

/// A waker whose cloning and dropping ask the log.
struct Asking {
    log: Weak<Log<SimDirectory>>,
    dropped: Arc<AtomicUsize>,
}

impl Wake for Asking {
    fn wake(self: Arc<Self>) {}
}

impl Drop for Asking {
    fn drop(&mut self) {
        if let Some(log) = self.log.upgrade() {
            let _ = log.last();
        }
        self.dropped.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn a_waker_that_is_dropped_by_the_log_may_ask_it() {
    must_end("dropping a waker", || {
        let (_disk, log) = sim_log(patient());
        let dropped = Arc::new(AtomicUsize::new(0));
        let asking =
            || Waker::from(Arc::new(Asking { log: Arc::downgrade(&log), dropped: Arc::clone(&dropped) }));
        let mut append = log.append(b"a record").expect("appended").into_owned();
        // The log has the only ones.
        assert!(poll(&mut append, &asking()).is_pending());
        assert!(poll(&mut append, &asking()).is_pending());
        log.sync().expect("synced");
        assert_eq!(dropped.load(Ordering::SeqCst), 2);
        assert!(poll(&mut append, &asking()).is_ready());
        assert_eq!(dropped.load(Ordering::SeqCst), 3);
    });
}

#[test]
fn a_waker_of_who_waits_for_room_may_ask_the_log() {
    must_end("waiting for room", || {
        let (_disk, log) = sim_log(patient().segment_bytes(1 << 20).buffer_bytes(8 << 10));
        let big = vec![7; 3000];
        let weak = Arc::downgrade(&log);
        let (tell, told) = channel();
        let tell = Mutex::new(tell);
        let waker = doing(move || {
            let last = weak.upgrade().map(|log| log.last());
            let _ = tell.lock().expect("sound").send(last);
        });
        // Until one has to wait; then the log's own thread makes room.
        let mut waited = false;
        for _ in 0..10_000 {
            let mut append = Box::pin(log.append_async(&big));
            if append.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
                waited = true;
                told.recv_timeout(ENOUGH).expect("woken, and the log answers");
                break;
            }
        }
        assert!(waited, "nobody ever waited for room");
    });
}

#[test]
fn a_waker_may_append_and_wait_on_the_logs_own_thread() {
    must_end("appending in a waker", || {
        let options = Options::small().segment_bytes(1 << 20).buffer_bytes(8 << 10).idle(HOUR);
        let (_disk, log) = sim_log(options.linger(Duration::from_millis(1)));
        let weak = Arc::downgrade(&log);
        let (tell, told) = channel();
        let tell = Mutex::new(tell);
        let waker = doing(move || {
            let Some(log) = weak.upgrade() else { return };
            // More than both buffers hold, so that a group is handed over to the very thread that this runs on.
            for _ in 0..20 {
                drop(log.append(&[5; 3000]).expect("appended"));
            }
            let last = log.append_durable(b"and one that is waited for").expect("durable");
            let thread = std::thread::current().name().map(str::to_owned);
            let _ = tell.lock().expect("sound").send((last, thread));
        });
        let mut append = pending(&log, &waker);
        let (last, thread) = told.recv_timeout(ENOUGH).expect("it came back");
        assert_eq!(thread.as_deref(), Some("inkstone"), "the record is committed by the log's own thread");
        assert_eq!(last, Lsn::new(22));
        assert!(poll(&mut append, &waker).is_ready());
    });
}

#[test]
fn a_waker_that_panics_keeps_nobody_else_asleep() {
    must_end("a panic of a waker", || {
        let (_disk, log) = sim_log(patient());
        let panics = doing(|| std::panic::resume_unwind(Box::new("a waker's")));
        let _first = pending(&log, &panics);
        let (waker, count) = counting();
        let mut second = pending(&log, &waker);
        let caller = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| log.sync()));
        assert!(caller.is_err(), "the panic reaches who made the wake-up");
        assert_eq!(count.load(Ordering::SeqCst), 1);
        assert!(matches!(poll(&mut second, &waker), Poll::Ready(Ok(_))));
        log.append_durable(b"and the log goes on").expect("durable");
    });
}

#[test]
fn the_last_owner_of_a_log_may_be_a_waker_on_its_own_thread() {
    must_end("dropping the log in a waker", || {
        let (disk, log) = sim_log(Options::small().linger(Duration::from_millis(1)));
        let weak = Arc::downgrade(&log);
        let (tell, told) = channel();
        let owner = Mutex::new(Some((log, tell)));
        let waker = {
            let owner = Arc::new(owner);
            let theirs = Arc::clone(&owner);
            let waker = doing(move || {
                let taken = theirs.lock().unwrap_or_else(PoisonError::into_inner).take();
                if let Some((log, tell)) = taken {
                    drop(log);
                    let _ = tell.send(std::thread::current().name().map(str::to_owned));
                }
            });
            let log = weak.upgrade().expect("open");
            let mut append = log.append(b"committed by the log's own thread").expect("appended").into_owned();
            drop(log);
            assert!(poll(&mut append, &waker).is_pending());
            drop(append);
            waker
        };
        let thread = told.recv_timeout(ENOUGH).expect("dropped");
        assert_eq!(thread.as_deref(), Some("inkstone"));
        drop(waker);
        let again =
            Log::open_in(Arc::new(disk.directory("/log")), Options::small()).expect("the lock is free");
        assert!(again.recovery().clean);
        assert_eq!(again.last(), Lsn::FIRST);
    });
}

/// A listener that, for each event, asks the log and lets another thread append before it goes on.
fn meddling(
    log: &Arc<OnceLock<Weak<Log<SimDirectory>>>>,
    is_inside: &Arc<AtomicBool>,
) -> (impl Fn(&Event) + Send + Sync + 'static, Receiver<(String, bool)>) {
    let log = Arc::clone(log);
    let (tell, told): (Sender<(String, bool)>, _) = channel();
    let tell = Mutex::new(tell);
    let is_inside = Arc::clone(is_inside);
    let listener = move |event: &Event| {
        let name = format!("{event:?}").split([' ', '(', '{']).next().unwrap_or_default().to_owned();
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
        let has_seen = |seen: &[(String, bool)], name: &str| seen.iter().any(|(other, _)| other == name);
        for _ in 0..2000 {
            match log.append_durable(&record) {
                Ok(last) => log.truncate_before(last).expect("given up"),
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
        let options = Options::small().linger(Duration::from_millis(1)).slow_commit(Duration::ZERO).listener(
            |event: &Event| {
                let is_own = std::thread::current().name() == Some("inkstone");
                if is_own && matches!(event, Event::SlowCommit { .. }) {
                    std::panic::resume_unwind(Box::new("a hook's"));
                }
            },
        );
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
        let known = Arc::new(OnceLock::<Weak<Log<SimDirectory>>>::new());
        let (theirs, (left, found)) = (Arc::clone(&known), channel());
        let left = Mutex::new(left);
        let options = Options::small().linger(Duration::from_millis(1)).slow_commit(Duration::ZERO);
        let options = options.listener(move |event: &Event| {
            let is_own = std::thread::current().name() == Some("inkstone");
            if is_own && matches!(event, Event::SlowCommit { .. }) {
                // Nobody but this thread would commit it, and this thread is about to end.
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
        let caller = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| log.append_durable(b"one")));
        assert!(caller.is_err());
        assert_eq!(log.durable(), Lsn::FIRST, "it was durable before the hook was told");
        log.append_durable(b"two").expect("the log goes on");
    });
}

#[test]
fn a_cancelled_future_leaves_its_record_and_everybody_elses_alone() {
    must_end("a cancelled future", || {
        let (_disk, log) = sim_log(Options::small().linger(Duration::from_millis(1)).idle(HOUR));
        let (cancelled, cancels) = counting();
        let (kept, keeps) = counting();
        drop(pending(&log, &cancelled));
        let mut other = pending(&log, &kept);
        assert!(becomes(|| keeps.load(Ordering::SeqCst) > 0), "the other one is woken");
        assert!(matches!(poll(&mut other, &kept), Poll::Ready(Ok(_))));
        assert_eq!(log.durable(), other.lsn(), "the cancelled one's record was before it");
        assert!(cancels.load(Ordering::SeqCst) <= 1);
        // A future that waits for room is cancelled too: its record is not appended.
        let last = log.last();
        drop(log.append_async(b"never polled"));
        assert_eq!(log.last(), last);
    });
}

#[test]
fn threads_that_wait_while_another_closes_get_an_answer() {
    must_end("closing beside those who wait", || {
        for _ in 0..50 {
            let (_disk, log) = sim_log(Options::small());
            let waiting: Vec<_> = (0..4)
                .map(|_| {
                    let append = log.append(b"waited for").expect("appended").into_owned();
                    std::thread::spawn(move || append.wait())
                })
                .collect();
            Arc::into_inner(log).expect("the last owner").close().expect("closed");
            for thread in waiting {
                thread.join().expect("no panic").expect("closing commits everything");
            }
        }
    });
}

#[test]
fn a_period_bounds_what_can_be_lost_also_of_kept_handles() {
    must_end("a period", || {
        let options = Options::small().periodic(Duration::from_millis(20)).idle(HOUR);
        let (_disk, log) = sim_log(options);
        let kept = log.append(b"its handle is kept").expect("appended");
        assert!(becomes(|| log.durable() == kept.lsn()), "still not durable");
    });
}

#[test]
fn a_kept_handle_does_not_keep_the_idle_promise_from_being_written() {
    must_end("the idle promise", || {
        let (disk, log) = sim_log(Options::small().idle(Duration::from_millis(20)));
        let lsn = log.append_durable(b"promised when idle").expect("durable");
        let _kept = log.append(b"its handle is kept").expect("appended");
        let sees = || {
            let reader = Reader::open_in(Arc::new(disk.directory("/log")), Options::small()).expect("opened");
            reader.durable() >= lsn
        };
        assert!(becomes(sees), "readers of other processes never see it");
    });
}

/// The lock is free when the log is dropped, so a thread of its own that lived on could write beside the next writer.
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
        let owner: Arc<Mutex<Option<Arc<Log<SimDirectory>>>>> = Arc::default();
        let second: Arc<Mutex<Option<Log<SimDirectory>>>> = Arc::default();
        let options = || Options::new().segment_bytes(64 << 10).record_bytes_max(4096).free_segments_max(16);
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
                        log.truncate_before(log.last().next().expect("few")).expect("given up");
                        (0..300).for_each(|_| _ = log.append_durable(&[1; 2000]).expect("durable"));
                        *second.lock().expect("sound") = Some(log);
                    }
                    _ => {}
                }
            }
        };
        let log =
            Log::open_in(Arc::new(disk.directory("/log")), options().listener(listener)).expect("opened");
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
        let shown =
            log.reader().records(log.first()).inspect(|record| assert!(record.is_ok(), "{record:?}")).count();
        assert_eq!(shown, 300);
        log.close().expect("closed");
    });
}
