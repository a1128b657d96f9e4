//! A full disk: appends and votes fail whole and can be tried again, a purge makes room, and a
//! crash in between is no harm.

use std::sync::Arc;

use inkstone_raft::{EntryId, Error, Leader, NewEntry, Options, RaftLog, Result, Vote};
use inkstone_sim::{DiskOptions, Effect, Fault, OperationKind, SimDisk, errno};

type Sim = RaftLog;

fn open(disk: &SimDisk) -> Sim {
    let options = Options::new().log(inkstone::Options::small().own_thread(false)).memory_bytes(0);
    RaftLog::open_in(Arc::new(disk.directory("/raft")), options).unwrap()
}

fn append(raft: &Sim, index: u64, bytes: usize) -> Result<()> {
    let leader = Leader::of_term(1);
    raft.append(&[NewEntry { leader: &leader, index, payload: &vec![index as u8; bytes] }], |_| {})
}

fn is_no_room<T>(result: &Result<T>) -> bool {
    let Err(error) = result else { return false };
    matches!(error, Error::Log(inkstone::Error::NoRoom { .. })) && error.is_retryable()
}

/// Fills the disk until not even the smallest record fits.
fn fill(raft: &Sim) -> u64 {
    let mut index = raft.bounds().unwrap().next.max(1);
    for bytes in [6000, 100, 0] {
        loop {
            let (before, records) = (raft.bounds().unwrap(), *raft.records().end());
            match append(raft, index, bytes) {
                Ok(()) => index += 1,
                full => {
                    assert!(is_no_room(&full), "{full:?}");
                    assert_eq!(
                        (raft.bounds().unwrap(), *raft.records().end()),
                        (before, records),
                        "nothing changed"
                    );
                    break;
                }
            }
        }
    }
    index
}

#[test]
fn a_purge_makes_room_where_not_even_its_record_fits() {
    let disk =
        SimDisk::new(5, DiskOptions { capacity_bytes: Some(600 << 10), ..DiskOptions::default() });
    let raft = open(&disk);
    raft.save_vote(&Vote::granted(Leader::of_term(1))).unwrap();
    let next = fill(&raft);
    let vote = Vote::granted(Leader::of_term(2));
    let full = raft.save_vote(&vote);
    assert!(is_no_room(&full), "{full:?}");
    assert_eq!(raft.vote().unwrap().unwrap().leader.term, 1);
    raft.save_committed(next - 1).unwrap();
    let segments = *raft.records().start();
    let upto = EntryId::new(Leader::of_term(1), next / 2);
    disk.record_epochs();
    disk.take_epochs();
    raft.purge(&upto).unwrap();
    let cuts = disk.take_epochs();
    assert!(*raft.records().start() > segments, "no segment was given back");
    let bounds = raft.bounds().unwrap();
    assert_eq!(
        (bounds.first, bounds.next, bounds.purged),
        (upto.index + 1, next, Some(upto.clone()))
    );
    raft.save_vote(&vote).unwrap();
    append(&raft, next, 100).unwrap();
    // In between, the entries of the segments that were given back are purged, and nothing else is
    // lost.
    let mut purged_in_part = 0;
    assert!(cuts.len() > 2, "{}", cuts.len());
    for cut in &cuts {
        for seed in 0..20 {
            let found = cut.sample(seed);
            found.change_options(|options| options.capacity_bytes = None);
            let raft = open(&found);
            let bounds = raft.bounds().unwrap();
            assert!((1..=upto.index + 1).contains(&bounds.first), "{bounds:?}");
            assert_eq!(
                raft.entries(bounds.first..next, usize::MAX).unwrap().len() as u64,
                bounds.next - bounds.first
            );
            assert!(bounds.next > upto.index, "{bounds:?}");
            assert_eq!(raft.vote().unwrap().unwrap().leader.term, 1);
            purged_in_part += u32::from(bounds.first > 1 && bounds.first <= upto.index);
            raft.abandon();
        }
    }
    assert!(purged_in_part > 0, "no crash between the two was seen");
    raft.close().unwrap();
    let raft = open(&disk);
    assert_eq!(raft.bounds().unwrap().next, next + 1);
    raft.close().unwrap();
}

#[test]
fn a_purge_that_can_give_nothing_back_says_so_and_changes_nothing() {
    let disk =
        SimDisk::new(5, DiskOptions { capacity_bytes: Some(200 << 10), ..DiskOptions::default() });
    let raft = open(&disk);
    let next = fill(&raft);
    raft.save_committed(next - 1).unwrap();
    let bounds = raft.bounds().unwrap();
    let purged = raft.purge(&EntryId::new(Leader::of_term(1), 2));
    assert!(is_no_room(&purged), "{purged:?}");
    assert_eq!(raft.bounds().unwrap(), bounds);
    raft.purge(&EntryId::new(Leader::of_term(1), next - 1)).unwrap();
    assert_eq!(raft.bounds().unwrap().first, next);
    append(&raft, next, 6000).unwrap();
    raft.close().unwrap();
}

