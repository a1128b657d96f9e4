//! What goes over a connection, and how it becomes bytes.
//!
//! *Owns*: the messages, and a connection, on which one call follows the other. *May not touch*:
//! what a message means.
//!
//! A message is its length in four bytes, and its bytes in postcard. All nodes and clients of a
//! cluster run the same version of this program.

use std::io::{self, ErrorKind};

use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use openraft::raft::{AppendEntriesRequest, VoteRequest};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::net::TcpStream;
use tokio_util::codec::{Framed, LengthDelimitedCodec};

use crate::types::{Request, SnapshotMeta, TypeConfig, Value, Vote};

/// The largest message: a snapshot, for example.
const MESSAGE_BYTES_MAX: usize = 256 << 20;

/// What is sent over a new or used connection.
#[derive(Debug, Serialize, Deserialize)]
pub enum Call {
    /// From another node, for the one with this id: an address that leads to another one counts
    /// for nothing. The answer is the result of openraft, with an error in words.
    Message(u64, Message),
    /// From a client. The answer is an [`Answer`].
    Question(Question),
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Message {
    Append(AppendEntriesRequest<TypeConfig>),
    Vote(VoteRequest<TypeConfig>),
    Snapshot(Vote, SnapshotMeta, Bytes),
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Question {
    Write(Request),
    /// What is under this key?
    Get(String),
    Status,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Answer {
    /// The change is committed, and has this index in the log.
    Written(u64),
    Value(Option<Value>),
    Status(Box<NodeStatus>),
    /// Nothing was done: only the leader can. It is at this address, if this node knows one.
    NotLeader(Option<String>),
    /// Nothing was done, and asking again changes nothing.
    Refused(String),
    /// Nothing was done; it may succeed later.
    Later(String),
    /// It may have been done, or may yet be done.
    Unknown(String),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeStatus {
    pub id: u64,
    pub term: u64,
    pub is_leader: bool,
    /// The index of the last entry that its state machine has.
    pub applied: Option<u64>,
    /// The index of the last entry that was purged from its log: a snapshot has it.
    pub purged: Option<u64>,
    /// A checksum over all keys and values: equal on nodes that have applied equally much.
    pub fingerprint: u64,
}

impl std::fmt::Display for NodeStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { id, term, is_leader, applied, purged, fingerprint } = self;
        let role = if *is_leader { "leads" } else { "follows" };
        let index = |index: &Option<u64>| index.map_or("none".into(), |index| index.to_string());
        write!(f, "node {id} {role} in term {term}; applied {}, ", index(applied))?;
        write!(f, "purged {}; fingerprint {fingerprint:016x}", index(purged))
    }
}

/// A connection. After an error, or a call that was given up, it is of no use any more: the answer
/// to that call could come as the answer to the next one.
#[derive(Debug)]
pub struct Connection {
    frames: Framed<TcpStream, LengthDelimitedCodec>,
}

impl Connection {
    pub async fn open(address: &str) -> io::Result<Self> {
        Self::new(TcpStream::connect(address).await?)
    }

    pub fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        let codec = LengthDelimitedCodec::builder().max_frame_length(MESSAGE_BYTES_MAX).new_codec();
        Ok(Self { frames: Framed::new(stream, codec) })
    }

    /// Makes a call, and waits for its answer.
    ///
    /// # Errors
    /// When no answer came: the call may have been heard or not.
    pub async fn call<A: DeserializeOwned>(&mut self, call: &Call) -> io::Result<A> {
        self.send(call).await?;
        self.receive().await
    }

    pub async fn send(&mut self, message: &impl Serialize) -> io::Result<()> {
        let bytes = postcard::to_stdvec(message).map_err(io::Error::other)?;
        self.frames.send(Bytes::from(bytes)).await
    }

    pub async fn receive<M: DeserializeOwned>(&mut self) -> io::Result<M> {
        let bytes = self.frames.next().await.ok_or(ErrorKind::UnexpectedEof)??;
        postcard::from_bytes(&bytes).map_err(|why| {
            let why = format!("no message of this version of the program: {why}");
            io::Error::new(ErrorKind::InvalidData, why)
        })
    }
}
