//! The state under an open log's lock, and the guard of that lock.
//!
//! *Owns*: the fields, the questions that they alone answer, and that wakers run after the lock is
//! released. *May not touch*: files; the order of changes (`group.rs`, `change/`).

use std::ops::{Deref, DerefMut};

use inkstone_format::{Control, Epoch, Lsn, SegmentNumber};
use inkstone_io::AlignedBuf;

use crate::commit::callbacks::Decided;
use crate::commit::futures::{Waiting, Wakers, WrittenWaiters, join};
use crate::commit::gathering::{Gathering, Group, memory_for};
use crate::commit::post::{Board, Post, Posted};
use crate::commit::rule::Rule;
use crate::commit::sleepers::{DueThreads, WakeUps};
use crate::commit::waking::{Due, Waking, Woken};
use crate::commit::watchers::Watchers;
use crate::error::{Error, Poison, Result};
use crate::event::Event;
use crate::options::Options;
use crate::stats::Stats;
use crate::sync::{Instant, MutexGuard, ThreadId, this_thread};

/// Everything under the lock.
pub(crate) struct State {
    /// The group that is gathered.
    pub(crate) gathering: Gathering,
    /// The buffer of the next group, unless a group that is being written has it.
    pub(crate) spare: Option<AlignedBuf>,
    /// The number of the gathering.
    pub(crate) group: u64,
    /// A thread has the turn.
    pub(crate) taken: bool,
    /// A group that was handed to the committer together with the turn, and that it has not begun
    /// to write.
    pub(crate) handed: Option<Group>,
    /// The thread of the committer, which writes groups that are handed over.
    pub(crate) committer: Option<ThreadId>,
    /// The committer sleeps, or has slept, where a waker or callback of the user's waits: not where
    /// its work wakes it.
    pub(crate) committer_is_away: bool,
    /// The segment is changing: nothing may be gathered.
    pub(crate) changing: bool,
    /// The durable watermark.
    pub(crate) durable: Lsn,
    /// The last LSN that each cut has left, since the log was opened.
    pub(crate) cuts: Vec<Lsn>,
    /// The epoch of the gathering.
    pub(crate) epoch: Epoch,
    /// The epoch frame of this opening, until it is durable.
    pub(crate) epoch_due: Option<Control>,
    /// The waiters of the gathering, and which of them writes it.
    pub(crate) rule: Rule,
    /// Why nothing can be appended any more; set once.
    pub(crate) poison: Option<Poison>,
    /// How far the log has come with closing.
    pub(crate) ending: Ending,
    /// The log is closed: nothing is written any more.
    pub(crate) closed: bool,
    /// Futures and callbacks of records whose outcome is open, by the parity of their group.
    waiting: [Waiting; 2],
    /// Tasks that await the watermark.
    pub(crate) watchers: Watchers,
    /// Those of the groups that this turn has written. They are woken at its end.
    pub(crate) written: WrittenWaiters,
    /// Futures that wait for room.
    pub(crate) room_wakers: Wakers,
    /// Threads that the guard wakes after it has released the lock.
    pub(crate) wake_ups: WakeUps,
    /// Wakers and callbacks that the guard runs after it has released the lock.
    pub(crate) woken: Woken,
    /// Where other processes see how far the log is durable.
    pub(crate) board: Board,
    /// What the guard posts there after it has released the lock.
    pub(crate) to_post: Post,
    /// The last group's waiters come back at once: readers nap until the next write begins.
    pub(crate) naps_go_on: bool,
    /// A follower naps that was not woken for the last group.
    pub(crate) owes_nappers: bool,
    /// A caller found the buffer full while another group was being written: the gathering is to be
    /// committed next.
    pub(crate) room_wanted: bool,
    /// A caller that does not wait asked for a segment that can hold a frame of this size.
    pub(crate) roll_wanted: Option<u64>,
    /// Why the requested change of segment failed.
    pub(crate) roll_error: Option<Error>,
    /// A group was written that no promise covers yet.
    pub(crate) unpromised: bool,
    /// When the last group was durable.
    pub(crate) last_commit: Instant,
    /// The committer has no timer: it sleeps until it is notified.
    pub(crate) committer_rests: bool,
    /// The committer is to be notified when the turn is released.
    pub(crate) committer_waits: bool,
    /// When the first record of the gathering was appended.
    pub(crate) gathered_since: Option<Instant>,
    /// The preparer has work to do; without one, files may be there that are to be given back
    /// (`retiring.rs`).
    pub(crate) files_wanted: bool,
    /// The last segment change found no file ready.
    pub(crate) was_pool_empty: bool,
    /// The counters.
    pub(crate) stats: Stats,
    /// Events for the listener, sent when the turn ends.
    pub(crate) events: Vec<Event>,
}

