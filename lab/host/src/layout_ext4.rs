//! The journal's blocks on an ext4 device: superblock, journal inode, extent tree.
//!
//! *Owns*: the few fields of ext4's format that lead to the journal. *May not touch*: anything but
//! reads through [`Disk`]; each number from the device is checked before it is used.

use std::ops::Range;

use crate::layout::{Disk, piece};
use inkstone_io::Result;

const SUPERBLOCK_AT: u64 = 1024;
const MAGIC: u16 = 0xEF53;
const COMPAT_HAS_JOURNAL: u32 = 0x4;
const INCOMPAT_JOURNAL_DEVICE: u32 = 0x8;
const INCOMPAT_META_BG: u32 = 0x10;
const INCOMPAT_64BIT: u32 = 0x80;
const INODE_EXTENTS: u32 = 0x8_0000;
const EXTENT_MAGIC: u16 = 0xF30A;
/// Longer extents than this are unwritten ones, with this added to their length.
const EXTENT_WRITTEN_MAX: u64 = 32768;
/// The kernel's own limit of an extent tree's depth.
const DEPTH_MAX: u16 = 5;
/// More extents than any journal has: a cycle in a damaged tree ends here.
const EXTENTS_MAX: usize = 100_000;
/// Bytes of `i_block` in an inode: the root of the extent tree.
const ROOT_BYTES: usize = 60;

struct Superblock {
    block_bytes: u64,
    blocks: u64,
    first_data_block: u64,
    inodes_per_group: u32,
    inode_bytes: u64,
    descriptor_bytes: u64,
    journal_inode: u32,
    wide: bool,
    meta_groups: bool,
}

/// The journal's byte ranges; empty where the file system has none.
pub(super) fn journal(disk: &Disk<'_>) -> Result<Vec<Range<u64>>> {
    let bytes = disk.read(SUPERBLOCK_AT, 1024)?;
    let word = |offset| u32::from_le_bytes(piece(&bytes, offset));
    if u16::from_le_bytes(piece(&bytes, 0x38)) != MAGIC {
        return Err(disk.invalid(SUPERBLOCK_AT, "no ext4 superblock"));
    }
    let (compat, incompat) = (word(0x5C), word(0x60));
    if incompat & INCOMPAT_JOURNAL_DEVICE != 0 {
        return Err(disk.unsupported("this is an external journal itself, not a file system"));
    }
    if compat & COMPAT_HAS_JOURNAL == 0 {
        return Ok(Vec::new());
    }
    if word(0xE4) != 0 {
        return Err(disk.unsupported("its journal is on another device (journal_dev)"));
    }
    let superblock = superblock(&bytes, incompat)
        .ok_or_else(|| disk.invalid(SUPERBLOCK_AT, "an ext4 superblock with impossible sizes"))?;
    let root = journal_root(disk, &superblock)?;
    let mut found = Vec::new();
    walk(disk, &superblock, &root, None, &mut found)?;
    found.sort_by_key(|(logical, _)| *logical);
    let ranges = found.into_iter().map(|(_, range)| range).collect();
    Ok(joined(ranges))
}

fn superblock(bytes: &[u8], incompat: u32) -> Option<Superblock> {
    let word = |offset| u32::from_le_bytes(piece(bytes, offset));
    let half = |offset| u64::from(u16::from_le_bytes(piece(bytes, offset)));
    let wide = incompat & INCOMPAT_64BIT != 0;
    let block_log = word(0x18);
    let high = if wide { u64::from(word(0x150)) } else { 0 };
    let superblock = Superblock {
        block_bytes: 1024u64.checked_shl(block_log).filter(|_| block_log <= 6)?,
        blocks: u64::from(word(0x4)) | high << 32,
        first_data_block: u64::from(word(0x14)),
        inodes_per_group: word(0x28),
        // The first revision has no such field.
        inode_bytes: if word(0x4C) == 0 { 128 } else { half(0x58) },
        descriptor_bytes: if wide { half(0xFE) } else { 32 },
        journal_inode: word(0xE0),
        wide,
        meta_groups: incompat & INCOMPAT_META_BG != 0,
    };
    let sane = superblock.blocks > 0
        && superblock.first_data_block <= 1
        && superblock.inodes_per_group > 0
        && (128..=superblock.block_bytes).contains(&superblock.inode_bytes)
        && (32..=superblock.block_bytes).contains(&superblock.descriptor_bytes)
        && superblock.journal_inode > 0;
    sane.then_some(superblock)
}

