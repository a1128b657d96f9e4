//! What comes over a connection: which call it is, and whether it is for this node.
//!
//! *Owns*: paths, decoding, the checks of the sender. *May not touch*: what a client's question
//! means (`answers.rs`).

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::TryStreamExt;
use openraft::async_runtime::watch::WatchReceiver;
use tonic::body::Body;
use tonic::server::Grpc;
use tonic::{Request, Response, Status, Streaming};
use tower::service_fn;

use crate::answers::answer;
use crate::node::Node;
use crate::tail::tail;
use crate::types::{Snapshot, Vote};
use crate::wire::{
    Addressee, AsBytes, CLIENT, MESSAGE_BYTES_MAX, NODE, NodeAnswer, NodeMessage, SNAPSHOT,
    SnapshotHead, TAIL, decode, encode,
};

/// A node as the server calls it.
#[derive(Clone)]
pub(crate) struct Service(Node);

impl Service {
    pub(crate) fn new(node: &Node) -> Self {
        Self(node.clone())
    }

    async fn dispatch(self, request: http::Request<Body>) -> http::Response<Body> {
        let Self(node) = self;
        let mut grpc = Grpc::new(AsBytes).max_decoding_message_size(MESSAGE_BYTES_MAX);
        match request.uri().path() {
            NODE => {
                let call = service_fn(move |request: Request<Bytes>| {
                    from_node(node.clone(), request.into_inner())
                });
                grpc.unary(call, request).await
            }
            SNAPSHOT => {
                let call = service_fn(move |request: Request<Streaming<Bytes>>| {
                    from_snapshot(node.clone(), request.into_inner())
                });
                grpc.client_streaming(call, request).await
            }
            CLIENT => {
                let call = service_fn(move |request: Request<Bytes>| {
                    let node = node.clone();
                    async move {
                        let question = decode(request.get_ref())?;
                        encode(&answer(&node, question).await).map(Response::new)
                    }
                });
                grpc.unary(call, request).await
            }
            TAIL => {
                let call = service_fn(move |request: Request<Bytes>| {
                    let node = node.clone();
                    async move { decode(request.get_ref()).map(|from| Response::new(tail(&node, from))) }
                });
                grpc.server_streaming(call, request).await
            }
            path => Status::unimplemented(format!("there is no call {path}")).into_http(),
        }
    }
}

impl tower::Service<http::Request<Body>> for Service {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let service = self.clone();
        Box::pin(async move { Ok(service.dispatch(request).await) })
    }
}

/// A message that was meant for another node changes nothing.
fn check(node: &Node, to: Addressee) -> Result<(), Status> {
    let here = Addressee { cluster: node.identity.cluster, node: node.identity.node };
    if to == here {
        return Ok(());
    }
    Err(Status::failed_precondition(format!(
        "this is node {} of cluster {}, and the message is for node {} of cluster {}: an address leads to another node",
        here.node, here.cluster, to.node, to.cluster
    )))
}

/// A node that lacks what it has confirmed to this leader has lost its directory, or its disk lied.
/// It ends, before openraft hears of it: the leader could count as confirmed what is gone.
async fn check_confirmed(node: &Node, vote: Vote, confirmed: Option<u64>) -> Result<(), Status> {
    // Metrics may be a moment old; they are asked first, since they cost nothing.
    if confirmed <= node.raft.metrics().borrow_watched().last_log_index {
        return Ok(());
    }
    let state = node
        .raft
        .with_raft_state(|state| (*state.vote_ref(), state.log_ids.last().map(|id| id.index)));
    let (own, last) = state.await.map_err(stopped)?;
    // Under a newer vote, another leader may have cut the log since.
    if own > vote || confirmed <= last {
        return Ok(());
    }
    let why = lost(node.identity.node, last, confirmed);
    node.lost.send_replace(Some(why.clone()));
    Err(Status::data_loss(why))
}

fn lost(id: u64, last: Option<u64>, confirmed: Option<u64>) -> String {
    let has = last.map_or("is empty".to_owned(), |last| format!("ends at entry {last}"));
    format!(
        "node {id} has lost data: its log {has}, and it has confirmed entry {} to the leader. Was its directory removed, or its disk replaced? \
         It must not go on under this id, since it does not know how it voted. Remove it (`remove {id}`), and add this machine with an \
         empty directory under an id that was never used (`add ID ADDRESS`)",
        confirmed.unwrap_or(0)
    )
}

fn stopped(why: impl std::fmt::Display) -> Status {
    Status::unavailable(format!("this node does not run: {why}"))
}

async fn from_node(node: Node, bytes: Bytes) -> Result<Response<Bytes>, Status> {
    let (to, message): (Addressee, NodeMessage) = decode(&bytes)?;
    check(&node, to)?;
    if let Some(why) = node.lost.borrow().as_deref() {
        return Err(Status::data_loss(why));
    }
    let answer = match message {
        NodeMessage::Append { confirmed, request } => {
            check_confirmed(&node, request.vote, confirmed).await?;
            node.raft.append_entries(request).await.map(NodeAnswer::Append)
        }
        NodeMessage::Vote(request) => node.raft.vote(request).await.map(NodeAnswer::Vote),
        NodeMessage::PreVote(request) => node.raft.pre_vote(request).await.map(NodeAnswer::Vote),
    };
    encode(&answer.map_err(stopped)?).map(Response::new)
}

async fn from_snapshot(
    node: Node,
    mut pieces: Streaming<Bytes>,
) -> Result<Response<Bytes>, Status> {
    let cut = || Status::data_loss("a snapshot ended early");
    let head: SnapshotHead = decode(&pieces.try_next().await?.ok_or_else(cut)?)?;
    check(&node, head.to)?;
    let mut bytes = Vec::new();
    while let Some(piece) = pieces.try_next().await? {
        bytes.extend_from_slice(&piece);
        if bytes.len() as u64 > head.bytes {
            break;
        }
    }
    if bytes.len() as u64 != head.bytes {
        return Err(cut());
    }
    let snapshot = Snapshot { meta: head.meta, snapshot: bytes.into() };
    let answer = node.raft.install_full_snapshot(head.vote, snapshot).await.map_err(stopped)?;
    let vote: Vote = answer.vote;
    encode(&vote).map(Response::new)
}
