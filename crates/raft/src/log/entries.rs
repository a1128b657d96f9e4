//! Appending entries.
//!
//! *Owns*: that call. *May not touch*: which entries are allowed (`state.rs`), what an entry's
//! record is (`record.rs`), when callbacks are called (`callbacks.rs`).

use std::io::IoSlice;
use std::sync::Arc;

use inkstone::{Append, Lsn};

use super::{Order, RaftLog};
use crate::error::Result;
use crate::record::encode_entry_head;
use crate::state::State;
use crate::words::NewEntry;

impl RaftLog {
    /// Appends entries, all or none: after a crash either all of them are here or none. They can be
    /// read when the call returns. The first entry of a raft log may have any index; each that
    /// follows has the next one.
    ///
    /// `callback` is called once, when they are durable, or with the error when they will not be.
    ///
    /// Callbacks are called one at a time and in the order of the appends, with nothing of the raft
    /// log locked, on the thread that made the entries durable: one of the log's own, or one that
    /// waits in another call; also within this call. A callback holds up others, so it must not
    /// block; it may use the raft log. If it panics, nothing else happens. The callback of an
    /// append whose entries were truncated meanwhile is called with `Ok` too: they were durable.
    /// For no entries it is called when those of all earlier appends were.
    ///
    /// # Errors
    /// [`Error::Hole`](crate::Error::Hole), [`Error::IsCommitted`](crate::Error::IsCommitted),
    /// [`Error::LeaderGoesBack`](crate::Error::LeaderGoesBack),
    /// [`Error::NameTooLong`](crate::Error::NameTooLong),
    /// [`Error::IndexesUsedUp`](crate::Error::IndexesUsedUp); [`inkstone::Error::TooLarge`] when
    /// the entries together are larger than a record may be: append fewer at a time;
    /// [`inkstone::Error::NoRoom`]. In all these cases nothing has changed.
    /// [`inkstone::Error::Poisoned`]. After an error the callback is dropped without being called.
    ///
    /// # Durability
    /// None on return. When the callback gets `Ok`, the entries and everything before them are on
    /// stable storage.
    pub fn append(
        &self,
        entries: &[NewEntry<'_>],
        callback: impl FnOnce(Result<()>) + Send + 'static,
    ) -> Result<()> {
        let core = self.core();
        core.check()?;
        if entries.is_empty() {
            core.callbacks.push_after_all(Box::new(callback));
            core.callbacks.call();
            return Ok(());
        }
        let mut order = self.order();
        check_entries(&core.memory().state, entries)?;
        let append = self.append_records(&mut order, entries)?;
        let last = append.lsn();
        self.take_entries(&mut order, entries, append.first_lsn());
        core.callbacks.push(last, Box::new(callback));
        self.repeat_state(&mut order);
        drop(order);
        append.on_durable(core.teller());
        Ok(())
    }

    /// Writes the entries as one batch. The first says what is committed. The log copies each
    /// payload into the group, nobody before it.
    fn append_records(&self, order: &mut Order, entries: &[NewEntry<'_>]) -> Result<Append<'_>> {
        let mut committed = order.to_say;
        order.bytes.clear();
        order.ends.clear();
        for entry in entries {
            encode_entry_head(&mut order.bytes, entry.index, entry.leader, committed.take());
            order.ends.push(order.bytes.len());
        }
        let append = if let [entry] = entries {
            self.log.append_parts(&[IoSlice::new(&order.bytes), IoSlice::new(entry.payload)])
        } else {
            let mut begin = 0;
            let heads = order
                .ends
                .iter()
                .map(|end| &order.bytes[std::mem::replace(&mut begin, *end)..*end]);
            let parts: Vec<_> = heads
                .zip(entries)
                .map(|(head, entry)| [IoSlice::new(head), IoSlice::new(entry.payload)])
                .collect();
            let records: Vec<&[IoSlice<'_>]> = parts.iter().map(|parts| &parts[..]).collect();
            self.log.append_batch_parts(&records)
        };
        let append = self.core().noted(append)?;
        order.to_say = None;
        order.forget_large();
        Ok(append)
    }

    /// Takes appended entries into memory.
    fn take_entries(&self, order: &mut Order, entries: &[NewEntry<'_>], first: Lsn) {
        // They are copied before the lock is taken that readers need.
        order.payloads.extend(entries.iter().map(|entry| Arc::<[u8]>::from(entry.payload)));
        let durable = self.log.durable();
        let mut memory = self.core().memory();
        let memory = &mut *memory;
        for ((entry, payload), at) in entries.iter().zip(order.payloads.drain(..)).zip(0..) {
            let lsn = first.plus(at).expect("the log gave this LSN");
            memory.state.add(entry.index, entry.leader, lsn);
            memory.tail.push(entry.index, payload);
        }
        let not_durable =
            durable.next().map(|next| memory.state.places.first_from(next, memory.state.next));
        memory.tail.shrink(self.memory_bytes, not_durable.unwrap_or(memory.state.next));
    }
}

/// Whether all entries may be appended, one after the other.
fn check_entries(state: &State, entries: &[NewEntry<'_>]) -> Result<()> {
    let mut next = state.next_index();
    let mut before = state.last_leader();
    for entry in entries {
        state.check_entry(entry.index, entry.leader, next, before)?;
        (next, before) = (Some(entry.index + 1), Some(entry.leader));
    }
    Ok(())
}
