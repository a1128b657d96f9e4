//! A log with gaps: what salvage makes of damage, and what every call then does with it.
//!
//! *Owns*: gaps, in every reader and at every edge. *May not touch*: which damage is found, and what
//! it costs (`inkstone powerloss sim`, class `rot`), the crate's insides.

#![allow(clippy::unwrap_used, reason = "the helpers of a test are a test too")]

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::history::{LOG, append, name, open, record, small};
use inkstone::inspect::{self, Control, Entry, Gap, Salvage};
use inkstone::{Directory, Error, Log, Lsn, Options, Reader};
use inkstone_io::{File, OpenFile};
use inkstone_sim::{DiskOptions, SimDisk};

const SAVED: &str = "/saved";

/// What a reader says of an LSN, in short.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Is {
    Record(Vec<u8>),
    Lost(u64, u64),
}

fn is(found: inkstone::Result<Vec<u8>>) -> Is {
    match found {
        Ok(bytes) => Is::Record(bytes),
        Err(Error::Lost { first, last }) => Is::Lost(first.get(), last.get()),
        Err(error) => panic!("{error}"),
    }
}

/// Where the records of a log lie: LSN, segment, place of the frame, its length.
fn places(disk: &SimDisk) -> BTreeMap<u64, (u64, u64, u64)> {
    let entries = inspect::dump_in(&disk.directory(LOG), 0).unwrap().map(Result::unwrap);
    let place = |entry| match entry {
        Entry::Frame { segment, at, lsn, payload_bytes, control: None, .. } => {
            Some((lsn.get(), (segment.get(), at, 24 + payload_bytes as u64)))
        }
        _ => None,
    };
    entries.filter_map(place).collect()
}

/// Zeros over these records, header and all.
fn destroy(disk: &SimDisk, lost: &[RangeInclusive<u64>]) {
    let places = places(disk);
    for lsn in lost.iter().cloned().flatten() {
        let (segment, at, bytes) = places[&lsn];
        let file = disk.directory(LOG).open(&name(segment), &OpenFile::existing()).unwrap();
        file.write_at(&vec![0; bytes as usize], at).unwrap();
    }
}

/// Zeros over these records, each in a group of its own, and over the headers of the groups.
fn destroy_groups(disk: &SimDisk, lost: RangeInclusive<u64>) {
    let places = places(disk);
    for lsn in lost {
        let (segment, at, bytes) = places[&lsn];
        let file = disk.directory(LOG).open(&name(segment), &OpenFile::existing()).unwrap();
        file.write_at(&vec![0; 48 + bytes as usize], at - 48).unwrap();
    }
}

fn salvage(disk: &SimDisk, from: &str, to: &str) -> inkstone::Result<Salvage> {
    inspect::salvage_in(&disk.directory(from), || Ok(Arc::new(disk.directory(to))), &small())
}

fn saved(disk: &SimDisk) -> Log {
    Log::open_in(Arc::new(disk.directory(SAVED)), small().create(false)).unwrap()
}

/// A log of `records` records, each in a group of its own, of which these were destroyed; then
/// salvaged.
fn with_gaps(records: u64, lost: &[RangeInclusive<u64>]) -> SimDisk {
    let disk = SimDisk::new(records, DiskOptions::default());
    let log = open(&disk, small()).unwrap();
    append(&log, 1, records).unwrap();
    log.close().unwrap();
    destroy(&disk, lost);
    let salvaged = salvage(&disk, LOG, SAVED).unwrap();
    assert_eq!(lost_of(&salvaged.gaps), lost);
    disk
}

fn lost_of(gaps: &[Gap]) -> Vec<RangeInclusive<u64>> {
    gaps.iter().map(|gap| gap.first.get()..=gap.last.get()).collect()
}

/// What a log with these gaps has from `first` on: every record, and every gap once.
fn expected(first: u64, last: u64, lost: &[RangeInclusive<u64>]) -> Vec<Is> {
    let mut all = Vec::new();
    let mut lsn = first;
    while lsn <= last {
        if let Some(gap) = lost.iter().find(|gap| gap.contains(&lsn)) {
            all.push(Is::Lost(first.max(*gap.start()), *gap.end()));
            lsn = gap.end() + 1;
        } else {
            all.push(Is::Record(record(lsn)));
            lsn += 1;
        }
    }
    all
}

fn shown(reader: &Reader, first: u64) -> Vec<Is> {
    // A reader that stays at a gap would never end.
    let found = reader.records(Lsn::new(first)).take(1000);
    found.map(|found| is(found.map(|found| found.bytes))).collect()
}

