//! Group commit: how a group gets from its buffer to the disk, and what is known after that.
//!
//! *Owns*: closing a group, writing it, moving the watermark. *May not touch*: waiting for a group
//! (`wait.rs`), the calls to the file system (`writer.rs`).
//!
//! The thread that has the turn writes the group: a waiter that leads, or the committer. A caller
//! that finds the buffer full and does not wait for its records *hands the group over*: it closes
//! the group, leaves it to the committer together with the turn, and continues in the other buffer.
//! So appending and writing overlap, and still only one group is in flight at a time.

use inkstone_format::{Lsn, Promise};

use crate::commit::open_group::{Content, Encoded, Group};
use crate::commit::room::refused;
use crate::commit::shared::Shared;
use crate::commit::shared_page::{Published, polls_go_on};
use crate::commit::sleepers::WaitQueue;
use crate::commit::state::{Guard, State};
use crate::commit::turn::HeldTurn;
use crate::error::Result;
use crate::event::Event;
use crate::sync::{Ordering, lock};

impl HeldTurn<'_> {
    /// Writes the open group, if it is not empty, and makes it durable.
    ///
    /// # Errors
    /// The poison; [`NoRoom`](crate::Error::NoRoom) when a control group found no room and was
    /// withdrawn: the log is unchanged.
    pub(crate) fn write(&mut self) -> Result<()> {
        if self.open_group.is_empty() {
            return Ok(());
        }
        let group = self.close_group();
        self.write_closed(group)
    }

    /// Closes the open group and begins the next one.
    fn close_group(&mut self) -> Group {
        let waiters = self.rule.close();
        let number = self.next_group();
        let since = self.counted.take_open_since();
        self.shared.unclaimed.store(false, Ordering::Relaxed);
        let encoded = self.end_group();
        Group { number, encoded, waiters, since }
    }

    /// Ends the open group, with a promise of what is durable now.
    pub(crate) fn end_group(&mut self) -> Encoded {
        let pads = self.shared.pads();
        let state: &mut State = self;
        let promise = Promise { lsn: state.durable(), end: state.open_group.at() };
        state.open_group.finish(promise, pads, &mut state.spare)
    }

    /// Writes a closed group, and notes what became of it.
    ///
    /// # Errors
    /// As [`HeldTurn::write`].
    pub(super) fn write_closed(&mut self, group: Group) -> Result<()> {
        let shared = self.shared;
        let Group { number, encoded, waiters, since } = group;
        let (last, at, end, bytes) = (encoded.last(), encoded.at, encoded.end, encoded.len as u64);
        let (content, is_large, placed) = (encoded.content, encoded.is_large, encoded.placed());
        let pollers = self.publishing.take_pollers();
        let written = self.unlocked(|| {
            pollers.wake(&shared.pollers);
            match content {
                Content::Needed => shared.while_refused(|| lock(&shared.writer).group(&encoded)),
                Content::Records | Content::Optional => lock(&shared.writer).group(&encoded),
            }
        });
        let took = written.took.total();
        let state: &mut State = self;
        state.events.extend(written.notice.map(|what| Event::Fallback { what }));
        if let Some(tried) = written.tried {
            state.events.push(Event::Tried(tried));
            state.tried = Some(tried);
        }
        if took >= shared.options.slow_commit {
            state.events.push(Event::SlowCommit { took, bytes });
        }
        let memory = encoded.memory;
        if let Err(failed) = written.result {
            let is_withdrawn =
                failed.is_refused() && content != Content::Records && state.open_group.is_empty();
            if !is_withdrawn {
                return Err(shared.poison(state, failed.into_error()));
            }
            let memory = state.open_group.take_back(at, memory);
            state.spare.keep(Some(memory), is_large);
            return Err(refused(bytes, failed.into_error()));
        }
        if state.is_poisoned() {
            // Another sync failed meanwhile. This group may be on the medium, and is deliberately not
            // acknowledged: the watermark never moves after a poison.
            return state.check_open();
        }
        let published = shared.note_group(last, end, state);
        shared.set_durable(state, last);
        state.rule.committed(waiters, took);
        state.wanted.promise = true;
        let pause = state.counted.after_last_commit(written.took.started);
        state.counted.group(waiters, bytes, since, written.took);
        state.wake_ups.all(WaitQueue::group(number));
        // After its waiters: they need not wait for the copies.
        if shared.options.tail_bytes > 0 {
            state.publishing.share(&placed, &memory);
        }
        let memory = shared.tail.keep(&placed, memory);
        state.spare.keep(memory, is_large);
        // When the lock is released: waking a follower takes some microseconds, and the writers who
        // were woken want the lock.
        let polls_go_on = polls_go_on(waiters, pause);
        state.publishing.group(published, polls_go_on, &shared.followers, &shared.pollers);
        Ok(())
    }
}

impl Shared {
    /// Closes the open group and leaves it, with the turn, to the committer. The caller has checked
    /// that the turn is free and the open group is not empty, and goes on appending.
    ///
    /// # Errors
    /// When the log is poisoned or closed.
    pub(crate) fn hand_over<'a>(&'a self, state: Guard<'a>) -> Result<Guard<'a>> {
        state.check_open()?;
        let mut turn = HeldTurn::take(self, state);
        let group = turn.close_group();
        Ok(turn.hand_on(group))
    }

    /// Whether groups are padded to blocks of their own.
    pub(crate) fn pads(&self) -> bool {
        self.options.pad_groups
    }

    /// As [`State::publish_head`], of the log as it is now.
    pub(crate) fn publish_head(&self, state: &mut State) {
        let segments = lock(&self.segments);
        state.publish_head(segments.head().segment.number(), segments.first_live);
    }

    /// Notes the end of this group in the segment, as a place where reading can begin, and the
    /// places of its records; returns what to publish.
    fn note_group(&self, last: Lsn, end: u64, state: &mut State) -> Published {
        let segments = lock(&self.segments);
        let segment = &segments.head().segment;
        segment.note_places(state.open_group.take_places(last));
        segment.note_end(end, last.next().unwrap_or(last), state.epoch());
        let (number, first) = (segment.number(), segments.first_live);
        Published { durable: last, segment: number, end, epoch: state.epoch(), first }
    }
}
