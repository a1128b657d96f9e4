//! Many groups in one log: one flush, callbacks, readers, other logs.

use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier, Weak};
use std::time::Duration;

use inkstone_raft::{
    Batch, EntryId, Error, Groups, Leader, NewEntry, Options, RaftLog, StreamsOptions, Vote,
};
use inkstone_sim::{DiskOptions, SimDisk};

use crate::entries::append;

const SOON: Duration = Duration::from_secs(60);

fn small() -> StreamsOptions {
    StreamsOptions::new().log(inkstone::Options::small()).section_bytes(16 << 10)
}

fn still() -> StreamsOptions {
    small().log(inkstone::Options::small().own_thread(false)).own_mover(false)
}

fn entry(leader: &Leader, index: u64) -> NewEntry<'_> {
    NewEntry { leader, index, payload: b"an entry" }
}

fn told(error: Result<(), Error>) -> String {
    error.unwrap_err().to_string()
}

#[test]
fn a_vote_of_one_group_and_entries_of_others_share_one_write_and_one_flush() {
    let disk = SimDisk::new(1, DiskOptions { writeback_ppm: 0, ..DiskOptions::default() });
    let groups = Groups::open_in(Arc::new(disk.directory("/groups")), still()).unwrap();
    let all: Vec<_> = (0..16).map(|id| groups.group(id).unwrap()).collect();
    all[0].save_vote(&Vote::new(Leader::of_term(1))).unwrap();
    let before = disk.counters();
    for raft in &all[1..] {
        append(raft, 1, 1..=2).unwrap();
        raft.save_committed(1).unwrap();
    }
    all[0].save_vote(&Vote::new(Leader::of_term(2))).unwrap();
    let after = disk.counters();
    assert_eq!((after.writes - before.writes, after.flushes - before.flushes), (1, 1));
    groups.close().unwrap();
}

#[test]
fn a_batch_of_several_groups_is_one_write_and_one_flush_and_what_it_promises_is_found() {
    let disk = SimDisk::new(1, DiskOptions { writeback_ppm: 0, ..DiskOptions::default() });
    let open = || Groups::open_in(Arc::new(disk.directory("/groups")), still()).unwrap();
    let groups = open();
    let (one, two) = (groups.group(1).unwrap(), groups.group(2).unwrap());
    append(&one, 1, 1..=3).unwrap();
    one.sync().unwrap();
    let (leader, vote) = (Leader::of_term(2), Vote::granted(Leader::of_term(2)));
    let mut batch = Batch::new();
    // The changes of a group need not lie side by side.
    batch.append(&two, &[entry(&leader, 7)]).truncate_from(&one, 2).save_vote(&two, vote.clone());
    batch.append(&one, &[2, 3, 4].map(|index| entry(&leader, index)));
    batch.save_committed(&two, 7).truncate_from(&one, 4).save_committed(&one, 2);
    let before = disk.counters();
    groups.apply(&batch).unwrap();
    let after = disk.counters();
    assert_eq!((after.writes - before.writes, after.flushes - before.flushes), (1, 1));
    let shown = |one: &RaftLog, two: &RaftLog| {
        let entries = one.entries(1..9, usize::MAX).unwrap();
        let terms: Vec<_> = entries.iter().map(|entry| entry.id.leader.term).collect();
        (terms, one.bounds().unwrap(), two.bounds().unwrap(), two.vote().unwrap())
    };
    let (terms, of_one, of_two, voted) = shown(&one, &two);
    assert_eq!((&terms[..], voted), (&[1, 2, 2][..], Some(vote)));
    let committed = |index| Some(EntryId::new(leader.clone(), index));
    assert_eq!((&of_one.saved_committed, &of_two.saved_committed), (&committed(2), &committed(7)));
    let before = shown(&one, &two);
    groups.abandon();
    let groups = open();
    assert_eq!(shown(&groups.group(1).unwrap(), &groups.group(2).unwrap()), before);
}

