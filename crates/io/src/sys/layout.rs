//! What the kernel is asked, and what it answers, as types.
//!
//! *Owns*: the layout of the kernel's structures and their numbers (from the kernel's uapi headers,
//! 6.18); words for its answers. *May not touch*: the calls (`linux.rs`, `macos.rs`).

/// The numbers of file systems, as `statfs` gives them.
pub(crate) const EXT4: u32 = 0xEF53;
pub(crate) const BTRFS: u32 = 0x9123_683E;
pub(crate) const XFS: u32 = 0x5846_5342;
pub(crate) const F2FS: u32 = 0xF2F5_2010;
pub(crate) const TMPFS: u32 = 0x0102_1994;
pub(crate) const OVERLAY: u32 = 0x794C_7630;

/// A file system, as the kernel names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FileSystem {
    /// The number of its kind; 0 where kinds have no fixed numbers.
    pub(crate) number: u32,
    /// The name of its kind, where the kernel gives it with the number.
    pub(crate) name: Option<String>,
}

/// The alignment that O_DIRECT needs here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DioAlignment {
    /// Alignments in bytes.
    Bytes {
        /// Of the memory.
        memory: u32,
        /// Of offset and length.
        offset: u32,
    },
    /// This file system refuses O_DIRECT, or would serve it through the page cache.
    Refused,
    /// The kernel does not report it (before Linux 6.1, or this file system does not answer).
    NotTold,
}

/// A mode of fallocate that a log uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Allocate {
    /// Reserves blocks, unwritten; the file grows to their end.
    Grow,
    /// The device writes zeros (Linux 6.17); the file grows to their end.
    WriteZeroes,
}

/// A flag of the question: write delayed data out first, so that the answer is about the medium.
pub const FIEMAP_FLAG_SYNC: u32 = 0x1;
pub(crate) const FIEMAP_EXTENT_LAST: u32 = 0x1;
/// The place is not known yet.
pub const FIEMAP_EXTENT_UNKNOWN: u32 = 0x2;
/// Not allocated yet.
pub const FIEMAP_EXTENT_DELALLOC: u32 = 0x4;
/// Stored in another form: compressed, encrypted.
pub const FIEMAP_EXTENT_ENCODED: u32 = 0x8;
/// Stored beside the file's metadata.
pub const FIEMAP_EXTENT_DATA_INLINE: u32 = 0x200;
/// Reserved, and never written: reads as zeros.
pub const FIEMAP_EXTENT_UNWRITTEN: u32 = 0x800;
/// Shared with another file.
pub const FIEMAP_EXTENT_SHARED: u32 = 0x2000;

/// `struct fiemap_extent`: a run of a file's bytes.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct FiemapExtent {
    /// First byte in the file.
    pub logical: u64,
    /// First byte on the device, as the file system counts.
    pub physical: u64,
    /// Length in bytes.
    pub length: u64,
    reserved64: [u64; 2],
    /// `FIEMAP_EXTENT_...`.
    pub flags: u32,
    reserved: [u32; 3],
}

/// How many extents one FIEMAP call fetches.
pub(crate) const FIEMAP_BATCH: usize = 256;

/// `struct fiemap` with room for [`FIEMAP_BATCH`] extents.
#[repr(C)]
pub(crate) struct Fiemap {
    start: u64,
    length: u64,
    flags: u32,
    pub(crate) mapped_extents: u32,
    extent_count: u32,
    reserved: u32,
    pub(crate) extents: [FiemapExtent; FIEMAP_BATCH],
}

impl Fiemap {
    pub(crate) fn request(start: u64, length: u64, flags: u32) -> Box<Self> {
        Box::new(Self {
            start,
            length,
            flags,
            mapped_extents: 0,
            extent_count: FIEMAP_BATCH as u32,
            reserved: 0,
            extents: [FiemapExtent::default(); FIEMAP_BATCH],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_structures_have_the_kernels_sizes() {
        assert_eq!(size_of::<FiemapExtent>(), 56);
        assert_eq!(size_of::<Fiemap>(), 32 + 56 * FIEMAP_BATCH);
    }
}
