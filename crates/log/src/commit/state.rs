//! The state under an open log's lock, and the guard of that lock.
//!
//! *Owns*: the fields, who may change them, and that wakers run after the lock is released. *May
//! not touch*: files; the order of changes (`group.rs`, `change/`).
//!
//! What excludes itself is one enum: whose turn it is ([`Turn`]), how far the log's life has come
//! ([`Life`]), what the committer does ([`Doing`]). A field is private if it may change in one way
//! only; the method that changes it so stands here.

use std::ops::{Deref, DerefMut};

use inkstone_format::{Control, Cuts, Epoch, Lsn, SegmentHeader, SegmentNumber};

use crate::choice::Tried;
use crate::commit::cuts::CutsSoFar;
use crate::commit::open_group::{Group, OpenGroup, SpareBuffer};
use crate::commit::rule::Rule;
use crate::commit::shared_page::{Publication, Published, Publishing};
use crate::commit::sleepers::{DueThreads, WaitQueue, WakeUps};
use crate::commit::tasks::{DueTasks, Tasks, Ticket, Waking};
use crate::error::{Error, Poison, Result};
use crate::event::Event;
use crate::options::{Frames, Options};
use crate::stats::Counted;
use crate::sync::{MutexGuard, ThreadId, this_thread};

/// Whose turn it is to write, roll or cut.
pub(crate) enum Turn {
    Free,
    /// A thread has the turn; appends go on.
    Taken,
    /// A thread has the turn and changes the log: nothing may be appended meanwhile.
    Changing,
    /// The committer's, with this group, which it has not begun to write.
    Handed(Group),
}

/// How far the log's life has come. It never goes back.
pub(crate) enum Life {
    Open,
    /// A thread closes the log: nothing is appended any more, and what was is still written.
    Closing,
    /// Nothing is written any more.
    Closed,
    /// Nothing is written any more, for this reason: the first that there was.
    Poisoned(Poison),
}

impl Life {
    fn check_open(&self) -> Result<()> {
        match self {
            Self::Open | Self::Closing => Ok(()),
            Self::Closed => Err(Error::Closed),
            Self::Poisoned(poison) => Err(Error::Poisoned(poison.clone())),
        }
    }
}

/// What the committer does, as far as a thread that has work for it must know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Doing {
    /// It is awake, or sleeps with a timer, and will look by itself.
    Works,
    /// It sleeps until it is woken.
    Rests,
    /// It sleeps until it is woken, which the end of the turn is to do.
    AwaitsTurn,
    /// It is blocked in user code and may wait on any bell.
    IsAway,
}

/// A segment for a caller that may not wait until there is one.
pub(crate) enum SegmentWish {
    None,
    /// One that can hold these.
    Asked(Frames),
    /// The change of segment failed: the next caller that asks is told why.
    Failed(Error),
}

/// What the log's own threads are asked to do.
pub(crate) struct Wishes {
    /// A caller found the buffer full while another group was being written: the open group is to
    /// be committed next.
    pub(crate) room: bool,
    pub(crate) segment: SegmentWish,
    /// A promise: a group was written that none covers yet.
    pub(crate) promise: bool,
    /// Files are to be prepared, or given back (`room.rs`).
    pub(crate) files: bool,
}

/// Everything under the lock.
pub(crate) struct State {
    /// The open group.
    pub(crate) open_group: OpenGroup,
    /// The buffer of the next group, unless a group that is being written has it.
    pub(crate) spare: SpareBuffer,
    /// The waiters of the open group, and which of them writes it.
    pub(crate) rule: Rule,
    /// The number of the open group.
    group: u64,
    turn: Turn,
    life: Life,
    /// The log's own thread that commits, once it runs.
    committer: Option<(ThreadId, Doing)>,
    pub(crate) wanted: Wishes,
    /// The durable watermark.
    durable: Lsn,
    /// The cuts since the log was created.
    cuts: CutsSoFar,
    /// The epoch of the open group.
    epoch: Epoch,
    /// The epoch frame of this opening, until it is durable.
    epoch_due: Option<Control>,
    /// What the last trial of two ways of writing has found.
    pub(crate) tried: Option<Tried>,
    /// Futures and callbacks that wait.
    pub(crate) tasks: Tasks,
    /// Threads that the guard wakes after it has released the lock.
    pub(crate) wake_ups: WakeUps,
    /// What other processes are told, and which readers poll.
    pub(crate) publishing: Publishing,
    pub(crate) counted: Counted,
    /// Events for the listener, sent when the turn ends.
    pub(crate) events: Vec<Event>,
}

