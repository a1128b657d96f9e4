//! What kind of disk and file system is simulated, and how often they fail by themselves.
//!
//! *Owns*: the choices and their defaults. *May not touch*: the state of a disk.

use std::time::Duration;

/// Which directory operations a crash may leave behind, of those not synced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DirectoryOrder {
    /// Any subset, each operation whole: what a file system without a journal may do.
    Any,
    /// A prefix of all operations, in all directories together, as a journal keeps them. A
    /// directory's sync makes every earlier operation durable, including those of other
    /// directories.
    Prefix,
}

/// What a new block shows after a crash that kept the file's size and lost the block's data. Blocks
/// that were allocated by fallocate always read as zeros: their extents say that they are
/// unwritten.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NewBlocks {
    Zeros,
    Garbage,
    /// What the file removed last had at the same offset: its blocks were reused.
    Stale,
}

/// What a failed sync leaves behind in memory. In all cases the pages are marked clean and the
/// medium has the old bytes, so a second sync succeeds but saves nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterEffect {
    /// Reads still show the new bytes (ext4 with ordered data, xfs).
    KeepsNew,
    /// As `KeepsNew`, but this sync reports success, and the *next* one of the file fails (ext4,
    /// data=journal).
    ReportsLater,
    /// Content and size revert to the old ones (btrfs).
    RevertsToOld,
}

impl AfterEffect {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::KeepsNew, Self::ReportsLater, Self::RevertsToOld];
}

/// How often faults occur at random, each in parts per million of the operations that it can happen
/// to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FaultRates {
    pub read_error_ppm: u32,
    /// A write fails with `EIO` after any part of it was carried out; a change of size without
    /// doing anything.
    pub write_error_ppm: u32,
    /// A sync of a file fails, with [`DiskOptions::after_effect`].
    pub sync_error_ppm: u32,
    /// A directory's sync, a rename, a removal, an opening or a lock fails with `EIO`.
    pub directory_error_ppm: u32,
    /// A write, a preparation or a creation fails with `ENOSPC`.
    pub no_space_ppm: u32,
    /// A read or write is done in two parts.
    pub short_ppm: u32,
}

/// How long the device takes, by the disk's own clock: half as long to twice as long, and now and
/// then ten times as long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Times {
    pub write: Duration,
    pub flush: Duration,
    /// A write past the device's cache.
    pub fua_write: Duration,
}

/// The kind of disk. [`Default`] is an honest device with a volatile cache and FUA, under a file
/// system that promises no more than the seam does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskOptions {
    /// What the device writes whole: a power of two from 512 to 4096.
    pub sector_bytes: usize,
    /// How many bytes of blocks the file system can allocate, if there is a limit.
    pub capacity_bytes: Option<u64>,
    /// Whether the file system copies on write: overwriting written blocks needs room for the new
    /// ones while the old ones are still there (btrfs). The first write of a block that was only
    /// reserved needs none.
    pub copy_on_write: bool,
    /// Whether a creation or a rename needs room for a block of the directory (xfs, now and then):
    /// without a free block it fails with `ENOSPC`. A removal never does.
    pub names_need_room: bool,
    /// Whether a flush covers the whole device, or only one file (as with a log and its neighbour
    /// on two devices).
    pub flush_is_global: bool,
    /// Whether a direct `O_DSYNC` write over blocks that are already written is one FUA write,
    /// which makes nothing else durable. Otherwise it is a write and a flush.
    pub has_fua: bool,
    /// How long the device takes. If it is known, the directory says what the file system and the
    /// device can do: there is a volatile cache, and FUA if the disk has it. Otherwise nothing is
    /// known, and no time passes.
    pub times: Option<Times>,
    /// Whether the file system has `O_DIRECT`.
    pub has_direct: bool,
    /// A file that was opened with `O_DIRECT` takes no writes (`EINVAL`).
    pub refuses_direct_writes: bool,
    /// How often, in parts per million of operations, the kernel writes a dirty range back by
    /// itself.
    pub writeback_ppm: u32,
    /// Which unsynced directory operations a crash may leave behind.
    pub directory_order: DirectoryOrder,
    /// What a new block without its data shows after a crash.
    pub new_blocks: NewBlocks,
    /// Whether a sampled crash may leave garbage in a sector that was being written. A log that
    /// rewrites the sector in which its durable tail ends relies on a device that does not.
    pub garbage_at_crash: bool,
    /// What a failed sync leaves behind; drawn from the seed if `None`.
    pub after_effect: Option<AfterEffect>,
    /// How often faults occur at random.
    pub rates: FaultRates,
}

impl Default for DiskOptions {
    fn default() -> Self {
        Self {
            sector_bytes: 512,
            capacity_bytes: None,
            copy_on_write: false,
            names_need_room: false,
            flush_is_global: true,
            has_fua: true,
            times: None,
            has_direct: true,
            refuses_direct_writes: false,
            writeback_ppm: 50_000,
            directory_order: DirectoryOrder::Any,
            new_blocks: NewBlocks::Zeros,
            garbage_at_crash: false,
            after_effect: None,
            rates: FaultRates::default(),
        }
    }
}
