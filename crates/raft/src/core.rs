//! What writers and readers of a raft log share.
//!
//! *Owns*: the state with the tail of entries under one lock, which is never held while a call
//! waits for the log. *May not touch*: the order of writes (`group.rs`).

use std::collections::VecDeque;
use std::sync::Arc;

use inkstone::{AnyDirectory, Lsn, Reader};
use inkstone_streams::StreamsReader;

use crate::error::{Error, Result};
use crate::state::{Change, State};
use crate::sync::{AtomicBool, Mutex, MutexGuard, Ordering, lock};
use crate::tail::Tail;
use crate::words::Vote;

/// Shared by a raft log and its readers.
pub(crate) struct Core {
    memory: Mutex<Memory>,
    pub(crate) reader: Reader,
    pub(crate) directory: AnyDirectory,
    /// Where entries are that are not in memory.
    pub(crate) streams: StreamsReader,
    /// The raft group, which is the stream of its entries.
    pub(crate) group: u64,
    /// Whether the log is of this group alone.
    pub(crate) is_alone: bool,
    is_closed: AtomicBool,
}

/// What is known without reading.
#[derive(Debug)]
pub(crate) struct Memory {
    /// As of the last record that was appended.
    pub(crate) state: State,
    pub(crate) tail: Tail,
    /// How often the last entries went, so that others may have come in their place.
    pub(crate) truncations: u64,
    /// The last vote that is known to be durable, and those that came after it, each with its
    /// record.
    votes: VecDeque<(Lsn, Option<Vote>)>,
    /// What was saved as committed last has no record yet.
    pub(crate) is_to_say: bool,
}

impl Memory {
    /// The last vote that is durable, if the log is so up to this record.
    pub(crate) fn durable_vote(&mut self, durable: Lsn) -> Option<&Vote> {
        while self.votes.get(1).is_some_and(|(lsn, _)| *lsn <= durable) {
            self.votes.pop_front();
        }
        self.votes.front().and_then(|(_, vote)| vote.as_ref())
    }

    /// Makes a change that was checked and has a record. `payloads`: those of the entries that
    /// follow.
    pub(crate) fn make(
        &mut self,
        change: &Change<'_>,
        lsn: Lsn,
        payloads: &mut impl Iterator<Item = Arc<[u8]>>,
    ) {
        match change {
            Change::Append(entries) => {
                for (entry, payload) in entries.iter().zip(payloads) {
                    self.tail.push(entry.index, (lsn, payload));
                }
            }
            Change::Vote(vote) => self.votes.push_back((lsn, Some(vote.clone()))),
            _ => {}
        }
        let next = self.state.next;
        self.state.apply(change);
        self.truncations += u64::from(self.state.next < next);
        self.mind_bounds();
    }

    /// Notes what is committed. It gets a record with the next change, or at the end.
    pub(crate) fn save_committed(&mut self, index: u64) -> Result<()> {
        let change = Change::Commit(index);
        self.state.check(&change)?;
        if !self.state.is_done(&change) {
            self.state.apply(&change);
            self.is_to_say = true;
        }
        Ok(())
    }

    /// Makes a purge without a record, up to an entry that is here or was purged last.
    pub(crate) fn purge_unrecorded(&mut self, index: u64) {
        if let Some(upto) = self.state.id_of(index) {
            self.state.purge(&upto);
            self.mind_bounds();
        }
    }

    /// Entries that the state no longer has leave memory.
    pub(crate) fn mind_bounds(&mut self) {
        self.tail.truncate(self.state.next);
        self.tail.purge_before(self.state.first);
    }
}

impl Core {
    pub(crate) fn new(
        state: State,
        reader: Reader,
        directory: AnyDirectory,
        streams: StreamsReader,
        (group, is_alone): (u64, bool),
    ) -> Self {
        let votes = VecDeque::from([(Lsn::ZERO, state.vote.clone())]);
        let memory =
            Memory { state, tail: Tail::default(), truncations: 0, votes, is_to_say: false };
        Self {
            memory: Mutex::new(memory),
            reader,
            directory,
            streams,
            group,
            is_alone,
            is_closed: AtomicBool::new(false),
        }
    }

    /// No code of others runs under this lock, and changes were checked before they are made.
    pub(crate) fn memory(&self) -> MutexGuard<'_, Memory> {
        lock(&self.memory)
    }

    /// Whether calls are answered: not in a forked child, after a failure, or after the end.
    pub(crate) fn check(&self) -> Result<()> {
        self.check_process()?;
        match self.reader.end_of_log() {
            None if self.is_closed.load(Ordering::Acquire) => Err(Error::Closed),
            None => Ok(()),
            Some(error) => Err(error.into()),
        }
    }

    /// # Errors
    /// In a forked child, where another thread of the parent may have had a lock.
    pub(crate) fn check_process(&self) -> Result<()> {
        if self.directory.is_forked() {
            return Err(inkstone::Error::Forked { path: self.directory.path().into() }.into());
        }
        Ok(())
    }

    /// The result with an error that names the group, if this is one of many.
    pub(crate) fn named<T>(&self, result: Result<T>) -> Result<T> {
        if self.is_alone {
            return result;
        }
        result.map_err(|error| error.in_group(self.group))
    }

    /// From now on calls get [`Error::Closed`].
    pub(crate) fn stop(&self) {
        self.is_closed.store(true, Ordering::Release);
    }
}
