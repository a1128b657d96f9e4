//! What a disk holds: blocks of 4 KiB, sparse and shared, so a copy of a whole disk is cheap.
//!
//! *Owns*: the blocks. *May not touch*: who writes them, and what they mean.

use std::sync::Arc;

/// What a disk writes whole: some sectors of a crash state may be old and others new, but each is
/// one or the other.
pub const SECTOR_BYTES: usize = 512;
const BLOCK_BYTES: usize = 4096;
const CHUNK_BLOCKS: usize = 256;
const CHUNK_BYTES: u64 = (BLOCK_BYTES * CHUNK_BLOCKS) as u64;

type Block = [u8; BLOCK_BYTES];

/// A run of blocks; those that are missing hold zeros.
#[derive(Clone)]
struct Chunk([Option<Arc<Block>>; CHUNK_BLOCKS]);

impl Chunk {
    fn empty() -> Self {
        Self([const { None }; CHUNK_BLOCKS])
    }
}

/// The bytes of a disk. A clone shares all blocks until one of the two is written.
#[derive(Clone)]
pub struct Image {
    chunks: Vec<Option<Arc<Chunk>>>,
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
        Self { chunks: vec![None; len_bytes.div_ceil(CHUNK_BYTES) as usize], len_bytes }
    }

    /// Its size.
    pub fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// Blocks that take memory: those that hold something other than zeros.
    pub fn blocks(&self) -> usize {
        self.chunks.iter().flatten().map(|chunk| chunk.0.iter().flatten().count()).sum()
    }

    /// Fills `to` from `offset`; past the end of the disk with zeros.
    pub fn read(&self, offset: u64, to: &mut [u8]) {
        let mut done = 0;
        while done < to.len() {
            let at = offset + done as u64;
            let within = (at % BLOCK_BYTES as u64) as usize;
            let bytes = (BLOCK_BYTES - within).min(to.len() - done);
            let target = &mut to[done..done + bytes];
            match self.block(at) {
                Some(block) => target.copy_from_slice(&block[within..within + bytes]),
                None => target.fill(0),
            }
            done += bytes;
        }
    }

    fn block(&self, at: u64) -> Option<&Arc<Block>> {
        let chunk = self.chunks.get((at / CHUNK_BYTES) as usize)?.as_ref()?;
        chunk.0[(at % CHUNK_BYTES) as usize / BLOCK_BYTES].as_ref()
    }

    /// Whether a write to this range needs no new memory.
    pub fn is_allocated(&self, offset: u64, len: usize) -> bool {
        let first = offset / BLOCK_BYTES as u64;
        let end = (offset + len as u64).div_ceil(BLOCK_BYTES as u64);
        (first..end).all(|block| self.block(block * BLOCK_BYTES as u64).is_some())
    }

    /// Writes; bytes past the end of the disk are left out.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        let room = self.len_bytes.saturating_sub(offset).min(bytes.len() as u64) as usize;
        let bytes = &bytes[..room];
        let mut done = 0;
        while done < bytes.len() {
            let at = offset + done as u64;
            let within = (at % BLOCK_BYTES as u64) as usize;
            let count = (BLOCK_BYTES - within).min(bytes.len() - done);
            let piece = &bytes[done..done + count];
            // Zeros in a missing block need no block: mkfs writes a great many.
            if self.block(at).is_some() || piece.iter().any(|&byte| byte != 0) {
                let chunk = &mut self.chunks[(at / CHUNK_BYTES) as usize];
                let chunk = Arc::make_mut(chunk.get_or_insert_with(|| Arc::new(Chunk::empty())));
                let block = &mut chunk.0[(at % CHUNK_BYTES) as usize / BLOCK_BYTES];
                let block = block.get_or_insert_with(|| Arc::new([0; BLOCK_BYTES]));
                Arc::make_mut(block)[within..within + count].copy_from_slice(piece);
            }
            done += count;
        }
    }

    /// Fills a range with zeros, and frees the memory of whole blocks.
    pub fn clear(&mut self, offset: u64, len_bytes: u64) {
        let end = offset.saturating_add(len_bytes).min(self.len_bytes);
        let mut at = offset;
        while at < end {
            let within = at % BLOCK_BYTES as u64;
            let count = (BLOCK_BYTES as u64 - within).min(end - at);
            if count == BLOCK_BYTES as u64 {
                let chunk = &mut self.chunks[(at / CHUNK_BYTES) as usize];
                if let Some(chunk) = chunk.as_mut() {
                    let place = (at % CHUNK_BYTES) as usize / BLOCK_BYTES;
                    if chunk.0[place].is_some() {
                        Arc::make_mut(chunk).0[place] = None;
                    }
                }
            } else if self.block(at).is_some() {
                self.write(at, &[0; BLOCK_BYTES][..count as usize]);
            }
            at += count;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clone_is_another_disk() {
        let mut rng = fastrand::Rng::with_seed(3);
        let size = 3 * CHUNK_BYTES as usize + 1536;
        let mut image = Image::new(size as u64);
        let mut plain = vec![0_u8; size];
        let mut older = None;
        for round in 0..400 {
            let at = rng.usize(..size);
            let len = rng.usize(..30_000).min(size - at);
            if rng.u8(..3) == 0 {
                image.clear(at as u64, len as u64);
                plain[at..at + len].fill(0);
            } else {
                let bytes: Vec<u8> = std::iter::repeat_with(|| rng.u8(..)).take(len).collect();
                image.write(at as u64, &bytes);
                plain[at..at + len].copy_from_slice(&bytes);
            }
            if round == 200 {
                older = Some((image.clone(), plain.clone()));
            }
        }
        let whole = |image: &Image| {
            let mut bytes = vec![9; size];
            image.read(0, &mut bytes);
            bytes
        };
        let (old, old_plain) = older.expect("round 200 was");
        assert!(whole(&image) == plain && whole(&old) == old_plain && plain != old_plain);
        image.write(size as u64 - 1, &[7, 7, 7]);
        let mut end = [9; 4];
        image.read(size as u64 - 1, &mut end);
        assert_eq!(end, [7, 0, 0, 0], "nothing is behind the end");
    }

    #[test]
    fn zeros_take_no_memory() {
        let mut image = Image::new(1 << 30);
        image.write(0, &[0; 100_000]);
        assert_eq!(image.blocks(), 0);
        image.write(4000, &[1; 200]);
        assert_eq!(image.blocks(), 2);
        assert!(image.is_allocated(0, 8192) && !image.is_allocated(0, 8193));
        image.clear(0, 8192);
        assert_eq!(image.blocks(), 0);
    }
}