impl State {
    pub(crate) fn new(
        open_group: OpenGroup,
        history: &Cuts,
        durable: Lsn,
        epoch: Epoch,
        options: &Options,
    ) -> Self {
        let segment = SegmentWish::None;
        let cuts = CutsSoFar::of(history);
        Self {
            open_group,
            spare: SpareBuffer::new(options.buffer_bytes),
            rule: Rule::new(),
            group: 0,
            turn: Turn::Free,
            life: Life::Open,
            committer: None,
            wanted: Wishes { room: false, segment, promise: false, files: true },
            durable,
            cuts,
            epoch,
            epoch_due: None,
            tried: None,
            tasks: Tasks::default(),
            wake_ups: WakeUps::default(),
            publishing: Publishing::default(),
            counted: Counted::new(),
            events: Vec::new(),
        }
    }
}

/// The turn.
impl State {
    pub(crate) fn is_turn_free(&self) -> bool {
        matches!(self.turn, Turn::Free)
    }

    /// Whether a thread writes, rolls or cuts now.
    pub(crate) fn is_in_turn(&self) -> bool {
        matches!(self.turn, Turn::Taken | Turn::Changing)
    }

    #[inline]
    pub(crate) fn is_changing(&self) -> bool {
        matches!(self.turn, Turn::Changing)
    }

    pub(crate) fn is_handed(&self) -> bool {
        matches!(self.turn, Turn::Handed(_))
    }

    pub(crate) fn take_turn(&mut self) {
        assert!(self.is_turn_free(), "two threads with the turn");
        self.turn = Turn::Taken;
    }

    /// For the thread that has the turn: nothing may be appended from now on, or something may
    /// again. Returns what was so before.
    pub(crate) fn set_changing(&mut self, is_changing: bool) -> bool {
        debug_assert!(self.is_in_turn(), "a change without the turn");
        let turn = if is_changing { Turn::Changing } else { Turn::Taken };
        matches!(std::mem::replace(&mut self.turn, turn), Turn::Changing)
    }

    /// Leaves the turn to the committer, with a closed group.
    pub(crate) fn hand_turn(&mut self, group: Group) {
        self.turn = Turn::Handed(group);
    }

    /// For the committer: takes the turn that was left to it, if one was, with its group.
    pub(crate) fn take_handed(&mut self) -> Option<Group> {
        if !self.is_handed() {
            return None;
        }
        match std::mem::replace(&mut self.turn, Turn::Taken) {
            Turn::Handed(group) => Some(group),
            _ => None,
        }
    }

    pub(crate) fn free_turn(&mut self) {
        self.turn = Turn::Free;
    }
}

/// The log's life, and the outcome of records.
impl State {
    /// An error if nothing may be written.
    pub(crate) fn check_open(&self) -> Result<()> {
        self.life.check_open()
    }

    /// An error if nothing may be appended.
    #[inline]
    pub(crate) fn check_appends(&self) -> Result<()> {
        match self.life {
            Life::Open => Ok(()),
            _ => self.check_open().and(Err(Error::Closed)),
        }
    }

