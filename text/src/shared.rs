//! The state that writers and the output thread share, its lock, and its condition variables.
//!
//! *Owns*: putting a line, waiting for room, flushing and closing, as callers see them. *May not
//! touch*: files; what a stream is ([`stream`](crate::stream)).
//!
//! The lock is held while one line is copied. Reserving space by an atomic and copying without a
//! lock was rejected: lines of several threads would be published out of order, and a kill would
//! leave holes between them.

use std::cell::Cell;
use std::io;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

use inkstone_io::{AdaptiveYielding, Error, ForkMark};

use crate::buffer::{Count, Sum};
use crate::inbox::Inbox;
use crate::notice::Stats;
use crate::options::WhenFull;
use crate::state::{Activity, Life, State, Turn};

#[derive(Debug)]
pub(crate) struct Shared {
    fork: ForkMark,
    pub(crate) when_full: WhenFull,
    is_durable: bool,
    /// Lines survive a kill.
    pub(crate) is_kept: bool,
    /// Its lock is taken with that of the state held, or alone.
    inbox: Mutex<Inbox>,
    state: Mutex<State>,
    /// The output thread sleeps here.
    pub(crate) work: Condvar,
    /// Writers wait here for room.
    room: Condvar,
    /// Threads that flush wait here.
    progress: Condvar,
    /// The output thread is writing a buffer: a hint for threads that wait for the lock.
    pub(crate) is_writing: AtomicBool,
    /// The file is to be reopened by its name.
    pub(crate) reopen: AtomicBool,
    /// Whether it pays to yield, by the time since `opened`.
    yielding: AdaptiveYielding,
    opened: Instant,
}

/// What became of a line; in a register, which an error is not.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Put {
    Accepted,
    /// As the policy says.
    Dropped,
    Closed,
    InChild,
}

impl Put {
    /// False: the policy dropped it.
    #[inline]
    pub(crate) fn accepted(self) -> io::Result<bool> {
        match self {
            Put::Accepted => Ok(true),
            Put::Dropped => Ok(false),
            Put::Closed => Err(closed()),
            Put::InChild => Err(in_child()),
        }
    }
}

thread_local! {
    /// The log whose own thread this is, by its address. It has no destructor, so destructors of
    /// other thread-locals can read it.
    static OWN_OF: Cell<usize> = const { Cell::new(0) };
}

impl Shared {
    pub(crate) fn new(
        fork: ForkMark,
        when_full: WhenFull,
        is_durable: bool,
        is_kept: bool,
        (state, inbox): (State, Inbox),
    ) -> Self {
        Self {
            fork,
            when_full,
            is_durable,
            is_kept,
            inbox: Mutex::new(inbox),
            state: Mutex::new(state),
            work: Condvar::new(),
            room: Condvar::new(),
            progress: Condvar::new(),
            is_writing: AtomicBool::new(false),
            reopen: AtomicBool::new(false),
            yielding: AdaptiveYielding::default(),
            opened: Instant::now(),
        }
    }

