//! Where a raft log begins, and which votes follow each other: what openraft's suites and its two
//! modes ask for.

use std::path::Path;

use crate::entries::{append, id};
use inkstone_raft::{Error, Leader, Options, RaftLog, Vote};

fn open(path: &Path) -> RaftLog {
    RaftLog::open(path, Options::new().log(inkstone::Options::small())).unwrap()
}

fn indexes(raft: &RaftLog) -> Vec<u64> {
    raft.entries(0..100, usize::MAX).unwrap().iter().map(|entry| entry.id.index).collect()
}

/// The raft log as it is, and opened again.
fn again(path: &Path, raft: RaftLog, check: impl Fn(&RaftLog)) -> RaftLog {
    check(&raft);
    raft.close().unwrap();
    drop(raft);
    let raft = open(path);
    check(&raft);
    raft
}

#[test]
fn the_first_entry_says_where_a_raft_log_begins() {
    for first in [0, 1, 2, 77] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("raft");
        let raft = again(&path, open(&path), |raft| {
            let bounds = raft.bounds().unwrap();
            assert_eq!((bounds.first, bounds.next, bounds.last, bounds.purged), (0, 0, None, None));
        });
        append(&raft, 1, first..=first + 2).unwrap();
        for wrong in [first + 4, first] {
            let Err(Error::Hole { expected, came }) = append(&raft, 1, wrong..=wrong) else {
                panic!("{wrong} was not refused as a hole");
            };
            assert_eq!((expected, came), (first + 3, wrong));
        }
        append(&raft, 2, first + 3..=first + 3).unwrap();
        let raft = again(&path, raft, |raft| {
            let bounds = raft.bounds().unwrap();
            assert_eq!((bounds.first, bounds.next, bounds.purged), (first, first + 4, None));
            assert_eq!(bounds.last, Some(id(2, first + 3)));
            assert_eq!(
                indexes(raft),
                (first..first + 4).collect::<Vec<_>>(),
                "nothing was purged before it"
            );
            assert_eq!(first.checked_sub(1).and_then(|before| raft.entry(before).unwrap()), None);
        });
        // Truncated whole, it is as new.
        raft.truncate_from(0).unwrap();
        let raft = again(&path, raft, |raft| {
            let bounds = raft.bounds().unwrap();
            assert_eq!((bounds.first, bounds.next, bounds.last), (0, 0, None));
        });
        append(&raft, 3, first + 1..=first + 1).unwrap();
        assert_eq!(raft.bounds().unwrap().first, first + 1);
        raft.close().unwrap();
    }
}

/// The empty raft log of a follower that gets a snapshot, wherever that ends.
#[test]
fn a_snapshot_of_any_length_begins_an_empty_raft_log() {
    for upto in [0, 1, 5, 4000] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("raft");
        let raft = open(&path);
        raft.purge_to_snapshot(&id(4, upto)).unwrap();
        let raft = again(&path, raft, |raft| {
            let bounds = raft.bounds().unwrap();
            assert_eq!((bounds.first, bounds.next), (upto + 1, upto + 1));
            assert_eq!(bounds.purged, Some(id(4, upto)));
            assert_eq!((bounds.last, bounds.committed), (bounds.purged.clone(), bounds.purged));
        });
        // Again, and less: it is purged already.
        raft.purge_to_snapshot(&id(4, upto)).unwrap();
        raft.purge(&id(4, upto)).unwrap();
        if upto > 0 {
            raft.purge_to_snapshot(&id(3, upto - 1)).unwrap();
            raft.purge(&id(3, upto - 1)).unwrap();
        }
        assert_eq!(raft.bounds().unwrap().purged, Some(id(4, upto)));
        let hole = append(&raft, 4, upto + 2..=upto + 2);
        assert!(matches!(hole, Err(Error::Hole { .. })), "{hole:?}");
        append(&raft, 4, upto + 1..=upto + 1).unwrap();
        // Truncated whole, it still begins where it was purged.
        raft.truncate_from(upto + 1).unwrap();
        assert!(matches!(raft.truncate_from(upto), Err(Error::IsCommitted { .. })));
        assert!(matches!(append(&raft, 4, upto + 2..=upto + 2), Err(Error::Hole { .. })));
        append(&raft, 4, upto + 1..=upto + 1).unwrap();
        raft.close().unwrap();
    }
}

