//! The state of a disk: files, names, what is not durable yet; and the operations on names.
//!
//! *Owns*: inodes, directories, room, the numbering of operations. *May not touch*: how bytes move
//! ([`crate::transfer`]), how they become durable ([`crate::durable`]), what a crash leaves
//! ([`crate::crash`]).

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::content::{Content, PAGE_BYTES, blocks_of};
use crate::counters::Counters;
use crate::fault::{Effect, Event, OperationKind, Plans, draw, errno};
use crate::options::{DirectoryOrder, DiskOptions, Times};
use crate::pending::{BlockSets, Change, Entry, NameChange, NameEntry, Names};

/// A file, by whatever name.
#[derive(Clone)]
pub(crate) struct Inode {
    /// What it is called now, or was when it was removed.
    pub(crate) name: Arc<str>,
    pub(crate) directory: usize,
    pub(crate) medium: Content,
    /// What reads through the page cache see.
    pub(crate) view: Content,
    pub(crate) stable_bytes: u64,
    pub(crate) size_bytes: u64,
    pub(crate) blocks: BlockSets,
    pub(crate) open: u32,
    /// The next sync reports an error of an earlier one.
    pub(crate) is_error_due: bool,
    /// The page cache may hold clean pages that differ from the medium.
    pub(crate) is_tainted: bool,
    /// Its blocks still count as used.
    pub(crate) takes_room: bool,
}

impl Inode {
    fn new(name: Arc<str>, directory: usize) -> Self {
        Self {
            name,
            directory,
            medium: Content::default(),
            view: Content::default(),
            stable_bytes: 0,
            size_bytes: 0,
            blocks: BlockSets::default(),
            open: 0,
            is_error_due: false,
            is_tainted: false,
            takes_room: true,
        }
    }

    /// Its content as programs see it.
    fn bytes(&self) -> Vec<u8> {
        self.view.get(0, self.size_bytes as usize)
    }
}

#[derive(Clone)]
pub(crate) struct NamesOf {
    pub(crate) path: Arc<Path>,
    /// As seen now.
    pub(crate) view: Names,
    /// As on the medium.
    pub(crate) stable: Names,
}

pub(crate) struct State {
    pub(crate) seed: u64,
    pub(crate) options: DiskOptions,
    pub(crate) rng: fastrand::Rng,
    /// The disk's own clock, and how long things take by it: drawn by itself, so that a disk with a
    /// clock is otherwise the same.
    pub(crate) clock: Duration,
    times_rng: fastrand::Rng,
    pub(crate) inodes: BTreeMap<u64, Inode>,
    pub(crate) directories: Vec<NamesOf>,
    /// In order of arrival.
    pub(crate) pending: Vec<Entry>,
    pub(crate) pending_names: Vec<NameEntry>,
    /// Locked files. This is the memory of the machine: a crash leaves none.
    pub(crate) locks: BTreeSet<u64>,
    /// Writes that have begun and not returned: no sync covers them.
    pub(crate) in_flight: BTreeSet<u64>,
    pub(crate) next_order: u64,
    pub(crate) next_inode: u64,
    pub(crate) used_blocks: u64,
    /// What the file removed last had on the medium.
    pub(crate) removed: Content,
    pub(crate) plans: Plans,
    pub(crate) operation: u64,
    pub(crate) counters: Counters,
    pub(crate) history: Vec<Event>,
    /// If wanted: the disk before each operation that made something durable.
    pub(crate) epochs: Option<Vec<Snapshot>>,
    /// How many were recorded, including those that were taken.
    pub(crate) epochs_recorded: u64,
}

/// What a power cut starts from: the files and names, and what of them is not on the medium.
#[derive(Clone)]
pub(crate) struct Snapshot {
    pub(crate) seed: u64,
    pub(crate) options: DiskOptions,
    pub(crate) inodes: BTreeMap<u64, Inode>,
    pub(crate) directories: Vec<NamesOf>,
    pub(crate) pending: Vec<Entry>,
    pub(crate) pending_names: Vec<NameEntry>,
    pub(crate) next_inode: u64,
    pub(crate) removed: Content,
    pub(crate) operation: u64,
    pub(crate) epoch: u64,
}

pub(crate) fn os_error(code: i32) -> io::Error {
    io::Error::from_raw_os_error(code)
}

