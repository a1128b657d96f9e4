//! The journal's blocks on an ext4 device: superblock, extent tree.
//!
//! *Owns*: the few fields of ext4's format that lead to the journal. *May not touch*: anything but
//! reads through [`Disk`]; each number from the device is checked before it is used.

use std::fs;
use std::ops::Range;
use std::path::Path;

use crate::layout_disk::{Disk, LogPlace, piece};
use inkstone_io::{DeviceNumber, Result};

const SUPERBLOCK_AT: u64 = 1024;
const MAGIC: u16 = 0xEF53;
const COMPAT_HAS_JOURNAL: u32 = 0x4;
const INCOMPAT_JOURNAL_DEVICE: u32 = 0x8;
const INCOMPAT_64BIT: u32 = 0x80;
/// The superblock has a copy of the journal inode's blocks: the root of its extent tree.
const BACKUP_IS_BLOCKS: u8 = 1;
const ROOT_BYTES: usize = 60;
const EXTENT_MAGIC: u16 = 0xF30A;
/// Longer extents than this are unwritten ones, with this added to their length.
const EXTENT_WRITTEN_MAX: u16 = 32768;
/// The kernel's own limit of an extent tree's depth.
const DEPTH_MAX: u16 = 5;
/// More extents than any journal has: a cycle in a damaged tree ends here.
const EXTENTS_MAX: usize = 100_000;

/// Where the journal is.
pub(super) fn journal(disk: &Disk<'_>) -> Result<LogPlace> {
    let bytes = disk.read(SUPERBLOCK_AT, 1024)?;
    let word = |offset| u32::from_le_bytes(piece(&bytes, offset));
    if half(&bytes, 0x38) != MAGIC {
        return Err(disk.invalid(SUPERBLOCK_AT, "no ext4 superblock"));
    }
    let (compat, incompat) = (word(0x5C), word(0x60));
    if incompat & INCOMPAT_JOURNAL_DEVICE != 0 {
        return Err(disk.unsupported("this is an external journal itself, not a file system"));
    }
    if compat & COMPAT_HAS_JOURNAL == 0 {
        return Ok(LogPlace::None);
    }
    if word(0xE4) != 0 {
        let missing = || disk.unsupported("its journal is on another device, which was not found");
        let hint = DeviceNumber::from_st_dev(u64::from(word(0xE4)));
        return outside(hint, &piece(&bytes, 0xD0)).map(LogPlace::Outside).ok_or_else(missing);
    }
    let root = piece::<ROOT_BYTES>(&bytes, 0x10C);
    if bytes.get(0xFD) != Some(&BACKUP_IS_BLOCKS) || half(&root, 0) != EXTENT_MAGIC {
        return Err(disk.unsupported("its journal has a block map of ext3's kind, not extents"));
    }
    let high = if incompat & INCOMPAT_64BIT != 0 { word(0x150) } else { 0 };
    let (block_log, blocks) = (word(0x18), number(word(0x4), high));
    if block_log > 6 || blocks == 0 {
        return Err(disk.invalid(SUPERBLOCK_AT, "an ext4 superblock with impossible sizes"));
    }
    let mut tree = Tree { disk, block_bytes: 1024 << block_log, blocks, found: Vec::new() };
    tree.walk(&root, None)?;
    tree.found.sort_by_key(|(logical, _)| *logical);
    Ok(LogPlace::Inside(joined(tree.found.into_iter().map(|(_, range)| range))))
}

/// The device with the journal of this name: the one that the file system names, or, since numbers
/// change when a machine starts, any in use as a journal.
fn outside(hint: DeviceNumber, name: &[u8; 16]) -> Option<DeviceNumber> {
    let in_use = fs::read_dir("/proc/fs/jbd2").into_iter().flatten().flatten();
    let in_use = in_use.filter_map(|entry| {
        let device = Path::new("/sys/class/block").join(entry.file_name()).join("dev");
        fs::read_to_string(device).ok()?.trim().parse().ok()
    });
    std::iter::once(hint).chain(in_use).find(|number| is_journal(*number, name).unwrap_or(false))
}

fn is_journal(number: DeviceNumber, name: &[u8; 16]) -> Option<bool> {
    let own = fs::canonicalize(number.sysfs()).ok()?;
    let node = Path::new("/dev").join(own.file_name()?.to_string_lossy().replace('!', "/"));
    let bytes = Disk::open(&node).ok()?.read(SUPERBLOCK_AT, 1024).ok()?;
    let is_one = u32::from_le_bytes(piece(&bytes, 0x60)) & INCOMPAT_JOURNAL_DEVICE != 0;
    Some(half(&bytes, 0x38) == MAGIC && is_one && piece::<16>(&bytes, 0x68) == *name)
}

fn half(bytes: &[u8], offset: usize) -> u16 {
    u16::from_le_bytes(piece(bytes, offset))
}

fn number(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

struct Tree<'a> {
    disk: &'a Disk<'a>,
    block_bytes: u64,
    blocks: u64,
    /// By the block of the journal at which each begins.
    found: Vec<(u32, Range<u64>)>,
}

impl Tree<'_> {
    /// Collects the extents below a node. `depth` is what the node above demands.
    fn walk(&mut self, node: &[u8], depth: Option<u16>) -> Result<()> {
        let damaged =
            |disk: &Disk<'_>| disk.invalid(0, "a damaged extent tree of the ext4 journal");
        let (entries, own_depth) = (usize::from(half(node, 2)), half(node, 6));
        let is_sane = half(node, 0) == EXTENT_MAGIC
            && (entries + 1) * 12 <= node.len()
            && own_depth <= DEPTH_MAX
            && depth.is_none_or(|depth| depth == own_depth);
        if !is_sane {
            return Err(damaged(self.disk));
        }
        for entry in node.chunks_exact(12).skip(1).take(entries) {
            let word = |offset| u32::from_le_bytes(piece(entry, offset));
            let is_leaf = own_depth == 0;
            let (block, length) = if is_leaf {
                let length = half(entry, 4);
                let unwritten = length.checked_sub(EXTENT_WRITTEN_MAX).filter(|rest| *rest > 0);
                let block = number(word(8), half(entry, 6).into());
                (block, u64::from(unwritten.unwrap_or(length)))
            } else {
                (number(word(4), half(entry, 8).into()), 1)
            };
            let is_inside = block > 0 && length > 0 && block + length <= self.blocks;
            if !is_inside || self.found.len() >= EXTENTS_MAX {
                return Err(damaged(self.disk));
            }
            let start = block * self.block_bytes;
            if is_leaf {
                self.found.push((word(0), start..start + length * self.block_bytes));
            } else {
                let child = self.disk.read(start, self.block_bytes as usize)?;
                self.walk(&child, Some(own_depth - 1))?;
            }
        }
        Ok(())
    }
}

/// Joins ranges that follow each other.
fn joined(ranges: impl Iterator<Item = Range<u64>>) -> Vec<Range<u64>> {
    let mut joined: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match joined.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => joined.push(range),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_joined() {
        let ranges = [0..4, 4..8, 10..12, 8..10].into_iter();
        assert_eq!(joined(ranges), [0..8, 10..12, 8..10]);
    }
}
