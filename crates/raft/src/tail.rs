//! The last entries, in memory: what was just appended is what is read most.
//!
//! *Owns*: payloads and how many bytes of them are kept. *May not touch*: the log; what is not here
//! is read from there.

use std::collections::VecDeque;
use std::sync::Arc;

use inkstone::Lsn;

/// What an entry costs beside its payload: its place in the queue, its record, two counts, and what
/// an allocator adds.
const ENTRY_BYTES: usize = 64;

/// The payloads of the last entries, each with its record, without a gap.
#[derive(Debug, Default)]
pub(crate) struct Tail {
    first: u64,
    payloads: VecDeque<(Lsn, Arc<[u8]>)>,
    bytes: usize,
}

fn cost(payload: &[u8]) -> usize {
    payload.len() + ENTRY_BYTES
}

impl Tail {
    /// Adds the payload of the entry `index`, which is the next one, or the first here.
    pub(crate) fn push(&mut self, index: u64, (lsn, payload): (Lsn, Arc<[u8]>)) {
        if self.payloads.is_empty() {
            self.first = index;
        }
        assert_eq!(index, self.first + self.payloads.len() as u64, "a gap in memory");
        self.bytes += cost(&payload);
        self.payloads.push_back((lsn, payload));
    }

    pub(crate) fn get(&self, index: u64) -> Option<&Arc<[u8]>> {
        let at = usize::try_from(index.checked_sub(self.first)?).ok()?;
        self.payloads.get(at).map(|(_, payload)| payload)
    }

    /// The first entry here; `None` if there is none.
    pub(crate) fn first(&self) -> Option<u64> {
        (!self.payloads.is_empty()).then_some(self.first)
    }

    pub(crate) fn truncate(&mut self, from: u64) {
        while !self.payloads.is_empty() && self.first + self.payloads.len() as u64 > from {
            self.bytes -= self.payloads.pop_back().map_or(0, |(_, payload)| cost(&payload));
        }
    }

    pub(crate) fn purge_before(&mut self, first: u64) {
        while self.first < first && self.pop_front() {}
    }

    /// Lets go of the first entries until no more than `bytes_max` bytes are left, but of none that
    /// is not durable.
    pub(crate) fn shrink(&mut self, bytes_max: usize, durable: Lsn) {
        while self.bytes > bytes_max
            && self.payloads.front().is_some_and(|(lsn, _)| *lsn <= durable)
            && self.pop_front()
        {}
    }

    fn pop_front(&mut self) -> bool {
        let Some((_, payload)) = self.payloads.pop_front() else { return false };
        self.bytes -= cost(&payload);
        self.first += 1;
        true
    }
}
