//! Group commit: how a group gets from the buffer it was gathered in to the disk, and what is known afterwards.
//!
//! *Owns*: closing a group, writing it, moving the watermark; who writes it. *May not touch*: waiting for a group
//! (`shared.rs`), what the calls to the file system are (`writer.rs`).
//!
//! A group is written by whoever has the turn: a waiter that leads (a lone writer has nobody to wait for), or the log's own
//! thread. Who finds the buffer full and does not wait for its records *hands the group over*: it closes the group, leaves it
//! to the log's own thread together with the turn, and goes on in the other buffer. So filling and writing overlap, and
//! still one group is in flight at a time.

use inkstone_format::limits::{CONTROL_RESERVE_BYTES, HEADER_BYTES};
use inkstone_format::{Control, Lsn, Promise, PromiseReason};
use inkstone_io::{AlignedBuf, Directory};

use crate::error::{Error, Result};
use crate::event::Event;
use crate::filling::{Frozen, memory_bytes, memory_for};
use crate::mistake::Mistake;
use crate::room::{Need, refused};
use crate::shared::Shared;
use crate::state::State;
use crate::sync::{Instant, Ordering, lock};
use crate::waking::Guard;
use crate::writer::Way;

/// A group that nothing is added to any more, on its way to the disk.
pub(crate) struct Closed {
    number: u64,
    frozen: Frozen,
    /// Who waits for it now.
    waiters: usize,
    /// When its first record came.
    since: Option<Instant>,
}

