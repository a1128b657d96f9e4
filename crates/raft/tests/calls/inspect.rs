//! What is said of a raft log that is only read.

use std::sync::Arc;

use inkstone_raft::inspect::{describe, inspect, inspect_in, is_raft_log};
use inkstone_raft::{EntryId, Error, Leader, NewEntry, Options, RaftLog, Vote};
use inkstone_sim::{DiskOptions, SimDisk};

fn options() -> Options {
    Options::new().log(inkstone::Options::small().own_thread(false)).raft_group(7)
}

fn append(raft: &RaftLog, indexes: std::ops::Range<u64>, leader: &Leader) {
    for index in indexes {
        raft.append(&[NewEntry { leader, index, payload: &[7; 1000] }], |_| {}).unwrap();
    }
    raft.sync().unwrap();
}

#[test]
fn it_says_what_an_opening_finds_and_changes_nothing() {
    let disk = SimDisk::new(1, DiskOptions::default());
    let directory = Arc::new(disk.directory("/raft"));
    let raft = RaftLog::open_in(Arc::clone(&directory), options()).unwrap();
    let (first, second) = (Leader::of_term(1), Leader::new(2, [9]));
    raft.save_vote(&Vote::granted(first.clone())).unwrap();
    append(&raft, 5..205, &first);
    raft.truncate_from(200).unwrap();
    raft.save_vote(&Vote::new(second.clone())).unwrap();
    append(&raft, 200..210, &second);
    raft.save_committed(150).unwrap();
    raft.sync().unwrap();
    raft.purge(&EntryId::new(first.clone(), 20)).unwrap();
    let beside = inspect_in(Arc::clone(&directory)).unwrap();
    let bounds = raft.bounds().unwrap();
    raft.close().unwrap();
    drop(raft);
    let found = inspect_in(Arc::clone(&directory)).unwrap();
    assert_eq!(found.bounds, bounds);
    // The simulated disk has no memory that processes share: only what is promised is known there.
    assert!((200..=210).contains(&beside.bounds.next) && beside.raft_group == 7, "{beside:?}");
    assert_eq!((found.raft_group, found.vote), (7, Some(Vote::new(second.clone()))));
    assert_eq!(found.leaders, [(21, first), (200, second)]);
    assert!(found.segments.len() > 2, "{:?}", found.segments);
    let sum = |count: fn(&inkstone_raft::inspect::Segment) -> u64| {
        found.segments.iter().map(count).sum::<u64>()
    };
    assert_eq!(sum(|segment| segment.payload_bytes), sum(|segment| segment.entries) * 1000);
    // Each entry that is left is there, and the ten that were truncated; the front may have gone
    // with the purge.
    assert!((194..=210).contains(&sum(|segment| segment.entries)), "{:?}", found.segments);
    assert_eq!((sum(|segment| segment.truncations), sum(|segment| segment.purges)), (1, 1));
    assert_eq!(found.segments.last().unwrap().indexes.unwrap().1, 209);
    assert!(sum(|segment| segment.states) >= found.segments.len() as u64 - 1);
    let again = RaftLog::open_in(directory, options()).unwrap();
    assert_eq!(again.bounds().unwrap(), bounds);
}

#[test]
fn what_is_no_raft_log_is_an_error_that_says_so() {
    let directory = tempfile::tempdir().unwrap();
    assert!(matches!(inspect(directory.path()), Err(Error::Log(inkstone::Error::NoLog { .. }))));
    let log = inkstone::Log::open(directory.path(), inkstone::Options::small()).unwrap();
    assert!(matches!(inspect(directory.path()), Err(Error::Foreign { .. })), "empty");
    log.append_durable(b"an order").unwrap();
    let error = inspect(directory.path()).unwrap_err();
    assert!(matches!(error, Error::Foreign { .. }), "{error}");
    assert!(!is_raft_log(b"an order") && describe(b"an order").is_err() && describe(b"").is_err());
}

#[test]
fn records_are_described() {
    let directory = tempfile::tempdir().unwrap();
    let raft = RaftLog::open(directory.path(), Options::new()).unwrap();
    let leader = Leader::new(3, [7]);
    raft.save_vote(&Vote::granted(leader.clone())).unwrap();
    for index in 1..=3 {
        raft.append(&[NewEntry { leader: &leader, index, payload: b"set x" }], |_| {}).unwrap();
    }
    raft.truncate_from(3).unwrap();
    raft.save_committed(2).unwrap();
    raft.purge(&EntryId::new(leader.clone(), 1)).unwrap();
    raft.close().unwrap();
    drop(raft);
    let reader = inkstone::Reader::open(directory.path(), &inkstone::Options::new()).unwrap();
    let mut cursor = reader.from(reader.first());
    let mut told = Vec::new();
    while let Some(record) = cursor.next().unwrap() {
        assert_eq!(is_raft_log(record.bytes), told.is_empty());
        let info = describe(record.bytes).unwrap();
        assert_eq!(info.leader.is_some(), !matches!(info.kind, "state" | "truncate" | "committed"));
        told.push((info.kind, info.index, info.payload_bytes));
    }
    let entry = |index| ("entry", Some(index), Some(5));
    let expected = [
        ("state", Some(0), None),
        ("vote", None, None),
        entry(1),
        entry(2),
        entry(3),
        ("truncate", Some(3), None),
        ("purge", Some(1), None),
    ];
    assert_eq!(told, expected);
}
