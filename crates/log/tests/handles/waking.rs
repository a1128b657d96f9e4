//! Futures, wakers and threads that wait: each is woken, and a waker runs while no lock of the log
//! is held.

use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use crate::wakers::{ENDS, counting, doing, kept_open, patient, pending, poll, sim_log};
use crate::watch::{ENOUGH, becomes, must_end};
use inkstone::{Append, Log, Lsn, Options, Reader};

#[test]
fn a_future_is_woken_and_ready_whatever_becomes_of_its_record() {
    for (end, _, act) in ENDS {
        must_end(end, move || {
            let (disk, log) = sim_log(patient());
            log.append_durable(b"first").expect("durable");
            let (waker, _) = counting();
            let (other, others) = counting();
            let mut append = pending(&log, &waker);
            // Another task polls it as well.
            assert!(poll(&mut append, &other).is_pending());
            let _open = kept_open(end, &log);
            act(&disk, log);
            assert!(others.load(Ordering::SeqCst) > 0, "{end}: the last who polled is not woken");
            assert!(poll(&mut append, &other).is_ready(), "{end}: it is decided");
        });
    }
}

#[test]
fn a_waker_may_ask_the_log_poll_inline_and_drop_other_handles() {
    for (end, _, act) in ENDS {
        must_end(end, move || {
            let (disk, log) = sim_log(patient());
            log.append_durable(b"first").expect("durable");
            let calls = Arc::new(AtomicUsize::new(0));
            let weak: Weak<Log> = Arc::downgrade(&log);
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
            let slot: Arc<Mutex<Option<Append<'static>>>> = Arc::default();
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
            let _open = kept_open(end, &log);
            act(&disk, log);
            assert_eq!(calls.load(Ordering::SeqCst), 3, "{end}");
        });
    }
}

/// A waker that calls the log when it is cloned and when it is dropped.
struct Asking {
    log: Weak<Log>,
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
        let asking = || {
            Waker::from(Arc::new(Asking {
                log: Arc::downgrade(&log),
                dropped: Arc::clone(&dropped),
            }))
        };
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
        let (_disk, log) =
            sim_log(patient().own_thread(true).segment_bytes(1 << 20).buffer_bytes(8 << 10));
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
        let options = Options::small().segment_bytes(1 << 20).buffer_bytes(8 << 10);
        let (_disk, log) = sim_log(options);
        let weak = Arc::downgrade(&log);
        let (tell, told) = channel();
        let tell = Mutex::new(tell);
        let waker = doing(move || {
            let Some(log) = weak.upgrade() else { return };
            // More than both buffers hold, so that a group is handed over to the very thread that
            // this runs on.
            for _ in 0..20 {
                drop(log.append(&[5; 3000]).expect("appended"));
            }
            let last = log.append_durable(b"and one that is waited for").expect("durable");
            let thread = std::thread::current().name().map(str::to_owned);
            let _ = tell.lock().expect("sound").send((last, thread));
        });
        let mut append = pending(&log, &waker);
        let (last, thread) = told.recv_timeout(ENOUGH).expect("it came back");
        assert_eq!(
            thread.as_deref(),
            Some("inkstone"),
            "the record is committed by the log's own thread"
        );
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

/// What a panic carries, whose drop panics too.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            std::panic::resume_unwind(Box::new("from a payload's drop"));
        }
    }
}

#[test]
fn wakers_whose_panics_panic_again_keep_nobody_else_asleep() {
    for (end, _, act) in ENDS {
        must_end("panics that panic", move || {
            let (disk, log) = sim_log(patient());
            log.append_durable(b"first").expect("durable");
            let bombs: Vec<_> =
                (0..3).map(|_| doing(|| std::panic::resume_unwind(Box::new(Bomb)))).collect();
            let _futures: Vec<_> = bombs.iter().map(|waker| pending(&log, waker)).collect();
            let (waker, count) = counting();
            let mut last = pending(&log, &waker);
            let _open = kept_open(end, &log);
            let caller = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| act(&disk, log)));
            let first = caller.expect_err("the first panic reaches who made the wake-up");
            assert!(first.is::<Bomb>(), "{end}: not the first panic");
            std::mem::forget(first);
            assert_eq!(count.load(Ordering::SeqCst), 1, "{end}: the last waker");
            assert!(poll(&mut last, &waker).is_ready(), "{end}");
        });
    }
}

