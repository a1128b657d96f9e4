//! What is counted: no flush for what is committed, memory that does not grow with entries.

#![allow(clippy::unwrap_used, reason = "the helpers of a test are a test too")]

use std::alloc::System;
use std::sync::{Arc, Mutex, PoisonError};

use inkstone::LogKind;
use inkstone_raft::{EntryId, Groups, Leader, NewEntry, Options, RaftLog, StreamsOptions, Vote};
use inkstone_sim::{DiskOptions, SimDisk};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// One test at a time: allocations are counted for the whole process.
static TURN: Mutex<()> = Mutex::new(());

fn bytes_in_use() -> usize {
    let stats = ALLOCATOR.stats();
    stats.bytes_allocated - stats.bytes_deallocated
}

fn append(raft: &RaftLog, term: u64, from: u64, count: u64, payload: &[u8]) {
    let leader = Leader::of_term(term);
    let entries: Vec<_> =
        (from..from + count).map(|index| NewEntry { leader: &leader, index, payload }).collect();
    raft.append(&entries, |result| result.unwrap()).unwrap();
}

fn simulated() -> (SimDisk, RaftLog) {
    let disk = SimDisk::new(1, DiskOptions { writeback_ppm: 0, ..DiskOptions::default() });
    let options = Options::new().log(inkstone::Options::small().own_thread(false));
    let raft = RaftLog::open_in(Arc::new(disk.directory("/raft")), options).unwrap();
    (disk, raft)
}

#[test]
fn what_is_committed_causes_no_write() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let (disk, raft) = simulated();
    append(&raft, 1, 1, 100, b"an entry");
    raft.sync().unwrap();
    let (before, records) = (disk.counters(), *raft.records().end());
    for index in 1..=90 {
        raft.save_committed(index).unwrap();
        // No record comes between entries, so they stay one run in memory.
        raft.sync().unwrap();
    }
    let after = disk.counters();
    assert_eq!(
        (after.writes, after.flushes, *raft.records().end()),
        (before.writes, before.flushes, records)
    );
    raft.save_vote(&Vote::new(Leader::of_term(2))).unwrap();
    let after = disk.counters();
    assert_eq!(
        (after.writes - before.writes, after.flushes - before.flushes),
        (1, 1),
        "it rides with the vote"
    );
    raft.abandon();
    let options = Options::new().log(inkstone::Options::small().own_thread(false));
    let raft = RaftLog::open_in(Arc::new(disk.directory("/raft")), options).unwrap();
    assert_eq!(raft.bounds().unwrap().committed, Some(EntryId::new(Leader::of_term(1), 90)));
    raft.close().unwrap();
}

#[test]
fn memory_is_bounded_by_the_option_not_by_the_entries() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("raft");
    // The log's two buffers of 64 KiB, and 256 KiB of entries.
    let log = inkstone::Options::new().buffer_bytes(64 << 10).segment_bytes(32 << 20);
    let options = Options::new().log(log).memory_bytes(256 << 10);
    let before = bytes_in_use();
    let raft = RaftLog::open(&path, options.clone()).unwrap();
    raft.purge_to_snapshot(&EntryId::new(Leader::of_term(1), 1_000_000)).unwrap();
    append(&raft, 2, 1_000_001, 1000, &[1; 16]);
    let after_some = bytes_in_use();
    for round in 1..300 {
        append(&raft, 2, 1_000_001 + round * 1000, 1000, &[1; 16]);
        if round % 50 == 0 {
            raft.save_vote(&Vote::granted(Leader::of_term(2 + round))).unwrap();
        }
    }
    raft.sync().unwrap();
    append(&raft, 2, 1_300_001, 1, &[1; 16]);
    let after_all = bytes_in_use();
    assert!(after_all - before < 2 << 20, "{} bytes", after_all - before);
    assert!(after_all.saturating_sub(after_some) < 512 << 10, "{after_some} grew to {after_all}");
    assert_eq!(
        raft.entries(1_000_001..1_000_011, usize::MAX).unwrap().len(),
        10,
        "they are read from disk"
    );
    raft.close().unwrap();
    drop(raft);
    let before = bytes_in_use();
    let raft = RaftLog::open(&path, options).unwrap();
    let opened = bytes_in_use() - before;
    assert!(opened < 2 << 20, "{opened} bytes after opening");
    assert_eq!(raft.bounds().unwrap().next, 1_300_002);
    raft.close().unwrap();
}

