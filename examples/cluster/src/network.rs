//! Calls from node to node, as openraft asks for them.
//!
//! *Owns*: which call is which message, deadlines, and what an error means to openraft. *May not
//! touch*: how connections are made.
//!
//! Each of openraft's clients has a connection of its own: a heartbeat does not wait behind a
//! snapshot. After any error the next call makes a new one, since TCP can take minutes to notice
//! that a machine is gone.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::uri::PathAndQuery;
use openraft::errors::{NetworkError, RPCError, ReplicationClosed, StreamingError, Unreachable};
use openraft::network::{RPCOption, RaftNetworkFactory, RaftNetworkV2};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, VoteRequest, VoteResponse,
};
use openraft::{BasicNode, OptionalSend};
use tonic::client::Grpc;
use tonic::transport::Channel;

use crate::transport::Transport;
use crate::types::{Snapshot, TypeConfig, Vote};
use crate::wire::{
    Addressee, AsBytes, NODE, NodeAnswer, NodeMessage, SNAPSHOT, SnapshotHead, decode, encode,
};

/// How long a call may take beyond openraft's own deadline, for its bytes and their flush: 1
/// second, and 1 for each MiB. openraft's deadline is that of a heartbeat, which carries nothing.
fn with_bytes(deadline: Duration, bytes: usize) -> Duration {
    if bytes == 0 { deadline } else { deadline + Duration::from_secs(1 + (bytes >> 20) as u64) }
}

const PIECE_BYTES: usize = 256 << 10;

/// What one other node has confirmed to this leader: under which vote, and up to which entry.
type Confirmed = Arc<Mutex<Option<(Vote, u64)>>>;

/// Makes connections to the nodes of one cluster.
#[derive(Debug, Clone)]
pub(crate) struct Network {
    cluster: u64,
    transport: Transport,
    /// All connections to one node share what it has confirmed.
    confirmed: BTreeMap<u64, Confirmed>,
}

impl Network {
    pub(crate) fn new(cluster: u64, transport: Transport) -> Self {
        Self { cluster, transport, confirmed: BTreeMap::new() }
    }
}

impl RaftNetworkFactory<TypeConfig> for Network {
    type Network = Peer;

    async fn new_client(&mut self, node: u64, at: &BasicNode) -> Peer {
        Peer {
            to: Addressee { cluster: self.cluster, node },
            address: at.addr.clone(),
            transport: self.transport.clone(),
            connection: None,
            confirmed: Arc::clone(self.confirmed.entry(node).or_default()),
        }
    }
}

/// One other node.
#[derive(Debug)]
pub(crate) struct Peer {
    to: Addressee,
    address: String,
    transport: Transport,
    connection: Option<Grpc<Channel>>,
    confirmed: Confirmed,
}

impl Peer {
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

    async fn connection(
        &mut self,
        timeout: Duration,
    ) -> Result<Grpc<Channel>, Unreachable<TypeConfig>> {
        if let Some(connection) = &self.connection {
            return Ok(connection.clone());
        }
        let connection = self
            .transport
            .call(&self.address, timeout)
            .await
            .map_err(|why| Unreachable::new(&why))?;
        Ok(self.connection.insert(connection).clone())
    }

    /// Makes one call, connecting first if need be, all within `deadline`.
    async fn call(
        &mut self,
        message: &NodeMessage,
        deadline: Duration,
    ) -> Result<NodeAnswer, RPCError<TypeConfig>> {
        let answer = tokio::time::timeout(deadline, self.try_call(message, deadline)).await;
        let answer = answer.unwrap_or_else(|_| {
            let why = format!(
                "node {} at {} did not answer within {deadline:?}",
                self.to.node, self.address
            );
            Err(NetworkError::from_string(why).into())
        });
        if answer.is_err() {
            self.connection = None;
        }
        answer
    }

