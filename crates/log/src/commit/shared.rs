//! What all users of one open log share: the state, the watermark, the poison.
//!
//! *Owns*: the state's lock and the order of locks, the durable watermark, notifying threads,
//! sending events. *May not touch*: how a group is written (`group.rs`), the turn (`turn.rs`),
//! waiting (`wait.rs`), segment changes (`change/`), reading (`read/`).
//!
//! **Results.** No flag of success exists that a later group could overwrite. The watermark only
//! rises, by groups that are durable. The poison is set once, and the watermark never moves after
//! that: a group in flight when another thread's sync fails is not acknowledged, whatever its own
//! sync returns (a file system that has just failed one sync may report success for the other:
//! docs/assumptions.md, A13). A record at or below the watermark is durable; a record above it in a
//! poisoned log is never acknowledged. After a cut LSNs are given again; a record from before the
//! cut was durable before it, so its handle returns `Ok`.
//!
//! **Locks**, in this order: `giving_back`, `state`, `writer` (held by the thread that has the
//! turn), `segments`, that of the tail. `seals`, and the
//! locks of the pool and of one segment, are taken last. Of those in order only `giving_back` and
//! `writer` are held across a system call. No thread waits for `writer`, because it waits for the turn first; no commit waits for
//! `giving_back`, unless it needs room that is just being given back. User code (wakers, the
//! listener) runs while no lock is held, and the listener also after the end of the turn.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use inkstone_format::Lsn;
use inkstone_io::AnyDirectory;

use crate::commit::sleepers::{Sleepers, WaitQueue, Yielding};
use crate::commit::state::{Guard, State};
use crate::commit::tasks::Waking;
use crate::commit::writer::Writer;
use crate::error::{Error, Result};
use crate::event::Event;
use crate::options::Options;
use crate::segment::Segments;
use crate::segment::kept::KeptFiles;
use crate::segment::pool::Pool;
use crate::segment::seal::Seal;
use crate::sync::{
    AtomicBool, AtomicU64, FALLBACK, JoinHandle, Mutex, MutexGuard, Ordering, lock, spawn, try_lock,
};
use crate::tail::GroupTail;

/// Shared by the log, its handles, its readers and its own threads.
pub(crate) struct Shared {
    pub(crate) directory: AnyDirectory,
    pub(crate) options: Options,
    state: Mutex<State>,
    pub(super) waking: Waking,
    pub(super) yielding: Yielding,
    /// The committer's, while it waits for tasks.
    pub(super) yielding_for_tasks: Yielding,
    /// Readers that wait for the watermark, and those of them that poll.
    pub(crate) followers: Arc<Sleepers>,
    pub(crate) pollers: Arc<Sleepers>,
    /// The preparer.
    pub(crate) preparer: Sleepers,
    pub(crate) pool: Pool,
    pub(crate) writer: Mutex<Writer>,
    pub(crate) segments: Mutex<Segments>,
    /// Files that stay open for readers.
    pub(crate) kept: KeptFiles,
    /// Held by a thread that gives files back, one step at a time and mostly outside a turn. Taken
    /// before every other lock.
    pub(crate) giving_back: Mutex<()>,
    /// The groups that were written last, for readers.
    pub(crate) tail: GroupTail,
    /// Seals of full segments, for the preparer to write.
    pub(crate) seals: Mutex<Vec<Seal>>,
    /// A copy of the durable watermark that is read without the lock. Written with `Release` under
    /// the state's lock when a group is durable; read with `Acquire` by handles and readers.
    durable: AtomicU64,
    /// A number that changes with each truncation: readers check it for each record, without a
    /// lock. It is odd while a cut is changing the state.
    changes: AtomicU64,
    /// A record of the open group was polled or its handle dropped: the committer is to commit it.
    /// Cleared with the lock held when a group is closed. `Relaxed` is enough: a thread sets it for
    /// a record after it held the lock since the group before that record was closed, so a `true`
    /// that is seen here was set for this group or a later one.
    pub(crate) unclaimed: AtomicBool,
    /// The writer's lock is or will soon be released, so the files of segments are not kept any
    /// more. Stored with `Release` before that, loaded with `Acquire`.
    pub(crate) has_ended: Arc<AtomicBool>,
    /// A thread panicked that the log cannot do without. Stored with `Release` while unwinding,
    /// loaded with `Acquire` after each locking.
    panicked: AtomicBool,
    /// That thread had the turn. Stored before `panicked`, with `Release`.
    turn_lost: AtomicBool,
}

