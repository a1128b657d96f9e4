//! A raft group: a stream, alone in its log or beside those of other groups.
//!
//! *Owns*: which groups are open, and the order of their changes. *May not touch*: the rules
//! (`state.rs`), what a change is in the stream (`draft.rs`), what a group in the log holds
//! (`found.rs`).
//!
//! The lock of the state is held while a change is checked, given to the log, and made in memory.
//! Nobody waits under it: where the log has no room, the lock is let go, and then the change is
//! checked again.
//!
//! The state of a group lives while a handle of it is held, and until all its records are durable.
//! So an opening finds durable records only, and never a second state of the same group.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Weak};

use inkstone::Log;
use inkstone_streams::{Batch, Streams, StreamsReader, Tries, Written};
use smallvec::SmallVec;

use crate::draft::Draft;
use crate::error::{Error, Result};
use crate::found::Found;
use crate::memory::Memory;
use crate::note::{decode_note, encode_note};
use crate::state::{Change, State};
use crate::sync::{AtomicBool, Mutex, MutexGuard, Ordering, lock};
use crate::words::EntryId;

/// What a caller has called when a change is durable, or will not be.
pub(crate) type Callback = Box<dyn FnOnce(Result<()>) + Send>;

/// A change of a group.
pub(crate) type Part<'a> = (&'a Arc<Group>, Change<'a>);

/// What the groups of one log share.
pub(crate) struct Shared {
    pub(crate) streams: Streams,
    pub(crate) reader: StreamsReader,
    /// How many bytes of its last entries the group that is alone in the log keeps in memory. Of
    /// many groups the log keeps the last records.
    alone: Option<usize>,
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
    pub(crate) id: u64,
    pub(crate) shared: Arc<Shared>,
    /// No code of others runs under this lock, and changes were checked before they are made.
    memory: Mutex<Memory>,
    is_closed: AtomicBool,
}

impl Shared {
    /// `alone`: of a group that is alone, how many bytes of its last entries it keeps in memory.
    pub(crate) fn new(streams: Streams, alone: Option<usize>) -> Arc<Self> {
        let reader = streams.reader();
        Arc::new(Self { streams, reader, alone, open: Mutex::default() })
    }

    /// Whether the log is of one group.
    pub(crate) fn is_alone(&self) -> bool {
        self.alone.is_some()
    }

    /// Whether calls are answered: not in a forked child (another thread of the parent may have had
    /// a lock), after a failure, or after the end.
    pub(crate) fn check(&self) -> Result<()> {
        self.reader.log().end_of_log().map_or(Ok(()), |end| Err(end.into()))
    }

