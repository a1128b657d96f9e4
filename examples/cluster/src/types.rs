//! The words of the program: what may be asked of the cluster, and openraft's types for that.
//!
//! *Owns*: [`Request`], which is in the log and so on disk: a new kind goes to the end. *May not
//! touch*: anything.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

openraft::declare_raft_types!(
    /// What openraft needs to know of this program. All else is its default: ids are `u64`, a node
    /// has an address, the runtime is tokio's.
    pub TypeConfig:
        D = Request,
        R = (),
);

/// The place of an entry in the log, and who wrote it.
pub type LogId = openraft::type_config::alias::LogIdOf<TypeConfig>;
/// Whom a node voted for.
pub type Vote = openraft::type_config::alias::VoteOf<TypeConfig>;
/// Who is in the cluster, and since which entry.
pub type StoredMembership = openraft::type_config::alias::StoredMembershipOf<TypeConfig>;
/// Up to which entry a snapshot goes, and who was in the cluster then.
pub type SnapshotMeta = openraft::type_config::alias::SnapshotMetaOf<TypeConfig>;
/// A snapshot: where it is in the log, and the bytes of `machine.rs`.
pub type Snapshot = openraft::type_config::alias::SnapshotOf<TypeConfig, Bytes>;

/// What is under a key: what was put there, and each piece that was appended since.
pub type Value = Vec<Bytes>;

/// A change: what entries of the log hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// `value` alone is under `key` from now on.
    Put { key: String, value: Bytes },
    /// `value` is added at the end of what is under `key`.
    Append { key: String, value: Bytes },
}

impl Request {
    /// The key that changes, and with what.
    pub fn parts(&self) -> (&str, &Bytes) {
        match self {
            Self::Put { key, value } | Self::Append { key, value } => (key, value),
        }
    }
}

impl std::fmt::Display for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self:?}")
    }
}
