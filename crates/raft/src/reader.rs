//! Reading entries: from memory where they are there, else from the log.
//!
//! *Owns*: reading as of one instant. *May not touch*: the state; it takes what it needs under the
//! lock, and reads without it.
//!
//! An entry that was truncated may have another one in its place. So a reader that finds that
//! entries were truncated meanwhile starts over, and then notes everything at once.
//!
//! How many entries fit is known only when they are read. So a reader first notes who made the
//! entries of a few leaders, reads those, and comes back for more, each time for twice as many:
//! what it notes under the lock follows from what it returns, not from the range.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use inkstone_streams::StreamCursor;

use crate::core::{Core, Memory};
use crate::error::{Error, Result};
use crate::group::Group;
use crate::record::decode;
use crate::words::{Bounds, Entry, EntryId, Leader, Vote};

/// Reads the entries of a raft log that this process writes. Cheap to clone; it may be used beside
/// the writer, in any thread.
#[derive(Clone)]
pub struct RaftReader {
    pub(crate) core: Arc<Core>,
    /// A group is open as long as there is a reader of it.
    pub(crate) _group: Arc<Group>,
}

/// How many runs of leaders are noted at first.
const FIRST_RUNS: usize = 16;

/// The entries of a range as they were at one instant, or the first of them.
struct Plan {
    /// The first index, and the one behind the last.
    from: u64,
    to: u64,
    /// The index behind the last entry of the whole range.
    end: u64,
    /// How often entries had been truncated.
    truncations: u64,
    /// From here on the entries are in memory.
    in_memory_from: u64,
    /// Those that follow, from memory.
    in_memory: Vec<Arc<[u8]>>,
    /// Who made them: from which index on.
    leaders: Vec<(u64, Leader)>,
}

impl RaftReader {
    /// First, last, purged and committed entry.
    ///
    /// # Errors
    /// The failure that ended the raft log, if one did.
    pub fn bounds(&self) -> Result<Bounds> {
        self.core.check()?;
        Ok(self.core.memory().state.bounds())
    }

    /// The last vote that was saved; it is durable.
    ///
    /// # Errors
    /// The failure that ended the raft log, if one did.
    pub fn vote(&self) -> Result<Option<Vote>> {
        self.core.check()?;
        let durable = self.core.reader.durable();
        let mut memory = self.core.memory();
        memory.settle_vote(durable);
        Ok(memory.vote.1.clone())
    }

    /// The id of an entry that is here or was purged last, without reading it; `None` for any
    /// other.
    ///
    /// # Errors
    /// The failure that ended the raft log, if one did.
    pub fn id_of(&self, index: u64) -> Result<Option<EntryId>> {
        self.core.check()?;
        Ok(self.core.memory().state.id_of(index))
    }

    /// One entry; `None` if there is none with this index, and none was purged.
    ///
    /// # Errors
    /// [`Error::IsPurged`]; [`Error::Log`] when it cannot be read; the failure that ended the raft
    /// log, if one did.
    pub fn entry(&self, index: u64) -> Result<Option<Entry>> {
        let Some(end) = index.checked_add(1) else { return self.core.check().map(|()| None) };
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
        self.core.check()?;
        let mut runs_max = FIRST_RUNS;
        let read = loop {
            match self.read(&range, payload_bytes_max, runs_max).transpose() {
                Some(read) => break read,
                None => runs_max = usize::MAX,
            }
        };
        self.core.named(match read {
            Ok(entries) => Ok(entries),
            // The log truncates records only for a purge, which may be about to say so in the
            // state.
            Err(Error::Log(inkstone::Error::TruncatedBefore { .. })) => {
                let first = self.core.memory().state.first.max(range.start + 1);
                Err(Error::IsPurged { index: range.start, first })
            }
            Err(Error::IsPurged { first, .. }) => {
                Err(Error::IsPurged { index: range.start, first })
            }
            Err(error) => Err(error),
        })
    }

