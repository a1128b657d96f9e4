//! A raft group: a stream, alone in its log or beside those of other groups.
//!
//! *Owns*: what each change of a group is in a batch of the streams, and which groups are open.
//! *May not touch*: the rules (`state.rs`), the bytes (`note.rs`, `record.rs`), what a group in the
//! log holds (`found.rs`).
//!
//! An entry is the record of the stream that has its index. All else is in the note of the stream,
//! but for what is committed: the last entry of an append says that too.
//!
//! The lock of the state is held while a change is checked, given to the log, and made in memory.
//! Nobody waits under it: where the log has no room, the lock is let go, and then the change is
//! checked again.
//!
//! The state of a group lives while a handle of it is held, and until all its records are durable.
//! So an opening finds durable records only, and never a second state of the same group.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Weak};

use inkstone::{AnyDirectory, Log, Lsn, Reach};
use inkstone_streams::{Batch, Streams, Written};
use smallvec::SmallVec;

use crate::callbacks::Callback;
use crate::core::{Core, Memory};
use crate::error::{Error, Result};
use crate::found::Found;
use crate::note::{decode_note, encode_note};
use crate::record::encode_entry_head;
use crate::state::{Change, State};
use crate::sync::{Mutex, MutexGuard, lock};
use crate::words::{EntryId, NewEntry};

/// What a change takes in a batch beside its bytes, and a batch beside its changes.
const CHANGE_BYTES: usize = 64;

/// Makes a change's callback when the record of the vote is known that holds then.
pub(crate) type Then<'a> = Box<dyn FnOnce(Lsn) -> Callback + 'a>;

/// What the groups of one log share.
pub(crate) struct Shared {
    pub(crate) streams: Streams,
    pub(crate) directory: AnyDirectory,
    /// Whether the log is of one group.
    is_alone: bool,
    /// How many bytes of its last entries each group keeps in memory.
    memory_bytes: usize,
    open: Mutex<OpenGroups>,
}

/// The groups that are open.
#[derive(Default)]
struct OpenGroups {
    groups: HashMap<u64, Weak<Group>>,
    removing: HashSet<u64>,
    /// How often a group was opened or removed: what was read from the log before may be old then.
    changes: u64,
}

/// A group that is open.
pub(crate) struct Group {
    id: u64,
    core: Arc<Core>,
    shared: Arc<Shared>,
}

impl Shared {
    /// Many groups: the log keeps the last records of all of them in memory.
    pub(crate) fn of_many(streams: Streams, directory: AnyDirectory) -> Arc<Self> {
        let open = Mutex::default();
        Arc::new(Self { streams, directory, is_alone: false, memory_bytes: 0, open })
    }

    pub(crate) fn of_one(
        streams: Streams,
        directory: AnyDirectory,
        memory_bytes: usize,
    ) -> Arc<Self> {
        let open = Mutex::default();
        Arc::new(Self { streams, directory, is_alone: true, memory_bytes, open })
    }