impl<D: Directory> Shared<D> {
    /// Writes what is gathered, if anything is, and makes it durable. The caller has the turn.
    ///
    /// # Errors
    /// The poison, if it failed.
    pub(crate) fn write_gathered<'a>(&'a self, state: Guard<'a>) -> (Guard<'a>, Result<()>) {
        self.write_group(state, false)
    }

    /// As [`Shared::write_gathered`]; to write it `unsynced` is a mistake.
    pub(crate) fn write_group<'a>(&'a self, mut state: Guard<'a>, unsynced: bool) -> (Guard<'a>, Result<()>) {
        if state.filling.is_empty() {
            return (state, Ok(()));
        }
        let closed = self.close_group(&mut state);
        let way = if unsynced { Way::Unsynced } else { Way::Usual };
        self.write_closed(state, closed, &way, None)
    }

    /// Ends the group that is gathered, and begins the next one. The caller has the turn.
    pub(crate) fn close_group(&self, state: &mut State) -> Closed {
        let waiters = std::mem::take(&mut state.waiting);
        let number = state.group;
        state.group += 1;
        // Whoever held the timer held it for this group: the next one's first arrival takes a timer of its own.
        state.timed = false;
        state.room_wanted = false;
        let since = state.gathered_since.take();
        self.unclaimed.store(false, Ordering::Relaxed);
        let frozen = self.freeze(state);
        if self.options.makes(Mistake::WatermarkEarly) {
            self.set_durable(state, frozen.last());
        }
        Closed { number, frozen, waiters, since }
    }

    /// Closes the group that is gathered and leaves it, with the turn, to the log's own thread. The caller has seen that the
    /// turn is free and that something is gathered, and goes on gathering.
    ///
    /// # Errors
    /// When the log is poisoned or closed.
    pub(crate) fn hand_over(&self, state: &mut State) -> Result<()> {
        state.check_open()?;
        assert!(!state.taken, "a group handed over beside another");
        state.taken = !self.options.makes(Mistake::TurnNotHanded);
        let turn = self.turn_in_hand();
        state.handed = Some(self.close_group(state));
        turn.hand_on();
        self.keeper.notify_one();
        Ok(())
    }

    /// For the log's own thread: writes what was handed over, and ends the turn that came with it.
    pub(crate) fn write_handed<'a>(&'a self, mut state: Guard<'a>) {
        let Some(closed) = state.handed.take() else { return };
        let turn = self.turn_in_hand();
        // A failed write poisons the log, and that is how everybody learns of it.
        let (state, _) = self.write_closed(state, closed, &Way::Usual, None);
        drop(self.end_turn(state, turn));
    }

    /// Writes a group that is closed. What `need` says is for one that finds no room (`room.rs`).
    pub(crate) fn write_closed<'a>(
        &'a self,
        state: Guard<'a>,
        closed: Closed,
        way: &Way<D::File>,
        need: Option<Need>,
    ) -> (Guard<'a>, Result<()>) {
        drop(state);
        let Closed { number, frozen, waiters, since } = closed;
        let (last, at, end, bytes) = (frozen.last(), frozen.at, frozen.end, frozen.len as u64);
        let has_records = frozen.has_records;
        let mut written = match need {
            Some(Need::Must) => self.write_with_room(frozen, way),
            _ => lock(&self.writer).group(frozen, way),
        };
        let took = written.write + written.sync.unwrap_or_default();
        let mut state = self.lock();
        if took >= self.options.slow_commit {
            state.events.push(Event::SlowCommit { took, bytes });
        }
        if written.is_refused && need.is_some() && !has_records && state.filling.is_empty() {
            written.memory = written.memory.map(|memory| state.filling.take_back(at, memory));
            written.result = written.result.map_err(|error| refused(bytes, error));
        }
        self.keep_memory(&mut state, written.memory);
        if let Err(no_room @ Error::NoRoom { .. }) = written.result {
            return (state, Err(no_room));
        }
        if let Err(error) = written.result {
            if self.options.makes(Mistake::WatermarkOnFailure) {
                self.set_durable(&mut state, last);
            }
            let poisoned = self.poison(&mut state, error);
            return (state, Err(poisoned));
        }
        if let Some(poison) = &state.poison {
            let poisoned = Error::Poisoned(poison.clone());
            return (state, Err(poisoned));
        }
        self.note_group(last, end, &state);
        self.set_durable(&mut state, last);
        state.commit_time = (state.commit_time * 7 + took) / 8;
        state.expected = waiters + state.waiting;
        state.unpromised = true;
        state.last_commit = written.started + took;
        let stats = &mut state.stats;
        stats.groups += 1;
        stats.group_bytes += bytes;
        stats.waiters += waiters as u64;
        stats.commit.add(took);
        stats.write.add(written.write);
        if let Some(sync) = written.sync {
            stats.sync.add(sync);
        }
        if let Some(since) = since {
            stats.queue.add(written.started.saturating_duration_since(since));
        }
        state.told = state.reserved();
        self.wake_group(number);
        self.followers.notify_all();
        (state, Ok(()))
    }

    /// Ends the group that is gathered; it says what is durable now.
    pub(crate) fn freeze(&self, state: &mut State) -> Frozen {
        let promise = match self.options.makes(Mistake::NoPromise) {
            true => Promise { lsn: Lsn::ZERO, end: HEADER_BYTES as u64 },
            false => Promise { lsn: state.durable, end: state.filling.at() },
        };
        let memory = state.spare.take().unwrap_or_else(|| memory_for(self.options.buffer_bytes));
        state.filling.freeze(promise, self.pads(), memory)
    }

    /// Whether every group has blocks of its own.
    pub(crate) fn pads(&self) -> bool {
        self.options.pad_groups && !self.options.makes(Mistake::PaddingForgotten)
    }

    /// Keeps a group's memory for the next one, unless it was grown.
    pub(crate) fn keep_memory(&self, state: &mut State, memory: Option<AlignedBuf>) {
        state.spare = memory.filter(|memory| memory.len() == memory_bytes(self.options.buffer_bytes));
    }

    /// Lets readers begin at the end of this group.
    fn note_group(&self, last: Lsn, end: u64, state: &State) {
        let segments = lock(&self.segments);
        let segment = &segments.head().segment;
        segment.note(&inkstone_format::Tail {
            end,
            next_lsn: last.next().unwrap_or(last),
            epoch: state.epoch,
            promise: state.durable,
            first_live: segments.first_live,
            groups: 0,
            closed: false,
            sealed: None,
        });
    }

    /// Writes what is gathered now, whoever waits for it.
    ///
    /// # Errors
    /// When the log is poisoned or closed.
    pub(crate) fn commit<'a>(&'a self, state: Guard<'a>) -> Result<Guard<'a>> {
        let (state, turn) = self.take_turn(state)?;
        let (state, mut result) = self.write_gathered(state);
        let state = if result.is_ok() && self.options.makes(Mistake::PromiseTooHigh) {
            let more;
            (more, result) = self.write_unsynced_promise(state);
            more
        } else {
            state
        };
        let state = self.end_turn(state, turn);
        result.map(|()| state)
    }

    /// For a mistake: a group that nobody syncs, and that the next group's promise covers all the same.
    fn write_unsynced_promise<'a>(&'a self, mut state: Guard<'a>) -> (Guard<'a>, Result<()>) {
        if !state.filling.is_empty() || state.filling.control_room() < CONTROL_RESERVE_BYTES {
            return (state, Ok(()));
        }
        match state.filling.control(&Control::Promise(PromiseReason::Idle)) {
            Ok(()) => self.write_group(state, true),
            Err(_) => (state, Ok(())),
        }
    }
}