#[test]
fn a_batch_with_a_part_that_cannot_be_is_refused_whole() {
    let directory = tempfile::tempdir().unwrap();
    let groups = Groups::open(directory.path().join("groups"), still()).unwrap();
    let others = Groups::open(directory.path().join("others"), still()).unwrap();
    let [one, two, gone, old] = [1, 2, 3, 4].map(|id| groups.group(id).unwrap());
    let foreign = others.group(2).unwrap();
    append(&one, 1, 1..=3).unwrap();
    append(&two, 1, 1..=3).unwrap();
    two.save_vote(&Vote::new(Leader::of_term(5))).unwrap();
    groups.remove(3).unwrap();
    old.close().unwrap();
    let new = groups.group(4).unwrap();
    let (leader, large) = (Leader::of_term(1), vec![0; 20 << 10]);
    let good = entry(&leader, 4);
    let beyond = entry(&leader, 5);
    let mut goes_back = both(&one, &two, good, &[good]);
    goes_back.save_vote(&two, Vote::new(Leader::of_term(4)));
    let mut two_of_one = both(&one, &new, good, &[good]);
    two_of_one.append(&old, &[good]);
    let parts = [NewEntry { payload: &large, ..good }, NewEntry { payload: &large, ..beyond }];
    let before = (one.bounds().unwrap(), two.bounds().unwrap(), *one.records().end());
    for (batch, words) in [
        (Batch::new(), "without changes"),
        (
            both(&one, &two, good, &[beyond]),
            "raft group 2: the next entry must have index 4, not 5",
        ),
        (goes_back, "raft group 2: a vote for term 4 goes back"),
        (both(&one, &gone, good, &[good]), "raft group 3: the raft log is closed"),
        (two_of_one, "raft group 4: the raft log is closed"),
        (both(&one, &foreign, good, &[good]), "opened by itself or by other `Groups`"),
        (both(&one, &two, good, &parts), "the limit"),
    ] {
        let told = groups.apply(&batch).unwrap_err().to_string();
        assert!(told.contains(words), "{told}");
        let refused = groups.apply_then(&batch, |_| panic!("it was refused"));
        assert_eq!(refused.unwrap_err().to_string(), told);
        assert_eq!((one.bounds().unwrap(), two.bounds().unwrap(), *one.records().end()), before);
    }
    // It could be made all the time.
    groups.apply(&both(&one, &two, good, &[good])).unwrap();
    assert_eq!([&one, &two].map(|raft| raft.bounds().unwrap().next), [5, 5]);
}

/// Also an index that was saved before, if a snapshot's purge has passed it since.
#[test]
fn what_is_committed_goes_back_in_no_call_and_in_no_batch() {
    let directory = tempfile::tempdir().unwrap();
    let groups = Groups::open(directory.path(), still()).unwrap();
    let one = groups.group(1).unwrap();
    append(&one, 1, 1..=3).unwrap();
    one.save_committed(2).unwrap();
    one.purge_to_snapshot(&EntryId::new(Leader::of_term(1), 6)).unwrap();
    let mut batch = Batch::new();
    batch.save_committed(&one, 2);
    for refused in [one.save_committed(2), groups.apply(&batch), groups.apply_then(&batch, |_| {})]
    {
        let refused = refused.unwrap_err();
        let is_back = matches!(refused.cause(), Error::CommittedGoesBack { saved: 6, came: 2 });
        assert!(is_back, "{refused}");
    }
}

/// A batch that appends to two groups.
fn both<'a>(
    one: &'a RaftLog,
    other: &'a RaftLog,
    good: NewEntry<'a>,
    entries: &[NewEntry<'a>],
) -> Batch<'a> {
    let mut batch = Batch::new();
    batch.append(one, &[good]).append(other, entries);
    batch
}

