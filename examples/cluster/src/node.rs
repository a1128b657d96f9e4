//! One node, started on its storage.
//!
//! *Owns*: openraft's configuration, and how a node begins and ends. *May not touch*: what clients'
//! questions mean (`answers.rs`), connections (`server.rs`).

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use clap::Args;
use openraft::async_runtime::watch::WatchReceiver;
use openraft::errors::Fatal;
use openraft::{BasicNode, Config, SnapshotPolicy};

use crate::machine::StateMachine;
use crate::network::Network;
use crate::storage::Storage;
use crate::types::TypeConfig;

type Raft = openraft::Raft<TypeConfig, StateMachine>;

/// How a node behaves. All nodes of a cluster should have the same.
#[derive(Debug, Clone, Copy, Args)]
pub struct NodeOptions {
    /// Want to lead after hearing nothing for this long, or up to twice as long; a leader says four
    /// times as often that it is there
    #[arg(long, default_value_t = 1000, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u64).range(4..=3_600_000))]
    pub election_ms: u64,
    /// Make a snapshot after this many entries; a tenth of them stays in the log
    #[arg(long, default_value_t = 10_000, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    pub snapshot_every: u64,
}

impl NodeOptions {
    fn config(self) -> Config {
        Config {
            heartbeat_interval: self.election_ms / 4,
            election_timeout_min: self.election_ms,
            election_timeout_max: 2 * self.election_ms,
            snapshot_policy: SnapshotPolicy::LogsSinceLast(self.snapshot_every),
            max_in_snapshot_log_to_keep: self.snapshot_every / 10,
            // A leader that starts again must be elected again. Two of three nodes can have
            // committed an entry that its own disk did not have yet when the power failed: it would
            // lead on in the same term with a log that lacks it.
            enable_leader_restore: Some(false),
            ..Config::default()
        }
    }
}

/// A node that runs. Clones are the same node.
#[derive(Clone)]
pub struct Node {
    pub(crate) id: u64,
    pub(crate) raft: Raft,
    pub(crate) machine: StateMachine,
}

impl Node {
    /// Starts a node on its storage: it applies what is in its log, and takes part in elections if
    /// it is a member.
    pub async fn start(id: u64, storage: Storage, options: NodeOptions) -> io::Result<Self> {
        let (log, machine) = storage;
        let config = Arc::new(options.config().validate().map_err(io::Error::other)?);
        let raft = Raft::new(id, config, Network, log, machine.clone());
        Ok(Self { id, raft: raft.await.map_err(io::Error::other)?, machine })
    }

    /// Says whether it has a vote or an entry, so that it is part of a cluster.
    pub async fn has_begun(&self) -> io::Result<bool> {
        self.raft.is_initialized().await.map_err(io::Error::other)
    }

    /// Begins a cluster of these members, each with the address at which the others reach it.
    /// openraft answers before that is durable.
    pub async fn init(&self, members: BTreeMap<u64, BasicNode>) -> io::Result<()> {
        self.raft.initialize(members).await.map_err(io::Error::other)
    }

    /// Waits until the node cannot go on, as when its disk has failed, and says why.
    pub async fn ended(&self) -> Fatal<TypeConfig> {
        let mut metrics = self.raft.metrics();
        loop {
            let state = metrics.borrow_watched().running_state.clone();
            if let Err(why) = state {
                return why;
            }
            if metrics.changed().await.is_err() {
                return Fatal::Stopped;
            }
        }
    }
}
