//! Logs on a simulated disk that commit only when a caller waits, wakers that do something, and
//! polling by hand.
//!
//! *Owns*: how a test polls a future. *May not touch*: what is tested.

#![allow(dead_code, reason = "each test file uses some of it")]

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use inkstone::{Append, Log, Lsn, Options};
use inkstone_sim::{DiskOptions, Effect, Fault, OperationKind, SimDisk};

pub(crate) const HOUR: Duration = Duration::from_secs(3600);

pub(crate) fn sim_log(options: Options) -> (SimDisk, Arc<Log>) {
    let disk = SimDisk::new(1, DiskOptions::default());
    let log = Log::open_in(Arc::new(disk.directory("/log")), options).expect("opened");
    (disk, Arc::new(log))
}

pub(crate) fn failing_write() -> Fault {
    Fault::new(Effect::Error(5)).on(OperationKind::Write)
}

/// Only waiting, syncing, truncating and closing commit.
pub(crate) fn patient() -> Options {
    Options::small().own_thread(false)
}

/// Each way in which a record comes to its end, of a log with an open group; whether the record
/// is durable then.
pub(crate) type End = fn(&SimDisk, Arc<Log>);
pub(crate) const ENDS: [(&str, bool, End); 6] = [
    ("a commit", true, |_, log| _ = log.sync().expect("synced")),
    ("a cut", true, |_, log| log.truncate_after(Lsn::FIRST).expect("cut")),
    ("closing", true, |_, log| log.close().expect("closed")),
    ("being dropped", true, |_, log| drop(log)),
    ("a poison", false, |disk, log| {
        disk.inject(failing_write());
        log.sync().expect_err("a write fails");
    }),
    ("being abandoned", false, |_, log| Arc::into_inner(log).expect("the last owner").abandon()),
];

/// An owner of a log that is to stay open behind this end of a record.
pub(crate) fn kept_open(end: &str, log: &Arc<Log>) -> Option<Arc<Log>> {
    (!end.starts_with("being")).then(|| Arc::clone(log))
}

type OnWake = dyn Fn() + Send + Sync;

/// A waker that does something.
struct Doing(Box<OnWake>);

impl Wake for Doing {
    fn wake(self: Arc<Self>) {
        (self.0)();
    }
}

pub(crate) fn doing(act: impl Fn() + Send + Sync + 'static) -> Waker {
    Waker::from(Arc::new(Doing(Box::new(act))))
}

pub(crate) fn counting() -> (Waker, Arc<AtomicUsize>) {
    let count = Arc::new(AtomicUsize::new(0));
    let theirs = Arc::clone(&count);
    (doing(move || _ = theirs.fetch_add(1, Ordering::SeqCst)), count)
}

pub(crate) fn poll<F: Future + Unpin>(future: &mut F, waker: &Waker) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(waker))
}

pub(crate) fn pending(log: &Log, waker: &Waker) -> Append<'static> {
    let mut append = log.append(b"a record that is awaited").expect("appended").into_owned();
    assert!(poll(&mut append, waker).is_pending());
    append
}

/// Wakes the thread that polls.
struct Unparks(std::thread::Thread);

impl Wake for Unparks {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Polls a future to its end on this thread.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unparks(std::thread::current())));
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}

/// Polls a future once, and drops it if it is pending.
pub(crate) fn poll_once<F: Future>(future: F, waker: &Waker) -> Option<F::Output> {
    match std::pin::pin!(future).poll(&mut Context::from_waker(waker)) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}
