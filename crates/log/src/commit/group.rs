//! Group commit: how a group gets from its buffer to the disk, and what is known after that.
//!
//! *Owns*: closing a group, writing it, moving the watermark. *May not touch*: waiting for a group
//! (`turn.rs`, `wait.rs`), the calls to the file system (`writer.rs`).
//!
//! The thread that has the turn writes the group: a waiter that leads, or the committer. A caller
//! that finds the buffer full and does not wait for its records *hands the group over*: it closes
//! the group, leaves it to the committer together with the turn, and continues in the other buffer.
//! So gathering and writing overlap, and still only one group is in flight at a time.

use inkstone_format::{Lsn, Promise};
use inkstone_io::AlignedBuf;

use crate::commit::gathering::{Frozen, Group, memory_bytes, memory_for};
use crate::commit::post::{Board, Posted, naps_go_on};
use crate::commit::room::{Need, refused};
use crate::commit::shared::Shared;
use crate::commit::sleepers::WaitQueue;
use crate::commit::state::Guard;
use crate::commit::state::State;
use crate::commit::writer::Way;
use crate::error::{Error, Result};
use crate::event::Event;
use crate::sync::{Ordering, lock};

/// The largest buffer that is kept after it has grown. There are two.
const GROWN_BYTES_MAX: usize = 20 << 20;

