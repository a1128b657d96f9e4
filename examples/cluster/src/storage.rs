//! What a node has on disk: the raft log in `log/`, and the snapshots in `snapshots/`, below one
//! directory.
//!
//! *Owns*: where the two are, whose they are, and whether they fit together. *May not touch*: what
//! is in them.

use std::io;
use std::path::Path;

use inkstone::{AnyDirectory, Log};
use inkstone_openraft::LogStore;
use openraft::storage::RaftLogStorage;

use crate::machine::StateMachine;
use crate::snapshots::Snapshots;
use crate::types::TypeConfig;

/// Whose directory it is: written into a new one, and checked from then on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// The cluster's number: any, as long as two clusters that could meet have different ones.
    pub cluster: u64,
    /// The node's id.
    pub node: u64,
}

impl Identity {
    fn raft_group(self) -> u128 {
        u128::from(self.cluster) << 64 | u128::from(self.node)
    }

    fn of_raft_group(group: u128) -> Self {
        Self { cluster: (group >> 64) as u64, node: group as u64 }
    }
}

/// How both logs are opened.
#[derive(Debug, Clone)]
pub struct StorageOptions {
    /// The raft log's. One append may hold [`crate::node::Limits::flight_bytes`] and a little more:
    /// `record_bytes_max` must be twice that.
    pub log: inkstone::Options,
    /// The snapshots'.
    pub snapshots: inkstone::Options,
}

impl StorageOptions {
    /// Segments of this size for both: from 4 MiB, a multiple of 4096.
    pub fn of_segments(bytes: u64) -> Self {
        let of = || {
            inkstone::Options::new()
                .segment_bytes(bytes)
                .record_bytes_max((bytes / 2).min(16 << 20) as usize)
        };
        Self { log: of(), snapshots: of() }
    }
}

impl Default for StorageOptions {
    fn default() -> Self {
        Self { log: inkstone::Options::new(), snapshots: inkstone::Options::new() }
    }
}

/// One node's log, snapshots and state, opened.
#[derive(Debug)]
pub struct Storage {
    pub(crate) identity: Identity,
    pub(crate) log: LogStore<TypeConfig>,
    pub(crate) snapshots: Snapshots,
    pub(crate) machine: StateMachine,
    last: Option<u64>,
}

impl Storage {
    /// Opens what is in `directory`, or creates it.
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
        options: StorageOptions,
    ) -> io::Result<Self> {
        let options = options.named(identity);
        let log = LogStore::open(directory.join("log"), options.0)
            .map_err(|why| explain(why, directory, identity))?;
        let snapshots = Log::open(directory.join("snapshots"), options.1)?;
        Self::of(identity, log, snapshots).await
    }

    /// As [`Storage::open`], in two directories of any kind, for example of a simulated disk.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Durability
    /// As there.
    pub async fn open_in(
        log: impl Into<AnyDirectory>,
        snapshots: impl Into<AnyDirectory>,
        identity: Identity,
        options: StorageOptions,
    ) -> io::Result<Self> {
        let (log, options) = (log.into(), options.named(identity));
        let path = log.path().to_owned();
        let log = LogStore::open_in(log, options.0).map_err(|why| explain(why, &path, identity))?;
        let snapshots = Log::open_in(snapshots.into(), options.1)?;
        Self::of(identity, log, snapshots).await
    }

    /// Of two logs that were opened in some other way, for example without threads.
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
        let found = log.get_log_state().await?;
        let purged = found.last_purged_log_id;
        if purged > machine.applied() {
            let show = |id: Option<crate::types::LogId>| {
                id.map_or("nothing".to_owned(), |id| id.to_string())
            };
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!(
                    "the log was purged up to {}, and the newest snapshot has {}: a part of this directory was removed or \
                     replaced. Remove all of it, and add this machine to the cluster as a node with a new id",
                    show(purged),
                    show(machine.applied())
                ),
            ));
        }
        let last = found.last_log_id.map(|id| id.index);
        Ok(Self { identity, log, snapshots, machine, last })
    }

    /// The index of the last entry that the log had when it was opened.
    pub fn last(&self) -> Option<u64> {
        self.last
    }
}

impl StorageOptions {
    fn named(self, identity: Identity) -> (inkstone_openraft::Options, inkstone::Options) {
        (
            inkstone_openraft::Options::new().log(self.log).raft_group(identity.raft_group()),
            self.snapshots,
        )
    }
}

/// Says whose directory it is, where the raft log has only the numbers of groups.
fn explain(error: io::Error, directory: &Path, expected: Identity) -> io::Error {
    let came = match error.get_ref().and_then(|inner| inner.downcast_ref()) {
        Some(inkstone_raft::Error::OtherRaftGroup { came, .. }) => Identity::of_raft_group(*came),
        _ => return error,
    };
    let path = directory.display();
    let why = if came.cluster == expected.cluster {
        format!(
            "{path} is the directory of node {}, not of node {}: give each node a directory of its own",
            came.node, expected.node
        )
    } else {
        format!(
            "{path} belongs to cluster {} (its node {}), not to cluster {}: another --dir, or another --cluster-id?",
            came.cluster, came.node, expected.cluster
        )
    };
    io::Error::new(io::ErrorKind::InvalidData, why)
}
