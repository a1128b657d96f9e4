//! What is said of a raft log that is only read.

use std::sync::Arc;

use inkstone::LogKind;
use inkstone_raft::inspect::{inspect, inspect_in};
use inkstone_raft::{EntryId, Error, Groups, Leader, NewEntry, Options, RaftLog, Vote};
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
    let [group] = &found.groups[..] else { panic!("{found:?}") };
    assert_eq!(group.bounds, bounds);
    // The simulated disk has no memory that processes share: only what is promised is known there.
    let next = beside.groups[0].bounds.next;
    assert!((200..=210).contains(&next) && beside.groups[0].raft_group == 7, "{beside:?}");
    assert_eq!((group.raft_group, &group.vote), (7, &Some(Vote::new(second.clone()))));
    assert_eq!(group.leaders, [(21, first), (200, second)]);
    assert_eq!(group.payload_bytes, 189 * 1000);
    let again = RaftLog::open_in(directory, options()).unwrap();
    assert_eq!(again.bounds().unwrap(), bounds);
}

#[test]
fn what_is_no_raft_log_is_an_error_that_says_so() {
    let directory = tempfile::tempdir().unwrap();
    for path in [directory.path(), &directory.path().join("none")] {
        assert!(matches!(inspect(path), Err(Error::Log(inkstone::Error::NoLog { .. }))));
    }
    let log = inkstone::Log::open(directory.path(), inkstone::Options::small()).unwrap();
    log.append_durable(b"an order").unwrap();
    let error = inspect(directory.path()).unwrap_err();
    assert!(matches!(error, Error::Log(inkstone::Error::OtherKind { .. })), "{error}");
}

/// Every entry is read: one that is no entry is found, wherever it is, and its group named.
#[test]
fn each_group_is_said_and_each_entry_checked() {
    let directory = tempfile::tempdir().unwrap();
    let options = || inkstone_raft::StreamsOptions::new().log(inkstone::Options::small());
    let groups = Groups::open(directory.path(), options()).unwrap();
    for id in [3, 9] {
        append(&groups.group(id).unwrap(), 1..11, &Leader::of_term(id));
    }
    groups.close().unwrap();
    let found = inspect(directory.path()).unwrap();
    let said = found.groups.iter().map(|group| (group.raft_group, group.bounds.next));
    assert_eq!(said.collect::<Vec<_>>(), [(3, 11), (9, 11)]);

    let of_raft = options().log(inkstone::Options::small().kind(LogKind::RAFT));
    let streams = inkstone_streams::Streams::open(directory.path(), of_raft).unwrap();
    let last = streams.reader().get(9, 10).unwrap();
    let mut batch = inkstone_streams::Batch::new();
    batch.truncate_after(9, 5).append(9, b"not an entry");
    for _ in 7..11 {
        batch.append(9, &last);
    }
    streams.apply(&batch).unwrap().wait().unwrap();
    streams.close().unwrap();
    let error = inspect(directory.path()).unwrap_err();
    assert!(matches!(error, Error::BadGroup { group: 9, .. }), "{error}");
    assert!(error.to_string().contains("record 6 has kind"), "{error}");
}
