//! What goes over the network, and how it becomes bytes.
//!
//! *Owns*: the messages, their paths, and the codec. *May not touch*: connections.
//!
//! The RPCs are gRPC's, with messages in postcard: nothing is generated, and no protobuf compiler
//! is needed. All nodes of a cluster run the same version of this program; a program that lives
//! long would number its messages here.

use std::collections::BTreeMap;

use bytes::{Buf, BufMut, Bytes};
use openraft::raft::{AppendEntriesRequest, AppendEntriesResponse, VoteRequest, VoteResponse};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};

use crate::types::{Request, SnapshotMeta, TypeConfig, Value, Vote};

/// From node to node: one message, one answer.
pub(crate) const NODE: &str = "/replicated_log.Node/Call";
/// From node to node: a snapshot, first its [`SnapshotHead`], then its bytes in pieces.
pub(crate) const SNAPSHOT: &str = "/replicated_log.Node/Snapshot";
/// From a client: one question, one answer.
pub(crate) const CLIENT: &str = "/replicated_log.Client/Ask";
/// From a client: entries from an index on, as they are applied.
pub(crate) const TAIL: &str = "/replicated_log.Client/Tail";

/// The largest message that is accepted. What is sent is far smaller ([`crate::node::Limits`]).
pub(crate) const MESSAGE_BYTES_MAX: usize = 64 << 20;

/// From which cluster, and for which node: an address that leads to another node must not count as
/// that node's vote.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Addressee {
    pub(crate) cluster: u64,
    pub(crate) node: u64,
}

/// A message from node to node.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum NodeMessage {
    Append {
        /// Up to which entry the receiver has confirmed the log to this leader: it must have them.
        confirmed: Option<u64>,
        request: AppendEntriesRequest<TypeConfig>,
    },
    Vote(VoteRequest<TypeConfig>),
    PreVote(VoteRequest<TypeConfig>),
}

/// Its answer.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum NodeAnswer {
    Append(AppendEntriesResponse<TypeConfig>),
    Vote(VoteResponse<TypeConfig>),
}

/// What comes before the bytes of a snapshot.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SnapshotHead {
    pub(crate) to: Addressee,
    pub(crate) vote: Vote,
    pub(crate) meta: SnapshotMeta,
    pub(crate) bytes: u64,
}

/// What a client asks.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Question {
    /// Who is there, and who leads?
    Hello,
    /// Change a key.
    Write(Request),
    /// What is under a key?
    Get {
        /// The key.
        key: String,
    },
    /// How is this node?
    Status,
    /// Begin a cluster of these nodes, with their addresses.
    Init(BTreeMap<u64, String>),
    /// Add a node, when it has caught up.
    Add {
        /// Its id.
        id: u64,
        /// The address at which the others reach it.
        address: String,
    },
    /// Remove a node.
    Remove {
        /// Its id.
        id: u64,
    },
}

/// What a node answers to a client.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Answer {
    /// To [`Question::Hello`]: the leader that this node knows.
    Hello(Option<Leader>),
    /// The change is committed.
    Written(Written),
    /// What is under the key.
    Value(Option<Value>),
    /// To [`Question::Status`].
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

/// A change that is committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Written {
    /// Its index in the log.
    pub index: u64,
    /// So many pieces are under the key with it.
    pub pieces: u64,
}

/// A leader, and where it is reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leader {
    /// Its id.
    pub id: u64,
    /// Its address.
    pub address: String,
}

/// How a node is, as it sees itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeStatus {
    /// Its id.
    pub id: u64,
    /// Leader, Follower, Candidate, Learner or Shutdown.
    pub state: String,
    /// The term.
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
    /// What its log has committed.
    pub commits: Commits,
}

/// What a node's log has committed since it was opened. A commit makes one group of records
/// durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Commits {
    /// How many commits, those of the log's own notes too.
    pub count: u64,
    /// The records that were appended: entries, and what else the raft log notes.
    pub records: u64,
    /// How long a group's first record waited until its write began, at the median, in
    /// microseconds.
    pub queue_us: u64,
    /// How long writing and syncing a group took, at the median, in microseconds.
    pub commit_us: u64,
    /// The same, for 99 of 100.
    pub commit_us_p99: u64,
}

/// From which index a client wants entries.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct TailFrom {
    pub(crate) index: u64,
}

/// An entry that was applied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Applied {
    /// Its index.
    pub index: u64,
    /// What it changed; `None` for entries of raft itself.
    pub request: Option<Request>,
}

/// A message as bytes.
pub(crate) fn encode(message: &impl Serialize) -> Result<Bytes, Status> {
    postcard::to_stdvec(message).map(Bytes::from).map_err(|why| Status::internal(why.to_string()))
}

/// A message of bytes.
pub(crate) fn decode<M: DeserializeOwned>(bytes: &[u8]) -> Result<M, Status> {
    postcard::from_bytes(bytes).map_err(|why| {
        Status::invalid_argument(format!("no message of this version of the program: {why}"))
    })
}

/// Messages are bytes already.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct AsBytes;

impl Codec for AsBytes {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for AsBytes {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.put(item);
        Ok(())
    }
}

impl Decoder for AsBytes {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(from.copy_to_bytes(from.remaining())))
    }
}
