//! One page of the kernel's trace ring buffer, as `trace_pipe_raw` gives it.
//!
//! *Owns*: the page header (as described by `events/header_page`), the event headers, their times.
//! *May not touch*: files, and what an event's bytes mean. Everything in a page is checked: reading
//! a damaged page ends early and reports that.

use std::ops::Range;

use crate::trace_format::{Field, parse_fields};

/// Set in the page's commit word when events were lost before this page.
const MISSED_EVENTS: u64 = 1 << 31;
/// Set as well if their number follows the last event of the page.
const MISSED_STORED: u64 = 1 << 30;
/// The length of the data within the commit word.
const COMMIT_MASK: u64 = (1 << 27) - 1;

const TYPE_PADDING: u32 = 29;
const TYPE_TIME_EXTEND: u32 = 30;
const TYPE_TIME_STAMP: u32 = 31;
const DELTA_BITS: u32 = 27;
/// An absolute time has 59 bits; the top five come from the time before it.
const ABSOLUTE_TOP: u64 = 0xf8 << 56;

/// Where things are in a page of this kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PageLayout {
    timestamp: Field,
    commit: Field,
    data: Range<usize>,
}

/// How the reading of a page ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct PageEnd {
    /// Events that the kernel lost before this page; 1 where it knows only that there were some.
    pub(super) missed: u64,
    /// The page made no sense from some byte on: at least one event of it was not seen.
    pub(super) damaged: bool,
    /// Bytes of events in the page. A page far from full is the one that is being written.
    pub(super) data_bytes: usize,
}

impl PageLayout {
    /// Reads `events/header_page`.
    pub(super) fn parse(header_page: &str) -> Option<PageLayout> {
        let fields = parse_fields(header_page);
        let field = |name: &str| fields.iter().find(|field| field.name == name);
        let timestamp = field("timestamp")?.field;
        let commit = field("commit")?.field;
        let data = field("data")?.field;
        let end = data.offset.checked_add(data.size)?;
        let sane = timestamp.size == 8
            && matches!(commit.size, 4 | 8)
            && data.size >= 64
            && end <= 1 << 20;
        sane.then_some(PageLayout { timestamp, commit, data: data.offset..end })
    }

    /// Bytes of a whole page: what to ask `read` for.
    pub(super) fn page_bytes(&self) -> usize {
        self.data.end
    }

    /// Calls `each(time_ns, bytes)` for every event of the page, oldest first.
    pub(super) fn read(&self, page: &[u8], mut each: impl FnMut(u64, &[u8])) -> PageEnd {
        let damaged = PageEnd { damaged: true, ..PageEnd::default() };
        let Some(start_time) = self.timestamp.number(page) else { return damaged };
        let Some(commit) = self.commit.number(page) else { return damaged };
        let Some(room) = page.get(self.data.start..page.len().min(self.data.end)) else {
            return damaged;
        };
        let length = usize::try_from(commit & COMMIT_MASK).unwrap_or(usize::MAX);
        let missed = missed_events(commit, length, room);
        let Some(data) = room.get(..length) else { return PageEnd { missed, ..damaged } };
        let damaged = walk(start_time, data, &mut each).is_none();
        PageEnd { missed, damaged, data_bytes: length }
    }
}

fn missed_events(commit: u64, length: usize, room: &[u8]) -> u64 {
    if commit & MISSED_EVENTS == 0 {
        return 0;
    }
    let stored = || room.get(length..)?.first_chunk().map(|bytes| u64::from_ne_bytes(*bytes));
    let stored = (commit & MISSED_STORED != 0).then(stored).flatten();
    // A flag without a credible number still means at least one.
    stored.filter(|&count| count < 1 << 48).unwrap_or(1).max(1)
}

