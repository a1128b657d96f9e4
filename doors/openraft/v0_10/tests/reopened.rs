//! What openraft's suite never does: open a store again, and use it badly.

#![allow(clippy::unwrap_used, reason = "the helpers of a test are a test too")]

mod support;

use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::Arc;

use inkstone_openraft::{Codec, LogStore, Options, Postcard};
use inkstone_raft::Error;
use inkstone_sim::{DiskOptions, Effect, Fault, OperationKind, SimDisk, errno};
use openraft::storage::{IOFlushed, RaftLogReader, RaftLogStorage, RaftLogStorageExt};
use openraft::testing::{blank_ent, log_id, membership_ent};
use openraft::type_config::TypeConfigExt;
use openraft::type_config::alias::{EntryOf, LogIdOf, VoteOf};
use openraft::vote::leader_id_std::CommittedLeaderId;
use openraft::{EntryPayload, LogId, entry::RaftEntry};
use support::{SingleLeader, Types};

type Vote = VoteOf<Types>;

fn id(term: u64, node: u64, index: u64) -> LogIdOf<Types> {
    log_id::<Types>(term, node, index)
}

fn text(term: u64, node: u64, index: u64, text: &str) -> EntryOf<Types> {
    EntryOf::<Types>::new(id(term, node, index), EntryPayload::Normal(text.into()))
}

fn small() -> Options {
    Options::new().log(inkstone::Options::small())
}

fn open(path: &Path) -> LogStore<Types> {
    LogStore::open(path, small()).unwrap()
}

/// What of the raft log's errors is inside.
fn inner(error: &io::Error) -> &Error {
    error.get_ref().and_then(|inner| inner.downcast_ref()).unwrap_or_else(|| panic!("{error:?}"))
}

/// Entries of three leaders, one of them a membership; a truncation, a purge, a vote, what is
/// committed.
#[tokio::test]
async fn all_of_it_is_there_again() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    let mut store = open(&path);
    let members = membership_ent::<Types>(1, 7, 1, vec![[1, 2].into(), [2, 3].into()]);
    store
        .blocking_append([blank_ent::<Types>(1, 7, 0), members.clone(), text(1, 7, 2, "two")])
        .await
        .unwrap();
    store.save_vote(&Vote::new(2, 8)).await.unwrap();
    store.truncate_after(Some(id(1, 7, 1))).await.unwrap();
    store.save_vote(&Vote::new_committed(2, 8)).await.unwrap();
    let entries =
        [text(2, 8, 2, "again"), text(2, 9, 3, "\u{e9}\u{0}"), blank_ent::<Types>(3, 1, 4)];
    store.blocking_append(entries.clone()).await.unwrap();
    store.save_committed(Some(id(2, 9, 3))).await.unwrap();
    store.purge(id(1, 7, 0)).await.unwrap();
    store.close().unwrap();
    drop(store);

    for _ in 0..2 {
        let mut store = open(&path);
        let state = store.get_log_state().await.unwrap();
        assert_eq!(
            (state.last_purged_log_id, state.last_log_id),
            (Some(id(1, 7, 0)), Some(id(3, 1, 4)))
        );
        assert_eq!(store.read_committed().await.unwrap(), Some(id(2, 9, 3)));
        let mut reader = store.get_log_reader().await;
        assert_eq!(reader.read_vote().await.unwrap(), Some(Vote::new_committed(2, 8)));
        let mut expected = vec![members.clone()];
        expected.extend(entries.clone());
        assert_eq!(reader.try_get_log_entries(..).await.unwrap(), expected);
        assert_eq!(reader.clone().limited_get_log_entries(0, 3).await.unwrap(), expected[..2]);
        store.close().unwrap();
    }

    // A snapshot beyond the last entry.
    let mut store = open(&path);
    store.purge(id(5, 2, 1000)).await.unwrap();
    drop(store);
    let mut store = open(&path);
    let state = store.get_log_state().await.unwrap();
    assert_eq!(
        (state.last_purged_log_id, state.last_log_id),
        (Some(id(5, 2, 1000)), Some(id(5, 2, 1000)))
    );
    assert_eq!(
        store.read_committed().await.unwrap(),
        Some(id(2, 9, 3)),
        "what openraft saved, though it is purged"
    );
    store.blocking_append([text(5, 2, 1001, "after")]).await.unwrap();
    store.truncate_after(Some(id(5, 2, 1000))).await.unwrap();
    store.blocking_append([text(6, 2, 1001, "instead")]).await.unwrap();
    store.close().unwrap();
}

/// The power fails when the call has returned, or the callback has come: on every disk that this
/// can leave, it is there.
#[tokio::test]
async fn what_returned_survives_a_power_loss() {
    for seed in 0..20 {
        let disk = SimDisk::new(seed, DiskOptions::default());
        let on = |disk: &SimDisk| {
            LogStore::<Types, Postcard>::open_in(Arc::new(disk.directory("/log")), small()).unwrap()
        };
        let mut store = on(&disk);
        let vote = Vote::new_committed(4, 1);
        store.save_vote(&vote).await.unwrap();
        let voted = disk.power_cut();
        store.blocking_append((0..5).map(|index| text(4, 1, index, "text"))).await.unwrap();
        let appended = disk.power_cut();
        store.truncate_after(Some(id(4, 1, 2))).await.unwrap();
        let truncated = disk.power_cut();
        store.purge(id(4, 1, 1)).await.unwrap();
        let purged = disk.power_cut();
        let expected = [
            (voted, None, None),
            (appended, Some(4), None),
            (truncated, Some(2), None),
            (purged, Some(2), Some(1)),
        ];
        for (cut, last, purged) in expected {
            let mut found = on(&cut.sample(seed));
            let state = found.get_log_state().await.unwrap();
            assert_eq!(state.last_log_id.map(|id| id.index), last, "seed {seed}");
            assert_eq!(state.last_purged_log_id.map(|id| id.index), purged, "seed {seed}");
            assert_eq!(found.reader().read_vote().await.unwrap(), Some(vote));
        }
    }
}

