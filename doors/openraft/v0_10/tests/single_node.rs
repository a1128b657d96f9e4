//! A real `Raft` of one node on the store: 64 writes at once, a snapshot with a purge, a restart.

#![allow(clippy::unwrap_used, reason = "the helpers of a test are a test too")]

mod support;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use inkstone_openraft::{LogStore, Options};
use openraft::storage::RaftLogStorage;
use openraft::{BasicNode, Config, Raft, SnapshotPolicy};
use support::{Alone, Machine, Types};

type Node = Raft<Types, Machine<Types>>;

async fn start(path: &Path) -> (Node, Machine<Types>, LogStore<Types>) {
    let config = Config {
        snapshot_policy: SnapshotPolicy::Never,
        max_in_snapshot_log_to_keep: 0,
        ..Config::default()
    };
    let options = Options::new().log(inkstone::Options::small());
    let (store, machine) = (LogStore::open(path, options).unwrap(), Machine::default());
    let config = Arc::new(config.validate().unwrap());
    let raft = Raft::new(1, config, Alone, store.clone(), machine.clone()).await.unwrap();
    (raft, machine, store)
}

async fn write_64_at_once(raft: &Node, from: u64) {
    let writes: Vec<_> = (from..from + 64)
        .map(|number| {
            let raft = raft.clone();
            tokio::spawn(async move { raft.client_write(format!("text {number}")).await })
        })
        .collect();
    for (write, number) in writes.into_iter().zip(from..) {
        assert_eq!(write.await.unwrap().unwrap().data, format!("applied text {number}"));
    }
}

/// A load of 10 and a disk of others may hold up an election; nothing here is timed.
const PATIENCE: Option<Duration> = Some(Duration::from_secs(120));

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_comes_back_with_its_state() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    let (raft, machine, store) = start(&path).await;
    raft.initialize(BTreeMap::from([(1, BasicNode::default())])).await.unwrap();
    raft.wait(PATIENCE).current_leader(1, "elected").await.unwrap();
    write_64_at_once(&raft, 0).await;
    write_64_at_once(&raft, 64).await;
    let mut texts = machine.contents().texts.clone();
    let applied = machine.contents().applied.unwrap();
    raft.shutdown().await.unwrap();
    store.close().unwrap();
    drop((raft, store));
    assert_eq!(texts.len(), 128);

    // The state machine was in memory: all comes back out of the log.
    let (raft, machine, mut store) = start(&path).await;
    raft.wait(PATIENCE).applied_index_at_least(Some(applied.index), "applied again").await.unwrap();
    assert_eq!(machine.contents().texts, texts);
    raft.wait(PATIENCE).current_leader(1, "elected again").await.unwrap();
    write_64_at_once(&raft, 128).await;
    raft.trigger().snapshot().await.unwrap();
    let snapshot = raft
        .wait(PATIENCE)
        .metrics(|metrics| metrics.snapshot.is_some(), "a snapshot")
        .await
        .unwrap();
    raft.trigger().purge_log(snapshot.snapshot.unwrap().index).await.unwrap();
    raft.wait(PATIENCE)
        .metrics(|metrics| metrics.purged == snapshot.snapshot, "purged")
        .await
        .unwrap();
    assert_eq!(store.get_log_state().await.unwrap().last_purged_log_id, snapshot.snapshot);
    write_64_at_once(&raft, 192).await;
    texts.clone_from(&machine.contents().texts);
    raft.shutdown().await.unwrap();
    drop((raft, store));
    assert_eq!(texts.len(), 256);

    // The snapshot was in memory too. A state machine that has nothing is refused: what it lacks
    // was purged.
    let (config, options) = (Arc::new(Config::default().validate().unwrap()), Options::new());
    let store = LogStore::<Types>::open(&path, options.log(inkstone::Options::small())).unwrap();
    let lost =
        Raft::<Types, _>::new(1, config, Alone, store.clone(), Machine::<Types>::default()).await;
    let told = lost.expect_err("openraft notices what is lost").to_string();
    assert!(told.contains("purged up to"), "{told}");
    store.close().unwrap();
    drop(store);

    // So the state machine of before is given again, as one that keeps its state on disk would be.
    let options = Options::new().log(inkstone::Options::small());
    let store = LogStore::<Types>::open(&path, options).unwrap();
    let config = Arc::new(Config::default().validate().unwrap());
    let raft = Raft::new(1, config, Alone, store, machine.clone()).await.unwrap();
    raft.wait(PATIENCE).current_leader(1, "elected once more").await.unwrap();
    write_64_at_once(&raft, 256).await;
    let all = machine.contents().texts.clone();
    assert_eq!((&all[..256], all.len()), (&texts[..], 320));
    raft.shutdown().await.unwrap();
}
