//! Futures, wakers and threads that wait: each is woken, and a waker runs while no lock of the log
//! is held.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Wake, Waker};

use crate::wakers::{ENDS, counting, doing, kept_open, patient, pending, poll, sim_log};
use crate::watch::{becomes, must_end};
use inkstone::{Log, Options, Reader};

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