/// Walks over the events; `None` where one does not fit into the page.
fn walk(mut time_ns: u64, mut data: &[u8], each: &mut impl FnMut(u64, &[u8])) -> Option<()> {
    while !data.is_empty() {
        let (header, rest) = word(data)?;
        let (type_len, delta) = split_header(header);
        let delta = u64::from(delta);
        match type_len {
            TYPE_PADDING if delta == 0 => return Some(()), // Nothing but padding up to the end.
            TYPE_PADDING => {
                // An event that was taken back after its time had counted.
                time_ns = time_ns.checked_add(delta)?;
                let (length, _) = word(rest)?;
                data = rest.get(usize::try_from(length).ok()?..)?;
            }
            TYPE_TIME_EXTEND | TYPE_TIME_STAMP => {
                let (high, after) = word(rest)?;
                let value = (u64::from(high) << DELTA_BITS) | delta;
                let next = time_ns.checked_add(value);
                time_ns =
                    if type_len == TYPE_TIME_STAMP { absolute(value, time_ns) } else { next? };
                data = after;
            }
            _ => {
                time_ns = time_ns.checked_add(delta)?;
                let (payload, after) = payload(type_len, rest)?;
                each(time_ns, payload);
                data = after;
            }
        }
    }
    Some(())
}

/// The bytes of a data event: up to 112 have their length in the header, others in a word of its
/// own that counts itself.
fn payload(type_len: u32, rest: &[u8]) -> Option<(&[u8], &[u8])> {
    if type_len > 0 {
        return rest.split_at_checked(usize::try_from(type_len).ok()? * 4);
    }
    let (length, after) = word(rest)?;
    let bytes = usize::try_from(length).ok()?.checked_sub(4)?;
    let payload = after.get(..bytes)?;
    // Events start at multiples of 4; the last one of a page may lack its padding.
    let next = bytes.next_multiple_of(4).min(after.len());
    Some((payload, after.get(next..)?))
}

fn absolute(value: u64, before_ns: u64) -> u64 {
    let time_ns = value | (before_ns & ABSOLUTE_TOP);
    // The 59 bits wrapped since.
    if time_ns < before_ns && before_ns & ABSOLUTE_TOP != 0 {
        time_ns.saturating_add(1 << 59)
    } else {
        time_ns
    }
}

fn word(data: &[u8]) -> Option<(u32, &[u8])> {
    let (first, rest) = data.split_first_chunk()?;
    Some((u32::from_ne_bytes(*first), rest))
}

