//! A store without a thread, on a simulated disk: nothing is acknowledged or durable before `sync`,
//! everything is after it.

#![allow(clippy::unwrap_used, reason = "the helpers of a test are a test too")]

mod support;

use std::io::{self, ErrorKind};
use std::pin::pin;
use std::sync::mpsc::{Receiver, channel};
use std::task::{Context, Poll, Waker};

use inkstone_openraft::{LogStore, Options, Waits};
use inkstone_sim::{DiskOptions, Effect, Fault, OperationKind, SimDisk, errno};
use openraft::storage::{IOFlushed, LogState, RaftLogReader, RaftLogStorage};
use openraft::testing::{blank_ent, log_id};
use openraft::type_config::TypeConfigExt;
use openraft::type_config::alias::{LogIdOf, VoteOf};
use support::Types;

type Store = LogStore<Types>;
type Vote = VoteOf<Types>;

fn id(term: u64, index: u64) -> LogIdOf<Types> {
    log_id::<Types>(term, 1, index)
}

fn options(has_thread: bool) -> Options {
    Options::new().log(inkstone::Options::small().own_thread(has_thread))
}

/// The store, and what it says that it waits for.
fn open(disk: &SimDisk) -> (Store, Receiver<Waits>) {
    let (told, due) = channel();
    let store = Store::open_unthreaded_in(&disk.directory("/log"), options(false), move |what| {
        let _ = told.send(what);
    });
    (store.unwrap(), due)
}

/// What a disk has after a power cut now: the last and the purged index, the vote.
async fn left(disk: &SimDisk, seed: u64) -> (Option<u64>, Option<u64>, Option<Vote>) {
    let (mut store, _) = open(&disk.power_cut().sample(seed));
    let state = store.get_log_state().await.unwrap();
    let vote = store.reader().read_vote().await.unwrap();
    (state.last_log_id.map(|id| id.index), state.last_purged_log_id.map(|id| id.index), vote)
}

fn poll<F: Future + ?Sized>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// Polls a call until it waits, asks what is due, looks at the disk, and makes it durable through
/// another clone.
macro_rules! only_by_sync {
    ($store:expr, $due:expr, $what:expr, $meanwhile:expr, $call:expr) => {{
        let clone = $store.clone();
        let mut call = pin!($call);
        assert!(poll(call.as_mut()).is_pending(), "{:?} was acknowledged before a sync", $what);
        assert_eq!($due.try_iter().collect::<Vec<_>>(), [$what]);
        $meanwhile;
        assert!(poll(call.as_mut()).is_pending(), "{:?} was acknowledged before a sync", $what);
        clone.sync().unwrap();
        assert!(
            matches!(poll(call), Poll::Ready(Ok(()))),
            "{:?} is not acknowledged by a sync",
            $what
        );
    }};
}

async fn append(mut store: Store, term: u64, indexes: std::ops::Range<u64>) -> io::Result<()> {
    let (told, wait) = Types::oneshot();
    store
        .append(indexes.map(|index| blank_ent::<Types>(term, 1, index)), IOFlushed::signal(told))
        .await?;
    wait.await.unwrap()
}

