//! Futures of records, and those who poll them: an executor of a few lines, and wakers that do what
//! a user's may do.
//!
//! *Owns*: polling, waking, what a waker does. *May not touch*: what is appended.

use std::cell::Cell;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::{Arc, PoisonError, Weak};
use std::task::{Context, Poll, Wake, Waker};

use inkstone::{Append, Error, Log, Lsn};
use shuttle::sync::{Condvar, Mutex, MutexGuard};

/// What a hook or a waker panics with that is made to.
pub struct Planned;

thread_local! {
    static IS_DUE: Cell<bool> = const { Cell::new(false) };
}

impl Planned {
    /// Once in a schedule: where two threads unwind at a time shuttle cannot tell which is which.
    pub fn once() {
        if IS_DUE.replace(false) {
            resume_unwind(Box::new(Self));
        }
    }

    /// Another schedule begins.
    pub fn may_come() {
        IS_DUE.set(true);
    }
}

/// A record that may go anywhere.
pub type Owned = Append<'static>;

pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a waker does besides waking.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Habit {
    Plain,
    /// It asks the log something. It may find itself the last owner of the log.
    Asks,
    /// It polls what it was left for, there and then.
    PollsInline,
    /// It lets go of another record, whose last owner it is.
    LetsGo,
    /// It panics when it has woken.
    Panics,
}

/// A future, and those who wait for it.
pub struct Slot {
    inner: Mutex<Inner>,
    woken: Mutex<bool>,
    rings: Condvar,
}

struct Inner {
    future: Option<Pin<Box<Owned>>>,
    outcome: Option<Result<Lsn, Error>>,
}

/// Runs what is called while others may be unwinding. What it panics with was noted already, and
/// fails the schedule at its end.
fn shielded(run: impl FnOnce()) {
    let _ = catch_unwind(AssertUnwindSafe(run));
}

/// Wakes whoever waits for the slot.
struct Bell {
    slot: Arc<Slot>,
    habit: Habit,
    log: Weak<Log>,
    other: std::sync::Mutex<Option<Owned>>,
}

impl Slot {
    pub fn new(future: Owned) -> Arc<Self> {
        Arc::new(Self {
            inner: Mutex::new(Inner { future: Some(Box::pin(future)), outcome: None }),
            woken: Mutex::new(false),
            rings: Condvar::new(),
        })
    }

    fn ring(&self) {
        *lock(&self.woken) = true;
        self.rings.notify_all();
    }

    pub fn waker(self: &Arc<Self>, habit: Habit, log: &Weak<Log>, other: Option<Owned>) -> Waker {
        let bell = Bell {
            slot: Arc::clone(self),
            habit,
            log: Weak::clone(log),
            other: std::sync::Mutex::new(other),
        };
        Waker::from(Arc::new(bell))
    }

    pub fn poll(&self, waker: &Waker) -> bool {
        Self::poll_in(&mut lock(&self.inner), waker)
    }

    fn poll_in(inner: &mut Inner, waker: &Waker) -> bool {
        if let Some(future) = &mut inner.future {
            match future.as_mut().poll(&mut Context::from_waker(waker)) {
                Poll::Ready(outcome) => {
                    inner.future = None;
                    inner.outcome = Some(outcome);
                }
                Poll::Pending => return false,
            }
        }
        true
    }

    /// Polls until it is decided, asleep whenever it is not.
    pub fn block_on(&self, waker: &Waker) -> Result<Lsn, Error> {
        while !self.poll(waker) {
            let mut woken = lock(&self.woken);
            while !*woken {
                woken = self.rings.wait(woken).unwrap_or_else(PoisonError::into_inner);
            }
            *woken = false;
        }
        lock(&self.inner).outcome.clone().unwrap_or(Err(Error::Closed))
    }

    /// Lets go of the future, decided or not.
    pub fn cancel(&self) {
        let future = lock(&self.inner).future.take();
        drop(future);
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        match self.habit {
            Habit::Plain | Habit::Panics => {}
            Habit::Asks => {
                shielded(|| {
                    if let Some(log) = self.log.upgrade() {
                        log.last();
                        log.first();
                    }
                });
            }
            Habit::PollsInline => {
                shielded(|| {
                    if let Ok(mut inner) = self.slot.inner.try_lock() {
                        Slot::poll_in(&mut inner, Waker::noop());
                    }
                });
            }
            Habit::LetsGo => {
                let other = self.other.lock().unwrap_or_else(PoisonError::into_inner).take();
                shielded(|| drop(other));
            }
        }
        self.slot.ring();
        if self.habit == Habit::Panics {
            Planned::once();
        }
    }
}

impl Drop for Bell {
    /// Dropping a waker is the user's code as well.
    fn drop(&mut self) {
        if self.habit == Habit::Asks {
            shielded(|| {
                if let Some(log) = self.log.upgrade() {
                    log.durable();
                    log.last();
                }
            });
        }
    }
}

pub struct Sleeper {
    woken: Mutex<bool>,
    rings: Condvar,
}

impl Wake for Sleeper {
    fn wake(self: Arc<Self>) {
        *lock(&self.woken) = true;
        self.rings.notify_all();
    }
}

/// Polls a future to its end on this thread.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    let sleeper = Arc::new(Sleeper { woken: Mutex::new(false), rings: Condvar::new() });
    let waker = Waker::from(Arc::clone(&sleeper));
    let mut future = std::pin::pin!(future);
    loop {
        if let Poll::Ready(done) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return done;
        }
        let mut woken = lock(&sleeper.woken);
        while !*woken {
            woken = sleeper.rings.wait(woken).unwrap_or_else(PoisonError::into_inner);
        }
        *woken = false;
    }
}