    async fn try_call(
        &mut self,
        message: &NodeMessage,
        deadline: Duration,
    ) -> Result<NodeAnswer, RPCError<TypeConfig>> {
        let mut connection = self.connection(deadline).await?;
        let failed = |status: tonic::Status| RPCError::from(NetworkError::new(&status));
        let bytes = encode(&(self.to, message)).map_err(failed)?;
        connection.ready().await.map_err(|why| Unreachable::new(&why))?;
        let path = PathAndQuery::from_static(NODE);
        let answer =
            connection.unary(tonic::Request::new(bytes), path, AsBytes).await.map_err(failed)?;
        decode(&answer.into_inner()).map_err(failed)
    }

    async fn send_snapshot(
        &mut self,
        vote: Vote,
        snapshot: Snapshot,
    ) -> Result<Vote, StreamingError<TypeConfig>> {
        let mut connection = self.connection(Duration::from_secs(5)).await?;
        let failed = |status: tonic::Status| NetworkError::new(&status);
        let bytes = snapshot.snapshot;
        let head =
            SnapshotHead { to: self.to, vote, meta: snapshot.meta, bytes: bytes.len() as u64 };
        let head = encode(&head).map_err(failed)?;
        let pieces = (0..bytes.len()).step_by(PIECE_BYTES).map(move |at| {
            let end = bytes.len().min(at + PIECE_BYTES);
            bytes.slice(at..end)
        });
        let messages = tokio_stream::iter(std::iter::once(head).chain(pieces));
        connection.ready().await.map_err(|why| Unreachable::new(&why))?;
        let path = PathAndQuery::from_static(SNAPSHOT);
        let answer =
            connection.client_streaming(tonic::Request::new(messages), path, AsBytes).await;
        let answer: Bytes = answer.map_err(failed)?.into_inner();
        Ok(decode(&answer).map_err(failed)?)
    }
}

fn unexpected<E: From<NetworkError<TypeConfig>>>() -> E {
    NetworkError::from_string("the answer is one to another message").into()
}

impl RaftNetworkV2<TypeConfig> for Peer {
    type SnapshotData = Bytes;

    async fn append_entries(
        &mut self,
        request: AppendEntriesRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<AppendEntriesResponse<TypeConfig>, RPCError<TypeConfig>> {
        let bytes = request.entries.iter().map(crate::types::entry_bytes).sum();
        let vote = request.vote;
        let end = request.entries.last().map(|entry| entry.log_id).or(request.prev_log_id);
        let message = NodeMessage::Append { confirmed: self.confirmed(vote), request };
        let answer = match self.call(&message, with_bytes(option.hard_ttl(), bytes)).await? {
            NodeAnswer::Append(answer) => answer,
            NodeAnswer::Vote(_) => return Err(unexpected()),
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
        match self.call(&NodeMessage::Vote(request), option.hard_ttl()).await? {
            NodeAnswer::Vote(answer) => Ok(answer),
            NodeAnswer::Append(_) => Err(unexpected()),
        }
    }

    async fn pre_vote(
        &mut self,
        request: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, RPCError<TypeConfig>> {
        match self.call(&NodeMessage::PreVote(request), option.hard_ttl()).await? {
            NodeAnswer::Vote(answer) => Ok(answer),
            NodeAnswer::Append(_) => Err(unexpected()),
        }
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: Snapshot,
        cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse<TypeConfig>, StreamingError<TypeConfig>> {
        let deadline = with_bytes(Duration::from_secs(10), snapshot.snapshot.len());
        let sent = tokio::select! {
            sent = tokio::time::timeout(deadline, self.send_snapshot(vote, snapshot)) => sent,
            closed = cancel => return Err(closed.into()),
        };
        let vote = sent.unwrap_or_else(|_| {
            Err(NetworkError::from_string(format!(
                "a snapshot was not installed within {deadline:?}"
            ))
            .into())
        });
        if vote.is_err() {
            self.connection = None;
        }
        Ok(SnapshotResponse::new(vote?))
    }
}