    /// Whether nothing is written any more.
    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.life, Life::Closed | Life::Poisoned(_))
    }

    pub(crate) fn is_poisoned(&self) -> bool {
        matches!(self.life, Life::Poisoned(_))
    }

    /// A thread closes the log: nothing is appended any more.
    pub(crate) fn begin_to_close(&mut self) {
        if matches!(self.life, Life::Open) {
            self.life = Life::Closing;
        }
    }

    /// Nothing is written any more.
    pub(crate) fn close(&mut self) {
        if !self.has_ended() {
            self.life = Life::Closed;
        }
    }

    /// Poisons the log, unless it is poisoned already; returns the first reason.
    pub(crate) fn poison(&mut self, cause: Error) -> Poison {
        let poison = match &self.life {
            Life::Poisoned(first) => first.clone(),
            _ => {
                let poison = Poison::new(cause, self.durable);
                self.events.push(Event::Poisoned(poison.clone()));
                self.life = Life::Poisoned(poison.clone());
                poison
            }
        };
        self.wake_after_poison();
        poison
    }

    /// Poisons the log because a thread panicked, unless it is poisoned already. `had_turn`: that
    /// thread had the turn.
    #[cold]
    pub(crate) fn end_by_panic(&mut self, had_turn: bool) {
        if had_turn {
            self.free_turn();
        }
        if !self.is_poisoned() {
            self.life = Life::Poisoned(Poison::panic(self.durable));
        }
        self.wake_after_poison();
    }

    /// Marks all futures and callbacks, since the log is poisoned. The thread that has the turn
    /// does that at its end: what is the user's does not run inside a turn.
    fn wake_after_poison(&mut self) {
        if !self.is_in_turn() {
            self.mark_tasks();
        }
    }

    /// The durable watermark.
    pub(crate) fn durable(&self) -> Lsn {
        self.durable
    }

    /// Moves the watermark: `Shared::set_durable` alone calls this.
    pub(super) fn set_durable(&mut self, lsn: Lsn) {
        self.durable = lsn;
    }

    /// The number of cuts since the log was created.
    pub(crate) fn cut_count(&self) -> u64 {
        self.cuts.count()
    }

    /// The lowest last LSN that the cuts after the first `cuts` ones have kept.
    pub(crate) fn lowest_cut_since(&self, cuts: u64) -> Option<Lsn> {
        self.cuts.lowest_since(cuts)
    }

    /// The outcome of a record, by its LSN and the number of cuts before it; `None` if it may still
    /// become durable.
    pub(crate) fn outcome(&self, lsn: Lsn, cuts: u64) -> Option<Result<()>> {
        outcome(&self.life, self.durable, self.cut_count(), lsn, cuts)
    }
}

/// As [`State::outcome`], in a log with this life and watermark, and so many cuts.
fn outcome(life: &Life, durable: Lsn, cut_count: u64, lsn: Lsn, cuts: u64) -> Option<Result<()>> {
    if cuts != cut_count || lsn <= durable {
        return Some(Ok(()));
    }
    life.check_open().err().map(Err)
}

/// The committer.
impl State {
    /// The calling thread is the committer.
    pub(crate) fn enter_committer(&mut self) {
        self.committer = Some((this_thread(), Doing::Works));
    }

    /// Whether the calling thread is the committer.
    pub(crate) fn is_committer_here(&self) -> bool {
        self.committer.is_some_and(|(thread, _)| thread == this_thread())
    }

    /// For the committer's thread: what it does from now on.
    pub(crate) fn committer_goes(&mut self, next: Doing) {
        if let Some((_, doing)) = &mut self.committer {
            *doing = next;
        }
    }

    /// What the committer does, if there is one.
    pub(crate) fn committer_does(&self) -> Option<Doing> {
        self.committer.map(|(_, doing)| doing)
    }

    /// Has the committer woken, to look for work. It need not be woken again before it has looked.
    pub(crate) fn wake_committer(&mut self) {
        self.wake_ups.one(WaitQueue::Committer);
        if let Some((_, doing @ (Doing::Rests | Doing::AwaitsTurn))) = &mut self.committer {
            *doing = Doing::Works;
        }
    }
}

/// The open group.
impl State {
    /// The number of the open group.
    pub(crate) fn group(&self) -> u64 {
        self.group
    }

