//! Finding a record by its LSN: what it costs, with the index of its segment and without, and that
//! no index, whatever it says, changes an answer.
//!
//! *Owns*: the count of reads of `Reader::get`; indexes that are missing, damaged or wrong. What a
//! reader shows otherwise is `reading.rs`.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::sync::Arc;

use crate::history::{LOG, name};
use inkstone::system::DirectoryCalls;
use inkstone::{Log, Lsn, Options, Reader};
use inkstone_format::limits::{GROUP_HEADER_BYTES, HEADER_BYTES, INDEX_STEP_BYTES};
use inkstone_format::{FramePlace, HeaderBlock, Mark, SegmentHeader, SegmentIndex, frame_bytes};
use inkstone_io::OpenFile;
use inkstone_sim::{DiskOptions, SimDisk};

const KIB: usize = 1 << 10;

fn options(segment_bytes: u64) -> Options {
    Options::new()
        .segment_bytes(segment_bytes)
        .record_bytes_max(segment_bytes as usize / 2 - 64 * KIB)
        .buffer_bytes(64 * KIB)
        .own_thread(false)
}

fn open(disk: &SimDisk, segment_bytes: u64) -> Log {
    Log::open_in(Arc::new(disk.directory(LOG)), options(segment_bytes)).unwrap()
}

fn read(disk: &SimDisk) -> Reader {
    Reader::open_in(Arc::new(disk.directory(LOG)), options(1 << 20)).unwrap()
}

fn record(lsn: u64, bytes: usize) -> Vec<u8> {
    (0..bytes as u64).map(|at| (at ^ (lsn * 7)) as u8).collect()
}

/// A segment's file, without the lock of the log.
fn file(disk: &SimDisk, number: u64, how: &OpenFile) -> Arc<dyn inkstone_io::File> {
    DirectoryCalls::open(&disk.directory(LOG), &name(number), how).unwrap()
}

fn header(disk: &SimDisk, number: u64) -> SegmentHeader {
    let mut block = vec![0; HEADER_BYTES];
    file(disk, number, &OpenFile::existing().read_only()).read_at(&mut block, 0).unwrap();
    *HeaderBlock::classify(&block).header().unwrap()
}

/// The index that a segment's writer has left.
fn index_of(disk: &SimDisk, header: &SegmentHeader) -> Option<SegmentIndex> {
    let mut room = vec![0; SegmentIndex::room_bytes(header)];
    let file = file(disk, header.number.get(), &OpenFile::existing().read_only());
    file.read_at(&mut room, header.groups_end()).unwrap();
    SegmentIndex::decode(header, &room)
}

/// Writes something else there.
fn replace_index(disk: &SimDisk, header: &SegmentHeader, bytes: &[u8]) {
    let file = file(disk, header.number.get(), &OpenFile::existing());
    file.write_at(bytes, header.groups_end()).unwrap();
    file.sync(inkstone_io::SyncKind::All).unwrap();
}

/// The segments before the head, and the LSNs that each has.
fn full_segments(disk: &SimDisk) -> Vec<(SegmentHeader, RangeInclusive<u64>)> {
    let image = disk.image();
    let count = image.iter().filter(|(path, _)| path.extension() == Some("ink".as_ref())).count();
    let headers: Vec<_> = (1..=count as u64).map(|number| header(disk, number)).collect();
    let lsns = |pair: &[SegmentHeader]| pair[0].first_lsn.get()..=pair[1].first_lsn.get() - 1;
    let full = headers.windows(2).map(|pair| (pair[0], lsns(pair)));
    // One may be left empty, for a record that is too large for it.
    full.filter(|(_, lsns)| !lsns.is_empty()).collect()
}