    fn is_forked(&self) -> bool {
        matches!(self.check(), Err(Error::Log(inkstone::Error::Forked { .. })))
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

    /// Begins a group that is not there, unless it is being removed: both under the lock, so that
    /// no group begins in the middle of its removal and stays. Whatever comes is durable after it.
    fn begin(&self, id: u64) -> Result<()> {
        let note = encode_note(&State::default());
        let mut batch = Batch::new();
        batch.create(id, 0).note(id, &note);
        let mut tries = Tries::default();
        loop {
            let begun = {
                let open = lock(&self.open);
                if open.removing.contains(&id) {
                    return Err(Error::Closed.in_group(id));
                }
                self.streams.try_apply(&batch, &mut tries)
            };
            match begun {
                Ok(_) | Err(inkstone_streams::Error::Exists { .. }) => return Ok(()),
                Err(error) => self.streams.make_room(&batch, error, &mut tries)?,
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
        decode_note(&self.reader.note(id)?).map_err(|flaw| self.found(id).bad(flaw))?;
        for group in self.open_groups(Some(id)) {
            group.close()?;
        }
        Ok(self.streams.remove(id)?.wait()?)
    }

    /// Gives changes to the log as one record, and makes them in memory, both under the locks of
    /// their groups. Those of a group are side by side, and the groups in order, so that two calls
    /// never wait for each other's locks. While the log has no room, this waits without a lock.
    /// `then` runs under the locks.
    fn write<'a, T>(
        &'a self,
        changes: &[&Part<'_>],
        then: impl FnOnce(Written<'a>) -> T,
    ) -> Result<T> {
        let appended = changes.iter().filter_map(|(_, change)| match change {
            Change::Append(entries) => Some(entries),
            _ => None,
        });
        // They are copied before the locks are taken that readers need.
        let payloads: Vec<Arc<[u8]>> =
            appended.flatten().map(|entry| Arc::from(entry.payload)).collect();
        if !payloads.is_empty() {
            self.streams.pay();
        }
        let durable = self.log().durable();
        let groups = || changes.chunk_by(|one, other| Arc::ptr_eq(one.0, other.0));
        let mut tries = Tries::default();
        loop {
            let memories = groups().map(|changes| changes[0].0.named(changes[0].0.memory()));
            let mut memories = memories.collect::<Result<SmallVec<[_; 1]>>>()?;
            let drafts = groups().zip(&memories).map(|(changes, memory)| {
                let of_group = changes.iter().map(|(_, change)| change);
                changes[0].0.named(Draft::of(&memory.state, of_group))
            });
            let drafts = drafts.collect::<Result<SmallVec<[_; 1]>>>()?;
            let mut batch = Batch::new();
            groups()
                .zip(&drafts)
                .for_each(|(changes, draft)| draft.put(changes[0].0.id, &mut batch));
            match self.streams.try_apply(&batch, &mut tries) {
                Ok(written) => {
                    let mut payloads = payloads.into_iter();
                    for (changes, memory) in groups().zip(&mut memories) {
                        memory.is_to_say = false;
                        let of_group = changes.iter().map(|(_, change)| change);
                        of_group.for_each(|it| memory.make(it, written.lsn(), &mut payloads));
                        // Where durable entries are, the streams know.
                        memory.tail.shrink(self.alone.unwrap_or(0), durable);
                        memory.durable_vote(durable);
                    }
                    return Ok(then(written));
                }
                Err(error) => {
                    drop(memories);
                    let made = self.streams.make_room(&batch, error, &mut tries);
                    made.map_err(|error| match error {
                        // Without the stream there is no group any more.
                        inkstone_streams::Error::NoStream { stream } => {
                            Error::Closed.in_group(stream)
                        }
                        error => error.into(),
                    })?;
                }
            }
        }
    }

    /// Makes changes: checked, written, durable.
    pub(crate) fn write_now(&self, changes: &[&Part<'_>]) -> Result<()> {
        Ok(self.write(changes, |written| written)?.wait()?)
    }

    /// The same, with a callback when they are durable. Until then it keeps the states. The log
    /// gets the callback under the locks, so those of a group come in the order of its changes.
    pub(crate) fn write_then(&self, changes: &[&Part<'_>], callback: Callback) -> Result<()> {
        let kept: SmallVec<[_; 1]> = changes.iter().map(|(group, _)| Arc::clone(group)).collect();
        let is_due = self.write(changes, |written| {
            written.into_append().on_durable_under_lock(move |outcome| {
                callback(outcome.map(|_| ()).map_err(Error::from));
                drop(kept);
            })
        })?;
        if is_due {
            self.log().call_due();
        }
        Ok(())
    }

    /// Ends all groups, and the log.
    pub(crate) fn close(&self) -> Result<()> {
        if self.is_forked() {
            return self.check();
        }
        let open = self.open_groups(None);
        let mut said = Ok(());
        for group in &open {
            match group.stop() {
                // It was closed or removed meanwhile.
                Err(error) if matches!(error.cause(), Error::Closed) => {}
                its => said = said.and(its),
            }
        }
        let closed = self.streams.close();
        for group in open.iter().chain(&self.open_groups(None)) {
            group.end();
        }
        said.and(closed.map_err(Into::into))
    }

    fn found(&self, id: u64) -> Found {
        Found { reader: self.reader.clone(), id }
    }

    fn log(&self) -> &Log {
        self.streams.log()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if !self.shared.is_forked() {
            self.forget();
        }
    }
}

impl Group {
    /// Reads the note and the last entry, and begins the group if there is none.
    fn open(shared: &Arc<Shared>, id: u64) -> Result<Arc<Self>> {
        let note = match shared.reader.note(id) {
            Err(inkstone_streams::Error::NoStream { .. }) => {
                shared.begin(id)?;
                shared.reader.note(id)?
            }
            note => note?,
        };
        let memory = Mutex::new(Memory::new(shared.found(id).state(&note)?));
        let (shared, is_closed) = (Arc::clone(shared), AtomicBool::new(false));
        Ok(Arc::new(Self { id, shared, memory, is_closed }))
    }

    pub(crate) fn found(&self) -> Found {
        self.shared.found(self.id)
    }

    pub(crate) fn log(&self) -> &Log {
        self.shared.log()
    }

    /// The locked state of a group that answers calls ([`Shared::check`]), and is not closed.
    pub(crate) fn memory(&self) -> Result<MutexGuard<'_, Memory>> {
        self.shared.check()?;
        let memory = lock(&self.memory);
        // Under the lock: it may have been closed before the lock was free.
        if self.is_closed.load(Ordering::Acquire) {
            return Err(Error::Closed);
        }
        Ok(memory)
    }

    /// The result with an error that names the group, if this is one of many.
    pub(crate) fn named<T>(&self, result: Result<T>) -> Result<T> {
        if self.shared.is_alone() {
            return result;
        }
        result.map_err(|error| error.in_group(self.id))
    }

    /// Writes what is committed, if no record has it.
    pub(crate) fn say_committed(self: &Arc<Self>) -> Result<()> {
        if self.memory()?.is_to_say {
            self.shared.write_then(&[&(self, Change::Say)], Box::new(drop))?;
        }
        Ok(())
    }

    /// Writes what is committed, and refuses calls of all handles from then on.
    pub(crate) fn stop(self: &Arc<Self>) -> Result<()> {
        loop {
            let said = self.say_committed();
            let memory = lock(&self.memory);
            if said.is_err() || !memory.is_to_say {
                self.is_closed.store(true, Ordering::Release);
                return said;
            }
        }
    }

    /// Whether a change is allowed, and made already: by a call that may still wait.
    fn is_done(&self, change: &Change<'_>) -> Result<bool> {
        let memory = self.memory()?;
        // What is not is checked when it is written.
        Ok(memory.state.is_done(change) && memory.state.check(change).map(|()| true)?)
    }

    /// Makes a change: checked, written, durable.
    pub(crate) fn change(self: &Arc<Self>, change: Change<'_>) -> Result<()> {
        if self.is_done(&change)? {
            return self.sync();
        }
        self.shared.write_now(&[&(self, change)])
    }

    /// Makes a change: checked and written. The callback comes when it is durable.
    pub(crate) fn change_then(
        self: &Arc<Self>,
        change: Change<'_>,
        callback: Callback,
    ) -> Result<()> {
        if !self.is_done(&change)? {
            return self.shared.write_then(&[&(self, change)], callback);
        }
        // The log is asked last: the change may have been made a moment ago, by another thread.
        let done =
            move |outcome: inkstone::Result<_>| callback(outcome.map(drop).map_err(Error::from));
        self.log().last_append().on_durable(done);
        Ok(())
    }

    /// Purges entries. A log of this group alone is freed here; of many groups, the mover frees
    /// what they share.
    pub(crate) fn purge(self: &Arc<Self>, upto: &EntryId, is_snapshot: bool) -> Result<()> {
        let change = Change::Purge { upto: upto.clone(), is_snapshot };
        let mut purged = self.change(change.clone());
        // On a full disk segments go first. What an opening then takes for purged is committed, or
        // the snapshot has it, and the caller asked for it.
        if self.shared.is_alone()
            && matches!(purged, Err(Error::Log(inkstone::Error::NoRoom { .. })))
            && self.free_without_record(upto, is_snapshot)?
        {
            purged = self.change(change);
        }
        purged?;
        if self.shared.is_alone() {
            self.shared.streams.give_back()?;
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
        match front {
            Some(front) => streams.free(front)?,
            None => streams.give_back()?,
        }
        Ok(self.log().first() > before)
    }

    /// Notes what is committed; the next record says it.
    pub(crate) fn save_committed(&self, index: u64) -> Result<()> {
        self.memory()?.save_committed(index)
    }

    /// Makes all records durable.
    pub(crate) fn sync(&self) -> Result<()> {
        drop(self.memory()?);
        self.log().sync()?;
        Ok(())
    }

    /// Ends all handles of the group; its records are durable then.
    pub(crate) fn close(self: &Arc<Self>) -> Result<()> {
        drop(self.memory()?);
        let said = self.stop();
        let synced = self.log().sync();
        self.log().call_due();
        self.end();
        said?;
        synced?;
        Ok(())
    }

    /// Calls of all handles get [`Error::Closed`] from now on.
    pub(crate) fn end(&self) {
        self.is_closed.store(true, Ordering::Release);
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

#[cfg(test)]
mod tests {
    use inkstone_sim::{DiskOptions, SimDisk};
    use inkstone_streams::Options;

    use super::*;

    /// The other thread looked for the group before the removal began.
    #[test]
    fn a_group_is_not_begun_again_while_it_is_removed() {
        let disk = SimDisk::new(1, DiskOptions::default());
        let log = inkstone::Options::small().own_thread(false);
        let options = Options::new().log(log).section_bytes(16 << 10).own_mover(false);
        let streams = Streams::open_in(Arc::new(disk.directory("/groups")), options).unwrap();
        let shared = Shared::new(streams, None);
        lock(&shared.open).removing.insert(7);
        let refused = Group::open(&shared, 7).map(drop).unwrap_err();
        assert!(matches!(refused.cause(), Error::Closed), "{refused}");
        assert_eq!(shared.reader.ids(None, 9).unwrap(), []);
    }
}
