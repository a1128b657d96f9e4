//! What is under an open log's lock, and the guard of that lock.
//!
//! *Owns*: the fields, questions that they alone answer, and that wakers run after the lock is released. *May not touch*: files;
//! the order of changes (`group.rs`, `change/`).

use std::ops::{Deref, DerefMut};
use std::task::Waker;

use inkstone_format::{Control, Epoch, Lsn};
use inkstone_io::AlignedBuf;

use crate::commit::gathering::{Gathering, Group, memory_for};
use crate::commit::rule::Rule;
use crate::commit::waking::{Waiting, Woken};
use crate::error::{Error, Poison, Result};
use crate::event::Event;
use crate::options::Options;
use crate::stats::Stats;
use crate::sync::{Instant, MutexGuard, ThreadId, this_thread};

/// Everything under the lock.
pub(crate) struct State {
    /// The group that is gathered.
    pub(crate) gathering: Gathering,
    /// The memory of the next group, unless a group that is being written has it.
    pub(crate) spare: Option<AlignedBuf>,
    /// The number of the group that is being gathered.
    pub(crate) group: u64,
    /// Somebody has the turn.
    pub(crate) taken: bool,
    /// A group that was handed to the log's own thread, together with the turn, and which it has not begun to write.
    pub(crate) handed: Option<Group>,
    /// The committer, which writes what is handed over.
    pub(crate) committer: Option<ThreadId>,
    /// The segment is changing: nothing may be gathered.
    pub(crate) changing: bool,
    /// The durable watermark.
    pub(crate) durable: Lsn,
    /// The last LSN that each cut left, since the log was opened.
    pub(crate) cuts: Vec<Lsn>,
    /// The epoch of what is gathered.
    pub(crate) epoch: Epoch,
    /// The epoch frame of this opening, until it is durable.
    pub(crate) epoch_due: Option<Control>,
    /// Who waits for the group that is gathered, and who writes it.
    pub(crate) rule: Rule,
    /// Why nothing can be appended any more; set once.
    pub(crate) poison: Option<Poison>,
    /// The log was closed.
    pub(crate) closed: bool,
    /// Futures of records that are not decided.
    pub(crate) futures: Vec<Waiting>,
    /// Futures that wait for room.
    pub(crate) room_wakers: Vec<Waker>,
    /// Wakers that the guard wakes after it has released the lock.
    pub(crate) woken: Woken,
    /// Somebody found the buffer full while another group was being written: this one is next.
    pub(crate) room_wanted: bool,
    /// Somebody asked, without waiting, for a segment that holds a frame of so many bytes.
    pub(crate) roll_wanted: Option<u64>,
    /// Why the change of segment that was asked for failed.
    pub(crate) roll_error: Option<Error>,
    /// Something was written that no promise covers yet.
    pub(crate) unpromised: bool,
    /// When the last group was durable.
    pub(crate) last_commit: Instant,
    /// The committer has no timer: it sleeps until it is notified.
    pub(crate) committer_rests: bool,
    /// The committer is to be notified when the turn is given back.
    pub(crate) committer_waits: bool,
    /// When the first record of the gathered group came.
    pub(crate) gathered_since: Option<Instant>,
    /// The preparer has something to do.
    pub(crate) files_wanted: bool,
    /// The last segment change found no file ready.
    pub(crate) was_pool_empty: bool,
    /// What was done, in numbers.
    pub(crate) stats: Stats,
    /// Events for the listener, sent when the turn ends.
    pub(crate) events: Vec<Event>,
    /// For a mistake: the last LSN that was given out when a group succeeded.
    pub(crate) told: Lsn,
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
            changing: false,
            durable,
            cuts: Vec::new(),
            epoch,
            epoch_due: None,
            rule: Rule::new(),
            poison: None,
            closed: false,
            futures: Vec::new(),
            room_wakers: Vec::new(),
            woken: Woken::default(),
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
            told: Lsn::ZERO,
        }
    }

    /// How many cuts there were since the log was opened.
    pub(crate) fn cut_count(&self) -> usize {
        self.cuts.len()
    }

    /// Refuses when nothing may be appended.
    pub(crate) fn check_open(&self) -> Result<()> {
        if let Some(poison) = &self.poison {
            return Err(Error::Poisoned(poison.clone()));
        }
        if self.closed { Err(Error::Closed) } else { Ok(()) }
    }

    /// Poisons the log, unless it is, for a thread that panicked.
    #[cold]
    pub(crate) fn end_by_panic(&mut self) {
        if self.poison.is_none() {
            self.poison = Some(Poison::panic(self.durable));
            self.taken = false;
            self.changing = false;
            self.wake_futures(true);
            self.wake_room();
        }
    }

    /// Whether a group was handed to the thread that asks.
    pub(crate) fn is_handed_here(&self) -> bool {
        self.handed.is_some() && self.committer == Some(this_thread())
    }

    /// The LSN of the last record that was given one.
    pub(crate) fn reserved(&self) -> Lsn {
        self.gathering.next_lsn().before().unwrap_or(Lsn::ZERO)
    }

    /// Counts what was just gathered.
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

    /// Where the watermark stands for who looks by LSN and count of cuts.
    pub(crate) fn outcome(&self, lsn: Lsn, cuts: usize) -> Option<Result<()>> {
        if cuts != self.cut_count() || lsn <= self.durable {
            return Some(Ok(()));
        }
        self.poison.as_ref().map(|poison| Err(Error::Poisoned(poison.clone())))
    }

    /// Has the futures woken that wait for room.
    pub(crate) fn wake_room(&mut self) {
        self.woken.extend(self.room_wakers.drain(..));
    }

    /// Has the futures woken whose records are decided: durable, or taken off by a cut, or the log has ended. (It is a mistake not
    /// to mind cuts.)
    pub(crate) fn wake_futures(&mut self, minds_cuts: bool) {
        let is_over = self.poison.is_some() || self.closed;
        let (durable, cuts) = (self.durable, self.cut_count());
        let is_decided =
            |future: &mut Waiting| is_over || future.lsn <= durable || (minds_cuts && future.cuts != cuts);
        self.woken.extend(self.futures.extract_if(.., is_decided).map(|future| future.waker));
    }
}

/// The state, locked. When it is let go the lock is free first, and then those are woken whom its holder has left to be woken.
pub(crate) struct Guard<'a> {
    // In this order: fields are dropped from the first to the last.
    state: MutexGuard<'a, State>,
    woken: Woken,
}

impl<'a> Guard<'a> {
    #[inline]
    pub(crate) fn new(state: MutexGuard<'a, State>) -> Self {
        Self { state, woken: Woken::default() }
    }
}

impl Drop for Guard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.woken = std::mem::take(&mut self.state.woken);
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