impl State {
    pub(crate) fn new(seed: u64, options: DiskOptions) -> Self {
        Self {
            seed,
            options,
            rng: fastrand::Rng::with_seed(seed),
            clock: Duration::ZERO,
            times_rng: fastrand::Rng::with_seed(seed ^ 0x7469_6D65_735F_6F66),
            inodes: BTreeMap::new(),
            directories: Vec::new(),
            pending: Vec::new(),
            pending_names: Vec::new(),
            locks: BTreeSet::new(),
            in_flight: BTreeSet::new(),
            next_order: 1,
            next_inode: 1,
            used_blocks: 0,
            removed: Content::default(),
            plans: Plans::default(),
            operation: 0,
            counters: Counters::default(),
            history: Vec::new(),
            epochs: None,
            epochs_recorded: 0,
        }
    }

    /// Starts an operation: numbers it, lets the kernel write something back, and returns the
    /// fault, if any.
    pub(crate) fn begin(
        &mut self,
        kind: OperationKind,
        name: &Arc<str>,
        len: usize,
    ) -> Option<Effect> {
        self.operation += 1;
        self.write_back_at_random();
        let mut effect = self.plans.due(kind, name);
        if effect.is_none() {
            effect = draw(&self.options, &mut self.rng, kind, len);
        }
        if let Some(effect) = &effect {
            let file = Arc::clone(name);
            self.history.push(Event {
                operation: self.operation,
                kind,
                file,
                effect: effect.clone(),
            });
        }
        effect
    }

    /// As [`State::begin`], for an operation whose only possible fault is an error.
    fn begin_or_fail(&mut self, kind: OperationKind, name: &Arc<str>) -> io::Result<()> {
        match self.begin(kind, name, 0) {
            Some(Effect::Error(code)) => Err(os_error(code)),
            _ => Ok(()),
        }
    }

    fn write_back_at_random(&mut self) {
        if self.pending.is_empty() || self.options.writeback_ppm == 0 {
            return;
        }
        if self.rng.u32(..1_000_000) < self.options.writeback_ppm {
            let chosen = self.rng.usize(..self.pending.len());
            let (inode, range) = (self.pending[chosen].inode, self.pending[chosen].range());
            // Earlier dirty entries of the range are written back too: a page is written back as it
            // is.
            for entry in &mut self.pending[..=chosen] {
                let other = entry.range();
                if entry.inode == inode && other.start < range.end && range.start < other.end {
                    entry.write_back();
                }
            }
        }
    }

    /// Lets the time pass that this takes.
    pub(crate) fn take_time(&mut self, of: impl FnOnce(&Times) -> Duration) {
        let Some(times) = &self.options.times else { return };
        let rng = &mut self.times_rng;
        let outlier = if rng.u8(..32) == 0 { 10 } else { 1 };
        self.clock += of(times) * rng.u32(50..200) / 100 * outlier;
    }

    pub(crate) fn order(&mut self) -> u64 {
        let order = self.next_order;
        self.next_order += 1;
        order
    }

    pub(crate) fn push(&mut self, inode: u64, write: u64, direct: bool, change: Change) {
        let order = self.order();
        self.pending.push(Entry { order, write, inode, direct, change });
    }

    pub(crate) fn inode(&self, number: u64) -> &Inode {
        self.inodes.get(&number).expect("an open or named file has its inode")
    }

    pub(crate) fn inode_mut(&mut self, number: u64) -> &mut Inode {
        self.inodes.get_mut(&number).expect("an open or named file has its inode")
    }

    /// Bytes of blocks that can still be allocated.
    pub(crate) fn free_bytes(&self) -> Option<u64> {
        let blocks = self.options.capacity_bytes? / PAGE_BYTES as u64;
        Some(blocks.saturating_sub(self.used_blocks) * PAGE_BYTES as u64)
    }

    /// Refuses a new name where that needs room and there is none.
    fn room_for_a_name(&self) -> io::Result<()> {
        let is_full = self.options.names_need_room && self.free_bytes() == Some(0);
        if is_full { Err(os_error(errno::ENOSPC)) } else { Ok(()) }
    }

    /// How many of `len` bytes at `offset` there is room for. If the file system copies on write,
    /// written blocks count as well: their new place is allocated before the old one is freed.
    pub(crate) fn room(&self, number: u64, offset: u64, len: usize) -> usize {
        let Some(free_bytes) = self.free_bytes() else { return len };
        let mut free = free_bytes / PAGE_BYTES as u64;
        let inode = self.inode(number);
        for block in blocks_of(offset, len as u64) {
            let moves = self.options.copy_on_write && !inode.blocks.reserved.has(block);
            if inode.blocks.allocated.has(block) && !moves {
                continue;
            }
            if free == 0 {
                return (block * PAGE_BYTES as u64).saturating_sub(offset) as usize;
            }
            free -= 1;
        }
        len
    }

