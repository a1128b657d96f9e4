//! openraft's own suite, on a real directory and on the simulated disk, for both of its ways to
//! tell leaders apart.

#![allow(clippy::unwrap_used, reason = "the helpers of a test are a test too")]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use inkstone_openraft::{LogStore, Options, Postcard, StoredLeader};
use inkstone_sim::{DiskOptions, SimDisk};
use openraft::StorageError;
use openraft::testing::log::{StoreBuilder, Suite};
use openraft::type_config::alias::CommittedLeaderIdOf;
use support::{Machine, SingleLeader, Text, Types};
use tempfile::TempDir;

/// 44 cases with a store each, and the transfer of a snapshot with two: a suite that runs less
/// would not be noticed otherwise.
const STORES: usize = 46;

struct OnDisk(Arc<AtomicUsize>);

impl<C: Text> StoreBuilder<C, LogStore<C>, Machine<C>, TempDir> for OnDisk
where
    LogStore<C>: openraft::storage::RaftLogStorage<C>,
{
    async fn build(&self) -> Result<(TempDir, LogStore<C>, Machine<C>), StorageError<C>> {
        self.0.fetch_add(1, Ordering::Relaxed);
        let directory = tempfile::tempdir().unwrap();
        let options = Options::new().log(inkstone::Options::small());
        let store = LogStore::open_with(directory.path().join("log"), options).unwrap();
        Ok((directory, store, Machine::default()))
    }
}

struct Simulated(Arc<AtomicUsize>);

type Sim<C> = LogStore<C, Postcard>;

impl<C: Text> StoreBuilder<C, Sim<C>, Machine<C>> for Simulated
where
    Sim<C>: openraft::storage::RaftLogStorage<C>,
{
    async fn build(&self) -> Result<((), Sim<C>, Machine<C>), StorageError<C>> {
        let seed = self.0.fetch_add(1, Ordering::Relaxed) as u64;
        let disk = SimDisk::new(seed, DiskOptions::default());
        let options = Options::new().log(inkstone::Options::small());
        let store = LogStore::open_in(Arc::new(disk.directory("/log")), options).unwrap();
        Ok(((), store, Machine::default()))
    }
}

async fn run<C: Text>()
where
    C::Payload: Into<C::Payload>,
    LogStore<C, Postcard>: openraft::storage::RaftLogStorage<C>,
    Sim<C>: openraft::storage::RaftLogStorage<C>,
    C::LeaderId: StoredLeader,
    CommittedLeaderIdOf<C>: StoredLeader,
    C::Term: From<u64>,
{
    let (on_disk, simulated) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    Suite::test_all(OnDisk(Arc::clone(&on_disk))).await.unwrap();
    Suite::test_all(Simulated(Arc::clone(&simulated))).await.unwrap();
    let counted = [on_disk, simulated].map(|count| count.load(Ordering::Relaxed));
    assert_eq!(counted, [STORES, STORES], "the suite has other cases than those that were known");
}

#[tokio::test]
async fn several_leaders_a_term() {
    run::<Types>().await;
}

#[tokio::test]
async fn one_leader_a_term() {
    run::<SingleLeader>().await;
}