/// Also while one thread fills the buffers: the thread that makes room must not wait for the thread
/// that needs room.
#[test]
fn a_callback_may_do_anything_with_any_group() {
    let full = small().log(inkstone::Options::small().buffer_bytes(8 << 10));
    for (options, bytes) in [(small(), 900), (still(), 900), (full, 5000)] {
        let directory = tempfile::tempdir().unwrap();
        let groups = Arc::new(Groups::open(directory.path(), options).unwrap());
        let (tell, tells) = channel();
        let leader = Leader::of_term(1);
        let (one, two) = (groups.group(1).unwrap(), groups.group(2).unwrap());
        for index in 1..200 {
            let (tell, groups) = (tell.clone(), Arc::downgrade(&groups));
            let payload = vec![7; bytes];
            let callback = move |result: Result<(), Error>| {
                result.unwrap();
                let groups: Arc<Groups> = Weak::upgrade(&groups).unwrap();
                // Its own group, another one, one that is made here, and one that goes again.
                assert!(groups.group(1).unwrap().bounds().unwrap().next > index);
                append(&groups.group(3).unwrap(), 1, index..=index).unwrap();
                groups.group(1).unwrap().save_committed(index).unwrap();
                groups
                    .group(100 + index)
                    .unwrap()
                    .save_vote_then(&Vote::new(Leader::of_term(1)), |_| {})
                    .unwrap();
                tell.send(index).unwrap();
            };
            one.append(&[NewEntry { leader: &leader, index, payload: &payload }], callback)
                .unwrap();
            two.append(&[entry(&leader, index)], |result| result.unwrap()).unwrap();
        }
        one.sync().unwrap();
        for index in 1..200 {
            assert_eq!(tells.recv_timeout(SOON), Ok(index), "in order, once");
        }
        one.sync().unwrap();
        assert_eq!(groups.group(3).unwrap().bounds().unwrap().next, 200);
        assert_eq!(groups.ids().unwrap().len(), 202);
        groups.close().unwrap();
    }
}

#[test]
fn logs_of_others_are_refused_and_left_as_they_are() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let periodic = inkstone::Options::small().periodic(Duration::from_millis(5));
    let refused = Groups::open(path("new"), small().log(periodic));
    assert!(refused.unwrap_err().to_string().contains("periodic"));
    let groups = Groups::open(path("groups"), small()).unwrap();
    groups.group(1).unwrap();
    groups.close().unwrap();
    let other = RaftLog::open(path("groups"), Options::new());
    assert!(matches!(other, Err(Error::OtherRaftGroup { expected: 0, came: 1, .. })));

    let log = inkstone::Options::small().kind(inkstone::LogKind::RAFT);
    let streams = inkstone_streams::Streams::open(path("groups"), small().log(log)).unwrap();
    streams.create(2, 1).unwrap().wait().unwrap();
    streams.append(1, b"not an entry").unwrap().wait().unwrap();
    streams.close().unwrap();
    let groups = Groups::open(path("groups"), small()).unwrap();
    for (id, why) in [(1, "record 0 "), (2, "begins as no note of a raft group")] {
        let refused = groups.group(id).unwrap_err();
        assert!(matches!(refused, Error::BadGroup { .. }) && refused.to_string().contains(why));
    }
    assert!(matches!(groups.remove(2), Err(Error::BadGroup { .. })), "it may be somebody's");
}

/// A log of one raft group and one of many are the same, as long as there is one.
#[test]
fn a_raft_log_is_a_log_of_many_groups_that_has_one() {
    let directory = tempfile::tempdir().unwrap();
    let log = || inkstone::Options::small();
    let open = || RaftLog::open(directory.path(), Options::new().log(log()).raft_group(7));
    let raft = open().unwrap();
    append(&raft, 3, 1..=10).unwrap();
    raft.save_vote(&Vote::granted(Leader::of_term(3))).unwrap();
    raft.save_committed(4).unwrap();
    raft.purge(&EntryId::new(Leader::of_term(3), 4)).unwrap();
    let bounds = raft.bounds().unwrap();
    raft.close().unwrap();
    drop(raft);
    let groups = Groups::open(directory.path(), small()).unwrap();
    assert_eq!(groups.group(7).unwrap().bounds().unwrap(), bounds);
    append(&groups.group(7).unwrap(), 4, 11..=11).unwrap();
    groups.close().unwrap();
    drop(groups);
    assert_eq!(open().unwrap().entries(5..20, usize::MAX).unwrap().len(), 7);
    let groups = Groups::open(directory.path(), small()).unwrap();
    groups.group(8).unwrap();
    groups.close().unwrap();
    drop(groups);
    assert!(matches!(open(), Err(Error::OtherRaftGroup { expected: 7, came: 8, .. })));
}

