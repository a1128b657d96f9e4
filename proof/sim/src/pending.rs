//! Changes that are not on the medium yet: of files and of directories, in order of arrival.
//!
//! *Owns*: the entries, shortening and splitting them. *May not touch*: contents; [`crate::state`]
//! applies entries.

use std::ops::Range;
use std::sync::Arc;

use crate::content::{Blocks, PAGE_BYTES};

/// Where a written sector waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Place {
    /// In the page cache: not even the device knows of it.
    PageCache,
    /// In the device's volatile cache: the next flush makes it durable.
    DeviceCache,
}

#[derive(Clone)]
pub(crate) enum Change {
    /// `len` bytes of `bytes` from `start` on, at `offset`: whole sectors.
    Data {
        place: Place,
        offset: u64,
        bytes: Arc<[u8]>,
        start: usize,
        len: usize,
    },
    Size {
        to: u64,
    },
    /// The file shrank: everything beyond is gone. Its last sector now ends at `sector_end`.
    Cut {
        to: u64,
        sector_end: u64,
        had: Box<BlockSets>,
    },
}

/// Which blocks of a file are what.
#[derive(Clone, Default)]
pub(crate) struct BlockSets {
    /// Blocks that the file has: they take room.
    pub(crate) allocated: Blocks,
    /// Of these, the ones that fallocate allocated and no durable write has reached: unwritten
    /// extents.
    pub(crate) reserved: Blocks,
    /// Blocks that are written, with the metadata that says so on the medium: overwriting them
    /// needs no metadata.
    pub(crate) settled: Blocks,
}

impl BlockSets {
    /// Removes the blocks that a file of `len` bytes does not have.
    pub(crate) fn cut(&mut self, len: u64) {
        let first = len.div_ceil(PAGE_BYTES as u64);
        self.allocated.cut(first);
        self.reserved.cut(first);
        self.settled.cut(first);
    }

    /// Restores what a file had before it shrank to `len` bytes. Its last block is included, since
    /// shrinking changes it too.
    pub(crate) fn restore(&mut self, len: u64, had: &Self) {
        let first = len / PAGE_BYTES as u64;
        self.allocated.add_from(first, &had.allocated);
        self.reserved.add_from(first, &had.reserved);
        self.settled.add_from(first, &had.settled);
    }
}

#[derive(Clone)]
pub(crate) struct Entry {
    pub(crate) order: u64,
    pub(crate) write: u64,
    pub(crate) inode: u64,
    /// A direct write, so no page has it.
    pub(crate) direct: bool,
    pub(crate) change: Change,
}

impl Entry {
    pub(crate) fn range(&self) -> Range<u64> {
        match self.change {
            Change::Data { offset, len, .. } => offset..offset + len as u64,
            Change::Size { .. } | Change::Cut { .. } => 0..0,
        }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        match &self.change {
            Change::Data { bytes, start, len, .. } => &bytes[*start..*start + *len],
            Change::Size { .. } | Change::Cut { .. } => &[],
        }
    }

    pub(crate) fn is_size(&self) -> bool {
        matches!(self.change, Change::Size { .. } | Change::Cut { .. })
    }

    pub(crate) fn is_in(&self, wanted: Place) -> bool {
        matches!(self.change, Change::Data { place, .. } if place == wanted)
    }

    pub(crate) fn write_back(&mut self) {
        if let Change::Data { place, .. } = &mut self.change {
            *place = Place::DeviceCache;
        }
    }

    /// The part of it in `keep`, which lies within its range.
    pub(crate) fn part(&self, keep: Range<u64>) -> Self {
        let mut part = self.clone();
        match &mut part.change {
            Change::Data { offset, start, len, .. } => {
                *start += (keep.start - *offset) as usize;
                *offset = keep.start;
                *len = (keep.end - keep.start) as usize;
            }
            Change::Size { .. } | Change::Cut { .. } => {}
        }
        part
    }

    /// What is left of it in a file that ends at `to`: zeros after the end, and no sector after
    /// `sector_end`.
    pub(crate) fn cut(mut self, to: u64, sector_end: u64, left: &mut Vec<Self>) {
        let range = self.range();
        if let Change::Data { bytes, start, .. } = &mut self.change
            && range.start < to
            && to < range.end
        {
            let mut changed = bytes.to_vec();
            let from = *start + (to - range.start) as usize;
            changed[from..].fill(0);
            *bytes = changed.into();
        }
        self.without(&(sector_end..u64::MAX), left);
    }

    /// What is left of it without `cut`.
    fn without(self, cut: &Range<u64>, left: &mut Vec<Self>) {
        let whole = self.range();
        if whole.is_empty() || cut.end <= whole.start || whole.end <= cut.start {
            left.push(self);
            return;
        }
        if whole.start < cut.start {
            left.push(self.part(whole.start..cut.start));
        }
        if cut.end < whole.end {
            left.push(self.part(cut.end..whole.end));
        }
    }
}