    pub(crate) fn allocate(&mut self, number: u64, offset: u64, len: u64) {
        let inode = self.inode_mut(number);
        let before = inode.blocks.allocated.count();
        inode.blocks.allocated.set(blocks_of(offset, len), true);
        let more = inode.blocks.allocated.count() - before;
        self.used_blocks += more;
    }

    /// The directory of this path. The first call creates it, durably.
    pub(crate) fn directory(&mut self, path: &Path) -> usize {
        if let Some(found) = self.directories.iter().position(|directory| *directory.path == *path)
        {
            return found;
        }
        self.directories.push(NamesOf {
            path: path.into(),
            view: Names::new(),
            stable: Names::new(),
        });
        self.directories.len() - 1
    }

    fn directory_name(&self, directory: usize) -> Arc<str> {
        self.directories[directory].path.to_string_lossy().into()
    }

    fn push_name(&mut self, directory: usize, change: NameChange) {
        change.apply(&mut self.directories[directory].view);
        let order = self.order();
        self.pending_names.push(NameEntry { order, directory, change });
    }

    pub(crate) fn open(
        &mut self,
        directory: usize,
        name: &Arc<str>,
        create_new: bool,
    ) -> io::Result<u64> {
        let found = self.directories[directory].view.get(name).copied();
        if create_new {
            self.counters.creations += 1;
            self.begin_or_fail(OperationKind::Create, name)?;
            if found.is_some() {
                return Err(os_error(errno::EEXIST));
            }
            self.room_for_a_name()?;
            let number = self.create(directory, name);
            self.inode_mut(number).open += 1;
            return Ok(number);
        }
        self.counters.opens += 1;
        self.begin_or_fail(OperationKind::Open, name)?;
        let number = found.ok_or_else(|| os_error(errno::ENOENT))?;
        self.inode_mut(number).open += 1;
        Ok(number)
    }

    fn create(&mut self, directory: usize, name: &Arc<str>) -> u64 {
        let number = self.next_inode;
        self.next_inode += 1;
        self.inodes.insert(number, Inode::new(Arc::clone(name), directory));
        self.push_name(directory, NameChange::Create { name: Arc::clone(name), inode: number });
        number
    }

    /// Takes the lock of a file, which is created if it is missing and counts as open while it is
    /// locked; `None` if it is taken.
    pub(crate) fn take_lock(
        &mut self,
        directory: usize,
        name: &Arc<str>,
    ) -> io::Result<Option<u64>> {
        self.counters.locks += 1;
        self.begin_or_fail(OperationKind::Lock, name)?;
        let found = self.directories[directory].view.get(name).copied();
        let number = found.unwrap_or_else(|| self.create(directory, name));
        if !self.locks.insert(number) {
            return Ok(None);
        }
        self.inode_mut(number).open += 1;
        Ok(Some(number))
    }

    pub(crate) fn release_lock(&mut self, number: u64) {
        self.locks.remove(&number);
        self.close(number);
    }

    /// The number of the file that has this name.
    pub(crate) fn leads_to(&self, directory: usize, name: &str) -> Option<u64> {
        self.directories[directory].view.get(name).copied()
    }

    pub(crate) fn is_locked(&self, directory: usize, name: &str) -> bool {
        self.directories[directory].view.get(name).is_some_and(|number| self.locks.contains(number))
    }

    pub(crate) fn names_of(&self, number: u64) -> u64 {
        let held = self.directories.iter().flat_map(|directory| directory.view.values());
        held.filter(|&&held| held == number).count() as u64
    }

    pub(crate) fn close(&mut self, number: u64) {
        self.inode_mut(number).open -= 1;
        self.release(number);
    }

    /// `replaces`: whether a file that has the new name is replaced, or an error.
    pub(crate) fn rename(
        &mut self,
        directory: usize,
        from: &Arc<str>,
        to: &Arc<str>,
        replaces: bool,
    ) -> io::Result<()> {
        self.counters.renames += 1;
        self.begin_or_fail(OperationKind::Rename, from)?;
        let names = &self.directories[directory].view;
        let number = *names.get(from).ok_or_else(|| os_error(errno::ENOENT))?;
        let replaced = names.get(to).copied();
        if replaced.is_some() && !replaces {
            return Err(os_error(errno::EEXIST));
        }
        if from == to {
            return Ok(());
        }
        self.room_for_a_name()?;
        self.push_name(
            directory,
            NameChange::Rename { from: Arc::clone(from), to: Arc::clone(to), inode: number },
        );
        self.inode_mut(number).name = Arc::clone(to);
        if let Some(replaced) = replaced {
            self.release(replaced);
        }
        Ok(())
    }