    /// Reads the entries of a range, at first those of so many runs; `None` if entries were
    /// truncated meanwhile.
    fn read(
        &self,
        range: &Range<u64>,
        bytes_max: usize,
        runs_max: usize,
    ) -> Result<Option<Vec<Entry>>> {
        // What was read ahead for one plan is there for the next.
        let mut cursor = None;
        let mut runs_max = runs_max;
        let mut taken = Taken { entries: Vec::new(), bytes: 0, bytes_max };
        let mut plan = plan(&self.core.memory(), range, bytes_max, runs_max)?;
        loop {
            let Plan { to, end, truncations, .. } = plan;
            let is_in_memory = plan.from == plan.in_memory_from;
            let carried_out = self.carry_out(plan, &mut cursor, &mut taken);
            // What was noted in one moment needs no second look.
            if is_in_memory && to >= end {
                return carried_out.map(|_| Some(taken.entries));
            }
            // A record that was truncated may have another one in its place.
            self.core.check()?;
            let memory = self.core.memory();
            if memory.truncations != truncations {
                return Ok(None);
            }
            if !carried_out? || to >= end {
                return Ok(Some(taken.entries));
            }
            runs_max = runs_max.saturating_mul(2);
            plan = self::plan(&memory, &(to..end), bytes_max, runs_max)?;
        }
    }

    /// Reads what was planned; false when no more fits.
    fn carry_out(
        &self,
        plan: Plan,
        cursor: &mut Option<StreamCursor>,
        taken: &mut Taken,
    ) -> Result<bool> {
        let mut leaders = plan.leaders.into_iter().peekable();
        let mut leader = Leader::default();
        let mut id_of = |index| {
            while let Some((_, next)) = leaders.next_if(|(first, _)| *first <= index) {
                leader = next;
            }
            EntryId::new(leader.clone(), index)
        };
        let Core { streams, group, .. } = &*self.core;
        // One entry takes one short read.
        if cursor.is_none() && plan.in_memory_from - plan.from > 1 {
            *cursor = Some(streams.read(*group, plan.from));
        }
        for index in plan.from..plan.in_memory_from {
            let bytes = match cursor {
                Some(cursor) => match cursor.next()? {
                    Some(record) => record.bytes,
                    None => return Err(Error::NotHere { index, next: index }),
                },
                None => streams.get(*group, index)?,
            };
            let payload = self.check_entry(&bytes, &id_of(index))?;
            if !taken.take(id_of(index), payload) {
                return Ok(false);
            }
        }
        for (payload, index) in plan.in_memory.into_iter().zip(plan.in_memory_from..) {
            if !taken.take(id_of(index), payload) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The payload of a record, which must be this entry.
    fn check_entry(&self, bytes: &[u8], expected: &EntryId) -> Result<Arc<[u8]>> {
        let why = match decode(bytes) {
            Ok(record) if record.id == *expected => return Ok(Arc::from(record.payload)),
            Ok(record) => format!("it should have {expected}, but has {}", record.id),
            Err(flaw) => format!("it should have {expected}, whose record {flaw}"),
        };
        let path = self.core.directory.path().into();
        Err(Error::BadGroup { path, group: self.core.group, why })
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
}

/// Notes where the entries of a range are, those of the first `runs_max` runs.
fn plan(
    memory: &Memory,
    range: &Range<u64>,
    payload_bytes_max: usize,
    runs_max: usize,
) -> Result<Plan> {
    let state = &memory.state;
    // Before the first entry of a raft log that was never purged there has been nothing.
    let from = if state.purged.is_none() { range.start.max(state.first) } else { range.start };
    let end = range.end.min(state.next);
    let to = state.leaders.end_of_runs(from, end, runs_max);
    let mut plan = Plan {
        from,
        to,
        end,
        truncations: memory.truncations,
        in_memory_from: from,
        in_memory: Vec::new(),
        leaders: Vec::new(),
    };
    if from >= range.end {
        return Ok(plan);
    }
    if from < state.first {
        return Err(Error::IsPurged { index: from, first: state.first });
    }
    let remembered = memory.tail.first().unwrap_or(state.next).clamp(from, to.max(from));
    plan.in_memory_from = remembered;
    let mut bytes = 0_usize;
    for index in remembered..to {
        let Some(payload) = memory.tail.get(index) else { break };
        bytes = bytes.saturating_add(payload.len());
        if bytes > payload_bytes_max && index > from {
            // No more fits, whatever was read before.
            (plan.to, plan.end) = (index, index);
            break;
        }
        plan.in_memory.push(Arc::clone(payload));
    }
    plan.leaders = state.leaders.over(from, plan.to);
    Ok(plan)
}

impl fmt::Debug for RaftReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RaftReader")
            .field("path", &self.core.directory.path())
            .finish_non_exhaustive()
    }
}
