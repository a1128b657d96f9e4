//! The state that writers and the back thread share, its lock, and its condition variables.
//!
//! *Owns*: putting a line, waiting for room, flushing and closing, as callers see them. *May not
//! touch*: files.
//!
//! The lock is held while one line is copied. Reserving space by an atomic and copying without a
//! lock was rejected: lines of several threads would be published out of order, and a kill would
//! leave holes between them.

use std::cell::Cell;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

use inkstone_io::{AdaptiveYielding, Error, ForkMark};

use crate::options::WhenFull;
use crate::state::State;
use crate::stats::Stats;

/// After so long without a free buffer, `BlockFor` drops lines at once until there is one.
const DEAD_AFTER: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct Shared {
    fork: ForkMark,
    when_full: WhenFull,
    is_durable: bool,
    /// Calls of hooks that panicked. Not the hooks themselves: a hook that logs has a handle, and
    /// would keep itself alive.
    hook_panics: Arc<AtomicU64>,
    state: Mutex<State>,
    /// The back thread sleeps here.
    pub(crate) work: Condvar,
    /// Writers wait here for room.
    room: Condvar,
    /// Threads that flush wait here.
    pub(crate) progress: Condvar,
    /// The back thread is writing a buffer: a hint for threads that wait for the lock.
    pub(crate) is_writing: AtomicBool,
    /// The file is to be reopened by its name.
    pub(crate) reopen: AtomicBool,
    /// Whether it pays to yield, by the time since `opened`.
    yielding: AdaptiveYielding,
    opened: Instant,
}

thread_local! {
    /// The log whose own thread this is, by its address. It has no destructor, so destructors of
    /// other thread-locals can read it.
    static OWN_OF: Cell<usize> = const { Cell::new(0) };
}

type Locked<'a> = MutexGuard<'a, State>;

impl Shared {
    pub(crate) fn new(
        fork: ForkMark,
        when_full: WhenFull,
        is_durable: bool,
        hook_panics: Arc<AtomicU64>,
        state: State,
    ) -> Self {
        Self {
            fork,
            when_full,
            is_durable,
            hook_panics,
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
    pub(crate) fn lock(&self) -> Locked<'_> {
        self.try_lock().unwrap_or_else(|| self.lock_contended())
    }

    #[inline]
    fn try_lock(&self) -> Option<Locked<'_>> {
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
    fn lock_contended(&self) -> Locked<'_> {
        let is_writing = || self.is_writing.load(Ordering::Relaxed);
        let mut locked = None;
        if is_writing() {
            self.yielding.until(
                Duration::MAX,
                || self.opened.elapsed(),
                thread::yield_now,
                || {
                    locked = self.try_lock();
                    locked.is_some() || !is_writing()
                },
            );
        }
        locked.unwrap_or_else(|| self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn is_child(&self) -> bool {
        self.fork.is_child()
    }

    /// Puts one line, whole and in order.
    #[inline]
    pub(crate) fn put(&self, line: &[u8]) -> io::Result<()> {
        if self.fork.is_child() {
            return Err(in_child());
        }
        let mut state = self.lock();
        if state.is_plain && line.len() <= state.current.room() {
            state.put_line(line);
            if state.is_idle {
                self.wake(state);
            }
            return Ok(());
        }
        self.put_slowly(state, line)
    }

    /// Wakes the back thread after releasing the lock, which that thread takes first.
    fn wake(&self, mut state: Locked<'_>) {
        if std::mem::take(&mut state.is_asleep) {
            state.is_idle = false;
            state.stats.wake_ups += 1;
            drop(state);
            self.work.notify_one();
        }
    }

    #[cold]
    fn put_slowly<'a>(&'a self, mut state: Locked<'a>, line: &[u8]) -> io::Result<()> {
        if line.len() > state.current.capacity() {
            return self.put_long(state, line);
        }
        let mut patience = Patience::new(self.when_full);
        loop {
            if state.is_closed {
                state.stats.refused_lines += 1;
                return Err(closed());
            }
            let has_room = line.len() <= state.current.room();
            if !state.has_turn && (has_room || state.hand_over()) {
                state.put_line(line);
                self.wake(state);
                return Ok(());
            }
            match self.make_room(state, &mut patience) {
                Ok(again) => state = again,
                Err(mut state) => {
                    state.drop_line(line);
                    return Ok(());
                }
            }
        }
    }

    /// Puts a line longer than a buffer, all at once when enough buffers are free, so that a kill
    /// leaves all of it or nothing, and the policy drops all of it or nothing. Only a line longer
    /// than all buffers together is put in pieces.
    fn put_long<'a>(&'a self, mut state: Locked<'a>, line: &[u8]) -> io::Result<()> {
        let pieces = line.len().div_ceil(state.current.capacity());
        if pieces > state.count {
            return self.put_stream(state, line);
        }
        let mut patience = Patience::new(self.when_full);
        let mut is_mine = false;
        let result = loop {
            if state.is_closed {
                state.stats.refused_lines += 1;
                break Err(closed());
            }
            if !state.has_turn || is_mine {
                if !state.current.is_empty() {
                    state.hand_over();
                }
                if state.current.is_empty() && state.free.len() + 1 >= pieces {
                    state.put_pieces(line);
                    break Ok(());
                }
                // Without the turn, threads with short lines would take every buffer that becomes
                // free.
                is_mine = !matches!(self.when_full, WhenFull::DropNewest | WhenFull::DropOldest);
                if is_mine {
                    (state.has_turn, state.is_plain) = (true, false);
                }
            }
            match self.make_room(state, &mut patience) {
                Ok(again) => state = again,
                Err(again) => {
                    state = again;
                    state.drop_line(line);
                    break Ok(());
                }
            }
        };
        self.end_turn(state, is_mine);
        result
    }

