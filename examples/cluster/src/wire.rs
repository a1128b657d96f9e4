//! What goes over a connection, and how it becomes bytes.
//!
//! *Owns*: the messages, and a connection, on which one call follows the other. *May not touch*:
//! what a message means.
//!
//! A message is its length in four bytes, little endian, and its bytes in postcard. All nodes of a
//! cluster run the same version of this program; a program that lives long would number its
//! messages here. TLS, which this program does not have, would go around the stream here.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::time::Duration;

use bytes::Bytes;
use openraft::raft::{AppendEntriesRequest, AppendEntriesResponse, VoteRequest, VoteResponse};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::storage::Identity;
use crate::types::{Request, SnapshotMeta, TypeConfig, Value, Vote};

/// The largest message: a snapshot, for example.
const MESSAGE_BYTES_MAX: usize = 1 << 30;

/// What is sent over a new or used connection.
#[derive(Debug, Serialize, Deserialize)]
pub enum Call {
    /// From another node, for this one. The answer is a `Result<Reply, String>`.
    Message(Identity, Message),
    /// From a client, for a group. The answer is an [`Answer`].
    Question(u16, Question),
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Message {
    Append {
        /// Up to which entry the receiver has confirmed the log to this leader: it must have them.
        confirmed: Option<u64>,
        request: AppendEntriesRequest<TypeConfig>,
    },
    Vote(VoteRequest<TypeConfig>),
    PreVote(VoteRequest<TypeConfig>),
    Snapshot(Vote, SnapshotMeta, Bytes),
}

#[derive(Debug, Serialize, Deserialize)]
pub enum Reply {
    Append(AppendEntriesResponse<TypeConfig>),
    Vote(VoteResponse<TypeConfig>),
    Snapshot(Vote),
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Question {
    /// Is somebody there, and how many groups are?
    Hello,
    Write(Request),
    /// What is under this key?
    Get(String),
    List(String),
    Status,
    /// Add the node with this id, which is reached at this address, when it has caught up.
    Add(u64, String),
    Remove(u64),
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Answer {
    /// The number of groups.
    Hello(u16),
    /// The change is committed.
    Written(Written),
    Value(Option<Value>),
    Keys(Vec<String>),
    Status(Box<NodeStatus>),
    /// The membership is as asked.
    Changed,
    /// Nothing was done: only the leader can. This is the leader, if this node knows one.
    NotLeader(Option<Leader>),
    /// Nothing was done, and asking again changes nothing.
    Refused(String),
    /// Nothing was done; it may succeed later.
    Later(String),
    /// It may have been done, or may yet be done.
    Unknown(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Written {
    /// Its index in the log.
    pub index: u64,
    /// So many pieces are under the key with it.
    pub pieces: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leader {
    pub id: u64,
    pub address: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeStatus {
    pub id: u64,
    /// Leader, Follower, Candidate, Learner or Shutdown.
    pub state: String,
    pub term: u64,
    /// The leader that it knows.
    pub leader: Option<u64>,
    /// The index of the last entry in its log.
    pub last: Option<u64>,
    /// The index of the last entry that its state machine has.
    pub applied: Option<u64>,
    /// The index of the last entry in its snapshot.
    pub snapshot: Option<u64>,
    /// The index of the last entry that was purged from its log.
    pub purged: Option<u64>,
    /// The ids of the nodes that vote.
    pub voters: Vec<u64>,
    /// All nodes with their addresses: those that do not vote catch up.
    pub nodes: BTreeMap<u64, String>,
    /// The number of keys.
    pub keys: u64,
    /// A checksum over all keys and values: equal on nodes that have applied equally much.
    pub fingerprint: u64,
    /// On a leader: how long ago, in milliseconds, more than half of the nodes were heard of.
    pub quorum_ms_ago: Option<u64>,
}

/// Writes a message.
///
/// # Errors
/// Those of the stream; `InvalidInput` when the message is too large.
pub async fn write(stream: &mut TcpStream, message: &impl Serialize) -> io::Result<()> {
    let mut frame = postcard::to_extend(message, vec![0; 4]).map_err(io::Error::other)?;
    let bytes = frame.len() - 4;
    if bytes > MESSAGE_BYTES_MAX {
        let why = format!("a message of {bytes} bytes: {MESSAGE_BYTES_MAX} are the most");
        return Err(io::Error::new(ErrorKind::InvalidInput, why));
    }
    frame[..4].copy_from_slice(&(bytes as u32).to_le_bytes());
    stream.write_all(&frame).await
}

/// Reads a message.
///
/// # Errors
/// Those of the stream; `InvalidData` when the bytes are no message of this version.
pub async fn read<M: DeserializeOwned>(stream: &mut TcpStream) -> io::Result<M> {
    let invalid = |why: String| io::Error::new(ErrorKind::InvalidData, why);
    let length = stream.read_u32_le().await? as usize;
    if length > MESSAGE_BYTES_MAX {
        return Err(invalid(format!("a message of {length} bytes: that is none of ours")));
    }
    // Memory grows with what comes, not with what is announced.
    let mut bytes = Vec::new();
    stream.take(length as u64).read_to_end(&mut bytes).await?;
    if bytes.len() != length {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    let message = postcard::from_bytes(&bytes);
    message.map_err(|why| invalid(format!("no message of this version of the program: {why}")))
}

/// A connection to a node. After an error, or a call that was given up, it is of no use any more:
/// the answer to that call could come as the answer to the next one.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    used: Instant,
}

impl Connection {
    /// A new connection.
    ///
    /// # Errors
    /// `NotConnected`, with why: nothing was sent then.
    pub async fn open(address: &str) -> io::Result<Self> {
        let failed = |why| {
            io::Error::new(ErrorKind::NotConnected, format!("no connection to {address}: {why}"))
        };
        let stream = TcpStream::connect(address).await.map_err(failed)?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, used: Instant::now() })
    }

    /// Makes a call, and waits for its answer.
    ///
    /// # Errors
    /// When no answer came: the call may have been heard or not.
    pub async fn call<A: DeserializeOwned>(&mut self, call: &Call) -> io::Result<A> {
        write(&mut self.stream, call).await?;
        let answer = read(&mut self.stream).await?;
        self.used = Instant::now();
        Ok(answer)
    }

    /// How long ago the last answer came.
    pub fn idle(&self) -> Duration {
        self.used.elapsed()
    }
}