    /// Whether calls are answered: not in a forked child, after a failure, or after the end.
    pub(crate) fn check(&self) -> Result<()> {
        self.check_process()?;
        match self.streams.log().reader().end_of_log() {
            None => Ok(()),
            Some(inkstone::Error::Closed) => Err(Error::Closed),
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

    /// A group's state: the one that is open, or what the log holds.
    pub(crate) fn group(self: &Arc<Self>, id: u64) -> Result<Arc<Group>> {
        loop {
            let changes = match self.find(id, None)? {
                Ok(group) => return Ok(group),
                Err(changes) => changes,
            };
            // Without the lock: it reads, and creates.
            let opened = Group::open(self, id);
            let found = self.find(id, opened.as_ref().ok().map(|group| (group, changes)))?;
            match (found, opened) {
                (Ok(group), _) => return Ok(group),
                (Err(now), Err(error)) if now == changes => return Err(error),
                // It may have been opened, changed and ended meanwhile.
                _ => {}
            }
        }
    }

    /// The group that is open, or from now on this one, if no group was opened or removed since it
    /// was read. Otherwise how often that was.
    fn find(
        &self,
        id: u64,
        opened: Option<(&Arc<Group>, u64)>,
    ) -> Result<std::result::Result<Arc<Group>, u64>> {
        let mut open = lock(&self.open);
        if open.removing.contains(&id) {
            return Err(Error::Closed.in_group(id));
        }
        let found = open.groups.get(&id).and_then(Weak::upgrade);
        Ok(match (found, opened) {
            (Some(group), _) => Ok(group),
            (None, Some((opened, changes))) if changes == open.changes => {
                open.changes += 1;
                open.groups.insert(id, Arc::downgrade(opened));
                Ok(Arc::clone(opened))
            }
            _ => Err(open.changes),
        })
    }

    /// The groups that are open, or one of them.
    pub(crate) fn open_groups(&self, id: Option<u64>) -> Vec<Arc<Group>> {
        let open = lock(&self.open);
        let groups = open.groups.iter().filter(|(open, _)| id.is_none_or(|id| **open == id));
        groups.filter_map(|(_, group)| group.upgrade()).collect()
    }

    /// Removes a group. Nobody opens it meanwhile.
    pub(crate) fn remove(&self, id: u64) -> Result<()> {
        if !lock(&self.open).removing.insert(id) {
            return Err(Error::Closed.in_group(id));
        }
        let removed = self.remove_alone(id);
        let mut open = lock(&self.open);
        open.removing.remove(&id);
        open.changes += 1;
        removed
    }

    fn remove_alone(&self, id: u64) -> Result<()> {
        decode_note(&self.streams.reader().note(id)?).map_err(|flaw| self.bad(id, flaw))?;
        for group in self.open_groups(Some(id)) {
            group.close()?;
        }
        Ok(self.streams.remove(id)?.wait()?)
    }

    /// Ends all groups, and the log.
    pub(crate) fn close(&self) -> Result<()> {
        self.check_process()?;
        let open = self.open_groups(None);
        let mut said = Ok(());
        for group in &open {
            match group.stop() {
                // It was closed or removed meanwhile.
                Err(Error::Closed) => {}
                its => said = said.and(its),
            }
        }
        let closed = self.streams.close();
        for group in open.iter().chain(&self.open_groups(None)) {
            group.end();
        }
        said.and(closed.map_err(Into::into))
    }

    fn bad(&self, group: u64, why: impl ToString) -> Error {
        Error::BadGroup { path: self.directory.path().into(), group, why: why.to_string() }
    }

    fn log(&self) -> &Log {
        self.streams.log()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if self.shared.directory.is_forked() {
            return;
        }
        self.forget();
    }
}

impl Group {
    /// Reads the note and the last entry, and creates the stream if there is none.
    fn open(shared: &Arc<Shared>, id: u64) -> Result<Arc<Self>> {
        let reader = shared.streams.reader();
        let note = match reader.note(id) {
            Err(inkstone_streams::Error::NoStream { .. }) => {
                let note = encode_note(&State::default());
                match shared.streams.apply(Batch::new().create(id, 0).note(id, &note)) {
                    // Whatever comes is durable after it.
                    Ok(_) | Err(inkstone_streams::Error::Exists { .. }) => {}
                    Err(error) => return Err(error.into()),
                }
                reader.note(id)?
            }
            note => note?,
        };
        let path = shared.directory.path();
        let state = Found { path, reader: &reader, id }.state(&note)?;
        let (log, directory) = (shared.log().reader(), shared.directory.clone());
        let core = Core::new(state, log, directory, reader, (id, shared.is_alone));
        Ok(Arc::new(Self { id, core: Arc::new(core), shared: Arc::clone(shared) }))
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    pub(crate) fn log(&self) -> &Log {
        self.shared.log()
    }

    /// The locked state of a group that is not closed.
    fn memory(&self) -> Result<MutexGuard<'_, Memory>> {
        self.core.check_process()?;
        let memory = self.core.memory();
        // Under the lock: it may have been closed before the lock was free.
        self.core.check()?;
        Ok(memory)
    }

    /// What a failed call of the streams means here.
    fn failed(&self, error: inkstone_streams::Error) -> Error {
        match error {
            inkstone_streams::Error::Log(error) => {
                self.core.noted::<()>(Err(error)).err().unwrap_or(Error::Closed)
            }
            // Without the stream there is no group any more.
            inkstone_streams::Error::NoStream { .. } => Error::Closed,
            other => other.into(),
        }
    }

    /// Gives a change to the log and makes it in memory, both under one lock. While the log has no
    /// room, this waits without the lock.
    fn write(
        &self,
        make: impl Fn(&Memory) -> Result<Step>,
        then: impl FnOnce(&mut Memory, Lsn),
    ) -> Result<Written<'_>> {
        loop {
            let mut memory = self.memory()?;
            let step = make(&memory)?;
            let batch = step.batch(self.id);
            match self.shared.streams.try_apply(&batch) {
                Ok(written) => {
                    memory.to_say = None;
                    then(&mut memory, written.lsn());
                    return Ok(written);
                }
                Err(inkstone_streams::Error::Log(inkstone::Error::Busy)) => {
                    drop(memory);
                    let bytes = step.note.len() + CHANGE_BYTES * (batch.len() + 1);
                    self.core.noted(self.log().make_room(bytes, Reach::Usual))?;
                }
                Err(error) => return Err(self.failed(error)),
            }
        }
    }

    /// Writes a change that is allowed, and makes it: also one that is made already, whose record
    /// may not be durable yet.
    fn write_change(
        &self,
        change: &Change,
        then: impl FnOnce(&mut Memory, Lsn),
    ) -> Result<Written<'_>> {
        let durable = self.core.reader.durable();
        let make = |memory: &Memory| {
            let mut after = memory.state.clone();
            let is_done = after.is_done(change);
            // What was said to be committed was checked then, and a purge may have passed it since.
            if !is_done || !matches!(change, Change::Commit(_)) {
                after.check(change)?;
            }
            if !is_done {
                after.apply(change);
            }
            Ok(Step::between(&memory.state, &after))
        };
        self.write(make, |memory, lsn| {
            memory.settle_vote(durable);
            memory.apply(change);
            if matches!(change, Change::Vote(_)) {
                memory.vote_lsn = lsn;
            }
            then(memory, lsn);
        })
    }