impl State {
    pub(crate) fn new(gathering: Gathering, durable: Lsn, epoch: Epoch, options: &Options) -> Self {
        Self {
            gathering,
            spare: Some(memory_for(options.buffer_bytes)),
            group: 0,
            taken: false,
            handed: None,
            committer: None,
            committer_is_away: false,
            changing: false,
            durable,
            cuts: Vec::new(),
            epoch,
            epoch_due: None,
            rule: Rule::new(),
            poison: None,
            ending: Ending::NotBegun,
            closed: false,
            waiting: Default::default(),
            watchers: Watchers::default(),
            written: WrittenWaiters::default(),
            room_wakers: Wakers::default(),
            wake_ups: WakeUps::default(),
            woken: Woken::default(),
            board: Board::default(),
            to_post: Post::default(),
            naps_go_on: false,
            owes_nappers: false,
            room_wanted: false,
            roll_wanted: None,
            roll_error: None,
            unpromised: false,
            last_commit: Instant::now(),
            committer_rests: false,
            committer_waits: false,
            gathered_since: None,
            files_wanted: true,
            was_pool_empty: false,
            stats: Stats::default(),
            events: Vec::new(),
        }
    }

    /// The number of cuts since the log was opened.
    pub(crate) fn cut_count(&self) -> usize {
        self.cuts.len()
    }

    /// An error if nothing may be written.
    pub(crate) fn check_open(&self) -> Result<()> {
        if let Some(poison) = &self.poison {
            return Err(Error::Poisoned(poison.clone()));
        }
        if self.closed { Err(Error::Closed) } else { Ok(()) }
    }

    /// An error if nothing may be appended.
    #[inline]
    pub(crate) fn check_appends(&self) -> Result<()> {
        self.check_open()?;
        if matches!(self.ending, Ending::NotBegun) { Ok(()) } else { Err(Error::Closed) }
    }

    /// Poisons the log because a thread panicked, unless it is poisoned already. `had_turn`: that
    /// thread had the turn.
    #[cold]
    pub(crate) fn end_by_panic(&mut self, had_turn: bool) {
        if had_turn {
            self.taken = false;
            self.changing = false;
        }
        if self.poison.is_none() {
            self.poison = Some(Poison::panic(self.durable));
        }
        self.wake_after_poison();
    }

    /// Whether a thread writes, rolls or cuts now.
    pub(crate) fn is_in_turn(&self) -> bool {
        self.taken && self.handed.is_none()
    }

    /// Marks all futures and callbacks, since the log is poisoned. The thread that has the turn
    /// does that at its end: what is the user's does not run inside a turn.
    pub(crate) fn wake_after_poison(&mut self) {
        if !self.is_in_turn() {
            self.wake_futures();
            self.wake_room();
        }
    }

    /// Whether the calling thread is the committer.
    pub(crate) fn is_committer_here(&self) -> bool {
        self.committer == Some(this_thread())
    }

    /// The last LSN that was assigned to a record.
    pub(crate) fn reserved(&self) -> Lsn {
        self.gathering.next_lsn().before().unwrap_or(Lsn::ZERO)
    }

    /// Counts records that were just gathered.
    pub(crate) fn count_records(&mut self, records: u64, bytes: u64) {
        self.stats.records += records;
        self.stats.record_bytes += bytes;
        if self.gathered_since.is_none() {
            self.gathered_since = Some(Instant::now());
        }
    }

    /// The mean size of a group since the log was opened, in bytes.
    pub(crate) fn mean_group_bytes(&self) -> u64 {
        self.stats.group_bytes / self.stats.groups.max(1)
    }

    /// The outcome of a record, by its LSN and the number of cuts before it; `None` if it may still
    /// become durable.
    pub(crate) fn outcome(&self, lsn: Lsn, cuts: usize) -> Option<Result<()>> {
        if cuts != self.cut_count() || lsn <= self.durable {
            return Some(Ok(()));
        }
        if let Some(poison) = &self.poison {
            return Some(Err(Error::Poisoned(poison.clone())));
        }
        self.closed.then_some(Err(Error::Closed))
    }

