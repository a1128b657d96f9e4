//! Hints: the positions of some records in the log's files.
//!
//! *Owns*: which records get a hint; the hints until their section is sealed; encoding and checked
//! decoding of a page of hints. *May not touch*: whether a hint is right: the log's search checks
//! it.
//!
//! A directory names records of the log, and the log would have to search its file for each. So
//! these records get a hint: the records of the directory itself, one for each [`GAP_BYTES`], and
//! every record that large. The search for any other record is one short read between two hints.

use std::collections::VecDeque;
use std::ops::Range;

use inkstone::{Hint, Lsn};

use crate::bytes::{NUMBER_BYTES_MAX, Rest, put_signed};

/// The bytes between two hints, where records are small.
const GAP_BYTES: u64 = 16 << 10;
/// The most bytes of a hint.
const HINT_BYTES_MAX: usize = 4 * NUMBER_BYTES_MAX;

/// The hints of the sections that have no directory yet.
#[derive(Debug, Default)]
pub(crate) struct Hints {
    /// Bytes appended since the last record that gets one.
    since_bytes: u64,
    /// Records that get one when they are durable.
    wanted: VecDeque<Lsn>,
    known: VecDeque<Hint>,
}

/// A page of hints.
#[derive(Debug)]
pub(crate) struct HintPage {
    /// The first record that has a hint here.
    pub(crate) first: Lsn,
    pub(crate) bytes: Vec<u8>,
    last: [u64; 4],
}

impl HintPage {
    fn new(first: Lsn) -> Self {
        Self { first, bytes: Vec::new(), last: [0; 4] }
    }

    fn add(&mut self, place: &Hint) {
        let numbers = place.numbers();
        for (number, last) in numbers.into_iter().zip(self.last) {
            put_signed(&mut self.bytes, number.wrapping_sub(last) as i64);
        }
        self.last = numbers;
    }
}

impl Hints {
    /// The next record was appended.
    pub(crate) fn appended(&mut self, lsn: Lsn, bytes: u64) {
        if self.since_bytes.max(bytes) >= GAP_BYTES {
            self.want(lsn);
            self.since_bytes = 0;
        }
        self.since_bytes += bytes;
    }

    /// This record gets a hint, however near the last one is.
    pub(crate) fn want(&mut self, lsn: Lsn) {
        self.wanted.push_back(lsn);
    }

    /// Whether this record or an earlier one still waits to be durable for its hint.
    pub(crate) fn waits_for(&self, lsn: Lsn) -> bool {
        self.wanted.front().is_some_and(|first| *first <= lsn)
    }

    /// Looks up the positions of the records that are durable by now.
    pub(crate) fn settle(&mut self, durable: Lsn, places: impl FnOnce(&[Lsn]) -> Vec<Hint>) {
        let durable = self.wanted.partition_point(|lsn| *lsn <= durable);
        let lsns: Vec<Lsn> = self.wanted.drain(..durable).collect();
        if !lsns.is_empty() {
            self.known.extend(places(&lsns));
        }
    }

    /// Takes out the hints of a section, in pages of at most `page_bytes`.
    pub(crate) fn take(&mut self, section: &Range<Lsn>, page_bytes: usize) -> VecDeque<HintPage> {
        let behind = self.known.partition_point(|place| place.lsn() < section.end);
        let before = self.known.partition_point(|place| place.lsn() < section.start);
        let mut pages: VecDeque<HintPage> = VecDeque::new();
        for place in self.known.drain(..behind).skip(before) {
            let has_room = |page: &&mut HintPage| page.bytes.len() + HINT_BYTES_MAX <= page_bytes;
            match pages.back_mut().filter(has_room) {
                Some(page) => page.add(&place),
                None => {
                    let mut page = HintPage::new(place.lsn());
                    page.add(&place);
                    pages.push_back(page);
                }
            }
        }
        pages
    }

    /// The bytes of a page with the hints for these records, in the order of the log.
    pub(crate) fn of(&self, lsns: &[Lsn]) -> Vec<u8> {
        let mut page = HintPage::new(Lsn::ZERO);
        let is_one = |place: &&Hint| lsns.binary_search(&place.lsn()).is_ok();
        self.known.iter().filter(is_one).for_each(|place| page.add(place));
        page.bytes
    }
}

/// Decodes a page of hints; `None` for bytes that no encoder writes.
pub(crate) fn decode(bytes: &[u8]) -> Option<Vec<Hint>> {
    let mut rest = Rest(bytes);
    let (mut places, mut numbers) = (Vec::new(), [0_u64; 4]);
    while !rest.0.is_empty() {
        for number in &mut numbers {
            *number = number.wrapping_add(rest.signed()? as u64);
        }
        let place = Hint::from_numbers(numbers)?;
        if places.last().is_some_and(|last: &Hint| last.lsn() >= place.lsn()) {
            return None;
        }
        places.push(place);
    }
    Some(places)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_read_back_and_bytes_that_are_cut_or_changed_never_panic() {
        let mut hints = Hints::default();
        for lsn in 1..200_u64 {
            hints.appended(Lsn::new(lsn), 3000 * (1 + lsn % 2));
        }
        let all: Vec<Lsn> = hints.wanted.iter().copied().collect();
        assert!((40..60).contains(&all.len()), "{}", all.len());
        let place = |lsn: &Lsn| {
            let numbers = [lsn.get(), 1 + lsn.get() / 100, 7, lsn.get() % 100 * 4504];
            Hint::from_numbers(numbers).unwrap()
        };
        hints.settle(Lsn::new(150), |lsns| lsns.iter().map(place).collect());
        hints.settle(Lsn::new(150), |_| panic!("no record was added"));
        let pages = hints.take(&(Lsn::new(20)..Lsn::new(140)), 100);
        let read: Vec<Hint> = pages.iter().flat_map(|page| decode(&page.bytes).unwrap()).collect();
        let is_between = |lsn: &&Lsn| (20..140).contains(&lsn.get());
        assert_eq!(read, all.iter().filter(is_between).map(place).collect::<Vec<_>>());
        assert!(pages.len() > 2 && pages.iter().all(|page| page.bytes.len() <= 100));
        for HintPage { first, bytes: page, .. } in &pages {
            assert_eq!(decode(page).unwrap()[0].lsn(), *first);
            for byte in 0..page.len() {
                let _ = decode(&page[..byte]);
                for bit in 0..8 {
                    let mut page = page.clone();
                    page[byte] ^= 1 << bit;
                    let _ = decode(&page);
                }
            }
        }
        let (some, left) = ([all[0], Lsn::new(141)], Lsn::new(140)..Lsn::new(1000));
        assert_eq!(decode(&hints.of(&some)).unwrap(), [place(&some[1])]);
        assert!(!hints.waits_for(Lsn::new(150)) && hints.waits_for(Lsn::new(160)));
        let left = hints.take(&left, 100);
        assert_eq!(left.iter().map(|page| decode(&page.bytes).unwrap().len()).sum::<usize>(), 3);
    }
}
