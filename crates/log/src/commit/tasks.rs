//! Tasks that wait: futures and callbacks, by what they wait for, and running them.
//!
//! *Owns*: one waker for each future, found again by its ticket; the order of callbacks; the one
//! rule about what is the user's: wakers are cloned, woken and dropped, and callbacks called, while
//! no lock of the log is held. *May not touch*: when a record is decided (`state.rs`), threads that
//! wait (`sleepers.rs`).
//!
//! One group is in flight at a time. So a record that is not decided is in that group or in the
//! open group, and a list for each of these two is enough. Tasks that await the watermark stand in
//! the order of the LSNs for which they wait, so only those whose LSN is reached are woken.
//! Registering a waker is quick, however many there are: a task that registers again replaces its
//! waker.
//!
//! What a turn has decided is marked at its end, with the lock held, and run by the guard after it
//! has released the lock. Callbacks are called one at a time: a thread that finds another thread
//! calling leaves its own to that thread. So they are called in order, and a callback that uses the
//! log never runs inside another one.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;

use inkstone_format::Lsn;

use crate::commit::sleepers::WaitQueues;
use crate::error::Result;
use crate::panics::{keep_first, resume};
use crate::sync::{Mutex, lock};

/// A task that has left stays in the order until its LSN is reached, or until the order is much
/// longer than the number of tasks.
const GONE_MAX: usize = 64;

/// Where a task has left its waker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ticket {
    /// Never given twice.
    number: u64,
    place: usize,
}

/// Wakers of tasks, one for each.
#[derive(Debug, Default)]
pub(crate) struct Wakers {
    /// In a place that is nobody's is a waker that does nothing: so the whole list can be taken as
    /// it is.
    list: Vec<Waker>,
    /// The number of each place's ticket; 0 if it is nobody's.
    numbers: Vec<u64>,
    /// Places that are nobody's.
    free: Vec<usize>,
    last: u64,
}

impl Wakers {
    fn is_there(&self, ticket: Ticket) -> bool {
        self.numbers.get(ticket.place) == Some(&ticket.number)
    }

    /// How many there are.
    fn count(&self) -> usize {
        self.list.len() - self.free.len()
    }

    /// Leaves the waker of a task. Returns the one that it replaces, which must be dropped without
    /// the lock.
    pub(crate) fn leave(&mut self, ticket: &mut Option<Ticket>, waker: Waker) -> Option<Waker> {
        if let Some(ticket) = ticket.filter(|ticket| self.is_there(*ticket)) {
            return Some(std::mem::replace(&mut self.list[ticket.place], waker));
        }
        self.last += 1;
        let number = self.last;
        let place = match self.free.pop() {
            Some(place) => {
                (self.list[place], self.numbers[place]) = (waker, number);
                place
            }
            None => {
                self.list.push(waker);
                self.numbers.push(number);
                self.list.len() - 1
            }
        };
        *ticket = Some(Ticket { number, place });
        None
    }

    /// Frees the place of a task that waits no more. Returns its waker, which must be dropped
    /// without the lock; `None` if it was taken to be woken.
    pub(crate) fn forget(&mut self, ticket: Ticket) -> Option<Waker> {
        if !self.is_there(ticket) {
            return None;
        }
        self.numbers[ticket.place] = 0;
        self.free.push(ticket.place);
        Some(std::mem::replace(&mut self.list[ticket.place], Waker::noop().clone()))
    }

    /// Moves all of them to another list, which keeps none of them waiting.
    fn move_to(&mut self, others: &mut Vec<Waker>) {
        self.numbers.clear();
        self.free.clear();
        join(others, &mut self.list);
    }
}

/// Moves the wakers of `from` to `list`, without copying them if that is empty.
fn join(list: &mut Vec<Waker>, from: &mut Vec<Waker>) {
    if list.is_empty() {
        std::mem::swap(list, from);
    } else {
        list.append(from);
    }
}

/// Tasks that await the watermark.
#[derive(Debug, Default)]
pub(crate) struct Watchers {
    /// The lowest LSN is first to be taken.
    order: BinaryHeap<Reverse<(Lsn, Ticket)>>,
    wakers: Wakers,
}

impl Watchers {
    /// Leaves the waker of a task that waits for `lsn`, as [`Wakers::leave`].
    pub(crate) fn leave(
        &mut self,
        lsn: Lsn,
        ticket: &mut Option<Ticket>,
        waker: Waker,
    ) -> Option<Waker> {
        let before = *ticket;
        let replaced = self.wakers.leave(ticket, waker);
        if let Some(taken) = ticket.filter(|_| *ticket != before) {
            self.order.push(Reverse((lsn, taken)));
        }
        replaced
    }