    /// The open group is closed: the next one has the next number. Returns its own.
    pub(super) fn next_group(&mut self) -> u64 {
        self.wanted.room = false;
        self.group += 1;
        self.group - 1
    }

    /// The last LSN that was assigned to a record.
    pub(crate) fn reserved(&self) -> Lsn {
        self.open_group.next_lsn().before().unwrap_or(Lsn::ZERO)
    }

    /// The epoch of the open group.
    pub(crate) fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// The epoch frame that must be durable before anything else is written.
    pub(crate) fn epoch_due(&self) -> Option<Control> {
        self.epoch_due
    }

    pub(crate) fn set_epoch_due(&mut self, epoch: Option<Control>) {
        self.epoch_due = epoch;
    }

    /// The open group continues in this segment.
    pub(crate) fn enter_segment(&mut self, header: SegmentHeader) {
        self.epoch = header.epoch;
        self.open_group.enter(header, header.epoch, header.first_lsn);
    }

    /// Publishes what is durable, when the lock is released: this segment is the head, the log goes
    /// on where the open group is, and `first` is the first record that is left.
    pub(crate) fn publish_head(&mut self, segment: SegmentNumber, first: Lsn) {
        let (durable, end, epoch) = (self.durable, self.open_group.at(), self.epoch);
        self.publishing.head(Published { durable, segment, end, epoch, first });
    }
}

/// Tasks: futures and callbacks.
impl State {
    /// A task that was counted for this record does not wait any more.
    pub(crate) fn uncount_task(&mut self, ticket: Ticket) {
        if ticket.cuts == self.cut_count() && ticket.lsn >= self.open_group.first_lsn() {
            self.rule.task_leaves();
        }
    }

    /// The log was cut after the record `last`: all that waited before is over when the turn ends.
    pub(crate) fn note_cut(&mut self, last: Lsn) {
        self.cuts.note(last);
    }

    /// Marks the tasks whose wait is over: for room, or for what is durable now; all if the log has
    /// ended.
    pub(crate) fn mark_tasks(&mut self) {
        let Self { tasks, life, durable, cuts, .. } = self;
        tasks.mark_decided(|ticket| outcome(life, *durable, cuts.count(), ticket.lsn, ticket.cuts));
    }
}

/// The locked state. Dropping it first releases the lock, and then does what was marked meanwhile.
pub(crate) struct Guard<'a> {
    // The order matters: the lock is released first.
    state: MutexGuard<'a, State>,
    unlocked: Unlocked<'a>,
    waking: &'a Waking,
}

/// What is done when the lock is released. Most often nothing: each append makes a guard, and looks
/// at one word here.
struct Unlocked<'a>(Option<(DueThreads<'a>, Publication, DueTasks<'a>)>);

impl Drop for Unlocked<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some((threads, publication, tasks)) = self.0.take() {
            threads.wake();
            publication.publish();
            tasks.run();
        }
    }
}

impl<'a> Guard<'a> {
    #[inline]
    pub(crate) fn new(state: MutexGuard<'a, State>, waking: &'a Waking) -> Self {
        Self { state, unlocked: Unlocked(None), waking }
    }

    #[cold]
    fn take_marked(&mut self) {
        let tasks = DueTasks::take(self.waking, &mut self.state.tasks);
        let threads = self.waking.queues.due(&mut self.state.wake_ups);
        self.unlocked.0 = Some((threads, self.state.publishing.take_due(), tasks));
    }
}

impl Drop for Guard<'_> {
    #[inline]
    fn drop(&mut self) {
        if !self.state.wake_ups.is_empty()
            || self.state.publishing.is_due()
            || self.state.tasks.is_any_marked()
        {
            self.take_marked();
        }
    }
}

impl Deref for Guard<'_> {
    type Target = State;

    #[inline]
    fn deref(&self) -> &State {
        &self.state
    }
}

impl DerefMut for Guard<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut State {
        &mut self.state
    }
}
