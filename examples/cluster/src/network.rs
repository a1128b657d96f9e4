//! Messages from node to node, as openraft asks for them.
//!
//! *Owns*: which call of openraft's is which message, deadlines, and what a leader knows of the
//! others. *May not touch*: what a node does with a message (`node.rs`).
//!
//! Each of openraft's clients has a connection of its own: a heartbeat does not wait behind a
//! snapshot. After any error the next call makes a new one, since TCP can take minutes to notice
//! that a machine is gone.

use std::collections::BTreeMap;
use std::future::Future;
use std::io::{self, ErrorKind};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use openraft::errors::{NetworkError, RPCError, ReplicationClosed, StreamingError, Unreachable};
use openraft::network::{RPCOption, RaftNetworkFactory, RaftNetworkV2};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, VoteRequest, VoteResponse,
};
use openraft::type_config::alias::EntryOf;
use openraft::{BasicNode, EntryPayload, OptionalSend};

use crate::storage::Identity;
use crate::types::{Snapshot, TypeConfig, Vote};
use crate::wire::{Call, Connection, Message, Reply};

pub trait Way: Send + Sync + 'static {
    /// Carries a message there, and the answer back. A call that takes too long is dropped.
    ///
    /// # Errors
    /// `NotConnected` when the node cannot be reached; others when nobody knows whether it heard.
    fn call(&mut self, message: Message) -> impl Future<Output = io::Result<Reply>> + Send;
}

#[derive(Debug)]
pub struct Tcp {
    to: Identity,
    address: String,
    connection: Option<Connection>,
}

impl Tcp {
    /// The way to the node `to`, at `address`.
    pub fn new(to: Identity, address: &str) -> Self {
        Self { to, address: address.to_owned(), connection: None }
    }
}

impl Way for Tcp {
    async fn call(&mut self, message: Message) -> io::Result<Reply> {
        // The other side closes what was idle for long (`server.rs`).
        let fresh = self.connection.take().filter(|kept| kept.idle() < Duration::from_secs(10));
        let mut connection = match fresh {
            Some(connection) => connection,
            None => Connection::open(&self.address).await?,
        };
        let answer = connection.call(&Call::Message(self.to, message)).await?;
        self.connection = Some(connection);
        let answer: Result<Reply, String> = answer;
        answer.map_err(io::Error::other)
    }
}

/// What one other node has confirmed to this leader: under which vote, and up to which entry.
type Confirmed = Arc<Mutex<Option<(Vote, u64)>>>;

/// The nodes of one cluster, and how they are reached.
pub struct Network<F> {
    way: F,
    snapshot_deadline: Duration,
    /// All ways to one node share what it has confirmed.
    confirmed: BTreeMap<u64, Confirmed>,
}

impl<F> Network<F> {
    /// `way` makes a way to the node with this id, at this address. A snapshot may take
    /// `snapshot_deadline`, and a second more for each MiB.
    pub fn new<W: Way>(way: F, snapshot_deadline: Duration) -> Self
    where
        F: FnMut(u64, &str) -> W,
    {
        Self { way, snapshot_deadline, confirmed: BTreeMap::new() }
    }
}

impl<W, F> RaftNetworkFactory<TypeConfig> for Network<F>
where
    W: Way,
    F: FnMut(u64, &str) -> W + Send + Sync + 'static,
{
    type Network = Peer<W>;

    async fn new_client(&mut self, node: u64, at: &BasicNode) -> Peer<W> {
        Peer {
            node,
            way: (self.way)(node, &at.addr),
            snapshot_deadline: self.snapshot_deadline,
            confirmed: Arc::clone(self.confirmed.entry(node).or_default()),
        }
    }
}

pub struct Peer<W> {
    node: u64,
    way: W,
    snapshot_deadline: Duration,
    confirmed: Confirmed,
}

impl<W: Way> Peer<W> {
    /// Up to which entry the node has confirmed the log to the leader of this vote.
    fn confirmed(&self, vote: Vote) -> Option<u64> {
        let confirmed = *self.confirmed.lock().unwrap_or_else(PoisonError::into_inner);
        confirmed.filter(|(to, _)| *to == vote).map(|(_, index)| index)
    }