/// Starts one of the log's own threads. If the thread panics, the log is poisoned: otherwise its
/// work would silently stop.
///
/// # Errors
/// When the system cannot start a thread.
pub(crate) fn start(shared: &Arc<Shared>, name: &str, run: fn(&Shared)) -> Result<JoinHandle<()>> {
    let theirs = Arc::clone(shared);
    let run = move || {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| run(&theirs))) {
            theirs.mark_panic();
            // This thread holds no lock any more, so it can wait for the state's. It must: another
            // thread may have left a future there a moment ago, and no other thread may come to
            // poison the log and wake it.
            drop(theirs.lock());
            resume_unwind(panic);
        }
    };
    spawn(name, run).map_err(|source| {
        let error = inkstone_io::Error::new("start a thread for", shared.directory.path(), source);
        error.advise(inkstone_io::MORE_THREADS).into()
    })
}

impl Shared {
    pub(crate) fn new(
        directory: AnyDirectory,
        options: Options,
        state: State,
        writer: Writer,
        segments: Segments,
        pool: Pool,
    ) -> Self {
        let durable = AtomicU64::new(state.durable().get());
        let sleepers = Sleepers::default;
        Self {
            followers: Arc::new(sleepers()),
            pollers: Arc::new(sleepers()),
            preparer: sleepers(),
            tail: GroupTail::new(options.tail_bytes),
            directory,
            yielding: Yielding::new(),
            yielding_for_tasks: Yielding::for_tasks(),
            options,
            state: Mutex::new(state),
            waking: Waking::default(),
            pool,
            writer: Mutex::new(writer),
            segments: Mutex::new(segments),
            kept: KeptFiles::default(),
            giving_back: Mutex::default(),
            seals: Mutex::default(),
            durable,
            changes: AtomicU64::new(0),
            unclaimed: AtomicBool::new(false),
            has_ended: Arc::new(AtomicBool::new(false)),
            panicked: AtomicBool::new(false),
            turn_lost: AtomicBool::new(false),
        }
    }

