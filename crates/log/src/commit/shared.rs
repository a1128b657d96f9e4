//! What all users of one open log share: the state, the turn, the watermark, the poison.
//!
//! *Owns*: the one lock and its order beside others, the durable watermark, who is notified, who gets events. *May not touch*: how a
//! group is written (`group.rs`), who waits for what (`turn.rs`, `wait.rs`), segments changing (`change/`), reading (`read/`).
//!
//! **Commit.** The first waiter whose group may be written takes the *turn*: it freezes the group, writes it and makes
//! it durable without holding the state's lock, moves the watermark, and notifies that group's waiters. Meanwhile others
//! fill the next group. Which waiter leads is the gathering rule (`rule.rs`).
//!
//! **Results.** There is no flag of success that a later group could overwrite. The watermark only rises, by groups that
//! are durable; the poison is set once, and from then on the watermark stands: a group that was in flight when another
//! thread's sync failed is not acknowledged, whatever its own sync says (a file system that has just failed one sync may call
//! the other a success: docs/assumptions.md, A13). A record at or below the watermark is durable; one above it, in a
//! poisoned log, never will be. Cuts start a new count of LSNs: a handle of before the cut was durable before it.
//!
//! **Locks**, in this order: `state`, `writer` (held by whoever has the turn), `segments`. None but `writer` is held
//! across a system call, and nobody waits for `writer`: the turn is waited for. What is the user's (wakers, the listener) runs
//! with no lock held, and the listener when the turn has been given back.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, PoisonError, TryLockError};

use inkstone_format::Lsn;
use inkstone_io::Directory;

use crate::commit::sleepers::Sleepers;
use crate::commit::state::{Guard, State};
use crate::commit::writer::Writer;
use crate::error::{Error, Poison, Result};
use crate::event::Event;
use crate::mistake::Mistake;
use crate::options::Options;
use crate::segment::Segments;
use crate::segment::pool::Pool;
use crate::segment::seal::Seal;
use crate::sync::{AtomicBool, AtomicU64, JoinHandle, Mutex, MutexGuard, Ordering, spawn, yield_now};

/// Shared by the log, its handles, its readers and its own thread.
pub(crate) struct Shared<D: Directory> {
    pub(crate) directory: Arc<D>,
    pub(crate) options: Options,
    state: Mutex<State>,
    /// Waiters of a group, by the parity of its number: waking one group does not wake the next.
    pub(super) groups: [Sleepers; 2],
    /// Those who wait for the turn, for room in a buffer, or for a segment change.
    pub(crate) room: Sleepers,
    /// The log's own thread.
    pub(crate) committer: Sleepers,
    /// Readers that wait for the watermark.
    pub(crate) followers: Sleepers,
    /// The thread that makes files ready.
    pub(crate) preparer: Sleepers,
    pub(crate) pool: Pool<D>,
    pub(crate) writer: Mutex<Writer<D>>,
    pub(crate) segments: Mutex<Segments<D::File>>,
    /// Last groups of segments that were left, for the preparer to write.
    pub(crate) seals: Mutex<Vec<Seal<D::File>>>,
    /// The durable watermark, for who only wants to look. Written with `Release` under the state's lock when a group is
    /// durable; read with `Acquire` by handles and readers.
    durable: AtomicU64,
    /// A number that is another one after each cut and each truncation: a reader asks it for each record, and no lock. It is
    /// odd while a cut changes what it is the number of.
    changes: AtomicU64,
    /// Somebody polled or let go of a record of the group that is gathered: the log's own thread is to commit it. Set by those,
    /// cleared with the lock held when a group is frozen. `Relaxed` is enough: whoever sets it for a record had the lock after
    /// the group before that record was frozen, so a `true` that is seen here was set for this group or a later one.
    pub(crate) unclaimed: AtomicBool,
    /// The lock was given back, or is about to be: nobody keeps the files. `Release` before that, `Acquire` by those who ask.
    pub(crate) has_ended: Arc<AtomicBool>,
    /// A thread panicked that the log cannot go on without. `Release` while unwinding, `Acquire` after each locking.
    panicked: AtomicBool,
}

/// Held by whoever has the turn. Dropped without being given back (a panic), it poisons the log: what was in its hands
/// may be half done. The unwinding thread may hold the state's lock itself, so it only leaves a mark where it cannot lock;
/// whoever locks next acts on it.
pub(crate) struct Turn<'a, D: Directory> {
    shared: &'a Shared<D>,
    is_back: bool,
}

impl<D: Directory> Turn<'_, D> {
    /// Leaves it, still taken, to the log's own thread.
    pub(crate) fn hand_on(mut self) {
        self.is_back = true;
    }
}

