//! A page of a section's directory: where in the section its records are.
//!
//! *Owns*: encoding, checked decoding, and searching a page; the bounded cache of pages. *May not
//! touch*: which page is wanted (`state/section.rs`), files.
//!
//! Each row of a page has consecutive numbers of one stream: the stream, the first number, the
//! count, and for each record the distance of its LSN from the one before it.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

use inkstone::Lsn;

use crate::record::bytes::{Rest, put, put_signed};

/// A page that is being written.
#[derive(Debug, Default)]
pub(crate) struct PageMaker {
    bytes: Vec<u8>,
    /// The first record that it names.
    pub(crate) first: Option<(u64, u64)>,
}

impl PageMaker {
    /// Adds consecutive numbers from `number` on, with the offsets of their records in the section.
    pub(crate) fn add(&mut self, stream: u64, number: u64, offsets: &[u32]) {
        self.first.get_or_insert((stream, number));
        put(&mut self.bytes, stream);
        put(&mut self.bytes, number);
        put(&mut self.bytes, offsets.len() as u64);
        let mut before = 0_u32;
        for offset in offsets {
            // A record that was moved here may come before one with a lower number.
            put_signed(&mut self.bytes, i64::from(*offset) - i64::from(before));
            before = *offset;
        }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// A page in memory.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Page {
    rows: Vec<PageRow>,
    offsets: Vec<u32>,
}

#[derive(Debug, PartialEq, Eq)]
struct PageRow {
    stream: u64,
    first: u64,
    /// Where its offsets begin.
    at: usize,
}

impl Page {
    /// Decodes a page; `None` for bytes that no encoder writes.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut rest = Rest(bytes);
        let mut page = Self { rows: Vec::new(), offsets: Vec::new() };
        while !rest.0.is_empty() {
            let row =
                PageRow { stream: rest.number()?, first: rest.number()?, at: page.offsets.len() };
            let count = rest.number()?;
            if count > rest.0.len() as u64 || row.first.checked_add(count).is_none() {
                return None;
            }
            let mut before = 0_i64;
            for _ in 0..count {
                before = before.checked_add(rest.signed()?)?;
                page.offsets.push(u32::try_from(before).ok()?);
            }
            if page
                .rows
                .last()
                .is_some_and(|last| (last.stream, last.first) >= (row.stream, row.first))
            {
                return None;
            }
            page.rows.push(row);
        }
        Some(page)
    }

    /// A page of these records, by stream and number, each with its offset in the section.
    pub(crate) fn of(places: &BTreeMap<(u64, u64), u32>) -> Self {
        let mut page = Self { rows: Vec::new(), offsets: Vec::new() };
        let mut next = None;
        for ((stream, number), offset) in places {
            if next != Some((*stream, *number)) {
                page.rows.push(PageRow { stream: *stream, first: *number, at: page.offsets.len() });
            }
            page.offsets.push(*offset);
            next = number.checked_add(1).map(|number| (*stream, number));
        }
        page
    }

    /// The LSN of a record that the page names, in a section with these LSNs.
    pub(crate) fn place(&self, stream: u64, number: u64, lsns: &Range<Lsn>) -> Option<Lsn> {
        let lsn = lsns.start.plus(u64::from(self.find(stream, number)?))?;
        lsns.contains(&lsn).then_some(lsn)
    }

    /// The offset of a record, if the page names it.
    fn find(&self, stream: u64, number: u64) -> Option<u32> {
        let behind = self.rows.partition_point(|row| (row.stream, row.first) <= (stream, number));
        let place = behind.checked_sub(1)?;
        let row = self.rows.get(place).filter(|row| row.stream == stream)?;
        let end = self.rows.get(behind).map_or(self.offsets.len(), |row| row.at);
        let at = row.at + usize::try_from(number - row.first).ok()?;
        self.offsets.get(at).copied().filter(|_| at < end)
    }

