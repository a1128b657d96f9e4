//! What one real openraft 0.9 node on this store reaches: so many `client_write` at once, for so
//! many seconds.
//!
//! `cargo run --release -p inkstone-openraft-0-9 --example client_writes -- DIRECTORY [SECONDS
//! [AT_ONCE [BYTES]]]`: 5 seconds, 64 at once, 128 bytes each. openraft 0.9 awaits the callback of
//! an append before it makes the next one, so a flush has one write, whatever the store could do.

#[path = "../tests/support/mod.rs"]
mod support;

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use inkstone_openraft_0_9::{LogStore, Options};
use openraft::error::{InstallSnapshotError, NetworkError, RPCError, RaftError};
use openraft::network::{RPCOption, RaftNetwork, RaftNetworkFactory};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, InstallSnapshotRequest, InstallSnapshotResponse,
    VoteRequest, VoteResponse,
};
use openraft::{BasicNode, Config, Raft, SnapshotPolicy};
use support::{Machine, Types};

/// A network without other nodes.
struct Alone;

fn nobody<E: std::error::Error>() -> RPCError<u64, BasicNode, E> {
    RPCError::Network(NetworkError::new(&std::io::Error::other("there is one node only")))
}

impl RaftNetworkFactory<Types> for Alone {
    type Network = Self;

    async fn new_client(&mut self, _target: u64, _node: &BasicNode) -> Self {
        Self
    }
}

impl RaftNetwork<Types> for Alone {
    async fn append_entries(
        &mut self,
        _rpc: AppendEntriesRequest<Types>,
        _option: RPCOption,
    ) -> Result<AppendEntriesResponse<u64>, RPCError<u64, BasicNode, RaftError<u64>>> {
        Err(nobody())
    }

    async fn install_snapshot(
        &mut self,
        _rpc: InstallSnapshotRequest<Types>,
        _option: RPCOption,
    ) -> Result<
        InstallSnapshotResponse<u64>,
        RPCError<u64, BasicNode, RaftError<u64, InstallSnapshotError>>,
    > {
        Err(nobody())
    }

    async fn vote(
        &mut self,
        _rpc: VoteRequest<u64>,
        _option: RPCOption,
    ) -> Result<VoteResponse<u64>, RPCError<u64, BasicNode, RaftError<u64>>> {
        Err(nobody())
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let Some(directory) = arguments.next() else {
        return Err("usage: client_writes DIRECTORY [SECONDS [AT_ONCE [BYTES]]]".into());
    };
    let mut number =
        |default: u64| arguments.next().map_or(Ok(default), |given| given.parse::<u64>());
    let (seconds, at_once, bytes) = (number(5)?, number(64)?, number(128)?);

    let config =
        Config { snapshot_policy: SnapshotPolicy::Never, ..Config::default() }.validate()?;
    let store = LogStore::<Types>::open(&directory, Options::new())?;
    let raft = Raft::new(1, Arc::new(config), Alone, store.clone(), Machine::default()).await?;
    if !raft.is_initialized().await? {
        raft.initialize(BTreeMap::from([(1, BasicNode::default())])).await?;
    }
    raft.wait(Some(Duration::from_secs(60))).current_leader(1, "this node leads").await?;

    let (text, written) =
        (Arc::<str>::from("x".repeat(usize::try_from(bytes)?)), Arc::new(AtomicU64::new(0)));
    let (begin, groups) = (Instant::now(), store.stats().groups);
    let end = begin + Duration::from_secs(seconds);
    let writers: Vec<_> = (0..at_once)
        .map(|_| {
            let (raft, text, written) = (raft.clone(), Arc::clone(&text), Arc::clone(&written));
            tokio::spawn(async move {
                while Instant::now() < end {
                    raft.client_write(text.to_string()).await.map_err(|error| error.to_string())?;
                    written.fetch_add(1, Ordering::Relaxed);
                }
                Ok::<_, String>(())
            })
        })
        .collect();
    for writer in writers {
        writer.await??;
    }
    let (took, written) = (begin.elapsed(), written.load(Ordering::Relaxed));
    let groups = store.stats().groups - groups;
    println!(
        "{written} client writes of {bytes} bytes in {:.2} s, {at_once} at once: {:.0} a second; \
         {:.1} to a group",
        took.as_secs_f64(),
        written as f64 / took.as_secs_f64(),
        written as f64 / groups.max(1) as f64
    );
    raft.shutdown().await?;
    store.close()?;
    Ok(())
}