/// A sync fails: the callback says so, with the cause, and so does every later call.
#[tokio::test]
async fn a_failure_reaches_openraft_with_its_cause() {
    let disk = SimDisk::new(3, DiskOptions::default());
    let mut store =
        LogStore::<Types, Postcard>::open_in(Arc::new(disk.directory("/log")), small()).unwrap();
    store.blocking_append([text(1, 1, 0, "first")]).await.unwrap();
    disk.inject(Fault::new(Effect::Error(errno::EIO)).on(OperationKind::Write));
    let (told, wait) = Types::oneshot();
    store.append([text(1, 1, 1, "second")], IOFlushed::signal(told)).await.unwrap();
    let failed = wait.await.unwrap().unwrap_err();
    assert!(matches!(inner(&failed), Error::Log(inkstone::Error::Poisoned(_))), "{failed:?}");
    for failed in [
        store.save_vote(&Vote::new(9, 9)).await.unwrap_err(),
        store.append([text(1, 1, 2, "third")], IOFlushed::noop()).await.unwrap_err(),
        store.truncate_after(None).await.unwrap_err(),
        store.purge(id(1, 1, 0)).await.unwrap_err(),
        store.reader().read_vote().await.unwrap_err(),
        store.close().unwrap_err(),
    ] {
        assert!(failed.to_string().contains("open the log again"), "{failed}");
    }
}

#[tokio::test]
async fn bad_use_is_an_error_that_says_what_was_expected_and_what_came() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    let mut store = open(&path);
    store.blocking_append((0..5).map(|index| text(3, 1, index, "text"))).await.unwrap();
    store.save_vote(&Vote::new_committed(3, 1)).await.unwrap();
    store.save_committed(Some(id(3, 1, 2))).await.unwrap();
    let said = |failed: io::Error, kind: ErrorKind, what: &str| {
        assert!(failed.kind() == kind && failed.to_string().contains(what), "{failed:?}: {failed}");
    };
    let hole = store.append([text(3, 1, 6, "a hole")], IOFlushed::noop()).await;
    assert!(matches!(inner(&hole.unwrap_err()), Error::Hole { expected: 5, came: 6 }));
    let committed = store.append([text(3, 1, 2, "once more")], IOFlushed::noop()).await;
    assert!(matches!(
        inner(&committed.unwrap_err()),
        Error::IsCommitted { index: 2, committed: 2 }
    ));
    let vote = store.save_vote(&Vote::new(3, 1)).await;
    assert!(matches!(inner(&vote.unwrap_err()), Error::VoteGoesBack { .. }));
    let cut = store.truncate_after(Some(id(3, 1, 1))).await;
    assert!(matches!(inner(&cut.unwrap_err()), Error::IsCommitted { index: 2, committed: 2 }));
    for other in [
        store.truncate_after(Some(id(2, 1, 3))).await,
        store.save_committed(Some(id(4, 1, 3))).await,
    ] {
        assert!(matches!(inner(&other.unwrap_err()), Error::OtherEntry { .. }));
    }
    assert!(store.save_committed(Some(id(3, 1, 9))).await.is_err(), "nothing is there");
    store.save_committed(None).await.unwrap();
    let second = LogStore::<Types>::open(&path, small()).unwrap_err();
    said(second, ErrorKind::ResourceBusy, "locked");
    store.close().unwrap();
    said(store.save_vote(&Vote::new(9, 9)).await.unwrap_err(), ErrorKind::Other, "closed");
    drop(store);

    let other = LogStore::<Types>::open(&path, small().raft_group(9)).unwrap_err();
    assert!(
        matches!(inner(&other), Error::OtherRaftGroup { expected: 9, came: 0, .. }),
        "{other:?}"
    );
    let alone = small().log(inkstone::Options::small().own_thread(false));
    let alone = LogStore::<Types>::open(directory.path().join("alone"), alone).unwrap_err();
    said(alone, ErrorKind::InvalidInput, "own_thread(false)");
    let foreign = directory.path().join("foreign");
    let log = inkstone::Log::open(&foreign, inkstone::Options::small()).unwrap();
    log.append_durable(b"no raft log").unwrap();
    log.close().unwrap();
    drop(log);
    let foreign = LogStore::<Types>::open(&foreign, small()).unwrap_err();
    let told = inner(&foreign);
    assert!(matches!(told, Error::Log(inkstone::Error::OtherKind { .. })), "{foreign:?}");
}

/// Written with nodes in its leaders, read without: the bytes are refused, and nothing is made up.
#[tokio::test]
async fn a_log_of_other_types_is_refused_when_it_is_read() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    let mut store = open(&path);
    store.blocking_append([text(3, 1, 0, "text")]).await.unwrap();
    drop(store);
    let mut store = LogStore::<SingleLeader>::open(&path, small()).unwrap();
    let refused = store.get_log_state().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidData);
    assert!(refused.to_string().contains("written with other leader ids"), "{refused}");
    let id = LogId::new(CommittedLeaderId::new(1), 0);
    let refused = <Postcard as Codec<SingleLeader>>::decode(id, b"{}").unwrap_err();
    assert!(refused.to_string().contains("another codec"), "{refused}");
}
