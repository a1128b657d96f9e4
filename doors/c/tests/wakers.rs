//! Cloning, waking and dropping a waker run its owner's code, which may use the log or the streams:
//! none of that happens under a lock of theirs.
//!
//! *Owns*: a waker whose every function asks them. It is here and not beside the crates' tests
//! because only unsafe code can say what the clone of a waker does. *May not touch*: the crates'
//! insides.

#![allow(clippy::unwrap_used, reason = "the helpers of a test are a test too")]

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::task::{Context, RawWaker, RawWakerVTable, Waker};
use std::time::Duration;

use inkstone::Log;
use inkstone_streams::{Batch, Options, Streams};

struct Asks {
    /// A change and a question: both need every lock.
    asks: Box<dyn Fn() + Send + Sync>,
    clones: AtomicU64,
    wakes: AtomicU64,
    drops: AtomicU64,
}

impl Asks {
    fn new<T: Send + Sync + 'static>(of: &Arc<T>, asks: fn(&T)) -> Arc<Self> {
        let of = Arc::downgrade(of);
        let asks = move || of.upgrade().iter().for_each(|of| asks(of));
        let [clones, wakes, drops] = [(); 3].map(|()| AtomicU64::new(0));
        Arc::new(Self { asks: Box::new(asks), clones, wakes, drops })
    }

    fn asks(&self, counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
        (self.asks)();
    }

    fn waker(self: &Arc<Self>) -> Waker {
        // SAFETY: the functions below take and give back one count of the `Arc` each, and it may be
        // used on any thread.
        unsafe { Waker::from_raw(raw(Arc::clone(self))) }
    }
}

fn raw(asks: Arc<Asks>) -> RawWaker {
    static TABLE: RawWakerVTable = RawWakerVTable::new(
        |this| {
            // SAFETY: a waker has one count of it, which stays there.
            let this = unsafe { std::mem::ManuallyDrop::new(Arc::from_raw(this.cast::<Asks>())) };
            this.asks(&this.clones);
            raw(Arc::clone(&this))
        },
        |this| {
            // SAFETY: the waker gives up its count.
            let this = unsafe { Arc::from_raw(this.cast::<Asks>()) };
            this.asks(&this.wakes);
        },
        |this| {
            // SAFETY: a waker has one count of it, which stays there.
            let this = unsafe { std::mem::ManuallyDrop::new(Arc::from_raw(this.cast::<Asks>())) };
            this.asks(&this.wakes);
        },
        |this| {
            // SAFETY: the waker gives up its count.
            let this = unsafe { Arc::from_raw(this.cast::<Asks>()) };
            this.asks(&this.drops);
        },
    );
    RawWaker::new(Arc::into_raw(asks).cast(), &TABLE)
}

/// Runs a test on another thread: what waits for its own lock does so for ever.
fn within_a_minute(test: impl FnOnce() + Send + 'static) {
    let (done, ends) = channel();
    let thread = std::thread::spawn(move || {
        test();
        let _ = done.send(());
    });
    match ends.recv_timeout(Duration::from_secs(60)) {
        Err(std::sync::mpsc::RecvTimeoutError::Timeout) => panic!("it hangs"),
        _ => thread.join().unwrap(),
    }
}

#[test]
fn the_waker_of_a_follower_may_use_the_streams() {
    within_a_minute(|| {
        let directory = tempfile::tempdir().unwrap();
        let streams = Arc::new(Streams::open(directory.path(), Options::new()).unwrap());
        streams.create(1, 1).unwrap().wait().unwrap();
        let asks = Asks::new(&streams, |streams: &Streams| {
            drop(streams.set_note(1, b"x"));
            streams.reader().bounds(1).unwrap();
            drop(streams.reader().read(1, 1));
        });
        let reader = streams.reader();
        // Cancelled, polled again, woken by a record, by a truncation, by a removal, by the end.
        for what in 0..6 {
            let waker = asks.waker();
            let mut context = Context::from_waker(&waker);
            let mut cursor = reader.read(1, streams.bounds(1).unwrap().next);
            let mut next = pin!(cursor.next_async());
            assert!(next.as_mut().poll(&mut context).is_pending());
            match what {
                0 => continue,
                1 => {
                    assert!(next.as_mut().poll(&mut context).is_pending());
                    continue;
                }
                2 => streams.append(1, b"x").unwrap().wait().unwrap(),
                3 => streams.truncate_after(1, 0).unwrap().wait().unwrap(),
                4 => {
                    let mut batch = Batch::new();
                    streams.apply(batch.remove(1).create(1, 1)).unwrap().wait().unwrap();
                }
                _ => streams.close().unwrap(),
            }
            assert!(next.as_mut().poll(&mut context).is_ready(), "{what}");
        }
        for counter in [&asks.clones, &asks.wakes, &asks.drops] {
            assert!(counter.load(Ordering::Relaxed) > 3);
        }
    });
}

/// Buffers so small that appends find no room, and must be woken when there is some.
#[test]
fn the_waker_of_a_task_that_appends_may_use_the_log() {
    within_a_minute(|| {
        let directory = tempfile::tempdir().unwrap();
        let options = inkstone::Options::small().buffer_bytes(16 << 10);
        let log = Arc::new(Log::open(directory.path(), options).unwrap());
        let asks = Asks::new(&log, |log: &Log| {
            drop(log.try_append(b"x"));
            log.stats();
            drop(log.durable_at(log.last()));
        });
        let record = vec![7; 7000];
        let mut waited = 0;
        while waited < 20 {
            let waker = asks.waker();
            let mut appended = pin!(log.append_async(&record));
            while appended.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
                waited += 1;
                std::thread::yield_now();
            }
        }
        assert!(asks.clones.load(Ordering::Relaxed) >= 20);
        assert!(asks.drops.load(Ordering::Relaxed) >= 20);
        log.close().unwrap();
    });
}