/// Entries from 2 on, and then a purge up to 1: it is noted, and entries that contradict the
/// snapshot go.
#[test]
fn a_purge_right_before_the_first_entry_is_noted() {
    for (term, left) in [(1, vec![2, 3, 4]), (3, vec![2, 3, 4]), (4, vec![])] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("raft");
        let raft = open(&path);
        append(&raft, 3, 2..=4).unwrap();
        let hole = raft.purge_to_snapshot(&id(term, 0));
        assert!(matches!(hole, Err(Error::HoleBehindPurge { upto: 0, first: 2 })), "{hole:?}");
        assert_eq!(raft.bounds().unwrap().purged, None, "nothing has changed");
        raft.purge_to_snapshot(&id(term, 1)).unwrap();
        let raft = again(&path, raft, |raft| {
            assert_eq!(raft.bounds().unwrap().purged, Some(id(term, 1)));
            assert!(matches!(raft.entry(1), Err(Error::IsPurged { index: 1, first: 2 })));
            let here: Vec<_> =
                raft.entries(2..100, 1000).unwrap().iter().map(|one| one.id.index).collect();
            assert_eq!(here, left);
        });
        raft.close().unwrap();
    }
    let directory = tempfile::tempdir().unwrap();
    let raft = open(&directory.path().join("raft"));
    append(&raft, 3, 2..=4).unwrap();
    raft.save_committed(3).unwrap();
    for refused in [raft.purge(&id(4, 1)), raft.purge_to_snapshot(&id(4, 1))] {
        assert!(matches!(refused, Err(Error::LeaderGoesBack { index: 2, .. })), "{refused:?}");
    }
    raft.purge(&id(2, 1)).unwrap();
    assert_eq!(raft.bounds().unwrap().purged, Some(id(2, 1)));
    raft.close().unwrap();
}

fn node(term: u64, node: u8) -> Leader {
    Leader::new(term, [node])
}

/// Elections as openraft has them, in both modes: none of their votes is refused, and each is found
/// again.
#[test]
fn votes_of_both_modes_are_taken() {
    let (vote, granted) = (|t, n| Vote::new(node(t, n)), |t, n| Vote::granted(node(t, n)));
    let histories = [
        // One leader a term: it voted for 2, and 1 (or 3) was elected.
        vec![vote(1, 2), granted(1, 1), vote(2, 3), granted(2, 3), vote(3, 1), granted(3, 3)],
        // Several: by name, also after a granted one.
        vec![vote(1, 1), granted(1, 1), vote(1, 2), granted(1, 2), vote(1, 3), vote(2, 1)],
    ];
    for votes in histories {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("raft");
        let mut raft = open(&path);
        for vote in votes {
            raft.save_vote(&vote).unwrap();
            raft.save_vote(&vote).unwrap();
            raft =
                again(&path, raft, |raft| assert_eq!(raft.vote().unwrap().as_ref(), Some(&vote)));
        }
        raft.close().unwrap();
    }
}

#[test]
fn a_vote_that_goes_back_in_either_mode_is_refused() {
    let (vote, granted) = (|t, n| Vote::new(node(t, n)), |t, n| Vote::granted(node(t, n)));
    for (saved, refused) in [
        (vote(5, 5), vec![vote(4, 9), granted(4, 9), vote(5, 4)]),
        (granted(5, 5), vec![vote(4, 9), granted(4, 9), vote(5, 4), granted(5, 4), vote(5, 5)]),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let raft = open(&directory.path().join("raft"));
        raft.save_vote(&saved).unwrap();
        for came in refused {
            let result = raft.save_vote(&came);
            assert!(
                matches!(&result, Err(Error::VoteGoesBack { .. })),
                "{came} after {saved}: {result:?}"
            );
            assert_eq!(raft.vote().unwrap(), Some(saved.clone()));
        }
        raft.close().unwrap();
    }
}
