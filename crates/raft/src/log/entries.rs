//! Appending entries.
//!
//! *Owns*: that call. *May not touch*: which entries are allowed (`state.rs`), what an entry's
//! record is (`record.rs`), when callbacks are called (`callbacks.rs`).

use std::io::IoSlice;
use std::sync::Arc;

use inkstone::{Append, Lsn, Parts};

use super::{OneLog, Order};
use crate::callbacks::Callback;
use crate::error::Result;
use crate::home::Home;
use crate::record::encode_entry_head;
use crate::words::NewEntry;

impl OneLog {
    /// Appends entries, all or none.
    pub(super) fn append_entries(
        &self,
        entries: &[NewEntry<'_>],
        callback: Callback,
    ) -> Result<()> {
        let core = self.core();
        let mut order = self.order();
        core.memory().state.check_entries(entries)?;
        let append = self.append_records(&mut order, entries)?;
        let last = append.lsn();
        self.take_entries(&mut order, entries, append.first_lsn());
        core.callbacks.push(last, callback);
        self.repeat_state(&mut order);
        drop(order);
        append.on_durable(core.teller());
        Ok(())
    }

    /// Writes the entries as one batch. The first says what is committed. The log copies each
    /// payload into the group, nobody before it.
    fn append_records(&self, order: &mut Order, entries: &[NewEntry<'_>]) -> Result<Append<'_>> {
        let mut committed = self.core().memory().to_say;
        order.bytes.clear();
        order.ends.clear();
        for entry in entries {
            encode_entry_head(&mut order.bytes, entry.index, entry.leader, committed.take());
            order.ends.push(order.bytes.len());
        }
        let append = if let [entry] = entries {
            self.log.append(&Parts(&[IoSlice::new(&order.bytes), IoSlice::new(entry.payload)]))
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
            let records: Vec<_> = parts.iter().map(|parts| Parts(parts)).collect();
            self.log.append_batch(&records)
        };
        let append = self.core().noted(append)?;
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
        memory.to_say = None;
        for ((entry, payload), at) in entries.iter().zip(order.payloads.drain(..)).zip(0..) {
            let lsn = first.plus(at).expect("the log gave this LSN");
            memory.state.add(entry.index, entry.leader, lsn);
            memory.tail.push(entry.index, payload);
        }
        memory.shrink(self.memory_bytes, durable);
    }
}
