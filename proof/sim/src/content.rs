//! The content of a file, copied on write: a crash clone shares everything that does not change.
//!
//! *Owns*: bytes in 4 KiB pages, pages in groups, and sets of blocks. *May not touch*: when
//! anything becomes durable.

use std::sync::Arc;

/// A page of content, and the unit in which a file system allocates here.
pub const PAGE_BYTES: usize = 4096;
/// Pages in a group: changing one page of a shared file copies the page, and the pointers of one
/// group and of all groups. 32 keeps both short for files of some MiB.
const GROUP_PAGES: usize = 32;

type Page = [u8; PAGE_BYTES];

#[derive(Clone, Default)]
struct Group {
    pages: [Option<Arc<Page>>; GROUP_PAGES],
}

/// The bytes of a file, or of a disk, from 0 to any length; what was never written reads as zeros.
/// A clone shares all pages until one of the two is written.
#[derive(Clone, Default)]
pub struct Content {
    groups: Arc<Vec<Option<Arc<Group>>>>,
}

/// A part of a range that lies within one page.
struct Piece {
    page: usize,
    start: usize,
    len: usize,
    /// Its position in the caller's bytes.
    at: usize,
}

fn pieces(offset: u64, len: usize) -> impl Iterator<Item = Piece> {
    let mut at = 0;
    std::iter::from_fn(move || {
        if at == len {
            return None;
        }
        let position = offset as usize + at;
        let start = position % PAGE_BYTES;
        let piece = Piece {
            page: position / PAGE_BYTES,
            start,
            len: (PAGE_BYTES - start).min(len - at),
            at,
        };
        at += piece.len;
        Some(piece)
    })
}

impl Content {
    fn page(&self, page: usize) -> Option<&[u8; PAGE_BYTES]> {
        let group = self.groups.get(page / GROUP_PAGES)?.as_ref()?;
        group.pages[page % GROUP_PAGES].as_deref()
    }

    fn slot(&mut self, page: usize) -> &mut Option<Arc<Page>> {
        let groups = Arc::make_mut(&mut self.groups);
        let number = page / GROUP_PAGES;
        if groups.len() <= number {
            groups.resize(number + 1, None);
        }
        let group = groups[number].get_or_insert_with(Arc::default);
        &mut Arc::make_mut(group).pages[page % GROUP_PAGES]
    }

    /// How many pages take memory: those that hold something other than zeros.
    pub fn pages(&self) -> usize {
        let groups = self.groups.iter().flatten();
        groups.map(|group| group.pages.iter().flatten().count()).sum()
    }

    /// Whether a write to this range needs no new memory.
    pub fn has_pages(&self, offset: u64, len: usize) -> bool {
        pieces(offset, len).all(|piece| self.page(piece.page).is_some())
    }

    /// Fills `out` from `offset`.
    pub fn read(&self, offset: u64, out: &mut [u8]) {
        for piece in pieces(offset, out.len()) {
            let target = &mut out[piece.at..piece.at + piece.len];
            match self.page(piece.page) {
                Some(page) => target.copy_from_slice(&page[piece.start..piece.start + piece.len]),
                None => target.fill(0),
            }
        }
    }

    pub(crate) fn get(&self, offset: u64, len: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(len);
        for piece in pieces(offset, len) {
            match self.page(piece.page) {
                Some(page) => bytes.extend_from_slice(&page[piece.start..piece.start + piece.len]),
                None => bytes.resize(bytes.len() + piece.len, 0),
            }
        }
        bytes
    }

    /// Whether it holds `bytes` below `len`, at a multiple of 8: at least 8 of them, not all zeros.
    pub(crate) fn has(&self, bytes: &[u8], len: u64) -> bool {
        let Some(first) = bytes.first_chunk::<8>() else { return false };
        let pages = (len as usize).div_ceil(PAGE_BYTES).min(self.groups.len() * GROUP_PAGES);
        (0..pages).filter_map(|page| Some((page * PAGE_BYTES, self.page(page)?))).any(
            |(start, page)| {
                let (words, _) = page.as_chunks::<8>();
                let begins =
                    words.iter().zip((start..).step_by(8)).filter(|(word, _)| *word == first);
                let mut begins = begins.map(|(_, at)| at);
                begins.any(|at| {
                    at as u64 + bytes.len() as u64 <= len
                        && self.get(at as u64, bytes.len()) == bytes
                })
            },
        )
    }

    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        for piece in pieces(offset, bytes.len()) {
            let source = &bytes[piece.at..piece.at + piece.len];
            if self.page(piece.page).is_none() && *source == [0; PAGE_BYTES][..piece.len] {
                continue;
            }
            let slot = self.slot(piece.page);
            match source.try_into() {
                Ok(whole) => *slot = Some(Arc::new(whole)),
                Err(_) => {
                    let page = slot.get_or_insert_with(|| Arc::new([0; PAGE_BYTES]));
                    Arc::make_mut(page)[piece.start..piece.start + piece.len]
                        .copy_from_slice(source);
                }
            }
        }
    }

    pub fn zero(&mut self, offset: u64, len: usize) {
        for piece in pieces(offset, len) {
            if self.page(piece.page).is_none() {
                continue;
            }
            let slot = self.slot(piece.page);
            if piece.len == PAGE_BYTES {
                *slot = None;
            } else if let Some(page) = slot {
                Arc::make_mut(page)[piece.start..piece.start + piece.len].fill(0);
            }
        }
    }

    /// Makes everything from `len` on read as zeros.
    pub(crate) fn cut(&mut self, len: u64) {
        let end = (self.groups.len() * GROUP_PAGES * PAGE_BYTES) as u64;
        if len >= end {
            return;
        }
        let last = len as usize / PAGE_BYTES;
        let has_more =
            (last..self.groups.len() * GROUP_PAGES).any(|page| self.page(page).is_some());
        if has_more {
            self.zero(len, (end - len) as usize);
        }
    }
}

