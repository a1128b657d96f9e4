//! openraft's own suite, on a real directory and on the simulated disk; and what it never does:
//! open a store again, use it badly, open it with the store for another openraft.

#![allow(clippy::result_large_err, reason = "openraft 0.9 has such an error")]
#![allow(clippy::unwrap_used, reason = "the helpers of a test are a test too")]

mod support;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use inkstone_openraft_0_9::{Groups, LogStore, Options, Postcard, StreamsOptions};
use inkstone_sim::{DiskOptions, Effect, Fault, OperationKind, SimDisk, errno};
use openraft::storage::{RaftLogReader, RaftLogStorage, RaftLogStorageExt};
use openraft::testing::{StoreBuilder, Suite};
use openraft::{CommittedLeaderId, Entry, EntryPayload, LogId, Membership, StorageError, Vote};
use support::{Machine, Types};
use tempfile::TempDir;

/// 34 cases with a store each, and the transfer of a snapshot with two: a suite that runs less
/// would not be noticed otherwise.
const STORES: usize = 36;

struct OnDisk(Arc<AtomicUsize>);

impl StoreBuilder<Types, LogStore<Types>, Machine, TempDir> for OnDisk {
    async fn build(&self) -> Result<(TempDir, LogStore<Types>, Machine), StorageError<u64>> {
        self.0.fetch_add(1, Ordering::Relaxed);
        let directory = tempfile::tempdir().unwrap();
        let store = open(&directory.path().join("log"));
        Ok((directory, store, Machine::default()))
    }
}

struct Simulated(Arc<AtomicUsize>);

type Sim = LogStore<Types, Postcard>;

impl StoreBuilder<Types, Sim, Machine> for Simulated {
    async fn build(&self) -> Result<((), Sim, Machine), StorageError<u64>> {
        let seed = self.0.fetch_add(1, Ordering::Relaxed) as u64;
        Ok(((), simulated(&SimDisk::new(seed, DiskOptions::default())), Machine::default()))
    }
}

struct InGroup(Arc<(Groups, AtomicUsize)>);

impl StoreBuilder<Types, LogStore<Types>, Machine> for InGroup {
    async fn build(&self) -> Result<((), LogStore<Types>, Machine), StorageError<u64>> {
        let group = self.0.1.fetch_add(1, Ordering::Relaxed) as u64;
        let store = LogStore::of_group(self.0.0.group(group).unwrap()).unwrap();
        Ok(((), store, Machine::default()))
    }
}

fn small() -> Options {
    Options::new().log(inkstone::Options::small())
}

fn open(path: &Path) -> LogStore<Types> {
    LogStore::open(path, small()).unwrap()
}

fn simulated(disk: &SimDisk) -> Sim {
    LogStore::open_in(Arc::new(disk.directory("/log")), small()).unwrap()
}

fn id(term: u64, node: u64, index: u64) -> LogId<u64> {
    LogId::new(CommittedLeaderId::new(term, node), index)
}

fn text(term: u64, node: u64, index: u64, text: &str) -> Entry<Types> {
    Entry { log_id: id(term, node, index), payload: EntryPayload::Normal(text.into()) }
}

#[test]
fn the_suite_on_a_real_directory() {
    let stores = Arc::new(AtomicUsize::new(0));
    Suite::test_all(OnDisk(Arc::clone(&stores))).unwrap();
    assert_eq!(
        stores.load(Ordering::Relaxed),
        STORES,
        "the suite has other cases than those that were known"
    );
}

#[test]
fn the_suite_on_the_simulated_disk() {
    let stores = Arc::new(AtomicUsize::new(0));
    Suite::test_all(Simulated(Arc::clone(&stores))).unwrap();
    assert_eq!(
        stores.load(Ordering::Relaxed),
        STORES,
        "the suite has other cases than those that were known"
    );
}

#[test]
fn sixteen_suites_at_once_in_the_groups_of_one_log() {
    let directory = tempfile::tempdir().unwrap();
    let options = StreamsOptions::new().log(inkstone::Options::small()).section_bytes(64 << 10);
    let groups = Groups::open(directory.path(), options).unwrap();
    let groups = Arc::new((groups, AtomicUsize::new(0)));
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| Suite::test_all(InGroup(Arc::clone(&groups))).unwrap());
        }
    });
    assert_eq!(groups.1.load(Ordering::Relaxed), 16 * STORES);
    groups.0.close().unwrap();
}