impl Shared {
    /// Writes what is gathered, if anything is, and makes it durable. The caller has the turn.
    ///
    /// # Errors
    /// The poison, if it failed.
    pub(crate) fn write_gathered<'a>(&'a self, mut state: Guard<'a>) -> (Guard<'a>, Result<()>) {
        if state.gathering.is_empty() {
            return (state, Ok(()));
        }
        let group = self.close_group(&mut state);
        self.write_closed(state, group, &Way::Usual, None)
    }

    /// As [`Shared::write_gathered`]. If the write needs room and there is none, a group without
    /// records is withdrawn.
    ///
    /// # Errors
    /// The poison; [`Error::NoRoom`] when the group was withdrawn: the log is unchanged.
    pub(crate) fn write_control<'a>(
        &'a self,
        mut state: Guard<'a>,
        need: Need,
    ) -> (Guard<'a>, Result<()>) {
        if !self.options.keeps_room {
            return self.write_gathered(state);
        }
        if state.gathering.is_empty() {
            return (state, Ok(()));
        }
        let head = lock(&self.segments).head().segment.number();
        let way = self.step_by_step(head);
        let closed = self.close_group(&mut state);
        self.write_closed(state, closed, &way, Some(need))
    }

    /// Closes the gathering and begins the next one. The caller has the turn.
    pub(crate) fn close_group(&self, state: &mut State) -> Group {
        let waiters = state.rule.close();
        let number = state.group;
        state.group += 1;
        state.room_wanted = false;
        let since = state.gathered_since.take();
        self.unclaimed.store(false, Ordering::Relaxed);
        let frozen = self.freeze(state);
        Group { number, frozen, waiters, since }
    }

    /// Closes the gathering and leaves it, with the turn, to the committer. The caller has checked
    /// that the turn is free and that something is gathered, and continues gathering.
    ///
    /// # Errors
    /// When the log is poisoned or closed.
    pub(crate) fn hand_over(&self, state: &mut State) -> Result<()> {
        state.check_open()?;
        assert!(!state.taken, "a group handed over beside another");
        state.taken = true;
        let turn = self.turn_in_hand();
        state.handed = Some(self.close_group(state));
        turn.hand_on();
        if state.committer_is_away {
            // Nobody keeps in mind where it sleeps.
            self.wake_all();
        } else {
            state.wake_ups.one(WaitQueue::Committer);
        }
        Ok(())
    }

    /// Writes a closed group. `need` says what to do if there is no room for a control group
    /// (`room.rs`).
    pub(crate) fn write_closed<'a>(
        &'a self,
        state: Guard<'a>,
        group: Group,
        way: &Way,
        need: Option<Need>,
    ) -> (Guard<'a>, Result<()>) {
        self.wake_nappers(state);
        let Group { number, frozen, waiters, since } = group;
        let (last, at, end, bytes) = (frozen.last(), frozen.at, frozen.end, frozen.len as u64);
        let (has_records, is_large, placed) =
            (frozen.has_records(), frozen.is_large, frozen.placed());
        let mut written = match need {
            Some(Need::Must) => self.write_with_room(frozen, way),
            _ => lock(&self.writer).group(frozen, way),
        };
        let took = written.write + written.sync.unwrap_or_default();
        let mut state = self.lock();
        state.events.extend(written.notice.take().map(|what| Event::Fallback { what }));
        if took >= self.options.slow_commit {
            state.events.push(Event::SlowCommit { took, bytes });
        }
        if written.is_refused && need.is_some() && !has_records && state.gathering.is_empty() {
            written.memory = written.memory.map(|memory| state.gathering.take_back(at, memory));
            written.result = written.result.map_err(|error| refused(bytes, error));
        }
        if let Err(no_room @ Error::NoRoom { .. }) = written.result {
            self.keep_memory(&mut state, is_large, written.memory);
            return (state, Err(no_room));
        }
        if let Err(error) = written.result {
            let poisoned = self.poison(&mut state, error);
            return (state, Err(poisoned));
        }
        if let Some(poison) = &state.poison {
            let poisoned = Error::Poisoned(poison.clone());
            return (state, Err(poisoned));
        }
        let posted = self.note_group(last, end, &state);
        self.set_durable(&mut state, last);
        state.naps_go_on =
            naps_go_on(waiters, written.started.saturating_duration_since(state.last_commit));
        let naps_go_on = state.naps_go_on;
        state.to_post = state.board.post(posted, naps_go_on);
        state.rule.committed(waiters, took);
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
        state.wake_ups.all(WaitQueue::group(number));
        state.note_written(number);
        // After its waiters: they need not wait for the copies.
        if self.options.tail_bytes > 0 {
            state.board.share(&placed, written.memory.as_deref());
        }
        let memory = self.tail.keep(&placed, written.memory);
        self.keep_memory(&mut state, is_large, memory);
        // When the lock is released: waking a follower takes some microseconds, and the writers who
        // were woken want the lock.
        state.owes_nappers = state.to_post.wake(&self.followers, &self.nappers);
        (state, Ok(()))
    }

    /// Releases the lock and wakes the readers that nap, in this process and in others: while a
    /// group is written, nobody misses a processor.
    fn wake_nappers(&self, mut state: Guard<'_>) {
        let owes_nappers = std::mem::take(&mut state.owes_nappers);
        let bulletin = state.board.nappers();
        drop(state);
        if owes_nappers {
            self.nappers.ring();
        }
        if let Some(bulletin) = bulletin {
            bulletin.wake_nappers();
        }
    }

    /// Freezes the gathering, with a promise of what is durable now.
    pub(crate) fn freeze(&self, state: &mut State) -> Frozen {
        let promise = Promise { lsn: state.durable, end: state.gathering.at() };
        let is_large = state.gathering.is_large();
        let spare = state.spare.take().filter(|memory| self.is_kept(memory, is_large));
        let memory = spare.unwrap_or_else(|| memory_for(self.options.buffer_bytes));
        state.gathering.freeze(promise, self.pads(), memory)
    }

    /// Whether groups are padded to blocks of their own.
    pub(crate) fn pads(&self) -> bool {
        self.options.pad_groups
    }

    /// Keeps a group's buffer for the next one.
    pub(crate) fn keep_memory(
        &self,
        state: &mut State,
        is_large: bool,
        memory: Option<AlignedBuf>,
    ) {
        state.spare = memory.filter(|memory| self.is_kept(memory, is_large));
    }

    /// Whether a buffer is used again. One that has grown is, as long as groups need it; the first
    /// that does not ends that.
    fn is_kept(&self, memory: &AlignedBuf, is_large: bool) -> bool {
        let usual = memory_bytes(self.options.buffer_bytes);
        memory.len() == usual || (is_large && (usual..=GROWN_BYTES_MAX).contains(&memory.len()))
    }

    /// Begins to post to readers in other processes: first, what the opening has found.
    pub(crate) fn post_to(&self, board: Board) {
        let mut state = self.lock();
        state.board = board;
        self.post_head(&mut state);
    }

    /// As [`State::post_head`], of the log as it is now.
    pub(crate) fn post_head(&self, state: &mut State) {
        let segments = lock(&self.segments);
        state.post_head(segments.head().segment.number(), segments.first_live);
    }

    /// Notes the end of this group in the segment's index, as a place where reading can begin;
    /// returns what to post.
    fn note_group(&self, last: Lsn, end: u64, state: &State) -> Posted {
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
        let (number, first) = (segment.number(), segments.first_live);
        Posted { durable: last, segment: number, end, epoch: state.epoch, first }
    }
}