    /// All rows: the stream, the first number, the offsets.
    pub(crate) fn rows(&self) -> impl Iterator<Item = (u64, u64, &[u32])> {
        self.rows.iter().enumerate().map(|(place, row)| {
            let end = self.rows.get(place + 1).map_or(self.offsets.len(), |next| next.at);
            (row.stream, row.first, &self.offsets[row.at..end])
        })
    }

    fn bytes(&self) -> usize {
        size_of::<Self>() + self.rows.len() * size_of::<PageRow>() + self.offsets.len() * 4
    }
}

/// The pages that were used last, up to `bytes_max`.
#[derive(Debug)]
pub(crate) struct Cache {
    pages: HashMap<Lsn, (Arc<Page>, u64)>,
    bytes: usize,
    bytes_max: usize,
    clock: u64,
}

impl Cache {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { pages: HashMap::new(), bytes: 0, bytes_max, clock: 0 }
    }

    pub(crate) fn get(&mut self, lsn: Lsn) -> Option<Arc<Page>> {
        self.clock += 1;
        let (page, used) = self.pages.get_mut(&lsn)?;
        *used = self.clock;
        Some(Arc::clone(page))
    }

    /// Takes a page, and evicts those that were used longest ago.
    pub(crate) fn put(&mut self, lsn: Lsn, page: &Arc<Page>) {
        self.clock += 1;
        if self.pages.insert(lsn, (Arc::clone(page), self.clock)).is_none() {
            self.bytes += page.bytes();
        }
        if self.bytes <= self.bytes_max {
            return;
        }
        // Down to three quarters, so that this is rare.
        let mut used: Vec<(u64, Lsn)> =
            self.pages.iter().map(|(lsn, (_, used))| (*used, *lsn)).collect();
        used.sort_unstable();
        for (_, lsn) in used {
            if self.bytes <= self.bytes_max / 4 * 3 {
                break;
            }
            if let Some((page, _)) = self.pages.remove(&lsn) {
                self.bytes -= page.bytes();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page() -> PageMaker {
        let mut page = PageMaker::default();
        page.add(1, 7, &[5, 6, 900]);
        page.add(1, 10, &[40]);
        page.add(9, 0, &[3, 3, 3, 4]);
        page
    }

    #[test]
    fn a_page_finds_what_was_put_into_it_and_nothing_else() {
        let page = Page::decode(page().bytes()).unwrap();
        let found: Vec<_> = (6..12).map(|number| page.find(1, number)).collect();
        assert_eq!(found, [None, Some(5), Some(6), Some(900), Some(40), None]);
        assert_eq!((page.find(9, 3), page.find(9, 4), page.find(2, 1)), (Some(4), None, None));
        assert_eq!((page.find(0, 0), page.find(u64::MAX, 0)), (None, None));
        assert_eq!(
            page.rows().map(|(stream, _, offsets)| (stream, offsets.len())).collect::<Vec<_>>(),
            [(1, 3), (1, 1), (9, 4)]
        );
    }

    #[test]
    fn a_page_that_is_cut_or_changed_never_panics() {
        let bytes = page().bytes().to_vec();
        for place in 0..bytes.len() {
            let _ = Page::decode(&bytes[..place]);
            for bit in 0..8 {
                let mut bytes = bytes.clone();
                bytes[place] ^= 1 << bit;
                if let Some(page) = Page::decode(&bytes) {
                    let _ = (page.find(1, 7), page.rows().count());
                }
            }
        }
    }

    #[test]
    fn the_memory_for_pages_is_bounded_and_keeps_what_is_used() {
        let page = Arc::new(Page::decode(page().bytes()).unwrap());
        let mut cache = Cache::new(10 * page.bytes());
        for lsn in 1..100 {
            cache.put(Lsn::new(lsn), &page);
            assert!(cache.get(Lsn::new(1)).is_some(), "it is used all the time");
            assert!(cache.bytes <= 10 * page.bytes());
        }
        assert!(cache.get(Lsn::new(2)).is_none());
    }
}