/// Cursors, iterators and searches, from every LSN.
fn check_readers(reader: &Reader, first: u64, last: u64, lost: &[RangeInclusive<u64>]) {
    assert_eq!((reader.first(), reader.durable()), (Lsn::new(first), Lsn::new(last)));
    assert_eq!(shown(reader, first), expected(first, last, lost));
    let all = expected(first, last, lost);
    let followed = reader.follow(Lsn::new(first)).take(all.len());
    let followed: Vec<_> = followed.map(|found| is(found.map(|found| found.bytes))).collect();
    assert_eq!(followed, all);
    let mut order: Vec<u64> = (first..=last).collect();
    fastrand::Rng::with_seed(last).shuffle(&mut order);
    for lsn in order {
        let at = Lsn::new(lsn);
        let gap = lost.iter().find(|gap| gap.contains(&lsn));
        let expected = match gap {
            Some(gap) => Is::Lost(first.max(*gap.start()), *gap.end()),
            None => Is::Record(record(lsn)),
        };
        assert_eq!(is(reader.get(at)), expected, "LSN {lsn}");
        // Once, and then what lies behind.
        let mut cursor = reader.from(at);
        let found = cursor.next_within(Duration::ZERO).map(|found| found.unwrap().bytes.to_vec());
        assert_eq!(is(found), expected, "LSN {lsn}");
        let behind = gap.map_or(lsn, |gap| *gap.end()) + 1;
        assert_eq!(cursor.next_lsn(), Lsn::new(behind));
        if behind <= last && !lost.iter().any(|gap| gap.contains(&behind)) {
            assert_eq!(cursor.next().unwrap().unwrap().lsn, Lsn::new(behind));
        }
    }
    assert!(matches!(reader.get(Lsn::new(last + 1)), Err(Error::NotYet { .. })));
}

#[test]
fn every_reader_says_once_what_is_lost_and_goes_on_behind_it() {
    for (last, lost) in [
        (30, vec![11..=11]),
        (30, vec![1..=4, 9..=9, 11..=20]),
        (400, vec![30..=200, 210..=210, 390..=400]),
    ] {
        let disk = with_gaps(last, &lost);
        let reader = Reader::open_in(Arc::new(disk.directory(SAVED)), small()).unwrap();
        check_readers(&reader, 1, last, &lost);
        let lost_to = lost.last().map(|gap| Lsn::new(*gap.end()));
        assert_eq!(reader.recovery().unwrap().lost_to, lost_to);
        // From memory, from files, and both.
        let log = saved(&disk);
        assert_eq!(
            (log.first(), log.last(), log.recovery().lost_to),
            (Lsn::FIRST, Lsn::new(last), lost_to)
        );
        check_readers(&log.reader(), 1, last, &lost);
        append(&log, last + 1, last + 40).unwrap();
        check_readers(&log.reader(), 1, last + 40, &lost);
        // Beside the writer, which has not promised its last group yet.
        let beside = Reader::open_in(Arc::new(disk.directory(SAVED)), small()).unwrap();
        check_readers(&beside, 1, last + 39, &lost);
        log.close().unwrap();
        assert_eq!(is(beside.get(Lsn::new(last + 40))), Is::Record(record(last + 40)));
        let log = saved(&disk);
        check_readers(&log.reader(), 1, last + 40, &lost);
    }
}

/// A search that jumps comes to the gap from both sides.
#[test]
fn every_record_of_a_large_log_is_found_around_gaps() {
    let disk = SimDisk::new(9, DiskOptions::default());
    let options = Options::new().own_thread(false).segment_bytes(8 << 20).record_bytes_max(8 << 10);
    let log = open(&disk, options.clone()).unwrap();
    const LAST: u64 = 9_000;
    (1..=LAST).for_each(|lsn| drop(log.append(&record(lsn)).unwrap()));
    log.close().unwrap();
    let lost = [1000..=1003, 4000..=5999, 8000..=8000];
    destroy(&disk, &lost);
    let to = || Ok(Arc::new(disk.directory(SAVED)));
    let told = inspect::salvage_in(&disk.directory(LOG), to, &options).unwrap();
    assert_eq!(lost_of(&told.gaps), lost);
    let mut random = fastrand::Rng::with_seed(1);
    for _ in 0..20 {
        let reader = Reader::open_in(Arc::new(disk.directory(SAVED)), options.clone()).unwrap();
        for _ in 0..40 {
            let lsn = random.u64(1..=LAST);
            let gap = lost.iter().find(|gap| gap.contains(&lsn));
            let expected = gap
                .map_or_else(|| Is::Record(record(lsn)), |gap| Is::Lost(*gap.start(), *gap.end()));
            assert_eq!(is(reader.get(Lsn::new(lsn))), expected, "LSN {lsn}");
        }
    }
}