impl<D: Directory> Drop for Turn<'_, D> {
    fn drop(&mut self) {
        if !self.is_back {
            self.shared.mark_panic();
        }
    }
}

/// Starts one of the log's own threads. If it panics the log is poisoned: what it is there for would silently not be done any
/// more.
///
/// # Errors
/// When the system has no thread to give.
pub(crate) fn start<D: Directory>(
    shared: &Arc<Shared<D>>,
    name: &str,
    run: fn(&Shared<D>),
) -> Result<JoinHandle<()>> {
    let theirs = Arc::clone(shared);
    let run = move || {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| run(&theirs))) {
            theirs.mark_panic();
            // It holds no lock any more, so it can wait for the state's: who held it a moment ago may have left a future behind,
            // and nobody else would come to poison the log and wake it.
            drop(theirs.lock());
            resume_unwind(panic);
        }
    };
    spawn(name, run).map_err(|source| {
        inkstone_io::Error::new("start a thread for", shared.directory.path(), source).into()
    })
}

impl<D: Directory> Shared<D> {
    pub(crate) fn new(
        directory: Arc<D>,
        options: Options,
        state: State,
        writer: Writer<D>,
        segments: Segments<D::File>,
        pool: Pool<D>,
    ) -> Self {
        let durable = AtomicU64::new(state.durable.get());
        let sleepers = || Sleepers::new(&options);
        Self {
            groups: [sleepers(), sleepers()],
            room: sleepers(),
            committer: sleepers(),
            followers: sleepers(),
            preparer: sleepers(),
            directory,
            options,
            state: Mutex::new(state),
            pool,
            writer: Mutex::new(writer),
            segments: Mutex::new(segments),
            seals: Mutex::default(),
            durable,
            changes: AtomicU64::new(0),
            unclaimed: AtomicBool::new(false),
            has_ended: Arc::new(AtomicBool::new(false)),
            panicked: AtomicBool::new(false),
        }
    }