    /// Writes what is committed, if no record has it.
    pub(crate) fn say_committed(self: &Arc<Self>) -> Result<()> {
        loop {
            let to_say = self.memory()?.to_say;
            let Some(index) = to_say else { return Ok(()) };
            match self.write_change(&Change::Commit(index), |_, _| {}) {
                // Another thread has said more meanwhile.
                Err(Error::CommittedGoesBack { .. }) => {}
                written => {
                    self.tell_when_durable(written?);
                    return Ok(());
                }
            }
        }
    }

    /// Has callbacks called when the record is durable, and keeps the state until then.
    fn tell_when_durable(self: &Arc<Self>, written: Written<'_>) {
        let (lsn, kept, tell) = (written.lsn(), Arc::clone(self), self.core.teller());
        written.on_durable(move |result| {
            tell(result.map(|()| lsn).map_err(|error| match error {
                inkstone_streams::Error::Log(error) => error,
                other => inkstone::Error::Invalid(other.to_string()),
            }));
            drop(kept);
        });
        self.core.callbacks.call();
    }

    /// Writes what is committed, and refuses calls of all handles from then on.
    pub(crate) fn stop(self: &Arc<Self>) -> Result<()> {
        loop {
            let said = self.say_committed();
            let memory = self.core.memory();
            if said.is_err() || memory.to_say.is_none() {
                self.core.stop();
                return said;
            }
        }
    }

