//! openraft's own suite, on a real directory and on the simulated disk, for both of its ways to
//! tell leaders apart; and 16 times at once, each store a group in one log.

#![allow(clippy::unwrap_used, reason = "the helpers of a test are a test too")]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use inkstone_openraft::{Groups, LogStore, Options, Postcard, StoredLeader, StreamsOptions};
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

struct InGroup(Arc<(Groups, AtomicUsize)>);

impl<C: Text> StoreBuilder<C, LogStore<C>, Machine<C>> for InGroup
where
    LogStore<C>: openraft::storage::RaftLogStorage<C>,
{
    async fn build(&self) -> Result<((), LogStore<C>, Machine<C>), StorageError<C>> {
        let group = self.0.1.fetch_add(1, Ordering::Relaxed) as u64;
        let store = LogStore::of_group(self.0.0.group(group).unwrap()).unwrap();
        Ok(((), store, Machine::default()))
    }
}

#[test]
fn sixteen_suites_at_once_in_the_groups_of_one_log() {
    let directory = tempfile::tempdir().unwrap();
    let options = StreamsOptions::new().log(inkstone::Options::small()).section_bytes(64 << 10);
    let groups = Groups::open(directory.path(), options).unwrap();
    let groups = Arc::new((groups, AtomicUsize::new(0)));
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                let suite = Suite::<Types, _, _, _, _>::test_all(InGroup(Arc::clone(&groups)));
                runtime.unwrap().block_on(suite).unwrap();
            });
        }
    });
    assert_eq!(groups.1.load(Ordering::Relaxed), 16 * STORES);
    groups.0.close().unwrap();
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
