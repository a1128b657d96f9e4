//! Snapshots on disk: a small log of their own.
//!
//! *Owns*: which records make a snapshot, and when it counts. *May not touch*: what is in it.
//!
//! A snapshot is a run of *pieces* and one last record, the *label*, which says up to which entry
//! it goes, and where its pieces begin. It counts when its label is durable; then everything before
//! its first piece is given back. A crash in the middle leaves pieces without a label, and the
//! snapshot before is still there. So nothing is renamed, and the log has the checksums.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use inkstone::{Log, Lsn};
use serde::{Deserialize, Serialize};

use crate::runtime::blocking;
use crate::types::{Snapshot, SnapshotMeta};

const PIECE_BYTES: usize = 256 << 10;
const PIECE: u8 = 0;
const LABEL: u8 = 1;

/// The last record of a snapshot.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Label {
    /// The LSN of the first piece, or of the label if there is none.
    first: u64,
    bytes: u64,
    meta: SnapshotMeta,
}

/// The snapshots of one node. Clones are the same.
#[derive(Debug, Clone)]
pub struct Snapshots {
    log: Arc<Log>,
    /// The newest one that counts. The lock is held while a snapshot is written.
    newest: Arc<Mutex<Option<Label>>>,
}

impl Snapshots {
    /// Finds the newest snapshot of a log that holds nothing else.
    ///
    /// # Errors
    /// Those of reading, and `InvalidData` when there are other records.
    pub fn new(log: Log) -> io::Result<Self> {
        let mut newest = None;
        for record in log.reader().records(log.first()) {
            match record.map_err(io::Error::from)?.bytes.split_first() {
                Some((&PIECE, _)) => (),
                Some((&LABEL, label)) => {
                    newest = Some(postcard::from_bytes(label).map_err(invalid)?)
                }
                _ => return Err(invalid("a record that is no part of a snapshot")),
            }
        }
        Ok(Self { log: Arc::new(log), newest: Arc::new(Mutex::new(newest)) })
    }

    /// Writes a snapshot, and gives the room of the one before back. If there is a newer one
    /// already, it does nothing.
    ///
    /// # Errors
    /// Those of the log, for example a full disk. The snapshot before is still there then.
    ///
    /// # Durability
    /// On return the snapshot survives a power loss: openraft may purge the entries that are in it.
    pub async fn save(&self, meta: SnapshotMeta, bytes: Bytes) -> io::Result<()> {
        let snapshots = self.clone();
        blocking(move || snapshots.write(meta, &bytes)).await?.map_err(io::Error::other)
    }

    fn write(
        &self,
        meta: SnapshotMeta,
        bytes: &[u8],
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let mut newest = self.newest();
        if newest.as_ref().is_some_and(|newest| newest.meta.last_log_id >= meta.last_log_id) {
            return Ok(());
        }
        let mut first = None;
        for piece in bytes.chunks(PIECE_BYTES) {
            let lsn = self.log.append_unwaited(&[&[PIECE], piece].concat())?;
            first.get_or_insert(lsn.get());
        }
        // Nobody else appends: the label comes next.
        let first = first.unwrap_or(self.log.last().get() + 1);
        let label = Label { first, bytes: bytes.len() as u64, meta };
        self.log.append_durable(&postcard::to_extend(&label, vec![LABEL])?)?;
        *newest = Some(label);
        self.log.truncate_before(Lsn::new(first))?;
        Ok(())
    }

    /// The newest snapshot.
    ///
    /// # Errors
    /// Those of reading, and `InvalidData` when pieces are missing.
    pub async fn newest_snapshot(&self) -> io::Result<Option<Snapshot>> {
        let snapshots = self.clone();
        blocking(move || snapshots.read()).await?
    }

    /// As [`Snapshots::newest_snapshot`], on this thread.
    pub fn read(&self) -> io::Result<Option<Snapshot>> {
        // The lock is held while pieces are read: a newer snapshot would take them away.
        let newest = self.newest();
        let Some(label) = &*newest else { return Ok(None) };
        let mut bytes = Vec::new();
        for record in self.log.reader().records(Lsn::new(label.first)) {
            let record = record.map_err(io::Error::from)?;
            match record.bytes.split_first() {
                Some((&PIECE, piece)) => bytes.extend_from_slice(piece),
                _ => break,
            }
        }
        if bytes.len() as u64 != label.bytes {
            return Err(invalid(format!(
                "a snapshot of {} bytes has only {}",
                label.bytes,
                bytes.len()
            )));
        }
        Ok(Some(Snapshot { meta: label.meta.clone(), snapshot: bytes.into() }))
    }

    /// Makes everything durable and releases the directory.
    pub fn close(&self) -> io::Result<()> {
        self.log.close().map_err(io::Error::from)
    }

    fn newest(&self) -> MutexGuard<'_, Option<Label>> {
        self.newest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn invalid(why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}