/// Each get of a record in a full segment is one read: of the record and less than a step before
/// it, or of the record alone. The first in a segment also reads its index. So it is whatever the
/// records and the groups are, and whether the records near it were read before.
#[test]
fn a_record_of_a_full_segment_is_one_read() {
    type Sizes = fn(u64) -> usize;
    let shapes: [(&str, Sizes, u64, u64); 8] = [
        ("50 bytes, one a group", |_| 50, 1, 1 << 20),
        ("50 bytes, 64 a group", |_| 50, 64, 1 << 20),
        ("50 bytes, batches of 100,000", |_| 50, 100_000, 16 << 20),
        ("up to 900 bytes", |lsn| (lsn * 37 % 900) as usize, 13, 1 << 20),
        ("4 KiB", |_| 4 * KIB, 4, 2 << 20),
        ("64 KiB", |_| 64 * KIB, 1, 2 << 20),
        ("mostly 50 bytes", |lsn| if lsn % 20 == 0 { 64 * KIB } else { 50 }, 16, 2 << 20),
        ("empty", |_| 0, 100, 1 << 20),
    ];
    for (shape, size, group, segment_bytes) in shapes {
        let disk = SimDisk::new(1, DiskOptions::default());
        let log = open(&disk, segment_bytes);
        let mut next = 1;
        while log.stats().segments < 4 {
            let lsns = next..next + group;
            let records: Vec<_> = lsns.map(|lsn| record(lsn, size(lsn))).collect();
            if group == 100_000 {
                log.append_batch(&records).unwrap().wait().unwrap();
            } else {
                records.iter().for_each(|record| drop(log.append(record).unwrap()));
                log.sync().unwrap();
            }
            next += group;
        }
        log.close().unwrap();
        let full = full_segments(&disk);
        let count = full.iter().map(|(_, lsns)| lsns.end() + 1 - lsns.start()).sum::<u64>();
        let mut random = fastrand::Rng::with_seed(2);
        let again = open(&disk, segment_bytes);
        for reader in [read(&disk), again.reader()] {
            // What a reader of another process asks about the writer is not counted: at most once a
            // second.
            let get = |lsn: u64| {
                let before = disk.counters();
                assert_eq!(reader.get(Lsn::new(lsn)).unwrap(), record(lsn, size(lsn)), "{shape}");
                disk.counters().since(&before)
            };
            let mut known = BTreeSet::new();
            for look in 0..300 {
                // In order, and then anywhere.
                let lsn = if look < 100 { 1 + look * count / 100 } else { random.u64(1..=count) };
                let (segment, _) = full.iter().find(|(_, lsns)| lsns.contains(&lsn)).unwrap();
                let cost = get(lsn);
                if known.insert(segment.number) {
                    let most = (SegmentIndex::room_bytes(segment) + 256 * KIB) as u64;
                    assert!(cost.reads <= 4 && cost.read_bytes <= most, "{shape}: {cost:?}");
                    continue;
                }
                let cost = if cost.reads == 1 { cost } else { get(lsn) };
                assert_eq!((cost.reads, cost.opens), (1, 0), "{shape}: record {lsn}");
                let frame = frame_bytes(size(lsn)) as u64;
                // What is large is followed by an entry, which says how long its record is.
                let is_alone = lsn > 1 && size(lsn - 1) > INDEX_STEP_BYTES as usize;
                let most = match frame {
                    80 if is_alone => frame,
                    _ => INDEX_STEP_BYTES.max(frame) + frame + 4096,
                };
                assert!(
                    cost.read_bytes <= most,
                    "{shape}: record {lsn}: {} bytes",
                    cost.read_bytes
                );
            }
            assert_eq!(known.len(), full.len(), "{shape}");
        }
        again.close().unwrap();
    }
}

/// Of the segment in use the writer has the places in memory, also after an opening, and so has a
/// reader that walked it.
#[test]
fn a_record_of_the_segment_in_use_is_one_read() {
    let disk = SimDisk::new(2, DiskOptions::default());
    let bytes = |lsn: u64| (lsn * 37 % 900) as usize;
    let mut last = 0;
    for _ in 0..3 {
        let log = open(&disk, 4 << 20);
        let (reader, other) = (log.reader(), read(&disk));
        for lsn in last + 1..=last + 400 {
            let append = log.append(&record(lsn, bytes(lsn))).unwrap();
            if lsn % 7 == 0 {
                append.wait().unwrap();
            }
        }
        last += 400;
        log.sync().unwrap();
        log.append_durable(&record(last + 1, bytes(last + 1))).unwrap();
        last += 1;
        assert_eq!(full_segments(&disk).len(), 0);
        other.get(Lsn::new(last - 1)).unwrap();
        for reader in [&reader, &other] {
            for lsn in (1..last - 50).step_by(61) {
                let before = disk.counters();
                assert_eq!(reader.get(Lsn::new(lsn)).unwrap(), record(lsn, bytes(lsn)));
                let cost = disk.counters().since(&before);
                assert!(cost.reads <= 1, "record {lsn}: {} reads", cost.reads);
                assert!(cost.read_bytes <= 16 << 10, "record {lsn}: {}", cost.read_bytes);
            }
        }
        log.close().unwrap();
    }
}

/// A log of several full segments, of several epochs, with a batch across many steps.
fn several() -> (SimDisk, Vec<(SegmentHeader, RangeInclusive<u64>)>) {
    let disk = SimDisk::new(3, DiskOptions::default());
    let mut next = 1;
    while full_segments(&disk).len() < 3 {
        let log = open(&disk, 1 << 20);
        for _ in 0..70 {
            let batch: Vec<_> = (next..next + 40).map(|lsn| record(lsn, small(lsn))).collect();
            log.append_batch(&batch).unwrap().wait().unwrap();
            next += 40;
        }
        log.close().unwrap();
    }
    let full = full_segments(&disk);
    (disk, full)
}

fn small(lsn: u64) -> usize {
    (lsn * 37 % 400) as usize
}