/// Who has read everything, and sleeps, keeps no room: the raft log's own readers, and one that may
/// be in another process.
#[test]
fn a_purge_makes_room_after_everything_was_read() {
    let disk =
        SimDisk::new(5, DiskOptions { capacity_bytes: Some(600 << 10), ..DiskOptions::default() });
    let raft = open(&disk);
    let next = fill(&raft);
    let sleeper =
        inkstone::Reader::open_in(Arc::new(disk.directory("/raft")), inkstone::Options::small());
    let sleeper = sleeper.unwrap();
    for index in 1..next {
        raft.entry(index).unwrap().unwrap();
    }
    for lsn in sleeper.first().get()..=sleeper.durable().get() {
        sleeper.get(inkstone::Lsn::new(lsn)).unwrap();
    }
    raft.purge_to_snapshot(&EntryId::new(Leader::of_term(1), next - 1)).unwrap();
    append(&raft, next, 6000).unwrap();
    raft.save_vote(&Vote::granted(Leader::of_term(2))).unwrap();
    raft.close().unwrap();
    drop(sleeper);
}

/// The purge releases segments and finds no room for its record all the same. In memory more is
/// committed then than was said, and what was said still has no record.
#[test]
fn what_was_said_to_be_committed_outlives_a_purge_without_room() {
    for goes_on in [false, true] {
        let disk = SimDisk::new(
            5,
            DiskOptions { capacity_bytes: Some(600 << 10), ..DiskOptions::default() },
        );
        let raft = open(&disk);
        let next = fill(&raft);
        raft.save_committed(3).unwrap();
        // Others take the room.
        disk.inject(
            Fault::new(Effect::Error(errno::ENOSPC)).on(OperationKind::Create).times(u64::MAX),
        );
        let purged = raft.purge_to_snapshot(&EntryId::new(Leader::of_term(1), next - 1));
        assert!(is_no_room(&purged), "{purged:?}");
        let bounds = raft.bounds().unwrap();
        assert!(bounds.first > 4 && bounds.committed > bounds.saved_committed, "{bounds:?}");
        disk.clear_faults();
        if goes_on {
            // The next record has it, and so has each state after that.
            append(&raft, next, 100).unwrap();
            raft.sync().unwrap();
            raft.abandon();
        } else {
            raft.close().unwrap();
            drop(raft);
        }
        let raft = open(&disk);
        let found = raft.bounds().unwrap();
        assert_eq!(
            (found.first, found.committed),
            (bounds.first, bounds.committed),
            "goes on: {goes_on}"
        );
        assert_eq!(
            found.saved_committed,
            Some(EntryId::new(Leader::of_term(1), 3)),
            "goes on: {goes_on}"
        );
        raft.close().unwrap();
    }
}

fn all(raft: &Sim) -> Vec<u64> {
    let bounds = raft.bounds().unwrap();
    let entries = raft.entries(bounds.first..bounds.next, usize::MAX).unwrap();
    assert_eq!(entries.len() as u64, bounds.next - bounds.first, "{bounds:?}");
    entries.iter().map(|entry| entry.id.index).collect()
}

/// The purge gives segments back before it has a record, and a file cannot be released: memory must
/// not name what the log has lost.
#[test]
fn a_release_that_fails_leaves_nothing_in_memory_that_is_gone() {
    let mut seen = 0;
    for kind in [OperationKind::Rename, OperationKind::Remove, OperationKind::SyncDirectory] {
        let disk = SimDisk::new(
            5,
            DiskOptions { capacity_bytes: Some(600 << 10), ..DiskOptions::default() },
        );
        let raft = open(&disk);
        let next = fill(&raft);
        raft.save_committed(next - 1).unwrap();
        let first = *raft.records().start();
        disk.inject(Fault::new(Effect::Error(errno::EIO)).on(kind));
        let purged = raft.purge(&EntryId::new(Leader::of_term(1), next / 2));
        if purged.is_ok() {
            // A release has no such call.
            continue;
        }
        if raft.bounds().is_ok() {
            seen += 1;
            assert!(
                *raft.records().start() > first,
                "{kind:?}: {purged:?}, and nothing was given back"
            );
            assert_eq!(all(&raft).last(), Some(&(next - 1)), "{kind:?}");
            raft.purge(&EntryId::new(Leader::of_term(1), next / 2)).unwrap();
            assert_eq!(raft.bounds().unwrap().first, next / 2 + 1, "{kind:?}");
        }
        drop(raft);
        let raft = open(&disk);
        assert_eq!(all(&raft).last(), Some(&(next - 1)), "{kind:?}");
        raft.close().unwrap();
    }
    assert!(seen > 0, "no release failed");
}

