//! Reading: limited, and after purges. That the same is read from memory and from disk is in
//! `proof/powerloss/tests/things`; beside other threads, in the explorer.

use inkstone_raft::{Leader, Options, RaftLog, Vote};

use crate::entries::append_of;

fn small(memory_bytes: usize) -> Options {
    Options::new().log(inkstone::Options::small()).memory_bytes(memory_bytes)
}

#[test]
fn a_limited_read_has_one_entry_at_the_least() {
    for memory_bytes in [0, 1 << 20] {
        let directory = tempfile::tempdir().unwrap();
        let raft = RaftLog::open(directory.path().join("raft"), small(memory_bytes)).unwrap();
        (1..=20).for_each(|index| append_of(&raft, 1, index..=index, &[1; 100]).unwrap());
        raft.sync().unwrap();
        // What may leave memory does so with the next append.
        append_of(&raft, 1, 21..=21, &[1; 100]).unwrap();
        let count = |range, bytes| raft.entries(range, bytes).unwrap().len();
        assert_eq!(
            [0, 1, 99, 100, 199, 200, 1999, 2000].map(|bytes| count(1..21, bytes)),
            [1, 1, 1, 1, 1, 2, 19, 20]
        );
        assert_eq!([count(20..21, 0), count(19..21, 100), count(5..5, 100)], [1, 1, 0]);
        raft.close().unwrap();
    }
}

/// A purge gives segments back, and what is left leads to the same.
#[test]
fn purged_segments_are_given_back() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("raft");
    let raft = RaftLog::open(&path, small(0)).unwrap();
    raft.save_vote(&Vote::granted(Leader::of_term(9))).unwrap();
    for index in 0..300 {
        append_of(&raft, index / 50 + 1, index * 10 + 1..=index * 10 + 10, &[7; 200]).unwrap();
    }
    raft.save_committed(2900).unwrap();
    let segments =
        |raft: &RaftLog| (*raft.records().start(), std::fs::read_dir(&path).unwrap().count());
    let (_, many) = segments(&raft);
    assert!(many > 8, "{many}");
    for upto in [10, 1500, 2900] {
        let upto = raft.id_of(upto).unwrap().unwrap();
        raft.purge(&upto).unwrap();
        raft.purge(&upto).unwrap();
    }
    // The purges have given some files back, and each commit gives back some more.
    append_of(&raft, 7, 3001..=3001, &[7; 200]).unwrap();
    raft.sync().unwrap();
    let (first, few) = segments(&raft);
    let last = raft.records().end().get();
    assert!(few <= 5 && first.get() > last / 10 * 8, "{few} files, from record {first} to {last}");
    let bounds = raft.bounds().unwrap();
    raft.close().unwrap();
    drop(raft);
    let raft = RaftLog::open(&path, small(0)).unwrap();
    assert_eq!(raft.bounds().unwrap(), bounds);
    assert_eq!(raft.vote().unwrap(), Some(Vote::granted(Leader::of_term(9))));
    assert_eq!(raft.entries(2901..u64::MAX, usize::MAX).unwrap().len(), 101);
}