/// What the log is for stands in its header, so an opening recovers the head once, and then reads
/// its records once for the state. A reader that asked first would read and sync it once more.
#[test]
fn an_opening_reads_the_head_once_to_recover_it() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    const HEAD_BYTES: u64 = 600 << 10;
    let disk = SimDisk::new(1, DiskOptions { writeback_ppm: 0, ..DiskOptions::default() });
    let small = || inkstone::Options::small().own_thread(false).segment_bytes(1 << 20);
    let directory = || Arc::new(disk.directory("/raft"));
    let raft = RaftLog::open_in(directory(), Options::new().log(small())).unwrap();
    (1..=HEAD_BYTES / 4096).for_each(|index| append(&raft, 1, index, 1, &[7; 4096]));
    raft.close().unwrap();
    drop(raft);
    let cost = |open: &dyn Fn()| {
        let before = disk.counters();
        open();
        disk.counters().since(&before)
    };
    let alone = cost(&|| {
        let log = inkstone::Log::open_in(directory(), small().kind(LogKind::RAFT)).unwrap();
        log.close().unwrap();
    });
    let raft = cost(&|| {
        RaftLog::open_in(directory(), Options::new().log(small())).unwrap().close().unwrap();
    });
    assert_eq!((raft.flushes, raft.directory_syncs), (alone.flushes, alone.directory_syncs));
    let more = raft.read_bytes - alone.read_bytes;
    assert!(alone.read_bytes > HEAD_BYTES && more < HEAD_BYTES * 3 / 2, "{alone:?} {raft:?}");
}

/// Who asks for little takes little memory, and so does little under the lock, however many runs
/// the range has.
#[test]
fn a_read_of_one_entry_does_not_note_the_whole_range() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let disk = SimDisk::new(1, DiskOptions { writeback_ppm: 0, ..DiskOptions::default() });
    let log = inkstone::Options::small().own_thread(false);
    let options = Options::new().log(log).memory_bytes(0);
    let raft = RaftLog::open_in(Arc::new(disk.directory("/raft")), options).unwrap();
    let last = 4000;
    for index in 1..=last {
        append(&raft, index, index, 1, &[index as u8]);
    }
    raft.sync().unwrap();
    // The index of the log is made.
    assert_eq!(raft.entries(1..last + 1, usize::MAX).unwrap().len() as u64, last);
    let taken = |range: std::ops::Range<u64>, wanted: usize, bytes_max: usize| {
        let before = ALLOCATOR.stats().bytes_allocated;
        let entries = raft.entries(range, bytes_max).unwrap();
        let taken = ALLOCATOR.stats().bytes_allocated - before;
        assert_eq!(entries.len(), wanted);
        assert!(entries.iter().zip(1..).all(|(entry, index)| {
            entry.id == EntryId::new(Leader::of_term(index), index)
                && *entry.payload == [index as u8]
        }));
        taken
    };
    let one = taken(1..2, 1, 1);
    assert!(one < 16 << 10, "{one} bytes for one entry");
    // Whoever reads several that lie side by side reads them with a cursor of the log, which has
    // one buffer of 256 KiB. (Entries that lay alone, each read by itself, took 64 KiB for a
    // hundred.)
    let buffer = taken(1..17, 1, 1);
    assert!(buffer < 272 << 10, "{buffer} bytes for a few");
    // Each entry has a leader of its own: notes of 4,000 would take 160,000 bytes.
    let of_all = taken(1..last + 1, 1, 1);
    assert!(of_all < buffer + (8 << 10), "{of_all} bytes for one entry, {buffer} of few");
    // Each says its leader itself, and they are read once.
    let hundred = taken(1..last + 1, 100, 100);
    println!("{one} bytes for one, {buffer} of few, {of_all} of all, {hundred} for a hundred");
    assert!(hundred < buffer + (64 << 10), "{hundred} bytes for a hundred");
    raft.close().unwrap();
}

#[test]
fn a_group_that_nobody_holds_takes_nothing_beside_its_stream() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let disk = SimDisk::new(1, DiskOptions { writeback_ppm: 0, ..DiskOptions::default() });
    let log = inkstone::Options::small().own_thread(false).tail_bytes(0);
    let options = StreamsOptions::new().log(log).own_mover(false);
    let groups = Groups::open_in(Arc::new(disk.directory("/groups")), options).unwrap();
    let open = || {
        let held: Vec<_> = (0..1000).map(|id| groups.group(id).unwrap()).collect();
        let with = bytes_in_use();
        drop(held);
        (with, bytes_in_use())
    };
    for id in 0..1000 {
        append(&groups.group(id).unwrap(), 1, 1, 10, &[7; 100]);
    }
    groups.group(0).unwrap().sync().unwrap();
    // What grows once, such as the table of those that are open, has its size then.
    open();
    open();
    let before = bytes_in_use();
    let (with, after) = open();
    assert!(after <= before, "{after} bytes after, {before} before");
    assert!((with - before) / 1000 < 1200, "{} bytes for each", (with - before) / 1000);
    groups.close().unwrap();
}
