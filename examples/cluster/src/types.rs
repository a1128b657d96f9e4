//! The words of the program: what may be asked of the cluster, what it answers, and openraft's
//! types for them.
//!
//! *Owns*: [`Request`] and [`Response`], which are in the log and so on disk: a new kind goes to
//! the end. *May not touch*: anything.

use std::fmt;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::machine::StateMachine;
use crate::runtime::Runtime;

openraft::declare_raft_types!(
    /// What openraft needs to know of this program. All else is its default: ids are `u64`, a node
    /// has an address.
    pub TypeConfig:
        D = Request,
        R = Response,
        AsyncRuntime = Runtime,
);

/// The engine of a node.
pub type Raft = openraft::Raft<TypeConfig, StateMachine>;
/// The place of an entry in the log, and who wrote it.
pub type LogId = openraft::type_config::alias::LogIdOf<TypeConfig>;
/// Whom a node voted for.
pub type Vote = openraft::type_config::alias::VoteOf<TypeConfig>;
/// Who is in the cluster, and since which entry.
pub type StoredMembership = openraft::type_config::alias::StoredMembershipOf<TypeConfig>;
/// Up to which entry a snapshot goes, and who was in the cluster then.
pub type SnapshotMeta = openraft::type_config::alias::SnapshotMetaOf<TypeConfig>;
/// A snapshot: where it is in the log, and the bytes of [`crate::machine`].
pub type Snapshot = openraft::type_config::alias::SnapshotOf<TypeConfig, Bytes>;

/// What is under a key: what was put there, and each that was appended since.
pub type Value = Vec<Bytes>;

/// A change: what entries of the log hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// `value` alone is under `key` from now on.
    Put {
        /// The key.
        key: String,
        /// The value.
        value: Bytes,
    },
    /// `value` is added at the end of what is under `key`.
    Append {
        /// The key.
        key: String,
        /// The value.
        value: Bytes,
    },
}

impl Request {
    /// The key that changes.
    pub fn key(&self) -> &str {
        match self {
            Self::Put { key, .. } | Self::Append { key, .. } => key,
        }
    }

    /// The bytes of key and value together.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Put { key, value } | Self::Append { key, value } => key.len() + value.len(),
        }
    }
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (word, value) = match self {
            Self::Put { value, .. } => ("put", value),
            Self::Append { value, .. } => ("append", value),
        };
        write!(f, "{word} {} {}", self.key(), String::from_utf8_lossy(value))
    }
}

/// What applying an entry answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Response {
    /// The entry changed no key.
    None,
    /// So many pieces are under the key now.
    Pieces(u64),
}

impl fmt::Display for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("no key"),
            Self::Pieces(pieces) => write!(f, "{pieces} pieces"),
        }
    }
}

/// About how many bytes an entry has on the way to another node.
pub(crate) fn entry_bytes(entry: &openraft::type_config::alias::EntryOf<TypeConfig>) -> usize {
    let bytes = match &entry.payload {
        openraft::EntryPayload::Normal(request) => request.bytes(),
        openraft::EntryPayload::Blank | openraft::EntryPayload::Membership(_) => 0,
    };
    bytes + 64
}