#[test]
fn a_reader_shows_what_later_handles_of_its_group_do() {
    let directory = tempfile::tempdir().unwrap();
    let groups = Groups::open(directory.path(), still()).unwrap();
    let first = groups.group(7).unwrap();
    append(&first, 1, 1..=10).unwrap();
    first.sync().unwrap();
    let reader = first.reader();
    // The callback of the append has run, so the reader alone holds the group then.
    drop(first);
    let second = groups.group(7).unwrap();
    second.truncate_from(5).unwrap();
    append(&second, 2, 5..=5).unwrap();
    second.save_vote(&Vote::new(Leader::of_term(9))).unwrap();
    assert_eq!(reader.bounds().unwrap(), second.bounds().unwrap());
    assert_eq!(reader.vote().unwrap(), second.vote().unwrap());
    assert_eq!(reader.entry(5).unwrap().unwrap().id.leader.term, 2);
    assert_eq!(reader.entry(9).unwrap(), None);
    second.close().unwrap();
    assert!(told(reader.vote().map(|_| ())).contains("closed"));
    drop(second);
    groups.remove(7).unwrap();
    assert!(told(reader.bounds().map(|_| ())).contains("closed"));
    assert!(matches!(reader.entries(1..9, 99), Err(Error::Closed)), "no group is named");
    groups.close().unwrap();
}

/// Whatever is on its way, by whichever call: a callback that comes too early reports as durable
/// what a power loss takes.
#[test]
fn a_callback_for_no_entries_waits_for_all_calls_before_it() {
    let disk = SimDisk::new(1, DiskOptions { writeback_ppm: 0, ..DiskOptions::default() });
    let groups = Groups::open_in(Arc::new(disk.directory("/groups")), still()).unwrap();
    let (one, two) = (groups.group(1).unwrap(), groups.group(2).unwrap());
    let leader = Leader::of_term(1);
    let by_batch = || {
        let entries = [entry(&leader, 1)];
        groups.apply_then(Batch::new().append(&one, &entries), |_| {})
    };
    let by_another = || two.append(&[entry(&leader, 1)], |_| {});
    for call in [&by_batch as &dyn Fn() -> Result<(), Error>, &by_another] {
        one.sync().unwrap();
        call().unwrap();
        let (told, hear) = channel();
        one.append(&[], move |result| told.send(result.is_ok()).unwrap()).unwrap();
        assert!(hear.try_recv().is_err(), "nothing is durable yet");
        one.sync().unwrap();
        assert_eq!(hear.try_recv(), Ok(true));
        // With nothing on its way it comes at once.
        let (told, hear) = channel();
        one.append(&[], move |result| told.send(result.is_ok()).unwrap()).unwrap();
        assert_eq!(hear.try_recv(), Ok(true));
    }
    groups.close().unwrap();
}

/// Two threads save the same vote. The call that finds it made was told so before it is durable.
#[test]
fn a_vote_that_another_thread_is_saving_is_durable_when_the_callback_comes() {
    let directory = tempfile::tempdir().unwrap();
    let groups = Groups::open(directory.path(), StreamsOptions::new()).unwrap();
    let (one, gate) = (groups.group(1).unwrap(), Barrier::new(2));
    let votes = || (1..2000).map(|term| Vote::granted(Leader::of_term(term)));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for vote in votes() {
                gate.wait();
                one.save_vote(&vote).unwrap();
            }
        });
        let early = votes().filter(|vote| {
            gate.wait();
            let (reader, vote, (told, hear)) = (one.reader(), vote.clone(), channel());
            let is_there = {
                let vote = vote.clone();
                move |result: Result<(), Error>| {
                    result.unwrap();
                    told.send(reader.vote().unwrap() == Some(vote)).unwrap();
                }
            };
            one.save_vote_then(&vote, is_there).unwrap();
            !hear.recv().unwrap()
        });
        assert_eq!(early.count(), 0, "callbacks that came before the vote was durable");
    });
    groups.close().unwrap();
}