    /// Frees the place of a task that waits no more, as [`Wakers::forget`].
    pub(crate) fn forget(&mut self, ticket: Ticket) -> Option<Waker> {
        let waker = self.wakers.forget(ticket)?;
        let Self { order, wakers } = self;
        if order.len() > 2 * wakers.count() + GONE_MAX {
            order.retain(|Reverse((_, ticket))| wakers.is_there(*ticket));
        }
        Some(waker)
    }

    /// Moves those who wait for an LSN up to this one to a list, which keeps none of them waiting.
    fn reach(&mut self, lsn: Lsn, woken: &mut Vec<Waker>) {
        while let Some(Reverse((wanted, ticket))) = self.order.peek().copied()
            && wanted <= lsn
        {
            self.order.pop();
            woken.extend(self.wakers.forget(ticket));
        }
    }
}

/// What a user wants to be called with the outcome of a record.
pub(crate) type Function = Box<dyn FnOnce(Result<Lsn>) + Send>;

/// A callback whose record is not decided.
pub(crate) struct DurableCallback {
    pub(crate) lsn: Lsn,
    /// The number of cuts before the record was appended.
    pub(crate) cuts: u64,
    pub(crate) function: Function,
}

/// A callback, and the outcome of its record.
struct Decided {
    function: Function,
    outcome: Result<Lsn>,
}

/// What waits for the records of one group.
#[derive(Default)]
pub(crate) struct GroupTasks {
    pub(crate) futures: Wakers,
    pub(crate) callbacks: Vec<DurableCallback>,
}

/// All tasks that wait for something of a log.
#[derive(Default)]
pub(crate) struct Tasks {
    /// For records whose outcome is open, by the parity of their group.
    waiting: [GroupTasks; 2],
    /// For the watermark.
    pub(crate) watchers: Watchers,
    /// For room.
    pub(crate) room: Wakers,
    /// Those whose record this turn has decided; the callbacks in the order of their LSNs. They are
    /// marked at its end.
    written: Vec<Waker>,
    written_callbacks: Vec<DurableCallback>,
    /// Those that the guard wakes or calls after it has released the lock.
    marked: Vec<Waker>,
    marked_callbacks: Vec<Decided>,
}

impl Tasks {
    /// What waits for the records of this group, which is the open group or the one before.
    pub(crate) fn of_group(&mut self, group: u64) -> &mut GroupTasks {
        &mut self.waiting[(group % 2) as usize]
    }

    /// This group, and everything up to this LSN, is decided.
    pub(crate) fn decided(&mut self, group: u64, durable: Lsn) {
        let waiting = &mut self.waiting[(group % 2) as usize];
        waiting.futures.move_to(&mut self.written);
        if !waiting.callbacks.is_empty() {
            waiting.callbacks.sort_by_key(|callback| callback.lsn);
            self.written_callbacks.append(&mut waiting.callbacks);
        }
        self.watchers.reach(durable, &mut self.written);
    }

    /// No watermark can be awaited any longer: the log was cut, or has ended.
    pub(crate) fn no_watermark_comes(&mut self) {
        self.watchers.reach(Lsn::new(u64::MAX), &mut self.written);
    }

    /// A callback for a record whose outcome is known: it comes after those that are due.
    pub(crate) fn call(&mut self, callback: DurableCallback, outcome: Result<()>) {
        if self.written_callbacks.is_empty() {
            let DurableCallback { lsn, function, .. } = callback;
            self.marked_callbacks.push(Decided { function, outcome: outcome.map(|()| lsn) });
        } else {
            self.written_callbacks.push(callback);
        }
    }

    /// Marks what was decided.
    pub(crate) fn mark_decided(&mut self, outcome: impl Fn(&DurableCallback) -> Result<()>) {
        join(&mut self.marked, &mut self.written);
        for callback in self.written_callbacks.drain(..) {
            let outcome = outcome(&callback).map(|()| callback.lsn);
            self.marked_callbacks.push(Decided { function: callback.function, outcome });
        }
    }

    /// Marks the futures that wait for room.
    pub(crate) fn mark_room(&mut self) {
        self.room.move_to(&mut self.marked);
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
    fn call(&self) {
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
