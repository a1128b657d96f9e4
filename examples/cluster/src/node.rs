//! One node: started on its storage, served on its connections, stopped.
//!
//! *Owns*: openraft's configuration, the limits, and the order of starting and stopping. *May not
//! touch*: what requests mean.

use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use inkstone_openraft::LogStore;
use openraft::async_runtime::watch::WatchReceiver;
use openraft::errors::{Fatal, InitializeError, RaftError};
use openraft::network::{NetSnapshot, RaftNetworkFactory};
use openraft::{BasicNode, Config, SnapshotPolicy};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Semaphore, watch};

use crate::answers::answer;
use crate::machine::StateMachine;
use crate::network::Network;
use crate::runtime::blocking;
use crate::server::Service;
use crate::snapshots::Snapshots;
use crate::storage::{Identity, Storage};
use crate::transport::{Accepted, Transport};
use crate::types::{Raft, TypeConfig};
use crate::wire::{Answer, Question};

/// How much may be asked at once.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The bytes of a key and its value together: 1 MiB by default.
    pub write_bytes: usize,
    /// The bytes of all writes that are proposed and not decided: 8 MiB by default. One append to
    /// the raft log may hold them all.
    pub flight_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { write_bytes: 1 << 20, flight_bytes: 8 << 20 }
    }
}

impl Limits {
    /// Those that fit a raft log with segments of this size
    /// ([`crate::storage::StorageOptions::of_segments`]).
    pub fn of_segments(bytes: u64) -> Self {
        let flight_bytes = (bytes / 4).min(8 << 20) as usize;
        Self { write_bytes: flight_bytes.min(1 << 20), flight_bytes }
    }
}

/// How a node behaves. All nodes of a cluster should have the same.
#[derive(Debug, Clone)]
pub struct NodeOptions {
    /// How often the leader says that it is there: 250 ms by default.
    pub heartbeat: Duration,
    /// How long a node hears nothing before it wants to lead: this, or up to twice as long; 1 s by
    /// default.
    pub election: Duration,
    /// After how many entries a snapshot is made: 10,000 by default. A tenth of them stays in the
    /// log for nodes that are a little behind.
    pub snapshot_every: u64,
    /// How long the leader waits for a write to be committed before it answers that it may or may
    /// not be: 5 s by default.
    pub write_timeout: Duration,
    /// How much may be asked at once.
    pub limits: Limits,
}

impl Default for NodeOptions {
    fn default() -> Self {
        Self {
            heartbeat: Duration::from_millis(250),
            election: Duration::from_millis(1000),
            snapshot_every: 10_000,
            write_timeout: Duration::from_secs(5),
            limits: Limits::default(),
        }
    }
}

