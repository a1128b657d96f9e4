//! A full disk: a purge makes room where not even its own record fits. What a crash leaves in
//! between is in the walk of a raft log (`proof/powerloss/tests/things`).

use std::sync::Arc;

use inkstone_raft::{
    EntryId, Error, Groups, Leader, NewEntry, Options, RaftLog, Result, StreamsOptions, Vote,
};
use inkstone_sim::{DiskOptions, SimDisk};

fn append(raft: &RaftLog, index: u64, bytes: usize) -> Result<()> {
    let leader = Leader::of_term(1);
    raft.append(&[NewEntry { leader: &leader, index, payload: &vec![index as u8; bytes] }], |_| {})
}

fn is_no_room<T>(result: &Result<T>) -> bool {
    let Err(error) = result else { return false };
    matches!(error, Error::Log(inkstone::Error::NoRoom { .. })) && error.is_retryable()
}

/// A raft log on a disk of which not a record is left; and the index of its next entry.
fn full(capacity_bytes: u64) -> (RaftLog, u64) {
    let disk =
        SimDisk::new(5, DiskOptions { capacity_bytes: Some(capacity_bytes), ..Default::default() });
    let options = Options::new().log(inkstone::Options::small().own_thread(false)).memory_bytes(0);
    let raft = RaftLog::open_in(Arc::new(disk.directory("/raft")), options).unwrap();
    let mut next = 1;
    for bytes in [6000, 100, 0] {
        while append(&raft, next, bytes).is_ok() {
            next += 1;
        }
    }
    let vote = raft.save_vote(&Vote::new(Leader::of_term(1)));
    assert!(is_no_room(&vote), "{vote:?}");
    (raft, next)
}

fn goes_on(raft: &RaftLog) {
    append(raft, raft.bounds().unwrap().next, 6000).unwrap();
    raft.save_vote(&Vote::granted(Leader::of_term(2))).unwrap();
    raft.close().unwrap();
}

#[test]
fn a_purge_makes_room_where_not_even_its_record_fits() {
    let (raft, next) = full(600 << 10);
    raft.save_committed(next - 1).unwrap();
    raft.purge(&EntryId::new(Leader::of_term(1), next / 2)).unwrap();
    assert_eq!((raft.bounds().unwrap().first, raft.bounds().unwrap().next), (next / 2 + 1, next));
    goes_on(&raft);
    let (raft, next) = full(200 << 10);
    raft.save_committed(next - 1).unwrap();
    let nothing = raft.purge(&EntryId::new(Leader::of_term(1), 2));
    assert!(is_no_room(&nothing), "{nothing:?}");
    assert_eq!(raft.bounds().unwrap().first, 1);
    raft.purge(&EntryId::new(Leader::of_term(1), next - 1)).unwrap();
    goes_on(&raft);
}

/// Each segment has entries of all groups, so none is free before the last group is purged.
#[test]
fn groups_that_share_a_full_log_are_purged_one_by_one() {
    let disk = SimDisk::new(5, DiskOptions { capacity_bytes: Some(8 << 20), ..Default::default() });
    let log = inkstone::Options::small().own_thread(false).segment_bytes(1 << 20);
    let options = StreamsOptions::new().log(log).section_bytes(16 << 10).own_mover(false);
    let groups = Groups::open_in(Arc::new(disk.directory("/groups")), options).unwrap();
    let all: Vec<_> = (0..40).map(|id| groups.group(id).unwrap()).collect();
    let full = (0..).map(|at| (at % 40, at as u64 / 40 + 1));
    let (_, last) =
        full.into_iter().find(|(group, index)| append(&all[*group], *index, 300).is_err()).unwrap();
    for raft in &all {
        raft.save_committed(last - 2).unwrap();
        raft.purge(&EntryId::new(Leader::of_term(1), last - 2)).unwrap();
    }
    for raft in all.iter().chain(&all).chain(&all) {
        append(raft, raft.bounds().unwrap().next, 300).unwrap();
    }
    groups.close().unwrap();
}

/// What went without a record stays gone when the log gets a second group.
#[test]
fn a_log_that_was_full_becomes_one_of_many_groups() {
    let log = inkstone::Options::small().own_thread(false);
    for seed in 0..300 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let capacity_bytes = Some(rng.u64(200..800) << 10);
        let disk = SimDisk::new(seed, DiskOptions { capacity_bytes, ..Default::default() });
        let directory = Arc::new(disk.directory("/raft"));
        let options = Options::new().log(log.clone()).memory_bytes(0);
        let raft = RaftLog::open_in(Arc::clone(&directory), options).unwrap();
        let mut next = 1;
        for bytes in [rng.usize(100..20_000), 100, 0] {
            while append(&raft, next, bytes).is_ok() {
                next += 1;
            }
        }
        let _ = raft.purge_to_snapshot(&EntryId::new(Leader::of_term(1), rng.u64(1..next)));
        let next = raft.bounds().unwrap().next;
        raft.abandon();
        disk.change_options(|options| options.capacity_bytes = None);
        for _ in 0..2 {
            let section_bytes = 16 << (10 + seed % 4);
            let options = StreamsOptions::new().log(log.clone()).own_mover(false);
            let groups =
                Groups::open_in(Arc::clone(&directory), options.section_bytes(section_bytes))
                    .unwrap_or_else(|why| panic!("seed {seed}: {why}"));
            assert_eq!(groups.group(0).unwrap().bounds().unwrap().next, next, "seed {seed}");
            let other = groups.group(2).unwrap();
            let from = other.bounds().unwrap().next.max(1);
            (from..from + rng.u64(1..200)).for_each(|index| append(&other, index, 300).unwrap());
            while rng.bool() && groups.move_some().unwrap() {}
            groups.close().unwrap();
        }
    }
}

/// An entry that is larger than the log's buffers leaves no room there for housekeeping, and an
/// opening forgets what was half written.
#[test]
fn a_log_of_large_entries_that_is_full_and_opened_again_goes_on_after_a_purge() {
    const SEGMENT: u64 = 720 << 10;
    let directory = Arc::new(SimDisk::new(5, DiskOptions::default()).directory("/raft"));
    let log = inkstone::Options::small()
        .own_thread(false)
        .segment_bytes(SEGMENT)
        .record_bytes_max(128 << 10)
        .disk_budget_bytes(8 * SEGMENT);
    let open =
        || RaftLog::open_in(Arc::clone(&directory), Options::new().log(log.clone())).unwrap();
    let (mut raft, mut next) = (open(), 1);
    for _ in 0..4 {
        while append(&raft, next, 100_000).is_ok() {
            next += 1;
        }
        raft.close().unwrap();
        raft = open();
        raft.purge_to_snapshot(&EntryId::new(Leader::of_term(1), next - 1)).unwrap();
        append(&raft, next, 100_000).unwrap();
        next += 1;
    }
}

#[test]
fn openings_of_an_entry_free_what_they_purge() {
    let directory = Arc::new(SimDisk::new(5, DiskOptions::default()).directory("/raft"));
    let log = inkstone::Options::small().own_thread(false);
    for index in 1..=600 {
        let raft =
            RaftLog::open_in(Arc::clone(&directory), Options::new().log(log.clone())).unwrap();
        append(&raft, index, 400).unwrap();
        raft.purge_to_snapshot(&EntryId::new(Leader::of_term(1), index)).unwrap();
        let records = raft.records();
        assert!(records.end().get() - records.start().get() < 600, "{index}: {records:?}");
        raft.close().unwrap();
    }
}
