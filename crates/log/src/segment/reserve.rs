//! Reserved room: unused blocks for the case that an overwrite finds no room.
//!
//! *Owns*: the file of reserved room; the order in which blocks are released. *May not touch*: when
//! they are (`commit/room.rs`).

use inkstone_io::{NoSizeSignal, OpenFile, Preparation, SyncKind};

use crate::error::Result;
use crate::names;
use crate::options::Options;
use crate::segment::pool::{
    Obtained, Pool, Ready, Spare, UNNAMED_MAX, Unnamed, is_refused_for_room,
};
use crate::sync::lock;

/// The room to reserve for control groups, in bytes: the first of these that the disk has. btrfs
/// wants up to 500 KiB free for one small write if data and metadata share their space.
pub(super) const ROOM_BYTES: [u64; 3] = [1 << 20, 256 << 10, 64 << 10];

impl Pool {
    /// Reserves room for control groups, as much as possible, where an overwrite may need some,
    /// unless some is reserved. It is no error if there is none.
    ///
    /// # Errors
    /// A sync failed: what is on the medium is not known.
    pub(crate) fn keep_room(&self, options: &Options) -> Result<()> {
        let mut room_bytes = lock(&self.room_bytes);
        // An old file may be smaller than any.
        if !options.keeps_room || *room_bytes >= ROOM_BYTES[2] {
            return Ok(());
        }
        self.give_bytes(std::mem::take(&mut *room_bytes));
        for bytes in ROOM_BYTES {
            if !self.take_bytes(bytes, options) {
                continue;
            }
            if self.make_room(bytes)? {
                *room_bytes = bytes;
                break;
            }
            let _ = self.directory.remove(names::ROOM);
            self.give_bytes(bytes);
        }
        Ok(())
    }

    /// Makes the file with its blocks, durably; `false` if there is no room.
    fn make_room(&self, bytes: u64) -> Result<bool> {
        let _no_signal = NoSizeSignal::here();
        // An old file that is too small.
        let _ = self.directory.remove(names::ROOM);
        let Ok(file) = self.directory.open(names::ROOM, &OpenFile::new_file()) else {
            return Ok(false);
        };
        if file.prepare(Preparation::Fallocate, bytes).is_err() {
            return Ok(false);
        }
        for synced in [file.sync(SyncKind::All), self.directory.sync()] {
            if is_refused_for_room(synced)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Releases unused blocks because room is needed elsewhere: files that are marked for removal,
    /// else the reserved room, else free and prepared files. `false` if there is nothing left.
    pub(crate) fn give_up_some(&self) -> bool {
        self.remove_doomed() || self.give_up_room() || self.give_up_prepared()
    }

    /// Removes the file of reserved room; `false` if there is none or it cannot be removed.
    pub(super) fn give_up_room(&self) -> bool {
        // Held until the file is gone: another thread may make it again.
        let mut room_bytes = lock(&self.room_bytes);
        self.give_bytes(std::mem::take(&mut *room_bytes));
        self.directory.remove(names::ROOM).is_ok()
    }

    fn give_up_prepared(&self) -> bool {
        let _naming = lock(&self.naming);
        let ready: Vec<_> = {
            let mut files = lock(&self.files);
            files.doom_if(|_| true);
            files.ready.drain(..).collect()
        };
        let mut is_removed = false;
        for Ready { number, bytes, file, .. } in ready {
            drop(file);
            if self.directory.remove(&names::segment(number)).is_ok() {
                is_removed = true;
                self.give_bytes(bytes);
            }
        }
        self.remove_doomed() || is_removed
    }

    /// Removes also the free files.
    pub(super) fn remove_free(&self) -> Obtained<bool> {
        lock(&self.files).doom_if(|_| true);
        self.remove_all()
    }

    /// Removes all files that are marked for it, at once; false if there were none. The next
    /// opening finds what cannot be removed now.
    ///
    /// # Errors
    /// As [`Pool::cut`].
    pub(crate) fn remove_all(&self) -> Obtained<bool> {
        let mut is_any = false;
        loop {
            let doomed = {
                let doomed = &mut lock(&self.files).doomed;
                let kept = doomed.len().saturating_sub(UNNAMED_MAX);
                doomed.split_off(kept)
            };
            if doomed.is_empty() {
                return Ok(is_any);
            }
            let mut unnamed = Unnamed::new();
            for spare in doomed {
                let file = self.directory.open(&names::free(spare.number), &OpenFile::existing());
                if self.remove_spare(spare) {
                    is_any = true;
                    unnamed.extend(file);
                }
            }
            self.cut(unnamed)?;
        }
    }

    /// Removes files that are marked for it at once, without shrinking them first; `false` if there
    /// were none. Their blocks come back with the last handle, since to cut them takes a sync,
    /// which may need room here.
    fn remove_doomed(&self) -> bool {
        let doomed = std::mem::take(&mut lock(&self.files).doomed);
        let removed = doomed.into_iter().filter(|spare| self.remove_spare(*spare));
        removed.count() > 0
    }

    fn remove_spare(&self, spare: Spare) -> bool {
        let is_removed = self.directory.remove(&names::free(spare.number)).is_ok();
        if is_removed {
            self.give_bytes(spare.bytes);
        }
        is_removed
    }
}
