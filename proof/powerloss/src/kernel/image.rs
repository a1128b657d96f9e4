//! What a disk holds: sparse and shared, so a copy of a whole disk is cheap.
//!
//! *Owns*: the bytes. *May not touch*: who writes them, and what they mean.

use inkstone_sim::{Content, PAGE_BYTES};

/// What a disk writes whole: some sectors of a crash state may be old and others new, but each is
/// one or the other.
pub const SECTOR_BYTES: usize = 512;

/// The bytes of a disk. A clone shares all blocks until one of the two is written.
#[derive(Clone)]
pub struct Image {
    content: Content,
    len_bytes: u64,
}

impl std::fmt::Debug for Image {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Image({} bytes, {} blocks)", self.len_bytes, self.blocks())
    }
}

impl Image {
    /// Zeros. The size is rounded up to whole sectors.
    pub fn new(len_bytes: u64) -> Self {
        let len_bytes = len_bytes.next_multiple_of(SECTOR_BYTES as u64);
        Self { content: Content::default(), len_bytes }
    }

    pub fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// Blocks of 4 KiB that take memory: those that hold something other than zeros.
    pub fn blocks(&self) -> usize {
        self.content.pages()
    }

    /// How many more blocks take memory after a write to this range.
    pub fn more_blocks(&self, offset: u64, len: usize) -> usize {
        if self.content.has_pages(offset, len) { 0 } else { len.div_ceil(PAGE_BYTES) }
    }

    /// Fills `to` from `offset`; past the end of the disk with zeros.
    pub fn read(&self, offset: u64, to: &mut [u8]) {
        self.content.read(offset, to);
    }

    /// Writes; bytes past the end of the disk are left out.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        let room = self.len_bytes.saturating_sub(offset).min(bytes.len() as u64) as usize;
        self.content.write(offset, &bytes[..room]);
    }

    /// Fills a range with zeros, and frees the memory of whole blocks.
    pub fn clear(&mut self, offset: u64, len_bytes: u64) {
        let room = self.len_bytes.saturating_sub(offset).min(len_bytes);
        self.content.zero(offset, room as usize);
    }
}
