//! What a node has on disk: the raft log in `log/`, and the snapshots in `snapshots/`, below one
//! directory.
//!
//! *Owns*: where the two are, whose they are, and whether they fit together. *May not touch*: what
//! is in them.

use std::io::{self, ErrorKind};
use std::path::Path;

use inkstone::Log;
use inkstone_openraft::LogStore;
use openraft::storage::RaftLogStorage;
use serde::{Deserialize, Serialize};

use crate::machine::StateMachine;
use crate::snapshots::Snapshots;
use crate::types::TypeConfig;

/// One node of one cluster. It is written into a new directory and checked from then on, and it is
/// in each message from node to node: an address that leads to another node counts for nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The cluster's number: any, as long as two clusters that could meet have different ones.
    pub cluster: u64,
    pub node: u64,
}

impl std::fmt::Display for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "node {} of cluster {}", self.node, self.cluster)
    }
}

#[derive(Debug)]
pub struct Storage {
    pub(crate) identity: Identity,
    pub(crate) log: LogStore<TypeConfig>,
    pub(crate) snapshots: Snapshots,
    pub(crate) machine: StateMachine,
}

impl Storage {
    /// Opens what is in `directory`, or creates it, with segments of this size: from 4 MiB, a
    /// multiple of 4096.
    ///
    /// # Errors
    /// `InvalidData` when the directory is another node's, or when its two halves do not fit; those
    /// of the logs, for example when another process has them open.
    ///
    /// # Durability
    /// What the opened storage shows is on stable storage.
    pub async fn open(
        directory: &Path,
        identity: Identity,
        segment_bytes: u64,
    ) -> io::Result<Self> {
        let record_bytes_max = (segment_bytes / 2).min(16 << 20) as usize;
        let options = inkstone::Options::new()
            .segment_bytes(segment_bytes)
            .record_bytes_max(record_bytes_max);
        let group = u128::from(identity.cluster) << 64 | u128::from(identity.node);
        let of_log = inkstone_openraft::Options::new().log(options.clone()).raft_group(group);
        let log = LogStore::open(directory.join("log"), of_log).map_err(|why| {
            match why.get_ref().and_then(|why| why.downcast_ref()) {
                Some(inkstone_raft::Error::OtherRaftGroup { came, .. }) => {
                    let (cluster, node) = ((came >> 64) as u64, *came as u64);
                    let owner = Identity { cluster, node };
                    let path = directory.display();
                    let advice = "give each node a directory of its own";
                    invalid(format!(
                        "{path} is the directory of {owner}, not of {identity}: {advice}"
                    ))
                }
                _ => why,
            }
        })?;
        Self::of(identity, log, Log::open(directory.join("snapshots"), options)?).await
    }

    /// Of two logs that were opened in some other way, for example on simulated disks.
    ///
    /// # Errors
    /// `InvalidData` when they do not fit together, or when `snapshots` holds something else.
    pub async fn of(
        identity: Identity,
        mut log: LogStore<TypeConfig>,
        snapshots: Log,
    ) -> io::Result<Self> {
        let snapshots = Snapshots::new(snapshots)?;
        let machine = StateMachine::new(snapshots.clone())?;
        // openraft does not look: entries that are purged and in no snapshot would be missing
        // without a word.
        let (purged, applied) = (log.get_log_state().await?.last_purged_log_id, machine.applied());
        if purged > applied {
            return Err(invalid(format!(
                "the log was purged up to index {:?}, and the newest snapshot ends at {:?}: a part \
                 of this directory was removed or replaced. Remove all of it, and add this machine \
                 to the cluster as a node with a new id",
                purged.map(|id| id.index),
                applied.map(|id| id.index)
            )));
        }
        Ok(Self { identity, log, snapshots, machine })
    }
}

fn invalid(why: String) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, why)
}
