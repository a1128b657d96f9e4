//! Messages from node to node, as openraft asks for them.
//!
//! *Owns*: which call of openraft's is which message, and deadlines. *May not touch*: what a node
//! does with a message (`server.rs`).
//!
//! Each of openraft's clients has a connection of its own: a heartbeat does not wait behind a
//! snapshot. After any error the next call makes a new one, since TCP can take minutes to notice
//! that a machine is gone.

use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use openraft::errors::{NetworkError, RPCError, ReplicationClosed, StreamingError, Unreachable};
use openraft::network::{RPCOption, RaftNetworkFactory, RaftNetworkV2};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, VoteRequest, VoteResponse,
};
use openraft::{BasicNode, OptionalSend};
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use crate::types::{Snapshot, TypeConfig, Vote};
use crate::wire::{Call, Connection, Message};

/// The other nodes.
#[derive(Debug)]
pub struct Network;

impl RaftNetworkFactory<TypeConfig> for Network {
    type Network = Peer;

    async fn new_client(&mut self, node: u64, at: &BasicNode) -> Peer {
        Peer { to: node, at: at.addr.clone(), connection: None }
    }
}

#[derive(Debug)]
pub struct Peer {
    to: u64,
    at: String,
    connection: Option<Connection>,
}

impl Peer {
    async fn call<A: DeserializeOwned>(
        &mut self,
        message: Message,
        deadline: Duration,
    ) -> Result<A, RPCError<TypeConfig>> {
        let kept = self.connection.take();
        let call = async {
            let mut connection = match kept {
                Some(connection) => connection,
                None => Connection::open(&self.at).await.map_err(|why| Unreachable::new(&why))?,
            };
            let answer = connection.call(&Call::Message(self.to, message)).await;
            let answer: Result<A, String> = answer.map_err(|why| NetworkError::new(&why))?;
            self.connection = Some(connection);
            answer.map_err(|why| NetworkError::from_string(why).into())
        };
        timeout(deadline, call).await.unwrap_or_else(|_| {
            let why = format!("node {} did not answer within {deadline:?}", self.to);
            Err(NetworkError::from_string(why).into())
        })
    }
}

impl RaftNetworkV2<TypeConfig> for Peer {
    type SnapshotData = Bytes;

    async fn append_entries(
        &mut self,
        request: AppendEntriesRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<AppendEntriesResponse<TypeConfig>, RPCError<TypeConfig>> {
        // openraft's deadline is that of a heartbeat, which carries nothing: entries get time for
        // their bytes and their flush.
        let more = if request.entries.is_empty() { 0 } else { 2 };
        let deadline = option.hard_ttl() + Duration::from_secs(more);
        self.call(Message::Append(request), deadline).await
    }

    async fn vote(
        &mut self,
        request: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, RPCError<TypeConfig>> {
        self.call(Message::Vote(request), option.hard_ttl()).await
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: Snapshot,
        cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse<TypeConfig>, StreamingError<TypeConfig>> {
        let deadline = Duration::from_secs(10 + (snapshot.snapshot.len() >> 20) as u64);
        let message = Message::Snapshot(vote, snapshot.meta, snapshot.snapshot);
        // A deposed leader's transfer must end here: openraft would try again under the old vote,
        // with a snapshot that its state machine has of a newer leader, and the receiver would
        // panic.
        let sent = tokio::select! {
            biased;
            closed = cancel => return Err(closed.into()),
            sent = self.call(message, deadline) => sent,
        };
        sent.map_err(|why| match why {
            RPCError::Unreachable(why) => why.into(),
            why => NetworkError::new(&why).into(),
        })
    }
}