    /// Only a bug of ours can panic under the lock, and then the state is still consistent.
    #[inline]
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.try_lock().unwrap_or_else(|| self.lock_contended())
    }

    #[inline]
    fn try_lock(&self) -> Option<MutexGuard<'_, State>> {
        match self.state.try_lock() {
            Ok(state) => Some(state),
            Err(TryLockError::Poisoned(error)) => Some(error.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// While a buffer is being written, lines come so fast that a thread without the lock should
    /// yield and try again rather than sleep: the thread with the lock would have to wake it by a
    /// system call, again and again with several writers at full speed. Otherwise the lock is soon
    /// free for a long time, and the sleeping thread is woken first. A yield that comes back late
    /// says that others want the processor: then it sleeps at once.
    #[cold]
    fn lock_contended(&self) -> MutexGuard<'_, State> {
        let is_writing = || self.is_writing.load(Ordering::Relaxed);
        let mut locked = None;
        if is_writing() {
            let since_opened = || self.opened.elapsed();
            self.yielding.until(Duration::MAX, since_opened, thread::yield_now, || {
                locked = self.try_lock();
                locked.is_some() || !is_writing()
            });
        }
        locked.unwrap_or_else(|| self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn inbox(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The inbox, if no stream is just reading into it.
    pub(crate) fn idle_inbox(&self) -> Option<MutexGuard<'_, Inbox>> {
        match self.inbox.try_lock() {
            Ok(inbox) => Some(inbox),
            Err(TryLockError::Poisoned(error)) => Some(error.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    pub(crate) fn is_child(&self) -> bool {
        self.fork.is_child()
    }

    /// Puts one line, whole and in order. A call for each line, whose answer comes in a register: the
    /// caller's code makes an error of it, if it is one.
    #[inline(never)]
    pub(crate) fn put(&self, line: &[u8]) -> Put {
        if self.fork.is_child() {
            return Put::InChild;
        }
        // Before the lock is taken.
        let sum = if self.is_kept { Sum::of(line) } else { Sum::default() };
        let mut state = self.lock();
        if state.takes_lines() && line.len() <= state.current.room() {
            state.put_line(line, sum);
            if state.activity == Activity::Idle {
                self.wake(state);
            }
            return Put::Accepted;
        }
        self.put_slowly(state, line, sum)
    }

    /// Wakes the output thread after releasing the lock, which that thread takes first.
    fn wake(&self, mut state: MutexGuard<'_, State>) {
        if state.wake() {
            drop(state);
            self.work.notify_one();
        }
    }

    /// Puts a line longer than the current buffer's room. All of it at once, when there is room, so
    /// that a kill leaves all of it or nothing, and the policy drops all of it or nothing. One that
    /// is longer than all buffers together is dropped, whatever the policy.
    #[cold]
    fn put_slowly<'a>(&'a self, state: MutexGuard<'a, State>, line: &[u8], sum: Sum) -> Put {
        let capacity = state.current.capacity();
        let buffers = line.len().div_ceil(capacity);
        let mut held = Held { shared: self, state: Some(state) };
        let mut patience = Patience::new(self.when_full);
        let wants_turn = line.len() > capacity;
        let mut is_mine = false;
        let result = loop {
            if held.life != Life::Open {
                break Put::Closed;
            }
            if is_mine || held.turn == Turn::Free {
                if held.put(line, sum) {
                    break Put::Accepted;
                }
                // Without the turn, threads with short lines would take every buffer that becomes
                // free.
                if wants_turn {
                    (held.turn, is_mine) = (Turn::Taken, true);
                }
            }
            // One that is too long would be written in part before its end is put, and a kill could
            // cut it. By now there may be fewer buffers than were asked for.
            if buffers > held.count || !held.make_room(&mut patience) {
                held.drop_lines(1, line.len() as u64);
                break Put::Dropped;
            }
        };
        held.end_turn(is_mine);
        result
    }

    /// Marks the calling thread as the log's own: the output thread, or the janitor.
    pub(crate) fn be_own_thread(&self) {
        OWN_OF.set(std::ptr::from_ref(self).addr());
    }

    /// Whether the calling thread is the log's own. A hook that logs runs there, and must not wait
    /// for room that only these threads make, nor for their end.
    pub(crate) fn is_own_thread(&self) -> bool {
        OWN_OF.get() == std::ptr::from_ref(self).addr()
    }

    /// Notifies waiting threads that a buffer was freed, or that none will be any more.
    pub(crate) fn tell_progress(&self, state: MutexGuard<'_, State>) {
        // If every freed buffer woke them, writers and output thread would only alternate on a disk
        // slower than they are.
        let has_room = state.free.len() * 4 >= state.count || state.queue.is_empty();
        let has_waiting = state.waiting > 0 && (has_room || state.life != Life::Open);
        drop(state);
        if has_waiting {
            self.room.notify_all();
        }
        self.progress.notify_all();
    }

    /// Waits until everything put before is in the file, and durable if the log is meant to be.
    pub(crate) fn flush(&self, at_most: Duration) -> io::Result<()> {
        if self.is_child() {
            return Err(in_child());
        }
        if self.is_own_thread() {
            return Err(io::Error::other("a hook cannot flush the log that called it"));
        }
        let as_io = |error: Error| io::Error::new(error.kind(), error);
        let deadline = Instant::now().checked_add(at_most);
        let mut state = self.lock();
        let target = state.newest();
        loop {
            let is_written = state.oldest() > target;
            if is_written && (!self.is_durable || state.durable_to >= target) {
                // The failed sync, however long ago, was also for lines put before this call.
                return match state.sync_failure.clone() {
                    Some(error) => Err(as_io(not_durable(error))),
                    None => Ok(()),
                };
            }
            if state.life == Life::Over {
                return Err(state.trouble.clone().map_or_else(closed, as_io));
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                let why =
                    state.trouble.as_ref().map_or_else(String::new, |error| format!(": {error}"));
                let text = format!("the log was not written within {at_most:?}{why}");
                return Err(io::Error::new(io::ErrorKind::TimedOut, text));
            }
            state.flush_to = state.flush_to.max(target);
            if state.wake() {
                self.work.notify_one();
            }
            let left = left.unwrap_or(Duration::from_secs(3600));
            state =
                self.progress.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Takes no more lines. Those taken will be written: the output thread checks for lines once
    /// more after it sees this. `at_most`: how long a failing disk is retried, instead of the
    /// builder's drain timeout.
    pub(crate) fn close(&self, at_most: Option<Duration>) {
        let mut state = self.lock();
        state.drain_timeout = at_most;
        if state.life == Life::Open {
            state.life = Life::Closed;
        }
        if state.turn == Turn::InPieces {
            // Its writer may wait for the next piece for ever.
            state.turn = Turn::Free;
            state.end_pieces();
        }
        state.wake();
        drop(state);
        self.work.notify_all();
        self.room.notify_all();
    }

    /// The output thread has panicked: no thread may wait for it. No buffer is released: a stage
    /// file keeps them.
    pub(crate) fn died(&self, error: Error, in_file: Option<Count>) {
        let mut state = self.lock();
        (state.life, state.turn) = (Life::Over, Turn::Free);
        state.abandon(in_file);
        state.trouble = Some(error);
        drop(state);
        self.room.notify_all();
        self.progress.notify_all();
    }

    pub(crate) fn ask_to_reopen(&self) {
        self.reopen.store(true, Ordering::Release);
        if !self.is_child() {
            self.lock().wake();
            self.work.notify_one();
        }
    }

    /// All zeros in a forked child.
    pub(crate) fn stats(&self) -> Stats {
        if self.is_child() { Stats::default() } else { self.lock().stats() }
    }

    pub(crate) fn trouble(&self) -> Option<Error> {
        if self.is_child() { None } else { self.lock().trouble.clone() }
    }
}

/// The lock, held by a thread that may have to wait with it.
pub(crate) struct Held<'a> {
    shared: &'a Shared,
    /// Always there, but for the moment in which [`Held::wait_for_room`] waits.
    state: Option<MutexGuard<'a, State>>,
}

impl Deref for Held<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        self.state.as_ref().expect("it is held")
    }
}

impl DerefMut for Held<'_> {
    fn deref_mut(&mut self) -> &mut State {
        self.state.as_mut().expect("it is held")
    }
}

impl<'a> Held<'a> {
    pub(crate) fn of(shared: &'a Shared) -> io::Result<Self> {
        if shared.is_child() {
            return Err(in_child());
        }
        Ok(Self { shared, state: Some(shared.lock()) })
    }

    /// Follows the policy when there is no room; false: the line is to be dropped.
    pub(crate) fn make_room(&mut self, patience: &mut Patience) -> bool {
        if self.shared.is_own_thread() {
            return false;
        }
        let left = patience.left();
        let may_wait = left != Some(Duration::ZERO);
        if may_wait {
            patience.count(&mut self.stats);
            self.wait_for_room(left);
        }
        may_wait
    }

    fn wait_for_room(&mut self, at_most: Option<Duration>) {
        self.waiting += 1;
        if self.wake() {
            self.shared.work.notify_one();
        }
        let room = &self.shared.room;
        let state = self.state.take().expect("it is held");
        self.state = Some(match at_most {
            None => room.wait(state).unwrap_or_else(PoisonError::into_inner),
            Some(left) => room.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0,
        });
        self.waiting -= 1;
    }

    /// Releases the lock behind text of a stream: what waits for the end of its line is found at
    /// the next interval.
    pub(crate) fn end_put(mut self) {
        let state = self.state.take().expect("it is held");
        if state.turn == Turn::Free && state.waiting > 0 {
            self.shared.room.notify_all();
        }
        if state.activity == Activity::Idle {
            self.shared.wake(state);
        }
    }

    /// Releases the lock; wakes writers if the turn ends, and the output thread, since closing
    /// waits for the end of a turn.
    pub(crate) fn end_turn(mut self, is_mine: bool) {
        if is_mine {
            self.turn = Turn::Free;
            if self.waiting > 0 {
                self.shared.room.notify_all();
            }
        }
        self.shared.wake(self.state.take().expect("it is held"));
    }
}

/// How long one call has waited, and how long it may.
pub(crate) struct Patience {
    at_most: Option<Duration>,
    since: Option<Instant>,
}

impl Patience {
    pub(crate) fn new(when_full: WhenFull) -> Self {
        let at_most = match when_full {
            WhenFull::DropAfter(at_most) => Some(at_most),
            _ => None,
        };
        Self { at_most, since: None }
    }

    /// Counts a call once, however often it wakes up.
    fn count(&mut self, stats: &mut Stats) {
        if self.since.is_none() {
            self.since = Some(Instant::now());
            stats.waits += 1;
        }
    }

    fn left(&self) -> Option<Duration> {
        let waited = self.since.map_or(Duration::ZERO, |since| since.elapsed());
        self.at_most.map(|at_most| at_most.saturating_sub(waited))
    }
}

/// The error of a failed sync, for callers that flush.
pub(crate) fn not_durable(error: Error) -> Error {
    error.advise(
        "a power loss may lose lines written before this sync, and no later sync can confirm them; \
         the log continues",
    )
}

pub(crate) fn closed() -> io::Error {
    io::Error::new(io::ErrorKind::BrokenPipe, "the log is closed")
}

fn in_child() -> io::Error {
    let text = "this process was forked from the one that opened the log: open another log here";
    io::Error::new(io::ErrorKind::Unsupported, text)
}
