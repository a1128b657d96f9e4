//! Blocks that nobody uses, kept for the day on which an overwrite finds no room, and giving them up.
//!
//! *Owns*: the file that keeps room; in which order blocks are given up. *May not touch*: when that is (`commit/room.rs`).

use inkstone_io::{Directory, File, NoSizeSignal, OpenFile, Preparation, SyncKind};

use crate::error::Result;
use crate::names;
use crate::options::Options;
use crate::segment::pool::{Pool, Ready, is_refused_for_room};
use crate::sync::lock;

/// The room that is kept for control groups, in bytes; as much as there is, down to the last. What btrfs wants to have free for
/// one small write is up to 500 KiB, where data and metadata share their room.
pub(super) const ROOM_BYTES: [u64; 3] = [1 << 20, 256 << 10, 64 << 10];

impl<D: Directory> Pool<D> {
    /// Keeps room for control groups, if there is none kept: as much as can be had. That there is no room is no error.
    ///
    /// # Errors
    /// A sync failed: what is on the medium is not known.
    pub(crate) fn keep_room(&self, options: &Options) -> Result<()> {
        for bytes in ROOM_BYTES {
            {
                let mut files = lock(&self.files);
                let least = ROOM_BYTES[ROOM_BYTES.len() - 1];
                let others_bytes = files.used_bytes - files.room_bytes;
                let is_over = options.disk_budget_bytes.is_some_and(|budget| others_bytes + bytes > budget);
                if files.room_bytes >= least {
                    return Ok(());
                }
                if is_over {
                    continue;
                }
                // Whoever comes now sees that it is being made.
                files.used_bytes = others_bytes + bytes;
                files.room_bytes = bytes;
            }
            let made = self.make_room(bytes);
            if let Ok(true) = made {
                return Ok(());
            }
            let _ = self.directory.remove(names::ROOM);
            // Unless somebody gave it up meanwhile.
            let mut files = lock(&self.files);
            files.used_bytes -= std::mem::take(&mut files.room_bytes);
            drop(files);
            made?;
        }
        Ok(())
    }

    /// The file with its blocks, durably; `false` if it cannot be had.
    fn make_room(&self, bytes: u64) -> Result<bool> {
        let _no_signal = NoSizeSignal::here();
        // One that is too small.
        let _ = self.directory.remove(names::ROOM);
        let Ok(file) = self.directory.open(names::ROOM, &OpenFile::new_file()) else { return Ok(false) };
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

    /// Gives up blocks that nobody uses, for want of room elsewhere: what is to be removed anyway, else the room that is kept,
    /// else files that wait to become segments. `false` if there is nothing left.
    pub(crate) fn give_up_some(&self) -> bool {
        if self.remove_doomed() {
            return true;
        }
        if self.give_up_room() {
            return true;
        }
        let _naming = lock(&self.naming);
        let ready: Vec<_> = {
            let mut files = lock(&self.files);
            let free = std::mem::take(&mut files.free);
            files.doomed.extend(free);
            files.ready.drain(..).collect()
        };
        let mut is_removed = false;
        for Ready { number, bytes, file, .. } in ready {
            drop(file);
            if self.directory.remove(&names::segment(number)).is_ok() {
                is_removed = true;
                let mut files = lock(&self.files);
                files.used_bytes = files.used_bytes.saturating_sub(bytes);
            }
        }
        self.remove_doomed() || is_removed
    }

    /// Removes the file that keeps room; `false` if there is none, or it stays.
    pub(super) fn give_up_room(&self) -> bool {
        let room = std::mem::take(&mut lock(&self.files).room_bytes);
        let is_removed = room > 0 && self.directory.remove(names::ROOM).is_ok();
        if is_removed {
            let mut files = lock(&self.files);
            files.used_bytes = files.used_bytes.saturating_sub(room);
        }
        is_removed
    }

    /// Removes at once what is doomed, without shrinking it first; `false` if nothing was.
    fn remove_doomed(&self) -> bool {
        let doomed = std::mem::take(&mut lock(&self.files).doomed);
        let mut is_removed = false;
        for spare in doomed {
            if self.directory.remove(&names::free(spare.number)).is_ok() {
                is_removed = true;
                let mut files = lock(&self.files);
                files.used_bytes = files.used_bytes.saturating_sub(spare.bytes);
            }
        }
        is_removed
    }
}
