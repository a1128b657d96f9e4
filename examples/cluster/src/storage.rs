//! What a node has on disk, below one directory: the raft log in `log/`, and the newest snapshot.
//!
//! *Owns*: where they are, and whose. *May not touch*: what is in them.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;

use inkstone_openraft::{LogStore, Options};

use crate::machine::StateMachine;
use crate::snapshots::Snapshots;
use crate::types::TypeConfig;

/// The raft log, and the state as of the last snapshot.
pub type Storage = (LogStore<TypeConfig>, StateMachine);

/// Opens the directory of a node, with segments of this size: from 4 MiB, a multiple of 4096.
///
/// `is_new`: the node starts for the first time, and its directory is made. It may be there, since
/// such a start can be killed: the caller asks whether the node has begun. Any later start refuses
/// a directory without a log, as one whose disk is not mounted: a node that has forgotten its votes
/// and entries could make the cluster lose what was acknowledged.
///
/// # Errors
/// When the directory is another node's, has no log and the node is not new, or has a damaged
/// snapshot; those of the log, for example when another process has it open.
///
/// # Durability
/// What the opened storage shows is on stable storage.
pub fn open(directory: &Path, id: u64, segment_bytes: u64, is_new: bool) -> io::Result<Storage> {
    let log = directory.join("log");
    if is_new {
        fs::create_dir_all(directory)?;
    }
    let record_bytes_max = (segment_bytes / 2).min(16 << 20) as usize;
    let of_log = inkstone::Options::new().segment_bytes(segment_bytes).create(is_new);
    let of_log = of_log.record_bytes_max(record_bytes_max);
    // The directory of another node is refused.
    let log = LogStore::open(log, Options::new().log(of_log).raft_group(id));
    let log = log.map_err(|error| match error.kind() {
        ErrorKind::NotFound if !is_new => io::Error::other(format!(
            "{} has no node: the first start needs --cluster",
            directory.display()
        )),
        _ => error,
    })?;
    Ok((log, StateMachine::new(Snapshots::new(directory.join("snapshot")))?))
}
