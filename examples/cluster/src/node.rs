//! One node: started on its storage, given messages of other nodes, stopped.
//!
//! *Owns*: openraft's configuration, what a message does, and the order of starting and stopping.
//! *May not touch*: what clients' questions mean (`answers.rs`), connections (`server.rs`).

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use inkstone_openraft::LogStore;
use openraft::async_runtime::watch::WatchReceiver;
use openraft::errors::{Fatal, InitializeError, RaftError};
use openraft::network::{NetSnapshot, RaftNetworkFactory};
use openraft::{BasicNode, Config, SnapshotPolicy};
use tokio::sync::{Semaphore, watch};

use crate::machine::StateMachine;
use crate::runtime::blocking;
use crate::snapshots::Snapshots;
use crate::storage::{Identity, Storage};
use crate::types::{Snapshot, TypeConfig, Vote};
use crate::wire::{Message, Reply};

pub type Raft = openraft::Raft<TypeConfig, StateMachine>;

/// The most bytes of a key and its value together.
pub(crate) const WRITE_BYTES_MAX: usize = 1 << 20;
/// The most bytes of all writes that are proposed and not decided.
pub(crate) const FLIGHT_BYTES_MAX: usize = 8 << 20;

/// How a node behaves. All nodes of a cluster should have the same.
#[derive(Debug, Clone)]
pub struct NodeOptions {
    pub config: Config,
    /// How long the leader waits for a write to be committed before it answers that it may or may
    /// not be.
    pub write_timeout: Duration,
    /// How many groups each node has.
    pub groups: u16,
}

impl NodeOptions {
    /// A leader says every `heartbeat_ms` that it is there. A node that hears nothing for
    /// `election_ms`, or up to twice as long, wants to lead. After `snapshot_every` entries a
    /// snapshot is made; a tenth of them stays in the log for nodes that are a little behind.
    pub fn new(heartbeat_ms: u64, election_ms: u64, snapshot_every: u64) -> Self {
        let config = Config {
            heartbeat_interval: heartbeat_ms,
            election_timeout_min: election_ms,
            election_timeout_max: 2 * election_ms,
            snapshot_policy: SnapshotPolicy::LogsSinceLast(snapshot_every),
            max_in_snapshot_log_to_keep: snapshot_every / 10,
            // A node that comes back from a partition asks before it disturbs a leader that works.
            enable_pre_vote: Some(true),
            // A leader that starts again must be elected again. Two of three nodes can have
            // committed an entry that its own disk did not have yet when the power failed: it would
            // lead on in the same term with a log that lacks it.
            enable_leader_restore: Some(false),
            ..Config::default()
        };
        Self { config, write_timeout: Duration::from_secs(5), groups: 1 }
    }
}

/// A node that runs. Clones are the same node.
#[derive(Clone)]
pub struct Node {
    pub(crate) identity: Identity,
    pub(crate) raft: Raft,
    pub(crate) machine: StateMachine,
    pub(crate) options: NodeOptions,
    /// The bytes that may still be proposed.
    pub(crate) flight: Arc<Semaphore>,
    log: LogStore<TypeConfig>,
    snapshots: Snapshots,
    /// Why this node must end: it lacks what it has confirmed.
    lost: Arc<watch::Sender<Option<String>>>,
}

impl Node {
    /// Starts a node on its storage: it applies what is in its log, and takes part in elections if
    /// it is a member.
    ///
    /// # Errors
    /// `InvalidInput` for options that contradict each other; those of the storage.
    pub async fn start<N>(storage: Storage, options: NodeOptions, network: N) -> io::Result<Self>
    where
        N: RaftNetworkFactory<TypeConfig>,
        N::Network: NetSnapshot<TypeConfig, SnapshotData = Bytes>,
    {
        let Storage { identity, log, snapshots, machine } = storage;
        let config = options.config.clone().validate();
        let config =
            config.map_err(|why| io::Error::new(ErrorKind::InvalidInput, why.to_string()))?;
        let raft =
            Raft::new(identity.node, Arc::new(config), network, log.clone(), machine.clone());
        let raft = raft.await.map_err(io::Error::other)?;
        let flight = Arc::new(Semaphore::new(FLIGHT_BYTES_MAX));
        let lost = Arc::new(watch::Sender::new(None));
        Ok(Self { identity, raft, machine, options, flight, log, snapshots, lost })
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
        self.raft.initialize(members).await.map_err(|why| match why {
            RaftError::APIError(why @ InitializeError::NotAllowed(_)) => {
                io::Error::new(ErrorKind::AlreadyExists, why.to_string())
            }
            RaftError::APIError(why @ InitializeError::NotInMembers(_)) => {
                io::Error::new(ErrorKind::InvalidInput, why.to_string())
            }
            RaftError::Fatal(why) => io::Error::other(why),
        })
    }