#[test]
fn a_truncation_at_the_front_may_end_anywhere_in_a_gap() {
    let lost = [10..=20];
    for first in [9, 10, 11, 15, 20, 21, 22] {
        let disk = with_gaps(40, &lost);
        let log = saved(&disk);
        log.truncate_before(Lsn::new(first)).unwrap();
        check_readers(&log.reader(), first, 40, &lost);
        log.close().unwrap();
        let log = saved(&disk);
        check_readers(&log.reader(), first, 40, &lost);
        assert_eq!(log.recovery().lost_to.is_some(), first <= 20, "{first}");
        drop(log);
        let report = inspect::verify_in(&disk.directory(SAVED)).unwrap();
        let left: Vec<_> = if first <= 20 { vec![first.max(10)..=20] } else { vec![] };
        assert!(report.is_intact());
        assert_eq!(lost_of(&report.gaps().collect::<Vec<_>>()), left);
        assert_eq!(
            report.counts().records,
            (first..=40).filter(|lsn| !lost[0].contains(lsn)).count() as u64
        );
    }
}

#[test]
fn a_cut_may_not_split_a_gap() {
    for last in [9, 20, 25] {
        let disk = with_gaps(40, &[10..=20]);
        let log = saved(&disk);
        for inside in [10, 11, 19] {
            let refused = log.truncate_after(Lsn::new(inside)).unwrap_err();
            let said = refused.to_string();
            assert!(matches!(refused, Error::Invalid(_)), "{said}");
            assert!(said.ends_with("truncate after LSN 9 or 20"), "{said}");
        }
        let lost: &[_] = if last == 9 { &[] } else { &[10..=20] };
        log.truncate_after(Lsn::new(last)).unwrap();
        check_readers(&log.reader(), 1, last, lost);
        append(&log, last + 1, 50).unwrap();
        check_readers(&log.reader(), 1, 50, lost);
        log.close().unwrap();
        check_readers(&saved(&disk).reader(), 1, 50, lost);
        let report = inspect::verify_in(&disk.directory(SAVED)).unwrap();
        assert!(report.is_intact(), "{report:?}");
        assert_eq!(lost_of(&report.gaps().collect::<Vec<_>>()), lost);
    }
}

/// Copied, dumped, looked at, and salvaged once more: always the same gaps.
#[test]
fn what_shows_a_log_shows_its_gaps() {
    let lost = [1..=2, 30..=200, 390..=400];
    let disk = with_gaps(400, &lost);
    let saved_directory = || Arc::new(disk.directory(SAVED));
    let copy = || Ok(Arc::new(disk.directory("/copy")));
    let never = AtomicBool::new(false);
    let copied = inspect::copy_in(saved_directory(), copy, &small(), &never).unwrap();
    let gone: u64 = lost.iter().map(|gap| gap.end() - gap.start() + 1).sum();
    assert_eq!((copied.first.get(), copied.last.get(), copied.records), (1, 400, 400 - gone));
    assert_eq!(lost_of(&salvage(&disk, SAVED, "/again").unwrap().gaps), lost);
    for place in [SAVED, "/copy", "/again"] {
        let directory = || Arc::new(disk.directory(place));
        let reader = Reader::open_in(directory(), small()).unwrap();
        check_readers(&reader, 1, 400, &lost);
        for report in [inspect::verify_in(directory()), inspect::look_in(directory())] {
            let report = report.unwrap();
            assert!(report.is_intact(), "{report:?}");
            assert_eq!(lost_of(&report.gaps().collect::<Vec<_>>()), lost, "{place}");
        }
        let entries = inspect::dump_in(directory(), 0).unwrap().map(Result::unwrap);
        let gaps = entries.filter_map(|entry| match entry {
            Entry::Frame { lsn, control: Some(Control::Lost(last)), .. } => {
                Some(lsn.get()..=last.get())
            }
            _ => None,
        });
        assert_eq!(gaps.collect::<Vec<_>>(), lost, "{place}");
    }
}