#[tokio::test]
async fn a_sync_acknowledges_and_nothing_else_does() {
    for seed in 0..8 {
        let disk = SimDisk::new(seed, DiskOptions::default());
        let (mut store, due) = open(&disk);
        let (one, other) = (Vote::new_committed(3, 1), Vote::new(4, 2));

        let nothing = (None, None, None);
        only_by_sync!(
            store,
            due,
            Waits::Vote,
            assert_eq!(left(&disk, seed).await, nothing),
            store.save_vote(&one)
        );
        assert_eq!(left(&disk, seed).await, (None, None, Some(one)));

        let before = (None, None, Some(one));
        only_by_sync!(
            store,
            due,
            Waits::Entries,
            assert_eq!(left(&disk, seed).await, before),
            append(store.clone(), 3, 0..6)
        );
        assert_eq!(left(&disk, seed).await, (Some(5), None, Some(one)));

        let before = (Some(5), None, Some(one));
        only_by_sync!(
            store,
            due,
            Waits::Truncation,
            assert_eq!(left(&disk, seed).await, before),
            store.truncate_after(Some(id(3, 3)))
        );
        assert_eq!(left(&disk, seed).await, (Some(3), None, Some(one)));

        store.purge(id(3, 1)).await.unwrap();
        assert_eq!(due.try_iter().collect::<Vec<_>>(), [], "a purge makes itself durable");
        assert_eq!(left(&disk, seed).await, (Some(3), Some(1), Some(one)));

        // A clone says what is due, too; and one sync is for all that waits.
        let mut clone = store.clone();
        let mut vote = pin!(clone.save_vote(&other));
        let mut entries = pin!(append(store.clone(), 4, 4..6));
        assert!(poll(vote.as_mut()).is_pending() && poll(entries.as_mut()).is_pending());
        assert_eq!(due.try_iter().collect::<Vec<_>>(), [Waits::Vote, Waits::Entries]);
        assert_eq!(left(&disk, seed).await, (Some(3), Some(1), Some(one)));
        store.sync().unwrap();
        assert!(
            matches!(poll(vote), Poll::Ready(Ok(())))
                && matches!(poll(entries), Poll::Ready(Ok(())))
        );
        assert_eq!(left(&disk, seed).await, (Some(5), Some(1), Some(other)));
    }
}

/// What is opened again is what was made durable, and it goes on from there. What nobody synced is
/// made durable by a close, not by a kill.
#[tokio::test]
async fn it_is_opened_again() {
    let disk = SimDisk::new(1, DiskOptions::default());
    let (store, _due) = open(&disk);
    let mut entries = pin!(append(store.clone(), 2, 0..4));
    assert!(poll(entries.as_mut()).is_pending());
    let second =
        Store::open_unthreaded_in(&disk.directory("/log"), options(false), |_| ()).unwrap_err();
    assert_eq!(second.kind(), ErrorKind::ResourceBusy, "{second}");
    let killed = disk.power_cut().state(|_, _| inkstone_sim::Fate::Kept);
    assert_eq!(open(&killed).0.get_log_state().await.unwrap(), LogState::default());
    store.close().unwrap();
    assert!(
        matches!(poll(entries), Poll::Ready(Ok(()))),
        "a close acknowledges what it makes durable"
    );
    drop(store);

    let (mut store, due) = open(&disk);
    assert_eq!(store.get_log_state().await.unwrap().last_log_id, Some(id(2, 3)));
    let mut entries = pin!(append(store.clone(), 2, 4..5));
    assert!(poll(entries.as_mut()).is_pending());
    assert_eq!(due.try_recv(), Ok(Waits::Entries));
    store.sync().unwrap();
    assert!(matches!(poll(entries), Poll::Ready(Ok(()))));
    assert_eq!(store.reader().try_get_log_entries(..).await.unwrap().len(), 5);
}

/// A sync that fails acknowledges nothing, and nothing is acknowledged any more.
#[tokio::test]
async fn a_failed_sync_reaches_all_that_wait() {
    let disk = SimDisk::new(2, DiskOptions::default());
    let (store, _due) = open(&disk);
    let mut votes = store.clone();
    let (first, later) = (Vote::new(1, 1), Vote::new(2, 1));
    let mut vote = pin!(votes.save_vote(&first));
    let mut entries = pin!(append(store.clone(), 1, 0..2));
    assert!(poll(vote.as_mut()).is_pending() && poll(entries.as_mut()).is_pending());
    disk.inject(Fault::new(Effect::Error(errno::EIO)).on(OperationKind::Write));
    store.sync().unwrap_err();
    assert!(
        matches!(poll(vote), Poll::Ready(Err(_))) && matches!(poll(entries), Poll::Ready(Err(_)))
    );
    assert!(store.clone().save_vote(&later).await.is_err(), "poisoned");
    assert!(store.sync().is_err() && store.close().is_err());
    let (mut store, _) = open(&disk.power_cut().sample(2));
    assert_eq!(store.get_log_state().await.unwrap(), LogState::default());
}

#[test]
fn a_log_with_a_thread_is_refused() {
    let disk = SimDisk::new(3, DiskOptions::default());
    let refused =
        Store::open_unthreaded_in(&disk.directory("/log"), options(true), |_| ()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidInput, "{refused}");
    assert!(refused.to_string().contains("own_thread(true)"), "{refused}");
}