    pub(crate) fn remove(&mut self, directory: usize, name: &Arc<str>) -> io::Result<()> {
        self.counters.removals += 1;
        self.begin_or_fail(OperationKind::Remove, name)?;
        let number =
            *self.directories[directory].view.get(name).ok_or_else(|| os_error(errno::ENOENT))?;
        self.push_name(directory, NameChange::Remove { name: Arc::clone(name), inode: number });
        self.release(number);
        Ok(())
    }

    pub(crate) fn list(&mut self, directory: usize) -> io::Result<Vec<String>> {
        self.counters.listings += 1;
        let name = self.directory_name(directory);
        self.begin_or_fail(OperationKind::List, &name)?;
        Ok(self.directories[directory].view.keys().map(ToString::to_string).collect())
    }

    pub(crate) fn sync_directory(&mut self, directory: usize) -> io::Result<()> {
        self.counters.directory_syncs += 1;
        let name = self.directory_name(directory);
        self.begin_or_fail(OperationKind::SyncDirectory, &name)?;
        self.note_epoch();
        let is_journal = self.options.directory_order == DirectoryOrder::Prefix;
        let names = std::mem::take(&mut self.pending_names);
        let (due, rest): (Vec<_>, Vec<_>) =
            names.into_iter().partition(|entry| is_journal || entry.directory == directory);
        self.pending_names = rest;
        self.counters.metadata_commits += u64::from(!due.is_empty());
        for entry in &due {
            entry.change.apply(&mut self.directories[entry.directory].stable);
        }
        let files: Vec<u64> = self.inodes.keys().copied().collect();
        for number in files {
            self.release(number);
        }
        self.counters.flushes += 1;
        let cover = self.cover_now();
        self.flush(None, &cover);
        Ok(())
    }

    /// Frees what is not reachable any more: the room of a file without name and handle, and the
    /// file itself when no crash can bring its name back.
    fn release(&mut self, number: u64) {
        let Some(inode) = self.inodes.get(&number) else { return };
        let is_named = |names: &Names| names.values().any(|&held| held == number);
        let directories = &self.directories;
        if inode.open > 0 || directories.iter().any(|directory| is_named(&directory.view)) {
            return;
        }
        if inode.takes_room {
            self.used_blocks -= inode.blocks.allocated.count();
            self.removed = inode.medium.clone();
            self.inode_mut(number).takes_room = false;
        }
        let can_come_back = self.directories.iter().any(|directory| is_named(&directory.stable))
            || self.pending_names.iter().any(|entry| entry.change.inode() == number);
        if !can_come_back {
            self.pending.retain(|entry| entry.inode != number);
            self.inodes.remove(&number);
        }
    }

    pub(crate) fn note_epoch(&mut self) {
        if self.epochs.is_some() && (!self.pending.is_empty() || !self.pending_names.is_empty()) {
            let snapshot = self.snapshot();
            self.epochs.get_or_insert_default().push(snapshot);
            self.epochs_recorded += 1;
        }
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        Snapshot {
            seed: self.seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ self.next_order,
            options: self.options,
            inodes: self.inodes.clone(),
            directories: self.directories.clone(),
            pending: self.pending.clone(),
            pending_names: self.pending_names.clone(),
            next_inode: self.next_inode,
            removed: self.removed.clone(),
            operation: self.operation,
            epoch: self.epochs_recorded,
        }
    }

    /// Every file with its path.
    fn files(&self) -> impl Iterator<Item = (PathBuf, &Inode)> {
        self.directories.iter().flat_map(|NamesOf { path, view, .. }| {
            view.iter().map(|(name, number)| (path.join(&**name), self.inode(*number)))
        })
    }

    /// See [`crate::SimDisk::image`].
    pub(crate) fn image(&self) -> Vec<(PathBuf, Vec<u8>)> {
        self.files().map(|(path, inode)| (path, inode.bytes())).collect()
    }

    /// See [`crate::SimDisk::content`].
    pub(crate) fn content(&self, of: &Path) -> Option<Vec<u8>> {
        self.files().find(|(path, _)| path == of).map(|(_, inode)| inode.bytes())
    }

    /// See [`crate::SimDisk::size_bytes`].
    pub(crate) fn size_bytes(&self) -> u64 {
        self.files().map(|(_, inode)| inode.size_bytes).sum()
    }

    /// See [`crate::SimDisk::medium_has`].
    pub(crate) fn medium_has(&self, bytes: &[u8]) -> bool {
        let mut files = self.directories.iter().flat_map(|directory| directory.stable.values());
        files.any(|number| {
            let inode = self.inode(*number);
            inode.medium.has(bytes, inode.stable_bytes)
        })
    }
}
