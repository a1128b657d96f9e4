//! Tasks that wait: futures and callbacks, in one queue, and running them.
//!
//! *Owns*: the queue and its order; the one rule about what is the user's: wakers are cloned, woken
//! and dropped, and callbacks called, while no lock of the log is held. *May not touch*: when a
//! wait is over (`state.rs`), threads that wait (`sleepers.rs`).
//!
//! All tasks stand in the order in which their waits end, whatever they wait for, so only those at
//! the front are woken. Registering is quick, however many there are: a task that registers again
//! replaces its waker.
//!
//! Tasks whose wait is over are marked at the end of a turn, with the lock held, and run by the
//! guard after it has released the lock. Callbacks are called one at a time: a thread that finds
//! another thread calling leaves its own to that thread. So they are called in order, and a
//! callback that uses the log never runs inside another one.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;

use inkstone_format::Lsn;

use crate::commit::sleepers::WaitQueues;
use crate::error::Result;
use crate::panics::{keep_first, resume};
use crate::sync::{Mutex, lock};

/// A task that has left stays in the order until its turn comes, or until the order is much longer
/// than the number of tasks.
const GONE_MAX: usize = 64;

/// The place of a task in the queue: a task from before a cut is over with the cut, any other one
/// with its LSN.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ticket {
    /// The number of cuts before.
    pub(crate) cuts: u64,
    pub(crate) lsn: Lsn,
    /// Never given twice; 0 before it is in the queue.
    number: u64,
    /// Whether the task counts as a waiter of its record, which may not be appended yet. A reader
    /// has `None`.
    pub(crate) is_counted: Option<bool>,
}

impl Ticket {
    /// Of a task that waits for room, or for the end of a segment change: for any end of a turn.
    pub(crate) const ROOM: Self = Self { cuts: 0, lsn: Lsn::ZERO, number: 0, is_counted: None };

    /// `wants_commit`: it waits as the caller that appended the record does; otherwise as a reader,
    /// which takes no part in the commit.
    pub(crate) fn new(lsn: Lsn, cuts: u64, wants_commit: bool) -> Self {
        Self { cuts, lsn, number: 0, is_counted: wants_commit.then_some(false) }
    }

    /// Whether the task was never in the queue.
    pub(crate) fn is_new(self) -> bool {
        self.number == 0
    }
}

/// What a user wants to be called with the outcome of a record.
pub(crate) type Function = Box<dyn FnOnce(Result<Lsn>) + Send>;

/// A task that waits.
pub(crate) enum Task {
    Future(Waker),
    Callback(Function),
}

/// A callback, and the outcome of its record.
struct Decided {
    function: Function,
    outcome: Result<Lsn>,
}

/// All tasks that wait for something of a log.
#[derive(Default)]
pub(crate) struct Tasks {
    /// The first that is over comes first.
    order: BinaryHeap<Reverse<Ticket>>,
    /// By the numbers of their tickets.
    waiting: HashMap<u64, Task>,
    last: u64,
    /// Those that the guard wakes or calls after it has released the lock.
    marked: Vec<Waker>,
    marked_callbacks: Vec<Decided>,
}

impl Tasks {
    /// Puts a task into the queue. Returns what it replaces there, which must be dropped without
    /// the lock.
    pub(crate) fn wait(&mut self, ticket: &mut Ticket, task: Task) -> Option<Task> {
        if let Some(waiting) = self.waiting.get_mut(&ticket.number) {
            return Some(std::mem::replace(waiting, task));
        }
        self.last += 1;
        ticket.number = self.last;
        self.order.push(Reverse(*ticket));
        self.waiting.insert(ticket.number, task)
    }