fn check_all(disk: &SimDisk, full: &[(SegmentHeader, RangeInclusive<u64>)]) {
    let log = open(disk, 1 << 20);
    for reader in [read(disk), log.reader()] {
        for lsn in full.iter().flat_map(|(_, lsns)| lsns.clone()).step_by(17) {
            assert!(reader.get(Lsn::new(lsn)).unwrap() == record(lsn, small(lsn)), "record {lsn}");
        }
    }
    log.close().unwrap();
}

#[test]
fn each_full_segment_has_an_index_that_is_true() {
    let (disk, full) = several();
    for (header, lsns) in full {
        let index = index_of(&disk, &header).unwrap();
        let content = file(&disk, header.number.get(), &OpenFile::existing().read_only());
        for lsn in lsns {
            let (Some(before), behind) = index.around(Lsn::new(lsn)) else { panic!("{lsn}") };
            if before.lsn.get() == lsn {
                // A record behind one with an entry may begin a group.
                let mut bytes = vec![0; GROUP_HEADER_BYTES + frame_bytes(small(lsn))];
                content.read_at(&mut bytes, before.at).unwrap();
                let is_at = |at: usize| bytes[at..].starts_with(&record(lsn, small(lsn)));
                assert!(is_at(24) || is_at(24 + GROUP_HEADER_BYTES), "record {lsn}");
            }
            assert!(behind.is_none_or(|behind| behind.at > before.at));
        }
    }
}

/// A crash came before it was written, there was no room for it, the file had another life, or bits
/// have changed: a search walks through the segment once, and finds each record.
#[test]
fn without_its_index_a_segment_is_walked_once() {
    let (disk, full) = several();
    let (first, lsns) = &full[0];
    let own = index_of(&disk, first).unwrap().encode(first);
    let mut flipped = own.clone();
    flipped[own.len() / 2] ^= 1;
    let (second, _) = &full[1];
    let of_another_life = index_of(&disk, second).unwrap().encode(second);
    for bytes in [vec![0; own.len()], flipped, of_another_life, own[..own.len() / 2].to_vec()] {
        replace_index(&disk, first, &vec![0; SegmentIndex::room_bytes(first)]);
        replace_index(&disk, first, &bytes);
        let reader = read(&disk);
        let mut read_bytes = 0;
        for (look, lsn) in lsns.clone().step_by(31).enumerate() {
            let before = disk.counters();
            assert!(reader.get(Lsn::new(lsn)).unwrap() == record(lsn, small(lsn)));
            let cost = disk.counters().since(&before);
            assert!(look == 0 || cost.reads == 1, "look {look}: {} reads", cost.reads);
            read_bytes += if look == 0 { cost.read_bytes } else { 0 };
        }
        let most = first.segment_bytes + 64 * 1024;
        assert!((first.segment_bytes / 2..most).contains(&read_bytes), "{read_bytes} bytes");
        check_all(&disk, &full);
        let now = index_of(&disk, first).map(|index| index.encode(first));
        assert_eq!(now, None, "a reader writes none");
    }
}

/// An index with a right sum that lies, as no writer makes it, costs time and nothing else.
#[test]
fn an_index_that_is_wrong_changes_no_answer() {
    let (disk, full) = several();
    let mut random = fastrand::Rng::with_seed(4);
    for _ in 0..12 {
        for (header, lsns) in &full {
            let mut index = SegmentIndex::new(header);
            let mut at = HEADER_BYTES as u64;
            for lsn in lsns.clone().step_by(40) {
                let mark = Mark {
                    at: at + 8 * random.u64(0..3),
                    lsn: Lsn::new(lsn + random.u64(0..30)),
                    epoch: header.epoch,
                    group_end: Mark::UNKNOWN_END,
                };
                index.note(&FramePlace { mark, end: mark.at + 8 * random.u64(0..1024) });
                at += INDEX_STEP_BYTES + 8 * random.u64(0..100);
                if at + 64 >= header.groups_end() {
                    break;
                }
            }
            replace_index(&disk, header, &index.encode(header));
            assert!(index_of(&disk, header).is_some());
        }
        check_all(&disk, &full);
    }
}

/// A cut ends a segment before the last entries of its index, and the LSNs are given again.
#[test]
fn a_cut_inside_an_indexed_segment_is_found_around() {
    let (disk, full) = several();
    let kept = (full[1].1.start() + full[1].1.end()) / 2;
    let log = open(&disk, 1 << 20);
    log.truncate_after(Lsn::new(kept)).unwrap();
    for lsn in kept + 1..=kept + 3000 {
        drop(log.append(&record(lsn + 1, small(lsn))).unwrap());
    }
    log.sync().unwrap();
    for reader in [read(&disk), log.reader()] {
        for lsn in (1..=kept + 3000).step_by(13).chain([kept - 1, kept, kept + 1]) {
            let now =
                if lsn > kept { record(lsn + 1, small(lsn)) } else { record(lsn, small(lsn)) };
            assert!(reader.get(Lsn::new(lsn)).unwrap() == now, "record {lsn}");
        }
    }
    log.close().unwrap();
}