    /// What waits for a record that is not decided: it is in the gathering, or in the group before,
    /// which is being written.
    pub(crate) fn waiting_for(&mut self, lsn: Lsn) -> &mut Waiting {
        let group =
            if lsn >= self.gathering.first_lsn() { self.group } else { self.group.wrapping_sub(1) };
        &mut self.waiting[(group % 2) as usize]
    }

    /// Posts what is durable, when the lock is released: this segment is the head, the log goes on
    /// where the gathering is, and `first` is the first record that is left.
    pub(crate) fn post_head(&mut self, segment: SegmentNumber, first: Lsn) {
        let (durable, end, epoch) = (self.durable, self.gathering.at(), self.epoch);
        let post = self.board.post(Posted { durable, segment, end, epoch, first }, false);
        // The group that sealed the segment before may wait to be posted.
        self.to_post = post.instead_of(std::mem::take(&mut self.to_post));
    }

    /// A task that was counted for this record, which is not decided, does not wait any more.
    pub(crate) fn uncount_task(&mut self, lsn: Lsn) {
        if lsn >= self.gathering.first_lsn() {
            self.rule.task_leaves();
        }
    }

    /// Marks the futures that wait for room to be woken.
    pub(crate) fn wake_room(&mut self) {
        self.room_wakers.move_to(&mut self.woken.wakers);
    }

    /// The group with this number is durable: its futures and callbacks, and the tasks that awaited
    /// this watermark, are woken when the turn ends.
    pub(crate) fn note_written(&mut self, group: u64) {
        self.written.add(&mut self.waiting[(group % 2) as usize]);
        self.watchers.reach(self.durable, &mut self.written.futures);
    }

    /// The log was cut after the record `last`: all tasks that await a watermark are woken when the
    /// turn ends.
    pub(crate) fn note_cut(&mut self, last: Lsn) {
        self.cuts.push(last);
        self.watchers.reach(Lsn::new(u64::MAX), &mut self.written.futures);
    }

    /// Marks the futures and callbacks of the groups that were written; of all records if the log
    /// has ended.
    pub(crate) fn wake_futures(&mut self) {
        if self.poison.is_some() || self.closed {
            self.note_written(self.group.wrapping_sub(1));
            self.note_written(self.group);
            self.watchers.reach(Lsn::new(u64::MAX), &mut self.written.futures);
        }
        join(&mut self.woken.wakers, &mut self.written.futures);
        if !self.written.has_callbacks() {
            return;
        }
        let mut callbacks = std::mem::take(&mut self.written.callbacks);
        for callback in callbacks.drain(..) {
            let outcome = self.outcome(callback.lsn, callback.cuts).unwrap_or(Err(Error::Closed));
            let outcome = outcome.map(|()| callback.lsn);
            self.woken.decided.push(Decided { function: callback.function, outcome });
        }
        // The list is used again.
        self.written.callbacks = callbacks;
    }
}

/// How far a log has come with closing.
#[derive(Debug)]
pub(crate) enum Ending {
    NotBegun,
    /// A thread closes the log: nothing is appended any more.
    Begun,
    /// The log is closed, with this result.
    Over(Result<()>),
}

/// The locked state. Dropping it first releases the lock, then wakes threads, posts, and runs the
/// wakers and callbacks that were marked meanwhile.
pub(crate) struct Guard<'a> {
    // The order matters: fields are dropped from the first to the last.
    state: MutexGuard<'a, State>,
    /// Most often nothing: each append makes a guard, and looks at one word here.
    marked: Option<(DueThreads<'a>, Post, Due<'a>)>,
    waking: &'a Waking,
}

impl<'a> Guard<'a> {
    #[inline]
    pub(crate) fn new(state: MutexGuard<'a, State>, waking: &'a Waking) -> Self {
        Self { state, marked: None, waking }
    }

    #[cold]
    fn take_marked(&mut self) {
        let mut due = Due::none(self.waking);
        due.take(&mut self.state.woken);
        let threads = self.waking.queues.due(&mut self.state.wake_ups);
        self.marked = Some((threads, std::mem::take(&mut self.state.to_post), due));
    }
}

impl Drop for Guard<'_> {
    #[inline]
    fn drop(&mut self) {
        if !self.state.wake_ups.is_empty()
            || self.state.to_post.is_due()
            || !self.state.woken.is_empty()
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