    /// Takes a task that waits no more out of the queue. Returns it, to be dropped without the
    /// lock; `None` if it was taken to be woken.
    pub(crate) fn forget(&mut self, ticket: Ticket) -> Option<Task> {
        let Self { order, waiting, .. } = self;
        let task = waiting.remove(&ticket.number)?;
        if order.len() > 2 * waiting.len() + GONE_MAX {
            order.retain(|Reverse(ticket)| waiting.contains_key(&ticket.number));
            let kept = 2 * waiting.len() + GONE_MAX;
            order.shrink_to(kept);
            waiting.shrink_to(kept);
        }
        Some(task)
    }

    /// A callback for a record whose outcome is known: it comes after those that are due.
    pub(crate) fn call(&mut self, function: Function, outcome: Result<Lsn>) {
        self.marked_callbacks.push(Decided { function, outcome });
    }

    /// Marks the tasks whose wait is over.
    pub(crate) fn mark_decided(&mut self, outcome: impl Fn(Ticket) -> Option<Result<()>>) {
        while let Some(Reverse(ticket)) = self.order.peek().copied()
            && let Some(outcome) = outcome(ticket)
        {
            self.order.pop();
            match self.waiting.remove(&ticket.number) {
                Some(Task::Future(waker)) => self.marked.push(waker),
                Some(Task::Callback(function)) => {
                    self.call(function, outcome.map(|()| ticket.lsn));
                }
                None => {}
            }
        }
    }

    #[inline]
    pub(crate) fn is_any_marked(&self) -> bool {
        !self.marked.is_empty() || !self.marked_callbacks.is_empty()
    }
}

/// What a log needs for waking.
#[derive(Default)]
pub(crate) struct Waking {
    pub(crate) queues: WaitQueues,
    callbacks: Mutex<CallQueue>,
    /// Empty lists that are used again, so that waking allocates nothing.
    spare: Mutex<Vec<Vec<Waker>>>,
}

/// Callbacks that are to be called.
#[derive(Default)]
struct CallQueue {
    queue: VecDeque<Decided>,
    /// A thread calls them.
    is_calling: bool,
}

/// The wakers that a thread wakes, and the callbacks that it calls, when it has released the lock.
pub(crate) struct DueTasks<'a> {
    waking: &'a Waking,
    wakers: Vec<Waker>,
    has_callbacks: bool,
}

impl<'a> DueTasks<'a> {
    /// Takes what was marked. The caller has the state's lock, so that the order of callbacks is
    /// that of the groups, and runs them without it.
    pub(crate) fn take(waking: &'a Waking, tasks: &mut Tasks) -> Self {
        let mut wakers = Vec::new();
        if !tasks.marked.is_empty() {
            let spare = lock(&waking.spare).pop().unwrap_or_default();
            wakers = std::mem::replace(&mut tasks.marked, spare);
        }
        let has_callbacks = !tasks.marked_callbacks.is_empty();
        if has_callbacks {
            lock(&waking.callbacks).queue.extend(tasks.marked_callbacks.drain(..));
        }
        Self { waking, wakers, has_callbacks }
    }

    /// If a waker panics, the others are woken all the same; the first panic resumes after that.
    pub(crate) fn run(mut self) {
        let mut panicked = None;
        for waker in self.wakers.drain(..) {
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| waker.wake())) {
                keep_first(&mut panicked, panic);
            }
        }
        if self.wakers.capacity() > 0 {
            lock(&self.waking.spare).push(std::mem::take(&mut self.wakers));
        }
        if self.has_callbacks {
            self.waking.call();
        }
        resume(panicked);
    }
}

impl Waking {
    /// Calls the callbacks, unless another thread does, or this one further up its stack. The
    /// caller has no lock, and not the turn.
    pub(crate) fn call(&self) {
        let mut due = lock(&self.callbacks);
        if due.is_calling {
            return;
        }
        due.is_calling = true;
        while let Some(Decided { function, outcome }) = due.queue.pop_front() {
            drop(due);
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| function(outcome))) {
                // The panic's own value may panic again when it is dropped.
                std::mem::forget(panic);
            }
            due = lock(&self.callbacks);
        }
        due.is_calling = false;
    }
}