/// A set of blocks of a file.
#[derive(Clone, Default)]
pub(crate) struct Blocks {
    words: Arc<Vec<u64>>,
    count: u64,
}

/// The blocks that a range of bytes touches.
pub(crate) fn blocks_of(offset: u64, len: u64) -> std::ops::Range<u64> {
    let block = PAGE_BYTES as u64;
    if len == 0 { 0..0 } else { offset / block..(offset + len).div_ceil(block) }
}

impl Blocks {
    pub(crate) fn has(&self, block: u64) -> bool {
        self.words.get(block as usize / 64).is_some_and(|word| word >> (block % 64) & 1 == 1)
    }

    pub(crate) fn has_all(&self, blocks: std::ops::Range<u64>) -> bool {
        blocks.into_iter().all(|block| self.has(block))
    }

    /// Removes every block from `first` on.
    pub(crate) fn cut(&mut self, first: u64) {
        let end = self.words.len() as u64 * 64;
        self.set(first..end.max(first), false);
    }

    /// Adds every block from `first` on that `other` has.
    pub(crate) fn add_from(&mut self, first: u64, other: &Self) {
        for block in first..other.words.len() as u64 * 64 {
            if other.has(block) {
                self.set(block..block + 1, true);
            }
        }
    }

    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    pub(crate) fn set(&mut self, blocks: std::ops::Range<u64>, value: bool) {
        for block in blocks {
            if self.has(block) == value {
                continue;
            }
            let words = Arc::make_mut(&mut self.words);
            let number = block as usize / 64;
            if words.len() <= number {
                words.resize(number + 1, 0);
            }
            words[number] ^= 1 << (block % 64);
            self.count = if value { self.count + 1 } else { self.count - 1 };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_agrees_with_a_plain_vector() {
        let mut rng = fastrand::Rng::with_seed(1);
        let mut content = Content::default();
        let mut plain = vec![0_u8; 1 << 20];
        for round in 0..2000 {
            let at = rng.usize(..plain.len());
            let len = rng.usize(..20_000).min(plain.len() - at);
            match rng.u32(..8) {
                0 => {
                    content.zero(at as u64, len);
                    plain[at..at + len].fill(0);
                }
                1 if round % 20 == 0 => {
                    content.cut(at as u64);
                    plain[at..].fill(0);
                }
                _ => {
                    let bytes: Vec<u8> = (0..len).map(|_| rng.u8(..)).collect();
                    content.write(at as u64, &bytes);
                    plain[at..at + len].copy_from_slice(&bytes);
                }
            }
        }
        assert!(content.get(0, plain.len()) == plain);
        assert!(content.get(5 << 20, 10) == [0; 10]);
    }

    #[test]
    fn a_clone_keeps_what_it_had() {
        let mut content = Content::default();
        content.write(0, &[1; 10_000]);
        let clone = content.clone();
        content.write(4096, &[2; 4096]);
        content.zero(0, 100);
        assert!(clone.get(0, 10_000) == [1; 10_000]);
        assert_eq!((content.get(0, 1), content.get(4096, 1)), (vec![0], vec![2]));
    }

    #[test]
    fn bytes_are_found_across_pages_and_not_behind_the_end() {
        let mut content = Content::default();
        content.write(PAGE_BYTES as u64 * 40 - 16, b"beginning and end");
        let end = PAGE_BYTES as u64 * 40 + 1;
        assert!(content.has(b"beginning and end", end) && content.has(b"g and end", end));
        assert!(!content.has(b"beginning and end", end - 1));
        assert!(!content.has(b"eginning and end", end) && !content.has(b"beginning and END", end));
        assert!(!Content::default().has(b"beginning", 1 << 20));
    }

    #[test]
    fn zeros_take_no_memory() {
        let mut content = Content::default();
        content.write(0, &vec![0; (1 << 20) + 100]);
        assert_eq!(content.pages(), 0);
        content.write(4000, &[1; 200]);
        assert!(content.has_pages(0, 8192) && !content.has_pages(0, 8193));
        content.zero(0, 8192);
        assert_eq!(content.pages(), 0);
    }

    #[test]
    fn blocks_are_counted_once() {
        let mut blocks = Blocks::default();
        blocks.set(blocks_of(4095, 2), true);
        blocks.set(1..70, true);
        assert_eq!(blocks.count(), 70);
        assert!(blocks.has_all(0..70));
        assert!(!blocks.has(70) && !blocks.has(1 << 30));
        blocks.set(0..69, false);
        assert_eq!((blocks.count(), blocks.has(69)), (1, true));
        assert_eq!(blocks_of(8192, 0), 0..0);
        let mut other = Blocks::default();
        other.set(60..80, true);
        blocks.add_from(70, &other);
        assert!(blocks.count() == 11 && blocks.has_all(70..80) && !blocks.has(68));
        blocks.cut(75);
        blocks.cut(1 << 30);
        assert!(blocks.count() == 6 && blocks.has_all(69..75));
    }
}