#[tokio::test]
async fn all_of_it_is_there_again() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    let mut store = open(&path);
    let membership = Membership::<u64, _>::new(
        vec![[1, 2].into(), [2, 3].into()],
        [1, 2, 3, 9]
            .map(|node| (node, openraft::BasicNode::new(node)))
            .into_iter()
            .collect::<BTreeMap<_, _>>(),
    );
    let members = Entry { log_id: id(1, 7, 1), payload: EntryPayload::Membership(membership) };
    let blank = Entry { log_id: id(1, 7, 0), payload: EntryPayload::Blank };
    store.blocking_append([blank, members.clone(), text(1, 7, 2, "two")]).await.unwrap();
    store.save_vote(&Vote::new(2, 8)).await.unwrap();
    store.truncate(id(1, 7, 2)).await.unwrap();
    store.save_vote(&Vote::new_committed(2, 8)).await.unwrap();
    let entries = [text(2, 8, 2, "again"), text(2, 8, 3, "\u{e9}\u{0}"), text(3, 8, 4, "")];
    store.blocking_append(entries.clone()).await.unwrap();
    store.save_committed(Some(id(2, 8, 3))).await.unwrap();
    store.purge(id(1, 7, 0)).await.unwrap();
    store.close().unwrap();
    drop(store);

    let mut store = open(&path);
    let state = store.get_log_state().await.unwrap();
    assert_eq!(
        (state.last_purged_log_id, state.last_log_id),
        (Some(id(1, 7, 0)), Some(id(3, 8, 4)))
    );
    assert_eq!(store.read_committed().await.unwrap(), Some(id(2, 8, 3)));
    assert_eq!(store.read_vote().await.unwrap(), Some(Vote::new_committed(2, 8)));
    let mut expected = vec![members];
    expected.extend(entries);
    assert_eq!(store.try_get_log_entries(..).await.unwrap(), expected);
    assert_eq!(
        store.get_log_reader().await.limited_get_log_entries(0, 3).await.unwrap(),
        expected[..2]
    );
    store.purge(id(5, 8, 1000)).await.unwrap();
    drop(store);
    let mut store = open(&path);
    assert_eq!(store.get_log_state().await.unwrap().last_log_id, Some(id(5, 8, 1000)));
    assert_eq!(
        store.read_committed().await.unwrap(),
        Some(id(2, 8, 3)),
        "what openraft saved, though it is purged"
    );

    // A snapshot has the first two; what contradicts it is refused.
    store
        .blocking_append([text(4, 8, 999, "a"), text(5, 8, 1000, "b"), text(5, 8, 1001, "c")])
        .await
        .unwrap();
    assert_eq!(store.try_get_log_entries(..).await.unwrap(), [text(5, 8, 1001, "c")]);
    let contradicts = store.blocking_append([text(6, 8, 1000, "d")]).await.unwrap_err();
    assert!(contradicts.to_string().contains("index 1000 cannot change"), "{contradicts}");
    store.close().unwrap();
}

/// The power fails when the call has returned, or the callback has come: on every disk that this
/// can leave, it is there.
#[tokio::test]
async fn what_returned_survives_a_power_loss() {
    for seed in 0..20 {
        let disk = SimDisk::new(seed, DiskOptions::default());
        let mut store = simulated(&disk);
        let vote = Vote::new_committed(4, 1);
        store.save_vote(&vote).await.unwrap();
        let voted = disk.power_cut();
        store.blocking_append((0..5).map(|index| text(4, 1, index, "text"))).await.unwrap();
        let appended = disk.power_cut();
        store.truncate(id(4, 1, 3)).await.unwrap();
        let truncated = disk.power_cut();
        for (cut, last) in [(voted, None), (appended, Some(4)), (truncated, Some(2))] {
            let mut found = simulated(&cut.sample(seed));
            let state = found.get_log_state().await.unwrap();
            assert_eq!(state.last_log_id.map(|id| id.index), last, "seed {seed}");
            assert_eq!(found.read_vote().await.unwrap(), Some(vote));
        }
    }
}

#[tokio::test]
async fn errors_say_what_was_expected_and_what_came() {
    let disk = SimDisk::new(3, DiskOptions::default());
    let mut store = simulated(&disk);
    store.blocking_append((0..5).map(|index| text(3, 1, index, "text"))).await.unwrap();
    store.save_vote(&Vote::new_committed(3, 1)).await.unwrap();
    store.save_committed(Some(id(3, 1, 2))).await.unwrap();
    let said = |result: Result<(), StorageError<u64>>, what: &str| {
        let text = result.unwrap_err().to_string();
        assert!(text.contains(what), "{text}");
    };
    said(store.blocking_append([text(3, 1, 6, "a hole")]).await, "must have index 5, not 6");
    said(store.blocking_append([text(3, 1, 2, "once more")]).await, "index 2 cannot change");
    said(store.save_vote(&Vote::new(3, 1)).await, "goes back");
    said(store.truncate(id(3, 1, 2)).await, "index 2 cannot change");
    said(store.truncate(id(2, 1, 3)).await, "the raft log has");
    said(store.save_committed(Some(id(3, 1, 9))).await, "there is no entry 9");
    store.save_committed(None).await.unwrap();
    disk.inject(Fault::new(Effect::Error(errno::EIO)).on(OperationKind::Write));
    said(store.blocking_append([text(3, 1, 5, "a failure")]).await, "poisoned");
    said(store.save_vote(&Vote::new(9, 1)).await, "open the log again");
    said(store.purge(id(3, 1, 1)).await, "open the log again");
}
