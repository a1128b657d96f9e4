//! A raft log that is a stream beside those of other groups.
//!
//! *Owns*: what each change of a group is in a batch of the streams, how a group is opened, and
//! which groups are open. *May not touch*: the rules (`state.rs`), the bytes (`note.rs`,
//! `record.rs`).
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

use std::any::Any;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Weak};

use inkstone::{AnyDirectory, Log, Lsn};
use inkstone_streams::{Batch, Streams, StreamsReader, Written};

use crate::callbacks::Callback;
use crate::core::{Core, Memory, Source};
use crate::error::{Error, Result};
use crate::home::{Home, Then};
use crate::note::{decode_note, encode_note};
use crate::record::{Body, decode, encode_entry_head};
use crate::state::{Change, State};
use crate::sync::{Mutex, MutexGuard, lock};
use crate::words::{EntryId, Leader, NewEntry};

/// What a change takes in a batch beside its bytes, and a batch beside its changes.
const CHANGE_BYTES: usize = 64;

/// What the groups of one log share.
pub(crate) struct Shared {
    pub(crate) streams: Streams,
    pub(crate) directory: AnyDirectory,
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
    pub(crate) fn new(streams: Streams, directory: AnyDirectory) -> Arc<Self> {
        Arc::new(Self { streams, directory, open: Mutex::default() })
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
        decode_note(&self.streams.reader().note(id)?, id).map_err(|flaw| self.bad(id, flaw))?;
        for group in self.open_groups(Some(id)) {
            group.close()?;
        }
        Ok(self.streams.remove(id)?.wait()?)
    }

    fn bad(&self, group: u64, why: impl ToString) -> Error {
        Error::BadGroup { path: self.directory.path().into(), group, why: why.to_string() }
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
                let note = encode_note(&State::new(id.into()));
                match shared.streams.apply(Batch::new().create(id, 0).note(id, &note)) {
                    // Whatever comes is durable after it.
                    Ok(_) | Err(inkstone_streams::Error::Exists { .. }) => {}
                    Err(error) => return Err(error.into()),
                }
                reader.note(id)?
            }
            note => note?,
        };
        let mut state = decode_note(&note, id).map_err(|flaw| shared.bad(id, flaw))?;
        Found { shared, reader: &reader, id }.fill(&mut state)?;
        let (log, directory) = (shared.streams.log().reader(), shared.directory.clone());
        let core = Core::new(state, log, directory, Arc::default(), Source::Stream(reader, id));
        Ok(Arc::new(Self { id, core: Arc::new(core), shared: Arc::clone(shared) }))
    }

    fn log(&self) -> &Log {
        self.shared.streams.log()
    }

    /// The locked state of a group that is not closed.
    fn memory(&self) -> Result<MutexGuard<'_, Memory>> {
        self.core.check()?;
        let memory = self.core.memory();
        // It may have been closed before the lock was free.
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
                    let changes_bytes = CHANGE_BYTES * (batch.len() + 1);
                    let bytes = step.note.len() + step.bytes.len() + changes_bytes;
                    self.core.noted(self.log().make_room(bytes))?;
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
            memory.state.check(change)?;
            let mut after = memory.state.clone();
            if !after.is_done(change) {
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
        let to_say = self.memory()?.to_say;
        if let Some(index) = to_say {
            let written = self.write_change(&Change::Commit(index), |_, _| {})?;
            self.tell_when_durable(written);
        }
        Ok(())
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

    /// Ends all handles of the group; its records are durable then.
    fn close(self: &Arc<Self>) -> Result<()> {
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
    /// The indexes of entries, and where each ends in the bytes.
    entries: Vec<(u64, usize)>,
    bytes: Vec<u8>,
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

    /// Entries that follow a state. The last one says what is committed.
    fn of(entries: &[NewEntry<'_>], state: &State) -> Self {
        let mut step = Self::default();
        if state.next_index().is_none() {
            step.restart_at = entries.first().map(|entry| entry.index);
        }
        let said = state.said.as_ref().map(|said| said.index);
        for (entry, count) in entries.iter().zip(1..) {
            let said = said.filter(|_| count == entries.len());
            encode_entry_head(&mut step.bytes, entry.index, entry.leader, said);
            step.bytes.extend_from_slice(entry.payload);
            step.entries.push((entry.index, step.bytes.len()));
        }
        step
    }

    fn batch(&self, group: u64) -> Batch<'_> {
        let mut batch = Batch::new();
        if !self.note.is_empty() {
            batch.note(group, &self.note);
        }
        if let Some(first) = self.restart_at {
            batch.restart_at(group, first);
        }
        if let Some(last) = self.truncate_after {
            batch.truncate_after(group, last);
        }
        if let Some(first) = self.truncate_before {
            batch.truncate_before(group, first);
        }
        let mut begin = 0;
        for (index, end) in &self.entries {
            batch.append_at(group, *index, &self.bytes[std::mem::replace(&mut begin, *end)..*end]);
        }
        batch
    }
}

/// A group in the log.
struct Found<'a> {
    shared: &'a Shared,
    reader: &'a StreamsReader,
    id: u64,
}