    /// Appends entries, all or none.
    pub(crate) fn append(
        self: &Arc<Self>,
        entries: &[NewEntry<'_>],
        callback: Callback,
    ) -> Result<()> {
        self.shared.streams.pay();
        // They are copied before the lock is taken that readers need.
        let payloads: Vec<_> =
            entries.iter().map(|entry| Arc::<[u8]>::from(entry.payload)).collect();
        let durable = self.core.reader.durable();
        let written = loop {
            let mut memory = self.memory()?;
            memory.state.check_entries(entries)?;
            let (written, bytes) = self.try_append(&memory, entries);
            match written {
                Ok(written) => {
                    let lsn = written.lsn();
                    memory.to_say = None;
                    for (entry, payload) in entries.iter().zip(payloads) {
                        memory.state.add(entry.index, entry.leader);
                        memory.tail.push(entry.index, (lsn, payload));
                    }
                    // Where durable entries are, the streams know.
                    memory.tail.shrink(self.shared.memory_bytes, durable);
                    self.core.callbacks.push(lsn, callback);
                    break written;
                }
                Err(inkstone_streams::Error::Log(inkstone::Error::Busy)) => {
                    drop(memory);
                    self.core.noted(self.log().make_room(bytes, Reach::Usual))?;
                }
                Err(error) => return Err(self.failed(error)),
            }
        };
        self.tell_when_durable(written);
        Ok(())
    }

    /// Gives entries that follow a state to the log, if it has room; also returns how much room
    /// they need at the most. The last one says what is committed. Before the first entries of a
    /// stream that never had one, the note says where it begins, and what is committed.
    fn try_append(
        &self,
        memory: &Memory,
        entries: &[NewEntry<'_>],
    ) -> (inkstone_streams::Result<Written<'_>>, usize) {
        let (mut batch, mut note) = (Batch::new(), Vec::new());
        let mut said = memory.state.said.as_ref();
        if memory.state.next_index().is_none() {
            let first = entries.first().map_or(0, |entry| entry.index);
            note = encode_note(&State { first, next: first, ..memory.state.clone() });
            batch.note(self.id, &note).restart_at(self.id, first);
            said = None;
        }
        let mut heads = Vec::with_capacity(32 * entries.len());
        let mut ends: SmallVec<[usize; 4]> = SmallVec::new();
        for (entry, count) in entries.iter().zip(1..) {
            let said = said.filter(|_| count == entries.len());
            encode_entry_head(&mut heads, entry.index, entry.leader, said);
            ends.push(heads.len());
        }
        let (mut begin, mut bytes) = (0, note.len() + heads.len());
        for (entry, end) in entries.iter().zip(ends) {
            let head = &heads[std::mem::replace(&mut begin, end)..end];
            batch.append_parts_at(self.id, entry.index, [head, entry.payload]);
            bytes += entry.payload.len();
        }
        let room = bytes + CHANGE_BYTES * (entries.len() + 3);
        (self.shared.streams.try_apply(&batch), room)
    }

    /// Makes a change: checked, written, durable. Returns the record of the vote that holds then.
    pub(crate) fn change(&self, change: &Change) -> Result<Lsn> {
        let done = {
            let memory = self.memory()?;
            memory.state.check(change)?;
            memory.state.is_done(change).then_some(memory.vote_lsn)
        };
        if let Some(vote_lsn) = done {
            // It may have been done by a call that still waits.
            self.core.noted(self.log().sync())?;
            return Ok(vote_lsn);
        }
        let mut vote_lsn = Lsn::ZERO;
        let written = self.write_change(change, |memory, _| vote_lsn = memory.vote_lsn)?;
        written.wait().map_err(|error| self.failed(error))?;
        Ok(vote_lsn)
    }

    /// Makes a change: checked and written. The callback comes when it is durable.
    pub(crate) fn change_then(self: &Arc<Self>, change: &Change, callback: Then<'_>) -> Result<()> {
        let is_durable = self.log().durable() >= self.log().last();
        let done = {
            let memory = self.memory()?;
            memory.state.check(change)?;
            (memory.state.is_done(change) && is_durable).then_some(memory.vote_lsn)
        };
        if let Some(vote_lsn) = done {
            self.core.callbacks.push_after_all(callback(vote_lsn));
            self.core.callbacks.call();
            return Ok(());
        }
        let written = self.write_change(change, |memory, lsn| {
            self.core.callbacks.push(lsn, callback(memory.vote_lsn));
        })?;
        self.tell_when_durable(written);
        Ok(())
    }

    /// Purges entries. A log of this group alone is freed here; of many groups, the mover frees
    /// what they share.
    pub(crate) fn purge(&self, upto: &EntryId, is_snapshot: bool) -> Result<()> {
        let change = Change::Purge { upto: upto.clone(), is_snapshot };
        let mut purged = self.change(&change);
        // On a full disk segments go first. What an opening then takes for purged is committed, or
        // the snapshot has it, and the caller asked for it.
        if self.shared.is_alone
            && matches!(purged, Err(Error::Log(inkstone::Error::NoRoom { .. })))
            && self.free_without_record(upto, is_snapshot)?
        {
            purged = self.change(&change);
        }
        purged?;
        if self.shared.is_alone {
            self.shared.streams.give_back().map_err(|error| self.failed(error))?;
        }
        Ok(())
    }

    /// Frees what a purge that has no record may free; false if there is nothing. Memory comes
    /// first: it never has entries that the log has lost.
    fn free_without_record(&self, upto: &EntryId, is_snapshot: bool) -> Result<bool> {
        let streams = &self.shared.streams;
        let before = self.log().first();
        let front = {
            let mut memory = self.memory()?;
            let first = memory.state.first_kept_without_record(upto, is_snapshot);
            let front = streams.forget_front(self.id, first)?;
            front.map(|(front, index)| {
                // This entry stays, and says to an opening up to where all were purged.
                memory.purge_unrecorded(index);
                front
            })
        };
        let freed = match front {
            Some(front) => streams.free(front),
            None => streams.give_back(),
        };
        freed.map_err(|error| self.failed(error))?;
        Ok(self.log().first() > before)
    }

    /// Notes what is committed; the next record says it.
    pub(crate) fn save_committed(&self, index: u64) -> Result<()> {
        self.memory()?.save_committed(index)
    }

    /// Makes all records durable.
    pub(crate) fn sync(&self) -> Result<()> {
        self.core.check()?;
        self.core.noted(self.log().sync()).map(|_| ())
    }

    /// Ends all handles of the group; its records are durable then.
    pub(crate) fn close(self: &Arc<Self>) -> Result<()> {
        self.core.check()?;
        let said = self.stop();
        let synced = self.core.noted(self.log().sync());
        self.end();
        said.and(synced.map(|_| ()))
    }

    /// Calls of all handles get [`Error::Closed`] from now on, callbacks too.
    pub(crate) fn end(&self) {
        self.core.close();
        self.forget();
    }

    /// The next one who asks for the group opens it anew.
    fn forget(&self) {
        let mut open = lock(&self.shared.open);
        let is_this = |group: &Weak<Self>| std::ptr::eq(group.as_ptr(), self);
        if open.groups.get(&self.id).is_some_and(is_this) {
            open.groups.remove(&self.id);
        }
    }
}

/// What a change is in the stream of its group.
#[derive(Default)]
struct Step {
    note: Vec<u8>,
    restart_at: Option<u64>,
    truncate_after: Option<u64>,
    truncate_before: Option<u64>,
}

impl Step {
    /// What makes one state of another that has no new entries.
    fn between(before: &State, after: &State) -> Self {
        let mut step = Self { note: encode_note(after), ..Self::default() };
        if after.first == after.next {
            let is_same = before.first == before.next && before.next == after.next;
            step.restart_at = (!is_same).then_some(after.next);
        } else {
            step.truncate_after = (after.next < before.next).then(|| after.next - 1);
            step.truncate_before = (after.first > before.first).then_some(after.first);
        }
        step
    }

    fn batch(&self, group: u64) -> Batch<'_> {
        let mut batch = Batch::new();
        batch.note(group, &self.note);
        if let Some(first) = self.restart_at {
            batch.restart_at(group, first);
        }
        if let Some(last) = self.truncate_after {
            batch.truncate_after(group, last);
        }
        if let Some(first) = self.truncate_before {
            batch.truncate_before(group, first);
        }
        batch
    }
}