    /// Puts a line longer than all buffers together. A kill can truncate it, since its beginning is
    /// written before its end is put.
    fn put_stream<'a>(&'a self, mut state: Locked<'a>, line: &[u8]) -> io::Result<()> {
        if self.when_full != WhenFull::Block || self.is_own_thread() {
            state.drop_too_long(line.len() as u64);
            // There may be room for the notice right away.
            self.wake(state);
            return Ok(());
        }
        let state = self.take_turn(state)?;
        let (mut state, is_all) = self.put_piece(state, line, true, true);
        let is_begun = state.goes_on;
        state.end_pieces();
        state.stats.refused_lines += u64::from(!is_all && !is_begun);
        self.end_turn(state, true);
        if is_all { Ok(()) } else { Err(closed()) }
    }

    /// Waits until no other thread has the turn, and takes it.
    fn take_turn<'a>(&'a self, mut state: Locked<'a>) -> io::Result<Locked<'a>> {
        let mut patience = Patience::new(self.when_full);
        while state.has_turn && !state.is_closed {
            patience.count(&mut state.stats);
            state = self.wait_for_room(state, None);
        }
        if state.is_closed {
            state.stats.refused_lines += 1;
            return Err(closed());
        }
        (state.has_turn, state.is_plain) = (true, false);
        Ok(state)
    }

    /// Puts a piece of the line that has the turn, waiting as often as needed; false if the turn
    /// was ended.
    fn put_piece<'a>(
        &'a self,
        mut state: Locked<'a>,
        piece: &[u8],
        mut is_first: bool,
        is_last: bool,
    ) -> (Locked<'a>, bool) {
        let mut patience = Patience::new(self.when_full);
        let mut rest = piece;
        while !rest.is_empty() {
            if !state.has_turn || state.is_over {
                return (state, false);
            }
            if state.current.room() == 0 && !state.hand_over() {
                patience.count(&mut state.stats);
                state = self.wait_for_room(state, None);
                continue;
            }
            let count = rest.len().min(state.current.room());
            state.current.push_piece(&rest[..count], is_first, true);
            state.stats.lines += u64::from(is_first);
            state.stats.bytes += count as u64;
            (rest, is_first) = (&rest[count..], false);
            state.goes_on = !(rest.is_empty() && is_last);
        }
        (state, true)
    }

    /// Begins a line that comes in pieces; false if its pieces are only counted.
    pub(crate) fn begin_line(&self) -> io::Result<bool> {
        if self.is_child() {
            return Err(in_child());
        }
        let mut state = self.lock();
        if self.when_full != WhenFull::Block || self.is_own_thread() {
            return if state.is_closed {
                state.stats.refused_lines += 1;
                Err(closed())
            } else {
                Ok(false)
            };
        }
        self.take_turn(state)?.has_open_line = true;
        Ok(true)
    }

    pub(crate) fn push_piece(&self, piece: &[u8], is_first: bool) -> io::Result<()> {
        if self.is_child() {
            return Err(in_child());
        }
        let (state, is_all) = self.put_piece(self.lock(), piece, is_first, false);
        self.wake(state);
        if is_all { Ok(()) } else { Err(closed()) }
    }

    pub(crate) fn end_line(&self, is_taken: bool, bytes: u64) -> io::Result<()> {
        if self.is_child() {
            return Err(in_child());
        }
        let mut state = self.lock();
        if is_taken && !std::mem::take(&mut state.has_open_line) || state.is_closed {
            state.stats.refused_lines += u64::from(!is_taken);
            return Err(closed());
        }
        if is_taken {
            state.end_pieces();
        } else if bytes > 0 {
            state.drop_too_long(bytes);
        }
        self.end_turn(state, is_taken);
        Ok(())
    }

    fn end_turn(&self, mut state: Locked<'_>, is_mine: bool) {
        if is_mine {
            state.has_turn = false;
            state.is_plain = !state.is_closed;
            if state.waiting > 0 {
                self.room.notify_all();
            }
        }
        // Closing waits for the end of a turn.
        self.wake(state);
    }

    /// Marks the calling thread as the log's own: the back thread, or the janitor.
    pub(crate) fn be_own_thread(&self) {
        OWN_OF.set(std::ptr::from_ref(self).addr());
    }

    /// Whether the calling thread is the log's own. A hook that logs runs there, and must not wait
    /// for room that only these threads make, nor for their end.
    pub(crate) fn is_own_thread(&self) -> bool {
        OWN_OF.get() == std::ptr::from_ref(self).addr()
    }

    /// Follows the policy when there is no room; `Err`: the line is to be dropped.
    fn make_room<'a>(
        &'a self,
        mut state: Locked<'a>,
        patience: &mut Patience,
    ) -> Result<Locked<'a>, Locked<'a>> {
        if self.is_own_thread() {
            return Err(state);
        }
        match self.when_full {
            WhenFull::DropNewest => Err(state),
            WhenFull::DropOldest => {
                if state.drop_oldest() {
                    Ok(state)
                } else {
                    Err(state)
                }
            }
            WhenFull::Block | WhenFull::BlockFor(_) => {
                // A disk that has taken nothing for so long is not waited for by each line: the
                // program would stand still.
                let full_since = *state.full_since.get_or_insert_with(Instant::now);
                if patience.at_most.is_some_and(|most| full_since.elapsed() >= most.max(DEAD_AFTER))
                {
                    return Err(state);
                }
                patience.count(&mut state.stats);
                match patience.left() {
                    Some(Duration::ZERO) => Err(state),
                    left => Ok(self.wait_for_room(state, left)),
                }
            }
        }
    }

    fn wait_for_room<'a>(&'a self, mut state: Locked<'a>, at_most: Option<Duration>) -> Locked<'a> {
        state.waiting += 1;
        if std::mem::take(&mut state.is_asleep) {
            state.is_idle = false;
            state.stats.wake_ups += 1;
            self.work.notify_one();
        }
        let mut state = match at_most {
            None => self.room.wait(state).unwrap_or_else(PoisonError::into_inner),
            Some(left) => {
                self.room.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0
            }
        };
        state.waiting -= 1;
        state
    }

    /// Notifies waiting threads that a buffer was freed, or that none will be any more.
    pub(crate) fn tell_progress(&self, state: Locked<'_>) {
        // If every freed buffer woke them, writers and back thread would only alternate on a disk
        // slower than they are.
        let has_room =
            state.free.len() * 4 >= state.count || state.queue.is_empty() || state.is_closed;
        let has_waiting = state.waiting > 0 && has_room;
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
        let deadline = Instant::now().checked_add(at_most);
        let mut state = self.lock();
        let target = state.newest();
        loop {
            let is_written = state.oldest() > target;
            if is_written && (!self.is_durable || state.durable_to >= target) {
                // The failed sync, however long ago, was also for lines put before this call.
                return match state.sync_failure.clone() {
                    Some(error) => Err(io::Error::new(error.kind(), not_durable(error))),
                    None => Ok(()),
                };
            }
            if state.is_over {
                return Err(state
                    .trouble
                    .clone()
                    .map_or_else(closed, |error| io::Error::new(error.kind(), error)));
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                let why =
                    state.trouble.as_ref().map_or_else(String::new, |error| format!(": {error}"));
                let text = format!("the log was not written within {at_most:?}{why}");
                return Err(io::Error::new(io::ErrorKind::TimedOut, text));
            }
            state.flush_to = state.flush_to.max(target);
            if std::mem::take(&mut state.is_asleep) {
                state.is_idle = false;
                self.work.notify_one();
            }
            let left = left.unwrap_or(Duration::from_secs(3600));
            state =
                self.progress.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Sets how long closing retries a failing disk, instead of the builder's value.
    pub(crate) fn drain_within(&self, at_most: Duration) {
        self.lock().drain_timeout = Some(at_most);
    }

    /// Takes no more lines. Those taken will be written: the back thread checks for lines once more
    /// after it sees this.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        (state.is_closed, state.is_plain) = (true, false);
        if std::mem::take(&mut state.has_open_line) {
            // Its writer may wait for the next piece for ever.
            state.has_turn = false;
            state.end_pieces();
        }
        state.is_asleep = false;
        drop(state);
        self.work.notify_all();
        self.room.notify_all();
    }

    /// The back thread has panicked: no thread may wait for it. No buffer is released: a stage file
    /// keeps them.
    pub(crate) fn died(&self, error: Error) {
        let mut state = self.lock();
        (state.is_closed, state.is_plain, state.is_over) = (true, false, true);
        state.abandon();
        state.trouble = Some(error);
        drop(state);
        self.room.notify_all();
        self.progress.notify_all();
    }

    pub(crate) fn ask_to_reopen(&self) {
        self.reopen.store(true, Ordering::Release);
        if !self.is_child() {
            self.lock().is_asleep = false;
            self.work.notify_one();
        }
    }

    /// All zeros in a forked child.
    pub(crate) fn stats(&self) -> Stats {
        if self.is_child() {
            return Stats::default();
        }
        Stats { hook_panics: self.hook_panics.load(Ordering::Relaxed), ..self.lock().stats }
    }

    pub(crate) fn trouble(&self) -> Option<Error> {
        if self.is_child() { None } else { self.lock().trouble.clone() }
    }
}

/// How long one call has waited, and how long it may.
struct Patience {
    at_most: Option<Duration>,
    since: Option<Instant>,
}

impl Patience {
    fn new(when_full: WhenFull) -> Self {
        let at_most = match when_full {
            WhenFull::BlockFor(at_most) => Some(at_most),
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
        "a power loss may lose lines written before this sync, and no later sync can confirm them; the log continues",
    )
}

fn closed() -> io::Error {
    io::Error::new(io::ErrorKind::BrokenPipe, "the log is closed")
}

fn in_child() -> io::Error {
    let text = "this process was forked from the one that opened the log: open another log here";
    io::Error::new(io::ErrorKind::Unsupported, text)
}