/// `i_block` of the journal's inode, found through its group's descriptor.
///
/// The superblock keeps a copy of it (`s_jnl_blocks`), but only the inode is what the kernel itself
/// uses.
fn journal_root(disk: &Disk<'_>, superblock: &Superblock) -> Result<Vec<u8>> {
    let index = superblock.journal_inode - 1;
    let (group, index) = (index / superblock.inodes_per_group, index % superblock.inodes_per_group);
    if group > 0 && superblock.meta_groups {
        return Err(disk
            .unsupported("its journal's inode is in a later group of a file system with meta_bg"));
    }
    let table = (superblock.first_data_block + 1) * superblock.block_bytes;
    let descriptor_at = table + u64::from(group) * superblock.descriptor_bytes;
    let descriptor = disk.read(descriptor_at, 64)?;
    let low = u64::from(u32::from_le_bytes(piece(&descriptor, 0x8)));
    let high = u64::from(u32::from_le_bytes(piece(&descriptor, 0x28)));
    let high = if superblock.wide && superblock.descriptor_bytes >= 64 { high } else { 0 };
    let inodes = low | high << 32;
    if inodes == 0 || inodes >= superblock.blocks {
        return Err(disk.invalid(descriptor_at, "an ext4 group without a table of inodes"));
    }
    let inode_at = inodes * superblock.block_bytes + u64::from(index) * superblock.inode_bytes;
    let inode = disk.read(inode_at, 128)?;
    if u32::from_le_bytes(piece(&inode, 0x20)) & INODE_EXTENTS == 0 {
        return Err(disk.unsupported("its journal has a block map of ext3's kind, not extents"));
    }
    Ok(piece::<ROOT_BYTES>(&inode, 0x28).to_vec())
}

/// Collects the extents below a node. `depth` is what the node above demands.
fn walk(
    disk: &Disk<'_>,
    superblock: &Superblock,
    node: &[u8],
    depth: Option<u16>,
    found: &mut Vec<(u32, Range<u64>)>,
) -> Result<()> {
    let half = |offset| u16::from_le_bytes(piece(node, offset));
    let (magic, entries, own_depth) = (half(0), usize::from(half(2)), half(6));
    let fits = (entries + 1) * 12 <= node.len();
    if magic != EXTENT_MAGIC
        || !fits
        || own_depth > DEPTH_MAX
        || depth.is_some_and(|depth| depth != own_depth)
    {
        return Err(disk.invalid(0, "a damaged extent tree of the ext4 journal"));
    }
    for entry in node.chunks_exact(12).skip(1).take(entries) {
        let logical = u32::from_le_bytes(piece(entry, 0));
        if own_depth == 0 {
            let length = u64::from(u16::from_le_bytes(piece(entry, 4)));
            let length =
                if length > EXTENT_WRITTEN_MAX { length - EXTENT_WRITTEN_MAX } else { length };
            let high = u64::from(u16::from_le_bytes(piece(entry, 6)));
            let start = u64::from(u32::from_le_bytes(piece(entry, 8))) | high << 32;
            if length == 0 || start + length > superblock.blocks || found.len() >= EXTENTS_MAX {
                return Err(disk.invalid(0, "an extent of the ext4 journal beyond the file system"));
            }
            found.push((
                logical,
                start * superblock.block_bytes..(start + length) * superblock.block_bytes,
            ));
        } else {
            let high = u64::from(u16::from_le_bytes(piece(entry, 8)));
            let block = u64::from(u32::from_le_bytes(piece(entry, 4))) | high << 32;
            if block == 0 || block >= superblock.blocks {
                return Err(disk.invalid(0, "an index of the ext4 journal beyond the file system"));
            }
            let length = usize::try_from(superblock.block_bytes).unwrap_or(0);
            let child = disk.read(block * superblock.block_bytes, length)?;
            walk(disk, superblock, &child, Some(own_depth - 1), found)?;
        }
    }
    Ok(())
}

/// Joins ranges that follow each other.
fn joined(ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
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
    fn neighbours_are_joined_and_impossible_superblocks_refused() {
        assert_eq!(joined(vec![0..4, 4..8, 10..12, 8..10]), [0..8, 10..12, 8..10]);
        for bytes in [&[][..], &[0; 1024], &[0xff; 1024]] {
            assert!(superblock(bytes, INCOMPAT_64BIT).is_none());
        }
    }
}
