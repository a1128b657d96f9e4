//! The kernel's structures for the places of a file's blocks.
//!
//! *Owns*: their layout and numbers (from the kernel's uapi headers, 6.18). *May not touch*: files; each system makes the call.

/// `FIEMAP_FLAG_SYNC`: write delayed data out first, so that the answer is about the medium.
pub(crate) const FIEMAP_FLAG_SYNC: u32 = 0x1;
pub(crate) const FIEMAP_EXTENT_LAST: u32 = 0x1;
pub(crate) const FIEMAP_EXTENT_UNKNOWN: u32 = 0x2;
pub(crate) const FIEMAP_EXTENT_DELALLOC: u32 = 0x4;
pub(crate) const FIEMAP_EXTENT_ENCODED: u32 = 0x8;
pub(crate) const FIEMAP_EXTENT_DATA_INLINE: u32 = 0x200;
pub(crate) const FIEMAP_EXTENT_UNWRITTEN: u32 = 0x800;
pub(crate) const FIEMAP_EXTENT_SHARED: u32 = 0x2000;

/// `struct fiemap_extent`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct FiemapExtent {
    pub(crate) logical: u64,
    pub(crate) physical: u64,
    pub(crate) length: u64,
    reserved64: [u64; 2],
    pub(crate) flags: u32,
    reserved: [u32; 3],
}

/// How many extents one FIEMAP call fetches.
pub(crate) const FIEMAP_BATCH: usize = 256;

/// `struct fiemap` with room for [`FIEMAP_BATCH`] extents.
#[repr(C)]
pub(crate) struct Fiemap {
    pub(crate) start: u64,
    pub(crate) length: u64,
    pub(crate) flags: u32,
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
