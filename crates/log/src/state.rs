//! What is under an open log's lock.
//!
//! *Owns*: the fields, and questions that they alone answer. *May not touch*: locks, files; who changes what is up to
//! `shared.rs` and `change.rs`.

use std::task::Waker;
use std::time::Duration;

use inkstone_format::{Control, Epoch, Lsn};
use inkstone_io::AlignedBuf;

use crate::commit::Closed;
use crate::error::{Error, Poison, Result};
use crate::event::Event;
use crate::filling::{Filling, memory_for};
use crate::options::Options;
use crate::stats::Stats;
use crate::sync::{Instant, ThreadId, this_thread};
use crate::waking::{Waiting, Woken};

/// Everything under the lock.
pub(crate) struct State {
    pub(crate) filling: Filling,
    pub(crate) spare: Option<AlignedBuf>,
    /// The number of the group that is being gathered.
    pub(crate) group: u64,
    /// Somebody has the turn.
    pub(crate) taken: bool,
    /// A group that was handed to the log's own thread, together with the turn, and that it has not begun to write.
    pub(crate) handed: Option<Closed>,
    /// The log's own thread that writes what is handed over.
    pub(crate) keeper: Option<ThreadId>,
    /// The segment is changing: nothing may be gathered.
    pub(crate) changing: bool,
    pub(crate) durable: Lsn,
    /// The last LSN that each cut left, since the log was opened.
    pub(crate) cuts: Vec<Lsn>,
    pub(crate) epoch: Epoch,
    /// The epoch frame of this opening, until it is durable.
    pub(crate) epoch_due: Option<Control>,
    /// Waiters of the group that is being gathered.
    pub(crate) waiting: usize,
    pub(crate) expected: usize,
    /// An arrival holds the timer.
    pub(crate) timed: bool,
    /// How long commits take, smoothed.
    pub(crate) commit_time: Duration,
    pub(crate) poison: Option<Poison>,
    pub(crate) closed: bool,
    /// Futures of records that are not decided.
    pub(crate) futures: Vec<Waiting>,
    /// Futures that wait for room.
    pub(crate) room_wakers: Vec<Waker>,
    /// Whom the guard wakes when it has let go of the lock.
    pub(crate) woken: Woken,
    /// Somebody found the buffer full while another group was being written: this one is next.
    pub(crate) room_wanted: bool,
    /// Somebody asked, without waiting, for a segment that holds a frame of so many bytes.
    pub(crate) roll_wanted: Option<u64>,
    /// Why that failed.
    pub(crate) roll_error: Option<Error>,
    /// Something was written that no promise covers yet.
    pub(crate) unpromised: bool,
    pub(crate) last_commit: Instant,
    /// The log's own thread has no timer: it sleeps until somebody wakes it.
    pub(crate) keeper_rests: bool,
    /// The log's own thread is to be woken when the turn is given back.
    pub(crate) keeper_waits: bool,
    /// When the first record of the gathered group came.
    pub(crate) gathered_since: Option<Instant>,
    /// The steward is to look.
    pub(crate) files_wanted: bool,
    /// The last segment change found no file ready.
    pub(crate) was_pool_empty: bool,
    pub(crate) stats: Stats,
    /// Events for the listener, sent when the turn ends.
    pub(crate) events: Vec<Event>,
    /// The last LSN that was given out when a group succeeded: whom `FollowerToldOk` tells.
    pub(crate) told: Lsn,
}

impl State {
    pub(crate) fn new(filling: Filling, durable: Lsn, epoch: Epoch, options: &Options) -> Self {
        Self {
            filling,
            spare: Some(memory_for(options.buffer_bytes)),
            group: 0,
            taken: false,
            handed: None,
            keeper: None,
            changing: false,
            durable,
            cuts: Vec::new(),
            epoch,
            epoch_due: None,
            waiting: 0,
            expected: 0,
            timed: false,
            commit_time: Duration::from_micros(100),
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
            keeper_rests: false,
            keeper_waits: false,
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
        self.handed.is_some() && self.keeper == Some(this_thread())
    }

    /// The LSN of the last record that was given one.
    pub(crate) fn reserved(&self) -> Lsn {
        self.filling.next_lsn().before().unwrap_or(Lsn::ZERO)
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