    /// Does what another node's message says. `to` is whom the message is for: one that was meant
    /// for another node changes nothing.
    ///
    /// # Errors
    /// In words for the sender: nothing was done, or this node ends.
    pub async fn receive(&self, to: Identity, message: Message) -> Result<Reply, String> {
        let here = self.identity;
        if to != here {
            return Err(format!(
                "this is {here}, and the message is for {to}: an address leads to another node"
            ));
        }
        if let Some(why) = self.lost() {
            return Err(why);
        }
        let stopped = |why: String| format!("{here} does not run: {why}");
        match message {
            Message::Append { confirmed, request } => {
                self.check_confirmed(request.vote, confirmed).await?;
                let answer = self.raft.append_entries(request).await;
                answer.map(Reply::Append).map_err(|why| stopped(why.to_string()))
            }
            Message::Vote(request) => {
                let answer = self.raft.vote(request).await;
                answer.map(Reply::Vote).map_err(|why| stopped(why.to_string()))
            }
            Message::PreVote(request) => {
                let answer = self.raft.pre_vote(request).await;
                answer.map(Reply::Vote).map_err(|why| stopped(why.to_string()))
            }
            Message::Snapshot(vote, meta, snapshot) => {
                let snapshot = Snapshot { meta, snapshot };
                let answer = self.raft.install_full_snapshot(vote, snapshot).await;
                answer
                    .map(|answer| Reply::Snapshot(answer.vote))
                    .map_err(|why| stopped(why.to_string()))
            }
        }
    }

    /// A node that lacks what it has confirmed to this leader has lost its directory, or its disk
    /// lied. It ends, before openraft hears of it: the leader could count as confirmed what is
    /// gone.
    async fn check_confirmed(&self, vote: Vote, confirmed: Option<u64>) -> Result<(), String> {
        // Metrics may be a moment old; they are asked first, since they cost nothing.
        if confirmed <= self.raft.metrics().borrow_watched().last_log_index {
            return Ok(());
        }
        let state = self
            .raft
            .with_raft_state(|state| (*state.vote_ref(), state.log_ids.last().map(|id| id.index)));
        let (own, last) = state.await.map_err(|why| why.to_string())?;
        // Under a newer vote, another leader may have cut the log since.
        if own > vote || confirmed <= last {
            return Ok(());
        }
        let id = self.identity.node;
        let has = last.map_or("is empty".to_owned(), |last| format!("ends at entry {last}"));
        let why = format!(
            "node {id} has lost data: its log {has}, and it has confirmed entry {} to the leader. \
             Was its directory removed, or its disk replaced? It must not go on under this id, \
             since it does not know how it voted. Remove it (`remove {id}`), and add this machine \
             with an empty directory under an id that was never used (`add ID ADDRESS`)",
            confirmed.unwrap_or(0)
        );
        self.lost.send_replace(Some(why.clone()));
        Err(why)
    }

    /// Why this node must end, if it lacks what it has confirmed.
    pub fn lost(&self) -> Option<String> {
        self.lost.borrow().clone()
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
        let mut metrics = self.raft.metrics();
        loop {
            if let Some(why) = self.lost() {
                return Some(why);
            }
            match metrics.borrow_watched().running_state.clone() {
                Ok(()) => (),
                Err(Fatal::Stopped) => return None,
                Err(why) => {
                    return Some(format!(
                        "{} ended: {why}. The other nodes go on; when the cause is gone, start \
                         this one again",
                        self.identity
                    ));
                }
            }
            tokio::select! {
                _ = lost.changed() => (),
                changed = metrics.changed() => {
                    if changed.is_err() {
                        return None;
                    }
                }
            }
        }
    }

    /// Stops the engine and closes the logs.
    ///
    /// # Durability
    /// On return everything that this node has is on stable storage.
    pub async fn stop(&self) -> io::Result<()> {
        self.raft.shutdown().await.map_err(io::Error::other)?;
        let (log, snapshots) = (self.log.clone(), self.snapshots.clone());
        blocking(move || log.close().and(snapshots.close())).await?
    }
}