impl NodeOptions {
    /// openraft's configuration for it.
    pub fn config(&self) -> Config {
        let election = self.election.as_millis() as u64;
        Config {
            heartbeat_interval: self.heartbeat.as_millis() as u64,
            election_timeout_min: election,
            election_timeout_max: 2 * election,
            snapshot_policy: SnapshotPolicy::LogsSinceLast(self.snapshot_every),
            max_in_snapshot_log_to_keep: self.snapshot_every / 10,
            // A node that comes back from a partition asks before it disturbs a leader that works.
            enable_pre_vote: Some(true),
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
    pub(crate) identity: Identity,
    pub(crate) raft: Raft,
    pub(crate) machine: StateMachine,
    pub(crate) log: LogStore<TypeConfig>,
    pub(crate) options: NodeOptions,
    /// The bytes that may still be proposed.
    pub(crate) flight: Arc<Semaphore>,
    /// Why this node must end: it lacks what it has confirmed.
    pub(crate) lost: Arc<watch::Sender<Option<String>>>,
    snapshots: Snapshots,
    transport: Transport,
}

impl Node {
    /// Starts a node on its storage: it applies what is in its log, and takes part in elections if
    /// it is a member. It hears nothing before [`Node::serve`].
    ///
    /// # Errors
    /// `InvalidInput` for options that contradict each other; those of the storage.
    pub async fn start(
        storage: Storage,
        options: NodeOptions,
        transport: Transport,
    ) -> io::Result<Self> {
        let (config, cluster) = (options.config(), storage.identity.cluster);
        let network = Network::new(cluster, transport.clone());
        Self::start_over(storage, options, config, network, transport).await
    }

    /// As [`Node::start`], with another way to the other nodes and a configuration of its own: for
    /// simulations.
    ///
    /// # Errors
    /// As there.
    pub async fn start_over<N>(
        storage: Storage,
        options: NodeOptions,
        config: Config,
        network: N,
        transport: Transport,
    ) -> io::Result<Self>
    where
        N: RaftNetworkFactory<TypeConfig>,
        N::Network: NetSnapshot<TypeConfig, SnapshotData = Bytes>,
    {
        let Storage { identity, log, snapshots, machine, .. } = storage;
        let config = config.validate();
        let config =
            config.map_err(|why| io::Error::new(io::ErrorKind::InvalidInput, why.to_string()))?;
        let raft =
            Raft::new(identity.node, Arc::new(config), network, log.clone(), machine.clone());
        let raft = raft.await.map_err(io::Error::other)?;
        let flight = Arc::new(Semaphore::new(options.limits.flight_bytes));
        let lost = Arc::new(watch::Sender::new(None));
        Ok(Self { identity, raft, machine, log, options, flight, lost, snapshots, transport })
    }

    /// Answers what comes on these connections, until `stop` is ready; then it takes no more, and
    /// gives those that are open a second.
    ///
    /// # Errors
    /// Those of TLS, when its files are of no use.
    pub async fn serve<S>(
        &self,
        incoming: impl Stream<Item = io::Result<S>>,
        stop: impl Future<Output = ()>,
    ) -> io::Result<()>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let incoming = incoming.map(|accepted| accepted.map(Accepted));
        let (stopping, mut stopped) = tokio::sync::watch::channel(false);
        let signal = async move {
            stop.await;
            stopping.send_replace(true);
        };
        let server = self.transport.server()?.serve_with_incoming_shutdown(
            Service::new(self),
            incoming,
            signal,
        );
        let grace = async move {
            // An error means that the server is gone already.
            let _ = stopped.wait_for(|stopped| *stopped).await;
            tokio::time::sleep(Duration::from_secs(1)).await;
        };
        tokio::select! {
            biased;
            served = server => served.map_err(io::Error::other),
            () = grace => Ok(()),
        }
    }

    /// Answers one question, as [`Node::serve`] does for those that come over a connection.
    pub async fn answer(&self, question: Question) -> Answer {
        answer(self, question).await
    }

    /// Begins a cluster: these nodes are its members, each with the address at which the others
    /// reach it.
    ///
    /// # Errors
    /// `AlreadyExists` when this node has been a member before; `InvalidInput` when it is none of
    /// them.
    ///
    /// # Durability
    /// The membership is in this node's log, and durable a flush later: openraft answers before. It
    /// counts when more than half of the members have it. A node that lost its power at once may
    /// have to begin again.
    pub async fn init(&self, members: BTreeMap<u64, String>) -> io::Result<()> {
        let members: BTreeMap<u64, BasicNode> =
            members.into_iter().map(|(id, addr)| (id, BasicNode { addr })).collect();
        let id = self.identity.node;
        self.raft.initialize(members).await.map_err(|why| match why {
            RaftError::APIError(InitializeError::NotAllowed(_)) => {
                let why = format!("node {id} is in a cluster already");
                io::Error::new(io::ErrorKind::AlreadyExists, why)
            }
            RaftError::APIError(InitializeError::NotInMembers(_)) => io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("node {id} is not among the members"),
            ),
            RaftError::Fatal(why) => io::Error::other(why),
        })
    }

    /// The engine, for everything that is not here: metrics, triggers.
    pub fn raft(&self) -> &Raft {
        &self.raft
    }

    /// The state, as far as this node has applied the log.
    pub fn machine(&self) -> &StateMachine {
        &self.machine
    }

    /// Waits until the node cannot go on, and says why and what to do: a disk that failed, a
    /// directory that was replaced. A node that was stopped is `None`.
    pub async fn ended(&self) -> Option<String> {
        let mut lost = self.lost.subscribe();
        tokio::select! {
            // The node keeps the sender, so there is no error.
            lost = lost.wait_for(Option::is_some) => lost.ok().and_then(|why| why.clone()),
            why = self.engine_ended() => why.map(|why| format!(
                "node {} ended: {why}. The other nodes go on; when the cause is gone, start this one again",
                self.identity.node
            )),
        }
    }

    async fn engine_ended(&self) -> Option<String> {
        let mut metrics = self.raft.metrics();
        loop {
            match metrics.borrow_watched().running_state.clone() {
                Ok(()) => (),
                Err(Fatal::Stopped) => return None,
                Err(why) => return Some(why.to_string()),
            }
            if metrics.changed().await.is_err() {
                return None;
            }
        }
    }

    /// Stops the engine and closes the logs.
    ///
    /// # Errors
    /// Those of closing.
    ///
    /// # Durability
    /// On return everything that this node has is on stable storage.
    pub async fn stop(&self) -> io::Result<()> {
        self.raft.shutdown().await.map_err(io::Error::other)?;
        let (log, snapshots) = (self.log.clone(), self.snapshots.clone());
        blocking(move || log.close().and(snapshots.close())).await?
    }
}
