//! The tail: what was written last is read from memory, by followers and by LSN, and nothing else
//! changes by that.
//!
//! *Owns*: reads counted while a follower keeps up, memory bounded. Allocations are counted in
//! `allocations.rs`; cuts, failures and followers that fall behind are explored by `.ci/explore`.

use crate::history::{disk, open, record, small};
use inkstone::{Cursor, Lsn};
use inkstone_sim::{Counters, DiskOptions, SimDisk};

/// A group of this is handed over, not copied, where the tail has a mebibyte.
const LARGE: usize = 30_000;

fn next(cursor: &mut Cursor) -> Option<(u64, Vec<u8>)> {
    cursor.next().unwrap().map(|record| (record.lsn.get(), record.bytes.to_vec()))
}

/// Small groups are copied and large ones handed over; batches, padding, control groups and segment
/// changes come in between.
#[test]
fn a_follower_that_keeps_up_and_a_get_of_what_is_new_read_nothing() {
    for pads in [false, true] {
        let disk = SimDisk::new(1, DiskOptions { writeback_ppm: 0, ..DiskOptions::default() });
        let options = small().record_bytes_max(LARGE).buffer_bytes(64 << 10).tail_bytes(1 << 20);
        let log = open(&disk, options.pad_groups(pads)).unwrap();
        let reader = log.reader();
        let mut cursor = reader.from(Lsn::FIRST);
        let mut written = Vec::new();
        while log.stats().segments < 12 {
            let first = written.len();
            let count = if first % 7 == 3 { 3 } else { 1 };
            let is_large = first % 17 == 0;
            written.extend((0..count).map(|_| {
                if is_large { vec![first as u8; LARGE / count - 100] } else { record(first as u64) }
            }));
            log.append_batch(&written[first..]).unwrap().wait().unwrap();
            if first % 40 == 30 {
                log.truncate_before(Lsn::new(first as u64 - 20)).unwrap();
            }
            let before = disk.counters();
            for (lsn, bytes) in (1..).zip(&written).skip(first) {
                assert_eq!(next(&mut cursor).as_ref(), Some(&(lsn, bytes.clone())));
            }
            assert!(cursor.next().unwrap().is_none());
            assert_eq!(
                disk.counters().since(&before),
                Counters::default(),
                "pads: {pads}, after {first}"
            );
            for index in [written.len() - 1, first.saturating_sub(9)] {
                assert!(reader.get(Lsn::new(index as u64 + 1)).unwrap() == written[index]);
            }
            // A file may be opened, in case it is needed.
            assert_eq!(disk.counters().since(&before).reads, 0, "get after {first}");
        }
        assert!(written.len() > 100, "{}", written.len());
    }
}

/// One write and one sync, as without a reader.
#[test]
fn a_follower_adds_no_operation_to_a_commit() {
    let cost = |follows: bool| {
        let disk = SimDisk::new(1, DiskOptions { writeback_ppm: 0, ..DiskOptions::default() });
        let log = open(&disk, small()).unwrap();
        let mut cursor = follows.then(|| log.reader().from(Lsn::FIRST));
        let before = disk.counters();
        for lsn in 1..=1000 {
            log.append_durable(&record(lsn)).unwrap();
            if let Some(cursor) = &mut cursor {
                assert_eq!(next(cursor), Some((lsn, record(lsn))));
            }
        }
        disk.counters().since(&before)
    };
    let alone = cost(false);
    assert!(alone.writes > 1000 && alone.reads == 0, "{alone:?}");
    assert_eq!(cost(true), alone);
}

/// What cursors hold that have stopped is counted, and takes from the others only what it must.
#[test]
fn memory_is_bounded_also_by_readers_that_hold_some() {
    const TAIL: usize = 64 << 10;
    let disk = disk(3);
    let log = open(&disk, small().tail_bytes(TAIL)).unwrap();
    assert_eq!(log.stats().tail_bytes, 0);
    (1..=50).for_each(|lsn| drop(log.append(&record(lsn)).unwrap()));
    log.sync().unwrap();
    assert_eq!(log.stats().tail_bytes, 0, "nobody reads");
    let reader = log.reader();
    let mut held = Vec::new();
    let (mut last, mut most) = (50, 0);
    let mut append = |count: u64| {
        for _ in 0..count {
            last += 1;
            log.append_durable(&record(last)).unwrap();
            most = most.max(log.stats().tail_bytes);
        }
        (last, std::mem::take(&mut most))
    };
    assert!((TAIL as u64 / 2..=TAIL as u64).contains(&append(400).1), "without readers");
    for _ in 0..40 {
        let (last, _) = append(20);
        let mut cursor = reader.from(Lsn::new(last - 1));
        assert_eq!(next(&mut cursor), Some((last - 1, record(last - 1))));
        held.push(cursor);
    }
    // A chunk is a sixteenth; one is kept in any case.
    let chunk = TAIL as u64 / 16;
    let (last, most) = append(400);
    assert!(most > TAIL as u64 && most <= 42 * chunk, "{most}");
    let mut cursor = reader.from(Lsn::new(last));
    let before = disk.counters();
    assert_eq!(next(&mut cursor), Some((last, record(last))));
    assert_eq!(disk.counters().since(&before).reads, 0, "the newest group is there in any case");
    held.clear();
    drop(cursor);
    append(400);
    assert!(append(1).1 <= TAIL as u64, "given back");
}
