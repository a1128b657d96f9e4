//! What a node has on disk: the raft log in `log/`, and the snapshots in `snapshots/`, below one
//! directory. Several groups of a node have both in common, so that they share every flush.
//!
//! *Owns*: where the two are, whose they are, and whether they fit together. *May not touch*: what
//! is in them.

use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::Arc;

use inkstone_openraft::{Groups, LogStore, StreamsOptions};
use inkstone_streams::Streams;
use openraft::storage::RaftLogStorage;
use serde::{Deserialize, Serialize};

use crate::machine::StateMachine;
use crate::snapshots::Snapshots;
use crate::types::{TypeConfig, fnv};

/// One group of one node of one cluster. Who it is is written into a new directory and checked from
/// then on, and it is in each message from node to node: an address that leads to another node
/// counts for nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The cluster's number: any, as long as two clusters that could meet have different ones.
    pub cluster: u64,
    pub node: u64,
    /// From 0; 0 if there is one.
    pub group: u16,
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
        let options = options(segment_bytes);
        let group = u128::from(identity.cluster) << 64 | u128::from(identity.node);
        let of_log = inkstone_openraft::Options::new().log(options).raft_group(group);
        let log = LogStore::open(directory.join("log"), of_log).map_err(|why| {
            match why.get_ref().and_then(|why| why.downcast_ref()) {
                Some(inkstone_raft::Error::OtherRaftGroup { came, .. }) => {
                    let (cluster, node) = ((came >> 64) as u64, *came as u64);
                    let owner = Identity { cluster, node, group: 0 };
                    let path = directory.display();
                    let advice = "give each node a directory of its own";
                    invalid(format!(
                        "{path} is the directory of {owner}, not of {identity}: {advice}"
                    ))
                }
                _ => why,
            }
        })?;
        let snapshots = Snapshots::new(snapshots(directory, segment_bytes)?, 0)?;
        Self::of(identity, log, snapshots).await
    }

    /// As [`Storage::open`], for so many groups: one storage for each, and the log that all share,
    /// which must live as long.
    ///
    /// # Errors
    /// As there, and `InvalidData` when the directory was made with another number of groups: a key
    /// would belong to another one.
    ///
    /// # Durability
    /// As there.
    pub async fn open_groups(
        directory: &Path,
        identity: Identity,
        count: u16,
        segment_bytes: u64,
    ) -> io::Result<(Groups, Vec<Self>)> {
        let groups = Groups::open(directory.join("log"), of_groups(segment_bytes))?;
        // The number of a group in the log says whose it is, too.
        let owner = fnv(&[identity.cluster, identity.node].map(u64::to_le_bytes).concat()) >> 16;
        let number = |group: u16| owner << 16 | u64::from(group);
        let found = groups.ids()?;
        if found.iter().any(|found| found >> 16 != owner) {
            return Err(invalid(format!(
                "{} is the directory of another node or cluster, not of {identity}: give each node \
                 a directory of its own",
                directory.display()
            )));
        }
        // All are made before the first of them votes, and the log keeps that order.
        let mut is_used = false;
        for found in &found {
            is_used |= groups.group(*found)?.vote()?.is_some();
        }
        if found.len() > count.into() || is_used && found.len() < count.into() {
            return Err(invalid(format!(
                "{} was made with --groups {}: a key would belong to another group now",
                directory.display(),
                found.len()
            )));
        }
        let rafts: Result<Vec<_>, _> =
            (0..count).map(|group| groups.group(number(group))).collect();
        let rafts = rafts?;
        let all = snapshots(directory, segment_bytes)?;
        let mut storages = Vec::new();
        for (raft, group) in rafts.into_iter().zip(0..) {
            let (log, snapshots) =
                (LogStore::of_group(raft)?, Snapshots::new(Arc::clone(&all), group)?);
            storages.push(Self::of(Identity { group, ..identity }, log, snapshots).await?);
        }
        Ok((groups, storages))
    }

    /// Of a log and snapshots that were opened in some other way, for example on simulated disks.
    ///
    /// # Errors
    /// `InvalidData` when they do not fit together.
    pub async fn of(
        identity: Identity,
        mut log: LogStore<TypeConfig>,
        snapshots: Snapshots,
    ) -> io::Result<Self> {
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

fn options(segment_bytes: u64) -> inkstone::Options {
    let record_bytes_max = (segment_bytes / 2).min(16 << 20) as usize;
    // The node's directory has several logs, and is made with the first.
    let options = inkstone::Options::new().create_parents(true);
    options.segment_bytes(segment_bytes).record_bytes_max(record_bytes_max)
}

fn of_groups(segment_bytes: u64) -> StreamsOptions {
    StreamsOptions::new().log(options(segment_bytes)).section_bytes(segment_bytes)
}

/// The log in which the snapshots of all groups are.
fn snapshots(directory: &Path, segment_bytes: u64) -> io::Result<Arc<Streams>> {
    let opened = Streams::open(directory.join("snapshots"), of_groups(segment_bytes));
    opened.map(Arc::new).map_err(io::Error::other)
}

fn invalid(why: String) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, why)
}
