//! How writes reach the medium: write-back, flushes, FUA, and what a failed sync leaves behind.
//!
//! *Owns*: the medium of a running disk. *May not touch*: what a crash leaves ([`crate::crash`]).

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use inkstone_io::SyncKind;

use crate::content::{PAGE_BYTES, blocks_of};
use crate::fault::{Effect, Event, OperationKind, errno};
use crate::options::AfterEffect;
use crate::pending::{Change, Entry, Place, supersede};
use crate::state::{State, os_error};

/// What a sync covers: everything that had completed when it was submitted.
#[derive(Debug, Clone)]
pub(crate) struct Cover {
    upto: u64,
    except: BTreeSet<u64>,
}

impl Cover {
    fn has(&self, entry: &Entry) -> bool {
        entry.order < self.upto && !self.except.contains(&entry.write)
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Durably<'a> {
    pub(crate) inode: u64,
    pub(crate) writes: &'a [u64],
    pub(crate) offset: u64,
    pub(crate) len: u64,
    pub(crate) direct: bool,
    /// `O_SYNC`: all metadata too.
    pub(crate) full: bool,
}

impl State {
    /// Everything that has completed by now.
    pub(crate) fn cover_now(&self) -> Cover {
        Cover { upto: self.next_order, except: self.in_flight.clone() }
    }

    pub(crate) fn sync(&mut self, number: u64, kind: SyncKind, cover: &Cover) -> io::Result<()> {
        match kind {
            SyncKind::All => self.counters.full_syncs += 1,
            SyncKind::Data => self.counters.data_syncs += 1,
        }
        let name = Arc::clone(&self.inode(number).name);
        let effect = self.begin(OperationKind::Sync, &name, 0);
        if std::mem::take(&mut self.inode_mut(number).is_error_due) {
            let (operation, effect) = (self.operation, Effect::Error(errno::EIO));
            self.history.push(Event { operation, kind: OperationKind::Sync, file: name, effect });
            self.lose(number, cover, AfterEffect::KeepsNew);
            return Err(os_error(errno::EIO));
        }
        match effect {
            Some(Effect::SyncFails(_, AfterEffect::ReportsLater)) => {
                self.lose(number, cover, AfterEffect::ReportsLater);
                self.inode_mut(number).is_error_due = true;
                return Ok(());
            }
            Some(Effect::SyncFails(code, after)) => {
                self.lose(number, cover, after);
                return Err(os_error(code));
            }
            Some(Effect::Error(code)) => {
                self.lose(number, cover, AfterEffect::KeepsNew);
                return Err(os_error(code));
            }
            Some(Effect::LostSync) => return Ok(()),
            _ => {}
        }
        self.note_epoch();
        let due = self.take(|entry| entry.inode == number && cover.has(entry));
        self.count_metadata(&due, kind == SyncKind::All);
        self.settle(due);
        self.counters.flushes += 1;
        self.take_time(|times| times.flush);
        self.flush(Some(number), cover);
        Ok(())
    }

    pub(crate) fn persist(&mut self, what: &Durably<'_>) {
        let &Durably { inode: number, writes, offset, len, direct, full } = what;
        self.note_epoch();
        let is_own = |entry: &Entry| writes.contains(&entry.write);
        let grows = self.pending.iter().any(|entry| is_own(entry) && entry.is_size());
        let inode = self.inode(number);
        // An overwrite stays within the size on the medium. Otherwise an earlier growth that is not
        // durable yet is included.
        let is_overwrite = !grows
            && inode.blocks.settled.has_all(blocks_of(offset, len))
            && offset + len <= inode.stable_bytes;
        if direct && is_overwrite && self.options.has_fua && !full {
            let due = self.take(is_own);
            self.settle(due);
            self.counters.fua_writes += 1;
            self.take_time(|times| times.fua_write);
            return;
        }
        let cover = self.cover_now();
        let blocks = blocks_of(offset, len);
        let pages = blocks.start * PAGE_BYTES as u64..blocks.end * PAGE_BYTES as u64;
        let due = self.take(|entry| {
            let range = entry.range();
            let is_here = range.start < pages.end && pages.start < range.end;
            let goes_along = is_here || !entry.is_in(Place::PageCache);
            is_own(entry) || (entry.inode == number && cover.has(entry) && goes_along)
        });
        self.count_metadata(&due, full);
        self.settle(due);
        self.counters.flushes += 1;
        self.take_time(|times| times.write + times.flush);
        self.flush(Some(number), &cover);
    }