/// What is lost at the end is a gap up to the highest LSN that is named anywhere: it is not used
/// again.
#[test]
fn an_lsn_that_was_acknowledged_is_never_used_again() {
    let disk = with_gaps(40, &[40..=40]);
    let log = saved(&disk);
    assert_eq!(log.append_durable(&record(41)).unwrap(), Lsn::new(41));
    // The whole last segment, which names its first LSN alone.
    let disk = SimDisk::new(5, DiskOptions::default());
    let log = open(&disk, small()).unwrap();
    append(&log, 1, 400).unwrap();
    log.close().unwrap();
    let head = inspect::look_in(&disk.directory(LOG)).unwrap().segments.pop().unwrap();
    let file = disk.directory(LOG).open(&name(head.number.get()), &OpenFile::existing()).unwrap();
    file.set_len(4096).unwrap();
    let told = salvage(&disk, LOG, SAVED).unwrap();
    let before = head.first.before().unwrap();
    assert_eq!((told.unknown_behind, told.gaps.len()), (Some(before), 0));
    assert_eq!(saved(&disk).append_durable(b"new").unwrap(), head.first);
}

/// An intact log is salvaged to an equal one, also where it has no record.
#[test]
fn what_is_intact_stays_as_it_is() {
    for (first, last) in [(1, 0), (1, 1), (1, 90), (40, 90), (91, 90)] {
        let disk = SimDisk::new(first + last, DiskOptions::default());
        let log = open(&disk, small()).unwrap();
        append(&log, 1, last).unwrap();
        log.truncate_before(Lsn::new(first)).unwrap();
        log.close().unwrap();
        let told = salvage(&disk, LOG, SAVED).unwrap();
        assert!(told.gaps.is_empty() && told.unknown_behind.is_none());
        let log = saved(&disk);
        assert_eq!((log.first().get(), log.last().get()), (first, last));
        assert_eq!(log.recovery().lost_to, None);
        assert_eq!(shown(&log.reader(), first), expected(first, last, &[]));
    }
}

/// Of a damaged group each record is looked at by itself: a piece of the file is read for many.
#[test]
fn the_rest_of_a_damaged_group_is_read_once() {
    let disk = SimDisk::new(1, DiskOptions::default());
    let log = open(&disk, small()).unwrap();
    (1..=300).for_each(|number| drop(log.append(&record(number)).unwrap()));
    log.sync().unwrap();
    log.close().unwrap();
    let intact = read_by(&disk);
    destroy(&disk, &[5..=5]);
    let damaged = read_by(&disk);
    assert!(damaged < 4 * intact, "{damaged} bytes beside {intact} of the intact log");
    assert_eq!(inspect::verify_in(&disk.directory(LOG)).unwrap().savable.unwrap().records, 299);
}

/// The bytes that `verify` reads.
fn read_by(disk: &SimDisk) -> u64 {
    let before = disk.counters();
    inspect::verify_in(&disk.directory(LOG)).unwrap();
    disk.counters().since(&before).read_bytes
}

/// Groups of the log's own fill the segment behind the batch, so that no seal ends it.
#[test]
fn of_a_batch_at_the_end_of_a_segment_all_is_lost() {
    let padded = || small().pad_groups(true);
    for lost in 1..=3 {
        let disk = SimDisk::new(1, DiskOptions::default());
        let log = open(&disk, padded()).unwrap();
        log.append_batch(&[record(1), record(2), record(3)]).unwrap().wait().unwrap();
        log.close().unwrap();
        while !disk.directory(LOG).list().unwrap().iter().any(|file| *file == name(2)) {
            open(&disk, padded()).unwrap().close().unwrap();
        }
        let log = open(&disk, padded()).unwrap();
        log.append_durable(&record(4)).unwrap();
        log.close().unwrap();
        assert_eq!((places(&disk)[&3].0, places(&disk)[&4].0), (1, 2), "segments");
        destroy(&disk, &[lost..=lost]);
        let salvaged = salvage(&disk, LOG, SAVED).unwrap();
        assert_eq!((lost_of(&salvaged.gaps), salvaged.records), (vec![1..=3], 1), "of {lost}");
    }
}

#[test]
fn what_is_lost_is_none_of_the_newest_records() {
    let kept = |disk: &SimDisk, count| {
        let keep = inspect::Keep::Records(count);
        let now = std::time::SystemTime::now();
        inspect::first_to_keep_in(&disk.directory(SAVED), keep, now).unwrap().get()
    };
    let disk = with_gaps(100, &[40..=50, 91..=100]);
    for (count, first) in [(0, 101), (1, 90), (40, 51), (41, 39), (79, 1), (1000, 1)] {
        assert_eq!(kept(&disk, count), first, "{count} records");
    }
}

