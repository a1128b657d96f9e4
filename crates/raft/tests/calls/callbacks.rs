//! Callbacks that write, that block, that end the raft log; a listener. That callbacks come in
//! order, once, when the entries are durable, is in `proof/powerloss/tests/things` and the explorer.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use inkstone_raft::{Error, Leader, NewEntry, Options, RaftLog, Result, Vote};
use inkstone_sim::{AfterEffect, DiskOptions, Effect, Fault, OperationKind, SimDisk, errno};

type Sim = RaftLog;
type Told = Arc<Mutex<Vec<(u64, bool)>>>;

fn quiet() -> Options {
    Options::new().log(inkstone::Options::small().own_thread(false))
}

fn on(disk: &SimDisk) -> Sim {
    RaftLog::open_in(Arc::new(disk.directory("/raft")), quiet()).unwrap()
}

fn disk() -> SimDisk {
    let after_effect = Some(AfterEffect::KeepsNew);
    SimDisk::new(23, DiskOptions { after_effect, writeback_ppm: 0, ..DiskOptions::default() })
}

fn append(raft: &Sim, told: &Told, index: u64) -> Result<()> {
    let (leader, told) = (Leader::of_term(1), Arc::clone(told));
    let entry = NewEntry { leader: &leader, index, payload: &[index as u8; 100] };
    raft.append(&[entry], move |result| told.lock().unwrap().push((index, result.is_ok())))
}

fn told_of(told: &Told) -> Vec<(u64, bool)> {
    told.lock().unwrap().clone()
}

/// Three entries become durable with one flush, and the callback of the first ends the raft log:
/// the others are durable all the same.
#[test]
fn after_an_end_within_a_callback_what_is_durable_is_told_so() {
    let close = |raft: &Sim, _: &SimDisk| raft.close().unwrap();
    let poison = |raft: &Sim, disk: &SimDisk| {
        disk.inject(Fault::new(Effect::Error(errno::EIO)).on(OperationKind::Write));
        let vote = raft.save_vote(&Vote::new(Leader::of_term(5)));
        assert!(matches!(vote, Err(Error::Log(inkstone::Error::Poisoned(_)))), "{vote:?}");
    };
    for end in [close as fn(&Sim, &SimDisk), poison] {
        let (disk, told) = (disk(), Told::default());
        let raft = Arc::new(on(&disk));
        let (leader, again) = (Leader::of_term(1), Arc::clone(&raft));
        let (same_disk, same_told) = (disk.clone(), Arc::clone(&told));
        let first = NewEntry { leader: &leader, index: 1, payload: b"first" };
        raft.append(&[first], move |result| {
            end(&again, &same_disk);
            same_told.lock().unwrap().push((1, result.is_ok()));
        })
        .unwrap();
        append(&raft, &told, 2).unwrap();
        append(&raft, &told, 3).unwrap();
        raft.sync().unwrap();
        assert_eq!(told_of(&told), [(1, true), (2, true), (3, true)]);
        assert!(raft.bounds().is_err(), "it has ended");
        drop(raft);
        assert_eq!(on(&disk).bounds().unwrap().next, 4);
    }
}

/// The log's own thread fails with the promise that it writes when it is idle. No call has met
/// that, and the next one says so.
#[test]
fn a_failure_that_no_call_has_met_is_said_by_the_next() {
    let disk = disk();
    let (said, hear) = channel();
    let log = inkstone::Options::small();
    let log = log.listener(move |event| {
        if matches!(event, inkstone::Event::Poisoned(_)) {
            said.send(()).unwrap();
        }
    });
    let raft =
        RaftLog::open_in(Arc::new(disk.directory("/raft")), Options::new().log(log)).unwrap();
    let (leader, same_disk) = (Leader::of_term(1), disk.clone());
    let entry = NewEntry { leader: &leader, index: 1, payload: b"an entry" };
    // The thread that calls back is the one that is idle then.
    raft.append(&[entry], move |result| {
        result.unwrap();
        same_disk.inject(Fault::new(Effect::Error(errno::EIO)).on(OperationKind::Write));
    })
    .unwrap();
    hear.recv_timeout(Duration::from_secs(60)).expect("the promise fails");
    let is_poisoned = |result: Result<()>| {
        assert!(matches!(result, Err(Error::Log(inkstone::Error::Poisoned(_)))), "{result:?}");
    };
    is_poisoned(raft.bounds().map(drop));
    is_poisoned(raft.reader().entry(1).map(drop));
    is_poisoned(raft.vote().map(drop));
    is_poisoned(raft.save_committed(1));
    is_poisoned(raft.append(&[], |_| {}));
}

/// A listener of the log below writes to the raft log, on whichever thread an event finds it.
#[test]
fn a_listener_may_use_the_raft_log() {
    for own_thread in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let (told, wait) = channel();
        std::thread::spawn(move || {
            let raft: Arc<OnceLock<Weak<RaftLog>>> = Arc::default();
            let (votes, same, counted) =
                (Arc::new(AtomicU64::new(0)), Arc::clone(&raft), AtomicU64::new(0));
            let same_votes = Arc::clone(&votes);
            let log = inkstone::Options::small().own_thread(own_thread).buffer_bytes(8 << 10);
            let log = log.listener(move |event| {
                let Some(raft) = same.get().and_then(Weak::upgrade) else { return };
                if matches!(event, inkstone::Event::SegmentSealed(_)) {
                    let term = counted.fetch_add(1, Ordering::Relaxed) + 1;
                    // Another one may have been faster.
                    match raft.save_vote(&Vote::new(Leader::of_term(term))) {
                        Ok(()) | Err(Error::VoteGoesBack { .. }) => {}
                        Err(error) => panic!("{error}"),
                    }
                    same_votes.fetch_add(1, Ordering::Relaxed);
                    assert!(raft.bounds().unwrap().next > 0);
                }
            });
            let opened =
                RaftLog::open(directory.path().join("raft"), Options::new().log(log)).unwrap();
            let opened = Arc::new(opened);
            raft.set(Arc::downgrade(&opened)).unwrap();
            let leader = Leader::of_term(1);
            for index in 1..=300 {
                let entry = NewEntry { leader: &leader, index, payload: &[1; 5000] };
                opened.append(&[entry], |result| result.unwrap()).unwrap();
            }
            opened.sync().unwrap();
            assert_eq!(opened.bounds().unwrap().next, 301);
            opened.close().unwrap();
            told.send(votes.load(Ordering::Relaxed)).unwrap();
        });
        let votes = wait.recv_timeout(Duration::from_secs(60)).expect("it waits for itself");
        assert!(votes > 3, "{votes}");
    }
}