    /// A flush of the device: what it has cached of other files becomes durable, where their
    /// metadata already says that the blocks are theirs and written.
    pub(crate) fn flush(&mut self, own: Option<u64>, cover: &Cover) {
        let is_candidate = |entry: &Entry| {
            Some(entry.inode) != own && entry.is_in(Place::DeviceCache) && cover.has(entry)
        };
        if !self.options.flush_is_global || !self.pending.iter().any(is_candidate) {
            return;
        }
        let mut due = Vec::new();
        let mut rest = Vec::with_capacity(self.pending.len());
        for entry in std::mem::take(&mut self.pending) {
            if !is_candidate(&entry) {
                rest.push(entry);
                continue;
            }
            let settled = &self.inode(entry.inode).blocks.settled;
            let range = entry.range();
            let mut at = range.start;
            while at < range.end {
                // The longest run of blocks that are all settled, or none of them.
                let is_settled = settled.has(at / PAGE_BYTES as u64);
                let mut end = at;
                while end < range.end && settled.has(end / PAGE_BYTES as u64) == is_settled {
                    end = (end / PAGE_BYTES as u64 + 1) * PAGE_BYTES as u64;
                }
                let end = end.min(range.end);
                if is_settled {
                    due.push(entry.part(at..end))
                } else {
                    rest.push(entry.part(at..end))
                }
                at = end;
            }
        }
        self.pending = rest;
        self.settle(due);
    }

    fn take(&mut self, mut pick: impl FnMut(&Entry) -> bool) -> Vec<Entry> {
        let (due, rest) =
            std::mem::take(&mut self.pending).into_iter().partition(|entry| pick(entry));
        self.pending = rest;
        due
    }

    fn count_metadata(&mut self, due: &[Entry], all_metadata: bool) {
        let needs_metadata = |entry: &Entry| {
            let range = entry.range();
            let blocks = blocks_of(range.start, range.end - range.start);
            match entry.change {
                Change::Data { .. } => !self.inode(entry.inode).blocks.settled.has_all(blocks),
                Change::Cut { .. } => true,
                Change::Size { to } => to > self.inode(entry.inode).stable_bytes,
            }
        };
        let is_needed = due.iter().any(needs_metadata) || (all_metadata && !due.is_empty());
        self.counters.metadata_commits += u64::from(is_needed);
    }

    /// Puts entries on the medium, in their order.
    fn settle(&mut self, due: Vec<Entry>) {
        for entry in due {
            settle_in(self.inodes.get_mut(&entry.inode).expect("an entry is of a file"), &entry);
            supersede(&mut self.pending, &entry);
        }
    }

    /// A sync failed: what it covered is clean and not on the medium.
    fn lose(&mut self, number: u64, cover: &Cover, after: AfterEffect) {
        let due = self.take(|entry| entry.inode == number && cover.has(entry));
        // Where errors come by themselves, some of the pages were written before the error.
        let is_partial = self.options.rates.sync_error_ppm > 0;
        let mut lost = Vec::new();
        let mut kept = Vec::new();
        for mut entry in due {
            match entry.change {
                Change::Data { .. } if is_partial && self.rng.bool() => {
                    entry.write_back();
                    kept.push(entry);
                }
                Change::Data { .. } => lost.push(entry),
                Change::Size { .. } if after == AfterEffect::RevertsToOld => {}
                Change::Size { .. } | Change::Cut { .. } => kept.push(entry),
            }
        }
        self.pending.append(&mut kept);
        self.pending.sort_by_key(|entry| entry.order);
        self.inode_mut(number).is_tainted = true;
        for entry in &lost {
            // Direct writes are in no page.
            if entry.direct || after == AfterEffect::RevertsToOld {
                let range = entry.range();
                self.forget_pages(number, range.start, range.end - range.start);
            }
        }
        if after == AfterEffect::RevertsToOld {
            let own = self.pending.iter().filter(|entry| entry.inode == number);
            let size =
                own.fold(self.inode(number).stable_bytes, |size, entry| match entry.change {
                    Change::Size { to } => size.max(to),
                    Change::Cut { to, .. } => size.min(to),
                    Change::Data { .. } => size,
                });
            let inode = self.inode_mut(number);
            inode.size_bytes = size;
            inode.view.cut(size);
        }
    }
}

/// Puts one entry on the medium.
pub(crate) fn settle_in(inode: &mut crate::state::Inode, entry: &Entry) {
    match &entry.change {
        Change::Data { offset, len, .. } => {
            inode.medium.write(*offset, entry.bytes());
            let blocks = blocks_of(*offset, *len as u64);
            inode.blocks.settled.set(blocks.clone(), true);
            inode.blocks.reserved.set(blocks, false);
        }
        Change::Size { to } => inode.stable_bytes = inode.stable_bytes.max(*to),
        Change::Cut { to, had, .. } => {
            inode.stable_bytes = inode.stable_bytes.min(*to);
            inode.medium.cut(*to);
            let last = *to / PAGE_BYTES as u64;
            let is_kept = !to.is_multiple_of(PAGE_BYTES as u64) && had.settled.has(last);
            inode.blocks.settled.set(last..last + u64::from(is_kept), true);
        }
    }
}
