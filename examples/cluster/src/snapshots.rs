//! The newest snapshot on disk: a file that is replaced as a whole.
//!
//! *Owns*: the file, and when a snapshot counts. *May not touch*: what is in it.
//!
//! A new snapshot is written beside the old one and synced, then it takes the old one's name. A
//! crash in the middle leaves the old one.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

use crate::types::{LogId, Snapshot, SnapshotMeta};

/// The snapshots of one node. Clones are the same.
#[derive(Debug, Clone)]
pub struct Snapshots {
    path: PathBuf,
    /// Up to which entry the newest one goes. The lock is held while a snapshot is written.
    newest: Arc<Mutex<Option<LogId>>>,
}

impl Snapshots {
    pub fn new(path: PathBuf) -> Self {
        Self { path, newest: Arc::default() }
    }

    /// Replaces the snapshot. If there is a newer one already, it does nothing.
    ///
    /// # Errors
    /// Those of the disk, for example a full one. The snapshot before is still there then.
    ///
    /// # Durability
    /// On return the snapshot survives a power loss: openraft may purge the entries that are in it.
    pub async fn save(&self, meta: SnapshotMeta, bytes: Bytes) -> io::Result<()> {
        let snapshots = self.clone();
        tokio::task::spawn_blocking(move || snapshots.write(&meta, &bytes)).await?
    }

    fn write(&self, meta: &SnapshotMeta, bytes: &Bytes) -> io::Result<()> {
        let mut newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        if newest.is_some() && *newest >= meta.last_log_id {
            return Ok(());
        }
        let bytes = postcard::to_stdvec(&(meta, bytes)).map_err(io::Error::other)?;
        let beside = self.path.with_extension("new");
        let mut file = File::create(&beside)?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        fs::rename(&beside, &self.path)?;
        // The name must be durable, too.
        File::open(self.path.with_file_name("."))?.sync_all()?;
        *newest = meta.last_log_id;
        Ok(())
    }

    /// The newest snapshot.
    pub fn read(&self) -> io::Result<Option<Snapshot>> {
        let file = match fs::read(&self.path) {
            Ok(file) => file,
            Err(why) if why.kind() == ErrorKind::NotFound => return Ok(None),
            Err(why) => return Err(why),
        };
        let (meta, snapshot) = postcard::from_bytes(&file).map_err(|why| {
            let why = format!("{} is damaged: {why}", self.path.display());
            io::Error::new(ErrorKind::InvalidData, why)
        })?;
        Ok(Some(Snapshot { meta, snapshot }))
    }
}