/// Removes from the entries what arrived before `newer` at the same place, since a newer version is
/// on the medium.
pub(crate) fn supersede(entries: &mut Vec<Entry>, newer: &Entry) {
    if let Change::Cut { to, sector_end, .. } = newer.change {
        return supersede_by_cut(entries, newer, to, sector_end);
    }
    let cut = newer.range();
    let is_older = |entry: &Entry| {
        let range = entry.range();
        entry.inode == newer.inode
            && entry.order < newer.order
            && range.start < cut.end
            && cut.start < range.end
    };
    if cut.is_empty() || !entries.iter().any(is_older) {
        return;
    }
    let mut left = Vec::with_capacity(entries.len() + 1);
    for entry in entries.drain(..) {
        if is_older(&entry) { entry.without(&cut, &mut left) } else { left.push(entry) }
    }
    *entries = left;
}

/// The same when a file's shrinking is on the medium: nothing older makes it grow again, or is
/// found after its end.
fn supersede_by_cut(entries: &mut Vec<Entry>, newer: &Entry, to: u64, sector_end: u64) {
    let mut left = Vec::with_capacity(entries.len());
    for entry in entries.drain(..) {
        let is_older = entry.inode == newer.inode && entry.order < newer.order;
        match entry.change {
            Change::Size { to: size } if is_older && size > to => {}
            _ if is_older => entry.cut(to, sector_end, &mut left),
            _ => left.push(entry),
        }
    }
    *entries = left;
}

#[derive(Debug, Clone)]
pub(crate) enum NameChange {
    Create { name: Arc<str>, inode: u64 },
    Rename { from: Arc<str>, to: Arc<str>, inode: u64 },
    Remove { name: Arc<str>, inode: u64 },
}

#[derive(Debug, Clone)]
pub(crate) struct NameEntry {
    pub(crate) order: u64,
    pub(crate) directory: usize,
    pub(crate) change: NameChange,
}

pub(crate) type Names = std::collections::BTreeMap<Arc<str>, u64>;

impl NameChange {
    /// Applies the operation whole: after a rename the file has its new name and no other, whatever
    /// happened to the operations before it.
    pub(crate) fn apply(&self, names: &mut Names) {
        match self {
            Self::Create { name, inode } => {
                names.insert(Arc::clone(name), *inode);
            }
            Self::Rename { to, inode, .. } => {
                names.retain(|_, held| held != inode);
                names.insert(Arc::clone(to), *inode);
            }
            Self::Remove { name, inode } => {
                if names.get(name) == Some(inode) {
                    names.remove(name);
                }
            }
        }
    }

    pub(crate) fn inode(&self) -> u64 {
        match self {
            Self::Create { inode, .. }
            | Self::Rename { inode, .. }
            | Self::Remove { inode, .. } => *inode,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(order: u64, range: Range<u64>) -> Entry {
        let len = (range.end - range.start) as usize;
        let bytes = (0..len).map(|at| (range.start as usize + at) as u8).collect();
        let place = Place::DeviceCache;
        let change = Change::Data { place, offset: range.start, bytes, start: 0, len };
        Entry { order, write: order, inode: 1, direct: true, change }
    }

    #[test]
    fn what_is_newer_on_the_medium_cuts_what_is_older_only() {
        let mut entries = vec![data(1, 0..10), data(2, 4..20), data(5, 0..10)];
        supersede(&mut entries, &data(3, 3..6));
        let left: Vec<_> = entries.iter().map(|entry| (entry.order, entry.range())).collect();
        assert_eq!(left, [(1, 0..3), (1, 6..10), (2, 6..20), (5, 0..10)]);
        assert_eq!(entries[1].bytes(), [6, 7, 8, 9]);
    }

    #[test]
    fn a_shrinking_on_the_medium_cuts_sectors_whole_and_leaves_zeros_behind_the_end() {
        let size = |order, to| Entry { change: Change::Size { to }, ..data(order, 0..0) };
        let mut entries =
            vec![data(1, 512..2048), data(2, 1024..2048), size(3, 2048), data(5, 1024..1536)];
        let change = Change::Cut { to: 600, sector_end: 1024, had: Box::default() };
        supersede(&mut entries, &Entry { change, ..data(4, 0..0) });
        let left: Vec<_> = entries.iter().map(|entry| (entry.order, entry.range())).collect();
        assert_eq!(left, [(1, 512..1024), (5, 1024..1536)]);
        assert_eq!(entries[0].bytes()[..88], data(1, 512..600).bytes()[..]);
        assert_eq!(entries[0].bytes()[88..], [0; 424]);
    }

    #[test]
    fn a_rename_is_whole_whatever_came_before() {
        let [a, b, c] = ["a", "b", "c"].map(Arc::<str>::from);
        let mut names = Names::from([(Arc::clone(&a), 1)]);
        // The rename from a to b was lost, the one from b to c was not.
        NameChange::Rename { from: b, to: Arc::clone(&c), inode: 1 }.apply(&mut names);
        assert_eq!(names, Names::from([(c, 1)]));
        NameChange::Remove { name: a, inode: 1 }.apply(&mut names);
        assert_eq!(names.len(), 1);
    }
}