    fn note(&self, vote: Vote, index: Option<u64>) {
        let newest = self.confirmed(vote).max(index);
        *self.confirmed.lock().unwrap_or_else(PoisonError::into_inner) =
            newest.map(|index| (vote, index));
    }

    async fn call(
        &mut self,
        message: Message,
        deadline: Duration,
    ) -> Result<Reply, RPCError<TypeConfig>> {
        match tokio::time::timeout(deadline, self.way.call(message)).await {
            Ok(Ok(reply)) => Ok(reply),
            Ok(Err(why)) if why.kind() == ErrorKind::NotConnected => {
                Err(Unreachable::new(&why).into())
            }
            Ok(Err(why)) => Err(NetworkError::new(&why).into()),
            Err(_) => {
                let why = format!("node {} did not answer within {deadline:?}", self.node);
                Err(NetworkError::from_string(why).into())
            }
        }
    }

    async fn call_for_vote(
        &mut self,
        message: Message,
        deadline: Duration,
    ) -> Result<VoteResponse<TypeConfig>, RPCError<TypeConfig>> {
        match self.call(message, deadline).await? {
            Reply::Vote(answer) => Ok(answer),
            _ => Err(unexpected().into()),
        }
    }
}

fn unexpected() -> NetworkError<TypeConfig> {
    NetworkError::from_string("the answer is one to another message")
}

fn per_mib(bytes: usize) -> Duration {
    Duration::from_secs((bytes >> 20) as u64)
}

fn payload_bytes(entry: &EntryOf<TypeConfig>) -> usize {
    match &entry.payload {
        EntryPayload::Normal(request) => request.bytes(),
        EntryPayload::Blank | EntryPayload::Membership(_) => 0,
    }
}

impl<W: Way> RaftNetworkV2<TypeConfig> for Peer<W> {
    type SnapshotData = Bytes;

    async fn append_entries(
        &mut self,
        request: AppendEntriesRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<AppendEntriesResponse<TypeConfig>, RPCError<TypeConfig>> {
        // openraft's deadline is that of a heartbeat, which carries nothing: entries get time for
        // their bytes and their flush.
        let bytes = request.entries.iter().map(payload_bytes).sum();
        let more = match request.entries.is_empty() {
            true => Duration::ZERO,
            false => Duration::from_secs(1) + per_mib(bytes),
        };
        let vote = request.vote;
        let end = request.entries.last().map(|entry| entry.log_id).or(request.prev_log_id);
        let message = Message::Append { confirmed: self.confirmed(vote), request };
        let Reply::Append(answer) = self.call(message, option.hard_ttl() + more).await? else {
            return Err(unexpected().into());
        };
        match &answer {
            AppendEntriesResponse::Success => self.note(vote, end.map(|id| id.index)),
            AppendEntriesResponse::PartialSuccess(end) => self.note(vote, end.map(|id| id.index)),
            AppendEntriesResponse::Conflict | AppendEntriesResponse::HigherVote(_) => (),
        }
        Ok(answer)
    }

    async fn vote(
        &mut self,
        request: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, RPCError<TypeConfig>> {
        self.call_for_vote(Message::Vote(request), option.hard_ttl()).await
    }

    async fn pre_vote(
        &mut self,
        request: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, RPCError<TypeConfig>> {
        self.call_for_vote(Message::PreVote(request), option.hard_ttl()).await
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: Snapshot,
        cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse<TypeConfig>, StreamingError<TypeConfig>> {
        let deadline = self.snapshot_deadline + per_mib(snapshot.snapshot.len());
        let message = Message::Snapshot(vote, snapshot.meta, snapshot.snapshot);
        // A deposed leader's transfer must end here: openraft would try again under the old vote,
        // with a snapshot that its state machine has of a newer leader, and the receiver would
        // panic.
        let sent = tokio::select! {
            biased;
            closed = cancel => return Err(closed.into()),
            sent = self.call(message, deadline) => sent,
        };
        match sent {
            Ok(Reply::Snapshot(vote)) => Ok(SnapshotResponse::new(vote)),
            Ok(_) => Err(unexpected().into()),
            Err(RPCError::Unreachable(why)) => Err(why.into()),
            Err(why) => Err(NetworkError::new(&why).into()),
        }
    }
}