/// A follower that knows of nothing committed, and has no room: a snapshot is installed all the
/// same, whether its end is here, is another entry, or lies beyond, and after a crash in between.
#[test]
fn a_snapshot_is_installed_without_room() {
    let id = |term, index| EntryId::new(Leader::of_term(term), index);
    for case in 0..4 {
        let disk = SimDisk::new(
            5,
            DiskOptions { capacity_bytes: Some(600 << 10), ..DiskOptions::default() },
        );
        let raft = open(&disk);
        let next = fill(&raft);
        let upto =
            [id(1, next / 2), id(3, next / 2), id(3, next + 100), id(1, next - 1)][case].clone();
        let left = if case == 0 { next / 2 + 1..next } else { 0..0 };
        disk.record_epochs();
        disk.take_epochs();
        raft.purge_to_snapshot(&upto).unwrap_or_else(|error| panic!("case {case}: {error}"));
        assert_eq!(all(&raft), left.clone().collect::<Vec<_>>(), "case {case}");
        let cuts = disk.take_epochs();
        let mut in_between = 0;
        for cut in &cuts {
            for seed in 0..10 {
                let found = cut.sample(seed);
                let raft = open(&found);
                let bounds = raft.bounds().unwrap();
                in_between +=
                    u32::from(bounds.purged.as_ref().is_some_and(|purged| *purged != upto));
                all(&raft);
                // The framework sees that its snapshot is newer than the log, and says so again.
                raft.purge_to_snapshot(&upto)
                    .unwrap_or_else(|error| panic!("case {case}: {error}"));
                assert_eq!(all(&raft), left.clone().collect::<Vec<_>>(), "case {case}");
                assert_eq!(raft.bounds().unwrap().purged, Some(upto.clone()));
                raft.abandon();
            }
        }
        assert!(in_between > 0, "case {case}: no crash between the two was seen");
        let leader = Leader::of_term(4);
        let next = raft.bounds().unwrap().next;
        raft.append(&[NewEntry { leader: &leader, index: next, payload: b"more" }], |_| {})
            .unwrap();
        raft.close().unwrap();
    }
}

/// Groups change nothing on a full disk either, and go on when there is room.
#[test]
fn groups_on_a_full_disk_refuse_whole_and_go_on() {
    let disk =
        SimDisk::new(5, DiskOptions { capacity_bytes: Some(600 << 10), ..DiskOptions::default() });
    let open = || {
        let options = inkstone_raft::StreamsOptions::new()
            .log(inkstone::Options::small().own_thread(false))
            .section_bytes(16 << 10)
            .own_mover(false);
        inkstone_raft::Groups::open_in(Arc::new(disk.directory("/raft")), options).unwrap()
    };
    let groups = open();
    let (one, two) = (groups.group(1).unwrap(), groups.group(2).unwrap());
    one.save_vote(&Vote::new(Leader::of_term(1))).unwrap();
    let next = fill(&two);
    let full = one.save_vote(&Vote::granted(Leader::of_term(2)));
    assert!(is_no_room(&full), "{full:?}");
    // A new group is a smaller record than a vote, and the last segment may have room for one.
    let new = if groups.group(3).is_ok() { 4 } else { 3 };
    assert!(matches!(groups.group(new), Err(Error::Log(inkstone::Error::NoRoom { .. }))));
    two.save_committed(next - 1).unwrap();
    let upto = EntryId::new(Leader::of_term(1), next - 1);
    assert!(is_no_room(&two.purge(&upto)));
    assert!(is_no_room(&groups.remove(2)));
    assert!(matches!(two.bounds(), Err(Error::Closed)));
    let two = groups.group(2).unwrap();
    assert_eq!((two.bounds().unwrap().next, one.vote().unwrap().unwrap().leader.term), (next, 1));
    disk.change_options(|options| options.capacity_bytes = Some(900 << 10));
    one.save_vote(&Vote::granted(Leader::of_term(2))).unwrap();
    two.save_committed(next - 1).unwrap();
    two.purge(&upto).unwrap();
    while groups.move_some().unwrap() {}
    append(&two, next, 100).unwrap();
    groups.close().unwrap();
    let groups = open();
    assert_eq!(groups.group(2).unwrap().bounds().unwrap().purged, Some(upto));
    assert_eq!(groups.group(1).unwrap().vote().unwrap().unwrap().leader.term, 2);
    assert_eq!(groups.ids().unwrap(), (1..new).collect::<Vec<_>>(), "none that was refused");
}
