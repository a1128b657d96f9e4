//! Reading entries: from memory where they are there, else from the log.
//!
//! *Owns*: reading as of one instant. *May not touch*: the state; it takes what it needs under the
//! lock, and reads without it.
//!
//! An entry that was truncated may have another one in its place. So a reader that finds that
//! entries were truncated meanwhile starts over.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::found::Found;
use crate::group::Group;
use crate::memory::Memory;
use crate::words::{Bounds, Entry, EntryId, Leader, Vote};

/// Reads the entries of a raft log that this process writes. Cheap to clone; it may be used beside
/// the writer, in any thread.
#[derive(Clone)]
pub struct RaftReader {
    pub(crate) group: Arc<Group>,
}

/// The entries of a range as they were at one instant, or the first of them.
struct Plan {
    from: u64,
    /// From here on the entries are in memory.
    in_memory_from: u64,
    /// Those that follow, from memory.
    in_memory: Vec<Arc<[u8]>>,
    /// Who made these: from which index on.
    leaders: Vec<(u64, Leader)>,
    /// How often entries had been truncated.
    truncations: u64,
}

impl RaftReader {
    /// First, last, purged and committed entry.
    ///
    /// # Errors
    /// The failure that ended the raft log, if one did.
    pub fn bounds(&self) -> Result<Bounds> {
        Ok(self.group.memory()?.state.bounds())
    }

    /// The last vote that was saved; it is durable.
    ///
    /// # Errors
    /// The failure that ended the raft log, if one did.
    pub fn vote(&self) -> Result<Option<Vote>> {
        let durable = self.group.log().durable();
        Ok(self.group.memory()?.durable_vote(durable).cloned())
    }

    /// The id of an entry that is here or was purged last, without reading it; `None` for any
    /// other.
    ///
    /// # Errors
    /// The failure that ended the raft log, if one did.
    pub fn id_of(&self, index: u64) -> Result<Option<EntryId>> {
        Ok(self.group.memory()?.state.id_of(index))
    }

    /// One entry; `None` if there is none with this index, and none was purged.
    ///
    /// # Errors
    /// [`Error::IsPurged`]; [`Error::Log`] when it cannot be read; the failure that ended the raft
    /// log, if one did.
    pub fn entry(&self, index: u64) -> Result<Option<Entry>> {
        let Some(end) = index.checked_add(1) else { return self.group.memory().map(|_| None) };
        Ok(self.entries(index..end, usize::MAX)?.pop())
    }

    /// The entries of a range, in order, as they were at one instant: at least one, if there is
    /// one, and no more than fit in `payload_bytes_max` bytes of payloads. What lies behind the
    /// last entry is left out, and what lies before the first one if nothing was purged.
    ///
    /// # Errors
    /// [`Error::IsPurged`] when the first of them is, also while they are read; [`Error::Log`] when
    /// one cannot be read; the failure that ended the raft log, if one did.
    pub fn entries(&self, range: Range<u64>, payload_bytes_max: usize) -> Result<Vec<Entry>> {
        // What is closed says so itself, without the name of a group.
        drop(self.group.memory()?);
        let read = loop {
            if let Some(read) = self.read(&range, payload_bytes_max).transpose() {
                break read;
            }
        };
        self.group.named(read.map_err(|error| match error {
            Error::IsPurged { first, .. } => Error::IsPurged { index: range.start, first },
            error => error,
        }))
    }

    /// Reads the entries of a range; `None` if entries were truncated meanwhile.
    fn read(&self, range: &Range<u64>, bytes_max: usize) -> Result<Option<Vec<Entry>>> {
        let mut taken = Taken { entries: Vec::new(), bytes: 0, bytes_max };
        let plan = plan(&*self.group.memory()?, range, bytes_max)?;
        if plan.from < plan.in_memory_from {
            let found = self.group.found();
            let read = taken.read(&found, plan.from..plan.in_memory_from);
            let memory = self.group.memory()?;
            // A record that was truncated may have another one in its place.
            if memory.truncations != plan.truncations {
                return Ok(None);
            }
            let is_whole = read?;
            // Those that were purged meanwhile are as they were.
            let mut here = taken.entries.iter().filter(|it| memory.state.is_here(it.id.index));
            here.try_for_each(|entry| found.check(&memory.state, &entry.id))?;
            if !is_whole {
                return Ok(Some(taken.entries));
            }
        }
        let mut leaders = plan.leaders.into_iter().peekable();
        let mut leader = Leader::default();
        for (payload, index) in plan.in_memory.into_iter().zip(plan.in_memory_from..) {
            while let Some((_, next)) = leaders.next_if(|(first, _)| *first <= index) {
                leader = next;
            }
            if !taken.take(EntryId::new(leader.clone(), index), payload) {
                break;
            }
        }
        Ok(Some(taken.entries))
    }
}

/// The entries that were read so far.
struct Taken {
    entries: Vec<Entry>,
    bytes: usize,
    bytes_max: usize,
}

impl Taken {
    /// False when there is no room for it; the first one always has room.
    fn take(&mut self, id: EntryId, payload: Arc<[u8]>) -> bool {
        self.bytes = self.bytes.saturating_add(payload.len());
        if !self.entries.is_empty() && self.bytes > self.bytes_max {
            return false;
        }
        self.entries.push(Entry { id, payload });
        true
    }

    /// Reads entries from the log; false when no more fits.
    fn read(&mut self, found: &Found, range: Range<u64>) -> Result<bool> {
        // One entry takes one short read.
        let is_one = range.end - range.start == 1;
        let mut cursor = (!is_one).then(|| found.reader.read(found.id, range.start));
        for index in range {
            let bytes = match &mut cursor {
                Some(cursor) => match cursor.next()? {
                    Some(record) => record.bytes,
                    None => return Err(Error::NotHere { index, next: index }),
                },
                None => found.reader.get(found.id, index)?,
            };
            let record = found.decode(&bytes, index)?;
            if !self.take(record.id, Arc::from(record.payload)) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Notes where the entries of a range are.
fn plan(memory: &Memory, range: &Range<u64>, payload_bytes_max: usize) -> Result<Plan> {
    let state = &memory.state;
    // Before the first entry of a raft log that was never purged there has been nothing.
    let from = if state.purged.is_none() { range.start.max(state.first) } else { range.start };
    let end = range.end.min(state.next);
    if from < range.end && from < state.first {
        return Err(Error::IsPurged { index: from, first: state.first });
    }
    let in_memory_from = memory.tail.first().unwrap_or(state.next).clamp(from, end.max(from));
    let (mut in_memory, mut bytes) = (Vec::new(), 0_usize);
    for index in in_memory_from..end {
        let Some(payload) = memory.tail.get(index) else { break };
        bytes = bytes.saturating_add(payload.len());
        if bytes > payload_bytes_max && index > from {
            // No more fits, whatever is read before.
            break;
        }
        in_memory.push(Arc::clone(payload));
    }
    let leaders = state.leaders.over(in_memory_from, in_memory_from + in_memory.len() as u64);
    let truncations = memory.truncations;
    Ok(Plan { from, in_memory_from, in_memory, leaders, truncations })
}

impl fmt::Debug for RaftReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RaftReader")
            .field("path", &self.group.shared.reader.path())
            .finish_non_exhaustive()
    }
}