    /// The state. A panic while it was held poisons the log through the turn, or left a record whose LSN no caller got;
    /// the lock itself stays usable.
    #[inline]
    pub(crate) fn lock(&self) -> Guard<'_> {
        let state = match self.state.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(error)) => error.into_inner(),
            Err(TryLockError::WouldBlock) => self.lock_contended(),
        };
        self.mind_panic(Guard::new(state))
    }

    /// Every public call asks first. In a forked child there is one thread, and locks that others held at the fork are held for
    /// ever: the child must come to no lock, and not write over what its parent goes on to write. (The files refuse it too.)
    ///
    /// # Errors
    /// [`Error::Forked`].
    #[inline]
    pub(crate) fn check_process(&self) -> Result<()> {
        if self.is_forked() {
            Err(Error::Forked { path: self.directory.path().to_path_buf() })
        } else {
            Ok(())
        }
    }

    #[inline]
    pub(crate) fn is_forked(&self) -> bool {
        self.directory.is_forked() && !self.options.makes(Mistake::ForkMarkNotAsked)
    }

    /// Beside a producer that lets its records go, who comes too late lets others run and tries again: asleep, it would have
    /// to be woken by a system call of that producer, again and again, and two of them would do half of what they do so
    /// (docs/performance.md). Where all wait for their records the lock is soon free for long, and sleeping is better.
    #[cold]
    fn lock_contended(&self) -> MutexGuard<'_, State> {
        for _ in 0..self.options.yields {
            if !self.unclaimed.load(Ordering::Relaxed) {
                break;
            }
            yield_now();
            match self.state.try_lock() {
                Ok(state) => return state,
                Err(TryLockError::Poisoned(error)) => return error.into_inner(),
                Err(TryLockError::WouldBlock) => {}
            }
        }
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves the mark of a panic; the log is poisoned by whoever looks next. Who is about to sleep sees the mark, or is rung for.
    fn mark_panic(&self) {
        self.panicked.store(true, Ordering::Release);
        let marked = self.state.try_lock().ok().map(|state| self.mind_panic(Guard::new(state)));
        self.sleepers().for_each(Sleepers::ring);
        // Wakers come last: one of them may panic.
        drop(marked);
    }

    pub(super) fn is_panicked(&self) -> bool {
        self.panicked.load(Ordering::Acquire)
    }

    /// Poisons the log if a thread panicked while it had the turn, or one of the log's own did at any time.
    #[inline]
    fn mind_panic<'a>(&self, mut state: Guard<'a>) -> Guard<'a> {
        if self.is_panicked() {
            state.end_by_panic();
        }
        state
    }

    pub(crate) fn durable(&self) -> Lsn {
        Lsn::new(self.durable.load(Ordering::Acquire))
    }

    /// Ask for it before looking at what it counts the changes of.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Records were given up: called after that.
    pub(crate) fn note_change(&self) {
        self.changes.fetch_add(2, Ordering::Release);
    }

    /// Called before records are taken off and after it, the state's lock held from the one to the other. Who reads without the
    /// lock may see half of it in between, and asks for the number again before it believes what it saw.
    pub(crate) fn note_half_a_change(&self) {
        self.changes.fetch_add(1, Ordering::AcqRel);
    }

    /// Moves the watermark; after a cut it goes down.
    pub(crate) fn set_durable(&self, state: &mut State, lsn: Lsn) {
        state.durable = lsn;
        self.durable.store(lsn.get(), Ordering::Release);
    }

    /// The turn, for who was handed it: `taken` stands already.
    pub(crate) fn turn_in_hand(&self) -> Turn<'_, D> {
        Turn { shared: self, is_back: false }
    }

    /// Ends a turn, and tells what happened in it.
    pub(crate) fn end_turn<'a>(&'a self, mut state: Guard<'a>, mut turn: Turn<'a, D>) -> Guard<'a> {
        turn.is_back = true;
        self.give_back(&mut state);
        self.tell_all(state)
    }

    /// Sends the events to the listener, without the lock.
    fn tell_all<'a>(&'a self, mut state: Guard<'a>) -> Guard<'a> {
        if state.events.is_empty() {
            return state;
        }
        let events = std::mem::take(&mut state.events);
        drop(state);
        events.iter().for_each(|event| self.tell(event));
        self.lock()
    }

    /// Poisons the log for who has no turn and no lock, and tells it.
    pub(crate) fn poison_now(&self, cause: Error) -> Error {
        let mut state = self.lock();
        let poisoned = self.poison(&mut state, cause);
        drop(self.tell_all(state));
        poisoned
    }

    fn give_back(&self, state: &mut State) {
        state.taken = false;
        state.changing = false;
        state.wake_futures(!self.options.makes(Mistake::CutFuturesForgotten));
        state.wake_room();
        if self.options.makes(Mistake::WakesUnderLock) {
            drop(std::mem::take(&mut state.woken));
        }
        self.room.notify_all();
        if state.poison.is_some() {
            self.wake_for_poison();
            return;
        }
        // One of the next group's waiters takes over: it leads at once, or holds the timer.
        self.groups[(state.group % 2) as usize].notify_one();
        // With a timer the thread looks by itself: waking it after each group would cost a lone writer a switch each time.
        let is_resting = std::mem::take(&mut state.committer_rests);
        let is_waiting = std::mem::take(&mut state.committer_waits);
        if is_waiting || (state.unpromised && is_resting) || self.unclaimed.load(Ordering::Relaxed) {
            self.committer.notify_one();
        }
    }

    /// The group with this number is decided.
    pub(crate) fn wake_group(&self, number: u64) {
        self.groups[(number % 2) as usize].notify_all();
    }

    fn sleepers(&self) -> impl Iterator<Item = &Sleepers> {
        self.groups.iter().chain([&self.room, &self.committer, &self.followers, &self.preparer])
    }

    /// Everybody is to look again.
    pub(crate) fn wake_all(&self) {
        self.sleepers().for_each(Sleepers::notify_all);
    }

    /// Everybody is to look again: there is a poison. (It is a mistake to leave followers out.)
    fn wake_for_poison(&self) {
        let leaves_out = self.options.makes(Mistake::PoisonUntold);
        let is_told = |sleepers: &&Sleepers| !(leaves_out && std::ptr::eq(*sleepers, &self.followers));
        self.sleepers().filter(is_told).for_each(Sleepers::notify_all);
    }

    /// Tells the listener, if there is one. No lock may be held, and not the turn.
    pub(crate) fn tell(&self, event: &Event) {
        if let Some(listener) = &self.options.listener {
            (listener.0)(event);
        }
    }

    /// Sets the poison, unless there is one, and gives it.
    pub(crate) fn poison(&self, state: &mut State, cause: Error) -> Error {
        let poison = match &state.poison {
            Some(first) => first.clone(),
            None => {
                let poison = Poison::new(cause, state.durable);
                state.events.push(Event::Poisoned(poison.clone()));
                state.poison.insert(poison).clone()
            }
        };
        state.wake_futures(true);
        state.wake_room();
        self.wake_for_poison();
        Error::Poisoned(poison)
    }
}