/// `type_len` and `time_delta` are C bit fields, which begin at the low bit of a little-endian
/// word.
fn split_header(header: u32) -> (u32, u32) {
    if cfg!(target_endian = "little") {
        (header & 31, header >> 5)
    } else {
        (header >> DELTA_BITS, header & ((1 << DELTA_BITS) - 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER_PAGE: &str = "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\
        \tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;\n\
        \tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;\n\
        \tfield: char data;\toffset:16;\tsize:4080;\tsigned:0;\n";

    fn layout() -> PageLayout {
        PageLayout::parse(HEADER_PAGE).expect("as on 6.18")
    }

    fn header(type_len: u32, delta: u32) -> [u8; 4] {
        if cfg!(target_endian = "little") {
            type_len | (delta << 5)
        } else {
            (type_len << 27) | delta
        }
        .to_ne_bytes()
    }

    fn page(time_ns: u64, flags: u64, data: &[u8], behind: &[u8]) -> Vec<u8> {
        let mut page = Vec::new();
        page.extend(time_ns.to_ne_bytes());
        page.extend((data.len() as u64 | flags).to_ne_bytes());
        page.extend(data);
        page.extend(behind);
        page.resize(4096, 0xee);
        page
    }

    fn events(page: &[u8]) -> (Vec<(u64, Vec<u8>)>, PageEnd) {
        let mut events = Vec::new();
        let end = layout().read(page, |time_ns, bytes| events.push((time_ns, bytes.to_vec())));
        (events, end)
    }

    #[test]
    fn the_page_header_is_read_from_its_description() {
        assert_eq!(layout().page_bytes(), 4096);
        assert_eq!(PageLayout::parse(""), None);
        assert_eq!(PageLayout::parse(&HEADER_PAGE.replace("4080", "8")), None);
        assert_eq!(PageLayout::parse(&HEADER_PAGE.replace("4080", "99999999999999999999")), None);
    }

    #[test]
    fn times_add_up_over_every_kind_of_event() {
        let mut data = Vec::new();
        data.extend(header(2, 5)); // 8 bytes, 5 ns later
        data.extend([1; 8]);
        data.extend(header(TYPE_TIME_EXTEND, 1)); // + (1 << 27) + 1
        data.extend(1u32.to_ne_bytes());
        data.extend(header(0, 0)); // long: 4 + 6 bytes, padded
        data.extend(10u32.to_ne_bytes());
        data.extend([2; 6]);
        data.extend([0; 2]);
        data.extend(header(TYPE_PADDING, 7)); // taken back: 8 bytes after the header
        data.extend(8u32.to_ne_bytes());
        data.extend([9; 4]);
        data.extend(header(TYPE_TIME_STAMP, 3)); // absolute
        data.extend(100u32.to_ne_bytes());
        data.extend(header(1, 1));
        data.extend([3; 4]);
        data.extend(header(TYPE_PADDING, 0)); // the end, whatever follows
        data.extend([0xff; 12]);
        let (events, end) = events(&page(1000, 0, &data, &[]));
        let absolute = (100u64 << 27) + 3;
        let expected =
            [(1005, vec![1; 8]), (1005 + (1 << 27) + 1, vec![2; 6]), (absolute + 1, vec![3; 4])];
        assert_eq!(events, expected);
        assert_eq!(end, PageEnd { data_bytes: data.len(), ..PageEnd::default() });
    }

    #[test]
    fn an_absolute_time_gets_its_top_bits_back() {
        let before = (0x08 << 56) + 500;
        assert_eq!(absolute(600, before), (0x08 << 56) + 600);
        assert_eq!(absolute(100, before), (0x10 << 56) + 100);
        assert_eq!(absolute(100, 500), 100);
    }

    #[test]
    fn lost_events_are_counted() {
        let count =
            |flags, stored: u64| events(&page(0, flags, &[], &stored.to_ne_bytes())).1.missed;
        assert_eq!((count(0, 77), count(MISSED_EVENTS, 77)), (0, 1));
        let stored = MISSED_EVENTS | MISSED_STORED;
        assert_eq!((count(stored, 77), count(stored, 0), count(stored, u64::MAX)), (77, 1, 1));
    }

    #[test]
    fn a_damaged_page_gives_what_came_before_and_says_so() {
        let mut data = header(1, 0).to_vec();
        data.extend([1; 4]);
        let broken: [&[u8]; 6] = [
            &header(28, 0),                                   // longer than the page's data
            &[header(0, 0), 3u32.to_ne_bytes()].concat(),     // shorter than its own length word
            &[header(0, 0), u32::MAX.to_ne_bytes()].concat(), // far too long
            &[header(TYPE_PADDING, 1), 4000u32.to_ne_bytes()].concat(), // padding beyond the end
            &header(TYPE_TIME_EXTEND, 1),                     // its second word is missing
            &[1, 2],                                          // half a header
        ];
        for tail in broken {
            let (events, end) = events(&page(0, 0, &[&data[..], tail].concat(), &[]));
            assert_eq!(events.len(), 1, "{tail:?}");
            assert!(end.damaged, "{tail:?}");
        }
    }

    #[test]
    fn truncated_and_garbage_pages_do_not_panic() {
        let data = [&header(2, 1)[..], &[7; 8]].concat().repeat(100);
        let whole = page(1, 0, &data, &[]);
        for length in 0..1300 {
            let (events, end) = events(&whole[..length]);
            assert!(end.damaged || events.len() == 100, "{length}");
        }
        assert!(events(&page(0, COMMIT_MASK, &[], &[])).1.damaged, "a length beyond the page");
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..20_000 {
            let mut garbage: Vec<u8> = (0..256).map(|_| random.u8(..)).collect();
            garbage[8..16].copy_from_slice(&240u64.to_ne_bytes());
            events(&garbage);
        }
    }
}
