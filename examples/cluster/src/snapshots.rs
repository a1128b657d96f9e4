//! Snapshots on disk: a small log of their own, in which each group has a stream.
//!
//! *Owns*: which records make a snapshot, and when it counts. *May not touch*: what is in it.
//!
//! A snapshot is a run of *pieces* and one last record, the *label*, which says up to which entry
//! it goes, and where its pieces begin. It counts when its label is durable; then everything before
//! its first piece is truncated. A crash in the middle leaves pieces without a label, and the
//! snapshot before is still there. So nothing is renamed, and the log has the checksums.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use inkstone_streams::{Error, Streams};
use serde::{Deserialize, Serialize};

use crate::runtime::blocking;
use crate::types::{Snapshot, SnapshotMeta};

const PIECE_BYTES: usize = 256 << 10;
const PIECE: u8 = 0;
const LABEL: u8 = 1;

/// The last record of a snapshot.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Label {
    /// The number of the first piece, or of the label if there is none.
    first: u64,
    bytes: u64,
    meta: SnapshotMeta,
}

/// The snapshots of one group of one node. Clones are the same.
#[derive(Debug, Clone)]
pub struct Snapshots {
    streams: Arc<Streams>,
    group: u64,
    /// The newest one that counts. The lock is held while a snapshot is written.
    newest: Arc<Mutex<Option<Label>>>,
}

impl Snapshots {
    /// Finds the newest snapshot of a group in a log that holds nothing else.
    ///
    /// # Errors
    /// Those of reading, and `InvalidData` when there are other records.
    pub fn new(streams: Arc<Streams>, group: u16) -> io::Result<Self> {
        let (group, mut newest) = (u64::from(group), None);
        match streams.create(group, 0) {
            Ok(_) | Err(Error::Exists { .. }) => (),
            Err(why) => return Err(io::Error::other(why)),
        }
        let first = streams.bounds(group).map_err(io::Error::other)?.first;
        for record in streams.reader().records(group, first) {
            match record.map_err(io::Error::other)?.bytes.split_first() {
                Some((&PIECE, _)) => (),
                Some((&LABEL, label)) => {
                    newest = Some(postcard::from_bytes(label).map_err(invalid)?)
                }
                _ => return Err(invalid("a record that is no part of a snapshot")),
            }
        }
        Ok(Self { streams, group, newest: Arc::new(Mutex::new(newest)) })
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
            let piece = self.streams.append(self.group, &[&[PIECE], piece].concat())?;
            first.get_or_insert(piece.numbers()[0]);
        }
        // Nobody else appends to this stream: the label comes next.
        let first = first.unwrap_or(self.streams.bounds(self.group)?.next);
        let label = Label { first, bytes: bytes.len() as u64, meta };
        self.streams.append(self.group, &postcard::to_extend(&label, vec![LABEL])?)?.wait()?;
        *newest = Some(label);
        // Nobody waits for it: an older snapshot that is there again does no harm.
        drop(self.streams.truncate_before(self.group, first)?);
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
        for record in self.streams.reader().records(self.group, label.first) {
            let record = record.map_err(io::Error::other)?;
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

    /// Makes everything durable and releases the directory, for all groups.
    pub fn close(&self) -> io::Result<()> {
        match self.streams.close() {
            // By another group.
            Err(Error::Log(inkstone::Error::Closed)) => Ok(()),
            closed => closed.map_err(io::Error::other),
        }
    }

    fn newest(&self) -> MutexGuard<'_, Option<Label>> {
        self.newest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn invalid(why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}