    /// Locks the state. A panic while it was held has poisoned the log through the turn, or left a
    /// record whose LSN no caller got; the lock itself stays usable.
    #[inline]
    pub(crate) fn lock(&self) -> Guard<'_> {
        let state = try_lock(&self.state).unwrap_or_else(|| self.lock_contended());
        self.guard(state)
    }

    /// Every public call checks this first. In a forked child there is one thread, and locks that
    /// others held at the fork are held forever: the child must not touch a lock, nor overwrite
    /// what its parent writes. (The files refuse that too.)
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
        self.directory.is_forked()
    }

    /// Waits for the lock. Beside a producer that drops its handles, the thread yields and tries
    /// again first: if it slept, the producer would have to wake it by a system call again and
    /// again, and two producers would reach half the rate (docs/performance.md). If all threads
    /// wait for their records, the lock is soon free for long, and sleeping is better.
    #[cold]
    fn lock_contended(&self) -> MutexGuard<'_, State> {
        let is_claimed = || self.unclaimed.load(Ordering::Relaxed);
        let mut locked = None;
        if is_claimed() {
            self.yielding.until(FALLBACK, || {
                locked = try_lock(&self.state);
                locked.is_some() || !is_claimed()
            });
        }
        locked.unwrap_or_else(|| lock(&self.state))
    }

    /// A thread panicked that had the turn: poisons the log.
    pub(super) fn mark_turn_lost(&self) {
        self.turn_lost.store(true, Ordering::Release);
        self.mark_panic();
    }

    /// Leaves the mark of a panic; the next thread that locks poisons the log. A thread about to
    /// sleep sees the mark or hears the bell.
    fn mark_panic(&self) {
        self.panicked.store(true, Ordering::Release);
        let marked = self.state.try_lock().ok().map(|state| self.guard(state));
        self.sleepers().for_each(Sleepers::ring);
        // Wakers come last: one of them may panic.
        drop(marked);
    }

    pub(super) fn is_panicked(&self) -> bool {
        self.panicked.load(Ordering::Acquire)
    }

    /// A thread panicked that had the turn, and no thread has taken it from there yet.
    pub(super) fn is_turn_lost(&self) -> bool {
        self.turn_lost.load(Ordering::Acquire)
    }

    /// Poisons the log if a thread panicked while it had the turn, or one of the log's own did at
    /// any time. Takes what the lock returned: a [`Guard`] handed in and out is copied, which cost
    /// a fifth of a small append.
    #[inline]
    fn guard<'a>(&'a self, mut state: MutexGuard<'a, State>) -> Guard<'a> {
        if self.is_panicked() {
            state.end_by_panic(self.turn_lost.swap(false, Ordering::AcqRel));
        }
        Guard::new(state, &self.waking)
    }

    pub(crate) fn durable(&self) -> Lsn {
        Lsn::new(self.durable.load(Ordering::Acquire))
    }

    /// Ask for it before reading the state whose changes it counts.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Call it after `truncate_before` has changed the first record.
    pub(crate) fn note_change(&self) {
        self.changes.fetch_add(2, Ordering::Release);
    }

    /// Called before and after a cut, with the state's lock held from the one call to the other. A
    /// reader without the lock may see half of the change in between; it asks for the number again
    /// before it believes what it saw.
    pub(crate) fn note_half_a_change(&self) {
        self.changes.fetch_add(1, Ordering::AcqRel);
    }

    /// Moves the watermark; after a cut it goes down.
    pub(crate) fn set_durable(&self, state: &mut State, lsn: Lsn) {
        state.set_durable(lsn);
        self.durable.store(lsn.get(), Ordering::Release);
    }

    /// Says whether the log has a preparer.
    pub(crate) fn prepares_ahead(&self) -> bool {
        self.options.own_thread && self.options.prepares_ahead
    }

    /// Sends the events to the listener, without the lock.
    pub(super) fn tell_all<'a>(&'a self, mut state: Guard<'a>) -> Guard<'a> {
        if state.events.is_empty() {
            return state;
        }
        let events = std::mem::take(&mut state.events);
        drop(state);
        events.iter().for_each(|event| self.tell(event));
        self.lock()
    }

    /// Poisons the log and sends the event, for a caller without turn and lock.
    pub(crate) fn poison_now(&self, cause: Error) -> Error {
        let mut state = self.lock();
        let poisoned = self.poison(&mut state, cause);
        // Inside a turn its end sends the event: the listener may close the log, which waits for
        // the turn.
        if !state.is_in_turn() {
            drop(self.tell_all(state));
        }
        poisoned
    }

    /// How often a thread slept at once, since yielding did not pay, and for how many microseconds
    /// it did not.
    pub(crate) fn rests(&self) -> (u64, u64) {
        let [(sleeps, rested), (of_committer, its_rests)] =
            [&self.yielding, &self.yielding_for_tasks].map(Yielding::rests);
        let rested_us = u64::try_from((rested + its_rests).as_micros()).unwrap_or(u64::MAX);
        (sleeps + of_committer, rested_us)
    }

    /// The threads that sleep in this queue.
    pub(crate) fn queue(&self, queue: WaitQueue) -> &Sleepers {
        &self.waking.queues[queue]
    }

    fn sleepers(&self) -> impl Iterator<Item = &Sleepers> {
        self.waking.queues.iter().chain([&*self.followers, &*self.pollers, &self.preparer])
    }

    /// Wakes all threads, to check the state again.
    pub(crate) fn wake_all(&self) {
        self.sleepers().for_each(Sleepers::notify_all);
    }

    /// Calls the listener, if there is one. The caller holds no lock, and not the turn.
    pub(crate) fn tell(&self, event: &Event) {
        self.options.tell(event);
    }

    /// Sets the poison, unless there is one already, and returns it as an error.
    pub(crate) fn poison(&self, state: &mut State, cause: Error) -> Error {
        let poison = state.poison(cause);
        self.wake_all();
        Error::Poisoned(poison)
    }
}
