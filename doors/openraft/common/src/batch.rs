//! Entries on their way into the raft log.
//!
//! *Owns*: their bytes while they are encoded, and splitting those that are too many for one
//! append. *May not touch*: what the bytes say.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use inkstone_raft::{Error, Leader, NewEntry, RaftLog, Result};

/// Entries that are appended together. Used again, it keeps its memory.
#[derive(Debug, Default)]
pub struct Batch {
    bytes: Vec<u8>,
    /// Leader and index of each entry, and where its payload ends.
    entries: Vec<(Leader, u64, usize)>,
}

/// More memory than this is not kept for the next batch.
const KEPT_BYTES: usize = 1 << 20;

impl Batch {
    /// Forgets all entries.
    pub fn clear(&mut self) {
        if self.bytes.capacity() > KEPT_BYTES {
            *self = Self::default();
        }
        self.bytes.clear();
        self.entries.clear();
    }

    /// Adds an entry, whose payload `encode` adds to the bytes.
    ///
    /// # Errors
    /// Those of `encode`.
    pub fn add(
        &mut self,
        leader: Leader,
        index: u64,
        encode: impl FnOnce(&mut Vec<u8>) -> io::Result<()>,
    ) -> io::Result<()> {
        encode(&mut self.bytes)?;
        self.entries.push((leader, index, self.bytes.len()));
        Ok(())
    }

    /// Appends the entries, in as few appends as their size allows; each of these is whole or not
    /// there after a crash. `callback` is that of the last one, so it speaks for all.
    ///
    /// # Errors
    /// Those of [`RaftLog::append`]; [`inkstone::Error::TooLarge`] when one entry alone is. If
    /// there were several appends, entries before the one that failed may be there.
    ///
    /// # Durability
    /// As [`RaftLog::append`].
    pub fn append(
        &self,
        raft: &RaftLog,
        callback: impl FnOnce(Result<()>) + Send + 'static,
    ) -> Result<()> {
        let mut begin = 0;
        let entries: Vec<_> = self
            .entries
            .iter()
            .map(|(leader, index, end)| {
                let payload = &self.bytes[std::mem::replace(&mut begin, *end)..*end];
                NewEntry { leader, index: *index, payload }
            })
            .collect();
        append_split(raft, &entries, Some(&Arc::new(Mutex::new(Some(callback)))))
    }
}

/// A callback that can be given to another append when the first one was refused.
type Slot<F> = Arc<Mutex<Option<F>>>;

fn append_split<F: FnOnce(Result<()>) + Send + 'static>(
    raft: &RaftLog,
    entries: &[NewEntry<'_>],
    slot: Option<&Slot<F>>,
) -> Result<()> {
    let taken = slot.map(Arc::clone);
    let appended = raft.append(entries, move |result| {
        // Without a callback: a failure of these is also one of those that follow.
        let Some(slot) = taken else { return };
        let callback = slot.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(callback) = callback {
            callback(result);
        }
    });
    match appended {
        Err(Error::Log(inkstone::Error::TooLarge { .. })) if entries.len() > 1 => {
            let (front, back) = entries.split_at(entries.len() / 2);
            append_split::<F>(raft, front, None)?;
            append_split(raft, back, slot)
        }
        appended => appended,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use inkstone_raft::Options;

    use super::*;

    fn batch(count: u64, payload_bytes: usize) -> Batch {
        let mut batch = Batch::default();
        for index in 1..=count {
            let added = batch.add(Leader::of_term(1), index, |bytes| {
                bytes.resize(bytes.len() + payload_bytes, index as u8);
                Ok(())
            });
            added.unwrap();
        }
        batch
    }

    #[test]
    fn what_is_too_large_for_one_append_becomes_several_with_one_callback() {
        let directory = tempfile::tempdir().unwrap();
        let log = inkstone::Options::small().record_bytes_max(10_000);
        let raft = RaftLog::open(directory.path().join("raft"), Options::new().log(log)).unwrap();
        let (told, wait) = channel();
        batch(100, 900)
            .append(&raft, move |result| told.send(result.map_err(|_| ())).unwrap())
            .unwrap();
        assert_eq!(raft.bounds().unwrap().next, 101, "all can be read");
        for (entry, index) in raft.entries(1..101, usize::MAX).unwrap().iter().zip(1..) {
            assert_eq!((entry.id.index, &*entry.payload), (index, &[index as u8; 900][..]));
        }
        assert_eq!(wait.recv(), Ok(Ok(())));
        assert!(wait.recv().is_err(), "once");
        raft.close().unwrap();
    }

    #[test]
    fn one_entry_that_is_too_large_is_an_error_and_calls_nothing_back() {
        let directory = tempfile::tempdir().unwrap();
        let log = inkstone::Options::small().record_bytes_max(10_000);
        let raft = RaftLog::open(directory.path().join("raft"), Options::new().log(log)).unwrap();
        let (told, wait) = channel();
        let refused = batch(1, 11_000).append(&raft, move |_| told.send(()).unwrap());
        assert!(
            matches!(refused, Err(Error::Log(inkstone::Error::TooLarge { .. }))),
            "{refused:?}"
        );
        assert!(wait.recv().is_err());
        assert_eq!(raft.bounds().unwrap().last, None);
        raft.close().unwrap();
    }
}