#[test]
fn the_last_owner_of_a_log_may_be_a_waker_on_its_own_thread() {
    must_end("dropping the log in a waker", || {
        let (disk, log) = sim_log(Options::small());
        let weak = Arc::downgrade(&log);
        let (tell, told) = channel();
        let owner = Mutex::new(Some((log, tell)));
        let (waker, append) = {
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
            let mut append =
                log.append(b"committed by the log's own thread").expect("appended").into_owned();
            drop(log);
            assert!(poll(&mut append, &waker).is_pending());
            (waker, append)
        };
        let thread = told.recv_timeout(ENOUGH).expect("dropped");
        assert_eq!(thread.as_deref(), Some("inkstone"));
        drop((waker, append));
        let again = Log::open_in(Arc::new(disk.directory("/log")), Options::small())
            .expect("the lock is free");
        assert!(again.recovery().clean);
        assert_eq!(again.last(), Lsn::FIRST);
    });
}

#[test]
fn a_cancelled_future_leaves_its_record_and_everybody_elses_alone() {
    must_end("a cancelled future", || {
        let (_disk, log) = sim_log(Options::small());
        // The commit of a lone future begins at once. On a busy machine it may end before this
        // thread has dropped the future, or before it has polled the other one: then nothing was
        // cancelled, and it tries again.
        let (cancels, mut other, kept, keeps) = loop {
            let (cancelled, cancels) = counting();
            let (kept, keeps) = counting();
            let mut future =
                log.append(b"a record whose future is dropped").expect("appended").into_owned();
            let (lsn, is_pending) = (future.lsn(), poll(&mut future, &cancelled).is_pending());
            drop(future);
            let is_cancelled = is_pending && log.durable() < lsn;
            let mut other = log.append(b"the other one's record").expect("appended").into_owned();
            if poll(&mut other, &kept).is_pending() && is_cancelled {
                break (cancels, other, kept, keeps);
            }
        };
        assert!(becomes(|| keeps.load(Ordering::SeqCst) > 0), "the other one is woken");
        assert!(matches!(poll(&mut other, &kept), Poll::Ready(Ok(_))));
        assert_eq!(log.durable(), other.lsn(), "the cancelled one's record was before it");
        assert_eq!(cancels.load(Ordering::SeqCst), 0, "nobody is there to be woken");
        // A future that waits for room is cancelled too: its record is not appended.
        let last = log.last();
        drop(log.append_async(b"never polled"));
        assert_eq!(log.last(), last);
    });
}

#[test]
fn a_period_bounds_what_can_be_lost_also_of_kept_handles() {
    must_end("a period", || {
        let options = Options::small().periodic(Duration::from_millis(20));
        let (_disk, log) = sim_log(options);
        let kept = log.append(b"its handle is kept").expect("appended");
        assert!(becomes(|| log.durable() == kept.lsn()), "still not durable");
    });
}

#[test]
fn a_kept_handle_does_not_keep_the_idle_promise_from_being_written() {
    must_end("the idle promise", || {
        let (disk, log) = sim_log(Options::small());
        let lsn = log.append_durable(b"promised when idle").expect("durable");
        let _kept = log.append(b"its handle is kept").expect("appended");
        let sees = || {
            let reader = Reader::open_in(Arc::new(disk.directory("/log")), Options::small())
                .expect("opened");
            reader.durable() >= lsn
        };
        assert!(becomes(sees), "readers of other processes never see it");
    });
}
