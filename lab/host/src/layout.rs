//! Where a file system keeps its journal on its device, so that a write's sector can be explained.
//!
//! *Owns*: choosing the reader by file system, and xfs. *May not
//! touch*: any write; no mount is needed, and a mounted file system is not disturbed.

use std::ops::Range;
use std::path::Path;

pub use crate::layout_disk::LogPlace;
use crate::layout_disk::{Disk, piece};
use crate::layout_ext4;
use inkstone_io::Result;

/// Where the journal (ext4) or log (xfs) is. Byte ranges count from the start of `device_path`.
///
/// # Errors
/// The device cannot be read; it does not hold that file system; an old journal without extents; a
/// log on another device that the superblock does not name (xfs).
pub fn log_place(device_path: &Path, file_system: &str) -> Result<LogPlace> {
    match file_system {
        "ext2" | "ext3" | "ext4" => layout_ext4::journal(&Disk::open(device_path)?),
        "xfs" => xfs_log(&Disk::open(device_path)?),
        _ => Ok(LogPlace::None),
    }
}

const XFS_SUPERBLOCK_BYTES: usize = 512;

fn xfs_log(disk: &Disk<'_>) -> Result<LogPlace> {
    let superblock = disk.read(0, XFS_SUPERBLOCK_BYTES)?;
    match xfs_log_of(&superblock) {
        Ok(Some(range)) => Ok(LogPlace::Inside(vec![range])),
        Ok(None) => Err(disk.unsupported("its log is on another device (logdev)")),
        Err(why) => Err(disk.invalid(0, why)),
    }
}

/// Numbers in xfs are big-endian. A block number has the allocation group in its upper bits, and
/// the groups are `agblocks` blocks apart, which need not be a power of two.
fn xfs_log_of(superblock: &[u8]) -> std::result::Result<Option<Range<u64>>, &'static str> {
    if !superblock.starts_with(b"XFSB") {
        return Err("no xfs superblock");
    }
    let log_start = u64::from_be_bytes(piece(superblock, 48));
    let group_blocks = u64::from(u32::from_be_bytes(piece(superblock, 84)));
    let log_blocks = u64::from(u32::from_be_bytes(piece(superblock, 96)));
    let [block_log, .., group_log] = piece::<5>(superblock, 120);
    if log_start == 0 {
        return Ok(None);
    }
    if !(9..=16).contains(&block_log) || group_log > 32 || group_blocks == 0 || log_blocks == 0 {
        return Err("an xfs superblock with impossible sizes");
    }
    let (group, block) = (log_start >> group_log, log_start & ((1 << group_log) - 1));
    let start = group.checked_mul(group_blocks).and_then(|blocks| blocks.checked_add(block));
    let start = start.and_then(|blocks| blocks.checked_mul(1 << block_log));
    let end = start.and_then(|start| start.checked_add(log_blocks << block_log));
    start.zip(end).map(|(start, end)| Some(start..end)).ok_or("an xfs log beyond all devices")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_xfs_log_is_found_through_its_group() {
        let superblock = |log_start: u64, group_blocks: u32, block_log, group_log| {
            let mut bytes = vec![0; XFS_SUPERBLOCK_BYTES];
            bytes[..4].copy_from_slice(b"XFSB");
            bytes[48..56].copy_from_slice(&log_start.to_be_bytes());
            bytes[84..88].copy_from_slice(&group_blocks.to_be_bytes());
            bytes[96..100].copy_from_slice(&16u32.to_be_bytes());
            (bytes[120], bytes[124]) = (block_log, group_log);
            xfs_log_of(&bytes)
        };
        // Group 2, block 6, groups of 1000 blocks (so 10 bits), blocks of 4096 bytes.
        assert_eq!(superblock(2 << 10 | 6, 1000, 12, 10), Ok(Some(2006 * 4096..2022 * 4096)));
        assert_eq!(superblock(0, 1000, 12, 10), Ok(None));
        assert!(superblock(1, 1000, 63, 10).is_err() && superblock(1, 1000, 12, 255).is_err());
        assert!(superblock(u64::MAX, u32::MAX, 16, 0).is_err() && xfs_log_of(&[]).is_err());
    }

    #[test]
    fn garbage_has_no_log() {
        let made = tempfile::tempdir().expect("a directory");
        let (zeros, missing) = (Path::new("/dev/zero"), &*made.path().join("missing"));
        assert_eq!(log_place(missing, "btrfs").expect("none"), LogPlace::None);
        for (device, kind) in [(zeros, "xfs"), (zeros, "ext4"), (missing, "ext4")] {
            assert!(log_place(device, kind).is_err(), "{} {kind}", device.display());
        }
    }
}