impl Found<'_> {
    /// Adds to what the note says: where the entries begin and end, who made them, and what is
    /// committed. Leaders never go back, so few entries must be read: the last one, if it is of the
    /// leader of what was purged.
    fn fill(&self, state: &mut State) -> Result<()> {
        let bounds = self.reader.bounds(self.id)?;
        if !bounds.is_empty() || state.purged.is_some() {
            (state.first, state.next) = (bounds.first, bounds.next);
        }
        if !bounds.is_empty() {
            let (last, said) = self.entry(bounds.next - 1)?;
            self.find_leaders(state, &last)?;
            if let Some(index) =
                said.filter(|said| state.said.as_ref().is_none_or(|id| id.index < *said))
            {
                state.said = state.id_of(index);
                if state.said.is_none() {
                    return Err(
                        self.bad("its last entry says that one is committed which is not there")
                    );
                }
            }
        }
        state.committed = state.said.as_ref().map(|said| said.index);
        if state.purged.is_some() {
            state.committed = state.committed.max(state.first.checked_sub(1));
        }
        state.is_sound_beside_places().map_err(|why| self.bad(why))
    }

    fn find_leaders(&self, state: &mut State, last: &Leader) -> Result<()> {
        let mut at = state.first;
        let mut leader = match &state.purged {
            Some(purged) if purged == last => last.clone(),
            _ => self.entry(at)?.0,
        };
        loop {
            state.leaders.push(at, leader.clone());
            if leader == *last {
                return Ok(());
            }
            // The first entry of the next leader.
            let (mut same, mut other, mut next) = (at, state.next - 1, last.clone());
            while other - same > 1 {
                let middle = same + (other - same) / 2;
                match self.entry(middle)?.0 {
                    found if found == leader => same = middle,
                    found => (other, next) = (middle, found),
                }
            }
            (at, leader) = (other, next);
        }
    }

    /// Who made an entry, and what it says is committed.
    fn entry(&self, index: u64) -> Result<(Leader, Option<u64>)> {
        let bytes = self.reader.get(self.id, index)?;
        let record = decode(&bytes).map_err(|flaw| self.bad(format!("record {index} {flaw}")))?;
        match record.body {
            Body::Entry(id, _) if id.index == index => Ok((id.leader, record.committed)),
            _ => Err(self.bad(format!("record {index} is not entry {index}"))),
        }
    }

    fn bad(&self, why: impl ToString) -> Error {
        self.shared.bad(self.id, why)
    }
}

/// A handle of a group.
pub(crate) struct Handle(pub(crate) Arc<Group>);

impl Drop for Handle {
    /// Whoever opens the group again finds what was said to be committed.
    fn drop(&mut self) {
        let _ = self.0.say_committed();
    }
}

impl Home for Handle {
    fn core(&self) -> &Arc<Core> {
        &self.0.core
    }

    fn shared(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        Some(Arc::clone(&self.0) as _)
    }

    fn log(&self) -> &Log {
        self.0.log()
    }

    fn append(&self, entries: &[NewEntry<'_>], callback: Callback) -> Result<()> {
        let core = self.core();
        // They are copied before the lock is taken that readers need.
        let payloads: Vec<_> =
            entries.iter().map(|entry| Arc::<[u8]>::from(entry.payload)).collect();
        let durable = core.reader.durable();
        let make = |memory: &Memory| {
            memory.state.check_entries(entries)?;
            Ok(Step::of(entries, &memory.state))
        };
        let written = self.0.write(make, |memory, lsn| {
            for (entry, payload) in entries.iter().zip(payloads) {
                memory.state.add(entry.index, entry.leader, lsn);
                memory.tail.push(entry.index, payload);
            }
            // Where durable entries are, the streams know.
            let first = memory.shrink(0, durable);
            memory.state.places.purge_before(first);
            core.callbacks.push(lsn, callback);
        })?;
        self.0.tell_when_durable(written);
        Ok(())
    }

    fn change(&self, change: &Change) -> Result<Lsn> {
        let done = {
            let memory = self.0.memory()?;
            memory.state.check(change)?;
            memory.state.is_done(change).then_some(memory.vote_lsn)
        };
        if let Some(vote_lsn) = done {
            // It may have been done by a call that still waits.
            self.core().noted(self.log().sync())?;
            return Ok(vote_lsn);
        }
        let mut vote_lsn = Lsn::ZERO;
        let written = self.0.write_change(change, |memory, _| vote_lsn = memory.vote_lsn)?;
        written.wait().map_err(|error| self.0.failed(error))?;
        Ok(vote_lsn)
    }

    fn change_then(&self, change: &Change, callback: Then<'_>) -> Result<()> {
        let core = self.core();
        let is_durable = self.log().durable() >= self.log().last();
        let done = {
            let memory = self.0.memory()?;
            memory.state.check(change)?;
            (memory.state.is_done(change) && is_durable).then_some(memory.vote_lsn)
        };
        if let Some(vote_lsn) = done {
            core.callbacks.push_after_all(callback(vote_lsn));
            core.callbacks.call();
            return Ok(());
        }
        let written = self.0.write_change(change, |memory, lsn| {
            core.callbacks.push(lsn, callback(memory.vote_lsn));
        })?;
        self.0.tell_when_durable(written);
        Ok(())
    }

    fn purge(&self, upto: &EntryId, is_snapshot: bool) -> Result<()> {
        self.change(&Change::Purge { upto: upto.clone(), is_snapshot }).map(|_| ())
    }

    fn save_committed(&self, index: u64) -> Result<()> {
        self.0.memory()?.save_committed(index)
    }

    fn sync(&self) -> Result<()> {
        self.core().check()?;
        self.core().noted(self.log().sync()).map(|_| ())
    }

    fn close(&self) -> Result<()> {
        self.core().check()?;
        self.0.close()
    }
}