/// Both copies of a segment's header.
fn lose_header(disk: &SimDisk, segment: u64) {
    let file = disk.directory(LOG).open(&name(segment), &OpenFile::existing()).unwrap();
    for at in [200, 2248] {
        file.write_at(&[0xff; 16], at).unwrap();
    }
}

/// What is damaged of a log with a cut: the log, the segment that the cut began, and all later
/// ones.
type Damages = fn(&SimDisk, u64, &[u64]);

/// A name; how many records there were, the last one kept, the last one of those that came then;
/// what is damaged; the first one lost of it, and how many are saved at least.
type CutCase = (&'static str, [u64; 3], Damages, Option<u64>, u64);

/// What a cut took does not come back, and what came after it is saved, whatever is lost around it.
#[test]
fn salvage_keeps_to_a_cut() {
    let cases: [CutCase; 5] = [
        (
            "without its header",
            [100, 50, 120],
            |disk, began, _| lose_header(disk, began),
            None,
            120,
        ),
        (
            "the segment after it is gone",
            [100, 50, 600],
            |disk, began, _| disk.directory(LOG).remove(&name(began)).unwrap(),
            Some(51),
            200,
        ),
        (
            "the segment after it begins with zeros",
            [100, 50, 600],
            |disk, began, _| {
                let file = disk.directory(LOG).open(&name(began), &OpenFile::existing()).unwrap();
                file.write_at(&[0; 6 << 10], 0).unwrap();
            },
            Some(51),
            200,
        ),
        (
            "damage before it",
            [100, 50, 120],
            |disk, _, _| {
                destroy(disk, &[20..=20]);
                lose_header(disk, 1);
            },
            Some(20),
            119,
        ),
        (
            // Every file but the first is above the head then, and nothing tells that they took the
            // place of others.
            "one header is left",
            [600, 560, 580],
            |disk, _, later| {
                assert!(later.len() > 2);
                destroy_groups(disk, 561..=570);
                later.iter().for_each(|segment| lose_header(disk, *segment));
            },
            Some(561),
            570,
        ),
    ];
    for (what, [before, kept, last], damage, first_lost, records) in cases {
        let disk = SimDisk::new(3, DiskOptions::default());
        let log = open(&disk, small()).unwrap();
        append(&log, 1, before).unwrap();
        log.truncate_after(Lsn::new(kept)).unwrap();
        let was = |lsn| record(if lsn <= kept { lsn } else { lsn + 1000 });
        (kept + 1..=last).for_each(|lsn| _ = log.append_durable(&was(lsn)).unwrap());
        log.close().unwrap();
        let numbers = || -> Vec<u64> {
            let report = inspect::verify_in(&disk.directory(LOG)).unwrap();
            report.segments.iter().map(|segment| segment.number.get()).collect()
        };
        let sound = numbers();
        damage(&disk, sound[1], &sound[1..]);
        let mut listed = numbers();
        listed.dedup();
        assert_eq!(listed, numbers(), "{what}");
        let salvaged = salvage(&disk, LOG, SAVED).unwrap();
        assert!(salvaged.records >= records, "{what}: {} records", salvaged.records);
        let lost = lost_of(&salvaged.gaps);
        assert_eq!(lost.first().map(|gap| *gap.start()), first_lost, "{what}");
        let log = saved(&disk);
        assert_eq!(log.last(), Lsn::new(last), "{what}");
        for lsn in 1..=last {
            match is(log.reader().get(Lsn::new(lsn))) {
                Is::Record(found) => assert!(found == was(lsn), "{what}: LSN {lsn}"),
                Is::Lost(first, last) => {
                    assert!(lost.contains(&(first..=last)), "{what}: LSN {lsn}")
                }
            }
        }
    }
}

#[test]
fn records_are_saved_where_the_groups_that_began_their_epoch_are_lost() {
    let disk = SimDisk::new(6, DiskOptions::default());
    open(&disk, small()).unwrap().abandon();
    let log = open(&disk, small()).unwrap();
    (1..=3).for_each(|lsn| drop(log.append(&record(lsn)).unwrap()));
    log.sync().unwrap();
    append(&log, 4, 6).unwrap();
    log.close().unwrap();
    let (segment, at, _) = places(&disk)[&1];
    let file = disk.directory(LOG).open(&name(segment), &OpenFile::existing()).unwrap();
    file.write_at(&vec![0; at as usize - 4096], 4096).unwrap();
    assert_eq!(salvage(&disk, LOG, SAVED).unwrap().records, 6);
}

/// A consumer that knows its place goes on in the saved log, and learns of cuts that it has not
/// seen. Where the end is lost, its place may lie behind it, and is refused.
#[test]
fn a_place_stays_right_over_a_salvage() {
    let disk = SimDisk::new(7, DiskOptions::default());
    let log = open(&disk, small()).unwrap();
    let place = |log: &Log| {
        let mut cursor = log.reader().from(Lsn::new(29));
        cursor.next().unwrap();
        cursor.place()
    };
    append(&log, 1, 40).unwrap();
    let early = place(&log);
    log.truncate_after(Lsn::new(20)).unwrap();
    append(&log, 21, 60).unwrap();
    log.truncate_before(Lsn::new(10)).unwrap();
    let late = place(&log);
    log.close().unwrap();
    destroy(&disk, &[31..=31]);
    salvage(&disk, LOG, SAVED).unwrap();
    let log = saved(&disk);
    let other = Reader::open_in(Arc::new(disk.directory(SAVED)), small()).unwrap();
    for reader in [log.reader(), other] {
        let mut cursor = reader.from(late);
        assert_eq!(cursor.next().unwrap().unwrap().lsn, Lsn::new(30));
        assert!(matches!(cursor.next(), Err(Error::Lost { .. })));
        let told = reader.from(early).next().map(drop).unwrap_err();
        assert!(matches!(told, Error::TruncatedAfter { last, .. } if last == Lsn::new(20)));
    }
    log.truncate_after(Lsn::new(25)).unwrap();
    append(&log, 26, 70).unwrap();
    let told = log.reader().from(late).next().map(drop).unwrap_err();
    assert!(matches!(told, Error::TruncatedAfter { last, .. } if last == Lsn::new(25)));
    log.close().unwrap();
    check_readers(&saved(&disk).reader(), 10, 70, &[]);

    let head = inspect::look_in(&disk.directory(LOG)).unwrap().segments.pop().unwrap();
    let file = disk.directory(LOG).open(&name(head.number.get()), &OpenFile::existing()).unwrap();
    file.set_len(40 << 10).unwrap();
    assert!(salvage(&disk, LOG, "/short").unwrap().unknown_behind.is_some());
    let reader = Reader::open_in(Arc::new(disk.directory("/short")), small()).unwrap();
    let told = reader.from(late).next().map(drop).unwrap_err().to_string();
    assert!(told.contains("another log"), "{told}");
}

#[test]
fn what_was_truncated_at_the_front_does_not_come_back_without_the_heads_header() {
    let disk = SimDisk::new(4, DiskOptions::default());
    let log = open(&disk, small()).unwrap();
    append(&log, 1, 400).unwrap();
    log.truncate_before(Lsn::new(80)).unwrap();
    append(&log, 401, 401).unwrap();
    log.close().unwrap();
    let head = inspect::verify_in(&disk.directory(LOG)).unwrap().segments.last().unwrap().number;
    lose_header(&disk, head.get());
    let salvaged = salvage(&disk, LOG, SAVED).unwrap();
    assert_eq!(salvaged.runs.first().map(|run| run.first.get()), Some(80));
    let log = saved(&disk);
    assert_eq!((log.first(), log.last()), (Lsn::new(80), Lsn::new(401)));
}

#[test]
fn segments_are_saved_without_the_headers_of_two() {
    let made = || {
        let disk = SimDisk::new(5, DiskOptions::default());
        let log = open(&disk, small()).unwrap();
        append(&log, 1, 600).unwrap();
        log.close().unwrap();
        disk
    };
    let report = inspect::verify_in(&made().directory(LOG)).unwrap();
    let numbers: Vec<u64> = report.segments.iter().map(|part| part.number.get()).collect();
    assert!(numbers.len() > 4, "{numbers:?}");
    for (at, one) in numbers.iter().enumerate() {
        for other in &numbers[at + 1..] {
            let damaged = made();
            [one, other].into_iter().for_each(|number| lose_header(&damaged, *number));
            let salvaged = salvage(&damaged, LOG, SAVED).unwrap();
            assert_eq!(salvaged.records, 600, "without the headers of {one} and {other}");
            let log = saved(&damaged);
            let all = shown(&log.reader(), 1);
            assert!(all == expected(1, 600, &[]), "without the headers of {one} and {other}");
        }
    }
}
